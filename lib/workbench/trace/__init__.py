"""Trace one row from its source to the lake."""

from .row_history import RowHistory, row
