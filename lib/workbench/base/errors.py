"""Exceptions that people read: what failed, where, what was expected, and a hint."""

import difflib
import re
from typing import Iterable

# A user and password in a URI: user:password@host. Digits before a slash are a port.
URI_LOGIN = re.compile(r"://[^/?#@\s\[\]\"']*:(?!\d+(?:[/,?#;\"']|$))[^@\s]+@")
# The password itself may contain an @.
URI_USER_INFO = re.compile(
    rf"{URI_LOGIN.pattern}(?:[^\s\"',@]*@)*|://[^/?#@\s\"']+@(?:[^/?#\s\"',@]*@)*"
)
SECRET_PARAMETER = re.compile(
    r"([?&;][\w.-]*(?:password|passwd|passphrase|pwd|secret|token|api.?key)[\w.-]*=)[^&;\s\"']+",
    re.I,
)
MAX_LISTED_NAMES = 40


def redact_credentials(text: str) -> str:
    """Mask the credentials in the URIs of a text.

    Returns:
        The text with dots in place of each user and password, and of each secret parameter:
        http://••••••@host, jdbc:…?user=a&password=••••••.
    """
    return SECRET_PARAMETER.sub(r"\1••••••", URI_USER_INFO.sub("://••••••@", text))


class WorkbenchError(Exception):
    """A failure that a person can act on.

    Credentials in URIs are masked in every field (see `redact_credentials`).
    """

    def __init__(self, message: str, *, location: str = "", expected: str = "", hint: str = ""):
        """Store the fields and format them as the text of the exception.

        Args:
            message: one sentence, what failed.
            location: the file, key path, service, topic or cell where it failed.
            expected: the correct value or state.
            hint: the command or edit that fixes it.
        """
        self.message, self.location, self.expected, self.hint = (
            redact_credentials(str(text or "")) for text in (message, location, expected, hint)
        )
        lines = [self.message]
        for label in ("location", "expected", "hint"):
            text = getattr(self, label)
            if text:
                lines.append(f"  {label + ':':<10}{text}")
        super().__init__("\n".join(lines))


class ParamsError(WorkbenchError):
    """A params file, a notebook parameter or a reference in a params file is invalid."""


class StackError(WorkbenchError):
    """A service could not be started, reached or stopped."""


class ServiceLost(StackError):
    """A service of this instance has no running process.

    `wait_until` gives up when the service is missing for RESTART_GRACE_SECONDS, before its own
    timeout.
    """


class ConnectorError(WorkbenchError):
    """A connector configuration was rejected, or a connector or one of its tasks failed."""


class SourceError(WorkbenchError):
    """The source database, or a file to load into it, is not as expected."""


class LakeError(WorkbenchError):
    """A table, instant or file of the lake, a topic, message, schema or query is not as expected."""


class CheckFailed(WorkbenchError, AssertionError):
    """A check found a difference between a claim and its source of truth."""


def did_you_mean(name: str, valid: Iterable[str]) -> str:
    """Suggest the valid name for a misspelled one.

    Returns:
        A text such as `did you mean 'x'? valid: a, b, c`. It has no suggestion if no name is
        similar, and no list if there are more than MAX_LISTED_NAMES names.
    """
    valid = sorted(valid)
    matches = difflib.get_close_matches(name, valid, n=1, cutoff=0.5)
    parts = [f"did you mean '{match}'?" for match in matches]
    if len(valid) <= MAX_LISTED_NAMES:
        parts.append(f"valid: {', '.join(valid)}")
    return " ".join(parts)


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, at most 400 characters; its class if it has no text."""
    for line in str(error).splitlines():
        if line.strip():
            return line.strip()[:400]
    return type(error).__name__
