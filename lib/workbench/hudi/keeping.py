"""What an ingest leaves beside the rows, and the end of a table."""
from __future__ import annotations

from typing import Optional

from pyspark.sql import DataFrame, SparkSession

from ..base import files
from ..base.params import World
from ..landing.batch import read_dead_letters
from .catalog import all_entries, unregister
from .tables import Table, alone, dead_letters_path, state


def drop(spark: Optional[SparkSession], world: World, table: Table) -> None:
    """Start clean: remove the catalog entries, the files, the labels, the progress and the dead letters of the table.

    Raises: LakeError: an ingest into it is going on, whose next commit would name files that are no more.
    """
    with alone(world, table):
        if spark is not None:
            for entry in all_entries(table):
                unregister(spark, entry)
        # labels first: they are of no other table, also when the rest is not reached
        for place in (state(world, table), dead_letters_path(world, table), table.base):
            files.remove(place)


def dead_letters(spark: SparkSession, world: World, table: Table) -> DataFrame:
    """The messages that could not be ingested: reason, topic, partition, offset, file, text (base64 where it is Avro).
    """
    return read_dead_letters(spark, dead_letters_path(world, table))
