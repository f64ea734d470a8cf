"""Hudi's procedures, `CALL name(argument => value)`, that find a table by its entries in the
catalog (see ddl.py); and the table service that nobody else runs, compaction.
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
from .timeline import check_clock, completed_actions, pending_compactions


def call_procedure(
    spark: SparkSession, procedure: str, **arguments: str | bool | int
) -> pd.DataFrame:
    """Call one of Hudi's procedures (its documentation, "Procedures", lists them), and return what
    it answers.

    The values stand in the statement: Hudi's parser takes constants only, and hands a statement
    with a bound parameter on to Spark's parser, which has no CALL (HoodieSqlCommon.g4,
    `callArgument`; tried with 1.0.2).

    Raises:
        LakeError: a name that is none; a value that is neither text nor whole number nor bool.
    """
    for name in (procedure, *arguments):
        if not name.isidentifier():
            raise LakeError(f"{name!r} is not a name", location=f"CALL {procedure}")
    given = ", ".join(f"{name} => {literal(value)}" for name, value in arguments.items())
    return spark.sql(f"CALL {procedure}({given})").toPandas()


def compact(spark: SparkSession, table: Table, *operations: str) -> None:
    """Compact a Merge-on-Read table: base files and logs become new base files.

    The table's catalog entries are made where they are missing, and show the new files afterwards.
    An ingest may go on beside it: the plan waits for the batch under way, and the next batch for
    the plan.

    Args:
        operations: both by default, "schedule", which writes the plan, then "run", which runs what
            is scheduled; where nothing is, Hudi plans it first.

    Raises:
        LakeError: the table is Copy-on-Write, or nothing was written to it yet. Or Hudi refused.
    """
    if table.type != "mor":
        raise LakeError(
            f"table {table.name} is Copy-on-Write, it has no logs to compact",
            location=table.base,
            expected='a table of type "mor"',
            hint="read it: every commit writes whole base files",
        )
    if not completed_actions(table):
        raise LakeError(
            f"table {table.name} has no completed commit to compact",
            location=table.base,
            hint="ingest something into it first",
        )
    check_clock(table)
    written = {
        *OPTION_GROUPS["base files"],
        *OPTION_GROUPS["no bloom filter"],
    }  # it takes none of the table's options by itself
    columns = evolution.table_columns(completed_actions(table))
    options = {
        # by default a plan is made of five commits or more
        "hoodie.compact.inline.max.delta.commits": "1",
        **{name: value for name, value in table.options().items() if name in written},
        **(
            OPTION_GROUPS["compaction by records"]
            if columns and needs_record_writer(columns)
            else {}
        ),
        **{
            name: value
            for name, value in table.extra.items()
            if name in OPTION_GROUPS["compaction by records"]
        },
    }
    with (
        translate_errors(
            spark,
            f"a compaction of {table.name} failed",
            table.base,
            "was something else writing to it? Stop that or wait for it, and run the compaction again; one that "
            "did not finish changes nothing that a reader sees",
        ),
        java_stacktraces(spark),
    ):
        entry = register(spark, table)
        for operation in operations or ("schedule", "run"):
            plans = operation == "schedule" or not pending_compactions(table)
            with commit_lock(table) if plans else contextlib.nullcontext():
                call_procedure(
                    spark,
                    "run_compaction",
                    op=operation,
                    table=entry,
                    options=",".join(f"{name}={value}" for name, value in options.items()),
                )
        sync_catalog(spark, table)
        refresh(spark, table)
