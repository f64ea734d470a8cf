"""What the environment of this process would do to our own services, and must not."""
from __future__ import annotations

import os
import re


def forget_postgres() -> None:
    """Take libpq's variables (PGSSLMODE, PGSERVICE, PGOPTIONS …) out of our environment: set for a database elsewhere,
    they would change or refuse every connection to the embedded one, and not all of them yield to what a call says."""
    for name in [n for n in os.environ if n.startswith("PG")]:
        os.environ.pop(name, None)


def spare_loopback() -> None:
    """Let no proxy that the environment names stand between us and our own services, for us and for all that we start.

    What the user excepts stays so. gRPC reads lower case only, and knows no `*`, so it has a variable of its own."""
    stated = f'{os.environ.get("no_proxy", "")},{os.environ.get("NO_PROXY", "")}'
    hosts = list(dict.fromkeys(h for h in re.split(r"[\s,]+", stated) if h))
    extended = ",".join(hosts + [h for h in ("127.0.0.1", "localhost") if h not in hosts])
    plain = "*" if "*" in hosts else extended  # a star counts only where it stands alone
    os.environ.update(no_proxy=plain, NO_PROXY=plain, no_grpc_proxy=extended)


spare_loopback()  # here, since every module that speaks with a service has imported params, which imports this one
