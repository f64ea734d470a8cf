"""A snapshot of a database: what polling reads in one transaction (see `landing.poll`)."""

from contextlib import contextmanager
from typing import Iterator, NamedTuple, Optional

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
        last: the latest timestamp, as text; None for no rows.
        null_rows: number of rows with a null as timestamp, which no poll reads.
    """

    rows: int
    last: Optional[str]
    null_rows: int


@contextmanager
def open_snapshot(world: World, database: str) -> Iterator[psycopg.Connection]:
    """Yield a connection whose transaction reads one state of a PostgreSQL database."""
    with postgres.session(world, database, "replication") as connection:
        connection.autocommit, connection.read_only = False, True
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        # the role may have other defaults
        connection.execute("SET LOCAL TIME ZONE 'UTC'; SET LOCAL datestyle = 'ISO'")
        yield connection


def read_time(connection: psycopg.Connection, delay_ms: int) -> str:
    """Return the database's time in UTC minus a delay, as a text that its timestamps compare with."""
    query = "SELECT (now() AT TIME ZONE 'UTC' - %s * interval '1 ms')::text"
    [[time]] = connection.execute(query, [delay_ms])
    return str(time)


def columns(connection: psycopg.Connection, query: sql.Composable, table: str) -> list[Column]:
    """Return the columns of a query for all rows of a table; "" if it is not of one table.

    Any column of such a query may be null, for example in an outer join.
    """
    # binary=True selects the extended protocol, which accepts only one statement
    described = connection.execute(query + sql.SQL(" LIMIT 0"), binary=True).description or []
    codes = [column.type_code for column in described]
    kinds: dict[int, str] = dict(connection.execute(QUERIES["type_names"], [codes]).fetchall())
    name = identifier(table).as_string(connection) if table else None
    not_null = {name for (name,) in connection.execute(QUERIES["not_null_columns"], [name])}
    return [
        Column(d.name, kinds[d.type_code], d.name not in not_null, d.precision, d.scale)
        for d in described
    ]


def summarize(
    connection: psycopg.Connection,
    query: sql.Composable,
    all_rows: sql.Composable,
    timestamp: str,
    count_nulls: bool,
) -> PollSummary:
    """Return what a poll will read with a query.

    Args:
        connection: see `open_snapshot`.
        query: the query of the poll.
        all_rows: the query for all rows.
        timestamp: the column whose value is the offset of a poll.
        count_nulls: whether `null_rows` is counted, which reads all rows; else it is 0.
    """
    summary = sql.SQL(QUERIES["poll_summary"]).format(
        statement=query,
        all=all_rows,
        timestamp=sql.Identifier(timestamp),
        count_nulls=count_nulls,
    )
    [row] = connection.execute(summary)
    return PollSummary(*row)


def json_rows(
    connection: psycopg.Connection, query: sql.Composable, batch_size: int
) -> Iterator[str]:
    """Yield the rows of a query as JSON objects, with at most a batch in memory."""
    with connection.cursor("polled") as cursor:
        cursor.itersize = batch_size
        yield from (text for (text,) in cursor.execute(JSON_ROWS_QUERY.format(query)))
