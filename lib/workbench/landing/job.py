"""Topics → files: the work of an S3 sink connector, done from that connector's own JSON (see
sinks.py).

For a world whose Kafka Connect has no such plugin. Spark reads the topics, one task per topic
partition and in offset order; Python in the task writes the objects. Their names say topic,
partition and first offset, so a batch that is done again after a crash (Spark repeats the very same
offsets) writes the same names over: exactly once.
"""

import contextlib
import json
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
from .formats import AvroContainer, JsonLines, RecordEncoder
from .messages import AvroConverter, JsonConverter, parse_unresolved
from .parquet import Parquet
from .sinks import Sink, parse
from .writing import COUNTERS

MAX_UNKNOWN_ROUNDS = (
    3  # rounds in which the registry may know none of the schemas that it is asked for
)

_glue_schema_cache: dict[
    str, str
] = {}  # schemas of Glue that landings of this process have met: what an id stands for never changes


@dataclass(frozen=True, repr=False)
class LandingCounts(Counts):
    """What one run did, counted by Spark while it ran; messages = records + tombstones +
    dead_letters.
    """

    records: int = 0
    objects: int = 0
    bytes: int = 0

    def __repr__(self) -> str:
        return self.describe("landed", files=self.objects, records=self.records)


def run(
    spark: SparkSession,
    world: World,
    config: dict[str, str],
    *,
    timeout: float = 600,
    batch: int = 50_000,
) -> LandingCounts:
    """Land what is in the sink's topics and has not been landed yet.

    One run is one flush: at its end everything is on disk, so nothing waits longer than a run,
    whatever WITH_FLUSH_INTERVAL says. Run it again whenever there is more to land. Where the sink
    names a topic for dead letters, they are sent to it at the end of the run: those that an earlier
    run has left, too.

    Args:
        config: the sink connector's JSON (see connect.config).
        timeout: seconds until it gives up.
        batch: most messages in one batch; bounds the memory of a task.

    Raises:
        ConnectorError: the config cannot be honoured. LakeError: a batch failed, the next run does
            it again; the topic was made anew since the last run; another landing into the same
            folder is going on; or `timeout` is over.
            StackError: Spark or Kafka is gone; the next run goes on from there.
    """
    sink = parse(config, world)
    place = f"{sink.description}, checkpoint {checkpoint_path(world, sink)}"
    next_step = "mend the cause and run the landing again; nothing is landed twice"
    with (
        _landing_lock(world, sink),
        translate_errors(spark, "a batch was not landed", place, next_step, world),
        java_stacktraces(spark),
    ):
        verify_topic_ids(world, sink)
        reports = _land_available(spark, world, sink, timeout, batch)
        if sink.dlq_topic:
            dlq.publish(
                world,
                sink.dlq_topic,
                dead_letters_path(world, sink),
                f"{checkpoint_path(world, sink)}/dead_letters.json",
                sink.name or sink.description,
                "workbench.landing.run",
                lambda topic: files.read_text(topic_id_path(world, sink.prefix_of(topic))),
            )
    return sum(
        (LandingCounts(batches=1, **counts) for counts in map(observed_metrics, reports) if counts),
        LandingCounts(),
    )


def _landing_lock(world: World, sink: Sink) -> ContextManager[None]:
    """Of two landings of one topic, Spark would stop the first when the second starts, and that one
    would take its end for the end of the topic.
    """
    return files.exclusive_lock(
        checkpoint_path(world, sink),
        f"landing of {sink.description}",
        "wait until it is done; what it lands need not be landed again",
    )


