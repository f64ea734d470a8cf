"""Eventual consistency with three services (notebooks/70_eventual_consistency).

The services and their stores belong to the package `storefront`, which creates and removes them.
"""

from .. import connect
from ..base import ROOT, World
from ..flow.resources import OwnedResources
from ..flow.steps import Product, Step, Steps
from ..flow.walkthrough import Walkthrough

CONNECTORS = ("storefront_accounts", "storefront_orders", "storefront_fulfillment")


def outbox_config(world: World, connector: str) -> dict[str, str]:
    """Return the configuration of one of CONNECTORS."""
    # Debezium's event router replaces the second placeholder itself
    return connect.config(
        world,
        "storefront_outbox",
        service=connector.partition("_")[2],
        routedByValue="${routedByValue}",
    )


walkthrough = Walkthrough(
    "70_eventual_consistency",
    Steps(
        ROOT / "notebooks" / "70_eventual_consistency",
        (Step("71_stores", Product.SOURCE),),
        services=("postgres", "kafka", "connect"),
        local_only=True,
    ),
    OwnedResources(
        config=outbox_config,
        extra_connectors=CONNECTORS,
        own_topics=(
            "accounts.customer.change",
            "orders.order.change",
            "fulfillment.order.change",
            "storefront.dead_letters",
        ),
        consumer_groups=("storefront.orders", "storefront.fulfillment"),
    ),
)
