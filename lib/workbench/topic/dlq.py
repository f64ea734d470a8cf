"""Dead letters in a topic, as the sink connectors of Kafka Connect write them (KIP-298).

A dead letter has the unchanged key and value of a message that could not be read. Its headers have
the origin of the message (topic, partition, offset) and the reason.

Kafka Connect and the landing write dead letters to a topic (errors.deadletterqueue.topic.name). The
jobs of the workbench write them to files in the lake, and `publish` produces those of an ingest to a
topic. `read` and `summary` show dead letters, and `replay` produces them to their original topics.
"""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Any, Callable, Mapping, NamedTuple, Optional, Sequence

from ..base import LakeError, World, files
from ..base.paths import join_uri
from ..connect.validation import summarize_stacktrace
from . import topics

if TYPE_CHECKING:
    import pandas

# prefix of the headers (org.apache.kafka.connect.runtime.errors.DeadLetterQueueReporter)
HEADER_PREFIX = "__connect.errors."
# header of a replayed message: `<topic>/<partition>/<offset>` of its dead letter
REPLAYED_HEADER = "workbench.replayed"
# A producer's default limit is 1 MiB. The headers make a dead letter larger than its message.
MAX_RECORD_BYTES = 2 << 20
PRODUCER_SETTINGS = {"message.max.bytes": MAX_RECORD_BYTES}
TOPIC_SETTINGS: dict[str, Any] = {"max.message.bytes": str(MAX_RECORD_BYTES)}
# A replay rejects these topics, because a message in them could configure connectors: the topics of
# Kafka Connect (stack/conf/connect.properties, deploy/eks), of Kafka and of MSK Connect, and
# Debezium's schema histories.
INTERNAL_TOPICS = re.compile(
    r"__.*|connect-(configs|offsets|status)|(dbhistory|schema-?history)[._-].*"
)
REPLAY_BATCH_SIZE = 1_000  # dead letters; a replay records its progress after each batch

# (key, value, options) of a message for `topics.produce`
Record = tuple[Optional[bytes], Optional[bytes], dict[str, Any]]
Transform = Callable[["DeadLetter"], Optional[bytes]]


class DeadLetter(NamedTuple):
    """One dead letter; see `read` for the fields."""

    partition: int
    offset: int
    replayed: bool
    topic: str
    origin_partition: int
    origin_offset: int
    connector: str
    stage: str
    reason: str
    key: Optional[bytes]
    value: Optional[bytes]
    headers: list[tuple[str, bytes]]
    timestamp: int


# --- reading


def read(world: World, topic: str) -> pandas.DataFrame:
    """Return the dead letters of a dead-letter topic in their order.

    Returns:
        One row per dead letter: partition, offset (of the dead letter); replayed (bool, whether a replay
        has dealt with it); topic,
        origin_partition, origin_offset (the origin of the message; "" and -1 if the headers do not
        have a valid one); connector, stage, reason (which connector failed, in which stage, and
        why); key, value (bytes or None); headers ([(name, bytes)]); timestamp (of the message, in
        ms).

    Raises:
        LakeError: there is no such topic.
    """
    import pandas  # a local import, because it takes a second

    frame = pandas.DataFrame(_read(world, topic), columns=DeadLetter._fields)
    return frame.astype({"replayed": bool})  # also for an empty frame


def _read(world: World, topic: str) -> list[DeadLetter]:
    # first, because it raises an error for a missing topic
    messages = topics.read_all(world, topic)
    progress = _read_progress(_progress_uri(world, topic))
    return [_to_dead_letter(message, progress) for message in messages]


def _to_dead_letter(message: topics.Message, progress: Mapping[str, int]) -> DeadLetter:
    headers = message.headers() or []
    texts = {name: str(value or b"", "utf-8", "replace") for name, value in headers}

    def header(name: str) -> str:
        return texts.get(HEADER_PREFIX + name, "")

    return DeadLetter(
        message.partition(),
        message.offset(),
        message.offset() < progress.get(str(message.partition()), 0),
        header("topic"),
        _parse_number(header("partition")),
        _parse_number(header("offset")),
        header("connector.name"),
        header("stage"),
        summarize_stacktrace(header("exception.stacktrace")),
        message.key(),
        message.value(),
        headers,
        message.timestamp()[1],
    )


