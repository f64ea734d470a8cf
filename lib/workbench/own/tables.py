"""The user's own tables: what a capture needs to know of them. `readiness.check` says which are refused."""

import math
import re
import shlex

from psycopg import sql

from ..base import SourceError, World
from ..source import mariadb
from ..source.names import identifier
from ..source.queries import QUERIES
from . import files
from .files import Declaration, Layout, OwnTable
from .values import base_type

# Types of a single key column whose text identifies a row of a Hudi table as it is.
PLAIN_KEY_TYPES = {"smallint", "integer", "bigint", "uuid", "tinyint", "mediumint", "int"}
# Types of partition columns that Spark, Athena's rules and hudi-rs read back from the name of a folder, with and
# without a filter, in what both writers wrote.
PARTITION_TYPES = PLAIN_KEY_TYPES | {
    *("text", "character varying", "character", "citext", "char", "varchar", "date"),
}
# A lake table of at least this many rows is Merge-on-Read and has the index BUCKET: its upserts do not slow down.
LARGE_TABLE_ROWS = 100_000
# Rows for each bucket. Every partition has all buckets, so partitioned tables need fewer.
ROWS_PER_BUCKET, ROWS_PER_BUCKET_OF_ALL_PARTITIONS = 500_000, 4_000_000
# Types that are lists or maps in the lake, besides those that end with [].
LIST_TYPES = {"vector", "halfvec", "sparsevec"}
# Spark plans a query of JSON messages in a time that grows with the square of their columns; with Avro it is a few
# seconds for 300 columns.
MAX_JSON_COLUMNS = 100
# BINARY: the collation of information_schema takes names that differ in case for one
MARIADB_COLUMNS = """
    SELECT c.column_name AS name, c.column_type AS type, coalesce(k.seq_in_index, 0) AS key_position,
           true AS is_primary, 0 AS oid,
           c.is_nullable = 'YES' AND coalesce(c.column_default, 'NULL') <> 'NULL' AS has_default
    FROM information_schema.columns c
    JOIN information_schema.tables t ON BINARY t.table_schema = c.table_schema AND BINARY t.table_name = c.table_name
    LEFT JOIN information_schema.statistics k ON BINARY k.table_schema = c.table_schema
      AND BINARY k.table_name = c.table_name AND k.column_name = c.column_name AND k.index_name = 'PRIMARY'
    WHERE t.table_type IN ('BASE TABLE', 'SYSTEM VERSIONED') AND BINARY c.table_name = %s
      AND BINARY c.table_schema = %s ORDER BY c.ordinal_position"""

MARIADB_COLUMN_NAMES = """
    SELECT concat('column ', column_name) AS id FROM information_schema.columns
    WHERE BINARY table_schema = %s AND BINARY table_name = %s ORDER BY ordinal_position"""
# a TRUNCATE gives a table another id; only the privilege PROCESS shows it
MARIADB_STORAGE = """
    SELECT table_id AS id FROM information_schema.innodb_sys_tables
    WHERE name = %s OR left(name, char_length(%s) + 3) = concat(%s, '#P#') ORDER BY 1"""


def describe(world: World, declared: Declaration, table: OwnTable) -> OwnTable:
    """Return a table as it is in the source now.

    Args:
        world: the world of the source database.
        declared: its flow.
        table: the table, with a key if it is declared, and the columns that are not captured.

    Raises:
        SourceError: there is no such table; or its messages are in Avro, where a null would arrive as the default of
            its column.
    """
    db, database = declared.db, declared.database
    schema, _, name = table.source.rpartition(".")
    query = MARIADB_COLUMNS if db is mariadb else QUERIES["own_columns"]
    catalog = db.query(world, query, [name, schema], database).set_index("name")
    excluded = [column for column in table.excluded if column in catalog.index]
    catalog = catalog.drop(index=excluded)
    if catalog.empty:
        raise SourceError(
            f"there is no table {table.source}",
            location=f"{table.source} in database {database}",
            expected="table or schema.table, as the database spells it; no view",
        )
    another_flow = f"--as {files.free_name(declared.source)}"
    loose = [*catalog.index[catalog["has_default"].astype(bool)]]
    if loose and declared.format == "avro":
        raise SourceError(
            f"in Avro a null of {', '.join(loose)} would arrive as the column's default",
            location=f"{table.source} in database {database}",
            hint=f"capture the table with another flow: --format json {another_flow}; or drop the defaults",
        )
    if declared.format == "json" and len(catalog) > MAX_JSON_COLUMNS:
        last = str(catalog.index[catalog["key_position"] == 0][-1])
        raise SourceError(
            f"{table.source} has {len(catalog)} columns: each batch of JSON messages would take minutes to plan",
            location=f"database {database}",
            expected=f"at most {MAX_JSON_COLUMNS} columns in a flow of JSON messages",
            hint=f"capture the table with another flow: --format avro {another_flow}; or leave columns out, "
            f"such as --exclude {shlex.quote(last)}",
        )
    natural = catalog[catalog["key_position"] > 0].sort_values("key_position")
    key = table.key if table.declares_key else [*natural.index]
    count = sql.SQL("SELECT count(*) AS n FROM {}").format(identifier(table.source))
    columns = {
        "columns": catalog["type"].to_dict(),
        "oid": int(catalog["oid"].iloc[0]),
        "excluded": excluded,
        "key": key,
        "declares_key": not (key == [*natural.index] and natural["is_primary"].all()),
        "rows": int(db.query(world, count, database=database)["n"][0]),
    }
    return table.model_copy(update=columns)


