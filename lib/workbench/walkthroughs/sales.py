"""What is particular to the walkthrough on streaming sales (notebooks/60_streaming_sales): its
schemas, the producer, and the queries over windows. There is no database and no connector: who
sells writes to the topic. `flow` has what every walkthrough has.
"""

import datetime as dt
import json
import threading
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Iterator, Mapping

import pandas
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from .. import hudi
from ..base import ROOT, LakeError, World
from ..base.paths import join_uri
from ..results import streams
from ..source import csv_files
from ..spark import translate_errors
from ..topic import avro, registry, topics
from .walkthrough import Walkthrough

if TYPE_CHECKING:
    from ..results.draw import Picture

DATA = ROOT / "data" / "sales"
SALES_TOPIC, SUMMARY_TOPIC = "pagila.sales.avro", "pagila.sales.summary.avro"
# sales to try things with; what a query makes of them goes to TRIAL.<its name>
SCRATCH_TOPIC = "pagila.sales.trial"
SCRATCH_QUERIES = (
    "complete",
    "update",
    "append",
    "restarted",
    "late",
)  # names of queries, of which three are modes
CSV_FILES = {
    "pagila.sales.csv": ("sales_incremental_large", "|"),
    "pagila.sales.regions.csv": ("sales_regions", ","),
}
SCHEMAS = {
    path.name.removesuffix(".avsc"): json.loads(path.read_text(encoding="utf-8"))
    for path in sorted((DATA / "schemas").glob("*.avsc"))
}
QUERY_NAME = "streaming_to_kafka"
UNASSIGNED_REGION = "Unassigned"  # the region of a country that has none
# The day of the published result, and the pace at which it comes out: 0.75 s of waiting, and what a
# write took
FIRST_EVENT_AT, EVENT_INTERVAL = (
    dt.datetime(2021, 10, 3, 22, 10, 22, 730_000, tzinfo=dt.timezone.utc),
    0.9444,
)
DATABASE = "sales"  # of the catalog
UNLIMITED_RETENTION = {
    "retention.ms": "-1"
}  # of the topics: events of years ago would expire at once by Kafka's default


def _artifact_id(world: World, name: str) -> str:
    """Glue has a registry of keys and one of values: there, the schemas of files are among the
    values.
    """
    return f"{name}-value" if name in CSV_FILES and world.registry.kind == "glue" else name


def register_schemas(world: World) -> pandas.DataFrame:
    """Give the registry the six schemas, each anew (script 10), and return what it has of them."""
    ours = {_artifact_id(world, name): name for name in SCHEMAS}
    registry.delete(world, *ours)
    for artifact, name in ours.items():
        registry.register(world, artifact, SCHEMAS[name])
    found = registry.artifacts(world)
    found = found[found["artifact"].isin(ours)].reset_index(drop=True)
    return found.assign(artifact=found["artifact"].map(ours))


def read_csv(spark: SparkSession, world: World, artifact: str) -> DataFrame:
    """A file of CSV with the columns and types of its schema in the registry, all of which may be
    null.
    """
    name, separator = CSV_FILES[artifact]
    schema = avro.to_spark(registry.latest(world, _artifact_id(world, artifact)))
    columns = T.StructType([T.StructField(field.name, field.dataType) for field in schema])
    make = {T.IntegerType(): int, T.FloatType(): float}
    rows = [
        tuple(make.get(f.dataType, str)(row[f.name]) if row[f.name] else None for f in columns)
        for row in csv_files.read_rows(DATA, name, separator)
    ]
    return spark.createDataFrame(rows, columns)


def read_sales() -> list[dict[str, Any]]:
    """The sales of the file as the producer takes them, in its order: `payment_date` is the time of
    the event, in whole seconds since 1970 (S6 sets it anew, too).
    """
    rows = []
    for n, row in enumerate(csv_files.read_rows(DATA, CSV_FILES["pagila.sales.csv"][0], "|")):
        whole = {name: int(row[name]) for name in ("payment_id", "customer_id")}
        rows.append(
            {
                **row,
                **whole,
                "amount": float(row["amount"]),
                "payment_date": int(event_time(n).timestamp()),
                "city": row["city"] or None,
                "district": row["district"] or None,
            }
        )
    return rows


def event_time(n: int) -> dt.datetime:
    """When the n-th sale was made, in the time of the published run."""
    return FIRST_EVENT_AT + dt.timedelta(seconds=n * EVENT_INTERVAL)