def _parse_number(text: str) -> int:
    """Return the partition or offset in a header, -1 if the text is not a valid number."""
    return int(text) if re.fullmatch("[0-9]{1,18}", text) else -1


def summary(world: World) -> pandas.DataFrame:
    """Return the number of dead letters by location, origin and reason.

    A location is a topic with a partition whose first message is a dead letter, or a folder below
    `dead_letters` of the environment, to which the jobs of the workbench write. If a sink has a DLQ
    topic, its dead letters are in both.

    Returns:
        Columns location, origin, reason, replayed (count; 0 for a folder), dead_letters (count).
    """
    import pandas  # a local import, as above

    rows = [
        (f"topic {topic}", dead_letter.topic, dead_letter.reason, dead_letter.replayed)
        for topic in topics.names(world)
        if _has_dead_letters(world, topic)
        for dead_letter in _read(world, topic)
    ]
    for uri in list_files(world.lake.dead_letters):
        # without the folders of a replay and of a batch
        folder = re.sub(r"(/[0-9a-f]{32})?(/\d+[-_][0-9a-f]+)?/[^/]+$", "", folder_name(world, uri))
        for record in read_file(uri):
            origin = record.get("topic") or record["file"]
            rows.append((f"files {folder}", origin, record["reason"], False))
    keys = ["location", "origin", "reason"]
    frame = pandas.DataFrame(rows, columns=[*keys, "replayed"]).groupby(keys)
    return frame[["replayed"]].sum().assign(dead_letters=frame.size()).reset_index()


def _has_dead_letters(world: World, topic: str) -> bool:
    """Return whether the first message of a partition is a dead letter."""
    watermarks = topics.watermark_offsets(world, topic).items()
    start = {partition: low for partition, (low, high) in watermarks if low < high}
    stop = {partition: low + 1 for partition, low in start.items()}
    messages = topics.consume(world, topic, start, stop)
    return any([_to_dead_letter(message, {}).topic for message in messages])


def read_files(uri: str) -> list[dict[str, Any]]:
    """Return the dead letters in the files of a folder, those of the newest file first.

    Args:
        uri: URI of the folder, as `hudi.dead_letters_path` or `folder_uri` returns it.

    Returns:
        Dicts with reason and text (the message; its base64 if it is not text); with topic, partition
        and offset, or with the landed file.
    """
    return [record for file in list_files(uri) for record in read_file(file)]


def reasons(uri: str) -> Counter[str]:
    """Return {reason: number of dead letters} of the files in a folder."""
    return Counter(record["reason"] for record in read_files(uri))


def describe_origin(record: dict[str, Any]) -> str:
    """Return the origin of a dead letter of `read_files` as text."""
    return record.get("file") or "{topic}, partition {partition}, offset {offset}".format(**record)


def list_files(uri: str) -> list[str]:
    """Return the URIs of the files of dead letters in a folder, the newest first.

    Unfinished files are skipped, and so are hidden folders: their batch is not committed.
    """
    written_at = {
        path: info.mtime_ns
        for path, info in files.list_files(uri).items()
        if path.endswith(".json") and not re.search(r"(^|/)(\.|_temporary/)", path)
    }
    newest_first = sorted(written_at, key=lambda path: (written_at[path], path), reverse=True)
    return [f"{uri}/{path}" for path in newest_first]


def read_file(uri: str) -> list[dict[str, Any]]:
    """Return the dead letters in one file (see `read_files`)."""
    return [json.loads(line) for line in files.read_bytes(uri).splitlines()]


def folder_uri(world: World, folder: str) -> str:
    """Return the URI of a folder that `summary` names."""
    return join_uri(world.lake.dead_letters, folder.strip("/"))


def folder_name(world: World, uri: str) -> str:
    """Return the name of a folder in `summary`."""
    return uri.removeprefix(f"{world.lake.dead_letters}/")


# --- replay


