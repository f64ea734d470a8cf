"""Landing (topics to raw files) and polling (tables to topics), configured by a connector's JSON.

`run` and `poll` run once, from a configuration. `apply`, `names`, `status`, `run_once` and `delete`
manage connectors as Kafka Connect does, for connectors without a plugin in the environment's Kafka
Connect (see builtin_runner.py).
"""

from .builtin_runner import apply, delete, names, run_once, status
from .job import LandingCounts, dead_letters, dead_letters_path, drop, folders, run
from .polling import Polled, poll, reset_offsets
from .sinks import parse
