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
    first_line,
    nearest,
)
from .params import World, host_port
from .paths import ROOT, local_path, state_dir
from .wait import wait_until
