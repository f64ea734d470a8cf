"""Eventual consistency with three services (notebooks/70_eventual_consistency)."""

from .. import stack
from ..base import ROOT, World
from ..flow.resources import OwnedResources
from ..flow.steps import Product, Step, Steps
from ..flow.walkthrough import Walkthrough
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
from ..storefront.domain import ALL, DLQ_TOPIC, TOPICS
from ..storefront.pictures import delivery, picture  # noqa: F401 - for the notebooks

walkthrough = Walkthrough(
    "70_eventual_consistency",
    Steps(
        ROOT / "notebooks" / "70_eventual_consistency",
        (Step("71_stores", Product.SOURCE, is_created),),
        services=("postgres", "kafka", "connect"),
        local_only=True,
    ),
    OwnedResources(
        config=outbox_config,
        extra_connectors=CONNECTORS,
        own_topics=(*TOPICS, DLQ_TOPIC),
        services=tuple(instance_names()),
        consumer_groups=tuple(c.group for c in ALL.values() if c.subscribed_topics),
        service_databases=(*ALL,),
    ),
)


def restart_clean(world: World) -> None:
    """Start one instance of each service with empty stores and topics."""
    require_embedded(world)
    stack.ensure_running(world, *walkthrough.steps.services)
    walkthrough.reset(world)
    up(world)
