"""Explore the tables of the lake: their history, their rows at an instant, and what changed between two."""

from . import frames
from .finding import find, register
from .frames import Frame
from .magic import load_ipython_extension, sql
from .saving import recorded, save
from .slider import Slider, slider

at = recorded(frames.at)  # the calls of other modules are not recorded