def replay(world: World, topic: str, *, transform: Optional[Transform] = None) -> int:
    """Publish dead letters to their original partitions, each once.

    A message keeps its key, value, timestamp and original headers, and gets the header
    REPLAYED_HEADER. A message that still cannot be read becomes a new dead letter.

    A replayed message is appended to the topic, after newer messages. So consumers must use an
    ordering field, not the order of the offsets. The progress is recorded after each batch of
    REPLAY_BATCH_SIZE dead letters. After an interruption, or the loss of Kafka, the next replay
    publishes at most one batch twice, with the same header.

    Args:
        world: the environment profile.
        topic: name of the dead-letter topic.
        transform: receives a dead letter (a row of `read`, fields by name) and returns the value to
            publish, or None to leave the dead letter out, now and in later replays.

    Returns:
        The number of replayed dead letters.

    Raises:
        LakeError: the topic, or an original topic or partition, does not exist; the original topic
            is an internal topic (INTERNAL_TOPICS) or the dead-letter topic itself; another replay is
            running. In these cases, and if `transform` raises an error, nothing is published.
    """
    lock = f"{replay_folder(world, topic)}/replay"
    with files.exclusive_lock(lock, f"replay of {topic}", "wait until it is done"):
        waiting = [dead_letter for dead_letter in _read(world, topic) if not dead_letter.replayed]
        progress_uri = _progress_uri(world, topic)
        selected = waiting
        if transform:
            values = map(transform, waiting)
            selected = [
                dead_letter._replace(value=value)
                for dead_letter, value in zip(waiting, values)
                if value is not None
            ]
        _require_origins(world, topic, selected)
        for first in range(0, len(selected), REPLAY_BATCH_SIZE):
            batch = selected[first : first + REPLAY_BATCH_SIZE]
            for origin in dict.fromkeys(each.topic for each in batch):
                records = [_to_original(topic, each) for each in batch if each.topic == origin]
                topics.produce(world, origin, records, **PRODUCER_SETTINGS)
            _record_progress(progress_uri, batch)
        _record_progress(progress_uri, waiting)  # also of those that are left out
    return len(selected)


def _require_origins(world: World, topic: str, dead_letters: list[DeadLetter]) -> None:
    """Raise LakeError if the original topic or partition of a dead letter is unknown or rejected."""
    origins = {dead_letter.topic for dead_letter in dead_letters}
    rejected = {o for o in origins if o in ("", topic) or INTERNAL_TOPICS.fullmatch(o)}
    # raises if a topic is missing: producing would create it
    partitions = {o: topics.watermark_offsets(world, o) for o in origins - rejected}
    invalid = [
        f"offset {dead_letter.offset}: topic {dead_letter.topic!r}, partition {dead_letter.origin_partition}"
        for dead_letter in dead_letters
        if dead_letter.origin_partition not in partitions.get(dead_letter.topic, ())
    ]
    if invalid:
        raise LakeError(
            f"{len(invalid)} dead letters of {topic} have an origin to which nothing is replayed",
            location="; ".join(invalid[:5]),
            expected=f"an existing partition of a topic of a source, in the headers {HEADER_PREFIX}…; no topic of "
            "Kafka, Kafka Connect or a schema history",
            hint="find out who wrote these dead letters (a sink needs "
            "errors.deadletterqueue.context.headers.enable=true); leave them out: `transform` returns None",
        )


def _to_original(topic: str, dead_letter: DeadLetter) -> Record:
    """Return the record that publishes a dead letter to its original partition."""
    internal = (HEADER_PREFIX, REPLAYED_HEADER)
    headers = [
        (name, content) for name, content in dead_letter.headers if not name.startswith(internal)
    ]
    mark = f"{topic}/{dead_letter.partition}/{dead_letter.offset}"
    options = {
        "partition": dead_letter.origin_partition,
        "timestamp": dead_letter.timestamp,
        "headers": [*headers, (REPLAYED_HEADER, mark.encode())],
    }
    return dead_letter.key, dead_letter.value, options


def replay_folder(world: World, topic: str) -> str:
    """Return the folder with the lock and the progress of the replays of a dead-letter topic."""
    return join_uri(f"{world.lake.checkpoints}/replayed", topic)


def _progress_uri(world: World, topic: str) -> str:
    """Return the file with the progress: {partition: offset of the next dead letter}.

    Its name has the id of the topic. (By default Kafka deletes the offsets of an inactive consumer group
    after a week.)
    """
    return f"{replay_folder(world, topic)}/{topics.topic_id(world, topic)}.json"


