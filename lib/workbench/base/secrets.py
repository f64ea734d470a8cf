"""Secrets: params files contain references, and the first start creates the passwords.

An embedded world stores each secret in a text file `<state>/secrets/<name>`, mode 0600. Kafka's
DirectoryConfigProvider (KIP-421) reads the same files, so connector configurations contain
references and no passwords.

An environment variable WORKBENCH_SECRET_<NAME> (upper case, underscores for dots) takes precedence
over the file and over the Secrets Manager. In an embedded world it can set a password at the first start
only, because PostgreSQL keeps the password of its initialization: another value later is an error.
"""

import contextlib
import json
import os
import re
import secrets as random_secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Collection

from . import aws
from .errors import ParamsError
from .paths import ensure_private_dir, state_dir, write_private_file

MASK = "••••••"
SECRET_NAME = re.compile(r"[a-z0-9_][a-z0-9_.]*")
_revealed: set[str] = set()


@dataclass(frozen=True)
class Secret:
    """A reference to a secret. Its repr is MASK; `reveal()` returns the text.

    Attributes:
        name: such as `postgres.admin`.
        region: AWS region of the deployment.
        deployment: the AWS deployment that has the secret; empty for a secret of this instance.
    """

    name: str
    region: str = ""
    deployment: str = ""

    def reveal(self) -> str:
        """Return the text of the secret.

        Raises:
            ParamsError: neither the variable nor the file has a text.
            StackError: AWS rejects the request, or cannot be reached.
        """
        variable = _variable_name(self.name)
        text = os.environ.get(variable)
        if not text and self.deployment:
            text = aws.secret(self.region, self.deployment, self.name)
        text = text or read().get(self.name)
        if not text:
            raise ParamsError(
                f"secret {self.name!r} is not set",
                location=str(secrets_dir()),
                hint="run `workbench up` (it creates the embedded ones); store one of your own with "
                f"`workbench secret {self.name}`, or set {variable}",
            )
        _revealed.add(text)
        return text

    def __repr__(self) -> str:
        """Return MASK, so that logs and notebooks never show a secret."""
        return MASK


def _variable_name(name: str) -> str:
    return "WORKBENCH_SECRET_" + name.replace(".", "_").upper()


def secrets_dir() -> Path:
    """Return the folder of this instance's secrets."""
    return state_dir() / "secrets"


def read() -> dict[str, str]:
    """Return this instance's secrets, {name: text}; empty if the folder does not exist."""
    texts = {}
    for file in secrets_dir().glob("[!.]*"):
        # a folder, or a file that is no text, is no secret
        with contextlib.suppress(OSError, UnicodeDecodeError):
            texts[file.name] = file.read_text(encoding="utf-8")
    return texts


def revealed() -> set[str]:
    """Return the texts of the secrets that this process has used, to mask them in what it prints."""
    return _revealed


def validate_environment(names: Collection[str]) -> None:
    """Raise ParamsError if an environment variable differs from one of these secrets' files."""
    for name, stored in read().items():
        variable = _variable_name(name)
        if name in names and os.environ.get(variable, "") not in ("", stored):
            raise ParamsError(
                f"{variable} is not the password that this instance was created with",
                location=str(secrets_dir()),
                expected="the value in the file, or no variable",
                hint=f"unset {variable}; or `workbench down` and `workbench clean`, "
                "to create the instance again",
            )


def ensure(names: Collection[str]) -> None:
    """Create each of these secrets that has no file.

    The text comes from the environment variable, or else is random. It is always written to a file,
    because Kafka Connect reads only files.

    Args:
        names: names of secrets.

    Raises:
        ParamsError: a variable differs from the file, or contains an unprintable character.
    """
    validate_environment(names)
    for name in {*names} - read().keys():
        store(name, os.environ.get(_variable_name(name)) or random_secrets.token_urlsafe(24))


def get_or_create(secret: Secret) -> str:
    """Return the text of a secret; create a secret of this instance if it does not exist.

    Raises:
        StackError: AWS rejects the request, or cannot be reached.
    """
    try:
        return secret.reveal()
    except ParamsError:
        ensure([secret.name])
        return secret.reveal()


def store(name: str, text: str) -> None:
    """Write a secret to its file, which Kafka Connect reads, too; an earlier text is replaced.

    Raises:
        ParamsError: the name is invalid; the text is empty, or contains an unprintable character.
    """
    if not SECRET_NAME.fullmatch(name):
        raise ParamsError(
            f"{name!r} is not the name of a secret", expected="small letters, digits, _ and dots"
        )
    if not text or not text.isprintable():
        raise ParamsError(
            f"secret {name!r} is empty, or contains a character that cannot be printed",
            expected="a password of printable characters in one line; nothing was stored",
            hint=f"it comes from `workbench secret`, or from the variable {_variable_name(name)}",
        )
    ensure_private_dir(state_dir().parents[1])
    write_private_file(secrets_dir() / name, text.encode())


def delete(name: str) -> None:
    """Delete a secret of this instance. A missing secret is ignored."""
    (secrets_dir() / name).unlink(missing_ok=True)


def write_connect_users(passwords: dict[str, str]) -> Path:
    r"""Write the users file of Kafka Connect's PropertyFileLoginModule, and return its path.

    The module reads the file with java.util.Properties. This class accepts the escapes of JSON
    strings, but strips leading blanks of a value, so blanks are escaped.

    Args:
        passwords: {user: password}.
    """
    lines = []
    for user, password in passwords.items():
        escaped = json.dumps(password)[1:-1].replace(" ", "\\ ")
        lines.append(f"{user}={escaped}\n")
    file = secrets_dir() / ".users"
    write_private_file(file, "".join(lines).encode())
    return file


def s3_credentials_file() -> Path:
    """Return the path of the AWS credentials file for the embedded S3 endpoint.

    boto3, pyarrow and the AWS SDK for Java read files of this format.
    """
    return secrets_dir() / ".aws"


def write_s3_credentials(access_key_id: str, secret_access_key: str) -> None:
    """Write `s3_credentials_file` with the access key of the embedded S3 endpoint.

    Args:
        access_key_id: id of the access key.
        secret_access_key: the secret part of the access key.
    """
    text = (
        f"[default]\naws_access_key_id={access_key_id}\naws_secret_access_key={secret_access_key}\n"
    )
    write_private_file(s3_credentials_file(), text.encode())
