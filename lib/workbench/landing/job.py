"""The landing, from topics to files: replaces an S3 sink connector, with the connector's own JSON.

See sinks.py for the JSON. The landing is for environments whose Kafka Connect does not have the
plugin. This process reads each topic partition in the order of the offsets, and writes files whose names
contain topic, partition and first offset. A file in the lake has the progress of each partition: the next
offset, and the end of the batch that is being landed. So a batch that is repeated after a crash has the same
messages, and overwrites the same files (exactly once). Messages of a dead-letter topic may occur twice then,
as in Kafka Connect.
"""

import contextlib
import json
import logging
import time
from dataclasses import dataclass
from typing import Any, ContextManager, Iterable, Optional, Sequence, TypedDict

from pyarrow import ArrowException

from ..base import LakeError, StackError, World, did_you_mean, files
from ..base.paths import join_uri
from ..spark.batch import Counts
from ..topic import dlq, groups, registry, topics
from ..topic.topics import Message
from .formats import AvroContainer, FileFormat, JsonLines, RecordEncoder
from .messages import JsonConverter, Read, avro_reader
from .parquet import Parquet
from .sinks import Sink, parse
from .writing import write_files

LOGGER = logging.getLogger(__name__)
PROGRESS_SUFFIX = ".progress.json"
CLEAN_HINT = "start clean with landing.drop(world, config) and hudi.drop of its tables"


class Progress(TypedDict):
    """The progress of a landed topic.

    Attributes:
        topic_id: Kafka's id of the topic.
        offsets: {partition: next offset}.
        planned: {partition: end of the batch that begins there, exclusive}.
    """

    topic_id: str
    offsets: dict[str, int]
    planned: dict[str, int]


@dataclass(frozen=True, repr=False)
class LandingCounts(Counts):
    """The counts of one run.

    messages = records + tombstones + dead_letters. `objects` is the number of files, `bytes` their size.
    """

    records: int = 0
    objects: int = 0
    bytes: int = 0

    def __repr__(self) -> str:
        """Return the counts in one line."""
        return self.describe("landed", files=self.objects, records=self.records)


def run(world: World, config: dict[str, str], *, batch: int = 50_000) -> LandingCounts:
    """Land the messages of the sink's topics that have not been landed yet.

    One run is one flush: at its end all messages are in files, whatever WITH_FLUSH_INTERVAL is.
    Another run lands later messages. If the sink has a DLQ topic, its dead letters are published there.

    Args:
        world: the environment profile.
        config: the sink connector's JSON (see connect.config).
        batch: maximum number of messages of a topic partition in memory.

    Raises:
        ConnectorError: a setting is not supported.
        LakeError: a file cannot be written, and the next run repeats its batch; a topic was recreated
            since the last run, or lacks messages that were not landed; another landing into the same
            folder is running.
        StackError: Kafka or the registry is down; the next run continues.
    """
    sink = parse(config, world)
    landed, counts = require_topics(world, sink), LandingCounts()
    encoder = record_encoder(world, sink, landed)
    for topic in landed:
        with _landing_lock(world, sink, topic):
            counts += _land_topic(world, encoder, topic, batch)
    return counts


def _landing_lock(world: World, sink: Sink, topic: str) -> ContextManager[object]:
    return files.exclusive_lock(
        progress_path(world, sink.prefix_of(topic)),
        f"landing of {topic}",
        "wait until it is done; it lands the same messages",
    )


