"""Secrets: referenced in params, created at the first start, resolved late, never shown.

The embedded world stores them in `<state>/secrets`, one file of plain text for each, mode 0600.
Kafka's DirectoryConfigProvider (KIP-421) reads the same files, so a connector configuration
contains a reference and no password.

An environment variable WORKBENCH_SECRET_<NAME> (dots as underscores, upper case) takes precedence
over the files. In the embedded world it can set a password at the first start only: PostgreSQL
keeps the one that it was initialized with.
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
    """A reference to a secret; it prints as dots, and `reveal()` returns the text.

    Attributes:
        name: such as `postgres.admin`.
        region: AWS region of the deployment.
        deployment: name of the deployment on AWS that has the secret; empty for this instance.
    """

    name: str
    region: str = ""
    deployment: str = ""

    def reveal(self) -> str:
        """Return the text of the secret.

        Raises:
            ParamsError: it is not set.
            StackError: AWS refuses it.
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
                hint=f"run `workbench up` (it creates the embedded ones), or set {variable}",
            )
        return text

    def __repr__(self) -> str:
        """Return dots: logs and notebooks must not show a secret."""
        return MASK

    __str__ = __repr__


def _variable(name: str) -> str:
    return "WORKBENCH_SECRET_" + name.replace(".", "_").upper()


def secrets_dir() -> Path:
    """Return the folder of this instance's secrets."""
    return state_dir() / "secrets"


def read() -> dict[str, str]:
    """Return this instance's secrets by name; none if the folder does not exist."""
    return {
        file.name: file.read_text(encoding="utf-8")
        for file in secrets_dir().glob("[!.]*")
        if file.is_file()
    }


def validate_environment(names: Iterable[str]) -> None:
    """Check that the environment agrees with the files.

    Args:
        names: the secrets to check.

    Raises:
        ParamsError: the value of a variable is not the one in the file, or is not a possible
            password.
    """
    stored = read()
    for name in names:
        variable = _variable(name)
        text = os.environ.get(variable)
        if not text:
            continue
        # initdb reads one line; a byte that is not UTF-8 cannot be written to the file
        if not text.isprintable():
            raise ParamsError(
                f"{variable} contains a line break or another character that cannot be printed",
                location="the environment",
                hint="set a password of printable characters",
            )
        if text != stored.get(name, text):
            raise ParamsError(
                f"{variable} is not the password that this instance was created with",
                location=str(secrets_dir()),
                expected="the value in the file, or no such variable",
                hint=f"unset {variable}; or `workbench down` and `workbench clean`, "
                "to create the instance again",
            )


def ensure(names: Iterable[str]) -> None:
    """Create the secrets that do not exist yet.

    A value from the environment is written to a file, too: Kafka Connect reads nothing else.

    Args:
        names: names of secrets.

    Raises:
        ParamsError: as of `validate_environment`.
    """
    names = set(names)
    validate_environment(names)
    ensure_private_dir(state_dir().parent)
    for name in names - read().keys():
        text = os.environ.get(_variable(name)) or random_secrets.token_urlsafe(24)
        write_private_file(secrets_dir() / name, text.encode())


def get_or_create(secret: Secret) -> str:
    """Return the text of a secret, which is created if it does not exist.

    Raises:
        StackError: AWS refuses it.
    """
    try:
        return secret.reveal()
    except ParamsError:
        ensure([secret.name])
        return secret.reveal()


def delete(name: str) -> None:
    """Remove a secret of this instance; it need not exist."""
    (secrets_dir() / name).unlink(missing_ok=True)


def write_connect_users(passwords: dict[str, str]) -> Path:
    r"""Write the users file of Kafka Connect's PropertyFileLoginModule, and return its path.

    `java.util.Properties` reads it: it knows the escapes of JSON strings, and strips a leading
    blank.

    Args:
        passwords: the password of each user.
    """
    lines = []
    for user, password in passwords.items():
        escaped = json.dumps(password)[1:-1].replace(" ", "\\ ")
        lines.append(f"{user}={escaped}\n")
    file = secrets_dir() / ".users"
    write_private_file(file, "".join(lines).encode())
    return file


def s3_credentials_file() -> Path:
    """Return the path of the shared credentials file with the key of an embedded S3 endpoint.

    boto3, pyarrow and Java read it.
    """
    return secrets_dir() / ".aws"


def write_s3_credentials(key_id: str, key: str) -> None:
    """Write the file of `s3_credentials_file`."""
    text = f"[default]\naws_access_key_id={key_id}\naws_secret_access_key={key}\n"
    write_private_file(s3_credentials_file(), text.encode())
