"""The settings of this process that a library reads from nowhere else: its environment variables.

Nothing else in the library changes `os.environ`. `params.activate` calls this module.
"""

import os
import re
import threading
from typing import Callable, Mapping, Optional

# {variable: value}; None: the variable must not be set
Variables = dict[str, Optional[str]]
_lock = threading.Lock()
user_values: Variables = {}  # the user's own values of the variables that a world has set


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
