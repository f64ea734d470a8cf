"""Explore the tables of the lake: their history, their rows at an instant, and what changed between two."""

from .charting import chart
from .finding import find, register, row
from .frames import Diff, Frame, at, diff
from .overview import History, history, tables
from .profiling import profile
