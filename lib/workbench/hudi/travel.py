"""Reading the past of a table: as of an instant, and what changed between two. Instants go by labels (timeline.mark).

Athena has neither for Hudi, so these run on Spark. The bounds of an incremental read are Hudi's own, and a test pins
them for the version in use: begin is exclusive, end inclusive.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from ..base.errors import LakeError
from .timeline import archive, archived, check_active, check_readable, completed, resolve

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

    from ..base.params import World
    from .tables import Table

BEGINNING = "00000000000000"


def as_of(spark: SparkSession, world: World, table: Table, when: str) -> DataFrame:
    """The rows of the table as they were at a label or instant; none before its first commit.

    Raises:
        LakeError: unknown label, an instant that is still to come, or one whose files were cleaned away.
    """
    instant = resolve(world, table, when)
    if not check_readable(table, instant):
        return reader(spark).load(table.base).limit(0)
    return reader(spark).option("as.of.instant", instant).load(table.base)


def between(spark: SparkSession, world: World, table: Table, begin: str = "", end: str = "") -> DataFrame:
    """Rows that were written after `begin` (exclusive; from the first on) up to `end` (inclusive; up to the last).

    Of a row that was written several times in between, the last version is given.

    Raises:
        LakeError: an unknown label or an instant still to come, on either side; the files that `end` needs were cleaned
            away (those of `begin` are not read); the commits of either were archived; `end` is before `begin`.
    """
    return _incremental(spark, world, table, begin, end).load(table.base)


def _incremental(spark: SparkSession, world: World, table: Table, begin: str, end: str) -> DataFrameReader:
    bounds = {"begin": begin, "end": end}
    if not begin and archived(table):  # Hudi reads the active timeline, and says nothing of what it leaves out
        raise LakeError(f"the first commits of {table.name} were archived, an increment from the beginning lacks them",
                        where=archive(table), expected="a begin",
                        next_step="hudi.as_of reads all rows as of an instant; or keep more: hoodie.keep.max.commits")
    bounds = {side: when and resolve(world, table, when) for side, when in bounds.items()}
    if bounds["begin"]:
        check_active(table, bounds["begin"], completed(table))
    if bounds["end"]:
        check_readable(table, bounds["end"])
        if bounds["begin"] > bounds["end"]:
            raise LakeError(f"an increment of {table.name} from {begin} to {end} ends before it begins",
                            where=f"begin {bounds['begin']}, end {bounds['end']}", expected="the earlier one first")
    read = reader(spark).option("hoodie.datasource.query.type", "incremental")
    read = read.option("hoodie.datasource.read.begin.instanttime", bounds["begin"] or BEGINNING)
    return read.option("hoodie.datasource.read.end.instanttime", bounds["end"]) if bounds["end"] else read


def reader(spark: SparkSession) -> DataFrameReader:
    """How every Hudi table is read here: without data skipping, which answers wrong (a test shows it)."""
    return spark.read.format("hudi").option("hoodie.enable.data.skipping", "false")
