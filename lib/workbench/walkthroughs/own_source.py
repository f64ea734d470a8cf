"""The user's own tables: what a capture needs to know of them, and what it refuses.

A name becomes part of a topic's name and of an Avro schema, and a column becomes an Avro field. These have
letters, digits and _ only, and the catalog ignores case. Debezium would replace other characters, so that two
names could become one. Therefore other names are refused.
"""

import re
from dataclasses import dataclass
from typing import Sequence

from psycopg import sql

from ..base import SourceError, World
from ..base.text import plural
from ..source import postgres
from ..source.databases import MARIADB, POSTGRESQL, SourceDatabase
from ..source.names import identifier
from ..source.queries import QUERIES

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
MARIADB_COLUMNS = """
    SELECT c.column_name AS name, c.column_type AS type, coalesce(k.seq_in_index, 0) AS key_position,
           true AS is_primary, true AS is_full
    FROM information_schema.columns c JOIN information_schema.tables t USING (table_schema, table_name)
    LEFT JOIN information_schema.statistics k ON k.table_schema = c.table_schema
      AND k.table_name = c.table_name AND k.column_name = c.column_name AND k.index_name = 'PRIMARY'
    WHERE t.table_type = 'BASE TABLE' AND c.table_name = %s AND c.table_schema = %s ORDER BY c.ordinal_position"""


@dataclass(frozen=True)
class SourceTable:
    """A table of the user.

    Attributes:
        name: `schema.table` (in MariaDB `database.table`).
        columns: {column: type in the source}, without the excluded columns.
        excluded: the columns that are not captured.
        key: the columns that identify a row.
        declares_key: whether the connector's configuration needs the key, because it is no primary key.
        rows: the number of rows.
    """

    name: str
    columns: dict[str, str]
    excluded: list[str]
    key: tuple[str, ...]
    declares_key: bool
    rows: int


def full_name(db: SourceDatabase, database: str, name: str) -> str:
    """Return `schema.table` (in MariaDB `database.table`) for a table that may be named without schema."""
    return name if "." in name else f"{database if db is MARIADB else 'public'}.{name}"


def describe(
    world: World,
    db: SourceDatabase,
    database: str,
    name: str,
    key: Sequence[str] = (),
    excluded: Sequence[str] = (),
) -> SourceTable:
    """Describe a table, and check that it can be captured.

    Args:
        world: the world of the source database.
        db: the kind of database.
        database: name of the database.
        name: `table` or `schema.table`.
        key: the columns that identify a row, for a table without primary key.
        excluded: columns that are not captured.

    Raises:
        SourceError: there is no such table; a name cannot be used; or no key identifies its rows.
    """
    schema, _, table = full_name(db, database, name).rpartition(".")
    location = f"{schema}.{table} in database {database}"
    query = MARIADB_COLUMNS if db is MARIADB else QUERIES["own_columns"]
    catalog = db.query(world, query, [table, schema], database).set_index("name")
    omitted = [column for column in excluded if column in catalog.index]
    catalog = catalog.drop(index=omitted)
    if catalog.empty:
        raise SourceError(
            f"there is no table {name}",
            location=location,
            expected="table or schema.table, as the database spells it; no view",
        )
    _require_names(location, [schema, table], list(catalog.index))
    if db is POSTGRESQL:
        _require_types(world, database, f"{schema}.{table}", list(catalog.index))
    natural = catalog[catalog["key_position"] > 0].sort_values("key_position")
    columns = tuple(key or natural.index)
    is_natural = columns == (*natural.index,)
    if not is_natural or not columns:
        _require_key(location, columns, set(catalog.index), bool(catalog["is_full"].iloc[0]))
    rows = _count(world, db, database, f"{schema}.{table}", () if is_natural else columns)
    return SourceTable(
        f"{schema}.{table}",
        catalog["type"].to_dict(),
        omitted,
        columns,
        not (is_natural and natural["is_primary"].all()),
        rows,
    )


def require_apart(world: World, database: str, names: Sequence[str]) -> None:
    """Raise SourceError if a PostgreSQL table is a partition of another one.

    A publication sends the changes of a partition under the name of its root, so those of the partition's own
    lake table would never arrive.
    """
    found = postgres.query(world, QUERIES["ancestors"], [[*names]], database)
    for name, ancestor in found.itertuples(index=False):
        if ancestor in names:
            raise SourceError(
                f"{name} is a partition of {ancestor}, whose capture has its rows",
                location=f"{name} in database {database}",
                hint=f"capture {ancestor} only; or the partition with another flow: --as NAME",
            )


def _require_names(location: str, table: list[str], columns: list[str]) -> None:
    """Raise SourceError if a name cannot be used in topics and Avro schemas."""
    unusable = [repr(each) for each in [*table, *columns] if not NAME.fullmatch(each)]
    folded = [each.lower() for each in columns]
    unusable += [repr(each) for each in columns if folded.count(each.lower()) > 1]
    if unusable:
        raise SourceError(
            f"topics and Avro schemas cannot have the names {', '.join(unusable)}",
            location=location,
            expected="letters of English, digits and _, and no two columns that differ in case only",
            hint="rename them in the database; or exclude the columns: --exclude COLUMN",
        )


def _require_types(world: World, database: str, name: str, columns: list[str]) -> None:
    """Raise SourceError if PostgreSQL's columns have types that Debezium does not support."""
    rows = postgres.query(world, QUERIES["unsupported_columns"], [[name]], database)
    unsupported = [
        f"{column} ({kind})"
        for column, kind in rows.itertuples(index=False)
        if column.rpartition(".")[2] in columns
    ]
    if unsupported:
        raise SourceError(
            f"Debezium does not support {', '.join(unsupported)}",
            location=f"database {database}",
            expected="the types in docs/types.md",
            hint="exclude the columns (--exclude COLUMN), or change their types",
        )


def _require_key(location: str, key: tuple[str, ...], columns: set[str], is_full: bool) -> None:
    if not key or not is_full or not {*key} <= columns:
        raise SourceError(
            "the table has no primary key"
            if not key
            else f"{', '.join(key)} is not the primary key",
            location=location,
            expected="a key, and a replica identity, so that changes find their row",
            hint="ALTER TABLE … ADD PRIMARY KEY (…); or, if columns are unique and never null: ALTER TABLE … "
            "REPLICA IDENTITY FULL (for a partitioned table also for each partition), and --key COLUMN …",
        )


def _count(world: World, db: SourceDatabase, database: str, name: str, key: tuple[str, ...]) -> int:
    """Return the number of rows; check that a key which no constraint protects is unique.

    Raises:
        SourceError: several rows have the same key, or a key is null.
    """
    count = sql.SQL("SELECT count(*) AS n FROM {}").format(identifier(name))
    rows = int(db.query(world, count, database=database)["n"][0])
    if key:
        columns = sql.SQL(", ").join(map(sql.Identifier, key))
        present = sql.SQL(" AND ").join(
            sql.SQL("{} IS NOT NULL").format(sql.Identifier(each)) for each in key
        )
        distinct = sql.SQL(
            "SELECT count(*) AS n FROM (SELECT DISTINCT {} FROM {} WHERE {}) AS distinct_keys"
        ).format(columns, identifier(name), present)
        keys = int(db.query(world, distinct, database=database)["n"][0])
        if keys != rows:
            raise SourceError(
                f"{', '.join(key)} does not identify a row: {plural(rows, 'row')}, {plural(keys, 'key')}",
                location=f"{name} in database {database}",
                expected="columns that are unique and never null",
            )
    return rows