def _land_topic(world: World, encoder: RecordEncoder, topic: str, batch: int) -> LandingCounts:
    prefix, id = encoder.sink.prefix_of(topic), topics.topic_id(world, topic)
    progress = read_progress(world, prefix) or {"topic_id": id, "offsets": {}, "planned": {}}
    if progress["topic_id"] != id:
        raise LakeError(
            f"the topic {topic} was deleted and recreated since the last landing",
            location=f"{topic}, id {id}; {progress_path(world, prefix)}",
            expected=f"id {progress['topic_id']}",
            hint=CLEAN_HINT,
        )
    offsets, planned = progress["offsets"], progress["planned"]
    is_new, total = not offsets, LandingCounts()
    watermarks = topics.watermark_offsets(world, topic)
    for number, (low, _) in watermarks.items():
        # a partition that was added later has to be complete
        offsets.setdefault(str(number), low if is_new else 0)
    for number, (low, high) in watermarks.items():
        partition = str(number)
        while (start := offsets[partition]) != high:
            # A batch that was planned stays as it is: its files may be there, and have been read.
            is_planned = planned.get(partition, start) > start
            stop = planned[partition] if is_planned else min(start + batch, high)
            if not low <= start < stop <= high:
                raise _missing_messages_error(topic, partition, start, low, high)
            if not is_planned:
                planned[partition] = stop
                _write_progress(world, prefix, progress)
            messages = topics.consume(world, topic, {number: start}, {number: stop})
            with contextlib.closing(messages):
                total += _land_batch(world, encoder, topic, number, start, messages)
            offsets[partition], planned[partition] = stop, min(stop + batch, high)
            _write_progress(world, prefix, progress)
    return total


def _missing_messages_error(
    topic: str, partition: str, start: int, low: int, high: int
) -> LakeError:
    return LakeError(
        f"partition {partition} of {topic} does not have the messages from offset {start} on, the next to land",
        location=f"{topic}, offsets {low} to {high}",
        expected="messages that stay until they are landed",
        hint=f"the topic's retention is too short for the times between two landings. {CLEAN_HINT}",
    )


def _land_batch(
    world: World,
    encoder: RecordEncoder,
    topic: str,
    partition: int,
    start: int,
    messages: Iterable[Message],
) -> LandingCounts:
    """Land messages of a topic partition, which begin at offset `start`."""
    begun, sink = time.monotonic(), encoder.sink
    filesystem, root = files.open_filesystem(join_uri(world.lake.landing, sink.folder))
    sizes: list[int] = []

    def write(path: str, data: bytes) -> None:
        files.write_bytes(filesystem, join_uri(root, path), data)
        sizes.append(len(data))

    try:
        found, dead_letters = write_files(messages, encoder, write)
        # a repeated batch replaces the dead letters of the first attempt, which may now be records
        uri = f"{dead_letters_path(world, sink)}/{topic}-{partition}-{start:020d}.json"
        files.remove(uri)
        if dead_letters:
            lines = [json.dumps(dlq.to_record(*each)) + "\n" for each in dead_letters]
            files.write_text(uri, "".join(lines))
    except (OSError, ArrowException) as e:
        raise LakeError(
            f"a batch was not landed: {e}",
            location=f"{topic}, partition {partition}, from offset {start}",
            hint="fix the cause and run the landing again; nothing is landed twice",
        ) from e
    if sink.dlq_topic:
        connector = sink.name or sink.description
        dlq.publish_messages(
            world, sink.dlq_topic, dead_letters, connector, "workbench.landing.run"
        )
    counts = LandingCounts(batches=1, objects=len(sizes), bytes=sum(sizes), **found)
    LOGGER.info("%s: %s in %.1f s", topic, counts, time.monotonic() - begun)
    return counts


def record_encoder(world: World, sink: Sink, landed: Sequence[str] = ()) -> RecordEncoder:
    """Return the encoder of a sink's messages.

    Args:
        world: the environment profile.
        sink: the parsed sink configuration.
        landed: names of its topics.
    """
    is_json = sink.message_format == "json"
    read: Read = JsonConverter(sink.has_envelope, strict=sink.is_confluent).read
    if not is_json:
        known = registry.versions_by_schema_id(world, [f"{topic}-value" for topic in landed])
        read = avro_reader(world, sink.file_format != "avro", known)
    formats: dict[str, FileFormat] = {
        "json": JsonLines(),
        "avro": AvroContainer(),
        "parquet": Parquet(sink.codec, is_from_json=is_json),
    }
    return RecordEncoder(sink, read, formats[sink.file_format])


