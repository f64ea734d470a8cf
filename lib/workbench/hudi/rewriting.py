"""Replace all rows of a table in one commit.

An ingest rewrites a table when a column gets a type that Hudi's readers do not apply to older files.
Before the commit every reader sees the old rows, after it the new ones.
"""

from __future__ import annotations

import contextlib
from typing import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from ..base import LakeError, wait_until
from . import catalog, ddl
from .tables import OPTION_GROUPS, Table, commit_lock, key_options
from .timeline import (
    CompletedAction,
    check_clock,
    check_type,
    check_version,
    completed_actions,
    pending_compactions,
    timeline_files,
)

REWRITE_OPERATION = "INSERT_OVERWRITE_TABLE"  # in the commit's metadata


def rewrite(
    spark: SparkSession,
    table: Table,
    rows: DataFrame,
    columns: T.StructType,
    options: Mapping[str, str],
) -> None:
    """Replace the rows and the columns of a table; create it if it does not exist.

    Instants before the commit can still be read as they were. To an incremental read every row is
    new.

    Args:
        spark: the session.
        table: the table.
        rows: the new rows, one for each key; they may be read from the table itself.
        columns: the columns of the table from now on. A column that the rows lack is null.
        options: Hudi options, which take precedence over the table's own.

    Raises:
        LakeError: the table has another type.
    """
    check_type(table)
    own_options = {**table.options(), **key_options(table, columns), **OPTION_GROUPS["rewrite"]}
    own_options.update(table.extra)
    options = {**own_options, **options}
    while not _try_commit(table, rows.to(columns), options):
        _run_compactions(spark, table)
    finish_rewrite(spark, table)


def _try_commit(table: Table, rows: DataFrame, options: Mapping[str, str]) -> bool:
    """Commit the rows. If a compaction is planned, do nothing and return False.

    The commit replaces the files of the plan.
    """
    check_clock(table)
    with commit_lock(table) if completed_actions(table) else contextlib.nullcontext():
        if pending_compactions(table):
            return False
        rows.write.format("hudi").options(**options).mode("append").save(table.base)
    return True


def _run_compactions(spark: SparkSession, table: Table) -> None:
    """Run the planned compactions, after the one that is running: run twice, it would undo itself.

    Raises:
        LakeError: the running one does not end.
    """

    def is_running() -> bool:
        pending = pending_compactions(table)
        return any(
            file.suffix == "compaction.inflight" and file.instant in pending
            for file in timeline_files(table)
        )

    wait_until(
        lambda: not is_running(),
        f"the compaction of {table.name} to end",
        timeout=120,
        interval=0.5,
        error=LakeError,
        hint="wait until it is done; if its process was killed: hudi.compact(spark, table, 'run')",
    )
    if pending_compactions(table):
        catalog.compact(spark, table, "run")


def finish_interrupted_rewrite(
    spark: SparkSession, table: Table, actions: list[CompletedAction]
) -> None:
    """Finish a rewrite that is the table's last commit: its process may have been killed after it.

    Args:
        spark: the session.
        table: the table.
        actions: as `completed_actions` returns them.
    """
    if actions and actions[-1].metadata.get("operationType") == REWRITE_OPERATION:
        finish_rewrite(spark, table)


def finish_rewrite(spark: SparkSession, table: Table) -> None:
    """Check the table's version, and update its catalog entries, if any, to its columns."""
    check_version(table)
    if ddl.is_registered(spark, table):
        ddl.register(spark, table)
