"""Fault points: places in the code at which a service can kill its own process."""

import os
import signal
from typing import Any

from .domain import CommandRejected, Context

# After the commit of a command; before a batch of events; in the transaction of a batch; between this
# transaction and the commit of the offsets.
FAULT_POINTS = ("after_commit", "before_batch", "in_transaction", "before_offset_commit")


class FaultPoints:
    """The fault points of a service's process; none is armed at the start."""

    def __init__(self, context: Context):
        """A service that subscribes to no topic has only the first fault point."""
        self._names = FAULT_POINTS if context.subscribed_topics else FAULT_POINTS[:1]
        self._armed: dict[str, int] = {}

    def set_point(self, name: Any, after: Any) -> dict[str, Any]:
        """Make the process kill itself when it reaches a fault point for the n-th time.

        Args:
            name: one of the service's fault points.
            after: n, from 1.

        Returns:
            {"at": name, "after": n}.

        Raises:
            CommandRejected: the name or the number is invalid.
        """
        if name not in self._names or type(after) is not int or after < 1:
            raise CommandRejected(
                f"at is one of {', '.join(self._names)}, and after a whole number from 1"
            )
        self._armed[name] = after
        return {"at": name, "after": after}

    def reach(self, name: str) -> None:
        """Count down an armed fault point, and kill the process at zero."""
        if name in self._armed:
            self._armed[name] -= 1
            if not self._armed[name]:
                os.kill(os.getpid(), signal.SIGKILL)
