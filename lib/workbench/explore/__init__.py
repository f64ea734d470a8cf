"""Explore the tables of the lake: their history, their rows at an instant, and what changed between two."""

from .finding import find, row
from .frames import Diff, Frame, at, diff
from .magic import load_ipython_extension, sql
from .overview import History, history, tables
from .profiling import profile
from .slider import Slider, slider
