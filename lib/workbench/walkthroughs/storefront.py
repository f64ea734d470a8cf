"""Eventual consistency with three services (notebooks/70_eventual_consistency).

This module starts the services (see `workbench.storefront`), sends requests to them, and compares
their stores. storefront_load generates operations.
"""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, Iterator, Optional, Sequence

import pandas
import requests

from .. import connect, stack
from ..base import ROOT, StackError, World, wait_until
from ..source import postgres
from ..source.names import format_sql
from ..stack.storefront import CONTEXTS, address, service_name
from ..storefront import contexts
from ..storefront.contexts import DLQ_TOPIC, PUBLICATION, Document
from ..storefront.events import EventIds
from ..storefront.store import Store
from ..topic import groups, topics
from .resources import OwnedResources
from .steps import Product, Step, Steps
from .storefront_pictures import delivery, picture  # noqa: F401 - for the notebooks
from .storefront_stores import (  # noqa: F401 - for the notebooks
    compare,
    documents,
    find_divergent,
    owner_documents,
    replication_lag,
)
from .walkthrough import Walkthrough

PARTITIONS = 3  # of each topic, as published
CONNECTORS = tuple(f"storefront_{name}" for name in CONTEXTS)


# --- the services


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


def require_created(world: World) -> None:
    """Check that the storefront exists.

    Raises:
        StackError: the storefront does not exist, or the world has no embedded stack.
    """
    require_embedded(world)
    if not _is_created(world):
        raise StackError("there is no storefront", hint="`workbench storefront up` creates it")


def up(world: World, instances: int = 1) -> None:
    """Create missing stores and topics, and start the services.

    Args:
        world: the world.
        instances: number of instances of each service, 1 or 2.
    """
    require_embedded(world)
    stack.ensure_running(world, "postgres", "kafka")
    for context in contexts.ALL.values():
        postgres.create_service_database(world, context.name)
        Store(world, context).create_tables()
        topics.create(world, context.topic, PARTITIONS)
        if connector_publishes(world, context.name):
            stack.ensure_running(world, "connect")
    start(world, instances=instances)


def start(world: World, *names: str, instances: int = 1) -> None:
    """Start services, by default all, and wait until they have caught up."""
    stack.ensure_running(world, *_instances(names, instances))


def _instances(names: Sequence[str] = (), instances: int = 2) -> list[str]:
    """Return the names of the instances of services, by default of all."""
    return [service_name(n, i + 1) for i in range(instances) for n in names or CONTEXTS]


# services that `supervised` restarts: a caller may wait for them after a crash
_supervised: set[str] = set()


@contextmanager
def supervised(world: World, instances: int = 1) -> Iterator[list[str]]:
    """Restart services that die within the block.

    Yields:
        The names of the restarted services, in order, one for each death.
    """
    names = _instances(instances=instances)
    stop_event = threading.Event()
    restarted: list[str] = []

    def supervise() -> None:
        while not stop_event.wait(0.1):
            dead = sorted({*names} - {*stack.running()})
            if dead:
                restarted.extend(dead)
                with suppress(StackError):  # the service died again during the start
                    stack.ensure_running(world, *dead)

    with ThreadPoolExecutor(1) as pool:
        supervisor = pool.submit(supervise)
        _supervised.update(names)
        try:
            yield restarted
        finally:
            _supervised.difference_update(names)
            stop_event.set()
        supervisor.result()


def stop(*names: str) -> None:
    """Stop all instances of services, by default of all services."""
    stack.stop(*_instances(names))


def restart_clean(world: World) -> None:
    """Start one instance of each service with empty stores and topics."""
    require_embedded(world)
    stack.ensure_running(world, *walkthrough.steps.services)
    walkthrough.reset(world)
    up(world)


def call(
    world: World,
    service: str,
    method: str,
    path: str,
    body: Optional[Document] = None,
    *,
    instance: int = 1,
) -> Document:
    """Send a request to a service, and return the JSON object of its response.

    Raises:
        StackError: the service rejects the request, or does not respond.
    """
    response = request(world, service, method, path, body, instance=instance)
    if response.status_code != 200:
        raise StackError(
            f"{service} rejected the request: {response.json()['error']}",
            location=f"{method} /{path}",
        )
    return response.json()


