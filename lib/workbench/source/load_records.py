"""How tables were loaded, stored as a comment on the first of them: the options, and a hash of the rows."""

import json
from typing import Any, Optional, Sequence

import psycopg
from psycopg import sql

from ..base import World
from . import postgres
from .names import format_sql
from .queries import QUERIES

PREFIX = "loaded by the workbench: "
Table = tuple[str, str]  # schema and name


def write(connection: psycopg.Connection, tables: Sequence[Table], **options: Any) -> None:
    """Store the options of a load, and a hash of the loaded rows, in its transaction."""
    record = {**options, "rows": hash_rows(connection, tables)}
    statement = format_sql("COMMENT ON TABLE {} IS ", tables[0])
    connection.execute(statement + sql.Literal(PREFIX + json.dumps(record)))


def read(world: World, tables: Sequence[Table], database: Optional[str] = None) -> dict[str, Any]:
    """Return what `write` has stored; {} if the tables were not loaded, or do not exist."""
    query = "SELECT coalesce(obj_description(to_regclass(%s), 'pg_class'), '') AS text"
    comment = postgres.query(world, query, [".".join(tables[0])], database).loc[0, "text"]
    return dict(json.loads(comment[len(PREFIX) :])) if comment.startswith(PREFIX) else {}


def hash_rows(connection: psycopg.Connection, tables: Sequence[Table]) -> list[str]:
    """Return a hash of the rows of each table with their columns, in no order, and the state of its sequences.

    New rows get the same numbers again only if the sequences have not advanced.
    """
    rows = "SELECT coalesce(sum(hashtextextended(to_jsonb(t)::text, 0)), 0)::text FROM {} t"
    hashes = []
    for table in tables:
        hashes += [text for (text,) in connection.execute(format_sql(rows, table))]
        sequences = connection.execute(QUERIES["sequences"], [".".join(table)])
        hashes += [f"{name} {value}" for name, value in sequences]
    return hashes
