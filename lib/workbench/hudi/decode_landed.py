"""From landed Avro files to rows: each file is read with the schema that stands in it, into the newest one, by field
name. Spark reads the records; what the files are is looked at before, by this process.

In: the files as `examine` sorts them. Out: what decode.rows gives.
"""
from __future__ import annotations

import json
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, Dict, List, Sequence

from pyspark.sql import types as T

from ..base import files
from ..base.errors import LakeError
from ..topic import avro, schemas
from . import decode, decode_avro

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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


def rows(spark: SparkSession, found: Files, known: decode_avro.Schemas, *, key: Sequence[str], ordering: str,
         partition: Sequence[str] = (), global_index: bool = False) -> DataFrame:
    """Read the records of landed files.

    Args:
        known: has met the schemas of all of them.
        key, ordering, partition, global_index: of the table the rows are for (see hudi.Table).

    Returns:
        As decode_avro.rows; topic, partition and offset are null, the text is the record as JSON. A file that cannot be
        read is one dead letter without a text.

    Raises:
        LakeError: the reader schema lacks a key, ordering or partition field.
    """
    from pyspark.sql import functions as F

    of_table: Dict[str, Any] = dict(key=key, ordering=ordering, partition=partition, global_index=global_index)
    parts = []
    for text, addresses in sorted(found.whole.items()):
        avsc = known.batch[text]
        name = schemas.full_name(avsc)
        try:
            written = schemas.avro_to_spark(avsc)
        except LakeError as e:
            parts.append(_dead(spark, known.reader, addresses, f"schema {name} cannot be read: {e.what} ({e.where})"))
            continue
        read = spark.read.format("avro").option("avroSchema", json.dumps(avsc))
        read = read.option("datetimeRebaseMode", "CORRECTED").load(addresses)
        whole = F.struct(*[F.col(f"`{f}`") for f in written.fieldNames()])
        wrong, row = [], F.lit(None).cast(known.reader)
        try:
            row = decode_avro.converted(F.col("record"), written, known.reader, name)
        except LakeError as e:
            wrong = [(F.lit(True), F.lit(f"schema {name} cannot be read: {e.what} ({e.where})"))]
        nothing = F.lit(None)
        raw = read.select(whole.alias("record"), F.input_file_name().alias("file")).select(
            nothing.cast("string").alias("key"), nothing.cast("string").alias("topic"),
            nothing.cast("int").alias("partition"), nothing.cast("long").alias("offset"), "file",
            F.to_json("record", {"ignoreNullFields": "false"}).alias("text"), row.alias("row"))
        judged = decode.judged(raw, known.reader, F.lit(False), wrong, **of_table)
        parts.append(judged.select("key", "row", "outcome", "reason", *decode.ORIGIN, "text"))
    parts += [_dead(spark, known.reader, [address], why) for address, why in sorted(found.broken.items())]
    return reduce(lambda a, b: a.unionByName(b), parts)


def _dead(spark: SparkSession, schema: T.StructType, addresses: Sequence[str], why: str) -> DataFrame:
    """A dead letter for each of these files."""
    from pyspark.sql import functions as F

    row = F.lit(None).cast(schema).alias("row")
    text = F.lit(None).cast("string")
    return spark.createDataFrame([(address,) for address in addresses], "file string").select(
        text.alias("key"), row, F.lit(decode.DEAD).alias("outcome"), F.lit(why).alias("reason"),
        text.alias("topic"), F.lit(None).cast("int").alias("partition"), F.lit(None).cast("long").alias("offset"),
        "file", text.alias("text"))