def _read_progress(uri: str) -> dict[str, int]:
    progress: dict[str, int] = json.loads(files.read_text(uri) or "{}")
    return progress


def _record_progress(uri: str, replayed: Sequence[DeadLetter]) -> None:
    """Record that a replay has dealt with dead letters, which are in the order of their offsets."""
    offsets = {str(dead_letter.partition): dead_letter.offset + 1 for dead_letter in replayed}
    files.write_text(uri, json.dumps({**_read_progress(uri), **offsets}))


# --- publishing


def publish(world: World, topic: str, uri: str, connector: str, worker_class: str) -> int:
    """Publish the dead letters in the files of an ingest to a dead-letter topic, each once.

    A missing topic is created. The topic itself shows which dead letters it has, so a call after an
    interruption publishes only the others.

    Args:
        world: the environment profile.
        topic: name of the dead-letter topic.
        uri: folder of the files. Dead letters without a value are not published: they are of landed files, or
            have no key either.
        connector: name of the job, for the headers.
        worker_class: name of the function that runs the job, for the headers.

    Returns:
        The number of published dead letters.
    """
    new: dict[Any, None] = {}  # key, value and headers
    for record in sorted(read_files(uri), key=lambda record: record.get("offset", -1)):
        if "value" in record:
            key = base64.b64decode(record["key"]) if "key" in record else None
            headers = tuple(_error_headers(record, connector, worker_class))
            new[key, base64.b64decode(record["value"]), headers] = None
    if topic in topics.names(world):
        for message in topics.read_all(world, topic):
            new.pop((message.key(), message.value(), tuple(message.headers() or ())), None)
    _produce(world, topic, [(key, value, {"headers": [*headers]}) for key, value, headers in new])
    return len(new)


def publish_messages(
    world: World,
    topic: str,
    dead_letters: Sequence[tuple[topics.Message, str]],
    connector: str,
    worker_class: str,
) -> None:
    """Publish messages that could not be read to a dead-letter topic, which is created if it is missing.

    Args:
        world: the environment profile.
        topic: name of the dead-letter topic.
        dead_letters: each message, with the reason.
        connector: name of the job, for the headers.
        worker_class: name of the function that runs the job, for the headers.
    """
    records: list[Record] = []
    for message, reason in dead_letters:
        headers = _error_headers(to_record(message, reason), connector, worker_class)
        headers = [*(message.headers() or []), *headers]
        options = {"timestamp": message.timestamp()[1], "headers": headers}
        records.append((message.key(), message.value(), options))
    _produce(world, topic, records)


def to_record(message: topics.Message, reason: str) -> dict[str, Any]:
    """Return a dead letter of a file, with the columns of spark.batch.DEAD_LETTER_COLUMNS."""
    return {
        "reason": reason,
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "text": _payload_text(message.value()),
    }


def _payload_text(value: Optional[bytes]) -> Optional[str]:
    """Return the value of a message as text for its dead letter, or as base64 if it is not text.

    A value that contains NUL is not text, because Avro with a schema id may begin with NUL.
    """
    if value is None:
        return None
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = "\0"
    return base64.b64encode(value).decode() if "\0" in text else text


def _produce(world: World, topic: str, records: list[Record]) -> None:
    if records:
        topics.create(world, topic, **TOPIC_SETTINGS)
        topics.produce(world, topic, records, **PRODUCER_SETTINGS)


def _error_headers(
    record: Mapping[str, Any], connector: str, worker_class: str
) -> list[tuple[str, bytes]]:
    """Return the headers of a dead letter, a record as `read_files` returns it.

    The stage is VALUE_CONVERTER, because the jobs of the workbench fail only when they read a value.
    """
    errors = {
        **{name: record[name] for name in ("topic", "partition", "offset")},
        "connector.name": connector,
        "task.id": 0,
        "stage": "VALUE_CONVERTER",
        "class.name": worker_class,
        "exception.class.name": "LakeError",
        "exception.message": record["reason"],
        "exception.stacktrace": f"LakeError: {record['reason']}",
    }
    return [(HEADER_PREFIX + name, str(value).encode()) for name, value in errors.items()]
