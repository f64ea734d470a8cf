"""All rows of a table replaced in one commit.

An ingest does it where a column gets a type as which no reader of Hudi sees the values of older files, and a recapture
where another copy takes the place of the rows. Before the commit every reader sees the old rows, after it the new ones.
"""
import contextlib
from typing import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from . import catalog, ddl
from .tables import PARTS, Table, writing
from .timeline import check_clock, check_version, completed, pending_compactions


def rewrite(spark: SparkSession, table: Table, rows: DataFrame, columns: T.StructType, options: Mapping[str, str]
            ) -> None:
    """Replace the rows and the columns of a table, or make it of them.

    Instants before the commit can still be read as they were. To an incremental read every row is new.

    Args:
        rows: the new rows, one for each key; they may be read from the table itself.
        columns: the columns of the table from now on. A column that the rows lack is null.
        options: take precedence over the table's own.
    """
    if pending_compactions(table):  # planned of files that this commit replaces
        catalog.compact(spark, table, "run")
    check_clock(table)
    with writing(table) if completed(table) else contextlib.nullcontext():
        rows.to(columns).write.format("hudi").options(
            **{**table.options(), **PARTS["rewrite"], **table.extra, **options}).mode("append").save(table.base)
    check_version(table)
    if ddl.registered(spark, table):
        ddl.register(spark, table)
