"""Trace one row from its source to the lake."""

from .in_topic import TracedTable
from .render import RowHistory, draw, show
from .row_history import row, views
