"""Secrets: referenced in params, made at first start, resolved late, never shown.

The embedded world keeps them in `<state>/secrets.properties`, mode 0600: a Java properties file, because Kafka's
FileConfigProvider (KIP-297) reads the same file, so that a connector configuration holds a reference and no password.
An environment variable WORKBENCH_SECRET_<NAME> (dots as underscores, upper case) goes before the file. In the embedded
world it may give a password at first start only: PostgreSQL keeps the one that it was made with.
"""
from __future__ import annotations

import json
import os
import re
import secrets as random_secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Iterable

from .errors import ParamsError
from .paths import state_dir

MASK = "••••••"


@dataclass(frozen=True)
class Secret:
    """A reference to a secret; prints as dots, `reveal()` gives the text."""

    name: str

    def reveal(self) -> str:
        """Return the secret's text. Raises ParamsError when it is nowhere to be found."""
        variable = _variable(self.name)
        text = os.environ.get(variable) or read(secrets_file()).get(self.name)
        if not text:
            raise ParamsError(f"secret {self.name!r} is not set", where=str(secrets_file()),
                              next_step=f"run `workbench up` (it makes the embedded ones), or set {variable}")
        return text

    def __repr__(self) -> str:
        return MASK

    __str__ = __repr__


def _variable(name: str) -> str:
    return "WORKBENCH_SECRET_" + name.replace(".", "_").upper()


def secrets_file() -> Path:
    """Path of this instance's secrets."""
    return state_dir() / "secrets.properties"


def read(path: Path) -> Dict[str, str]:
    """Read `name=value` lines; an absent file holds no secrets."""
    if not path.exists():
        return {}
    lines = (line.partition("=") for line in path.read_text(encoding="utf-8").splitlines() if "=" in line)
    return {name: _unescaped(value) for name, _, value in lines}


def _escaped(text: str) -> str:
    """As a Java properties file has it: JSON escapes as Java does. A blank at the start would be none of the value."""
    return json.dumps(text)[1:-1].replace(" ", r"\u0020")


def _unescaped(text: str) -> str:
    def character(m: re.Match[str]) -> str:
        return chr(int(m[1], 16)) if m[1] else {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}.get(m[2], m[2])

    units = re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.))", character, text)
    return units.encode("utf-16-be", "surrogatepass").decode("utf-16-be")  # two halves of one character


def check(names: Iterable[str]) -> None:
    """See whether the environment agrees with the file.

    Raises:
        ParamsError: a value of the environment is not the one of the file, or holds what a password cannot.
    """
    path = secrets_file()
    have = read(path)
    for name in names:
        variable = _variable(name)
        given = os.environ.get(variable)
        if given and not given.isprintable():  # initdb reads one line; a byte that is no UTF-8 is in no file
            raise ParamsError(f"{variable} holds a line break or another character that cannot be printed",
                              where="the environment", next_step="give a password of printable characters")
        if given and name in have and given != have[name]:
            raise ParamsError(
                f"{variable} is not the password that this instance was made with", where=str(path),
                expected="the value that the file has, or no such variable",
                next_step=f"unset {variable}; or `workbench down` and `workbench clean`, to make the instance anew")


def ensure(names: Iterable[str]) -> Path:
    """Make those of `names` that have no secret yet, and return the file. Existing ones stay.

    What the environment gives goes into the file too: Kafka Connect reads nothing else. Raises ParamsError as `check`
    does."""
    path, names = secrets_file(), list(names)
    check(names)
    have = read(path)
    new = {n: os.environ.get(_variable(n)) or random_secrets.token_urlsafe(24) for n in names if n not in have}
    if new:
        path.parent.mkdir(parents=True, exist_ok=True)
        have.update(new)
        scratch = path.with_suffix(".new")
        with os.fdopen(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as f:
            f.writelines(f"{n}={_escaped(v)}\n" for n, v in sorted(have.items()))
        scratch.replace(path)
    return path
