"""A snapshot of 600,000 rows, in Avro, from PostgreSQL to Hudi, beside what Debezium alone puts
into the topic."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

from bench_line import Line
from workbench import connect, hudi, stack
from workbench.base.wait import wait_until
from workbench.source import postgres
from workbench.topic import topics
from workbench.walkthroughs import pagila
from workbench.walkthroughs.capture import Capture
from workbench.walkthroughs.flow import Flow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from workbench.base.params import World

COPIES, ROUNDS, DATABASE, NAME = 1_000, 3, "pagila", "many_addresses"
# Each address of Pagila a thousand times, with the table's columns and a key of its own.
MANY = f"""
CREATE TABLE {NAME} AS
SELECT a.address_id + copy * 1000 AS address_id, address, address2, district, city_id, postal_code, phone, last_update
  FROM address AS a CROSS JOIN generate_series(0, {COPIES - 1}) AS copy"""


def _config(world: World, name: str) -> dict[str, str]:
    """The walkthrough's own connector, for this table."""
    usual = {k: v for k, v in connect.config(world, name).items() if k != "column.exclude.list"}
    return {
        **usual,
        "slot.name": NAME,
        "topic.prefix": "snapshot",
        "table.include.list": f"public.{NAME}",
        "publication.name": NAME,
    }


FLOW = Flow(
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
    watermark=False,
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
    each = [_once(world, spark, rows) for _ in range(ROUNDS + 1)][1:]  # the first warms up
    alone, on = (statistics.median(seconds) for seconds in zip(*each))
    return [
        Line(
            f"snapshot of {rows:,} rows through to Hudi, Avro, one commit",
            f"{rows / (alone + on):,.0f} rows/s: to the topic {alone:.1f} s, on to Hudi {on:.1f} s",
            f"Debezium alone: {rows / alone:,.0f} rows/s",
            alone / (alone + on),
            "×",
            0.6,
            more_is_better=True,
        )
    ]


def _once(world: World, spark: SparkSession, rows: int) -> tuple[float, float]:
    table, topic, source = FLOW.table(world), FLOW.topic(world), FLOW.source(world)
    connect.delete(world, "pagila_source")
    postgres.drop_slot(world, NAME, DATABASE)
    topics.delete(world, topic)
    hudi.drop(spark, world, table)
    begun = time.monotonic()
    connect.apply(world, "pagila_source", _config(world, "pagila_source"))
    wait_until(
        lambda: topics.offset_span(world, topic) >= rows,
        "the snapshot",
        timeout=300,
        interval=0.02,
        failure_reason=lambda: connect.failure(world, "pagila_source"),
    )
    there = time.monotonic()
    hudi.ingest(spark, world, source, table, batch=rows)
    done = time.monotonic()
    if hudi.read(spark, table).select("address_id").distinct().count() != rows:
        raise SystemExit(
            f"{table.name} does not hold {rows:,} rows: the measurement would mean nothing"
        )
    return there - begun, done - there
