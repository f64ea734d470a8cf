"""Reading the past of a table: as of an instant, and what changed between two. Instants go by labels (timeline.mark).

Athena has neither for Hudi, so these run on Spark. The bounds of an incremental read are Hudi's own, and a test pins
them for the version in use: begin is exclusive, end inclusive.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from .errors import LakeError
from .timeline import archived, check_readable, resolve

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

    from .hudi import Table
    from .params import World

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

    Of a row that was written several times in between, the last version is given. Raises as `as_of` does.
    """
    return _incremental(spark, world, table, begin, end).load(table.base)


def _incremental(spark: SparkSession, world: World, table: Table, begin: str, end: str) -> DataFrameReader:
    bounds = {"begin": begin, "end": end}
    if not begin and archived(table):  # Hudi reads the active timeline, and says nothing of what it leaves out
        raise LakeError(f"the first commits of {table.name} were archived, an increment from the beginning lacks them",
                        where=f"{table.base}/.hoodie/archived", expected="a begin",
                        next_step="hudi.as_of reads all rows as of an instant; or keep more: hoodie.keep.max.commits")
    for side, when in bounds.items():
        if when:
            bounds[side] = resolve(world, table, when)
            check_readable(table, bounds[side])
    read = reader(spark).option("hoodie.datasource.query.type", "incremental")
    read = read.option("hoodie.datasource.read.begin.instanttime", bounds["begin"] or BEGINNING)
    return read.option("hoodie.datasource.read.end.instanttime", bounds["end"]) if bounds["end"] else read


def reader(spark: SparkSession) -> DataFrameReader:
    """How every Hudi table is read here: without data skipping, which answers wrong (a test shows it)."""
    return spark.read.format("hudi").option("hoodie.enable.data.skipping", "false")
