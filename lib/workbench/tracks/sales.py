"""Streaming sales (notebooks/60_streaming_sales): the schemas, the producer, the windowed queries.

The walkthrough has no database and no connector. The checkout publishes each sale to a topic.
"""

from __future__ import annotations

import datetime as dt
import json
import threading
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Callable, Iterator

import pandas
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from .. import hudi
from ..base import ROOT, LakeError, World
from ..base.paths import join_uri
from ..flow.resources import Owns, Product
from ..query import streams
from ..source.row_files import read_dicts
from ..spark import translate_errors
from ..topic import avro, registry, topics
from .track import Step, Track

if TYPE_CHECKING:
    from ..display.draw import Picture

DATA = ROOT / "data" / "sales"
SALES_TOPIC, SUMMARY_TOPIC = "pagila.sales.avro", "pagila.sales.summary.avro"
SCRATCH_TOPIC = "pagila.sales.trial"  # sales for experiments
# names of scratch queries (three of them are output modes); each publishes to SCRATCH_TOPIC.<name>
SCRATCH_QUERIES = ("complete", "update", "append", "restarted", "late")
CSV_FILES = {  # {schema: (file, separator)}
    "pagila.sales.csv": ("sales_incremental_large", "|"),
    "pagila.sales.regions.csv": ("sales_regions", ","),
}
SCHEMAS = {
    path.name.removesuffix(".avsc"): json.loads(path.read_text(encoding="utf-8"))
    for path in sorted((DATA / "schemas").glob("*.avsc"))
}
QUERY_NAME = "streaming_to_kafka"
UNASSIGNED_REGION = "Unassigned"  # the region of a country without one
# The first event time of the published result. Its event times fit an interval of 0.9444 s: a pause of
# 0.75 s and the duration of a write.
FIRST_EVENT_AT = dt.datetime(2021, 10, 3, 22, 10, 22, 730_000, tzinfo=dt.timezone.utc)
EVENT_INTERVAL = 0.9444
DATABASE = "sales"  # the catalog database
PROGRESS_REPORTS = 10_000  # that Spark keeps of a query, also of one that runs for months
# with the default retention Kafka would delete events that are years old at once
UNLIMITED_RETENTION = {"retention.ms": "-1"}


def _artifact_id(world: World, name: str) -> str:
    """Return the id of a schema in the registry.

    Glue has one registry for keys and one for values; the schemas of files are among the values.
    """
    return f"{name}-value" if name in CSV_FILES and world.registry.kind == "glue" else name


def register_schemas(world: World) -> pandas.DataFrame:
    """Register the six schemas again (script 10), and return their entries in the registry."""
    names = {_artifact_id(world, name): name for name in SCHEMAS}
    registry.delete(world, *names)
    for artifact, name in names.items():
        registry.register(world, artifact, SCHEMAS[name])
    artifacts = registry.artifacts(world)
    artifacts = artifacts[artifacts["artifact"].isin(names)].reset_index(drop=True)
    return artifacts.assign(artifact=artifacts["artifact"].map(names))


def read_csv(spark: SparkSession, world: World, artifact: str) -> DataFrame:
    """Return a CSV file with the columns and types of its schema in the registry.

    All columns are nullable.
    """
    name, separator = CSV_FILES[artifact]
    schema = avro.to_spark(registry.latest(world, _artifact_id(world, artifact)))
    columns = T.StructType([T.StructField(field.name, field.dataType) for field in schema])
    parsers: dict[T.DataType, Callable[[str], Any]] = {T.IntegerType(): int, T.FloatType(): float}

    def parse(text: str, type_: T.DataType) -> Any:
        return parsers.get(type_, str)(text) if text else None

    rows = [
        tuple(parse(row[field.name], field.dataType) for field in columns)
        for row in read_dicts(DATA / f"{name}.csv", separator)
    ]
    return spark.createDataFrame(rows, columns)


