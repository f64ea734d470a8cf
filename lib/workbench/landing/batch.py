"""What the jobs that go through messages batch by batch have in common, the landing and the ingest: how they tell what
they did, why a batch failed, and which messages are dead letters."""
from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, List

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


def cause(text: str) -> str:
    """The innermost cause named in a Spark exception, as one line."""
    lines: List[str] = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by:")]
    if causes and "PythonException" in causes[-1]:  # Python's own traceback follows, and its last line says what it was
        below = itertools.takewhile(lambda line: not line.startswith("at "), lines[lines.index(causes[-1]) + 1:])
        causes = [line for line in below if re.match(r"[\w.]+(Error|Exception|Interrupt)\b", line)] or causes
    return (causes[-1].replace("Caused by: ", "") if causes else (lines or ["unknown"])[0])[:400]
