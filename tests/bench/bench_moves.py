"""Rows that move to another partition, at size: an upsert of 1,000 rows, half of which move, into
tables of 10,000, 200,000 and 1,000,000 rows; with the index BUCKET, where the ingest deletes a row
from its old partition, and with GLOBAL_SIMPLE, which looks for it in all partitions, in turns."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from bench_line import Line, say, seconds
from pyspark.sql import types as T
from workbench import hudi
from workbench.hudi import decode, moves
from workbench.hudi.loading import write_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from workbench.base.params import World

SIZES, CHANGED, ROUNDS = (10_000, 200_000, 1_000_000), 1_000, 3
PARTITIONS = 7  # no divisor of a power of ten: the rows of one upsert lie in all of them
INDEXES = ("BUCKET", "GLOBAL_SIMPLE")
COLUMNS = T.StructType(
    [
        T.StructField("id", T.IntegerType()),
        T.StructField("part", T.StringType()),
        T.StructField("name", T.StringType()),
        T.StructField("v", T.LongType()),
        T.StructField("__op", T.StringType()),
        T.StructField("__before_id", T.IntegerType()),
        T.StructField("__before_part", T.StringType()),
    ]
)
MESSAGES = f"row {COLUMNS.simpleString()}, outcome string, reason string, topic string, partition int, offset bigint, file string, text string"


def snapshot(spark: SparkSession, size: int) -> DataFrame:
    """So many rows as the ingest decodes them, spread over all partitions."""
    values = ["cast(id as int)", f"concat('p', id % {PARTITIONS})", "concat('Artist ', id)", "1L"]
    return spark.range(size).selectExpr(
        f"cast(struct({', '.join(values)}, 'r', null, null) as {COLUMNS.simpleString()}) row",
        f"'{decode.UPSERT}' outcome",
        "cast(null as string) reason",
        "'t' topic",
        "0 partition",
        "id offset",
        "cast(null as string) file",
        "cast(null as string) text",
    )


def updates(spark: SparkSession, size: int, number: int) -> DataFrame:
    """1,000 updates of rows that were not updated yet; every second row moves."""
    every, version = size // CHANGED, number + 2
    made: list[Any] = []
    for n in range(CHANGED):
        key = n * every + number
        old = f"p{key % PARTITIONS}"
        new = f"p{(key + n % 2) % PARTITIONS}"
        row = (key, new, f"Artist {key}!", version, "u", key, old)
        made.append((row, decode.UPSERT, None, "t", 0, number * CHANGED + n, None, None))
    return spark.createDataFrame(made, MESSAGES)


def ingest(
    spark: SparkSession, world: World, table: hudi.Table, rows: DataFrame, first: bool
) -> None:
    """Write a batch as the ingest does."""
    write_batch(
        spark,
        rows,
        table,
        f"{world.lake.root}/bench/dead_letters",
        in_memory=not first,
        is_first_commit=first,
        columns=COLUMNS,
        tracks_moves=moves.is_tracked(COLUMNS, table),
        options={},
    )


def measure(spark: SparkSession, world: World, size: int) -> dict[str, float]:
    """{index: median seconds of an upsert}; the tables are filled first and dropped afterwards."""
    made = [
        hudi.table(
            world,
            f"bench_moves_{size}_{index.lower()}",
            key=("id",),
            ordering="v",
            partition=("part",),
            type="mor",
            index=index,
            rows=size,
        )
        for index in INDEXES
    ]
    took: dict[str, list[float]] = {table.index: [] for table in made}
    try:
        for table in made:
            ingest(spark, world, table, snapshot(spark, size), first=True)
        for number in range(ROUNDS + 1):
            rows = updates(spark, size, number)
            for table in made if number % 2 else made[::-1]:
                took[table.index].append(
                    seconds(lambda t=table, r=rows: ingest(spark, world, t, r, first=False))
                )
        for table in made:
            _right(spark, table, size)
    finally:
        for table in made:
            hudi.drop(None, world, table)
    return {index: statistics.median(each[1:]) for index, each in took.items()}


def _right(spark: SparkSession, table: hudi.Table, size: int) -> None:
    """Raise SystemExit unless each key is there once, and the rows that moved are where they should be."""
    found = (
        hudi.read(spark, table)
        .selectExpr(
            "count(*) n",
            "count(distinct id) ids",
            "count_if(v > 1) changed",
            f"count_if(part <> concat('p', id % {PARTITIONS})) moved",
        )
        .collect()[0]
    )
    changed = CHANGED * (ROUNDS + 1)
    if tuple(found) != (size, size, changed, changed // 2):
        raise SystemExit(f"{table.name} holds {found}: the measurement would mean nothing")


def moved(world: World, spark: SparkSession) -> list[Line]:
    """BUCKET as a ratio to GLOBAL_SIMPLE at each size, and how it grows with the size."""
    took = {}
    for size in SIZES:
        say(f"moves: {size:,} rows")
        took[size] = measure(spark, world, size)
    what = f"upsert of {CHANGED:,} rows, half of which move,"
    lines = [
        Line(
            f"{what} into {size:,}, mor, BUCKET index",
            f"{took[size]['BUCKET']:.2f} s",
            f"GLOBAL_SIMPLE: {took[size]['GLOBAL_SIMPLE']:.2f} s",
            took[size]["BUCKET"] / took[size]["GLOBAL_SIMPLE"],
            "×",
            1.0,
        )
        for size in SIZES
    ]
    small, large = (took[size]["BUCKET"] for size in (SIZES[0], SIZES[-1]))
    lines.append(
        Line(
            f"{what} into {SIZES[-1]:,} over {SIZES[0]:,}, mor, BUCKET index",
            f"{large:.2f} s",
            f"{small:.2f} s",
            large / small,
            "×",
            3,
        )
    )
    return lines
