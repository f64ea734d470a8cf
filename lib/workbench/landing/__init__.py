"""Landing: topic to raw files, as a sink connector's JSON says; and polling, table to topic, as a source's says."""
from .job import LandingCounts, dead_letters, dead_letters_path, drop, run
from .polling import Polled, forget, poll, polled_from
from .sinks import parse
