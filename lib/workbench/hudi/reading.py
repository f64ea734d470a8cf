"""Read a table: as it is, as of an instant, or the changes between two; with Spark or with hudi-rs.

An instant may be given as a label (see labeling.py). Athena has no time travel for Hudi, so these reads
run on Spark. The bounds of an incremental read are Hudi's own, and a test pins them for the version in
use: begin is exclusive, end inclusive.
"""

from __future__ import annotations

import importlib.util
from typing import Any, Callable, Mapping, Optional

import pandas as pd
from pyspark.sql import DataFrame, SparkSession

from ..base import LakeError, World, files
from .labeling import resolve_instant
from .tables import Table, spark_reader
from .timeline import (
    archive_folder,
    check_not_archived,
    check_readable,
    completed_actions,
    pending_compactions,
)

BEGINNING = "00000000000000"
HUDI_RS_MISSING = "hudi-rs is not in this Python"


def read(spark: SparkSession, table: Table) -> DataFrame:
    """Return the rows of the table as of its last commit."""
    return spark_reader(spark).load(table.base)


def as_of(spark: SparkSession, world: World, table: Table, instant: str) -> DataFrame:
    """Return the rows of the table as of an instant; none before its first commit.

    Args:
        spark: the session.
        world: the world.
        table: the table.
        instant: label or instant.

    Raises:
        LakeError: the label is unknown, the instant is in the future, or its files were cleaned away.
    """
    instant = resolve_instant(world, table, instant)
    if not check_readable(table, instant):
        return read(spark, table).limit(0)
    return spark_reader(spark).option("as.of.instant", instant).load(table.base)


def between(
    spark: SparkSession, world: World, table: Table, begin: str = "", end: str = ""
) -> DataFrame:
    """Return the rows that were written after `begin` (exclusive) up to `end` (inclusive).

    Of a row that was written several times in between, only the last version is returned.

    Args:
        spark: the session.
        world: the world.
        table: the table.
        begin: label or instant; by default from the first commit on.
        end: label or instant; by default up to the last commit.

    Raises:
        LakeError: a label is unknown or an instant in the future; the files that `end` needs were
            cleaned away (those of `begin` are not read); the commits of either were archived; or
            `end` is before `begin`.
    """
    if not begin and archive_folder(table):  # Hudi would silently read the active timeline only
        raise LakeError(
            f"the first commits of {table.name} were archived, an increment from the beginning lacks them",
            location=archive_folder(table),
            expected="a begin",
            hint="hudi.as_of reads all rows as of an instant; or keep more: hoodie.keep.max.commits",
        )
    first = begin and resolve_instant(world, table, begin)
    last = end and resolve_instant(world, table, end)
    if first:
        check_not_archived(table, first, completed_actions(table))
    if last:
        check_readable(table, last)
        if first > last:
            raise LakeError(
                f"an increment of {table.name} from {begin} to {end} ends before it begins",
                location=f"begin {first}, end {last}",
                expected="the earlier one first",
            )
    reader = spark_reader(spark).option("hoodie.datasource.query.type", "incremental")
    reader = reader.option("hoodie.datasource.read.begin.instanttime", first or BEGINNING)
    if last:
        reader = reader.option("hoodie.datasource.read.end.instanttime", last)
    return reader.load(table.base)


def read_with_all_engines(spark: SparkSession, table: Table) -> dict[str, pd.DataFrame]:
    """Return the rows of a table as each available engine reads them: {"Spark": …, "hudi-rs": …}.

    Raises:
        LakeError: as `read_arrow`.
    """
    rows = {"Spark": read(spark, table).toPandas()}
    if importlib.util.find_spec("hudi"):
        rows["hudi-rs"] = read_arrow(table).to_pandas()
    else:
        print(f"{HUDI_RS_MISSING}: {table.name} is read by Spark only")
    return rows


def read_arrow(
    table: Table,
    *,
    as_of: Optional[tuple[World, str]] = None,
    optimized: bool = False,
    where: Optional[Mapping[str, Any]] = None,
    columns: Optional[Callable[[str], bool]] = None,
) -> Any:
    """Read the rows of the table with hudi-rs, which shares no code with Spark or Hudi's Java.

    Args:
        table: the table.
        as_of: the world and a label or instant in it; by default now.
        optimized: base files only, as a `…_ro` view.
        where: {field: value} of the rows to return; the value is not null.
        columns: whether to read a column, by its name; by default all are read.

    Returns:
        A pyarrow.Table, with Hudi's own columns; without any column if the table had no row.

    Raises:
        LakeError: as `hudi.as_of`. Or a compaction is pending and later commits follow it, which
            hudi-rs (0.5.0) does not see. Or hudi-rs cannot read the table. An example is a "mor"
            table with a log of a commit that deleted one record and moved another out of the same
            file: Hudi puts both into one block, and gives the second an ordering value of its own
            type. Compaction fixes both cases.
    """
    if not importlib.util.find_spec("hudi"):
        raise LakeError(
            HUDI_RS_MISSING,
            expected="Python 3.10 or newer, and the package hudi",
            hint="Spark reads it: hudi.read(spark, table)",
        )
    import pyarrow
    from hudi import HudiReadOptions, HudiTableBuilder

    instant = resolve_instant(as_of[0], table, as_of[1]) if as_of else ""
    if instant and not check_readable(table, instant):
        return pyarrow.table({})
    if not optimized:
        _require_no_pending_compaction(table, instant)
    options = HudiReadOptions(
        filters=[(name, "=", str(value)) for name, value in (where or {}).items()],
        hudi_options={"hoodie.read.use.read_optimized.mode": str(optimized).lower()},
    )
    if instant:
        options = options.with_as_of_timestamp(instant)
    try:
        builder = HudiTableBuilder.from_base_uri(table.base.replace("s3a:", "s3:"))
        builder = builder.with_storage_options(files.object_store_options(table.base))
        opened = builder.build()
        if columns:
            names = opened.get_schema_with_meta_fields().names
            options = options.with_projection([*filter(columns, names)])
        batches = opened.read(options)
    except Exception as e:
        raise LakeError(
            f"hudi-rs cannot read {table.name}: {e}",
            location=table.base,
            hint="Spark reads it: hudi.read(spark, table)",
        ) from e
    return pyarrow.Table.from_batches(batches) if batches else pyarrow.table({})


def _require_no_pending_compaction(table: Table, instant: str) -> None:
    """Raise LakeError if commits up to an instant ("" for all) follow a pending compaction."""
    pending = pending_compactions(table)
    if pending and any(
        pending[0] < action.instant <= (instant or action.instant)
        for action in completed_actions(table)
    ):
        raise LakeError(
            f"the compaction {pending[0]} of {table.name} is pending: hudi-rs does not see what came after it",
            location=table.base,
            hint="run the compaction: hudi.compact(spark, table, 'run')",
        )