def _land_available(
    spark: SparkSession, world: World, sink: Sink, timeout: float, batch: int
) -> list[dict]:
    """Land what is there now; return the progress reports.

    No task asks the registry. This process does: before the first batch for the versions of the
    sink's topics, and where a task meets another schema for that one; then the batch is done again.
    Where the registry has known none of them for some rounds, what else it was not asked for is
    unknown, too: poison of many ids would take a round for each hundred.
    """
    reports: list[dict] = []
    met = _glue_schema_cache if world.registry.kind == "glue" else {}
    asked, wanted, in_vain, end = dict(met), set(), 0, time.monotonic() + timeout
    if sink.message_format == "avro":
        wanted = {
            *registry.versions_by_schema_id(
                world, [f"{topic}-value" for topic in sink.matching_topics(topics.names(world))]
            )
        }
    while True:
        asked.update({id: _fetch_schema(world, id) for id in sorted(wanted - set(asked))})
        met.update({id: text for id, text in asked.items() if text != "null"})
        in_vain += not any(asked[id] != "null" for id in wanted)
        query = _start_query(spark, world, sink, batch, asked, in_vain <= MAX_UNKNOWN_ROUNDS)
        try:
            return reports + _await_query(query, sink, end - time.monotonic())
        except Exception as e:  # noqa: BLE001 - it has another class in each kind of session
            wanted = parse_unresolved(str(e)) - set(asked)
            if not wanted:
                raise
            reports += query.recentProgress


def _fetch_schema(world: World, id: str) -> str:
    """JSON of a schema; null where the registry has none with this id, or something that is
    none.
    """
    kind, _, number = id.partition(" ")
    with contextlib.suppress(LakeError):
        return json.dumps(registry.find(world, number, kind))
    return "null"


def _start_query(
    spark: SparkSession, world: World, sink: Sink, batch: int, schemas: dict[str, str], ask: bool
) -> Any:
    """Start the stream that lands what is there now; return its query. schemas, ask: see
    messages.AvroConverter.
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
    columns = [
        "topic",
        "partition",
        "offset",
        F.col("key").isNotNull().alias("keyed"),
        F.unix_millis("timestamp").alias("sent"),
        "value",
    ]
    if sink.message_format == "avro":
        messages = wire.with_wire_columns(messages, world)
        columns += ["schema", "body"]
    target = join_uri(world.lake.landing, sink.folder)
    write = writing.landing_task(
        record_encoder(world, sink, schemas, ask), target, dead_letters_path(world, sink)
    )
    # each batch's is counted at the end, also in a session that is not ours and has not what ours
    # are given
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "1000000")
    sums = [F.sum(n).alias(n) for n in COUNTERS]
    # the noop sink: the task has written already, only the counts come out
    counts = messages.select(*columns).mapInPandas(write, ", ".join(f"{n} long" for n in COUNTERS))
    return (
        counts.observe("landing", *sums)
        .writeStream.format("noop")
        .trigger(availableNow=True)
        .start(checkpointLocation=checkpoint_path(world, sink))
    )


def record_encoder(
    world: World, sink: Sink, schemas: Mapping[str, str] = {}, fail_on_unknown: bool = True
) -> RecordEncoder:
    """What a sink makes of a message. schemas, ask: of Avro's, see messages.AvroConverter."""
    converter: Any = JsonConverter(sink.has_envelope, strict=sink.is_confluent)
    if sink.message_format == "avro":
        converter = AvroConverter(
            {**schemas},
            wire.not_avro_reason(world),
            wire.unknown_schema_reason(world),
            sink.file_format != "avro",
            fail_on_unknown,
        )
    return RecordEncoder(
        sink,
        converter,
        {"json": JsonLines(), "avro": AvroContainer(), "parquet": Parquet(sink.codec)}[
            sink.file_format
        ],
    )


def _await_query(query: Any, sink: Sink, timeout: float) -> list[dict]:
    """Wait until the query has ended; return its progress reports. Raises: LakeError: after
    `timeout`. What ended it.
    """
    try:
        if query.awaitTermination(max(timeout, 0.001)):
            return query.recentProgress
        raise LakeError(
            f"waited {max(timeout, 0):.0f} s for the landing of {sink.description}",
            hint="run it again: it goes on where the last finished batch ended",
        )
    except (
        KeyboardInterrupt,
        LakeError,
    ):  # nobody waits for it any more, and the next landing may begin
        with contextlib.suppress(Exception):  # the error that is on its way says more
            query.stop()
        raise


def observed_metrics(report: dict) -> dict[str, int]:
    """What one progress report has counted; Spark Connect and classic give it in two forms."""
    metrics = report.get("observedMetrics", {}).get("landing") or {}
    if "schema" in metrics:
        metrics = dict(zip([f["name"] for f in metrics["schema"]["fields"]], metrics["values"]))
    return {k: v or 0 for k, v in metrics.items()}


