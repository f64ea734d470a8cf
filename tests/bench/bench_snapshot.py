"""A snapshot of 600,000 rows from PostgreSQL to Hudi, in Avro and in JSON: ingested while it runs,
against Debezium alone, into the topic. The two alternate."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Optional

from bench_line import Line
from workbench import connect, hudi, stack
from workbench.source import postgres
from workbench.topic import topics
from workbench.walkthroughs import pagila
from workbench.walkthroughs.capture import Capture
from workbench.walkthroughs.flow import Flow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType
    from workbench.base.params import World

COPIES, ROUNDS, DATABASE, NAME = 1_000, 3, "pagila", "many_addresses"
# Each address of Pagila a thousand times, with the table's columns and a key of its own.
MANY = f"""
CREATE TABLE {NAME} AS
SELECT a.address_id + copy * 1000 AS address_id, address, address2, district, city_id, postal_code, phone, last_update
  FROM address AS a CROSS JOIN generate_series(0, {COPIES - 1}) AS copy"""


JSON = {
    f"{part}.converter{key}": value
    for part in ("key", "value")
    for key, value in (
        ("", "org.apache.kafka.connect.json.JsonConverter"),
        (".schemas.enable", "true"),
    )
}


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
    """Connector applied → every row in the topic, alone; → every row in Hudi, ingested meanwhile."""
    stack.ensure_running(world, "apicurio")
    pagila.loader.load(world, confirm=lambda _: True, progress=lambda _: None)
    postgres.execute(world, MANY, database=DATABASE)
    postgres.execute(world, f"ALTER TABLE {NAME} ADD PRIMARY KEY (address_id)", database=DATABASE)
    postgres.grant_replication(world, [f"public.{NAME}"], DATABASE)
    postgres.create_publication(world, NAME, [f"public.{NAME}"], DATABASE)
    rows = FLOW.count(world)
    avro = _measure(world, spark, "avro", None, rows, 0.9)
    names = hudi.read(spark, FLOW.table(world)).columns
    own = [name for name in names if not name.startswith("_hoodie")]
    schema = hudi.read(spark, FLOW.table(world)).select(own).schema
    return [avro, _measure(world, spark, "json", schema, rows, 0.8)]


def _measure(
    world: World,
    spark: SparkSession,
    format: str,
    schema: Optional[StructType],
    rows: int,
    goal: float,
) -> Line:
    pairs = [
        [_once(world, spark, format, schema, rows, overlapped) for overlapped in (False, True)]
        for _ in range(ROUNDS + 1)
    ][1:]  # the first warms up
    alone, overlapped = (statistics.median(seconds) for seconds in zip(*pairs))
    return Line(
        f"snapshot of {rows:,} rows in {format}, ingested into Hudi while it runs",
        f"{rows / overlapped:,.0f} rows/s: {overlapped:.1f} s",
        f"Debezium alone: {rows / alone:,.0f} rows/s, {alone:.1f} s",
        statistics.median(a / b for a, b in pairs),
        "×",
        goal,
        more_is_better=True,
    )


def _once(
    world: World,
    spark: SparkSession,
    format: str,
    schema: Optional[StructType],
    rows: int,
    overlapped: bool,
) -> float:
    """Take a new snapshot; return the seconds until the topic, or else the lake, has all rows."""
    table, topic, name = FLOW.table(world), FLOW.topic(world), "pagila_source"
    connect.delete(world, name)
    postgres.drop_slot(world, NAME, DATABASE)
    topics.delete(world, topic)
    hudi.drop(spark, world, table)
    config = {k: v for k, v in _config(world, name).items() if "converter" not in k}
    config.update(JSON if format == "json" else {})
    begun = time.monotonic()
    connect.apply(world, name, _config(world, name) if format == "avro" else config)
    topics.wait_for_messages(world, topic, 1, connector=name)
    if not overlapped:
        topics.wait_for_messages(world, topic, rows, connector=name)
        return time.monotonic() - begun
    source = hudi.Topic(topic, format=format)
    hudi.ingest(
        spark,
        world,
        source,
        table,
        schema=schema,
        until=lambda: topics.offset_span(world, topic) >= rows,
    )
    seconds = time.monotonic() - begun
    lake = hudi.read(spark, table)
    if lake.count() != rows or lake.select("address_id").distinct().count() != rows:
        raise SystemExit(
            f"{table.name} does not hold {rows:,} rows: the measurement would mean nothing"
        )
    operations = set(hudi.commits(table)["operation"])
    if operations != {"BULK_INSERT"}:
        raise SystemExit(f"{table.name} was written by {operations}: another thing was measured")
    return seconds