def read_sales() -> list[dict[str, Any]]:
    """Return the sales in the order of the file, with the types of the schema.

    `payment_date` is the event time in whole seconds since 1970 (S6 overwrites it, too).
    """
    name, separator = CSV_FILES["pagila.sales.csv"]
    return [
        {
            **row,
            "payment_id": int(row["payment_id"]),
            "customer_id": int(row["customer_id"]),
            "amount": float(row["amount"]),
            "payment_date": int(event_time(n).timestamp()),
            "city": row["city"] or None,
            "district": row["district"] or None,
        }
        for n, row in enumerate(read_dicts(DATA / f"{name}.csv", separator))
    ]


def event_time(n: int) -> dt.datetime:
    """Return the event time of the n-th sale in the published run."""
    return FIRST_EVENT_AT + dt.timedelta(seconds=n * EVENT_INTERVAL)


def produce(
    world: World,
    first: int = 0,
    last: int = 1_800,
    *,
    interval: float = 0,
    topic: str = SALES_TOPIC,
) -> int:
    """Publish sales with the customer as the key.

    Args:
        world: the world.
        first: number of the first sale.
        last: number after the last sale.
        interval: seconds between two sales; the event time is the current time. 0 publishes all
            sales at once, with the event times of the published run (`event_time`), which cover 28
            minutes.
        topic: name of the topic.

    Returns:
        The number of published sales.
    """
    encode_key, encode_value = (
        registry.encoder(world, registry.latest_id(world, f"{SALES_TOPIC}-{side}"))
        for side in ("key", "value")
    )
    sales = read_sales()[first:last]

    def messages() -> Iterator[tuple[bytes, bytes, dict[str, Any]]]:
        for n, sale in enumerate(sales, first):
            time = event_time(n)
            if interval:
                threading.Event().wait(interval)
                time = dt.datetime.now(dt.timezone.utc)
                sale["payment_date"] = int(time.timestamp())
            options = {"timestamp": int(time.timestamp() * 1000)}
            yield encode_key(sale["customer_id"]), encode_value(sale), options

    topics.create(world, topic, 1, **UNLIMITED_RETENTION)
    topics.produce(world, topic, messages())
    return len(sales)


def windowed_sales(messages: DataFrame, regions: DataFrame) -> DataFrame:
    """Return the streaming query: sales by region in sliding windows.

    A window is ten minutes long; a new window starts every five minutes.
    """
    sales = messages.where("reason IS NULL").select("row.*", "timestamp")
    with_region = sales.join(F.broadcast(regions), "country", "left").fillna(UNASSIGNED_REGION)
    windows = with_region.withWatermark("timestamp", "10 minutes").groupBy(
        "region", F.window("timestamp", "10 minutes", "5 minutes")
    )
    amount = F.col("amount").cast("decimal(38,2)")  # exact in any order of addition
    return windows.agg(
        F.sum(amount).cast("float").alias("sales"), F.count("*").cast("int").alias("orders")
    ).select(
        "region",
        "sales",
        "orders",
        F.unix_timestamp("window.start").alias("window_start"),
        F.unix_timestamp("window.end").alias("window_end"),
    )


def picture(sale: dt.datetime, newest: dt.datetime) -> Picture:
    """Draw the windows of the published run, closed (before the watermark) and open ones.

    Args:
        sale: event time of a sale; its line crosses the two windows that contain the sale.
        newest: the newest event time; the watermark is ten minutes earlier.
    """
    from ..display import draw  # matplotlib, which few notebooks need

    starts = pandas.date_range(FIRST_EVENT_AT, newest, freq="5min").floor("5min")
    starts = starts.insert(0, starts[0] - dt.timedelta(minutes=5))
    frame = pandas.DataFrame({"start": starts, "end": starts + dt.timedelta(minutes=10)})
    watermark = newest - dt.timedelta(minutes=10)
    closed_kind, open_kind = "closed: it ends before the watermark", "open: it still takes sales"
    frame["kind"] = [closed_kind if end <= watermark else open_kind for end in frame["end"]]
    marks = {
        f"newest event {newest:%H:%M:%S}": newest,
        f"watermark {watermark:%H:%M:%S}": watermark,
        f"a sale of {sale:%H:%M:%S}": sale,
    }
    colors = {closed_kind: draw.GRAY, open_kind: draw.PALETTE[3]}
    return draw.spans(frame, colors, "Windows of ten minutes, one every five", marks=marks)


