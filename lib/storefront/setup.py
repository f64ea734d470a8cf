"""Creates and removes the storefront: services, stores, topics, connectors.

`workbench.tracks` is imported where it is needed, because that takes seconds.
"""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

from workbench import connect, stack
from workbench.base import StackError, World
from workbench.source import postgres
from workbench.source.names import format_sql
from workbench.topic import groups, topics

from . import client, databases
from .domain import ALL, PUBLICATION
from .store import Store

PARTITIONS = 3  # of each topic, as published


def require_embedded(world: World) -> None:
    """Check that the world has an embedded stack, because the storefront runs nowhere else.

    Raises:
        StackError: the stack of the world is not embedded.
    """
    if not world.stack.embedded:
        raise StackError(
            "the storefront runs on one machine only",
            location=f"world {world.name}",
            expected="a world whose stack is embedded",
            hint='world = "local"',
        )


def up(world: World, count: int = 1) -> None:
    """Create missing stores and topics, and start the services.

    Args:
        world: the world.
        count: number of instances of each service, 1 or 2.
    """
    require_embedded(world)
    stack.ensure_running(world, "postgres", "kafka")
    for context in ALL.values():
        databases.create(world, context.name)
        Store(world, context).create_tables()
        topics.create(world, context.topic, PARTITIONS)
        if connector_publishes(world, context.name):
            stack.ensure_running(world, "connect")
    client.start(world, count=count)


def connector_publishes(world: World, store: str) -> bool:
    """Return whether a connector publishes the outbox of a store."""
    return PUBLICATION in set(postgres.publications(world, store)["publication"])


def enable_outbox_connectors(world: World) -> None:
    """Deploy connectors that publish the outboxes, instead of the services.

    A service stops publishing when its store has the publication. The connector publishes all events
    of the outbox again; consumers recognize them by their ids.
    """
    from workbench.tracks.storefront import CONNECTORS, outbox_config

    stack.ensure_running(world, "connect")
    grant = "GRANT CONNECT ON DATABASE {} TO {}"
    for name, connector in zip(ALL, CONNECTORS):
        postgres.grant_replication(world, ["outbox"], name)
        statement = format_sql(grant, name, world.postgres.replication_user)
        postgres.execute(world, statement, database=name)
        postgres.create_publication(world, PUBLICATION, ["outbox"], name)
        connect.apply(world, connector, outbox_config(world, connector))
    with ThreadPoolExecutor(len(CONNECTORS)) as pool:
        list(pool.map(partial(connect.wait_running, world), CONNECTORS))


def reset(world: World) -> None:
    """Remove everything that the storefront creates: services, connectors, topics, stores."""
    from workbench.tracks import storefront, track

    require_embedded(world)
    stack.ensure_running(world, *storefront.TRACK.services)
    client.stop()
    track.reset(world, storefront.TRACK)
    databases.drop(world, *ALL)


def restart_clean(world: World) -> None:
    """Start one instance of each service with empty stores and topics."""
    reset(world)
    up(world)


def remaining(world: World) -> list[str]:
    """Return the running services and the stores, which `reset` removes."""
    return [*client.running(), *sorted({*ALL} & {*postgres.databases(world)})]


def wipe_store(world: World, store: str) -> None:
    """Stop a service, and empty its store except for the outbox.

    After the next start, the service consumes its topics from the beginning. The rows are deleted only
    after Kafka has confirmed the deletion of the committed offsets, because with these offsets the
    service would consume nothing again.

    Raises:
        StackError: no topic has the documents of this store, so it cannot be rebuilt; or Kafka does
            not confirm the deletion. No row is deleted.
    """
    context = ALL[store]
    if context.topic not in context.subscribed_topics:
        raise StackError(
            f"{store} cannot be rebuilt from its topics", expected="orders or fulfillment"
        )
    client.stop(store)
    groups.delete(world, context.group)
    # including the inbox, because an event whose id is in the inbox is not applied again
    tables = (*context.collections, "inbox")
    statement = f"TRUNCATE {', '.join(['{}'] * len(tables))}"
    postgres.execute(world, format_sql(statement, *tables), database=store)
