"""One row through everything."""

from .biography import Biography, row, views
from .in_topic import Traced
from .telling import draw, show
