"""The settings of this process that a library reads from nowhere else: its environment variables.

Nothing else in the library changes `os.environ`. `params.activate` calls this module.
"""

import os
import re
import threading
from pathlib import Path
from typing import Callable, Mapping, Optional

# {variable: value}; None: the variable must not be set
Variables = dict[str, Optional[str]]
KEY_VARIABLES = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
PROFILE_VARIABLES = ("AWS_PROFILE", "AWS_DEFAULT_PROFILE")
CREDENTIALS_FILE_VARIABLES = (
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_CREDENTIAL_PROFILES_FILE",  # version 1 of the Java SDK
    "AWS_CONFIG_FILE",
)
_lock = threading.Lock()
user_values: Variables = {}  # the user's own values of the variables that a world has set


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
        settings |= {"AWS_ENDPOINT_URL_S3": endpoint, "AWS_ALLOW_HTTP": "true"}
    if credentials_file:
        settings |= dict.fromkeys(KEY_VARIABLES)
        settings |= dict.fromkeys(PROFILE_VARIABLES, "default")
        settings |= dict.fromkeys(CREDENTIALS_FILE_VARIABLES, str(credentials_file))
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


def apply(variables: Callable[[dict[str, str]], Variables]) -> bool:
    """Set the variables of a world. Those that only an earlier world has set become the user's again.

    Args:
        variables: returns the variables of the world, given the user's own environment.

    Returns:
        Whether a variable has changed.
    """
    with _lock:
        values = {**os.environ, **user_values}
        user_environment = {name: value for name, value in values.items() if value is not None}
        changes = variables(user_environment)
        has_changed = [_set(name, value) for name, value in {**user_values, **changes}.items()]
        user_values.clear()
        user_values.update({name: user_environment.get(name) for name in changes})
    return any(has_changed)


def _set(name: str, value: Optional[str]) -> bool:
    """Set or remove a variable, and return whether it has changed."""
    if os.environ.get(name) == value:
        return False  # another thread may be reading the environment
    if value is None:
        del os.environ[name]
    else:
        os.environ[name] = value
    return True
