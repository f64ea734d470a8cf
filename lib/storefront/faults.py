"""Fault points: places in the code at which a service can kill its own process."""

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


class FaultPoints:
    """The fault points of a service's process; none is armed at the start."""

    def __init__(self) -> None:
        """Arm no fault point."""
        self._armed: dict[str, int] = {}

    def arm(self, fault: Fault) -> None:
        """Arm a fault point."""
        self._armed[fault.at] = fault.after

    def reach(self, name: FaultPoint) -> None:
        """Count down an armed fault point, and kill the process at zero."""
        if name in self._armed:
            self._armed[name] -= 1
            if not self._armed[name]:
                os.kill(os.getpid(), signal.SIGKILL)
