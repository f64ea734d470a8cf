"""One row through everything."""
from .biography import Biography, Traced, row, traceable, views
from .telling import draw, show

__all__ = ["Biography", "Traced", "draw", "row", "show", "traceable", "views"]
