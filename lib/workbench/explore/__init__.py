"""Explore the tables of the lake: their history, their rows at an instant, and what changed between two."""

from . import charting, finding, frames, overview, profiling
from .finding import find
from .frames import Diff, Frame
from .magic import load_ipython_extension, sql
from .overview import History
from .saving import recorded, save
from .slider import Slider, slider

# `save` writes the calls of a notebook, not those of other modules
at = recorded(frames.at)
chart = recorded(charting.chart)
diff = recorded(frames.diff)
history = recorded(overview.history)
profile = recorded(profiling.profile)
row = recorded(finding.row)
tables = recorded(overview.tables)
