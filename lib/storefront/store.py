"""A service's own database: one table for each collection, an outbox and an inbox.

outbox  published events, written in the transaction that changes the document
inbox   ids of consumed events, written in the transaction that stores the document
"""

import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Callable, Iterator, Optional, Sequence

import psycopg
from psycopg.types.json import Jsonb
from workbench.base import ROOT, World
from workbench.source import postgres
from workbench.source.names import format_sql

from . import faults
from .domain import PUBLICATION, TOPICS, Context, Document, RetryLater
from .events import Event, build_event

SCHEMA_FILE = ROOT / "data" / "storefront" / "store.sql"
# errors of a document that PostgreSQL cannot store: a retry would fail, too
NON_RETRYABLE_ERRORS = (
    psycopg.DataError,
    psycopg.errors.ProgramLimitExceeded,
    psycopg.errors.StatementTooComplex,
)


@dataclass(frozen=True)
class Change:
    """The result of a command.

    Attributes:
        version: version of the document.
        event: the event of the change; None if nothing was changed.
        connector_publishes: whether a connector publishes the event, and not the service.
    """

    version: int
    event: Optional[Event] = None
    connector_publishes: bool = False


class Store:
    """A connection to a service's database, as the service's own role.

    A broken connection is replaced. Only one thread at a time can run a transaction.
    """

    def __init__(self, world: World, context: Context):
        """Create the store; the first transaction opens the connection."""
        self.world, self.context = world, context
        self._connection: Optional[psycopg.Connection] = None
        self._lock = threading.Lock()

    @contextmanager
    def transaction(self) -> Iterator[psycopg.Connection]:
        """Run a transaction.

        Raises:
            SourceError: the database does not exist, or the server is down.
            psycopg.Error: a statement failed.
        """
        with self._lock:
            if self._connection is None or self._connection.closed:
                name = self.context.name
                self._connection = postgres.connect(self.world, name, name)
            with self._connection.transaction():
                yield self._connection

    def create_tables(self) -> None:
        """Create the tables that do not exist."""
        statement = "CREATE TABLE IF NOT EXISTS {} (LIKE documents INCLUDING ALL)"
        with self.transaction() as c:
            c.execute(SCHEMA_FILE.read_text(encoding="utf-8"))
            for collection in self.context.collections:
                c.execute(format_sql(statement, collection))

    def change(self, key: str, edit: Callable[[Optional[Document]], Document]) -> Change:
        """Change a document of the owned collection, and write its event to the outbox.

        Args:
            key: key of the document.
            edit: returns the new document. If it raises, nothing is changed.
        """
        table = self.context.owned_collection
        query = format_sql("SELECT version, document FROM {} WHERE id = %s FOR UPDATE", table)
        with self.transaction() as c:
            version, before = c.execute(query, [key]).fetchone() or (0, None)
            document = edit(before)
            if document == before:
                return Change(version)
            event = build_event(self.context.topic, key, version + 1, document)
            # FOR UPDATE locks nothing if the row does not exist: another instance may have inserted it
            if not upsert_if_newer(c, table, key, event.version, document):
                raise RetryLater("another instance is creating it now")
            c.execute(
                "INSERT INTO outbox VALUES (%s, %s, %s, %s, %s)",
                [event.id, self.context.aggregate, key, event.version, Jsonb(event.document)],
            )
            return Change(event.version, event, connector_publishes(c))

    def apply_events(self, events: Sequence[Event]) -> list[str]:
        """Store the documents of events in one transaction.

        Args:
            events: the events, in the order of their offsets.

        Returns:
            The outcome of each event: `applied`; `stale` if the store has this version or a later
            one; `duplicate` if the event was consumed before; `ignored` if its version is below the
            service's min_version.
        """
        with self.transaction() as c:
            outcomes = [self._apply_event(c, event) for event in events]
            faults.reach("in_transaction")
        return outcomes

    def _apply_event(self, c: psycopg.Connection, event: Event) -> str:
        inserted = c.execute(
            "INSERT INTO inbox VALUES (%s, %s, %s, %s) ON CONFLICT (id) DO NOTHING",
            [event.id, event.topic, event.key, event.version],
        )
        if not inserted.rowcount:
            return "duplicate"
        if event.version < self.context.min_version:
            return "ignored"
        table = TOPICS[event.topic].owned_collection
        is_newer = upsert_if_newer(c, table, event.key, event.version, event.document)
        return "applied" if is_newer else "stale"


def connector_publishes(c: psycopg.Connection) -> bool:
    """Return whether a connector publishes the outbox of this store."""
    query = "SELECT 1 FROM pg_publication WHERE pubname = %s"
    return c.execute(query, [PUBLICATION]).fetchone() is not None


def upsert_if_newer(
    c: psycopg.Connection, table: str, key: str, version: int, document: Document
) -> bool:
    """Store a document unless the table has this version or a later one.

    Returns:
        Whether the document was stored.
    """
    statement = format_sql(
        "INSERT INTO {} AS stored VALUES (%s, %s, %s) ON CONFLICT (id) DO UPDATE"
        " SET (version, document) = (EXCLUDED.version, EXCLUDED.document)"
        " WHERE stored.version < EXCLUDED.version",
        table,
    )
    return c.execute(statement, [key, version, Jsonb(document)]).rowcount == 1
