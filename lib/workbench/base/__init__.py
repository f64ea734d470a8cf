"""The foundation: errors for people, waiting, paths, files of the lake, worlds and their secrets.

The names below are those that most modules use.
"""

from .errors import (
    ConnectorError,
    LakeError,
    ParamsError,
    ServiceLost,
    SourceError,
    StackError,
    WorkbenchError,
    did_you_mean,
    first_line,
)
from .params import World, split_host_port
from .paths import ROOT, local_path, state_dir
from .wait import wait_until