def checkpoint_path(world: World, sink: Sink) -> str:
    """Where the progress of this landing is kept."""
    return join_uri(f"{world.lake.checkpoints}/landing", sink.state_path)


def topic_id_path(world: World, prefix: str) -> str:
    """Address of the file that holds the id of the topic that is landed below a prefix: beside the
    checkpoint, for Spark's own progress knows a topic by its name only.
    """
    return join_uri(f"{world.lake.checkpoints}/landing", f"{prefix}.topic-id")


def verify_topic_ids(world: World, sink: Sink) -> None:
    """Raise LakeError when a topic is not the one whose progress is kept; note the id of one that
    is new.

    Raises also when a topic that the sink names is not there, or none that its pattern means: it
    would land nothing of it without a word.
    """
    now = topics.names(world)
    absent = [name for name in sink.topic_names if name not in now] or [sink.description] * (
        not sink.matching_topics(now)
    )
    if absent:
        raise LakeError(
            "there is no topic for the sink",
            location=f"{', '.join(absent)} at {world.kafka.bootstrap}",
            expected=did_you_mean(absent[0], now) if now else "Kafka has no topics yet",
            hint="the first message makes it: is the source connector RUNNING? (connect.status)",
        )
    for topic in sink.matching_topics(now):
        place, id = topic_id_path(world, sink.prefix_of(topic)), topics.topic_id(world, topic)
        then = files.read_text(place)
        if then is None:
            files.write_text(place, id)
        elif then != id:
            raise LakeError(
                f"the topic {topic} was deleted and made anew since the last landing",
                location=f"{topic}, id {id}; {place}",
                expected=f"id {then}",
                hint="start clean with landing.drop(world, config) and hudi.drop of its tables",
            )


def dead_letters_path(world: World, sink: Sink) -> str:
    """Folder of the messages of these topics that could not be landed."""
    return join_uri(f"{world.lake.dead_letters}/landing", sink.state_path)


def dead_letters(spark: SparkSession, world: World, config: dict[str, str]) -> DataFrame:
    """The messages that could not be landed: reason, topic, partition, offset, file, text (base64
    where it is none).
    """
    return read_dead_letters(spark, dead_letters_path(world, parse(config)))


def delete_checkpoint(world: World, config: dict[str, str]) -> None:
    """Forget how far it came: the next run lands everything again, over what is there. Raises
    LakeError as `drop`.
    """
    sink = parse(config)
    with _landing_lock(world, sink):
        files.remove(checkpoint_path(world, sink))


def drop(world: World, config: dict[str, str]) -> None:
    """Start clean: remove the progress, the landed objects and the dead letters. Those in a topic
    stay there.

    Raises: LakeError: a landing of these topics is going on.
    """
    sink = parse(config)
    # The progress first. Killed after that, the next run lands everything again: objects that are
    # left may then hold a message a second time, which the ingest tells by key and order. The other
    # way round it would go on behind objects that are gone, and their messages would be lost. The
    # topic's id last: a topic made anew meanwhile is still seen.
    with _landing_lock(world, sink):
        for place in (
            *folders(world, config),
            *(topic_id_path(world, prefix) for prefix in _prefixes(world, sink)),
        ):
            files.remove(place)


def folders(world: World, config: dict[str, str]) -> list[str]:
    """Addresses of the folders that a landing makes, there or not: progress, landed objects, dead
    letters.
    """
    sink = parse(config)
    landed = (join_uri(world.lake.landing, prefix) for prefix in _prefixes(world, sink))
    return [checkpoint_path(world, sink), *landed, dead_letters_path(world, sink)]


def _prefixes(world: World, sink: Sink) -> list[str]:
    """The folders that this sink has landed into; of a topic that is gone, too."""
    if not sink.is_confluent:
        return [sink.folder]
    # an id is noted before anything is landed; files may be there without one, where somebody
    # removed the checkpoints
    places = (
        join_uri(root, sink.folder)
        for root in (f"{world.lake.checkpoints}/landing", world.lake.landing)
    )
    seen = {
        i.base_name.removesuffix(".topic-id") for place in places for i in files.list_dir(place)
    }
    return [sink.prefix_of(topic) for topic in sink.matching_topics(sorted(seen))]
