"""The ground: errors for people, waiting, where things lie, files of the lake, worlds and their
secrets. What most modules need of it is had from here.
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
