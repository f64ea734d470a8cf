"""The landing, from topics to files: replaces an S3 sink connector, with the connector's own JSON.

See sinks.py for the JSON. The landing is for environments whose Kafka Connect does not have the
plugin. Spark reads the topics with one task per topic partition, in the order of the offsets. Python
code in the task writes the files, whose names contain topic, partition and first offset. A batch that
is repeated after a crash has the same offsets and overwrites the same files (exactly once).
"""

import contextlib
import json
import logging
import time
from dataclasses import dataclass
from typing import Any, ContextManager, Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ..base import LakeError, World, did_you_mean, files
from ..base.paths import join_uri
from ..spark import java_stacktraces, translate_errors
from ..spark.batch import Counts, read_dead_letters
from ..topic import dlq, registry, topics, wire
from . import writing
from .formats import AvroContainer, FileFormat, JsonLines, MessageConverter, RecordEncoder
from .messages import AvroConverter, JsonConverter, parse_unresolved
from .parquet import Parquet
from .sinks import Sink, parse
from .writing import COUNTERS

LOGGER = logging.getLogger(__name__)
# number of rounds in which the registry may have none of the requested schemas
MAX_UNKNOWN_ROUNDS = 3


@dataclass(frozen=True, repr=False)
class LandingCounts(Counts):
    """The counts of one run, as Spark observed them.

    messages = records + tombstones + dead_letters. `objects` is the number of files, `bytes` their size.
    """

    records: int = 0
    objects: int = 0
    bytes: int = 0

    def __repr__(self) -> str:
        """Return the counts in one line."""
        return self.describe("landed", files=self.objects, records=self.records)


def run(
    spark: SparkSession,
    world: World,
    config: dict[str, str],
    *,
    timeout: float = 600,
    batch: int = 50_000,
) -> LandingCounts:
    """Land the messages of the sink's topics that have not been landed yet.

    One run is one flush: at its end all messages are in files, whatever WITH_FLUSH_INTERVAL is.
    Another run lands later messages. If the sink has a DLQ topic, the run publishes its dead letters
    at the end, and those that an earlier run did not publish.

    Args:
        spark: the Spark session.
        world: the environment profile.
        config: the sink connector's JSON (see connect.config).
        timeout: seconds.
        batch: maximum number of messages in one batch, which limits the memory of a task.

    Raises:
        ConnectorError: a setting is not supported.
        LakeError: a batch failed, and the next run repeats it; a topic was recreated since the last
            run; another landing into the same folder is running; `timeout` is over.
        StackError: Spark or Kafka is down; the next run continues from the checkpoint.
    """
    sink = parse(config, world)
    checkpoint = checkpoint_path(world, sink)
    with (
        _landing_lock(world, sink),
        translate_errors(
            spark,
            "a batch was not landed",
            f"{sink.description}, checkpoint {checkpoint}",
            "fix the cause and run the landing again; nothing is landed twice",
            world,
        ),
        java_stacktraces(spark),
    ):
        verify_topic_ids(world, sink)
        reports = _land_available(spark, world, sink, timeout, batch)
        if sink.dlq_topic:
            dlq.publish(
                world,
                sink.dlq_topic,
                dead_letters_path(world, sink),
                f"{checkpoint}/dead_letters.json",
                sink.name or sink.description,
                "workbench.landing.run",
                lambda topic: files.read_text(topic_id_path(world, sink.prefix_of(topic))),
            )
    total = LandingCounts()
    for report in reports:
        metrics = observed_metrics(report)
        if metrics:
            counts = LandingCounts(batches=1, **metrics)
            seconds = report.get("batchDuration", 0) / 1000
            LOGGER.info("%s: %s in %.1f s", sink.name or sink.description, counts, seconds)
            total += counts
    return total


def _landing_lock(world: World, sink: Sink) -> ContextManager[object]:
    """Lock the checkpoint.

    Without the lock, Spark would stop a running landing when a second one of the topic starts, and
    the first one would report success.
    """
    return files.exclusive_lock(
        checkpoint_path(world, sink),
        f"landing of {sink.description}",
        "wait until it is done; it lands the same messages",
    )


