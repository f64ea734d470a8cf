"""Streaming queries over topics in Avro: decode messages, encode rows, and report on a query."""

import json
from collections import Counter
from typing import Any, Union

import pandas
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import to_avro

from ..base import World
from ..hudi import decode
from ..hudi.decode_avro import AvroSchemas
from ..topic import registry, topics

# How far an event time may be ahead of this clock. A later event would advance the watermark, so that
# all other events would be late
MAX_FUTURE_SKEW = "10 minutes"
PROGRESS_COLUMNS = [
    "batch",
    "at",
    "rows",
    "rows_per_second",
    "processed_per_second",
    "seconds",
    "watermark",
    "newest",
    "state_rows",
    "dropped_groups",
    "written",
    "begin",
    "end",
]


def messages(
    spark: SparkSession,
    world: World,
    topic: str,
    *,
    schema_topic: str = "",
    stream: bool = True,
    max_records: int = 0,
) -> DataFrame:
    """Read and decode the messages of a topic.

    Args:
        spark: the session.
        world: the world.
        topic: the topic.
        schema_topic: the topic whose schemas the messages were written with, by default this one.
        stream: read a stream from its first message on; else the messages that exist now.
        max_records: limit of one micro-batch of a stream; 0 is no limit.

    Returns:
        The columns of Kafka (key, value, topic, partition, offset, timestamp), `row` (a struct of
        the fields in the schemas of `<topic>-value`) and `reason`: why the row is null, or that the
        event time is in the future; else null.

    Raises:
        LakeError: the topic, or its schemas in the registry, do not exist. The query itself fails at
            a message whose schema was registered after the start of the query. After a restart the
            query knows the schema.
    """
    raw = _read_topic(spark, world, topic, stream, max_records)
    schemas = registry.versions_by_schema_id(world, [f"{schema_topic or topic}-value"])
    known = AvroSchemas(world, schema_topic or topic)
    decoded = decode.decode_messages(
        known.split(raw), known, known.resolve(Counter(schemas.keys()))
    )
    is_known = F.col("schema").isin(*schemas) | F.col("schema").isNull()
    end_offsets = topics.end_offsets(world, topic)
    ends = F.create_map(*[F.lit(number) for pair in end_offsets.items() for number in pair])
    end = F.coalesce(F.try_element_at(ends, F.col("partition")), F.lit(0))
    is_new = (F.col("offset") >= end) & F.lit(stream)
    restart = F.concat(
        F.lit(f"{topic} has a message of "),
        F.col("schema"),
        F.lit(
            ", which was not in the registry when this query was started: start the query again; it continues from here"
        ),
    )
    future = F.current_timestamp() + F.expr(f"INTERVAL {MAX_FUTURE_SKEW}")
    reason = F.coalesce(
        F.when(F.col("value").isNull(), "no value"),
        "error",
        F.when(F.col("timestamp") > future, "of the future"),
    )
    # in both: a query may read only one of them
    results = [
        F.when(~is_known & is_new, F.raise_error(restart)).otherwise(column).alias(name)
        for name, column in (("row", F.col("row")), ("reason", reason))
    ]
    return decoded.select("key", "value", "topic", "partition", "offset", "timestamp", *results)


def _read_topic(
    spark: SparkSession, world: World, topic: str, stream: bool, max_records: int
) -> DataFrame:
    options: dict[str, Union[str, int]] = {
        **topics.spark_options(world),
        "subscribe": topic,
        "startingOffsets": "earliest",
    }
    if max_records:
        options["maxOffsetsPerTrigger"] = max_records
    reader: Any = spark.readStream if stream else spark.read
    frame: DataFrame = reader.format("kafka").options(**options).load()
    return frame


def encode(frame: DataFrame, world: World, topic: str, key: Column) -> DataFrame:
    """Encode rows as messages in Avro, with the latest schemas of a topic.

    Args:
        frame: the rows.
        world: the world.
        topic: the topic.
        key: the message key.

    Returns:
        Columns `key` and `value`.

    Raises:
        LakeError: the registry has no such schemas.
    """
    columns = []
    for side, column in (("key", key), ("value", F.struct("*"))):
        schema_id = registry.latest_id(world, f"{topic}-{side}")
        schema = registry.schema(world, schema_id)
        body = to_avro(column, json.dumps(schema))
        prefix = F.lit(registry.wire_prefix(world, schema_id))
        columns.append(F.concat(prefix, body).alias(side))
    return frame.select(*columns)


def progress(query: Any) -> pandas.DataFrame:
    """Return the reports of a streaming query over one topic (StreamingQueryProgress).

    Args:
        query: the query.

    Returns:
        A row for each batch with messages: batch, at (start, UTC), rows, rows_per_second (that
        arrived), processed_per_second, seconds, watermark, newest (event time), state_rows,
        dropped_groups, written (rows), begin and end ({partition: offset}).

        dropped_groups is Spark's numRowsDroppedByWatermark, which is not a number of records. Spark
        drops late groups after it has aggregated the records of each task in a batch. A thousand
        late records of one group (such as a region and a window) count once for each task. Compare
        the result with the topic to count records.
    """
    rows = []
    for report in query.recentProgress:
        operators, source = report["stateOperators"], report["sources"][0]
        event_time = report.get("eventTime", {})
        rows.append(
            (
                report["batchId"],
                report["timestamp"],
                source["numInputRows"],
                source.get("inputRowsPerSecond", 0.0),
                source.get("processedRowsPerSecond", 0.0),
                report["durationMs"]["triggerExecution"] / 1000,
                event_time.get("watermark"),
                event_time.get("max"),
                sum(o["numRowsTotal"] for o in operators),
                sum(o["numRowsDroppedByWatermark"] for o in operators),
                report["sink"].get("numOutputRows", -1),
                _parse_offsets(source["startOffset"]),
                _parse_offsets(source["endOffset"]),
            )
        )
    frame = pandas.DataFrame(rows, columns=PROGRESS_COLUMNS)
    for column in ("at", "watermark", "newest"):
        frame[column] = pandas.to_datetime(frame[column], utc=True, format="ISO8601")
    # Before the first event Spark reports 1970 as the watermark
    frame["watermark"] = frame["watermark"].where(frame["watermark"].dt.year > 1970)
    return frame[frame["rows"] > 0].reset_index(drop=True)


def _parse_offsets(offsets: Any) -> dict[int, int]:
    """Return {partition: offset} of the one topic; Spark Connect reports the offsets as JSON."""
    by_topic = json.loads(offsets) if isinstance(offsets, str) else offsets
    return {
        int(partition): offset
        for partitions in (by_topic or {}).values()
        for partition, offset in partitions.items()
    }