def request(
    world: World,
    service: str,
    method: str,
    path: str,
    body: Optional[Document] = None,
    *,
    instance: int = 1,
    client: Any = requests,
) -> requests.Response:
    """Send a request to a service, and return its response, whatever the status.

    Args:
        world: the world.
        service: name of the service.
        method: the HTTP method.
        path: the path, without a leading slash.
        body: the JSON object to send.
        instance: number of the instance, 1 or 2.
        client: `requests`, or a session of it.

    Raises:
        StackError: the service does not respond.
    """
    name, url = service_name(service, instance), address(world, service, instance)
    try:
        return client.request(method, f"{url}/{path}", json=body, timeout=(5, 30))
    except requests.RequestException as e:
        error = StackError(f"{service} does not respond: {type(e).__name__}")
        with suppress(StackError):  # a killed process may exist for another moment
            error = (
                wait_until(
                    lambda: stack.service_down_error(world, name, url),
                    "",
                    timeout=1,
                    error=StackError,
                )
                or error
            )
        error_class = StackError if name in _supervised else type(error)
        raise error_class(
            error.message,
            location=f"{method} {url}/{path}",
            hint="`workbench storefront up` starts the stopped services",
        ) from None


def instance_states(world: World) -> list[tuple[str, str, str]]:
    """Return the name, the URL and the state of each started instance."""
    states = []
    for context, number in ((context, n) for n in (1, 2) for context in CONTEXTS):
        name = service_name(context, number)
        if number == 1 or name in stack.running():
            try:
                state = call(world, context, "GET", "health", instance=number)["events"]
            except StackError as e:
                state = e.message
            states.append((name, address(world, context, number), state))
    return states


def metrics(world: World, service: str, instance: int = 1) -> dict[str, float]:
    """Return the metrics of an instance: {name{labels}: value}."""
    text = request(world, service, "GET", "metrics", instance=instance).text
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in lines}


def lag(world: World) -> dict[str, int]:
    """Return {service: number of events that its consumer group has not consumed yet}."""
    return {
        context.name: sum(groups.lag(world, context.group, *context.subscribed_topics).values())
        for context in contexts.ALL.values()
        if context.subscribed_topics
    }


def wait_until_consistent(world: World, timeout: float = 60) -> None:
    """Wait until all events are published, and all published events are consumed.

    Events in the producer queue of a service that is not running are ignored.

    Raises:
        WorkbenchError: after `timeout` seconds.
        ServiceLost: Kafka, Connect, or all instances of a service that has a lag are lost.
    """
    ids = {name: EventIds(world, context.topic) for name, context in contexts.ALL.items()}

    def all_published() -> bool:
        # without Kafka, a request for metrics would take some seconds
        raise_if_lost(world, "kafka")
        pending = [name for name in ids if _count_pending(world, name, ids[name])]
        if any(connector_publishes(world, name) for name in pending):
            raise_if_lost(world, "connect")
        return not pending

    def all_consumed() -> bool:
        lagging = [name for name, events in lag(world).items() if events]
        for name in lagging:
            if not {*_instances([name])} & {*stack.running()}:
                raise_if_lost(world, name)
        return not lagging

    wait_until(
        all_published,
        "outbox events to be published",
        timeout=timeout,
        interval=0.1,
        hint='if connectors publish: see connect.status(world, "storefront_orders")',
    )
    wait_until(all_consumed, "the services to consume all events", timeout=timeout, interval=0.1)


def raise_if_lost(world: World, *services: str) -> None:
    """Raise ServiceLost if one of these services is lost, and not supervised."""
    for service in services:
        error = None if service in _supervised else stack.process_down_error(world, service)
        if error:
            raise error


def connector_publishes(world: World, store: str) -> bool:
    """Return whether a connector publishes the outbox of a store."""
    return PUBLICATION in set(postgres.publications(world, store)["publication"])


def pending_events(world: World) -> dict[str, int]:
    """Return {service: number of its events that are not in its topic yet}."""
    return {
        name: _count_pending(world, name, EventIds(world, context.topic))
        for name, context in contexts.ALL.items()
    }


def _count_pending(world: World, service: str, published: EventIds) -> int:
    """Count the unpublished events: in the outbox for a connector, else in the producer queues."""
    if connector_publishes(world, service):
        outbox = postgres.query(world, "SELECT id::text FROM outbox", database=service)["id"]
        return len(set(outbox) - set(published.read()))
    running = [n for n in (1, 2) if service_name(service, n) in stack.running()]
    sizes = [metrics(world, service, n)["storefront_producer_queue_size"] for n in running]
    return int(sum(sizes))


