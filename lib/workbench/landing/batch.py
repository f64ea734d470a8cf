"""What the jobs that go through messages batch by batch have in common, the landing and the ingest:
how they tell what they did, and which messages are dead letters.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from ..base import files

DEAD_LETTER_COLUMNS = (
    "reason string, topic string, partition int, offset long, file string, text string"
)


def read_dead_letters(spark: SparkSession, place: str) -> DataFrame:
    """The dead letters that lie below an address, as JSON; none where nothing is there."""
    if not files.list_dir(place):
        return spark.createDataFrame([], DEAD_LETTER_COLUMNS)
    return spark.read.schema(DEAD_LETTER_COLUMNS).option("recursiveFileLookup", "true").json(place)


@dataclass(frozen=True)
class Counts:
    """What one run did: its messages, and what became of them. What two runs did is their sum."""

    messages: int = 0
    tombstones: int = 0
    dead_letters: int = 0
    batches: int = 0

    def __add__(self, more: Counts) -> Any:
        return type(self)(**{name: n + getattr(more, name) for name, n in asdict(self).items()})

    def describe(self, verb: str, **parts: int) -> str:
        """One line for a person: `landed 830 messages: 830 files, 830 records, 0 tombstones, 0 dead
        letters`.
        """
        if not self.messages:
            return f"{verb} nothing: no message was new"

        def counted(name: str, n: int) -> str:
            return f"{n:,} {name.replace('_', ' ')[: -1 if n == 1 else None]}"

        parts.update(tombstones=self.tombstones, dead_letters=self.dead_letters)
        return f"{verb} {counted('messages', self.messages)}: {', '.join(counted(*part) for part in parts.items())}"
