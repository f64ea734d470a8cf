"""A service's own database: a table of documents for each collection, and two more:

outbox  what it has said: written in the transaction that changes the document
inbox   ids of the events that it has heard: written in the transaction that takes the document
"""

import threading
from contextlib import contextmanager
from typing import Any, Callable, Iterator, Optional, Sequence

import psycopg
from psycopg.types.json import Jsonb

from ..base import ROOT, World
from ..source import postgres
from ..source.names import format_sql
from .contexts import PUBLICATION, TOPICS, CommandRejected, Context, Document
from .events import Event, build_event

SCHEMA_FILE = ROOT / "data" / "storefront" / "store.sql"


class Store:
    """A connection to the store of a service, as its own role; one that broke is made anew. Threads
    take turns.
    """

    def __init__(self, world: World, context: Context):
        self.world, self.context = world, context
        self._connection: Optional[psycopg.Connection] = None
        self._lock = threading.Lock()

    @contextmanager
    def transaction(self) -> Iterator[psycopg.Connection]:
        """Raises: SourceError: there is no such store, or no server. psycopg.Error: it refuses."""
        with self._lock:
            if self._connection is None or self._connection.broken or self._connection.closed:
                self._connection = postgres.connect(
                    self.world, self.context.name, self.context.name
                )
            with self._connection.transaction():
                yield self._connection

    def create_tables(self) -> None:
        """Make its tables, unless they are there."""
        with self.transaction() as c:
            c.execute(SCHEMA_FILE.read_text(encoding="utf-8"))
            for collection in self.context.collections:
                c.execute(
                    format_sql(
                        "CREATE TABLE IF NOT EXISTS {} (LIKE documents INCLUDING ALL)", collection
                    )
                )

    def change(
        self, key: str, edit: Callable[[Optional[Document]], Document]
    ) -> tuple[int, Optional[Event], bool]:
        """Change a document of its own, and note the event in its outbox.

        edit: gives the document as it shall be.
        Returns: the version; the event, None where nothing is changed; whether the service is to
            send it by itself.
        Raises: what edit raises; nothing is changed then.
        """
        table = self.context.owned_collection
        with self.transaction() as c:
            found = c.execute(
                format_sql("SELECT version, document FROM {} WHERE id = %s FOR UPDATE", table),
                [key],
            )
            version, before = found.fetchone() or (0, None)
            document = edit(before)
            if document == before:
                return version, None, False
            event = build_event(self.context.topic, key, version + 1, document)
            if not upsert_if_newer(
                c, table, key, event.version, document
            ):  # where there was no row, none was locked
                raise CommandRejected("another instance makes it just now", retryable=True)
            c.execute(
                "INSERT INTO outbox VALUES (%s, %s, %s, %s, %s)",
                [event.id, self.context.aggregate, key, event.version, Jsonb(event.document)],
            )
            own = not connector_publishes(c)
        return event.version, event, own

    def apply_events(
        self, events: Sequence[Event], stored: Callable[[], Any] = lambda: None
    ) -> list[str]:
        """Take the documents of events, all in one transaction, before whose end `stored` is
        called; return of each what became of it: taken, stale (the store has this version, or a
        later one), doubled (it was heard before), or ignored (it is of no concern here).
        """
        with self.transaction() as c:
            outcomes = [self._apply_event(c, event) for event in events]
            stored()
        return outcomes

    def _apply_event(self, c: psycopg.Connection, event: Event) -> str:
        noted = c.execute(
            "INSERT INTO inbox VALUES (%s, %s, %s, %s) ON CONFLICT (id) DO NOTHING",
            [event.id, event.topic, event.key, event.version],
        )
        if not noted.rowcount:
            return "doubled"
        if event.version < self.context.min_version:
            return "ignored"
        return (
            "taken"
            if upsert_if_newer(
                c, TOPICS[event.topic].owned_collection, event.key, event.version, event.document
            )
            else "stale"
        )


def connector_publishes(c: psycopg.Connection) -> bool:
    """Whether a connector sends what is in this outbox."""
    return (
        c.execute("SELECT 1 FROM pg_publication WHERE pubname = %s", [PUBLICATION]).fetchone()
        is not None
    )


def upsert_if_newer(
    c: psycopg.Connection, table: str, key: str, version: int, document: Document
) -> bool:
    """Keep a document, unless there is this version of it, or a later one; return whether it was
    kept.
    """
    return (
        c.execute(
            format_sql(
                "INSERT INTO {0} AS there VALUES (%s, %s, %s) ON CONFLICT (id) DO UPDATE SET (version, document) = "
                "(EXCLUDED.version, EXCLUDED.document) WHERE there.version < EXCLUDED.version",
                table,
            ),
            [key, version, Jsonb(document)],
        ).rowcount
        == 1
    )
