"""Landing: topic to raw files, as a sink connector's JSON says."""
from .job import LandingCounts, dead_letters, dead_letters_path, drop, run
from .sinks import parse
