"""Compares the stores of the storefront, waits until they agree, and measures how long they differ."""

import time
from concurrent.futures import ThreadPoolExecutor

import pandas

from .. import stack
from ..base import StackError, World, wait_until
from ..checks import check
from ..source import postgres
from ..source.names import format_sql
from ..topic import groups
from .client import call, connector_publishes, instance_names, metrics, raise_if_lost
from .domain import ALL, PUBLISHED_FIELDS
from .events import EventIds
from .instances import service_name

# {collection: (the service that owns it, the service that copies it)}
COPIES = {"customers": ("accounts", "orders"), "orders": ("orders", "fulfillment")}


def documents(world: World, store: str, collection: str) -> pandas.DataFrame:
    """Return a collection of a store: id, version, document."""
    query = format_sql("SELECT id, version, document FROM {} ORDER BY id", collection)
    return postgres.query(world, query, database=store)


def owner_documents(world: World, collection: str) -> pandas.DataFrame:
    """Return a collection from the store of its owner, with the published fields only."""
    owned = documents(world, COPIES[collection][0], collection)
    fields = PUBLISHED_FIELDS[collection]
    owned["document"] = [{name: row[name] for name in fields} for row in owned["document"]]
    return owned


def _expected_copy(world: World, collection: str) -> pandas.DataFrame:
    """Return the rows that a copy of a collection should hold.

    Fulfillment stores only approved orders.
    """
    owned, copy = owner_documents(world, collection), ALL[COPIES[collection][1]]
    if collection != copy.owned_collection:
        return owned
    return owned[owned["version"] >= copy.min_version]


def find_divergent(world: World) -> pandas.DataFrame:
    """Return the documents that differ between a copy and its owner.

    Returns:
        Columns collection, id, copy, version_owner, version_copy. A version is 0 if the document is
        missing.
    """
    frames = []
    for collection, (_, copy) in COPIES.items():
        rows = _expected_copy(world, collection).merge(
            documents(world, copy, collection), "outer", "id", suffixes=("_owner", "_copy")
        )
        differing = rows[rows["document_owner"] != rows["document_copy"]]
        frames.append(differing.assign(collection=collection, copy=copy))
    versions = ["version_owner", "version_copy"]
    divergent = pandas.concat(frames, ignore_index=True)[["collection", "id", "copy", *versions]]
    return divergent.fillna(dict.fromkeys(versions, 0)).astype(dict.fromkeys(versions, int))


def compare(world: World) -> None:
    """Check that the copies equal the documents of their owners."""
    for collection, (owner, copy) in COPIES.items():
        rows = "customers" if collection == "customers" else "approved orders"
        check.same_rows(
            _expected_copy(world, collection),
            documents(world, copy, collection),
            key="id",
            claim=f"{rows} in {copy} = in {owner}",
            lake_label=copy,
            source_label=owner,
            allow_empty=collection == "orders",
        )


def lag(world: World) -> dict[str, int]:
    """Return {service: number of events that its consumer group has not consumed yet}."""
    return {
        context.name: sum(groups.lag(world, context.group, *context.subscribed_topics).values())
        for context in ALL.values()
        if context.subscribed_topics
    }


def wait_until_consistent(world: World, timeout: float = 60) -> None:
    """Wait until all events are published, and all published events are consumed.

    Events in the producer queue of a service that is not running are ignored.

    Raises:
        WorkbenchError: after `timeout` seconds.
        ServiceLost: Kafka, Connect, or all instances of a service that has a lag are lost.
    """
    ids = {name: EventIds(world, context.topic) for name, context in ALL.items()}

    def is_consistent() -> bool:
        # without Kafka, a request for metrics would take some seconds
        raise_if_lost(world, "kafka")
        pending = [name for name in ids if _count_pending(world, name, ids[name])]
        if any(connector_publishes(world, name) for name in pending):
            raise_if_lost(world, "connect")
        lagging = [name for name, events in lag(world).items() if events]
        for name in lagging:
            if not {*instance_names([name])} & {*stack.running()}:
                raise_if_lost(world, name)
        return not pending and not lagging

    wait_until(
        is_consistent,
        "all events to be published and consumed",
        timeout=timeout,
        hint='if connectors publish: see connect.status(world, "storefront_orders")',
    )


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


def watch(world: World, key: str, email: str) -> pandas.DataFrame:
    """Change a customer's e-mail, and poll both stores in a tight loop until both have the change.

    A busy machine can give the processor to both services before a poll has read the outdated copy.
    Then the e-mail is changed back and once more, at most five times.

    Returns:
        One row for each poll of the last change: ms (since the command was sent), owner (the e-mail
        in accounts), copy (the e-mail in orders).

    Raises:
        StackError: the command was rejected, or a store does not have the change after 30 s.
    """
    customers = documents(world, "accounts", "customers").set_index("id")["document"]
    before = customers[key]["contact"]["email"]
    for _ in range(5):
        polls = _poll_change(world, key, email)
        if (polls["owner"] != polls["copy"]).any():
            break
        _poll_change(world, key, before)
    return polls


def _poll_change(world: World, key: str, email: str) -> pandas.DataFrame:
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
            if command.done():
                command.result()  # raises the error of the command
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
            is_transient=lambda _: False,
        )
    return pandas.DataFrame(polls, columns=["ms", "owner", "copy"])


def replication_lag(world: World) -> pandas.DataFrame:
    """Return the replication lag: the time from the commit of a change until all copies have it.

    Returns:
        One row per event: id, topic, key, version, published, consumed, seconds. published is the
        commit time of the outbox row, consumed the latest commit time of the event in the inboxes of
        the other services; both are PostgreSQL's (pg_xact_commit_timestamp).
    """
    outbox = """
        SELECT id::text, %s::text AS topic, aggregateid AS key, version,
               pg_xact_commit_timestamp(xmin) AS published FROM outbox"""
    inbox = """
        SELECT id::text, pg_xact_commit_timestamp(xmin) AS consumed FROM inbox WHERE topic <> %s"""
    published, consumed = (
        pandas.concat(
            postgres.query(world, query, [context.topic], context.name) for context in ALL.values()
        )
        for query in (outbox, inbox)
    )
    last = consumed.groupby("id", as_index=False)["consumed"].max()
    events = published.merge(last, "left", "id")
    events["seconds"] = (events["consumed"] - events["published"]).dt.total_seconds()
    return events.sort_values("published", ignore_index=True)
