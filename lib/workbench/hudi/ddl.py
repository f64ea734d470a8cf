"""A table's entries in Spark's catalog (the Hive metastore here, Glue on EMR, which Athena uses).

Hudi's own SQL makes them. Spark reads partitions and columns from the table itself. Athena reads the
timeline, so it sees a commit at once, but only the partitions and columns that the catalog has
(Athena's guide, "Query Apache Hudi datasets"). Therefore each commit is followed by `sync_catalog`.
"""

from __future__ import annotations

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from ..base import LakeError, files
from ..spark import query_engine, state_of
from .tables import Table, catalog_names
from .timeline import (
    check_type,
    check_version,
    completed_actions,
    extra_metadata,
    properties,
    write_stats,
)


def catalog_synced(spark: SparkSession) -> dict[str, set[str]]:
    """Return {base: the partitions and schemas that this process has registered, and their instants}."""
    synced: dict[str, set[str]] = state_of(spark).get("catalog", dict)
    return synced


def create_database(spark: SparkSession, name: str) -> None:
    """Create a database in the catalog if it does not exist."""
    spark.sql(f"CREATE DATABASE IF NOT EXISTS {identifier(name)}")


def register(spark: SparkSession, table: Table) -> str:
    """Create the table's catalog entries, and return the name of the `snapshot` one.

    An existing entry of another location or with other columns is replaced.

    Raises:
        LakeError: there is no such table, or it has another type, or another table version than 6.
    """
    properties(table)
    check_type(table)
    check_version(table)
    create_database(spark, table.database)
    for entry, kind in catalog_names(table).items():
        if spark.catalog.tableExists(entry) and not _is_current(spark, table, entry):
            unregister(spark, entry)
        read_optimized = str(kind == "read_optimized").lower()
        options = f"OPTIONS ('hoodie.query.as.ro.table' = '{read_optimized}')"
        spark.sql(
            f"CREATE TABLE IF NOT EXISTS {identifier(entry)} USING hudi {options if table.type == 'mor' else ''} "
            f"LOCATION {literal(table.base)}"
        )
        if table.partition and query_engine(spark) == "athena":
            spark.sql(f"MSCK REPAIR TABLE {identifier(entry)} SYNC PARTITIONS")
    refresh(spark, table)
    return next(entry for entry, kind in catalog_names(table).items() if kind == "snapshot")


def _is_current(spark: SparkSession, table: Table, entry: str) -> bool:
    """Return whether a catalog entry has the table's location and columns."""
    rows = spark.sql(f"DESCRIBE EXTENDED {identifier(entry)}").collect()
    description = {row[0]: row[1] for row in rows}
    _, path = files.open_filesystem(description.get("Location", "file:/"))
    _, table_path = files.open_filesystem(table.base)
    return path == table_path and set(spark.table(entry).dtypes) <= description.items()


def is_registered(spark: SparkSession, table: Table) -> bool:
    """Return whether the catalog has the table's entries (the last that `register` makes)."""
    return bool(spark.catalog.tableExists(list(catalog_names(table))[-1]))


def unregister(spark: SparkSession, entry: str) -> None:
    """Remove an entry from the catalog if it exists; it may also be a view."""
    try:
        spark.sql(f"DROP TABLE IF EXISTS {identifier(entry)}")
    except AnalysisException as e:
        if "DROP VIEW" not in str(e):
            raise
        spark.sql(f"DROP VIEW {identifier(entry)}")


def sync_catalog(spark: SparkSession, table: Table) -> None:
    """Register new partitions and columns of the commits since the last call, where queries need that (Athena).

    A table without catalog entries gets none.

    Raises:
        LakeError: as `register`.
    """
    actions = completed_actions(table)
    if not actions or query_engine(spark) != "athena" or not is_registered(spark, table):
        return
    synced = catalog_synced(spark).setdefault(table.base, set())
    # A compaction inside a commit is the last action, and has not written the commit's new partitions.
    new = [action for action in actions if action.instant not in synced]
    partitions = {partition for action in new for partition, _ in write_stats(action.metadata)}
    current = {str(extra_metadata(actions[-1].metadata).get("schema")), *partitions}
    if not current <= synced:
        register(spark, table)
    synced |= current | {action.instant for action in new}


def refresh(spark: SparkSession, table: Table) -> None:
    """Make Spark forget which files the table's entries had."""
    for entry in catalog_names(table):
        spark.sql(f"REFRESH TABLE {identifier(entry)}")


def identifier(name: str) -> str:
    """Quote each part of `table` or `database.table`."""
    return ".".join("`" + word.replace("`", "``") + "`" for word in name.split("."))


def literal(value: str | bool | int) -> str:
    """Format a value as a constant of Spark's SQL.

    A quote is escaped by a backslash. A doubled one is lost: in Spark 3.5 'it''s' are two constants
    side by side, which are concatenated (SqlBaseParser.g4, `constant`).

    Raises:
        LakeError: the value has another type.
    """
    if isinstance(value, (bool, int)):
        return str(value).lower()
    if not isinstance(value, str):
        raise LakeError(
            f"{value!r} is of type {type(value).__name__}",
            expected="text, whole number, True or False",
        )
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
