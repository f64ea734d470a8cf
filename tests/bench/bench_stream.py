"""How fast the streaming query of the sales is, beside a plain copy of the same topic into another
by Spark."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from bench_line import Line, seconds
from workbench import stack
from workbench.query import streams
from workbench.topic import topics
from workbench.tracks import sales

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from workbench.base.params import World

TIMES, ROUNDS = 100, 3  # the 1,800 sales so many times


def streamed(world: World, spark: SparkSession) -> list[Line]:
    """Both from an empty checkpoint to the end of the topic, in the same batches."""
    stack.ensure_running(world, *sales.TRACK.services)
    sales.register_schemas(world)
    sales.delete_scratch_queries(spark, world)
    for _ in range(TIMES):
        sales.produce(world, topic=sales.SCRATCH_TOPIC)
    count, took = TIMES * len(sales.read_sales()), {"query": [], "copy": []}  # type: ignore[var-annotated]
    for _ in range(ROUNDS + 1):  # the first warms up
        for name, start in (("query", _query), ("copy", _copy)):
            streams.delete_checkpoint(spark, sales.checkpoint(world, name))
            took[name].append(seconds(lambda start=start: _whole(start(world, spark), count)))
    windows = sales.latest(spark, world, f"{sales.SCRATCH_TOPIC}.query")
    assert int(windows["orders"].sum()) == 2 * count, "each sale in two windows, once"
    ours, plain = (statistics.median(t[1:]) for t in took.values())
    for name in took:
        streams.delete_checkpoint(spark, sales.checkpoint(world, name))
    topics.delete(world, f"{sales.SCRATCH_TOPIC}.query", f"{sales.SCRATCH_TOPIC}.copy")
    sales.delete_scratch_queries(spark, world)
    return [
        Line(
            f"streaming query over {count:,} sales, in windows",
            f"{ours:.1f} s",
            f"plain copy of the topic by Spark: {plain:.1f} s, {plain / ours:.2f} × of its speed",
            count / ours,
            "sales/s",
            5_000,
            more_is_better=True,
        )
    ]


def _query(world: World, spark: SparkSession) -> Any:
    return sales.start_query(
        spark, world, name="query", max_records=60_000, trigger_interval="0 seconds"
    )


def _copy(world: World, spark: SparkSession) -> Any:
    topics.create(world, f"{sales.SCRATCH_TOPIC}.copy")
    read = spark.readStream.format("kafka").options(
        **topics.spark_options(world),
        subscribe=sales.SCRATCH_TOPIC,
        startingOffsets="earliest",
        maxOffsetsPerTrigger=60_000,
    )
    return (
        read.load()
        .select("key", "value")
        .writeStream.format("kafka")
        .options(
            **topics.spark_options(world),
            topic=f"{sales.SCRATCH_TOPIC}.copy",
            checkpointLocation=sales.checkpoint(world, "copy"),
        )
        .trigger(processingTime="0 seconds")
        .start()
    )


def _whole(query: Any, count: int) -> None:
    query.processAllAvailable()
    query.stop()
    assert streams.progress(query)["rows"].sum() == count
