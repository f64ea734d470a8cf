"""A table's entries in Spark's catalog, made by Hudi's own SQL: Hive's here, Glue on EMR, by which
Athena reads them.

Spark looks into a table for its partitions and columns. Athena looks at its timeline, so it sees a
commit at once, but only those partitions and columns that the catalog has (Athena's guide, "Query
Apache Hudi datasets"): whoever commits says so (`committed`).
"""

from __future__ import annotations

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from ..base import LakeError, files
from ..spark import query_engine
from .tables import Table, catalog_names
from .timeline import check_version, completed_actions, properties, write_stats

catalog_synced: dict[
    str, set[str]
] = {}  # {base: partitions and schemas that its entries were told of by this process}


def create_database(spark: SparkSession, name: str) -> None:
    """Make a database of the catalog where it is missing."""
    spark.sql(f"CREATE DATABASE IF NOT EXISTS {identifier(name)}")


def register(spark: SparkSession, table: Table) -> str:
    """Make the table's catalog entries, and return the name of the one that shows it as it is; one
    of another place, or of other columns, is replaced.

    Raises: LakeError: there is no such table, or it is not of version 6.
    """
    properties(table)
    check_version(table)
    create_database(spark, table.database)
    for entry, kind in catalog_names(table).items():
        if spark.catalog.tableExists(entry):
            told = {
                row[0]: row[1]
                for row in spark.sql(f"DESCRIBE EXTENDED {identifier(entry)}").collect()
            }
            place = files.open_filesystem(told.get("Location", "file:/"))[1]
            if (
                place != files.open_filesystem(table.base)[1]
                or not {*spark.table(entry).dtypes} <= told.items()
            ):
                unregister(spark, entry)
        as_ro = f"OPTIONS ('hoodie.query.as.ro.table' = '{str(kind == 'read_optimized').lower()}')"
        spark.sql(
            f"CREATE TABLE IF NOT EXISTS {identifier(entry)} USING hudi {as_ro if table.type == 'mor' else ''} "
            f"LOCATION {literal(table.base)}"
        )
        if table.partition and query_engine(spark) == "athena":
            spark.sql(f"MSCK REPAIR TABLE {identifier(entry)} SYNC PARTITIONS")
    refresh(spark, table)
    return next(entry for entry, kind in catalog_names(table).items() if kind == "snapshot")


def is_registered(spark: SparkSession, table: Table) -> bool:
    """Whether the catalog has the table's entries (the last that `register` makes)."""
    return bool(spark.catalog.tableExists(list(catalog_names(table))[-1]))


def unregister(spark: SparkSession, entry: str) -> None:
    """Remove an entry from the catalog, also where somebody has put a view there; an absent one is
    fine.
    """
    try:
        spark.sql(f"DROP TABLE IF EXISTS {identifier(entry)}")
    except AnalysisException as e:
        if "DROP VIEW" not in str(e):
            raise
        spark.sql(f"DROP VIEW {identifier(entry)}")


def sync_catalog(spark: SparkSession, table: Table) -> None:
    """Tell the entries that are there of new partitions and columns, where a query sees no others.
    Raises as `register`.
    """
    done = completed_actions(table)
    if not done or query_engine(spark) != "athena" or not is_registered(spark, table):
        return
    commit = done[-1].metadata
    new = {
        str(commit.get("extraMetadata", {}).get("schema")),
        *(folder for folder, _ in write_stats(commit)),
    }
    if not new <= catalog_synced.setdefault(table.base, set()):
        register(spark, table)
        catalog_synced[table.base] |= new


def refresh(spark: SparkSession, table: Table) -> None:
    """Let Spark forget which files the table's entries had."""
    for entry in catalog_names(table):
        spark.sql(f"REFRESH TABLE {identifier(entry)}")


def identifier(name: str) -> str:
    """`table` or `database.table`, each part quoted."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in name.split("."))


def literal(value: str | bool | int) -> str:
    """A value as a constant of Spark's SQL. A quote gets a backslash: one that is doubled gets
    lost, for to Spark 3.5 'it''s' are two constants side by side, and those are one text
    (SqlBaseParser.g4, `constant`).

    Raises: LakeError: another type.
    """
    if isinstance(value, (bool, int)):
        return str(value).lower()
    if not isinstance(value, str):
        raise LakeError(
            f"{value!r} is of type {type(value).__name__}",
            expected="text, whole number, True or False",
        )
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
