"""A copy of tables as they were loaded, in a schema that is not published, and the way back to it.

Setting back is plain SQL in one transaction: rows that were added go, rows that are missing or
other come again. Each is a change like any other in the source's log, and a row that is as it was
loaded makes none. A column that counts by itself (serial, identity) goes on after its last row, so
that the same rows get the same numbers again.
"""

from typing import Any, Optional, Sequence

import psycopg
from psycopg import sql

from ..base import World
from ..source import postgres
from ..source.queries import QUERIES

SCHEMA = "kept"


def save(world: World, tables: Sequence[str], database: Optional[str] = None) -> None:
    """Copy these tables (`schema.table`) as they are now; a copy that is there is replaced."""
    with postgres.session(world, database) as c, c.transaction():
        c.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(SCHEMA)))
        _drop(c, tables)
        for table in tables:
            source = postgres.identifier(table)
            c.execute(sql.SQL("CREATE TABLE {} AS TABLE {}").format(_copy_name(table), source))
            # of which table it is the copy: one that is loaded anew has the same name and another
            # number
            c.execute(
                sql.SQL("COMMENT ON TABLE {} IS {}").format(
                    _copy_name(table), sql.Literal(_table_oid(c, source))
                )
            )


def exists(world: World, tables: Sequence[str], database: Optional[str] = None) -> bool:
    """Whether there is a copy of each of these tables."""
    with postgres.session(world, database) as c:
        said = "SELECT obj_description(to_regclass(%s), 'pg_class')"
        return all(
            c.execute(said, [_copy_name(t).as_string(c)]).fetchone()[0]
            == _table_oid(c, postgres.identifier(t), "gone")
            for t in tables
        )


def restore(world: World, tables: Sequence[str], database: Optional[str] = None) -> int:
    """Give these tables the rows that were kept; return how many rows that changed. Columns that
    were added since stay.

    Raises: SourceError: there is no copy. Nothing is changed then.
    """
    with postgres.session(world, database) as c, c.transaction():
        c.execute(
            "SET LOCAL session_replication_role = replica"
        )  # no triggers, no foreign keys: rows as they were
        return sum(_restore_table(c, table) for table in tables)


def delete(world: World, tables: Sequence[str], database: Optional[str] = None) -> None:
    """Remove the copies of these tables; none is no error."""
    with postgres.session(world, database) as c, c.transaction():
        _drop(c, tables)


def _drop(c: psycopg.Connection, tables: Sequence[str]) -> None:
    for table in tables:
        c.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(_copy_name(table)))


def _copy_name(table: str) -> sql.Identifier:
    return sql.Identifier(
        SCHEMA, table
    )  # with its schema in the name: two schemas may have tables of one name


def _table_oid(c: psycopg.Connection, table: sql.Identifier, otherwise: str = "") -> str:
    return (
        c.execute("SELECT to_regclass(%s)::oid::text", [table.as_string(c)]).fetchone()[0]
        or otherwise
    )


def _restore_table(c: psycopg.Connection, table: str) -> int:
    source, copy = postgres.identifier(table), _copy_name(table)
    columns = c.execute(
        QUERIES["columns_and_keys"], [source.as_string(c), copy.as_string(c)]
    ).fetchall()

    def listed(*alias: str, keys: bool = False) -> sql.Composed:
        return sql.SQL(", ").join(
            sql.Identifier(*alias, name) for name, key in columns if key or not keys
        )

    parts: Any = dict(
        t=source,
        k=copy,
        columns=listed(),
        old=listed("k"),
        now=listed("t"),
        same=sql.SQL("ROW({}) = ROW({})").format(listed("t", keys=True), listed("k", keys=True)),
    )
    changed = sum(
        c.execute(sql.SQL(QUERIES[which]).format(**parts)).rowcount
        for which in ("restore_added", "restore_changed", "restore_missing")
    )
    name = source.as_string(c)
    for (counted,) in c.execute(QUERIES["serial_columns"], [name, name]).fetchall():
        c.execute(
            sql.SQL(QUERIES["reset_sequence"]).format(
                name, counted, n=sql.Identifier(counted), t=source
            )
        )
    return changed
