"""From landed Avro files to rows: each file is read with the schema that stands in it, into the newest one, by field
name. Spark reads the records; what the files are is looked at before, by this process.

In: the files as `examine` sorts them. Out: what decode.rows gives.
"""
from __future__ import annotations

import json
from dataclasses import dataclass
from functools import reduce
from typing import Dict, List, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ..base import files
from ..base.errors import LakeError
from ..topic import avro
from . import decode, decode_avro
from .tables import Table


@dataclass(frozen=True)
class Files:
    """Avro files of a batch: {JSON of the schema: addresses} of those that can be read, {address: why not} else."""

    whole: Dict[str, List[str]]
    broken: Dict[str, str]


def examine(addresses: Sequence[str]) -> Files:
    """Sort Avro files by the schema they were written with. They are read whole: one that is cut off would fail the
    batch of all others when Spark comes to its end."""
    whole: Dict[str, List[str]] = {}
    broken = {}
    for address in addresses:
        try:
            whole.setdefault(avro.schema_of(files.read_bytes(address)), []).append(address)
        except ValueError as e:
            broken[address] = f"not a whole Avro file: {e}"
    return Files(whole, broken)


def rows(spark: SparkSession, found: Files, known: decode_avro.Schemas, table: Table) -> DataFrame:
    """Read the records of landed files.

    Args:
        known: has met the schemas of all of them.
        table: that the rows are for.

    Returns:
        As decode_avro.rows; topic, partition and offset are null, the text is the record as JSON. A file that cannot be
        read is one dead letter without a text.

    Raises:
        LakeError: the reader schema lacks a key, ordering or partition field.
    """
    parts, dead = [], dict(found.broken)
    for text, addresses in sorted(found.whole.items()):
        avsc = known.batch[text]
        name, row, wrong = avro.full_name(avsc), F.lit(None).cast(known.reader), []
        try:
            written = avro.to_spark(avsc)
        except LakeError as e:
            dead.update(dict.fromkeys(addresses, decode_avro.unreadable(name, e)))
            continue
        try:
            row = decode_avro.converted(F.col("record"), written, known.reader, name)
        except LakeError as e:
            wrong = [(F.lit(True), F.lit(decode_avro.unreadable(name, e)))]
        read = spark.read.format("avro").option("avroSchema", json.dumps(avsc))
        read = read.option("datetimeRebaseMode", "CORRECTED").load(addresses)
        raw = read.select(F.struct("*").alias("record"), F.input_file_name().alias("file")).select(
            *decode.no_message(), "file", row.alias("row"),
            F.to_json("record", {"ignoreNullFields": "false"}).alias("text"))
        parts.append(decode.judged(raw, known.reader, F.lit(False), wrong, table).select(*decode.JUDGED))
    if dead:
        letters = spark.createDataFrame(sorted(dead.items()), "file string, reason string")
        parts.append(letters.select("file", "reason", F.lit(decode.DEAD).alias("outcome"), *decode.no_message(),
                                    F.lit(None).cast(known.reader).alias("row"),
                                    F.lit(None).cast("string").alias("text")).select(*decode.JUDGED))
    return reduce(lambda a, b: a.unionByName(b), parts)
