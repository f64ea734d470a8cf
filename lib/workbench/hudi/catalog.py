"""A Hudi table's entries in the catalog, and how names and values stand in a statement that takes no parameters."""
from __future__ import annotations

from typing import Dict, List, Union

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from ..base import LakeError, files
from .tables import Table


def entries(table: Table) -> Dict[str, str]:
    """The table's names in the catalog and what each shows: `snapshot`, and of a Merge-on-Read table two views.

    `…_ro` is read-optimised (base files only: fast, and as old as the last compaction), `…_rt` real-time (base files
    and logs). The names are those that Hudi's Hive sync gives."""
    name = f"{table.database}.{table.catalog or table.name}"
    return {f"{name}_ro": "read_optimized", f"{name}_rt": "snapshot"} if table.type == "mor" else {name: "snapshot"}


def all_entries(table: Table) -> List[str]:
    """Every name that the catalog may have for the table: its entries, and those that Hudi's own sync adds after
    UPDATE, DELETE, MERGE or INSERT in SQL, under the name that stands in the table's properties (Hudi 1.0.2)."""
    return sorted({*entries(table), *(f"{table.database}.{table.name}{view}" for view in ("", "_ro", "_rt"))})


def register(spark: SparkSession, table: Table) -> str:
    """Make the table's catalog entries, and return the name of the one that shows it as it is; one of another place is
    replaced."""
    spark.sql(f"CREATE DATABASE IF NOT EXISTS {identifier(table.database)}")
    for entry, kind in entries(table).items():
        if spark.catalog.tableExists(entry):
            rows = spark.sql(f"DESCRIBE EXTENDED {identifier(entry)}").collect()
            place = [r[1] for r in rows if r[0] == "Location"]
            if not place or files.open_address(place[0])[1] != files.open_address(table.base)[1]:
                unregister(spark, entry)
        as_ro = f"OPTIONS ('hoodie.query.as.ro.table' = '{str(kind == 'read_optimized').lower()}')"
        options = as_ro if table.type == "mor" else ""
        place = literal(table.base)
        spark.sql(f"CREATE TABLE IF NOT EXISTS {identifier(entry)} USING hudi {options} LOCATION {place}")
    refresh(spark, table)
    return next(entry for entry, kind in entries(table).items() if kind == "snapshot")


def registered(spark: SparkSession, table: Table) -> bool:
    """Whether the catalog has the table's entries (the last that `register` makes)."""
    return bool(spark.catalog.tableExists(list(entries(table))[-1]))


def unregister(spark: SparkSession, entry: str) -> None:
    """Remove an entry from the catalog, also where somebody has put a view there; an absent one is fine."""
    try:
        spark.sql(f"DROP TABLE IF EXISTS {identifier(entry)}")
    except AnalysisException as e:
        if "DROP VIEW" not in str(e):
            raise
        spark.sql(f"DROP VIEW {identifier(entry)}")


def refresh(spark: SparkSession, table: Table) -> None:
    """Let Spark forget which files the table's entries had."""
    for entry in entries(table):
        spark.sql(f"REFRESH TABLE {identifier(entry)}")


def identifier(name: str) -> str:
    """`table` or `database.table`, each part quoted."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in name.split("."))


def literal(value: Union[str, bool, int]) -> str:
    """A value as a constant of Spark's SQL. A quote gets a backslash: one that is doubled gets lost, for to Spark 3.5
    'it''s' are two constants side by side, and those are one text (SqlBaseParser.g4, `constant`).

    Raises: LakeError: another type.
    """
    if isinstance(value, (bool, int)):
        return str(value).lower()
    if not isinstance(value, str):
        raise LakeError(f"{value!r} is of type {type(value).__name__}", expected="text, whole number, True or False")
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