def _land_available(
    spark: SparkSession, world: World, sink: Sink, timeout: float, batch: int
) -> list[dict[str, Any]]:
    """Land the available messages; return Spark's progress reports.

    Tasks do not query the registry. This process fetches the schemas of the sink's topics before the
    first batch. When a task reports further schema ids, this process fetches their schemas, and the
    batch is repeated. After MAX_UNKNOWN_ROUNDS rounds in which the registry had none of them, all
    further schema ids count as unknown. Otherwise malformed messages with many ids would take one
    round per hundred ids.
    """
    deadline = time.monotonic() + timeout
    # {Glue's schema id: JSON of the schema} for all landings of this world; an entry never changes
    cache: dict[str, str] = (
        world.state.get("Glue schemas", dict) if world.registry.kind == "glue" else {}
    )
    schemas = dict(cache)
    requested: set[str] = set()
    if sink.message_format == "avro":
        landed = sink.matching_topics(topics.names(world))
        requested = {*registry.versions_by_schema_id(world, [f"{topic}-value" for topic in landed])}
    unknown_rounds = 0
    reports: list[dict[str, Any]] = []
    while True:
        schemas.update({id: _fetch_schema(world, id) for id in sorted(requested - schemas.keys())})
        cache.update({id: text for id, text in schemas.items() if text != "null"})
        if all(schemas[id] == "null" for id in requested):
            unknown_rounds += 1
        query = _start_query(
            spark, world, sink, batch, schemas, unknown_rounds <= MAX_UNKNOWN_ROUNDS
        )
        try:
            return reports + _await_query(query, sink, deadline - time.monotonic())
        except Exception as e:  # noqa: BLE001 - the class depends on the kind of session
            requested = parse_unresolved(str(e)) - schemas.keys()
            if not requested:
                raise
            reports += query.recentProgress


def _fetch_schema(world: World, schema: str) -> str:
    """Return the JSON of a schema; "null" if the registry has no schema with this id, or no JSON."""
    kind, _, id = schema.partition(" ")
    with contextlib.suppress(LakeError):
        return json.dumps(registry.find(world, id, kind))
    return "null"


def _start_query(
    spark: SparkSession,
    world: World,
    sink: Sink,
    batch: int,
    schemas: dict[str, str],
    fail_on_unknown: bool,
) -> Any:
    """Start the streaming query that lands the available messages, and return it.

    See messages.AvroConverter for `schemas` (its schemas_by_id) and `fail_on_unknown`.
    """
    messages = (
        spark.readStream.format("kafka")
        .options(
            **topics.spark_options(world),
            subscribePattern=f"^({sink.topic_pattern})$",
            startingOffsets="earliest",
            maxOffsetsPerTrigger=str(batch),
        )
        .load()
    )
    columns = ["topic", "partition", "offset", "key IS NOT NULL", "value"]
    if sink.message_format == "avro":
        messages = wire.with_wire_columns(messages, world)
        columns += ["schema", "body"]
    task = writing.landing_task(
        record_encoder(world, sink, schemas, fail_on_unknown),
        join_uri(world.lake.landing, sink.folder),
        dead_letters_path(world, sink),
    )
    # the reports of all batches are read at the end
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "1000000")
    # the tasks write the files; the query has only their counts, and writes them nowhere
    counts = messages.selectExpr(*columns).mapInPandas(
        task, ", ".join(f"{n} long" for n in COUNTERS)
    )
    return (
        counts.observe("landing", *(F.sum(name).alias(name) for name in COUNTERS))
        .writeStream.format("noop")
        .trigger(availableNow=True)
        .start(checkpointLocation=checkpoint_path(world, sink))
    )


def record_encoder(
    world: World, sink: Sink, schemas: Mapping[str, str] = {}, fail_on_unknown: bool = True
) -> RecordEncoder:
    """Return the encoder of a sink's messages.

    Args:
        world: the environment profile.
        sink: the parsed sink configuration.
        schemas: for Avro, see messages.AvroConverter (schemas_by_id).
        fail_on_unknown: for Avro, see messages.AvroConverter.
    """
    if sink.message_format == "avro":
        converter: MessageConverter = AvroConverter(
            dict(schemas),
            wire.not_avro_reason(world),
            wire.unknown_schema_reason(world),
            sink.file_format != "avro",
            fail_on_unknown,
        )
    else:
        converter = JsonConverter(sink.has_envelope, strict=sink.is_confluent)
    formats: dict[str, FileFormat] = {
        "json": JsonLines(),
        "avro": AvroContainer(),
        "parquet": Parquet(sink.codec),
    }
    return RecordEncoder(sink, converter, formats[sink.file_format])


def _await_query(query: Any, sink: Sink, timeout: float) -> list[dict[str, Any]]:
    """Wait until a query has ended; return its progress reports.

    Raises:
        LakeError: `timeout` is over, and the query was stopped.
    """
    try:
        if query.awaitTermination(max(timeout, 0.001)):
            return list(query.recentProgress)
        raise LakeError(
            f"waited {max(timeout, 0):.0f} s for the landing of {sink.description}",
            hint="run the landing again: it continues after the last completed batch",
        )
    except (KeyboardInterrupt, LakeError):
        # this process releases the lock, so the query must not continue
        with contextlib.suppress(Exception):  # the first error is more informative
            query.stop()
        raise


