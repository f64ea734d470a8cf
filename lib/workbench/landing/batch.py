"""What the jobs that go through messages batch by batch have in common, the landing and the ingest: how they tell what
they did, and which messages are dead letters."""
from __future__ import annotations

from typing import TYPE_CHECKING

from ..base import files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DEAD_LETTER = "reason string, topic string, partition int, offset long, file string, text string"


def read_dead_letters(spark: SparkSession, place: str) -> DataFrame:
    """The dead letters that lie below an address, as JSON; none where nothing is there."""
    if not files.entries(place):
        return spark.createDataFrame([], DEAD_LETTER)
    return spark.read.schema(DEAD_LETTER).option("recursiveFileLookup", "true").json(place)


def counted(verb: str, messages: int, **parts: int) -> str:
    """What a run did, as one line for a person: `landed 830 messages: 830 files, 830 records, 0 dead letters`."""
    if not messages:
        return f"{verb} nothing: no message was new"

    def said(name: str, count: int) -> str:
        return f"{count:,} {name.replace('_', ' ')[: -1 if count == 1 else None]}"

    return f"{verb} {said('messages', messages)}: {', '.join(said(*part) for part in parts.items())}"
