"""Compares the stores of the storefront, waits until they agree, and measures how long they differ."""

import time
from typing import Iterator

import pandas
from workbench.base import World, wait_until
from workbench.checks import check
from workbench.source import postgres
from workbench.source.names import format_sql
from workbench.topic import topics

from .client import call, instance_names, metrics, raise_if_lost, running
from .domain import ALL, published
from .service import lag_by_topic
from .setup import connector_publishes

# {collection: (the service that owns it, the service that copies it)}
COPIES = {"customers": ("accounts", "orders"), "orders": ("orders", "fulfillment")}


def documents(world: World, store: str, collection: str) -> pandas.DataFrame:
    """Return a collection of a store: id, version, document."""
    query = format_sql("SELECT id, version, document FROM {} ORDER BY id", collection)
    return postgres.query(world, query, database=store)


def owner_documents(world: World, collection: str) -> pandas.DataFrame:
    """Return a collection from the store of its owner, with the published fields only."""
    owned = documents(world, COPIES[collection][0], collection)
    owned["document"] = [published(collection, document) for document in owned["document"]]
    return owned


def _copies(
    world: World,
) -> Iterator[tuple[str, str, str, pandas.DataFrame, pandas.DataFrame]]:
    """Yield each collection with its owner, the service that copies it, and the rows of both.

    Fulfillment stores only approved orders.
    """
    for collection, (owner, copy) in COPIES.items():
        owned = owner_documents(world, collection)
        expected = owned[owned["version"] >= ALL[copy].min_version]
        yield collection, owner, copy, expected, documents(world, copy, collection)


def find_divergent(world: World) -> pandas.DataFrame:
    """Return the documents that differ between a copy and its owner.

    Returns:
        Columns collection, id, copy, version_owner, version_copy. A version is 0 if the document is
        missing.
    """
    frames = []
    for collection, _, copy, expected, copied in _copies(world):
        rows = expected.merge(copied, "outer", "id", suffixes=("_owner", "_copy"))
        differing = rows[rows["document_owner"] != rows["document_copy"]]
        frames.append(differing.assign(collection=collection, copy=copy))
    columns = ["collection", "id", "copy", "version_owner", "version_copy"]
    divergent = pandas.concat(frames, ignore_index=True)[columns].fillna(0)
    return divergent.astype({"version_owner": int, "version_copy": int})


def compare(world: World) -> None:
    """Check that the copies equal the documents of their owners."""
    for collection, owner, copy, expected, copied in _copies(world):
        rows = "customers" if collection == "customers" else "approved orders"
        check.same_rows(
            expected,
            copied,
            key="id",
            claim=f"{rows} in {copy} = in {owner}",
            lake_label=copy,
            source_label=owner,
            allow_empty=collection == "orders",
        )


def lag(world: World) -> dict[str, int]:
    """Return {service: number of events that its consumer group has not consumed yet}."""
    return {name: sum(lag_by_topic(world, context).values()) for name, context in ALL.items()}


def event_ids(world: World, topic: str) -> list[str]:
    """Return the ids of the events in a topic, "" for a message without an id."""
    messages = topics.read_all(world, topic)
    return [dict(message.headers() or []).get("id", b"").decode() for message in messages]


def wait_until_consistent(world: World, timeout: float = 60) -> None:
    """Wait until all events are published, and all published events are consumed.

    Events in the producer queue of a service that is not running are ignored.

    Raises:
        WorkbenchError: after `timeout` seconds.
        ServiceLost: Kafka, Connect, or a service that has a lag is lost.
    """

    def is_consistent() -> bool:
        # without Kafka, a request for metrics would take some seconds
        raise_if_lost(world, "kafka")
        lagging = [name for name, events in lag(world).items() if events]
        raise_if_lost(world, *lagging)
        return not lagging and all(_is_published(world, name) for name in ALL)

    wait_until(
        is_consistent,
        "all events to be published and consumed",
        timeout=timeout,
        hint='if connectors publish: see connect.status(world, "storefront_orders")',
    )


def _is_published(world: World, service: str) -> bool:
    """Return whether all events are published that the service or a connector can publish."""
    if not connector_publishes(world, service):
        names = {*instance_names([service])} & {*running()}
        return not any(metrics(world, name)["storefront_producer_queue_size"] for name in names)
    outbox = postgres.query(world, "SELECT id::text FROM outbox", database=service)["id"]
    # `orders` consumes all topics
    inbox = postgres.query(world, "SELECT id::text FROM inbox", database="orders")["id"]
    if {*outbox} <= {*inbox}:
        return True
    raise_if_lost(world, "connect")
    return False


def watch(world: World, key: str, email: str) -> pandas.DataFrame:
    """Change a customer's e-mail, and poll both stores in a tight loop until both have the change.

    A busy machine can give the processor to both services before a poll has read the outdated copy.
    Then the e-mail is changed back and once more, at most five times.

    Returns:
        One row for each poll of the last change, the first one before the change: ms (since the
        first poll), owner (the e-mail in accounts), copy (the e-mail in orders).

    Raises:
        StackError: the command was rejected.
        WorkbenchError: a store does not have the change after 30 s.
    """
    for _ in range(5):
        polls = _poll_change(world, key, email)
        if (polls["owner"] != polls["copy"]).any():
            break
        _poll_change(world, key, polls["owner"][0])
    return polls


def _poll_change(world: World, key: str, email: str) -> pandas.DataFrame:
    query = "SELECT document->'contact'->>'email' FROM customers WHERE id = %s"
    polls: list[tuple[float, ...]] = []
    started = time.monotonic()
    with postgres.session(world, "accounts") as owner, postgres.session(world, "orders") as copy:

        def both_have_it() -> bool:
            emails = [c.execute(query, [key]).fetchall()[0][0] for c in (owner, copy)]
            polls.append((1000 * (time.monotonic() - started), *emails))
            return emails == [email, email]

        both_have_it()
        call(world, "accounts", "PATCH", f"customers/{key}", {"contact": {"email": email}})
        wait_until(both_have_it, "the new e-mail in both stores", timeout=30, interval=0)
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
