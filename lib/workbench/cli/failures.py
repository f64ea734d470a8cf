"""Errors of a command as text for its user."""

import errno
import traceback

from ..base import WorkbenchError, paths
from ..base.errors import redact_credentials
from ..base.terminal import escape_unprintable

DISK_FULL = (
    "the disk is full",
    "free disk space (`make clean` removes service data, lake and runs), then try again",
)
# after one `sudo make`, for example, files of the checkout belong to root
NO_PERMISSION = (
    "a file cannot be read or written",
    'var/ and runs/ belong to the user who runs this: sudo chown -R "$(id -un)" var runs',
)
# {number of the error: message and hint}
SYSTEM_ERRORS = {
    errno.ENOSPC: DISK_FULL,
    errno.EDQUOT: DISK_FULL,
    errno.EROFS: NO_PERMISSION,
    errno.EACCES: NO_PERMISSION,
    errno.EPERM: NO_PERMISSION,
}


def to_error(e: Exception) -> WorkbenchError:
    """Return the error to show for an exception of a command: its message, and what to do next."""
    if isinstance(e, WorkbenchError):
        return e
    if isinstance(e, OSError) and e.errno in SYSTEM_ERRORS:
        message, hint = SYSTEM_ERRORS[e.errno]
        location = str(e.filename or f"var/ or runs/ of {paths.ROOT}")
        return WorkbenchError(f"{message}: {e.strerror}", location=location, hint=hint)
    return _unexpected_error(e)


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
