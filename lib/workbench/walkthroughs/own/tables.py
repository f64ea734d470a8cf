"""The user's own tables: what a capture needs to know of them, and what it refuses.

A name becomes part of a topic's name and of an Avro schema, and a column becomes an Avro field. These have
letters, digits and _ only, and the catalog ignores case. Debezium would replace other characters, so that two
names could become one. Therefore other names are refused.
"""

import re
from collections import Counter
from typing import Sequence

from psycopg import sql

from ...base import SourceError, World
from ...base.text import plural
from ...source import postgres
from ...source.databases import MARIADB, POSTGRESQL, SourceDatabase
from ...source.names import identifier
from ...source.queries import QUERIES
from .files import Declaration, OwnTable

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
MARIADB_COLUMNS = """
    SELECT c.column_name AS name, c.column_type AS type, coalesce(k.seq_in_index, 0) AS key_position,
           true AS is_primary, true AS is_full
    FROM information_schema.columns c JOIN information_schema.tables t USING (table_schema, table_name)
    LEFT JOIN information_schema.statistics k ON k.table_schema = c.table_schema
      AND k.table_name = c.table_name AND k.column_name = c.column_name AND k.index_name = 'PRIMARY'
    WHERE t.table_type = 'BASE TABLE' AND c.table_name = %s AND c.table_schema = %s ORDER BY c.ordinal_position"""


def describe(world: World, declared: Declaration, table: OwnTable) -> OwnTable:
    """Return a table as it is in the source now, and check that it can be captured.

    Args:
        world: the world of the source database.
        declared: its flow.
        table: the table, with a key if it is declared, and the columns that are not captured.

    Raises:
        SourceError: there is no such table; a name cannot be used; or no key identifies its rows.
    """
    db, database = declared.db, declared.database
    schema, _, name = table.source.rpartition(".")
    location = f"{table.source} in database {database}"
    query = MARIADB_COLUMNS if db is MARIADB else QUERIES["own_columns"]
    catalog = db.query(world, query, [name, schema], database).set_index("name")
    excluded = [column for column in table.excluded if column in catalog.index]
    catalog = catalog.drop(index=excluded)
    if catalog.empty:
        raise SourceError(
            f"there is no table {table.source}",
            location=location,
            expected="table or schema.table, as the database spells it; no view",
        )
    _require_names(location, [schema, name], list(catalog.index))
    if db is POSTGRESQL:
        _require_types(world, database, table.source, list(catalog.index))
    natural = catalog[catalog["key_position"] > 0].sort_values("key_position")
    key = table.key if table.declares_key else [*natural.index]
    is_natural = key == [*natural.index]
    if not is_natural or not key:
        _require_key(location, key, {*catalog.index}, bool(catalog["is_full"].iloc[0]))
    columns = {
        "columns": catalog["type"].to_dict(),
        "excluded": excluded,
        "key": key,
        "declares_key": not (is_natural and natural["is_primary"].all()),
        "rows": _count(world, db, database, table.source, [] if is_natural else key),
    }
    return table.model_copy(update=columns)


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
    folded = Counter(map(str.lower, columns))
    unusable += [repr(each) for each in columns if folded[each.lower()] > 1]
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


def _require_key(location: str, key: list[str], columns: set[str], is_full: bool) -> None:
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


def _count(world: World, db: SourceDatabase, database: str, name: str, key: list[str]) -> int:
    """Return the number of rows; check that a key which no constraint protects is unique.

    Raises:
        SourceError: several rows have the same key, or a key is null.
    """
    table, columns = identifier(name), sql.SQL(", ").join(map(sql.Identifier, key))
    # a comparison with a null is not true
    distinct = sql.SQL("(SELECT DISTINCT {0} FROM {1} WHERE ({0}) = ({0})) AS distinct_keys")
    counted = [table, distinct.format(columns, table)] if key else [table]
    count = sql.SQL("SELECT count(*) AS n FROM {}")
    queries = (count.format(each) for each in counted)
    rows, *keys = (int(db.query(world, each, database=database)["n"][0]) for each in queries)
    if keys not in ([], [rows]):
        raise SourceError(
            f"{', '.join(key)} does not identify a row: {plural(rows, 'row')}, {plural(keys[0], 'key')}",
            location=f"{name} in database {database}",
            expected="columns that are unique and never null",
        )
    return rows
