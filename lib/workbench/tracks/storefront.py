"""Eventual consistency with three services (notebooks/70_eventual_consistency)."""

from .. import connect, stack
from ..base import World
from ..flow.flow import CaptureFlow
from ..flow.resources import Owns
from ..storefront.audit import (  # noqa: F401 - for the notebooks
    compare,
    documents,
    event_ids,
    find_divergent,
    lag,
    owner_documents,
    replication_lag,
    wait_until_consistent,
    watch,
)
from ..storefront.client import (  # noqa: F401 - for the notebooks
    CONNECTORS,
    call,
    enable_outbox_connectors,
    instance_names,
    instance_states,
    is_created,
    metrics,
    outbox_config,
    raise_if_lost,
    request,
    require_embedded,
    start,
    stop,
    supervised,
    up,
    wipe_store,
)
from ..storefront.pictures import delivery, picture  # noqa: F401 - for the notebooks
from .track import Track, reset

STORES = ("accounts", "orders", "fulfillment")


def _config(world: World, connector: str) -> dict[str, str]:
    """Return the configuration of the connector of an outbox."""
    # Debezium's event router replaces the second placeholder itself
    values = {"service": connector.partition("_")[2], "routedByValue": "${routedByValue}"}
    return connect.config(world, "storefront_outbox", **values)


TRACK = Track(
    "70_eventual_consistency",
    (),
    CaptureFlow((), config=_config),
    Owns(
        connectors=tuple(f"storefront_{store}" for store in STORES),
        topics=(
            "accounts.customer.change",
            "orders.order.change",
            "fulfillment.order.change",
            "storefront.dead_letters",
        ),
        groups=("storefront.orders", "storefront.fulfillment"),
        services=(*STORES, *(f"{store}_2" for store in STORES)),
        stores=STORES,
    ),
    services=("postgres", "kafka", "connect"),
    local_only=True,
)


def restart_clean(world: World) -> None:
    """Start one instance of each service with empty stores and topics."""
    require_embedded(world)
    stack.ensure_running(world, *TRACK.services)
    reset(world, TRACK)
    up(world)
