"""How tables were loaded, stored as a comment on the first of them: the options, and a hash of the rows."""

import json
from typing import Any, Optional, Sequence

import psycopg
from psycopg import sql

from ..base import World
from . import postgres
from .names import identifier
from .queries import QUERIES

PREFIX = "loaded by the workbench: "


def write(connection: psycopg.Connection, tables: Sequence[str], **options: Any) -> None:
    """Store the options of a load, and a hash of the loaded rows, in its transaction."""
    record = {**options, "rows": hash_rows(connection, tables)}
    comment = sql.Literal(PREFIX + json.dumps(record))
    statement = sql.SQL("COMMENT ON TABLE {} IS {}")
    connection.execute(statement.format(identifier(tables[0]), comment))


def read(world: World, tables: Sequence[str], database: Optional[str] = None) -> dict[str, Any]:
    """Return what `write` has stored; {} if the tables were not loaded, or do not exist."""
    query = "SELECT coalesce(obj_description(to_regclass(%s), 'pg_class'), '') AS text"
    comment = postgres.query(world, query, [tables[0]], database).loc[0, "text"]
    return dict(json.loads(comment[len(PREFIX) :])) if comment.startswith(PREFIX) else {}


def hash_rows(connection: psycopg.Connection, tables: Sequence[str]) -> list[str]:
    """Return a hash of the rows of each table with their columns, in no order, and the state of its sequences.

    New rows get the same numbers again only if the sequences have not advanced.
    """
    rows = sql.SQL(
        "SELECT coalesce(sum(hashtextextended(to_jsonb(t)::text, 0)), 0)::text FROM {} t"
    )
    hashes = []
    for table in tables:
        hashes += [text for (text,) in connection.execute(rows.format(identifier(table)))]
        sequences = connection.execute(QUERIES["sequences"], [table])
        hashes += [f"{name} {value}" for name, value in sequences]
    return hashes
