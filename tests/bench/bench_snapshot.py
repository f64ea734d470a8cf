"""A snapshot of 600,000 rows, in Avro and in JSON, from PostgreSQL to Hudi, beside what Debezium alone
puts into the topic."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

from bench_line import Line
from workbench import connect, hudi, stack
from workbench.base.wait import wait_until
from workbench.flow.capture import Capture
from workbench.flow.flow import CaptureFlow
from workbench.source import postgres
from workbench.topic import topics
from workbench.tracks import pagila

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from workbench.base.params import World

COPIES, ROUNDS, DATABASE, NAME = 1_000, 3, "pagila", "many_addresses"
# Each address of Pagila a thousand times, with the table's columns and a key of its own.
MANY = f"""
CREATE TABLE {NAME} AS
SELECT a.address_id + copy * 1000 AS address_id, address, address2, district, city_id, postal_code, phone, last_update
  FROM address AS a CROSS JOIN generate_series(0, {COPIES - 1}) AS copy"""


# Debezium's defaults are 2,048, 8,192 and 10,240; those of Kafka's producer 16 KiB, 0 ms and none.
LARGER_BATCHES = {
    "max.batch.size": "16384",
    "max.queue.size": "65536",
    "snapshot.fetch.size": "50000",
    "producer.override.batch.size": "262144",
    "producer.override.linger.ms": "20",
    "producer.override.compression.type": "lz4",
}
JSON_CONVERTER = "org.apache.kafka.connect.json.JsonConverter"
JSON_CONVERTERS = {
    "key.converter": JSON_CONVERTER,
    "key.converter.schemas.enable": "false",
    "value.converter": JSON_CONVERTER,
    "value.converter.schemas.enable": "false",
}
VARIANTS = {"Avro": {}, "Avro, larger batches": LARGER_BATCHES, "JSON": JSON_CONVERTERS}
JSON_COLUMNS = (
    "address_id int, address string, address2 string, district string, city_id int, postal_code string, "
    "phone string, last_update string, __op string, __lsn long, __source_ts_ms long, __deleted string"
)


def _config(world: World, name: str, variant: str = "Avro") -> dict[str, str]:
    """The walkthrough's own connector, for this table."""
    left_out = ["column.exclude.list"]
    if variant == "JSON":
        left_out += ["key.converter.", "value.converter."]
    usual = {
        key: value
        for key, value in connect.config(world, name).items()
        if not key.startswith(tuple(left_out))
    }
    return {
        **usual,
        "slot.name": NAME,
        "topic.prefix": "snapshot",
        "table.include.list": f"public.{NAME}",
        "publication.name": NAME,
        **VARIANTS[variant],
    }


FLOW = CaptureFlow(
    (
        Capture(
            f"public.{NAME}",
            "address_id",
            "pagila_source",
            format="avro",
            lake=({"name": NAME, "base": NAME, "ordering": "__lsn"},),
        ),
    ),
    DATABASE,
    _config,
)


def through(world: World, spark: SparkSession) -> list[Line]:
    """Connector applied → every row in the topic → every row in Hudi; rates of the first alone, and
    of both."""
    stack.ensure_running(world, "apicurio")
    pagila.loader.load(world, confirm=lambda _: True, progress=lambda _: None)
    postgres.execute(world, MANY, database=DATABASE)
    postgres.execute(world, f"ALTER TABLE {NAME} ADD PRIMARY KEY (address_id)", database=DATABASE)
    postgres.grant_replication(world, [f"public.{NAME}"], DATABASE)
    postgres.create_publication(world, NAME, [f"public.{NAME}"], DATABASE)
    rows = FLOW.count(world)
    each = [  # in turns; the first round warms up
        {variant: _once(world, spark, rows, variant) for variant in VARIANTS}
        for _ in range(ROUNDS + 1)
    ][1:]
    return [_line(variant, rows, [took[variant] for took in each]) for variant in VARIANTS]


def _line(variant: str, rows: int, each: list[tuple[float, float]]) -> Line:
    alone, on = (statistics.median(seconds) for seconds in zip(*each))
    return Line(
        f"snapshot of {rows:,} rows through to Hudi, {variant}, one commit",
        f"{rows / (alone + on):,.0f} rows/s: to the topic {alone:.1f} s, on to Hudi {on:.1f} s",
        f"Debezium alone: {rows / alone:,.0f} rows/s",
        alone / (alone + on),
        "×",
        0.8 if variant == "JSON" else 0.9,
        more_is_better=True,
    )


def _once(world: World, spark: SparkSession, rows: int, variant: str) -> tuple[float, float]:
    """Return the seconds until every row is in the topic, and from there until it is in Hudi."""
    table, topic = FLOW.table(world), FLOW.topic(world)
    is_json = variant == "JSON"
    source = hudi.Topic(topic) if is_json else FLOW.source(world)
    schema = spark.createDataFrame([], JSON_COLUMNS).schema if is_json else None
    connect.delete(world, "pagila_source")
    postgres.drop_slot(world, NAME, DATABASE)
    topics.delete(world, topic)
    hudi.drop(spark, world, table)
    begun = time.monotonic()
    connect.apply(world, "pagila_source", _config(world, "pagila_source", variant))
    wait_until(
        lambda: topics.offset_span(world, topic) >= rows,
        "the snapshot",
        timeout=300,
        interval=0.02,
        failure_reason=lambda: connect.failure(world, "pagila_source"),
    )
    there = time.monotonic()
    hudi.ingest(spark, world, source, table, schema=schema, batch=rows)
    done = time.monotonic()
    if hudi.read(spark, table).select("address_id").distinct().count() != rows:
        raise SystemExit(
            f"{table.name} does not hold {rows:,} rows: the measurement would mean nothing"
        )
    return there - begun, done - there
