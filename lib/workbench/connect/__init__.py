"""Connectors: their configurations, and the operations of a Connect cluster.

The operations are an interface with two backends, chosen by the world: `rest` for Kafka Connect, and
`msk` for MSK Connect.
"""

from ..base.backends import dispatch_by
from . import msk, rest
from .configs import CONNECTORS_DIR as CONNECTORS_DIR
from .configs import config as config
from .configs import placeholders as placeholders

_dispatcher = dispatch_by(lambda world: world.connect.kind, rest=rest, msk=msk)
apply = _dispatcher("apply")
delete = _dispatcher("delete")
deployed = _dispatcher("deployed")
failure = _dispatcher("failure")
names = _dispatcher("names")
plugins = _dispatcher("plugins")
restart = _dispatcher("restart")
status = _dispatcher("status")
validate = _dispatcher("validate")
wait_running = _dispatcher("wait_running")
