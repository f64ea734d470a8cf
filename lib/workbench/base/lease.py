"""Locks in S3, by conditional writes: of two that write at once S3 lets one.

A lock is a small object. It is made with `If-None-Match: *`, and from then on only ever overwritten
with `If-Match` and the ETag that was read, so that every change of hands has one winner. It names
who holds it; `{}` says: nobody.

The holder writes it again every BEAT seconds. It may be taken over when it has not been for LEASE
seconds, by S3's own clock (no clock of a machine counts); one that stood still for longer than that
finds out with its next write, and its `hold` ends with an error: it cannot be kept from what it
writes meanwhile. Processes of one machine hold a lock file before they ask for the object, and
write its name into that: what a killed one has left is theirs at once.
Source: S3 User Guide, "How to prevent object overwrites with conditional writes".
"""

import contextlib
import hashlib
import json
import math
import os
import socket
import threading
from email.utils import parsedate_to_datetime
from typing import Any, Callable, Iterator, Optional

from . import aws, paths, wait
from .errors import LakeError, StackError

LEASE_SECONDS, HEARTBEAT_SECONDS = (
    120.0,
    15.0,
)  # seconds; an endpoint may stand still for some BEATs before a lock is lost
LOST_ERROR_CODES = (
    "PreconditionFailed|ConditionalRequestConflict|NoSuchKey"  # somebody else wrote, or removed it
)


@contextlib.contextmanager
def hold(address: str, busy: Optional[Callable[[str], Exception]] = None) -> Iterator[None]:
    """Hold the lock object `address` (s3: or s3a:). A second holder waits; with `busy` it raises
    busy(who holds it).

    Raises: StackError: S3 refuses it, or cannot be reached. LakeError (at the end): it was lost
        meanwhile.
    """
    place = hashlib.sha256(
        f"{os.environ.get('AWS_ENDPOINT_URL_S3')} {address}".encode()
    ).hexdigest()
    with wait.file_lock(paths.user_runtime_dir() / "locks" / place[:16], busy) as me:
        lock = _LockObject(address, me)

        def turn() -> Any:
            try:
                by = lock.try_acquire()
            except StackError as e:  # not a reason to wait
                return e
            return lock.etag or (busy(f"{by['pid']} on {by['host']}") if busy and by else None)

        found = wait.wait_until(turn, f"the lock {address}", timeout=math.inf, interval=0.2)
        if isinstance(found, Exception):
            raise found
        ended = threading.Event()
        thread = threading.Thread(target=lock.heartbeat, args=[ended], daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            with contextlib.suppress(
                StackError
            ):  # then those on other machines wait until it has run out
                lock.write({})
    if not lock.etag:
        raise LakeError(
            "a lock was lost while it was held",
            location=address,
            expected=f"a process that never stands still for {LEASE_SECONDS:g} s",
            hint="another may have written at the same time: run it again",
        )


class _LockObject:
    """A lock object, and its ETag while it is held: empty before that, and once it was lost."""

    def __init__(self, address: str, me: str):
        self.bucket, self.key = paths.parse_s3_uri(address)
        self.owner = {"by": me, "host": socket.gethostname(), "pid": os.getpid(), "beat": 0}
        self.etag = ""

    def try_acquire(self) -> dict[str, Any]:
        """Take it where it is free, or was left by one of this machine; else return who holds it,
        where that is known.
        """
        by, etag, age = self._read()
        if by and by["by"] != self.owner["by"] and age < LEASE_SECONDS:
            return by
        self.etag = self._put(self.owner, etag)
        return {}

    def heartbeat(self, ended: threading.Event) -> None:
        while not ended.wait(HEARTBEAT_SECONDS):
            self.owner["beat"] += 1  # another text has another ETag
            with contextlib.suppress(StackError):  # with the next beat
                self.write(self.owner)

    def write(self, body: dict[str, Any]) -> None:
        """Overwrite it where it is held. An answer that did not come may have been that of a write
        that was done.
        """
        new = self.etag and self._put(body, self.etag)
        if self.etag and not new:
            by, etag, _ = self._read()
            new = (
                self._put(body, etag)
                if by.get("by") == self.owner["by"]
                else etag
                if by == body
                else ""
            )
        self.etag = new

    def _put(self, body: dict[str, Any], etag: str) -> str:
        """Write the object if it is the one with this ETag, none if that is empty; return the new
        one, "" if it is not.
        """
        condition = {"IfMatch": etag} if etag else {"IfNoneMatch": "*"}
        with aws.ignore_error_codes(LOST_ERROR_CODES):
            return self._call("put_object", Body=json.dumps(body).encode("utf-8"), **condition)[
                "ETag"
            ]
        return ""

    def _read(self) -> tuple[dict[str, Any], str, float]:
        """Who holds it, its ETag, how many seconds ago it was written; nobody and "" where there is
        no object.
        """
        with aws.ignore_error_codes("NoSuchKey"), aws.translate_errors(f"s3.get_object {self.key}"):
            found = self._call("get_object")
            age = (
                parsedate_to_datetime(found["ResponseMetadata"]["HTTPHeaders"]["date"])
                - found["LastModified"]
            )
            return json.loads(found["Body"].read() or "{}"), found["ETag"], age.total_seconds()
        return {}, "", 0.0

    def _call(self, operation: str, **given: Any) -> dict[str, Any]:
        return aws.call(
            os.environ.get("AWS_REGION", "us-east-1"),
            "s3",
            operation,
            Bucket=self.bucket,
            Key=self.key,
            **given,
        )
