"""The contents of the storefront's databases: documents, their copies, and the replication lag."""

import pandas

from ..base import World
from ..checks import check
from ..source import postgres
from ..source.names import format_sql
from ..storefront import contexts
from ..storefront.contexts import PUBLISHED_FIELDS

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
    owned, copy = owner_documents(world, collection), contexts.ALL[COPIES[collection][1]]
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


def replication_lag(world: World) -> pandas.DataFrame:
    """Return the replication lag: the time from the commit of a change until all copies have it.

    Returns:
        One row per event: id, topic, key, version, published, consumed, seconds. published is the
        commit time of the outbox row, consumed the latest commit time of the event in the inboxes of
        the other services; both are PostgreSQL's (pg_xact_commit_timestamp).
    """
    query = (
        "SELECT id::text, {} AS key, version, pg_xact_commit_timestamp(xmin) AS {}, {} AS topic"
        " FROM {}"
    )
    published, consumed = [], []
    for context in contexts.ALL.values():
        outbox = query.format("aggregateid", "published", f"'{context.topic}'", "outbox")
        published.append(postgres.query(world, outbox, database=context.name))
        inbox = query.format("key", "consumed", "topic", "inbox")
        rows = postgres.query(world, inbox, database=context.name)
        consumed.append(rows[rows["topic"] != context.topic])
    last = pandas.concat(consumed).groupby("id", as_index=False)["consumed"].max()
    events = pandas.concat(published).merge(last, "left", "id")
    events["seconds"] = (events["consumed"] - events["published"]).dt.total_seconds()
    return events.sort_values("published", ignore_index=True)
