"""Locks in S3, by conditional writes: of two simultaneous writes S3 accepts one.

A lock is a small object. It is created with `If-None-Match: *`. From then on it is only overwritten
with `If-Match` and the ETag that was read, so each change of owner has one winner. The object names
the owner, also after the owner has released it.

The owner writes the object again every HEARTBEAT_SECONDS. Another process may take the lock over
when the object is older than LEASE_SECONDS. Both times are S3's, so the clocks of machines do not
matter. If an owner is suspended for longer than LEASE_SECONDS, its next write fails, and its `hold`
ends with an error. Writes of this owner to the lake before that error are not prevented.

A process holds a local lock file before it requests the object. The id of this file is the name of
the owner, so the lock of a killed process is free at once on its machine.

Source: S3 User Guide, "How to prevent object overwrites with conditional writes".
"""

import contextlib
import hashlib
import itertools
import json
import math
import os
import socket
import threading
from email.utils import parsedate_to_datetime
from typing import Any, Callable, Iterator, Optional

from . import aws, paths, wait
from .errors import LakeError, StackError, WorkbenchError

LEASE_SECONDS = 120.0  # an endpoint may stall for several heartbeats before a lock is lost
HEARTBEAT_SECONDS = 15.0
# Another process has overwritten the object, or removed it.
LOST_ERROR_CODES = "PreconditionFailed|ConditionalRequestConflict|NoSuchKey"
OnLocked = Optional[Callable[[str], WorkbenchError]]


@contextlib.contextmanager
def hold(uri: str, on_locked: OnLocked = None) -> Iterator[None]:
    """Hold a lock object.

    Args:
        uri: URI of the object (s3: or s3a:).
        on_locked: returns the exception to raise, given the pid and host of the current owner. If
            it is None, a second caller waits.

    Raises:
        StackError: S3 rejects a request, or cannot be reached.
        LakeError: (at the end) the lock was lost while it was held.
    """
    digest = hashlib.sha256(f"{os.environ.get('AWS_ENDPOINT_URL_S3')} {uri}".encode()).hexdigest()
    lock_file = paths.user_runtime_dir() / "locks" / digest[:16]
    with wait.file_lock(lock_file, on_locked) as owner_id:
        lock = _LockObject(uri, owner_id)
        wait.wait_until(
            lambda: lock.write(take=True, on_locked=on_locked),
            f"the lock {uri}",
            timeout=math.inf,
            interval=0.2,
            is_transient=lambda e: False,
        )
        with wait.background(lock.keep) as kept:
            yield
    if not kept.result():
        raise LakeError(
            "a lock was lost while it was held",
            location=uri,
            expected=f"a process that is never suspended for {LEASE_SECONDS:g} s",
            hint="another process may have written at the same time: repeat the job",
        )


class _LockObject:
    """A lock object in S3."""

    def __init__(self, uri: str, owner_id: str):
        self.bucket, self.key = paths.parse_s3_uri(uri)
        self.owner = {"by": owner_id, "host": socket.gethostname(), "pid": os.getpid()}

    def keep(self, stop: threading.Event) -> bool:
        """Renew the lease until the event is set, then release it.

        Returns:
            False if another process has taken the lock over.
        """
        for beat in itertools.count(1):
            changes = {"released": True} if stop.wait(HEARTBEAT_SECONDS) else {"beat": beat}
            # After an error the next heartbeat renews the lease. If the release fails, processes on
            # other machines wait until the lease has expired.
            with contextlib.suppress(StackError):
                # A write whose response was lost may have succeeded: then the next attempt of boto3,
                # with the old ETag, has failed.
                if not any(self.write(**changes) for _ in range(2)):
                    return False
            if "released" in changes:
                break
        return True

    def write(self, take: bool = False, on_locked: OnLocked = None, **changes: Any) -> bool:
        """Write the object if this process, or another one on this machine before it, has the lock.

        Args:
            take: write it also if the lock is free or expired.
            on_locked: returns the exception to raise if another owner has the lock (see `hold`).
            changes: what the object says beside the owner; another content has another ETag.

        Returns:
            Whether it was written: not if another owner has the lock, or has written meanwhile.
        """
        owner, is_free, condition = self.owner, True, {"IfNoneMatch": "*"}
        with aws.ignore_error_codes("NoSuchKey"), aws.translate_errors(f"s3.get_object {self.key}"):
            response = self._call("get_object")
            owner = json.loads(response["Body"].read())
            now = parsedate_to_datetime(response["ResponseMetadata"]["HTTPHeaders"]["date"])
            age_s = (now - response["LastModified"]).total_seconds()
            is_free = take and ("released" in owner or age_s >= LEASE_SECONDS)
            condition = {"IfMatch": response["ETag"]}
        if owner["by"] != self.owner["by"] and not is_free:
            if on_locked:
                raise on_locked(f"{owner['pid']} on {owner['host']}")
            return False
        body = json.dumps({**self.owner, **changes}).encode("utf-8")
        with aws.ignore_error_codes(LOST_ERROR_CODES):
            self._call("put_object", Body=body, **condition)
            return True
        return False

    def _call(self, operation: str, **params: Any) -> dict[str, Any]:
        region = os.environ.get("AWS_REGION", "us-east-1")
        return aws.call(region, "s3", operation, Bucket=self.bucket, Key=self.key, **params)
