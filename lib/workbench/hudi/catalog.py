"""Hudi tables in Spark's SQL: a table's entries in the catalog; Hudi's procedures, `CALL name(argument => value)`, that
find it by them; and the table service that nobody else runs, compaction.
"""
from __future__ import annotations

import contextlib

import pandas as pd
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from ..base import LakeError, files
from ..spark import answered, causes
from .tables import Table, writing
from .timeline import check_clock, completed, pending_compactions

# A compaction takes none of the table's options by itself; it needs those that say how base files are written.
BASE_FILE = ("hoodie.parquet.compression.codec", "hoodie.parquet.bloom.filter.enabled",
             "hoodie.index.bloom.num_entries", "hoodie.bloom.index.filter.type", "hoodie.file.group.reader.enabled")


def entries(table: Table) -> dict[str, str]:
    """The table's names in the catalog and what each shows: `snapshot`, and of a Merge-on-Read table two views.

    `…_ro` is read-optimised (base files only: fast, and as old as the last compaction), `…_rt` real-time (base files
    and logs). The names are those that Hudi's Hive sync gives."""
    name = f"{table.database}.{table.catalog or table.name}"
    return {f"{name}_ro": "read_optimized", f"{name}_rt": "snapshot"} if table.type == "mor" else {name: "snapshot"}


def all_entries(table: Table) -> list[str]:
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
        spark.sql(f"CREATE TABLE IF NOT EXISTS {identifier(entry)} USING hudi {as_ro if table.type == 'mor' else ''} "
                  f"LOCATION {literal(table.base)}")
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


def call(spark: SparkSession, procedure: str, **arguments: str | bool | int) -> pd.DataFrame:
    """Call one of Hudi's procedures (its documentation, "Procedures", lists them), and return what it answers.

    The values stand in the statement: Hudi's parser takes constants only, and hands a statement with a bound parameter
    on to Spark's parser, which has no CALL (HoodieSqlCommon.g4, `callArgument`; tried with 1.0.2).

    Raises:
        LakeError: a name that is none; a value that is neither text nor whole number nor bool.
    """
    for name in (procedure, *arguments):
        if not name.isidentifier():
            raise LakeError(f"{name!r} is not a name", where=f"CALL {procedure}")
    given = ", ".join(f"{name} => {literal(value)}" for name, value in arguments.items())
    return spark.sql(f"CALL {procedure}({given})").toPandas()


def compact(spark: SparkSession, table: Table) -> None:
    """Schedule a compaction of a Merge-on-Read table and run it: base files and logs become new base files.

    The table's catalog entries are made where they are missing, and show the new files afterwards. An ingest may go
    on beside it: the plan waits for the batch under way, and the next batch for the plan.

    Raises:
        LakeError: the table is Copy-on-Write, or nothing was written to it yet. Or Hudi refused.
    """
    _compaction(spark, table, "schedule", "run")


def schedule_compaction(spark: SparkSession, table: Table) -> None:
    """The first half of `compact`: write the plan of one. Raises as that does."""
    _compaction(spark, table, "schedule")


def run_compaction(spark: SparkSession, table: Table) -> None:
    """The second half of `compact`: run what is scheduled; where nothing is, Hudi plans one first. Raises as that does.
    """
    _compaction(spark, table, "run")


def _compaction(spark: SparkSession, table: Table, *operations: str) -> None:
    if table.type != "mor":
        raise LakeError(f"table {table.name} is Copy-on-Write, it has no logs to compact", where=table.base,
                        expected='a table of type "mor"', next_step="read it: every commit writes whole base files")
    if not completed(table):
        raise LakeError(f"table {table.name} has no completed commit to compact", where=table.base,
                        next_step="ingest something into it first")
    check_clock(table)
    options = {"hoodie.compact.inline.max.delta.commits": "1",  # by default a plan is made of five commits or more
               **{name: value for name, value in table.options().items() if name in BASE_FILE}}
    with answered(spark, f"a compaction of {table.name} failed", table.base,
                  "was something else writing to it? Stop that or wait for it, and run the compaction again; one that "
                  "did not finish changes nothing that a reader sees"), causes(spark):
        entry = register(spark, table)
        for operation in operations:
            plans = operation == "schedule" or not pending_compactions(table)
            with writing(table) if plans else contextlib.nullcontext():
                call(spark, "run_compaction", op=operation, table=entry,
                     options=",".join(f"{name}={value}" for name, value in options.items()))
        refresh(spark, table)


def identifier(name: str) -> str:
    """`table` or `database.table`, each part quoted."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in name.split("."))


def literal(value: str | bool | int) -> str:
    """A value as a constant of Spark's SQL. A quote gets a backslash: one that is doubled gets lost, for to Spark 3.5
    'it''s' are two constants side by side, and those are one text (SqlBaseParser.g4, `constant`).

    Raises: LakeError: another type.
    """
    if isinstance(value, (bool, int)):
        return str(value).lower()
    if not isinstance(value, str):
        raise LakeError(f"{value!r} is of type {type(value).__name__}", expected="text, whole number, True or False")
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
