"""Secrets: referenced in params, made at first start, resolved late, never shown.

The embedded world keeps them in `<state>/secrets`, each in a file of its name, mode 0600, as it
stands: Kafka's DirectoryConfigProvider (KIP-421) reads the same files, so that a connector
    configuration holds a reference and no
password. An environment variable WORKBENCH_SECRET_<NAME> (dots as underscores, upper case) goes
before the files. In the embedded world it may give a password at first start only: PostgreSQL keeps
the one that it was made with.
"""

import json
import os
import secrets as random_secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Iterable

from . import aws
from .errors import ParamsError
from .paths import ensure_private_dir, state_dir, write_private_file

MASK = "••••••"


@dataclass(frozen=True)
class Secret:
    """A reference to a secret; prints as dots, `reveal()` gives the text. region, deployment: where
    AWS keeps it; no deployment, and it is this instance's.
    """

    name: str
    region: str = ""
    deployment: str = ""

    def reveal(self) -> str:
        """Return the secret's text. Raises ParamsError when it is nowhere to be found, StackError:
        AWS refuses it.
        """
        variable = _variable(self.name)
        text = os.environ.get(variable)
        if not text and self.deployment:
            return aws.secret(self.region, self.deployment, self.name)
        text = text or read().get(self.name)
        if not text:
            raise ParamsError(
                f"secret {self.name!r} is not set",
                location=str(secrets_dir()),
                hint=f"run `workbench up` (it makes the embedded ones), or set {variable}",
            )
        return text

    def __repr__(self) -> str:
        return MASK

    __str__ = __repr__


def _variable(name: str) -> str:
    return "WORKBENCH_SECRET_" + name.replace(".", "_").upper()


def secrets_dir() -> Path:
    """Path of this instance's secrets."""
    return state_dir() / "secrets"


def read() -> dict[str, str]:
    """This instance's secrets by name; an absent folder holds none."""
    return {
        file.name: file.read_text(encoding="utf-8")
        for file in secrets_dir().glob("[!.]*")
        if file.is_file()
    }


def validate_environment(names: Iterable[str]) -> None:
    """See whether the environment agrees with the files.

    Raises:
        ParamsError: a value of the environment is not the one of the file, or holds what a password
            cannot.
    """
    have = read()
    for name in names:
        variable = _variable(name)
        given = os.environ.get(variable)
        if (
            given and not given.isprintable()
        ):  # initdb reads one line; a byte that is no UTF-8 is in no file
            raise ParamsError(
                f"{variable} holds a line break or another character that cannot be printed",
                location="the environment",
                hint="give a password of printable characters",
            )
        if given and name in have and given != have[name]:
            raise ParamsError(
                f"{variable} is not the password that this instance was made with",
                location=str(secrets_dir()),
                expected="the value that the file has, or no such variable",
                hint=f"unset {variable}; or `workbench down` and `workbench clean`, to make the instance anew",
            )


def ensure(names: Iterable[str]) -> None:
    """Make those of `names` that have no secret yet. Existing ones stay.

    What the environment gives goes into a file, too: Kafka Connect reads nothing else. Raises
    ParamsError as `check` does.
    """
    names = set(names)
    validate_environment(names)
    ensure_private_dir(state_dir().parent)  # what is below it is nobody else's
    for name in names - read().keys():
        text = os.environ.get(_variable(name)) or random_secrets.token_urlsafe(24)
        write_private_file(secrets_dir() / name, text.encode())


def get_or_create(secret: Secret) -> str:
    """The secret's text; one is made if there is none. Raises StackError: AWS refuses it."""
    try:
        return secret.reveal()
    except ParamsError:
        ensure([secret.name])
        return secret.reveal()


def delete(name: str) -> None:
    """Remove a secret of this instance; one that is not there is fine."""
    (secrets_dir() / name).unlink(missing_ok=True)


def write_connect_users(passwords: dict[str, str]) -> Path:
    """Write a file of users for Kafka Connect's PropertyFileLoginModule, and return its path.

    It is read by `java.util.Properties`, which knows the escapes of JSON's texts and takes a
    leading blank away.
    """
    escaped = {
        user: json.dumps(password)[1:-1].replace(" ", "\\ ") for user, password in passwords.items()
    }
    file = secrets_dir() / ".users"
    write_private_file(
        file, "".join(f"{user}={password}\n" for user, password in escaped.items()).encode()
    )
    return file


def s3_credentials_file() -> Path:
    """Where boto3, pyarrow and Java find the key to an S3 endpoint of ours: AWS's shared
    credentials file.
    """
    return secrets_dir() / ".aws"


def write_s3_credentials(key_id: str, key: str) -> None:
    """Write that file."""
    write_private_file(
        s3_credentials_file(),
        f"[default]\naws_access_key_id={key_id}\naws_secret_access_key={key}\n".encode(),
    )
