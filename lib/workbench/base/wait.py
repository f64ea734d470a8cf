"""Waiting for conditions, signals and lock files. No other module calls `time.sleep`."""

import contextlib
import fcntl
import math
import os
import signal
import threading
import time
import uuid
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Callable, Iterator, Optional, Sequence, TextIO, TypeVar

from .errors import ServiceLost, WorkbenchError

RESTART_GRACE_SECONDS = 3.0  # a killed service may be down for this long while it is restarted
LOCK_SECONDS = 1.0  # `lock_owner_pid` of another process holds a lock for a moment
T = TypeVar("T")


def wait_until(
    condition: Callable[[], Optional[T]],
    description: str,
    *,
    timeout: float = 60.0,
    interval: float = 0.1,
    failure_reason: Optional[Callable[[], Optional[str]]] = None,
    is_transient: Callable[[Exception], bool] = lambda error: True,
    error: type[WorkbenchError] = WorkbenchError,
    hint: str = "",
) -> T:
    """Poll `condition` until it returns a true value, and return that value.

    Args:
        condition: called without arguments. A transient exception counts as "not yet"; the last
            one is reported. ServiceLost ends the wait when the service has been gone for
            RESTART_GRACE_SECONDS.
        description: completes "waited 60 s for …" in the error.
        timeout: seconds before giving up.
        interval: seconds between two calls.
        failure_reason: returns a sentence as soon as waiting has become pointless (the process
            died, the task is FAILED). A ServiceLost from it is handled like one from `condition`.
        is_transient: whether an exception of `condition` counts as "not yet". Any other exception
            is raised at once.
        error: the WorkbenchError class to raise.
        hint: hint of the error.

    Raises:
        error: after `timeout`, or at once when `failure_reason` returns a sentence.
        ServiceLost: a service that `condition` needs is gone.
    """
    deadline = time.monotonic() + timeout
    lost_since = math.inf
    while True:
        reason = None
        last_error: Optional[Exception] = None
        try:
            result = condition()
            if result:
                return result
        except Exception as e:  # noqa: BLE001 - any client's exception may mean "not ready yet"
            if not is_transient(e):
                raise
            last_error = e
        try:
            reason = failure_reason() if failure_reason else None
        except ServiceLost as e:
            last_error = e
        now = time.monotonic()
        lost_since = min(lost_since, now) if isinstance(last_error, ServiceLost) else math.inf
        if last_error and now - lost_since >= RESTART_GRACE_SECONDS:
            raise last_error
        if reason:
            raise error(f"gave up waiting for {description}: {reason}", hint=hint)
        if now >= deadline:
            failure = f"{type(last_error).__name__}: {last_error}"
            raise error(
                f"waited {timeout:g} s for {description}",
                location=f"last result: {failure if last_error else 'condition still false'}",
                hint=hint,
            )
        time.sleep(interval)


def pace(items: Sequence[T], seconds: float) -> Iterator[T]:
    """Yield items evenly over a period, and return at the end of the period.

    If the work on an item takes longer than its share of the period, the next item follows at once.

    Args:
        items: what to yield; if it is empty, the function returns at once.
        seconds: length of the period.
    """
    start = time.monotonic()
    for number in range(len(items) + 1):
        due = start + seconds * number / max(1, len(items))
        time.sleep(max(0.0, due - time.monotonic()))
        if number < len(items):
            yield items[number]


@contextlib.contextmanager
def stop_on_signal(*, raise_interrupt: bool = False) -> Iterator[threading.Event]:
    """Turn SIGTERM and Ctrl-C into an event while the block runs.

    The first signal sets the event. A second one has its original effect.

    Args:
        raise_interrupt: the first signal also raises KeyboardInterrupt. Further signals have no
            effect, so that they do not interrupt the cleanup after the first.

    Yields:
        The event.
    """
    stop_event = threading.Event()

    def handle_signal(number: int, frame: Optional[FrameType]) -> None:
        is_first = not stop_event.is_set()
        stop_event.set()
        if not raise_interrupt:
            signal.signal(number, original[signal.Signals(number)])
        elif is_first:
            raise KeyboardInterrupt

    original = {
        number: signal.signal(number, handle_signal) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield stop_event
    finally:
        for number, handler in original.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def background(work: Callable[[threading.Event], T]) -> Iterator["Future[T]"]:
    """Run a function in a thread while the block runs, and raise its error at the end of the block.

    Args:
        work: the function; its event is set at the end of the block.

    Yields:
        Its result.
    """
    stop = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(work, stop)
        try:
            yield result
        finally:
            stop.set()
            result.result()  # its error is the cause of a timeout in the block


@contextlib.contextmanager
def file_lock(path: Path, on_locked: Optional[Callable[[str], Exception]] = None) -> Iterator[str]:
    """Hold a lock file. The kernel releases the lock when its owner is killed.

    Args:
        path: the lock file; it is created if it does not exist.
        on_locked: returns the exception to raise, given the pid of the owner, if the file is locked for
            LOCK_SECONDS. If it is None, a second caller waits for the first.

    Yields:
        The unique id of the file. A file that later replaces this one has another id.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as f:
        if on_locked is None:
            fcntl.flock(f, fcntl.LOCK_EX)
        elif not _lock_soon(f):
            f.seek(0)
            raise on_locked(f.readline().strip() or "unknown")
        f.seek(0)
        file_id = f.read().partition("\n")[2] or uuid.uuid4().hex
        f.truncate(0)
        f.write(f"{os.getpid()}\n{file_id}")
        f.flush()
        yield file_id


def _lock_soon(file: TextIO) -> bool:
    """Lock a file, and return whether it was free at one moment of LOCK_SECONDS."""
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
        time.sleep(0.01)


def lock_owner_pid(path: Path) -> str:
    """Return the pid of the process that holds a lock file; empty if the lock is free."""
    with contextlib.suppress(FileNotFoundError), path.open(encoding="utf-8") as f:
        try:
            fcntl.flock(f, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return f.readline().strip() or "unknown"
    return ""