def event_ids(world: World, topic: str) -> list[str]:
    """Return the ids of the events in a topic, by partition and offset."""
    return EventIds(world, topic).read()


# --- the stores


def watch(world: World, key: str, email: str) -> pandas.DataFrame:
    """Change a customer's e-mail, and poll both stores in a tight loop until both have the change.

    Returns:
        One row for each poll: ms (since the command was sent), owner (the e-mail in accounts),
        copy (the e-mail in orders).

    Raises:
        StackError: the command was rejected, or a store does not have the change after 30 s.
    """
    query = "SELECT document->'contact'->>'email' FROM customers WHERE id = %s"
    polls: list[tuple[float, ...]] = []
    with (
        postgres.session(world, "accounts") as owner,
        postgres.session(world, "orders") as copy,
        ThreadPoolExecutor(1) as pool,
    ):
        started = time.monotonic()
        change = {"contact": {"email": email}}
        command = pool.submit(call, world, "accounts", "PATCH", f"customers/{key}", change)

        def both_have_it() -> bool:
            rows = [c.execute(query, [key]).fetchall() for c in (owner, copy)]
            emails = [row[0][0] for row in rows]
            polls.append((1000 * (time.monotonic() - started), *emails))
            return emails == [email, email]

        wait_until(
            both_have_it,
            "both stores to have the new e-mail",
            timeout=30,
            interval=0,
            error=StackError,
            failure_reason=lambda: (
                str(command.exception()) if command.done() and command.exception() else None
            ),
        )
    return pandas.DataFrame(polls, columns=["ms", "owner", "copy"])


def wipe_store(world: World, store: str) -> None:
    """Stop a service, and empty its store except for the outbox.

    After the next start, the service consumes its topics from the beginning. The rows are deleted only
    after Kafka has confirmed the deletion of the committed offsets, because with these offsets the
    service would consume nothing again.

    Raises:
        StackError: no topic has the documents of this store, so it cannot be rebuilt; or Kafka does
            not confirm the deletion. No row is deleted.
    """
    context = contexts.ALL[store]
    if context.topic not in context.subscribed_topics:
        raise StackError(
            f"{store} cannot be rebuilt from its topics", expected="orders or fulfillment"
        )
    stop(store)
    groups.delete(world, context.group)
    # including the inbox, because an event whose id is in the inbox is not applied again
    tables = (*context.collections, "inbox")
    statement = f"TRUNCATE {', '.join(['{}'] * len(tables))}"
    postgres.execute(world, format_sql(statement, *tables), database=store)


def enable_outbox_connectors(world: World) -> None:
    """Deploy connectors that publish the outboxes, instead of the services.

    A service stops publishing when its store has the publication. The connector publishes all events
    of the outbox again; consumers recognize them by their ids.
    """
    stack.ensure_running(world, "connect")
    grant = "GRANT CONNECT ON DATABASE {} TO {}"
    for name, connector in zip(CONTEXTS, CONNECTORS):
        postgres.grant_replication(world, ["outbox"], name)
        statement = format_sql(grant, name, world.postgres.replication_user)
        postgres.execute(world, statement, database=name)
        postgres.create_publication(world, PUBLICATION, ["outbox"], name)
        connect.apply(world, connector, walkthrough.resources.config(world, connector))
    for connector in CONNECTORS:
        connect.wait_running(world, connector)


# --- the walkthrough


def _config(world: World, connector: str) -> dict[str, str]:
    # Debezium's event router replaces the second placeholder itself
    return connect.config(
        world,
        "storefront_outbox",
        service=connector.partition("_")[2],
        routedByValue="${routedByValue}",
    )


def _is_created(world: World) -> bool:
    if not {*CONTEXTS} <= {*postgres.databases(world)}:
        return False  # no request to Kafka, which may not run yet
    return {*contexts.TOPICS} <= {*topics.names(world)}


walkthrough = Walkthrough(
    "70_eventual_consistency",
    Steps(
        ROOT / "notebooks" / "70_eventual_consistency",
        (Step("71_stores", Product.SOURCE, _is_created),),
        services=("postgres", "kafka", "connect"),
        local_only=True,
    ),
    OwnedResources(
        config=_config,
        extra_connectors=CONNECTORS,
        own_topics=(*contexts.TOPICS, DLQ_TOPIC),
        services=tuple(_instances()),
        consumer_groups=tuple(c.group for c in contexts.ALL.values() if c.subscribed_topics),
        service_databases=CONTEXTS,
    ),
)
