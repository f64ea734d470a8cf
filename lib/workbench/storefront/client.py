"""Starts and stops the services of the storefront, and sends them requests."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Iterator, Optional, Sequence

import requests
from prometheus_client.parser import text_string_to_metric_families

from .. import connect, stack
from ..base import StackError, World, http, wait_until
from ..source import postgres
from ..source.names import format_sql
from ..topic import groups, topics
from . import databases
from .domain import ALL, PUBLICATION, TOPICS, Document
from .instances import address, service_name
from .store import Store

PARTITIONS = 3  # of each topic, as published
CONNECTORS = tuple(f"storefront_{name}" for name in ALL)


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


def is_created(world: World) -> bool:
    """Return whether the stores and topics exist."""
    if not {*ALL} <= {*postgres.databases(world)}:
        return False  # no request to Kafka, which may not run yet
    return {*TOPICS} <= {*topics.names(world)}


def up(world: World, instances: int = 1) -> None:
    """Create missing stores and topics, and start the services.

    Args:
        world: the world.
        instances: number of instances of each service, 1 or 2.
    """
    require_embedded(world)
    stack.ensure_running(world, "postgres", "kafka")
    for context in ALL.values():
        databases.create(world, context.name)
        Store(world, context).create_tables()
        topics.create(world, context.topic, PARTITIONS)
        if connector_publishes(world, context.name):
            stack.ensure_running(world, "connect")
    start(world, instances=instances)


def start(world: World, *names: str, instances: int = 1) -> None:
    """Start services, by default all, and wait until they have caught up."""
    stack.ensure_running(world, *instance_names(names, instances))


def instance_names(names: Sequence[str] = (), instances: int = 2) -> list[str]:
    """Return the names of the instances of services, by default of all."""
    return [service_name(n, i + 1) for i in range(instances) for n in names or ALL]


def _supervised(world: World) -> set[str]:
    """Return the services that `supervised` restarts: a caller may wait for them after a crash."""
    names: set[str] = world.state.get("supervised services", set)
    return names


@contextmanager
def supervised(world: World, instances: int = 1) -> Iterator[list[str]]:
    """Restart services that die within the block.

    Yields:
        The names of the restarted services, in order, one for each death.
    """
    names = instance_names(instances=instances)
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
        _supervised(world).update(names)
        try:
            yield restarted
        finally:
            _supervised(world).difference_update(names)
            stop_event.set()
        supervisor.result()


def raise_if_lost(world: World, *services: str) -> None:
    """Raise ServiceLost if one of these services is lost, and not supervised."""
    for service in services:
        error = stack.service_down_error(world, service)
        if error and service not in _supervised(world):
            raise error


def stop(*names: str) -> None:
    """Stop all instances of services, by default of all services."""
    stack.stop(*instance_names(names))


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
    document: Document = response.json()
    return document


def request(
    world: World,
    service: str,
    method: str,
    path: str,
    body: Optional[Document] = None,
    *,
    instance: int = 1,
    client: Optional[requests.Session] = None,
) -> requests.Response:
    """Send a request to a service, and return its response, whatever the status.

    Args:
        world: the world.
        service: name of the service.
        method: the HTTP method.
        path: the path, without a leading slash.
        body: the JSON object to send.
        instance: number of the instance, 1 or 2.
        client: a session for several requests to this instance, by default one of its own.

    Raises:
        StackError: the service does not respond.
    """
    name, url = service_name(service, instance), address(world, service, instance)
    try:
        return (client or http.session(url)).request(
            method, f"{url}/{path}", json=body, timeout=(5, 30)
        )
    except requests.RequestException as e:
        error = StackError(f"{service} does not respond: {type(e).__name__}")
        with suppress(StackError):  # a killed process may exist for another moment
            error = wait_until(
                lambda: stack.service_down_error(world, name, url), "", timeout=1, error=StackError
            )
        error_class = StackError if name in _supervised(world) else type(error)
        raise error_class(
            error.message,
            location=f"{method} {url}/{path}",
            hint="the set-up cell of the notebook starts the stopped services",
        ) from None


def instance_states(world: World) -> list[tuple[str, str, str]]:
    """Return the name, the URL and the state of each started instance."""
    states = []
    for name in instance_names():
        context, _, number = name.partition("_")
        if not number or name in stack.running():
            try:
                state = call(world, context, "GET", "health", instance=int(number or 1))["events"]
            except StackError as e:
                state = e.message
            states.append((name, stack.get_service(name).address(world), state))
    return states


def metrics(world: World, service: str, instance: int = 1) -> dict[str, float]:
    """Return the metrics of an instance: {name{labels}: value}."""
    text = request(world, service, "GET", "metrics", instance=instance).text
    families = text_string_to_metric_families(text)
    return {_series_name(*sample[:2]): sample.value for f in families for sample in f.samples}


def _series_name(name: str, labels: dict[str, str]) -> str:
    pairs = ",".join(f'{label}="{value}"' for label, value in labels.items())
    return f"{name}{{{pairs}}}" if pairs else name


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
    stop(store)
    groups.delete(world, context.group)
    # including the inbox, because an event whose id is in the inbox is not applied again
    tables = (*context.collections, "inbox")
    statement = f"TRUNCATE {', '.join(['{}'] * len(tables))}"
    postgres.execute(world, format_sql(statement, *tables), database=store)


def connector_publishes(world: World, store: str) -> bool:
    """Return whether a connector publishes the outbox of a store."""
    return PUBLICATION in set(postgres.publications(world, store)["publication"])


def enable_outbox_connectors(world: World) -> None:
    """Deploy connectors that publish the outboxes, instead of the services.

    A service stops publishing when its store has the publication. The connector publishes all events
    of the outbox again; consumers recognize them by their ids.
    """
    stack.ensure_running(world, "connect")
    grant = "GRANT CONNECT ON DATABASE {} TO {}"
    for name, connector in zip(ALL, CONNECTORS):
        postgres.grant_replication(world, ["outbox"], name)
        statement = format_sql(grant, name, world.postgres.replication_user)
        postgres.execute(world, statement, database=name)
        postgres.create_publication(world, PUBLICATION, ["outbox"], name)
        connect.apply(world, connector, outbox_config(world, connector))
    for connector in CONNECTORS:
        connect.wait_running(world, connector)


def outbox_config(world: World, connector: str) -> dict[str, str]:
    """Return the configuration of one of CONNECTORS."""
    # Debezium's event router replaces the second placeholder itself
    return connect.config(
        world,
        "storefront_outbox",
        service=connector.partition("_")[2],
        routedByValue="${routedByValue}",
    )
