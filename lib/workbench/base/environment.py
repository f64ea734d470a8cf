"""Environment variables of this process that would change how our own services are reached."""

import os
import re
from pathlib import Path
from typing import Optional

_applied: dict[str, str] = {}  # the variables that the last loaded world has set
_saved: dict[str, Optional[str]] = {}  # the previous values of these variables


def clear_libpq_environment() -> None:
    """Remove libpq's variables (PGSSLMODE, PGSERVICE, PGOPTIONS …) from the environment.

    The user has set them for another database. They would change or break every connection to the
    embedded PostgreSQL, and some of them override the arguments of a connection.
    """
    for name in list(os.environ):
        if name.startswith("PG"):
            del os.environ[name]


def s3_environment(endpoint: str, region: str, credentials_file: Optional[Path]) -> dict[str, str]:
    """Return the variables with which clients reach a lake in S3.

    They are read by boto3, pyarrow (also in Spark's Python workers), the Java SDKs and hudi-rs.

    Args:
        endpoint: URL of an S3 service other than AWS; empty for AWS.
        region: AWS region, may be empty.
        credentials_file: the file with the key of an embedded endpoint. The variables of the user's
            own keys are then removed.

    Returns:
        The value of each variable; an empty value means that the variable must not be set.
    """
    settings = {}
    if region or endpoint:
        settings["AWS_REGION"] = region or "us-east-1"
    if endpoint:
        settings["AWS_ENDPOINT_URL_S3"] = endpoint
        settings["AWS_ALLOW_HTTP"] = str(endpoint.startswith("http:")).lower()
    if credentials_file:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
            settings[name] = ""
        for name in ("AWS_PROFILE", "AWS_DEFAULT_PROFILE"):
            settings[name] = "default"
        for name in (
            "AWS_SHARED_CREDENTIALS_FILE",
            "AWS_CREDENTIAL_PROFILES_FILE",  # version 1 of the Java SDK
            "AWS_CONFIG_FILE",
        ):
            settings[name] = str(credentials_file)
    return settings


def apply_environment(settings: dict[str, str]) -> bool:
    """Set the variables of `s3_environment`, and first undo the previous call.

    Returns:
        Whether anything has changed.
    """
    if settings == _applied:
        return False
    for name, value in _saved.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value
    _saved.clear()
    _applied.clear()
    _applied.update(settings)
    for name, value in settings.items():
        _saved[name] = os.environ.pop(name, None)
        if value:
            os.environ[name] = value
    return True


def exclude_loopback_from_proxies() -> None:
    """Exclude loopback from the proxies of the environment, for this process and its children.

    The user's own exceptions stay. gRPC reads lower-case variables only, and does not support `*`.
    Therefore no_grpc_proxy is set as well, which only gRPC reads.
    """
    text = f"{os.environ.get('no_proxy', '')},{os.environ.get('NO_PROXY', '')}"
    hosts = re.split(r"[\s,]+", text)
    with_loopback = ",".join(dict.fromkeys(filter(None, [*hosts, "127.0.0.1", "localhost"])))
    # clients support `*` only as the whole value, not in a list
    no_proxy = "*" if "*" in hosts else with_loopback
    os.environ.update(no_proxy=no_proxy, NO_PROXY=no_proxy, no_grpc_proxy=with_loopback)


# Called at import: every module that calls a service imports params, which imports this module.
exclude_loopback_from_proxies()
