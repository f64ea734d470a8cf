"""Landing: topic to raw files, as a sink connector's JSON says; and polling, table to topic, as a
source's says.

`run` and `poll` do it once, from a configuration; `apply`, `names`, `status`, `step` and `delete`
are the verbs of a Connect, for those that it has no plugin for (see jobs.py).
"""

from .job import LandingCounts, dead_letters, dead_letters_path, drop, folders, run
from .jobs import apply, delete, names, status, step
from .polling import Polled, forget, poll
from .sinks import parse
