"""Writers of the tests of locks in S3, each a process of its own: they import little, so eight are
there at once."""

import contextlib
import tempfile
import threading
from pathlib import Path

from workbench.base import files, params, paths
from workbench.base.errors import LakeError


def compete_for_locks(number, barrier, got):
    """One of eight writers, as if each were on a machine of its own: thirty times at once with the
    others for a lock, then five times a count under one."""
    paths.USER_RUNTIME_DIR = Path(tempfile.mkdtemp())  # no lock file keeps it from asking S3
    params.load("s3")
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
    params.load("s3")
    with files.exclusive_lock("s3a://lake/killed", "test"):
        threading.Event().wait()
