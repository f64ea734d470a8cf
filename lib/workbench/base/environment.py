"""What the environment of this process would do to our own services, and must not."""

import os
import re
from pathlib import Path
from typing import Optional

_applied: dict[str, str] = {}  # what the world that was loaded last has set
_saved: dict[str, Optional[str]] = {}  # and what was there before it


def clear_libpq_environment() -> None:
    """Take libpq's variables (PGSSLMODE, PGSERVICE, PGOPTIONS …) out of our environment: set for a
    database elsewhere, they would change or refuse every connection to the embedded one, and not
    all of them yield to what a call says.
    """
    for name in [n for n in os.environ if n.startswith("PG")]:
        os.environ.pop(name, None)


def s3_environment(endpoint: str, region: str, login: Optional[Path]) -> dict[str, str]:
    """The variables by which boto3, pyarrow (in Spark's Python workers, too), Java and hudi-rs find
    a lake in S3; of an empty one: that it must not be there.

    Args:
        endpoint: of an S3 that is not AWS's own; "" otherwise.
        login: the file with the key to an endpoint of ours. No other key of the user's goes there.
    """
    found = {"AWS_REGION": region or "us-east-1"} if region or endpoint else {}
    if endpoint:
        found |= {
            "AWS_ENDPOINT_URL_S3": endpoint,
            "AWS_ALLOW_HTTP": str(endpoint.startswith("http:")).lower(),
        }
    if login:
        none = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
        files = (
            "AWS_SHARED_CREDENTIALS_FILE",
            "AWS_CREDENTIAL_PROFILES_FILE",
        )  # the second for Java's SDK 1
        found |= {
            **dict.fromkeys(none, ""),
            **dict.fromkeys(files, str(login)),
            "AWS_CONFIG_FILE": str(login),
            "AWS_PROFILE": "default",
            "AWS_DEFAULT_PROFILE": "default",
        }
    return found


def apply_environment(settings: dict[str, str]) -> bool:
    """Set what `of_s3` gave, and undo what was set for the last world. Returns whether anything is
    another now.
    """
    if settings == _applied:
        return False
    for name, was in _saved.items():
        os.environ.pop(name, None)
        if was is not None:
            os.environ[name] = was
    _saved.clear()
    _saved.update({name: os.environ.get(name) for name in settings})
    _applied.clear()
    _applied.update(settings)
    os.environ.update(settings)
    for name in [name for name, value in settings.items() if not value]:
        del os.environ[name]
    return True


def exclude_loopback_from_proxies() -> None:
    """Let no proxy that the environment names stand between us and our own services, for us and for
    all that we start.

    What the user excepts stays so. gRPC reads lower case only, and knows no `*`, so it has a
    variable of its own.
    """
    stated = f"{os.environ.get('no_proxy', '')},{os.environ.get('NO_PROXY', '')}"
    hosts = list(dict.fromkeys(h for h in re.split(r"[\s,]+", stated) if h))
    extended = ",".join(hosts + [h for h in ("127.0.0.1", "localhost") if h not in hosts])
    plain = "*" if "*" in hosts else extended  # a star counts only where it stands alone
    os.environ.update(no_proxy=plain, NO_PROXY=plain, no_grpc_proxy=extended)


# here, since every module that speaks with a service has imported params, which imports this one
exclude_loopback_from_proxies()
