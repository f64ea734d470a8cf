"""Connectors: their configurations, and the verbs of a Connect.

The verbs have two sides: `rest`, a Kafka Connect, and `msk`, MSK Connect; the world says which one
is meant.
"""

from ..base.backends import dispatch_by
from . import msk, rest
from .configs import CONNECTORS_DIR, config, placeholders

_verb = dispatch_by(lambda world: world.connect.kind, rest=rest, msk=msk)
apply, delete, deployed, failure, names, plugins, restart, status, validate, wait_running = map(
    _verb,
    (
        "apply",
        "delete",
        "deployed",
        "failure",
        "names",
        "plugins",
        "restart",
        "status",
        "validate",
        "wait_running",
    ),
)