def start_query(
    spark: SparkSession,
    world: World,
    *,
    name: str = QUERY_NAME,
    mode: str = "complete",
    max_records: int = 0,
    trigger_interval: str = "1 second",
) -> streams.Query:
    """Start a streaming query, which continues at its checkpoint.

    The query reads SALES_TOPIC and publishes to SUMMARY_TOPIC. With another name it reads SCRATCH_TOPIC
    and publishes to SCRATCH_TOPIC.<name>.

    Args:
        spark: the Spark session.
        world: the world.
        name: name of the query.
        mode: output mode.
        max_records: maximum number of messages in one batch; 0 for no limit.
        trigger_interval: minimum time from one batch to the next.
    """
    source, topic = SALES_TOPIC, SUMMARY_TOPIC
    if name != QUERY_NAME:
        source, topic = SCRATCH_TOPIC, f"{SCRATCH_TOPIC}.{name}"
    for topic_name in (source, topic):  # a query fails if its topic does not exist
        topics.create(world, topic_name, 1, **UNLIMITED_RETENTION)
    with translate_errors(
        spark,
        "the streaming query was not started",
        f"query {name}",
        "fix the cause, and start it again",
        kafka_world=world,
    ):
        # a hundred by default: fewer than the batches of a notebook
        spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", PROGRESS_REPORTS)
        for active in spark.streams.active:  # started by an earlier run of the cell
            if active.name == name:
                active.stop()
        regions = read_csv(spark, world, "pagila.sales.regions.csv")
        messages = streams.messages(
            spark, world, source, schema_topic=SALES_TOPIC, max_records=max_records
        )
        summary = windowed_sales(messages, regions)
        options = {"topic": topic, "checkpointLocation": checkpoint(world, name)}
        query = (
            streams.encode(summary, world, SUMMARY_TOPIC, F.col("window_start").cast("int"))
            .writeStream.format("kafka")
            .options(**topics.spark_options(world), **options)
            .queryName(name)
            .outputMode(mode)
            .trigger(processingTime=trigger_interval)
            .start()
        )
        return streams.Query(spark, world, query)


def checkpoint(world: World, name: str = QUERY_NAME) -> str:
    """Return the URI of a query's checkpoint."""
    return join_uri(f"{world.lake.checkpoints}/streams", name)


def delete_scratch_queries(spark: SparkSession, world: World) -> None:
    """Remove the scratch queries with their checkpoints and topics."""
    for name in SCRATCH_QUERIES:
        streams.delete_checkpoint(spark, checkpoint(world, name))
    topics.delete(world, *({*_SCRATCH_TOPICS} & {*topics.names(world)}))


def latest(spark: SparkSession, world: World, topic: str = SUMMARY_TOPIC) -> pandas.DataFrame:
    """Read the last row of each region and window from a summary topic, as a batch.

    Returns:
        Columns region, sales, orders, window_start and window_end (seconds since 1970); the latest
        window first, then the largest sales.
    """
    newest = [F.desc(name) for name in ("timestamp", "partition", "offset")]
    versions = Window.partitionBy("region", "window_start").orderBy(*newest)
    messages = streams.messages(spark, world, topic, schema_topic=SUMMARY_TOPIC, stream=False)
    rows = messages.where("reason IS NULL").select("row.*", "timestamp", "partition", "offset")
    with translate_errors(
        spark,
        "the topic was not read",
        topic,
        "check that it exists, and run this again",
        kafka_world=world,
    ):
        return (
            rows.withColumn("n", F.row_number().over(versions))
            .where("n = 1")
            .select("region", "sales", "orders", "window_start", "window_end")
            .orderBy(F.desc("window_start"), F.desc("sales"))
            .toPandas()
        )


