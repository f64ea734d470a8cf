"""Eventual consistency with three services (notebooks/70_eventual_consistency).

The services and their stores belong to the package `storefront`, which creates and removes them.
"""

from .. import connect
from ..base import World
from ..flow.flow import CaptureFlow
from ..flow.resources import Owns
from .track import Track

CONNECTORS = ("storefront_accounts", "storefront_orders", "storefront_fulfillment")


def outbox_config(world: World, connector: str) -> dict[str, str]:
    """Return the configuration of one of CONNECTORS."""
    # Debezium's event router replaces the second placeholder itself
    values = {"service": connector.partition("_")[2], "routedByValue": "${routedByValue}"}
    return connect.config(world, "storefront_outbox", **values)


TRACK = Track(
    "70_eventual_consistency",
    (),
    CaptureFlow((), config=outbox_config),
    Owns(
        connectors=CONNECTORS,
        topics=(
            "accounts.customer.change",
            "orders.order.change",
            "fulfillment.order.change",
            "storefront.dead_letters",
        ),
        groups=("storefront.orders", "storefront.fulfillment"),
    ),
    services=("postgres", "kafka", "connect"),
    local_only=True,
)
