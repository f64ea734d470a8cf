"""The settings of this process that a library reads from nowhere else, for the active world.

Nothing else in the library changes `os.environ`. `params.activate` calls this module, and a forked
kernel.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from pathlib import Path
from typing import Callable, Iterator, Mapping, Optional

from .state import State

# {variable: value}; None: the variable must not be set
Variables = dict[str, Optional[str]]


def libpq_variables(user_environment: Mapping[str, str]) -> Variables:
    """Remove libpq's variables (PGSSLMODE, PGSERVICE, PGTZ …).

    The user has set them for another database. They would change or break every connection to the
    embedded PostgreSQL. Some of them, such as PGSERVICE, override the arguments of a connection.
    """
    return {name: None for name in user_environment if name.startswith("PG")}


def s3_environment(endpoint: str, region: str, credentials_file: Optional[Path]) -> Variables:
    """Return the variables with which clients reach a lake in S3.

    They are read by boto3, pyarrow, the Java SDKs and hudi-rs.

    Args:
        endpoint: URL of an S3 service other than AWS; empty for AWS.
        region: AWS region, may be empty.
        credentials_file: the file with the key of an embedded endpoint. The variables of the user's
            own keys are then removed.
    """
    settings: Variables = {}
    if region or endpoint:
        settings["AWS_REGION"] = region or "us-east-1"
    if endpoint:
        settings["AWS_ENDPOINT_URL_S3"] = endpoint
        settings["AWS_ALLOW_HTTP"] = str(endpoint.startswith("http:")).lower()
    if credentials_file:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
            settings[name] = None
        for name in ("AWS_PROFILE", "AWS_DEFAULT_PROFILE"):
            settings[name] = "default"
        for name in (
            "AWS_SHARED_CREDENTIALS_FILE",
            "AWS_CREDENTIAL_PROFILES_FILE",  # version 1 of the Java SDK
            "AWS_CONFIG_FILE",
        ):
            settings[name] = str(credentials_file)
    return settings


def proxy_exceptions(user_environment: Mapping[str, str]) -> dict[str, str]:
    """Exclude loopback from the proxies of the environment; the user's own exceptions stay.

    hudi-rs, botocore and gRPC take proxies from the environment. gRPC reads lower-case variables
    only, and does not support `*`. Therefore no_grpc_proxy is set as well, which only gRPC reads.
    """
    text = f"{user_environment.get('no_proxy', '')},{user_environment.get('NO_PROXY', '')}"
    hosts = re.split(r"[\s,]+", text)
    with_loopback = ",".join(dict.fromkeys(filter(None, [*hosts, "127.0.0.1", "localhost"])))
    # clients support `*` only as the whole value, not in a list
    no_proxy = "*" if "*" in hosts else with_loopback
    return {"no_proxy": no_proxy, "NO_PROXY": no_proxy, "no_grpc_proxy": with_loopback}


def _set(name: str, value: Optional[str]) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def replace_all(variables: Mapping[str, str]) -> None:
    """Give this process, which was forked, the environment that it would have if it were started."""
    os.environ.clear()
    os.environ.update(variables)


@contextlib.contextmanager
def replaced(name: str, value: str) -> Iterator[None]:
    """Set a variable in this block, for this process and its children."""
    previous = os.environ.get(name)
    _set(name, value)
    try:
        yield
    finally:
        _set(name, previous)


Settings = tuple[State, Callable[[Mapping[str, str]], Variables]]
# The state of the process, and no variables: in force while no world is active.
NO_WORLD: Settings = (State(), lambda user_environment: {})
_lock = threading.RLock()
_active = NO_WORLD
_user_values: Variables = {}  # the user's own values of the variables that are changed now


_blocks: list[Activation] = []  # the `with` blocks that have not ended, in their order


def active_state() -> State:
    """Return the state of the active world, or that of the process if none is active."""
    return _active[0]


def _apply(settings: Settings) -> None:
    """Replace the active settings. Variables that both set alike never change."""
    global _active, _user_values
    with _lock:
        values = {**os.environ, **_user_values}
        user_values = {name: value for name, value in values.items() if value is not None}
        changes = settings[1](user_values)
        for name in {*_user_values, *changes}:
            _set(name, changes[name] if name in changes else _user_values[name])
        _user_values = {name: user_values.get(name) for name in changes}
        _active = settings


class Activation:
    """The settings of a world, in force from the creation of this object on.

    As the context of a `with` statement it restores the previous settings at the end of the block.
    """

    def __init__(self, settings: Settings):
        """Put the settings in force.

        Args:
            settings: state of the world, which has the clients that depend on its variables; and
                the function that returns these variables, given the user's own environment.
        """
        with _lock:
            self._previous = _active
            _apply(settings)

    def __enter__(self) -> None:
        """Keep the settings until the end of the block."""
        with _lock:
            _blocks.append(self)

    def __exit__(self, *error: object) -> None:
        """Restore the previous settings; a block of another thread that began later keeps its own."""
        with _lock:
            index = _blocks.index(self)
            _blocks.pop(index)
            if index < len(_blocks):
                _blocks[index]._previous = self._previous
            else:
                _apply(self._previous)
