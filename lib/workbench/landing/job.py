"""The landing, from topics to files: the work of an S3 sink connector, by that connector's own JSON.

See sinks.py for the JSON. The landing is for an environment whose Kafka Connect does not have this
plugin. Spark reads the topics, with one task per topic partition and in the order of the offsets.
Python in the task writes the files. Their names contain topic, partition and first offset. A batch
that is repeated after a crash has the same offsets, so it overwrites the same files: exactly once.
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
from ..topic import dlq, registry, topics, wire
from . import writing
from .batch import Counts, read_dead_letters
from .formats import AvroContainer, FileFormat, JsonLines, MessageConverter, RecordEncoder
from .messages import AvroConverter, JsonConverter, parse_unresolved
from .parquet import Parquet
from .sinks import Sink, parse
from .writing import COUNTERS

LOGGER = logging.getLogger(__name__)
# rounds in which the registry may know none of the requested schemas
MAX_UNKNOWN_ROUNDS = 3
# schemas of Glue, for all landings of this process: the schema of an id never changes
_glue_schema_cache: dict[str, str] = {}


@dataclass(frozen=True, repr=False)
class LandingCounts(Counts):
    """The counts of one run, as Spark observed them.

    messages = records + tombstones + dead_letters; objects are the files.
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
    Call it again for later messages. Where the sink names a topic for dead letters, the end of the
    run publishes them, also those that an earlier run has left.

    Args:
        spark: the session that lands.
        world: the environment profile.
        config: the sink connector's JSON (see connect.config).
        timeout: in seconds.
        batch: largest number of messages in one batch; it bounds the memory of a task.

    Raises:
        ConnectorError: a setting is not supported.
        LakeError: a batch failed, and the next run repeats it; a topic was recreated since the last
            run; another landing into the same folder is running; `timeout` is over.
        StackError: Spark or Kafka is down; the next run continues from there.
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

    When a second landing of a topic starts, Spark would stop the first one, which would take this
    for the end of the topic.
    """
    return files.exclusive_lock(
        checkpoint_path(world, sink),
        f"landing of {sink.description}",
        "wait until it is done; what it lands need not be landed again",
    )


def _land_available(
    spark: SparkSession, world: World, sink: Sink, timeout: float, batch: int
) -> list[dict[str, Any]]:
    """Land the available messages; return Spark's progress reports.

    A task does not query the registry. This process fetches the versions of the sink's topics
    before the first batch. When a task reports further schemas, this process fetches them, and the
    batch is repeated. After some rounds in which the registry knew none of them, all further
    schemas count as unknown: poison messages with many ids would take a round for each hundred.
    """
    deadline = time.monotonic() + timeout
    cache = _glue_schema_cache if world.registry.kind == "glue" else {}
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
        except Exception as e:  # noqa: BLE001 - its class depends on the kind of session
            requested = parse_unresolved(str(e)) - schemas.keys()
            if not requested:
                raise
            reports += query.recentProgress


def _fetch_schema(world: World, schema: str) -> str:
    """Return the JSON of a schema; null where the registry has none with this id, or no JSON."""
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
    """Start the stream that lands the available messages; return its query.

    `schemas` and `fail_on_unknown` are those of messages.AvroConverter.
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
    columns = ["topic", "partition", "offset", "key IS NOT NULL", "unix_millis(timestamp)", "value"]
    if sink.message_format == "avro":
        messages = wire.with_wire_columns(messages, world)
        columns += ["schema", "body"]
    task = writing.landing_task(
        record_encoder(world, sink, schemas, fail_on_unknown),
        join_uri(world.lake.landing, sink.folder),
        dead_letters_path(world, sink),
    )
    # the reports of all batches are read at the end, also in a session that is not ours
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "1000000")
    # the task itself writes the files, so only its counts leave the query, to a sink without effect
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
        sink: what the sink connector's JSON asks for.
        schemas: of Avro, see messages.AvroConverter.
        fail_on_unknown: of Avro, see messages.AvroConverter.
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
            hint="run it again: it continues where the last finished batch ended",
        )
    except (KeyboardInterrupt, LakeError):
        # this process stops waiting, and the next landing may start
        with contextlib.suppress(Exception):  # the first error says more
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
    """Return the URI of a landing's progress."""
    return join_uri(_checkpoints(world), sink.state_path)


def topic_id_path(world: World, prefix: str) -> str:
    """Return the URI of the file with the id of the topic that is landed below a prefix.

    It is beside the checkpoint, because Spark's own progress identifies a topic only by its name.
    """
    return join_uri(_checkpoints(world), f"{prefix}.topic-id")


def _checkpoints(world: World) -> str:
    return f"{world.lake.checkpoints}/landing"


def verify_topic_ids(world: World, sink: Sink) -> None:
    """Check that the topics are those of the last landing; record the id of a new topic.

    Raises:
        LakeError: a topic was recreated, a topic that the sink names is missing, or no topic
            matches its pattern. Without this error nothing would be landed silently.
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
        Columns reason, topic, partition, offset, file, text (base64 where it is no text).
    """
    return read_dead_letters(spark, dead_letters_path(world, parse(config)))


def delete_checkpoint(world: World, config: dict[str, str]) -> None:
    """Delete the progress: the next run lands everything again and overwrites the files.

    Raises:
        LakeError: a landing of these topics is running.
    """
    sink = parse(config)
    with _landing_lock(world, sink):
        files.remove(checkpoint_path(world, sink))


def drop(world: World, config: dict[str, str]) -> None:
    """Remove the progress, the landed files and the dead letters. Those in a topic stay there.

    Raises:
        LakeError: a landing of these topics is running.
    """
    sink = parse(config)
    # The progress is removed first. If the process is killed after that, the next run lands
    # everything again. Files that are left may then contain a message twice, which the ingest
    # recognizes by key and order. In the opposite order the run would continue after files that are
    # gone, and their messages would be lost. The topic ids are removed last, so that a topic that
    # was recreated meanwhile is still recognized.
    with _landing_lock(world, sink):
        topic_ids = [topic_id_path(world, prefix) for prefix in _prefixes(world, sink)]
        for uri in [*folders(world, config), *topic_ids]:
            files.remove(uri)


def folders(world: World, config: dict[str, str]) -> list[str]:
    """Return the URIs of the folders of a landing: progress, landed files, dead letters.

    They need not exist.
    """
    sink = parse(config)
    landed = [join_uri(world.lake.landing, prefix) for prefix in _prefixes(world, sink)]
    return [checkpoint_path(world, sink), *landed, dead_letters_path(world, sink)]


def _prefixes(world: World, sink: Sink) -> list[str]:
    """Return the folders into which this sink has landed, also those of deleted topics."""
    if not sink.is_confluent:
        return [sink.folder]
    # A landing records the topic's id before it writes files. Files without an id exist
    # after a removal of the checkpoints.
    names: set[str] = set()
    for root in (_checkpoints(world), world.lake.landing):
        entries = files.list_dir(join_uri(root, sink.folder))
        names |= {entry.base_name.removesuffix(".topic-id") for entry in entries}
    return [sink.prefix_of(topic) for topic in sink.matching_topics(sorted(names))]
