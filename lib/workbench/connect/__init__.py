"""Connectors: their configurations, and the operations of a Connect cluster (`operations`).

A cluster is Kafka Connect (`rest`) or MSK Connect (`msk`), depending on the world.
"""

from .configs import CONNECTORS_DIR, config, placeholders
from .operations import (
    apply,
    backend,
    delete,
    deployed,
    failure,
    names,
    offset,
    plugins,
    restart,
    status,
    validate,
    wait_running,
)
