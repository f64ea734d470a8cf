"""Landing: topic to raw files, as a sink connector's JSON says; and polling, table to topic, as a
source's says.

`run` and `poll` do it once, from a configuration; `apply`, `names`, `status`, `step` and `delete`
are the verbs of a Connect, for those that it has no plugin for (see jobs.py).
"""

from .builtin_runner import apply, delete, names, run_once, status
from .job import LandingCounts, dead_letters, dead_letters_path, drop, folders, run
from .polling import Polled, poll, reset_offsets
from .sinks import parse
