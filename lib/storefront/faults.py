"""Fault points: places in the code at which the process of a service can kill itself."""

import os
import signal
from typing import Literal

from pydantic import BaseModel, PositiveInt

# After the commit of a command; before a batch of events; in the transaction of a batch; between this
# transaction and the commit of the offsets. `accounts`, which has no consumer, reaches only the first.
FaultPoint = Literal["after_commit", "before_batch", "in_transaction", "before_offset_commit"]


class Fault(BaseModel, extra="forbid"):
    """A fault: the process kills itself when it reaches the fault point `at` for the n-th time.

    Attributes:
        at: the fault point.
        after: n, from 1.
    """

    at: FaultPoint
    after: PositiveInt = 1


_armed: dict[
    FaultPoint, int
] = {}  # {fault point: how often it may still be reached} of this process


def arm(fault: Fault) -> Fault:
    """Arm a fault point of this process, and return the fault."""
    _armed[fault.at] = fault.after
    return fault


def reach(point: FaultPoint) -> None:
    """Count down an armed fault point, and kill the process at zero."""
    if point in _armed:
        _armed[point] -= 1
        if not _armed[point]:
            os.kill(os.getpid(), signal.SIGKILL)