def format_summary(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Format rows of `latest` like the published result.

    Returns:
        Columns sales_region, sales, orders, window_start, window_end, all as text; times are rounded
        down to minutes.
    """
    times = {
        name: pandas.to_datetime(rows[name], unit="s").dt.strftime("%Y-%m-%d %H:%M")
        for name in ("window_start", "window_end")
    }
    return pandas.DataFrame(
        {
            "sales_region": rows["region"],
            "sales": rows["sales"].map("{:,.2f}".format),
            "orders": rows["orders"].map("{:.0f}".format),
            **times,
        }
    )


def expected_summary(world: World, topic: str = SALES_TOPIC) -> pandas.DataFrame:
    """Compute what `latest` returns, without Spark.

    Each message of the sales topic is decoded separately, and its amount is added in cents to the two
    windows of its event time.
    """
    decode = registry.Decoder(world)
    regions = {row["country"]: row["region"] for row in read_dicts(DATA / "sales_regions.csv")}
    totals: dict[tuple[str, int], tuple[Decimal, int]] = {}
    messages = topics.read(world, topic)
    for message in messages[messages["value"].notna()].itertuples():
        value = message.value
        try:
            sale = decode(value.encode() if isinstance(value, str) else value).record
        except LakeError:  # a malformed message
            continue
        region = regions.get(sale["country"], UNASSIGNED_REGION)
        last_start = int(message.timestamp.timestamp()) // 300 * 300
        for start in (last_start - 300, last_start):
            amount, orders = totals.get((region, start), (Decimal(), 0))
            totals[region, start] = (amount + Decimal(f"{sale['amount']:.2f}"), orders + 1)
    rows = [
        (region, float(amount), orders, start, start + 600)
        for (region, start), (amount, orders) in totals.items()
    ]
    columns = ["region", "sales", "orders", "window_start", "window_end"]
    frame = pandas.DataFrame(rows, columns=columns)
    return frame.sort_values(["window_start", "sales"], ascending=False, ignore_index=True)


def summary_table(world: World) -> hudi.Table:
    """Return the lake table of the windows. The number of orders is the ordering field."""
    key = ("region", "window_start")
    return hudi.table(world, "sales_summary", key=key, ordering="orders", database=DATABASE)


def _schemas_registered(world: World) -> bool:
    return {_artifact_id(world, name) for name in SCHEMAS} <= set(registry.names(world))


def _all_sales_streamed(world: World) -> bool:
    """Return whether notebook 62 has published all sales, and its query has results."""
    if not {SALES_TOPIC, SUMMARY_TOPIC} <= set(topics.names(world)):
        return False
    sales, windows = (topics.offset_span(world, topic) for topic in (SALES_TOPIC, SUMMARY_TOPIC))
    return sales >= 1_800 and windows > 0


_SCRATCH_TOPICS = (SCRATCH_TOPIC, *(f"{SCRATCH_TOPIC}.{name}" for name in SCRATCH_QUERIES))

_TOPICS = (SALES_TOPIC, SUMMARY_TOPIC, *_SCRATCH_TOPICS)
TRACK = Track(
    "60_streaming_sales",
    (
        Step("61_schemas", Product.SOURCE, _schemas_registered),
        Step("62_streaming_query", Product.TOPICS, _all_sales_streamed),
    ),
    owns=Owns(
        topics=_TOPICS,
        schemas=(
            *CSV_FILES,
            *(f"{topic}-key" for topic in _TOPICS),
            *(f"{name}-value" for name in (*CSV_FILES, *_TOPICS)),
        ),
        tables=lambda world: [summary_table(world)],
        databases=(DATABASE,),
        folders=tuple(f"checkpoints/streams/{name}" for name in (QUERY_NAME, *SCRATCH_QUERIES)),
    ),
    services=("kafka", "spark", "apicurio"),
    start_query=start_query,
)