def require_topics(world: World, sink: Sink) -> list[str]:
    """Return the topics of a sink.

    Raises:
        LakeError: a topic that the sink names is missing, or no topic matches its pattern. Without this
            check the landing would silently do nothing.
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
    return landed


def progress_path(world: World, prefix: str) -> str:
    """Return the URI of the progress of the topic that is landed below a prefix."""
    return join_uri(f"{world.lake.checkpoints}/landing", f"{prefix}{PROGRESS_SUFFIX}")


def read_progress(world: World, prefix: str) -> Optional[Progress]:
    """Return the progress of the topic that is landed below a prefix, None before the first landing."""
    text = files.read_text(progress_path(world, prefix))
    return json.loads(text) if text else None


def _write_progress(world: World, prefix: str, progress: Progress) -> None:
    files.write_text(progress_path(world, prefix), json.dumps(progress))


def dead_letters_path(world: World, sink: Sink) -> str:
    """Return the folder of the messages that could not be landed."""
    return join_uri(f"{world.lake.dead_letters}/landing", sink.state_path)


def dead_letters(world: World, config: dict[str, str]) -> list[dict[str, Any]]:
    """Return the messages that could not be landed.

    Returns:
        Dicts with reason, topic, partition, offset, text (base64 if the value is not text).
    """
    return dlq.read_files(dead_letters_path(world, parse(config)))


def drop(world: World, config: dict[str, str]) -> None:
    """Remove the progress, the landed files and the dead-letter files. A DLQ topic stays.

    If the JSON has a name, the group `connect-<name>` is deleted, too: a connector in Kafka Connect would
    continue where it ends. If that fails, it is logged.

    Raises:
        LakeError: a landing of these topics is running.
    """
    sink = parse(config)
    # The offsets are removed first. If the process is killed after that, the next run lands all
    # messages again. Remaining files may then contain a message twice, and the ingest deduplicates by
    # key and ordering field. In the opposite order the next run would skip the messages of removed
    # files. The topic ids are removed last, so that a recreated topic is still recognized.
    names, uris = _landed_topics(world, sink), folders(world, config)
    with contextlib.ExitStack() as locks:
        for topic in names:
            locks.enter_context(_landing_lock(world, sink, topic))
        if sink.name:
            try:
                groups.delete(world, f"connect-{sink.name}")
            except StackError as e:
                LOGGER.warning("connect-%s stays: %s", sink.name, e.message)
        for topic in names:
            prefix = sink.prefix_of(topic)
            progress = read_progress(world, prefix)
            if progress:
                _write_progress(world, prefix, {**progress, "offsets": {}, "planned": {}})
        for uri in uris:
            files.remove(uri)
        for topic in names:
            files.remove(progress_path(world, sink.prefix_of(topic)))


def folders(world: World, config: dict[str, str]) -> list[str]:
    """Return the URIs of the folders of a landing: landed files and dead letters. They need not exist."""
    sink = parse(config)
    prefixes = dict.fromkeys(map(sink.prefix_of, _landed_topics(world, sink)))
    landed = [join_uri(world.lake.landing, prefix) for prefix in prefixes]
    return [*landed, dead_letters_path(world, sink)]


def _landed_topics(world: World, sink: Sink) -> list[str]:
    """Return the topics that this sink has landed, also deleted ones."""
    if not sink.is_confluent:
        return [*sink.topic_names]
    # folders without progress exist if the checkpoints were removed
    places = (f"{world.lake.checkpoints}/landing", world.lake.landing)
    entries = [each for place in places for each in files.list_dir(join_uri(place, sink.folder))]
    names = {
        each.base_name.removesuffix(PROGRESS_SUFFIX)
        for each in entries
        if not each.is_file or each.base_name.endswith(PROGRESS_SUFFIX)
    }
    return sink.matching_topics(sorted(names))
