"""Captured tables: their topics, their ingest into the lake, and their comparison with the source."""

from .capture import Capture
from .flow import CaptureFlow
from .registry import declare, declared
