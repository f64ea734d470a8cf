"""How fast the landing is: a topic of JSON into lines, one of Avro into Parquet, each beside a
plain copy by Spark."""

from __future__ import annotations

import contextlib
import itertools
import statistics
from typing import TYPE_CHECKING, Any

from bench_line import Line, outbox_rows, seconds
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from workbench import connect, landing, stack
from workbench.base.wait import wait_until
from workbench.source import postgres
from workbench.topic import topics
from workbench.tracks import outbox

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from workbench.base.params import World

COPIES, PARTITIONS, ROUNDS = 4, 2, 3
FORMATS = {"json": ("json", "JsonFormat", 30_000), "avro": ("parquet", "ParquetFormat", 20_000)}


def landed(world: World, spark: SparkSession) -> list[Line]:
    """Both topics: Debezium's own messages of the outbox, four times over, in as many partitions as
    there are cores."""
    stack.ensure_running(world, "apicurio")
    return [_line(world, spark, kind, outbox_rows(world)) for kind in FORMATS]


def _line(world: World, spark: SparkSession, kind: str, rows: int) -> Line:
    format, name, goal = FORMATS[kind]
    topic, count = _filled(world, kind, rows), rows * COPIES
    museum = {
        k: v
        for k, v in connect.config(world, "moma_sink").items()
        if kind == "avro" or "converter" not in k
    }
    sink = {
        **museum,
        "topics": topic,
        "format.class": f"io.confluent.connect.s3.format.{format}.{name}",
    }
    del sink["topics.regex"]
    copy = f"{world.lake.root}/bench/copy"
    took: dict[str, list[float]] = {"landing": [], "copy": []}
    for _ in range(ROUNDS + 1):  # the first warms up
        landing.drop(world, sink)
        took["landing"].append(seconds(lambda: _whole(landing.run(world, sink), count)))
        took["copy"].append(seconds(lambda: _copied(world, spark, topic, format, copy)))
    ours, plain = (statistics.median(t[1:]) for t in took.values())
    return Line(
        f"landing of {count:,} rows, {kind} to {'Parquet' if kind == 'avro' else 'lines'}",
        f"{ours:.1f} s",
        f"plain Spark copy of the topic: {plain:.1f} s, {plain / ours:.2f} × of its speed",
        count / ours,
        "rows/s",
        goal,
        more_is_better=True,
    )


def _filled(world: World, kind: str, rows: int) -> str:
    """A topic with copies of what a connector makes of the snapshot, with JSON's converter or
    Avro's."""
    name, json = f"landing_{kind}", connect.config(world, outbox.CONNECTOR)
    converters = json if kind == "json" else connect.config(world, "moma_source")
    config = {
        **{k: v for k, v in json.items() if "converter" not in k},
        "topic.prefix": name,
        "slot.name": name,
        **{k: v for k, v in converters.items() if "converter" in k},
    }
    source, topic = f"{name}.{outbox.TABLE}", f"{name}_copies"
    connect.apply(world, name, config)
    wait_until(
        lambda: topics.offset_span(world, source) >= rows,
        "the snapshot",
        timeout=300,
        failure_reason=lambda: connect.failure(world, name),
    )
    connect.delete(world, name)
    postgres.drop_slot(world, name)
    admin, producer = (
        AdminClient(topics.settings(world)),
        Producer(topics.settings(world, **{"linger.ms": 20})),
    )
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(20)
    with contextlib.closing(topics.consume(world, source, {0: 0}, {0: rows})) as found:
        messages = [(m.key(), m.value()) for m in found]
    for number, (key, value) in enumerate(
        itertools.chain.from_iterable(itertools.repeat(messages, COPIES))
    ):
        producer.produce(topic, key=key, value=value, partition=number % PARTITIONS)
        if number % 10_000 == 0:
            producer.flush(60)
    producer.flush(60)
    return topic


def _whole(done: Any, rows: int) -> None:
    if (done.records, done.dead_letters) != (rows, 0):
        raise SystemExit(
            f"{done!r} is not all of {rows:,} records: the measurement would mean nothing"
        )


def _copied(world: World, spark: SparkSession, topic: str, format: str, place: str) -> None:
    """The values as they are, by Spark alone."""
    messages = (
        spark.read.format("kafka")
        .options(**topics.spark_options(world), subscribe=topic, startingOffsets="earliest")
        .load()
    )
    values = messages.selectExpr("CAST(value AS string) value" if format == "json" else "value")
    writer = values.write.mode("overwrite")
    writer.text(place) if format == "json" else writer.parquet(place)
