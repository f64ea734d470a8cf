"""Streaming queries over topics in Avro: their messages as rows, rows as messages, and what a query
tells of itself.
"""

import json
from functools import partial
from typing import Any

import pandas
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import to_avro

from ..base import World, files
from ..hudi import decode_avro
from ..spark import translate_errors
from ..topic import registry, topics, wire

# that an event may be ahead of this clock; beyond it, it would move a watermark, and all be late
MAX_FUTURE_SKEW = "10 minutes"


def messages(
    spark: SparkSession,
    world: World,
    topic: str,
    *,
    schema_topic: str = "",
    stream: bool = True,
    max_records: int = 0,
) -> DataFrame:
    """The messages of a topic, decoded.

    Args:
        schemas_of: the topic whose schemas they are written with, by default this one.
        stream: as a stream, from its first message on; else those that are there now. most: in one
            batch of a stream.

    Returns: the columns of Kafka (key, value, topic, partition, offset, timestamp), then `row` (a
        struct of the fields that the schemas of `<topic>-value` have) and `reason`: why it is null,
        or that the event is of the future; null where all is well.
    Raises: LakeError: the registry has no `<topic>-value`, or there is no such topic. The query
        itself, with a message that came after it was started, by a schema which the registry had
        not then: started again it asks anew.
    """
    options = {
        "subscribe": topic,
        "startingOffsets": "earliest",
        **({"maxOffsetsPerTrigger": max_records} if max_records else {}),
    }
    reader = (spark.readStream if stream else spark.read).format("kafka")
    raw = wire.with_wire_columns(
        reader.options(**topics.spark_options(world), **options).load(), world
    )
    ids = registry.versions_by_schema_id(world, [f"{schema_topic or topic}-value"])
    found, wrong = decode_avro.decode_messages(
        raw, ids, decode_avro.SchemaResolver(world, schema_topic or topic)
    )
    known = F.col("schema").isin(*ids) | F.col("schema").isNull()
    ends = F.create_map(
        *[F.lit(n) for end in topics.end_offsets(world, topic).items() for n in end]
    )
    later = F.col("offset") >= F.coalesce(F.try_element_at(ends, F.col("partition")), F.lit(0))
    new = F.concat(
        F.lit(f"{topic} has a message of "),
        F.col("schema"),
        F.lit(
            ", which the registry did not have when this query was started: start it again, it goes on from here"
        ),
    )
    row = F.when(~known & later & F.lit(stream), F.raise_error(new)).otherwise(F.col("row"))
    reason: Column = F.lit(None).cast("string")
    future = F.col("timestamp") > F.current_timestamp() + F.expr(f"INTERVAL {MAX_FUTURE_SKEW}")
    unknown = F.concat(F.col("schema"), F.lit(" is not in the registry"))
    for condition, text in reversed([(~known, unknown), *wrong, (future, F.lit("of the future"))]):
        reason = F.when(condition, text).otherwise(reason)
    return found.withColumn("row", row).select(
        "key", "value", "topic", "partition", "offset", "timestamp", "row", reason.alias("reason")
    )


def encode(frame: DataFrame, world: World, topic: str, key: Column) -> DataFrame:
    """Rows as messages: `key` and `value`, in Avro by the newest schemas that the registry has of a
    topic.

    Raises: LakeError: it has none.
    """
    parts = []
    for side, column in (("key", key), ("value", F.struct("*"))):
        id = registry.latest_id(world, f"{topic}-{side}")
        avsc = registry.schema(world, id, registry.WIRE_FORMATS[world.registry.wire].id_kind)
        parts.append(
            F.concat(
                F.lit(registry.wire_prefix(world, id)), to_avro(column, json.dumps(avsc))
            ).alias(side)
        )
    return frame.select(*parts)


class Query:
    """A streaming query: pyspark's StreamingQuery, with all of its attributes and methods. Where
    one of them fails, the error names the service that is gone, or the innermost cause.

    Raises: StackError: Spark or Kafka is gone. LakeError: the query failed.
    """

    def __init__(self, spark: SparkSession, world: World, query: Any) -> None:
        self._query = query
        self._translate_errors = partial(
            translate_errors,
            spark,
            "the streaming query failed",
            f"query {query.name}",
            "correct what the cause names, then "
            "start the query again: it goes on from its checkpoint",
            kafka_world=world,
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(type(self._query), name):
            raise AttributeError(f"a streaming query has no {name!r}")
        with (
            self._translate_errors()
        ):  # some attributes ask Spark, isActive and lastProgress among them
            value = getattr(self._query, name)
        if not callable(value):
            return value

        def call(*args: Any, **options: Any) -> Any:
            with self._translate_errors():
                return value(*args, **options)

        return call


def delete_checkpoint(spark: SparkSession, checkpoint: str) -> None:
    """Remove what a query has kept; nothing is there: nothing happens. A run of it that goes on,
    also one whose kernel is gone, is ended before: Spark ends it when another begins with its id,
    which is in the checkpoint (spark.sql.streaming.stopActiveRunOnRestart).
    """
    if files.read_text(f"{checkpoint}/metadata"):
        nothing = spark.readStream.format("rate").load().writeStream.format("noop")
        nothing.option("checkpointLocation", checkpoint).start().stop()
    files.remove(checkpoint)


def progress(query: Any) -> pandas.DataFrame:
    """What a streaming query over one topic has told of its batches (StreamingQueryProgress), a row
    for each that had
    messages: batch, at, rows, rows_per_second (that came), processed_per_second, seconds,
        watermark, newest (event),
    state_rows, dropped_groups, written, begin, end: {partition: offset}.

    dropped_groups is Spark's numRowsDroppedByWatermark, and no number of records: Spark drops what
    is behind the watermark only after it has aggregated each task's records of a batch, so a
    thousand late records of one group (a region and a window, say) count once for each task.
    Compare the result with the topic to count records.
    """
    rows = []
    for said in query.recentProgress:
        state, source, time = said["stateOperators"], said["sources"][0], said.get("eventTime", {})
        begin, end = (
            {
                int(p): n
                for of in (_parse_offsets(source[edge]) or {}).values()
                for p, n in of.items()
            }
            for edge in ("startOffset", "endOffset")
        )
        rows.append(
            (
                said["batchId"],
                said["timestamp"],
                source["numInputRows"],
                source.get("inputRowsPerSecond", 0.0),
                source.get("processedRowsPerSecond", 0.0),
                said["durationMs"]["triggerExecution"] / 1000,
                time.get("watermark"),
                time.get("max"),
                sum(s["numRowsTotal"] for s in state),
                sum(s["numRowsDroppedByWatermark"] for s in state),
                said["sink"].get("numOutputRows", -1),
                begin,
                end,
            )
        )
    frame = pandas.DataFrame(
        rows,
        columns=[
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
        ],
    )
    for column in ("at", "watermark", "newest"):
        frame[column] = pandas.to_datetime(frame[column], utc=True, format="ISO8601")
    frame["watermark"] = frame["watermark"].where(
        frame["watermark"].dt.year > 1970
    )  # before it has seen any event
    return frame[frame["rows"] > 0].reset_index(drop=True)


def _parse_offsets(said: Any) -> Any:
    """Spark Connect gives them as text, a classic session as what stands in it."""
    return json.loads(said) if isinstance(said, str) else said
