"""Errors of a command as text for its user."""

import errno
import traceback
from typing import Optional

from ..base import WorkbenchError, paths
from ..base.errors import redact_credentials
from ..base.terminal import escape_unprintable


def to_error(e: Exception) -> WorkbenchError:
    """Return the error to show for an exception of a command: its message, and what to do next."""
    if isinstance(e, WorkbenchError):
        return e
    known = _permission_or_disk_error(e) if isinstance(e, OSError) else None
    return known or _unexpected_error(e)


def _permission_or_disk_error(e: OSError) -> Optional[WorkbenchError]:
    """Return an error with a hint for a full disk or for missing file permissions, else None.

    After one `sudo make`, for example, files of the checkout belong to root.
    """
    if e.errno in (errno.ENOSPC, errno.EDQUOT):
        return WorkbenchError(
            f"the disk is full: {e.strerror}",
            location=e.filename or f"var/ or runs/ of {paths.ROOT}",
            hint="free disk space (`make clean` removes service data, lake and runs), then try again",
        )
    if e.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return WorkbenchError(
            f"a file cannot be read or written: {e.strerror}",
            location=str(e.filename or paths.VAR_DIR),
            expected="var/ and runs/ belong to the user who runs this",
            hint='sudo chown -R "$(id -un)" var runs',
        )
    return None


def _unexpected_error(e: Exception) -> WorkbenchError:
    """Write the traceback of an unforeseen exception to a private file, and return an error for it.

    The text of the exception may come from a service or from data. So it is escaped, and credentials
    are removed from the file.
    """
    trace = "".join(traceback.format_exception(type(e), e, e.__traceback__))
    file = paths.state_dir() / "log" / "traceback.txt"
    content = redact_credentials(trace).encode("utf-8", "backslashreplace")
    try:
        paths.write_private_file(file, content)
        location = f"traceback in {paths.display_path(file)}"
    except OSError as cause:
        location = f"traceback not written to {paths.display_path(file)}: {cause.strerror}"
    return WorkbenchError(
        f"{type(e).__name__}: {escape_unprintable(str(e))}",
        location=location,
        hint="this error is unexpected: read the traceback, and report it",
    )
