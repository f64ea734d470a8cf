"""Secrets: referenced in params, made at first start, resolved late, never shown.

The embedded world keeps them in `<state>/secrets.properties`, mode 0600: a Java properties file, because Kafka's
FileConfigProvider (KIP-297) reads the same file, so that a connector configuration holds a reference and no password.
An environment variable WORKBENCH_SECRET_<NAME> (dots as underscores, upper case) goes before the file.
"""
from __future__ import annotations

import os
import re
import secrets as random_secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterable

from .errors import ParamsError

MASK = "••••••"


@dataclass(frozen=True)
class Secret:
    """A reference to a secret; prints as dots, `reveal()` gives the text."""

    name: str

    @staticmethod
    def parse(raw: Any, where: str) -> Secret:
        """Make a Secret of `${secret:NAME}`. Raises ParamsError for anything else: a literal password, above all."""
        match = re.fullmatch(r"\$\{secret:([a-z0-9_.]+)\}", raw) if isinstance(raw, str) else None
        if not match:
            raise ParamsError(
                "a password stands in a params file" if raw else "the secret is empty", where=where,
                expected="a reference such as ${secret:postgres.admin}",
                next_step="put the value into the environment variable WORKBENCH_SECRET_… and name it here",
            )
        return Secret(match.group(1))

    def reveal(self) -> str:
        """Return the secret's text. Raises ParamsError when it is nowhere to be found."""
        variable = _variable(self.name)
        text = os.environ.get(variable) or read(secrets_file()).get(self.name)
        if not text:
            raise ParamsError(
                f"secret {self.name!r} is not set", where=str(secrets_file()),
                next_step=f"run `workbench up` (it makes the embedded ones), or set {variable}",
            )
        return text

    def __repr__(self) -> str:
        return MASK

    __str__ = __repr__


def _variable(name: str) -> str:
    return "WORKBENCH_SECRET_" + name.replace(".", "_").upper()


def secrets_file() -> Path:
    """Path of this instance's secrets."""
    from .params import state_dir

    return state_dir() / "secrets.properties"


def read(path: Path) -> Dict[str, str]:
    """Read `name=value` lines; an absent file holds no secrets."""
    if not path.exists():
        return {}
    lines = (line.partition("=") for line in path.read_text(encoding="utf-8").splitlines() if "=" in line)
    return {name: value for name, _, value in lines}


def ensure(names: Iterable[str]) -> Path:
    """Make those of `names` that have no secret yet, and return the file. Existing ones stay.

    What the environment gives goes into the file too: Kafka Connect reads nothing else."""
    path = secrets_file()
    have = read(path)
    new = {n: os.environ.get(_variable(n)) or have.get(n) or random_secrets.token_urlsafe(24) for n in names}
    if new.items() - have.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        have.update(new)
        scratch = path.with_suffix(".new")
        with os.fdopen(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as f:
            f.writelines(f"{n}={v}\n" for n, v in sorted(have.items()))
        scratch.replace(path)
    return path