def observed_metrics(report: dict[str, Any]) -> dict[str, int]:
    """Return the counts in a progress report; Spark Connect and classic Spark have two formats."""
    metrics = report.get("observedMetrics", {}).get("landing") or {}
    if "schema" in metrics:
        names = [field["name"] for field in metrics["schema"]["fields"]]
        metrics = dict(zip(names, metrics["values"]))
    return {name: n or 0 for name, n in metrics.items()}


def checkpoint_path(world: World, sink: Sink) -> str:
    """Return the URI of a landing's checkpoint."""
    return join_uri(_checkpoints(world), sink.state_path)


def topic_id_path(world: World, prefix: str) -> str:
    """Return the URI of the file with the id of the topic that is landed below a prefix.

    The file is next to the checkpoint, because the checkpoint identifies topics only by name.
    """
    return join_uri(_checkpoints(world), f"{prefix}.topic-id")


def _checkpoints(world: World) -> str:
    return f"{world.lake.checkpoints}/landing"


def verify_topic_ids(world: World, sink: Sink) -> None:
    """Check that the topics are those of the last landing; record the id of a new topic.

    Raises:
        LakeError: a topic was recreated, a topic that the sink names is missing, or no topic
            matches its pattern. Without this check the landing would silently do nothing.
    """
    existing = topics.names(world)
    landed = sink.matching_topics(existing)
    missing = [name for name in sink.topic_names if name not in existing]
    if not landed:
        missing = missing or [sink.description]
    if missing:
        raise LakeError(
            "there is no topic for the sink",
            location=f"{', '.join(missing)} at {world.kafka.bootstrap}",
            expected=did_you_mean(missing[0], existing) if existing else "Kafka has no topics yet",
            hint="the first message creates it: is the source connector RUNNING? (connect.status)",
        )
    for topic in landed:
        uri, id = topic_id_path(world, sink.prefix_of(topic)), topics.topic_id(world, topic)
        last_id = files.read_text(uri)
        if last_id is None:
            files.write_text(uri, id)
        elif last_id != id:
            raise LakeError(
                f"the topic {topic} was deleted and recreated since the last landing",
                location=f"{topic}, id {id}; {uri}",
                expected=f"id {last_id}",
                hint="start clean with landing.drop(world, config) and hudi.drop of its tables",
            )


def dead_letters_path(world: World, sink: Sink) -> str:
    """Return the folder of the messages that could not be landed."""
    return join_uri(f"{world.lake.dead_letters}/landing", sink.state_path)


def dead_letters(spark: SparkSession, world: World, config: dict[str, str]) -> DataFrame:
    """Return the messages that could not be landed.

    Returns:
        Columns reason, topic, partition, offset, file, text (base64 if the value is not text).
    """
    return read_dead_letters(spark, dead_letters_path(world, parse(config)))


def delete_checkpoint(world: World, config: dict[str, str]) -> None:
    """Delete the checkpoint, so that the next run lands all messages again and overwrites the files.

    Raises:
        LakeError: a landing of these topics is running.
    """
    sink = parse(config)
    with _landing_lock(world, sink):
        files.remove(checkpoint_path(world, sink))


def drop(world: World, config: dict[str, str]) -> None:
    """Remove the checkpoint, the landed files and the dead-letter files. A DLQ topic stays.

    Raises:
        LakeError: a landing of these topics is running.
    """
    sink = parse(config)
    # The checkpoint is removed first. If the process is killed after that, the next run lands all
    # messages again. Remaining files may then contain a message twice, and the ingest deduplicates by
    # key and ordering field. In the opposite order the next run would skip the messages of removed
    # files. The topic ids are removed last, so that a recreated topic is still recognized.
    with _landing_lock(world, sink):
        topic_ids = [topic_id_path(world, prefix) for prefix in _prefixes(world, sink)]
        for uri in [*folders(world, config), *topic_ids]:
            files.remove(uri)


def folders(world: World, config: dict[str, str]) -> list[str]:
    """Return the URIs of the folders of a landing: checkpoint, landed files, dead letters.

    They need not exist.
    """
    sink = parse(config)
    landed = [join_uri(world.lake.landing, prefix) for prefix in _prefixes(world, sink)]
    return [checkpoint_path(world, sink), *landed, dead_letters_path(world, sink)]


def _prefixes(world: World, sink: Sink) -> list[str]:
    """Return the folders into which this sink has landed, also those of deleted topics."""
    if not sink.is_confluent:
        return [sink.folder]
    # A landing records the topic's id before it writes files. Files without a recorded id exist if the
    # checkpoints were removed.
    names: set[str] = set()
    for root in (_checkpoints(world), world.lake.landing):
        entries = files.list_dir(join_uri(root, sink.folder))
        names |= {entry.base_name.removesuffix(".topic-id") for entry in entries}
    return [sink.prefix_of(topic) for topic in sink.matching_topics(sorted(names))]
