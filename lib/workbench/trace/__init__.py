"""One row through everything."""

from .in_topic import TracedTable
from .render import draw, show
from .row_history import RowHistory, row, views
