"""Locks in S3, by conditional writes: of two that write at once S3 lets one.

A lock is a small object. It is made with `If-None-Match: *`, and from then on only ever overwritten with `If-Match` and
the ETag that was read, so that every change of hands has one winner. It names who holds it; `{}` says: nobody.

The holder writes it again every BEAT seconds. It may be taken over when it has not been for LEASE seconds, by S3's own
clock (no clock of a machine counts), or at once by a process of the same machine that sees the holder's to be gone. A
killed holder thus blocks others for LEASE seconds at most; one that stood still for longer than that finds out with
its next write, and its `hold` ends with an error: it cannot be kept from what it writes meanwhile.
Source: S3 User Guide, "How to prevent object overwrites with conditional writes".
"""
from __future__ import annotations

import contextlib
import json
import math
import os
import socket
import threading
import uuid
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Callable, Iterator, Optional

import psutil

from . import aws, pidfiles
from .errors import LakeError, StackError
from .paths import bucket_and_key
from .wait import wait_until

LEASE, BEAT = 120.0, 15.0  # seconds; an endpoint may stand still for some BEATs before a lock is lost
LOST = ("PreconditionFailed", "ConditionalRequestConflict", "NoSuchKey")  # somebody else wrote, or removed it
_held: set[str] = set()  # the locks of this process


@contextlib.contextmanager
def hold(address: str, busy: Optional[Callable[[str], Exception]] = None) -> Iterator[None]:
    """Hold the lock object `address` (s3: or s3a:). A second holder waits; with `busy` it raises busy(who holds it).

    Raises: StackError: S3 refuses it, or cannot be reached. LakeError (at the end): it was lost meanwhile.
    """
    bucket, key = bucket_and_key(address)
    place, host = {"Bucket": bucket, "Key": key}, socket.gethostname()
    me = {"by": uuid.uuid4().hex, "host": host, "machine": _machine(), "pid": os.getpid(), "beat": 0,
          "born": pidfiles.born(psutil.Process())}

    def turn() -> Any:
        try:
            etag, by = _take(place, me)
        except StackError as e:  # not a reason to wait
            return "", e
        return (etag, busy(f"{by['pid']} on {by['host']}") if busy and by else None) if etag or (busy and by) else None

    _held.add(me["by"])
    ended = threading.Event()
    try:
        etag, why = wait_until(turn, f"the lock {address}", timeout=math.inf, every=0.2)
        if why:
            raise why
        beats = _Beats(place, me, etag)
        thread = threading.Thread(target=beats.go_on, args=[ended], daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            with contextlib.suppress(StackError):  # then others wait until it has run out
                if beats.etag:
                    beats.write({})
    finally:
        _held.discard(me["by"])
    if not beats.etag:
        raise LakeError("a lock was lost while it was held", where=address, expected=f"a process that never stands "
                        f"still for {LEASE:g} s", next_step="another may have written at the same time: run it again")


class _Beats:
    """A held lock: its ETag, empty once it was lost."""

    def __init__(self, place: dict[str, str], me: dict[str, Any], etag: str):
        self.place, self.me, self.etag = place, me, etag

    def go_on(self, ended: threading.Event) -> None:
        while not ended.wait(BEAT) and self.etag:
            self.me["beat"] += 1  # another text has another ETag
            with contextlib.suppress(StackError):  # with the next beat
                self.write(self.me)

    def write(self, body: dict[str, Any]) -> None:
        """Overwrite the object, and note its ETag. An answer that did not come may have been that of a write done."""
        new = _put(self.place, body, IfMatch=self.etag)
        if not new:
            by, etag, _ = _get(self.place)
            new = _put(self.place, body, IfMatch=etag) if by.get("by") == self.me["by"] else etag if by == body else ""
        self.etag = new


def _take(place: dict[str, str], me: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Take the lock where it is free: (its ETag, {}), or ("", who holds it, {} where that is not known)."""
    by, etag, age = _get(place)
    if by.get("by") == me["by"]:  # of a write that was done, whose answer did not come
        return etag, {}
    if by and age < LEASE and not _gone(by):
        return "", by
    return _put(place, me, **({"IfMatch": etag} if etag else {"IfNoneMatch": "*"})), {}


def _put(place: dict[str, str], body: dict[str, Any], **condition: str) -> str:
    """Write the object if the condition holds, and return its ETag; "" where it does not."""
    try:
        return _ask("put_object", **place, Body=json.dumps(body).encode("utf-8"), **condition)["ETag"]
    except StackError as e:
        if aws.code(e) in LOST:
            return ""
        raise


def _get(place: dict[str, str]) -> tuple[dict[str, Any], str, float]:
    """Who holds the lock, its ETag, and how many seconds ago it was written; nobody and "" where there is no object."""
    try:
        found = _ask("get_object", **place)
    except StackError as e:
        if aws.code(e) == "NoSuchKey":
            return {}, "", 0.0
        raise
    now = parsedate_to_datetime(found["ResponseMetadata"]["HTTPHeaders"]["date"])
    with aws.answered(f"s3.get_object {place['Key']}"):
        return json.loads(found["Body"].read() or "{}"), found["ETag"], (now - found["LastModified"]).total_seconds()


def _ask(operation: str, **given: Any) -> dict[str, Any]:
    return aws.call(os.environ.get("AWS_REGION", "us-east-1"), "s3", operation, **given)


def _gone(by: dict[str, Any]) -> bool:
    """Whether the process that holds a lock is seen to be gone; False where it cannot be seen from here."""
    if not by["machine"] or by["machine"] != _machine():
        return False
    return by["by"] not in _held if by["pid"] == os.getpid() else pidfiles.living(by) is None


def _machine() -> str:
    """What tells this machine, as long as it is not started anew, and what its process numbers mean; "" where nothing
    does (it is not Linux)."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip() + os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""
