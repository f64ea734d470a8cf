"""Landing: topic to raw files, as a sink connector's JSON says."""
from .job import LandingCounts, checkpoint, dead_letters, dead_letters_path, drop, observed, run
from .sinks import SINK, Sink, kcql, parse
