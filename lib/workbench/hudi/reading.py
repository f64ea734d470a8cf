"""Reading a table: as it is, as of an instant, what changed between two; by Spark, and by a reader
that shares nothing.

Instants go by labels (see keeping). Athena has no time travel for Hudi, so these run on Spark. The
bounds of an incremental read are Hudi's own, and a test pins them for the version in use: begin is
exclusive, end inclusive.
"""

import importlib.util
from typing import Any, Mapping, Optional

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
    """The rows of the table as of its last commit."""
    return spark_reader(spark).load(table.base)


def as_of(spark: SparkSession, world: World, table: Table, when: str) -> DataFrame:
    """The rows of the table as they were at a label or instant; none before its first commit.

    Raises:
        LakeError: unknown label, an instant that is still to come, or one whose files were cleaned
            away.
    """
    instant = resolve_instant(world, table, when)
    if not check_readable(table, instant):
        return spark_reader(spark).load(table.base).limit(0)
    return spark_reader(spark).option("as.of.instant", instant).load(table.base)


def between(
    spark: SparkSession, world: World, table: Table, begin: str = "", end: str = ""
) -> DataFrame:
    """Rows that were written after `begin` (exclusive; from the first on) up to `end` (inclusive;
    up to the last).

    Of a row that was written several times in between, the last version is given.

    Raises:
        LakeError: an unknown label or an instant still to come, on either side; the files that
            `end` needs were cleaned away (those of `begin` are not read); the commits of either
            were archived; `end` is before `begin`.
    """
    if not begin and archive_folder(
        table
    ):  # Hudi reads the active timeline, and says nothing of what it leaves out
        raise LakeError(
            f"the first commits of {table.name} were archived, an increment from the beginning lacks them",
            location=archive_folder(table),
            expected="a begin",
            hint="hudi.as_of reads all rows as of an instant; or keep more: hoodie.keep.max.commits",
        )
    first, last = (when and resolve_instant(world, table, when) for when in (begin, end))
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
    bounds = {
        "begin.instanttime": first or BEGINNING,
        **({"end.instanttime": last} if last else {}),
    }
    options = {f"hoodie.datasource.read.{name}": instant for name, instant in bounds.items()}
    return (
        spark_reader(spark)
        .option("hoodie.datasource.query.type", "incremental")
        .options(**options)
        .load(table.base)
    )


def read_with_all_engines(spark: SparkSession, table: Table) -> dict[str, pd.DataFrame]:
    """The rows of a table as each reader sees them that this Python has: {"Spark": …, "hudi-rs":
    …}.

    Raises: LakeError: as `read_independent`.
    """
    rows = {"Spark": read(spark, table).toPandas()}
    if importlib.util.find_spec("hudi"):
        return {**rows, "hudi-rs": read_independent(table)}
    print(f"{HUDI_RS_MISSING}: {table.name} is read by Spark only")
    return rows


def read_independent(
    table: Table,
    *,
    as_of: Optional[tuple[World, str]] = None,
    optimized: bool = False,
    where: Optional[Mapping[str, Any]] = None,
) -> pd.DataFrame:
    """The rows of the table read by hudi-rs, which shares no code with Spark or Hudi's Java.

    Args:
        as_of: the world and a label or instant in it, instead of now.
        optimized: base files only, what a `…_ro` view shows.
        where: {field: value} that the rows have; the value is not null.

    Raises:
        LakeError: as `hudi.as_of` does. Or a compaction is pending, and was followed by commits:
            hudi-rs (0.5.0) does not see what they wrote. Or it cannot read the table: of a "mor"
            table, a log by one commit that deleted a record and moved another out of the same file,
            because Hudi puts both into one block and gives the second an ordering value of its own
            type. Compaction cures both.
    """
    if not importlib.util.find_spec("hudi"):
        raise LakeError(
            HUDI_RS_MISSING,
            expected="Python 3.10 or newer, and the package hudi",
            hint="Spark reads it: hudi.read(spark, table)",
        )
    import pyarrow
    from hudi import HudiReadConfig, HudiReadOptions, HudiTableBuilder

    instant = resolve_instant(as_of[0], table, as_of[1]) if as_of else ""
    if instant and not check_readable(table, instant):
        return pd.DataFrame()
    first = next(iter(pending_compactions(table)), None)
    if (
        first
        and not optimized
        and any(first < c.instant <= (instant or c.instant) for c in completed_actions(table))
    ):
        raise LakeError(
            f"the compaction {first} of {table.name} is pending: hudi-rs does not see what came after it",
            location=table.base,
            hint="run the compaction: hudi.compact(spark, table, 'run')",
        )
    options = HudiReadOptions(
        filters=[(name, "=", str(value)) for name, value in (where or {}).items()],
        hudi_options={HudiReadConfig.USE_READ_OPTIMIZED_MODE.value: str(optimized).lower()},
    )
    if instant:
        options = options.with_as_of_timestamp(instant)
    try:
        builder = HudiTableBuilder.from_base_uri(table.base.replace("s3a:", "s3:"))
        batches = (
            builder.with_storage_options(files.object_store_options(table.base))
            .build()
            .read(options)
        )
    except Exception as e:
        raise LakeError(
            f"hudi-rs cannot read {table.name}: {e}",
            location=table.base,
            hint="Spark reads it: hudi.read(spark, table)",
        ) from e
    return pyarrow.Table.from_batches(batches).to_pandas() if batches else pd.DataFrame()
