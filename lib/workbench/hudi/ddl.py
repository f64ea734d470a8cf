"""A table's entries in Spark's catalog (the Hive metastore here, Glue on EMR, which Athena uses); Hudi's procedures.

Hudi's own SQL makes them. Spark reads partitions and columns from the table itself. Athena reads the
timeline, so it sees a commit at once, but only the partitions and columns that the catalog has
(Athena's guide, "Query Apache Hudi datasets"). Therefore each commit is followed by `sync_catalog`.

A procedure, `CALL name(argument => value)`, finds a table by these entries.
"""

from __future__ import annotations

import contextlib

import pandas as pd
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from ..base import LakeError, files
from ..spark import java_stacktraces, query_engine, state_of, translate_errors
from . import evolution
from .tables import OPTION_GROUPS, Table, catalog_names, commit_lock, needs_record_writer
from .timeline import (
    CompletedAction,
    check_clock,
    check_type,
    check_version,
    completed_actions,
    extra_metadata,
    pending_compactions,
    properties,
    require_commits,
    write_stats,
)

# Whether a commit compacts. Hudi sets it for a Merge-on-Read table that does not name it.
INLINE_COMPACTION = "hoodie.compact.inline"


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


def call_procedure(
    spark: SparkSession, procedure: str, **arguments: str | bool | int
) -> pd.DataFrame:
    """Call one of Hudi's procedures (its documentation, "Procedures", lists them).

    The values are constants in the statement. Hudi's parser takes no others: it hands a statement
    with a bound parameter on to Spark's parser, which has no CALL (HoodieSqlCommon.g4,
    `callArgument`; tried with 1.0.2).

    Args:
        spark: the session.
        procedure: its name.
        arguments: text, whole number or bool.

    Returns:
        The rows that the procedure returns.

    Raises:
        LakeError: a value of another type.
    """
    values = ", ".join(f"{name} => {literal(value)}" for name, value in arguments.items())
    return spark.sql(f"CALL {procedure}({values})").toPandas()


def compact(spark: SparkSession, table: Table, *operations: str) -> None:
    """Compact a Merge-on-Read table: merge base files and logs into new base files.

    The table's catalog entries are created if they are missing, and show the new files afterwards.
    An ingest may run at the same time: the compaction waits for the current batch, and the next
    batch waits for the compaction. If the table's commits do not compact (`extra` has
    "hoodie.compact.inline": "false"), the next batch waits for the plan only. Otherwise a commit
    would roll back the plan that runs, and execute it again. A plan that was scheduled is executed
    by the next such commit.

    Args:
        spark: the session.
        table: the table.
        operations: "schedule" writes the plan, "run" executes what is scheduled; by default both. If
            nothing is scheduled, "run" makes Hudi plan first.

    Raises:
        LakeError: the table is Copy-on-Write or of another type, or nothing was written to it yet. Or Hudi failed.
    """
    check_type(table)
    if table.type != "mor":
        raise LakeError(
            f"table {table.name} is Copy-on-Write, it has no logs to compact",
            location=table.base,
            expected='a table of type "mor"',
            hint="read it: every commit writes whole base files",
        )
    actions = require_commits(table, "compact")
    check_clock(table)
    options = ",".join(
        f"{name}={value}" for name, value in _compaction_options(table, actions).items()
    )
    with (
        translate_errors(
            spark,
            f"a compaction of {table.name} failed",
            table.base,
            "if another process was writing to the table, stop it or wait for it, and run the compaction again; "
            "one that did not finish changes no query result",
        ),
        java_stacktraces(spark),
    ):
        entry = register(spark, table)
        for operation in operations or ("schedule", "run"):
            makes_plan = operation == "schedule" or not pending_compactions(table)
            excludes_commits = makes_plan or table.options().get(INLINE_COMPACTION) != "false"
            with commit_lock(table) if excludes_commits else contextlib.nullcontext():
                call_procedure(spark, "run_compaction", op=operation, table=entry, options=options)
        sync_catalog(spark, table)
        refresh(spark, table)


def _compaction_options(table: Table, actions: list[CompletedAction]) -> dict[str, str]:
    """Return the options of a compaction; it takes none of the table's by itself."""
    by_records = OPTION_GROUPS["compaction by records"]
    # by default a plan is made of five commits or more
    options = {"hoodie.compact.inline.max.delta.commits": "1"}
    options.update({k: v for k, v in table.options().items() if k in OPTION_GROUPS["base files"]})
    columns = evolution.table_columns(actions)
    if columns and needs_record_writer(columns):
        options.update(by_records)
    options.update({k: v for k, v in table.extra.items() if k in by_records})
    return options
