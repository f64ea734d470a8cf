"""The one exception that people see: what failed, where, what was expected, and what to do next."""

import difflib
import re
import time
from typing import Iterable

# Within an address a login with a password, user:password@host; digits and a slash are a port
URI_LOGIN = re.compile(r"://[^/?#@\s\[\]\"']*:(?!\d+(?:[/,?#;\"']|$))[^@\s]+@")
# the password may hold an @, too
URI_USER_INFO = re.compile(
    rf"{URI_LOGIN.pattern}(?:[^\s\"',@]*@)*|://[^/?#@\s\"']+@(?:[^/?#\s\"',@]*@)*"
)
SECRET_PARAMETER = re.compile(
    r"([?&;][\w.-]*(?:password|passwd|passphrase|pwd|secret|token|api.?key)[\w.-]*=)[^&;\s\"']+",
    re.I,
)


def redact_credentials(text: str) -> str:
    """Return a text with dots in place of the user and password of each address, and of the secrets
    among its
    parameters: http://••••••@host, jdbc:…?user=a&password=••••••.
    """
    return SECRET_PARAMETER.sub(r"\1••••••", URI_USER_INFO.sub("://••••••@", text))


class WorkbenchError(Exception):
    """A failure that a person can act on.

    Args:
        what: one sentence, what failed.
        where: file, key path, service, topic or cell it happened at.
        expected: what would have been right.
        next_step: the command or edit that mends it.

    No login that an address holds is shown (see `without_logins`).
    """

    def __init__(self, message: str, *, location: str = "", expected: str = "", hint: str = ""):
        what, where, expected, next_step = (
            redact_credentials(str(text or "")) for text in (message, location, expected, hint)
        )
        self.message, self.location, self.expected, self.hint = what, where, expected, next_step
        rows = [("where", where), ("expected", expected), ("next", next_step)]
        super().__init__(
            "\n".join([what, *(f"  {name + ':':<10}{text}" for name, text in rows if text)])
        )


class ParamsError(WorkbenchError):
    """A params file, a notebook parameter or a reference in them is not usable."""


class StackError(WorkbenchError):
    """A service could not be started, reached or stopped."""


class ServiceLost(StackError):
    """A service of this instance has no process any more. Waiting for what it does is pointless
    (see `wait_until`).

    since: when it was first seen so (time.monotonic), now by default.
    """

    def __init__(self, what: str, **fields: str):
        super().__init__(what, **fields)
        self.since = time.monotonic()


class ConnectorError(WorkbenchError):
    """A connector configuration was refused, or a connector or one of its tasks failed."""


class SourceError(WorkbenchError):
    """The source database or a file to be loaded into it is not as expected."""


class LakeError(WorkbenchError):
    """A lake table, an instant or a file of it is not as expected."""


class CheckFailed(WorkbenchError, AssertionError):
    """A check found a difference between a claim and its source of truth."""


def did_you_mean(name: str, valid: Iterable[str]) -> str:
    """Return `did you mean 'x'? valid: a, b, c` for a misspelt name: no guess where nothing is
    near, and no list that is too long to be read.
    """
    valid = sorted(valid)
    guess = [
        f"did you mean '{near}'?"
        for near in difflib.get_close_matches(name, valid, n=1, cutoff=0.5)
    ]
    return " ".join(guess + [f"valid: {', '.join(valid)}"] * (len(valid) <= 40))


def first_line(error: BaseException) -> str:
    """The first line of what an error says, else what it is called."""
    return next(
        (line.strip()[:400] for line in str(error).splitlines() if line.strip()),
        type(error).__name__,
    )
