"""Hudi's procedures, `CALL name(argument => value)`, and compaction on request.

A procedure finds a table by its entries in the catalog (see ddl.py).
"""

from __future__ import annotations

import contextlib

import pandas as pd
from pyspark.sql import SparkSession

from ..base import LakeError
from ..spark import java_stacktraces, translate_errors
from . import evolution
from .ddl import literal, refresh, register, sync_catalog
from .tables import OPTION_GROUPS, Table, commit_lock, needs_record_writer
from .timeline import (
    CompletedAction,
    check_clock,
    check_type,
    pending_compactions,
    require_commits,
)

# Whether a commit compacts. Hudi sets it for a Merge-on-Read table that does not name it.
INLINE_COMPACTION = "hoodie.compact.inline"


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
        LakeError: an invalid name, or a value of another type.
    """
    for name in (procedure, *arguments):
        if not name.isidentifier():
            raise LakeError(f"{name!r} is not a name", location=f"CALL {procedure}")
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
    file_options = {*OPTION_GROUPS["base files"], *OPTION_GROUPS["no bloom filter"]}
    # by default a plan is made of five commits or more
    options = {"hoodie.compact.inline.max.delta.commits": "1"}
    options.update({k: v for k, v in table.options().items() if k in file_options})
    columns = evolution.table_columns(actions)
    if columns and needs_record_writer(columns):
        options.update(by_records)
    options.update({k: v for k, v in table.extra.items() if k in by_records})
    return options
