"""Waiting for a condition. The only place in the workbench that sleeps."""

import contextlib
import fcntl
import math
import os
import signal
import threading
import time
import uuid
from pathlib import Path
from typing import Callable, Iterator, Optional, Sequence, TypeVar

from .errors import ServiceLost, WorkbenchError

RESTART_GRACE_SECONDS = (
    3.0  # seconds for which a service may be gone: it was killed, and is being restarted
)
T = TypeVar("T")


def wait_until(
    condition: Callable[[], T],
    what: str,
    *,
    timeout: float = 60.0,
    interval: float = 0.1,
    failure_reason: Optional[Callable[[], Optional[str]]] = None,
    error: type[WorkbenchError] = WorkbenchError,
    hint: str = "",
) -> T:
    """Poll `condition` until it returns something true, and return that.

    Args:
        condition: called without arguments. An exception it raises counts as "not yet"; the last
            one is reported. ServiceLost ends the wait when the service has been gone for GRACE
            seconds.
        what: what is waited for, completing "waited 60 s for …".
        timeout: seconds before giving up.
        every: seconds between two tries.
        failed: returns a sentence as soon as waiting has become pointless (the process died, the
            task is FAILED). ServiceLost that it raises counts as one of `condition`.
        error: the WorkbenchError class to raise.
        next_step: what a person should do, shown in the error.

    Raises:
        error: after `timeout`, or at once when `failed` returns a sentence.
        ServiceLost: a service that `condition` needs is gone.
    """
    deadline = time.monotonic() + timeout
    last: Optional[BaseException] = None
    lost_since = math.inf
    while True:
        try:
            result = condition()
            if result:
                return result
            last = None
        except Exception as e:  # noqa: BLE001 - "not ready yet" comes as any exception of any client
            last = e
        reason = None
        try:
            reason = failure_reason() if failure_reason else None
        except ServiceLost as e:
            last = e
        lost_since = min(lost_since, last.since) if isinstance(last, ServiceLost) else math.inf
        if time.monotonic() - lost_since >= RESTART_GRACE_SECONDS:
            raise last
        if reason:
            raise error(f"gave up waiting for {what}: {reason}", hint=hint)
        if time.monotonic() >= deadline:
            seen = f"{type(last).__name__}: {last}" if last else "condition still false"
            raise error(
                f"waited {timeout:g} s for {what}",
                location=f"last answer: {seen}",
                hint=hint,
            )
        time.sleep(interval)


def pace(items: Sequence[T], seconds: float) -> Iterator[T]:
    """Yield the items evenly over this many seconds, and return when these are over. An item that
    is late, because the work on the one before it took longer, follows at once.
    """
    begin = time.monotonic()
    for number in range(len(items) + 1):
        time.sleep(max(0.0, begin + seconds * number / max(1, len(items)) - time.monotonic()))
        yield from items[number : number + 1]


@contextlib.contextmanager
def stop_on_signal(*, raise_interrupt: bool = False) -> Iterator[threading.Event]:
    """In this block the first TERM or Ctrl-C sets the event that it gives; a second one does what
    it did before.

    Args:
        interrupting: the first raises KeyboardInterrupt, too, and a second one does nothing: what
            the first one has begun is finished.
    """
    told = threading.Event()

    def tell(number: int, frame: object) -> None:
        again = told.is_set()
        told.set()
        if not raise_interrupt:
            signal.signal(number, before[number])
        elif not again:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, tell) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield told
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def file_lock(lock: Path, busy: Optional[Callable[[str], Exception]] = None) -> Iterator[str]:
    """Hold the lock file `lock`. A second holder waits for the first; with `busy` it raises
    busy(pid of the first).

    The kernel frees it when the holder is killed. Gives what stands in the file below the pid: a
    name that no other file has, not even one that takes its place.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("a+", encoding="utf-8") as f:
        try:
            fcntl.flock(f, fcntl.LOCK_EX | (fcntl.LOCK_NB if busy else 0))
        except BlockingIOError:
            f.seek(0)
            raise busy(f.readline().strip() or "unknown") from None  # type: ignore[misc]
        f.seek(0)
        name = f.read().partition("\n")[2] or uuid.uuid4().hex
        f.truncate(0)
        f.write(f"{os.getpid()}\n{name}")
        f.flush()
        yield name


def lock_owner_pid(lock: Path) -> str:
    """Return the pid of the process that holds the lock file; the empty text where none does."""
    with contextlib.suppress(FileNotFoundError), lock.open(encoding="utf-8") as f:
        try:
            fcntl.flock(f, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return f.readline().strip() or "unknown"
    return ""
