"""A snapshot of a database: what polling reads in one transaction (see `landing.poll`)."""

from contextlib import contextmanager
from typing import Any, Iterator, NamedTuple, Optional, Protocol, Sequence

import psycopg
from psycopg import sql

from ..base import World
from . import postgres
from .names import identifier
from .queries import QUERIES

# m.*, because a column may also have the name m
JSON_ROWS_QUERY = sql.SQL("SELECT row_to_json(m.*)::text AS value FROM ({}) AS m")


class Column(NamedTuple):
    """A column of a table or query.

    Attributes:
        name: its name.
        kind: its type, as PostgreSQL names it (pg_type.typname); "enum" for any enum.
        optional: whether it may be null.
        precision: precision of a numeric; None for another type.
        scale: scale of a numeric; None for another type.
    """

    name: str
    kind: str
    optional: bool
    precision: Optional[int] = None
    scale: Optional[int] = None


class PollSummary(NamedTuple):
    """What a poll will read.

    Attributes:
        rows: number of rows.
        last: values of the offset columns in the last row.
        null_rows: number of rows with a null in an offset column, which no poll reads.
    """

    rows: int
    last: Sequence[Any]
    null_rows: int


class Snapshot(Protocol):
    """A snapshot of a database: all methods read the same state of it."""

    def time(self, delay_ms: int) -> str:
        """Return the database's time in UTC minus a delay, as a text that its timestamps compare with."""

    def columns(self, query: sql.Composable, table: str) -> list[Column]:
        """Return the columns of a query for all rows of a table; "" if it is not of one table."""

    def summarize(
        self,
        query: sql.Composable,
        all_rows: sql.Composable,
        offset_columns: Sequence[str],
        count_nulls: bool,
    ) -> PollSummary:
        """Return what a poll will read with a query.

        Args:
            query: the query of the poll.
            all_rows: the query for all rows.
            offset_columns: the columns whose values are the offset of a poll.
            count_nulls: whether `null_rows` is counted, which reads all rows; else it is 0.
        """

    def json_rows(self, query: sql.Composable, batch_size: int) -> Iterator[str]:
        """Yield the rows of a query as JSON objects, with at most a batch in memory."""


class PostgresSnapshot:
    """A snapshot of a PostgreSQL database, in the transaction of a connection."""

    def __init__(self, connection: psycopg.Connection):
        """Begin the transaction."""
        self.connection = connection
        connection.autocommit, connection.read_only = False, True
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        # the role may have other defaults
        connection.execute("SET LOCAL TIME ZONE 'UTC'; SET LOCAL datestyle = 'ISO'")

    def time(self, delay_ms: int) -> str:
        """See Snapshot."""
        query = "SELECT (now() AT TIME ZONE 'UTC' - %s * interval '1 ms')::text"
        [[time]] = self.connection.execute(query, [delay_ms])
        return str(time)

    def columns(self, query: sql.Composable, table: str) -> list[Column]:
        """See Snapshot. Any column of a query may be null, for example in an outer join."""
        c = self.connection
        # binary=True selects the extended protocol, which accepts only one statement
        described = c.execute(query + sql.SQL(" LIMIT 0"), binary=True).description or []
        codes = [column.type_code for column in described]
        kinds: dict[int, str] = dict(c.execute(QUERIES["type_names"], [codes]).fetchall())
        name = identifier(table).as_string(c) if table else None
        not_null = {name for (name,) in c.execute(QUERIES["not_null_columns"], [name])}
        return [
            Column(d.name, kinds[d.type_code], d.name not in not_null, d.precision, d.scale)
            for d in described
        ]

    def summarize(
        self,
        query: sql.Composable,
        all_rows: sql.Composable,
        offset_columns: Sequence[str],
        count_nulls: bool,
    ) -> PollSummary:
        """See Snapshot."""
        # 0, because mode bulk has no offset columns, and PostgreSQL has no empty ROW
        keys = sql.SQL(", ").join([sql.SQL("0"), *map(sql.Identifier, offset_columns)])
        summary = sql.SQL(QUERIES["poll_summary"]).format(
            statement=query, all=all_rows, keys=keys, count_nulls=count_nulls
        )
        [(count, last, null_rows)] = self.connection.execute(summary)
        return PollSummary(count, (last or [0])[1:], null_rows)

    def json_rows(self, query: sql.Composable, batch_size: int) -> Iterator[str]:
        """See Snapshot."""
        with self.connection.cursor("polled") as cursor:
            cursor.itersize = batch_size
            yield from (text for (text,) in cursor.execute(JSON_ROWS_QUERY.format(query)))


@contextmanager
def postgres_snapshot(world: World, database: str) -> Iterator[PostgresSnapshot]:
    """Yield a snapshot of a PostgreSQL database."""
    with postgres.session(world, database, "replication") as connection:
        yield PostgresSnapshot(connection)


def jdbc_login(world: World) -> tuple[str, str]:
    """Return the JDBC URL of the world's PostgreSQL, and the user of its connectors."""
    server = world.postgres
    return f"jdbc:postgresql://{server.host}:{server.port}", server.replication_user
