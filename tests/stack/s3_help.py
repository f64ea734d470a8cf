"""Processes for the tests of locks in S3. They import little, so that eight can run at once."""

import contextlib
import tempfile
import threading
from pathlib import Path

from workbench.base import files, params, paths
from workbench.base.errors import LakeError


def compete_for_locks(number, barrier, got):
    """Run one of eight writers, as if each was on its own machine.

    Thirty times all of them try to get a lock at the same time. Then each increments a counter
    under a lock five times.
    """
    paths.USER_RUNTIME_DIR = Path(tempfile.mkdtemp())  # so no lock file hides the lock in S3
    params.activate(params.load("s3"))
    for each in range(30):
        barrier.wait(120)
        with (
            contextlib.suppress(LakeError),
            files.exclusive_lock(f"s3a://lake/rounds/{each}", "round"),
        ):
            got.put((each, number))
            barrier.wait(120)
            continue
        barrier.wait(120)
    for _ in range(5):
        with files.exclusive_lock("s3a://lake/rounds/count"):
            files.write_text(
                "s3a://lake/count", str(int(files.read_text("s3a://lake/count") or 0) + 1)
            )


def hold_lock_forever():
    params.activate(params.load("s3"))
    with files.exclusive_lock("s3a://lake/killed", "test"):
        threading.Event().wait()
