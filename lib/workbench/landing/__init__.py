"""Landing: topic to raw files, as a sink connector's JSON says."""
from .job import Landed, checkpoint, dead_letters, dead_letters_path, drop, observed, run
from .sinks import SINK, AvroSink, Sink, kcql, parse

__all__ = ["AvroSink", "Landed", "SINK", "Sink", "checkpoint", "dead_letters", "dead_letters_path", "drop", "kcql",
           "observed", "parse", "run"]
