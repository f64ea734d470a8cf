"""Explore the tables of the lake: their history, their rows at an instant, and what changed between two."""

from . import finding, frames
from .finding import find, register
from .frames import Diff, Frame
from .magic import load_ipython_extension, sql
from .saving import recorded, save
from .slider import Slider, slider

# `save` writes the calls of a notebook, not those of other modules
at = recorded(frames.at)
diff = recorded(frames.diff)
row = recorded(finding.row)