def produce(
    world: World,
    first: int = 0,
    last: int = 1_800,
    *,
    interval: float = 0,
    topic: str = SALES_TOPIC,
) -> int:
    """Send the sales from the first to before the last, key = customer; return how many that are.

    Args:
        pace: seconds between two, each with the time of this moment; 0: all at once, each with the
            time that it has in the published run (`time_of`), so that the windows are those of 28
            minutes.
    """
    key, value = (
        registry.encoder(world, registry.latest_id(world, f"{SALES_TOPIC}-{side}"))
        for side in ("key", "value")
    )
    chosen = read_sales()[first:last]

    def messages() -> Iterator[tuple[bytes, bytes, Mapping[str, Any]]]:
        for n, sale in enumerate(chosen, first):
            at = event_time(n)
            if interval:
                threading.Event().wait(interval)
                at = dt.datetime.now(dt.timezone.utc)
                sale["payment_date"] = int(at.timestamp())
            yield key(sale["customer_id"]), value(sale), {"timestamp": int(at.timestamp() * 1000)}

    topics.create(world, topic, **UNLIMITED_RETENTION)
    topics.produce(world, topic, messages())
    return len(chosen)


def windowed_sales(messages: DataFrame, regions: DataFrame) -> DataFrame:
    """The streaming query: sales by region, in windows of ten minutes that begin every five."""
    good = messages.where("reason IS NULL").select("row.*", "timestamp")
    known = good.join(F.broadcast(regions), "country", "left").fillna(UNASSIGNED_REGION)
    each = known.withWatermark("timestamp", "10 minutes").groupBy(
        "region", F.window("timestamp", "10 minutes", "5 minutes")
    )
    exact = F.col("amount").cast("decimal(38,2)")  # to the cent, in whatever order they are added
    return each.agg(
        F.sum(exact).cast("float").alias("sales"), F.count("*").cast("int").alias("orders")
    ).select(
        "region",
        "sales",
        "orders",
        F.unix_timestamp("window.start").alias("window_start"),
        F.unix_timestamp("window.end").alias("window_end"),
    )


def picture(sale: dt.datetime, newest: dt.datetime) -> "Picture":
    """Draw the windows of the published run, those that the watermark has closed and those that are
    open.

    Args:
        sale: event time of a sale; its line crosses the two windows that count it.
        newest: the newest event time that the query has seen; the watermark is ten minutes behind
            it.
    """
    from ..results import draw  # matplotlib: most who import this module draw nothing

    begins = pandas.date_range(FIRST_EVENT_AT, newest, freq="5min").floor("5min")
    begins = begins.insert(0, begins[0] - dt.timedelta(minutes=5))
    frame = pandas.DataFrame({"start": begins, "end": begins + dt.timedelta(minutes=10)})
    watermark = newest - dt.timedelta(minutes=10)
    closed, still_open = "closed: it ends before the watermark", "open: it still takes sales"
    frame["kind"] = [closed if end <= watermark else still_open for end in frame["end"]]
    marks = {
        f"newest event {newest:%H:%M:%S}": newest,
        f"watermark {watermark:%H:%M:%S}": watermark,
        f"a sale of {sale:%H:%M:%S}": sale,
    }
    return draw.spans(
        frame,
        {closed: draw.GRAY, still_open: draw.PALETTE[3]},
        "Windows of ten minutes, one every five",
        marks=marks,
    )


def start_query(
    spark: SparkSession,
    world: World,
    *,
    name: str = QUERY_NAME,
    mode: str = "complete",
    max_records: int = 0,
    trigger_interval: str = "1 second",
) -> streams.Query:
    """Start a query from the topic of sales into that of the summary, or, by another name, from
    TRIAL into a topic of its own; it goes on where its checkpoint says. Return it.

    Args:
        mode: output mode. most: messages of one batch. every: least time from one batch to the
            next.
    """
    source, topic = (
        (SALES_TOPIC, SUMMARY_TOPIC)
        if name == QUERY_NAME
        else (SCRATCH_TOPIC, f"{SCRATCH_TOPIC}.{name}")
    )
    for each in (source, topic):  # a query reads no topic that is not there
        topics.create(world, each, **UNLIMITED_RETENTION)
    with translate_errors(
        spark,
        "the streaming query was not started",
        f"query {name}",
        "correct what the cause names, and start it again",
        kafka_world=world,
    ):
        # else the first reports are forgotten
        spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "1000000")
        for other in spark.streams.active:  # of a cell that is run once more
            if other.name == name:
                other.stop()
        regions = read_csv(spark, world, "pagila.sales.regions.csv")
        found = windowed_sales(
            streams.messages(
                spark, world, source, schema_topic=SALES_TOPIC, max_records=max_records
            ),
            regions,
        )
        query = (
            streams.encode(found, world, SUMMARY_TOPIC, F.col("window_start").cast("int"))
            .writeStream.format("kafka")
            .options(
                **topics.spark_options(world),
                topic=topic,
                checkpointLocation=checkpoint(world, name),
            )
            .queryName(name)
            .outputMode(mode)
            .trigger(processingTime=trigger_interval)
            .start()
        )
        return streams.Query(spark, world, query)


def checkpoint(world: World, name: str = QUERY_NAME) -> str:
    """Where a query keeps its offsets and its state."""
    return join_uri(f"{world.lake.checkpoints}/streams", name)


