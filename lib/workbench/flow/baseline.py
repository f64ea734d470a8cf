"""Baselines: copies of the loaded source tables, from which the tables can be restored.

The copies are in a schema that is not published. A restore is plain SQL in one transaction, which
deletes added rows, and restores deleted and changed rows. Each restored row is a change in the
source's log; unchanged rows are not. Serial and identity columns continue after their last value, so
that new rows get the same numbers again.
"""

from dataclasses import dataclass
from typing import Any, Optional, Sequence

import psycopg
from psycopg import sql

from ..base import SourceError, World
from ..source import postgres
from ..source.names import format_sql, identifier
from ..source.queries import QUERIES

SCHEMA = "kept"


@dataclass(frozen=True)
class Baseline:
    """The rows of source tables as loaded.

    Attributes:
        tables: names of the tables (`schema.table`).
        database: their database, by default the world's.
    """

    tables: tuple[str, ...]
    database: Optional[str] = None

    @property
    def copies(self) -> list[str]:
        """The names of the copies, which include the schemas of the tables."""
        return [f"{SCHEMA}.{table}" for table in self.tables]

    def save(self, world: World) -> None:
        """Copy the current rows of the tables, and replace earlier copies."""
        with postgres.session(world, self.database) as c, c.transaction():
            c.execute(format_sql("CREATE SCHEMA IF NOT EXISTS {}", SCHEMA))
            _drop(c, self.tables)
            for table in self.tables:
                copy, source = _copy_name(table), identifier(table)
                c.execute(sql.SQL("CREATE TABLE {} AS TABLE {}").format(copy, source))
                # recognizes a table that was dropped and loaded again, which has another oid
                oid = _scalar(c, "SELECT to_regclass(%s)::oid::text", source)
                c.execute(sql.SQL("COMMENT ON TABLE {} IS {}").format(copy, sql.Literal(oid)))

    def exists(self, world: World) -> bool:
        """Return whether each of the tables has a copy."""
        query = "SELECT obj_description(to_regclass(%s), 'pg_class') = to_regclass(%s)::oid::text"
        with postgres.session(world, self.database) as c:
            return all(_scalar(c, query, _copy_name(t), identifier(t)) for t in self.tables)

    def restore(self, world: World) -> int:
        """Restore the copied rows of the tables. Columns that were added since stay.

        Returns:
            The number of changed rows.

        Raises:
            SourceError: there is no copy, or a table lacks a column of its copy; nothing is changed.
        """
        with postgres.session(world, self.database) as c, c.transaction():
            # without triggers and foreign keys: the rows are restored as they were
            c.execute("SET LOCAL session_replication_role = replica")
            return sum(_restore_table(c, table) for table in self.tables)

    def delete(self, world: World) -> None:
        """Remove the copies of the tables, if they exist."""
        with postgres.session(world, self.database) as c, c.transaction():
            _drop(c, self.tables)


def _drop(c: psycopg.Connection, tables: Sequence[str]) -> None:
    for table in tables:
        c.execute(format_sql("DROP TABLE IF EXISTS {}", (SCHEMA, table)))


def _copy_name(table: str) -> sql.Identifier:
    """Return the name of a table's copy; it includes the schema, which makes it unique."""
    return sql.Identifier(SCHEMA, table)


def _scalar(c: psycopg.Connection, query: str, *names: sql.Identifier) -> Any:
    """Return the only value of a query that has names as parameters."""
    row = c.execute(query, [name.as_string(c) for name in names]).fetchone()
    return row[0] if row else None


def _require_columns(c: psycopg.Connection, table: str, copy: str, source: str) -> None:
    """Raise SourceError if a table lacks a column of its copy, whose values could not be restored."""
    lost = [column for (column,) in c.execute(QUERIES["lost_columns"], [copy, source])]
    if lost:
        raise SourceError(
            f"the source table {table} has no column {', '.join(lost)} any more: it was renamed or dropped",
            location=f"database {c.info.dbname}",
            expected="the columns that the table had when it was loaded",
            hint="run the notebook on the source database, which loads the tables anew; or give the column its "
            "name back",
        )


def _restore_table(c: psycopg.Connection, table: str) -> int:
    source, copy = identifier(table), _copy_name(table)
    name = source.as_string(c)
    _require_columns(c, table, copy.as_string(c), name)
    columns = c.execute(QUERIES["columns_and_keys"], [name, copy.as_string(c)]).fetchall()
    all_columns = [column for column, _ in columns]
    keys = [column for column, is_key in columns if is_key]

    def join(names: list[str], *alias: str) -> sql.Composed:
        return sql.SQL(", ").join(sql.Identifier(*alias, name) for name in names)

    parts: Any = {
        "t": source,
        "k": copy,
        "columns": join(all_columns),
        "old": join(all_columns, "k"),
        "now": join(all_columns, "t"),
        "same": sql.SQL("ROW({}) = ROW({})").format(join(keys, "t"), join(keys, "k")),
    }
    changed = 0
    for step in ("restore_added", "restore_changed", "restore_missing"):
        changed += c.execute(sql.SQL(QUERIES[step]).format(**parts)).rowcount
    for (column,) in c.execute(QUERIES["serial_columns"], [name, name]).fetchall():
        query = sql.SQL(QUERIES["reset_sequence"])
        c.execute(query.format(name, column, n=sql.Identifier(column), t=source))
    return changed
