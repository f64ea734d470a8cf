"""One row through everything."""
from .biography import row, views
from .model import Biography, Traced
from .telling import draw, show
