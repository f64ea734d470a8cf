"""The counts and the dead-letter files of the two batch jobs, the landing and the ingest."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TypeVar

from pyspark.sql import DataFrame, SparkSession

from ..base import files
from ..base.text import plural

DEAD_LETTER_COLUMNS = (
    "reason string, topic string, partition int, offset long, file string, text string"
)
C = TypeVar("C", bound="Counts")


def read_dead_letters(spark: SparkSession, uri: str) -> DataFrame:
    """Return the dead letters in the JSON files below a URI; no rows if there are no files.

    Returns:
        The columns of DEAD_LETTER_COLUMNS.
    """
    if not files.list_dir(uri):
        return spark.createDataFrame([], DEAD_LETTER_COLUMNS)
    return spark.read.schema(DEAD_LETTER_COLUMNS).option("recursiveFileLookup", "true").json(uri)


@dataclass(frozen=True)
class Counts:
    """The number of messages of one run, by result. `+` adds the counts of two runs."""

    messages: int = 0
    tombstones: int = 0
    dead_letters: int = 0
    batches: int = 0

    def __add__(self: C, counts: C) -> C:
        """Return the sum of two counts."""
        return type(self)(**{name: n + getattr(counts, name) for name, n in asdict(self).items()})

    def describe(self, verb: str, **parts: int) -> str:
        """Return a line such as `landed 830 messages: 830 files, 830 records, 0 tombstones, …`.

        Args:
            verb: past tense of the job, such as `landed`.
            parts: further counts, {noun in the plural: count}.
        """
        if not self.messages:
            return f"{verb} nothing: no message was new"
        parts.update(tombstones=self.tombstones, dead_letters=self.dead_letters)
        listed = [plural(n, name.replace("_", " ")[:-1]) for name, n in parts.items()]
        return f"{verb} {plural(self.messages, 'message')}: {', '.join(listed)}"