def delete_scratch_queries(spark: SparkSession, world: World) -> None:
    """Remove what was tried: queries, their checkpoints, topics."""
    for name in SCRATCH_QUERIES:
        streams.delete_checkpoint(spark, checkpoint(world, name))
    topics.delete(
        world,
        *(
            {SCRATCH_TOPIC, *(f"{SCRATCH_TOPIC}.{name}" for name in SCRATCH_QUERIES)}
            & set(topics.names(world))
        ),
    )


def latest(spark: SparkSession, world: World, topic: str = SUMMARY_TOPIC) -> pandas.DataFrame:
    """The batch read: of each region and window the row that came last, the newest window first,
    then by sales.
    """
    newest = [F.desc(name) for name in ("timestamp", "partition", "offset")]
    last = Window.partitionBy("region", "window_start").orderBy(*newest)
    found = streams.messages(spark, world, topic, schema_topic=SUMMARY_TOPIC, stream=False)
    good = found.where("reason IS NULL").select("row.*", "timestamp", "partition", "offset")
    rows = good.withColumn("n", F.row_number().over(last))
    with translate_errors(
        spark,
        "the topic was not read",
        topic,
        "see that it is there, and run this again",
        kafka_world=world,
    ):
        return (
            rows.where("n = 1")
            .select("region", "sales", "orders", "window_start", "window_end")
            .orderBy(F.desc("window_start"), F.desc("sales"))
            .toPandas()
        )


def format_summary(rows: pandas.DataFrame) -> pandas.DataFrame:
    """These rows as they are published: sales_region, sales and orders as text, the windows' bounds
    to the minute.
    """
    bounds = {
        name: pandas.to_datetime(rows[name], unit="s").dt.strftime("%Y-%m-%d %H:%M")
        for name in ("window_start", "window_end")
    }
    return pandas.DataFrame(
        {
            "sales_region": rows["region"],
            "sales": rows["sales"].map("{:,.2f}".format),
            "orders": rows["orders"].map("{:.0f}".format),
            **bounds,
        }
    )


def expected_summary(world: World, topic: str = SALES_TOPIC) -> pandas.DataFrame:
    """The same as `latest` of a topic of sales, reckoned without Spark: each message is decoded by
    itself, and its amount added, to the cent, to the two windows that its time lies in.
    """
    decode = registry.Decoder(world)
    regions = {row["country"]: row["region"] for row in csv_files.read_rows(DATA, "sales_regions")}
    found: dict[tuple[str, int], list[Any]] = {}
    messages = topics.read(world, topic)
    for message in messages[messages["value"].notna()].itertuples():
        try:
            sale = decode(
                message.value.encode() if isinstance(message.value, str) else message.value
            ).record
        except LakeError:  # poison
            continue
        newest = int(message.timestamp.timestamp()) // 300 * 300
        for begin in (newest - 300, newest):
            sums = found.setdefault(
                (regions.get(sale["country"], UNASSIGNED_REGION), begin), [Decimal(), 0]
            )
            sums[0] += Decimal(f"{sale['amount']:.2f}")
            sums[1] += 1
    rows = [
        (region, float(sales), n, begin, begin + 600)
        for (region, begin), (sales, n) in found.items()
    ]
    frame = pandas.DataFrame(
        rows, columns=["region", "sales", "orders", "window_start", "window_end"]
    )
    return frame.sort_values(["window_start", "sales"], ascending=False, ignore_index=True)


def summary_table(world: World) -> hudi.Table:
    """The windows in the lake. Of two states of a window the one with more orders is the later."""
    return hudi.table(
        world, "sales_summary", key=("region", "window_start"), ordering="orders", database=DATABASE
    )


def _schemas_registered(world: World) -> bool:
    return {_artifact_id(world, name) for name in SCHEMAS} <= set(registry.names(world))


def _all_sales_streamed(world: World) -> bool:
    """Whether notebook 62 has sent all sales, and its query has seen them."""
    if not {SALES_TOPIC, SUMMARY_TOPIC} <= set(topics.names(world)):
        return False
    return topics.offset_span(world, SALES_TOPIC) >= 1_800 and bool(
        topics.offset_span(world, SUMMARY_TOPIC)
    )


flow = Walkthrough(
    captures=(),
    watermark=False,
    folder=ROOT / "notebooks" / "60_streaming_sales",
    own_topics=(
        SALES_TOPIC,
        SUMMARY_TOPIC,
        SCRATCH_TOPIC,
        *(f"{SCRATCH_TOPIC}.{name}" for name in SCRATCH_QUERIES),
    ),
    own_schemas=(*CSV_FILES, *(f"{artifact}-value" for artifact in CSV_FILES)),
    streaming_queries=(QUERY_NAME, *SCRATCH_QUERIES),
    start_query=start_query,
    scratch_tables=lambda world: [summary_table(world)],
    catalog_databases=(DATABASE,),
    completion_checks={
        "61_schemas": _schemas_registered,
        "62_streaming_query": _all_sales_streamed,
    },
    services=("kafka", "spark", "apicurio"),
)