def storage(at: World, declared: Declaration, source: str) -> list[str]:
    """Return the ids of a source table, its columns, its storage and its partitions; TRUNCATE changes the storage.

    Without such a table the list is empty. MariaDB shows the storage to a user with the privilege PROCESS only.
    """
    schema, _, name = source.rpartition(".")
    if declared.db is not mariadb:
        query = QUERIES["storage"]
        return [*declared.db.query(at, query, [schema, name], declared.database)["id"]]
    columns = [*declared.db.query(at, MARIADB_COLUMN_NAMES, [schema, name])["id"]]
    try:
        found = declared.db.query(at, MARIADB_STORAGE, 3 * [f"{schema}/{name}"])["id"]
    except SourceError:
        return columns
    return [*columns, *map(str, found)]


def require_partitions(at: World, declared: Declaration, table: OwnTable) -> None:
    """Raise SourceError if the names of partitions cannot have the values of a described table."""
    for column in table.partition:
        kind = table.columns[column]
        if base_type(kind) not in PARTITION_TYPES:
            raise SourceError(
                f"partition column {column} is {kind}, which queries do not read back from the name of a partition",
                location=f"{table.source} in database {declared.database}",
                expected=f"a column of {', '.join(sorted(PARTITION_TYPES))}",
                hint="--partition another column, or leave the option out",
            )
        query = sql.SQL(
            "SELECT count(*) AS n FROM {0} WHERE concat({1}, '') = '' AND {1} IS NOT NULL"
        ).format(identifier(table.source), sql.Identifier(column))
        if n := declared.db.query(at, query, database=declared.database)["n"][0]:
            raise SourceError(
                f"rows with an empty text in partition column {column}, which queries would read as null: {n}",
                location=f"{table.source} in database {declared.database}",
                hint="--partition another column; or set these values to null, and forbid empty texts with a CHECK",
            )


def encodes_key(table: OwnTable) -> bool:
    """Return whether the lake table of a described table needs the column `__key` (see hudi.Table)."""
    kinds = [base_type(table.columns.get(column, "")) for column in table.key]
    return len(kinds) > 1 or not {*kinds} <= PLAIN_KEY_TYPES


def layout(table: OwnTable) -> Layout:
    """Return how the lake table of a described table is made, by the number of rows in the source.

    A key is looked for in all partitions, unless the partition columns belong to it: a row may move.
    """
    is_large = table.rows >= LARGE_TABLE_ROWS
    index, buckets = "SIMPLE", 1
    if not {*table.partition} <= {*table.key}:
        index = "GLOBAL_SIMPLE"
    elif is_large:
        index = "BUCKET"
        size = ROWS_PER_BUCKET_OF_ALL_PARTITIONS if table.partition else ROWS_PER_BUCKET
        buckets = math.ceil(table.rows / size)
    is_mor = is_large and not _has_list_beside_decimal(table)
    return Layout(type=table.type or ("mor" if is_mor else "cow"), index=index, buckets=buckets)


def _has_list_beside_decimal(table: OwnTable) -> bool:
    """Return whether a compaction of a Merge-on-Read table could apply a late delete (see docs/limits.md)."""
    kinds = table.columns.values()
    has_list = any(kind.endswith("[]") or base_type(kind) in LIST_TYPES for kind in kinds)
    digits = [int(match[1]) for kind in kinds if (match := re.match(r"numeric\((\d+)", kind))]
    return has_list and any(count <= 18 for count in digits)
