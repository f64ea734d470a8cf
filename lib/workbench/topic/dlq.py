"""Dead letters in a topic, as the sink connectors of Kafka Connect write them (KIP-298).

A dead letter has the unchanged key and value of a message that could not be read. Its headers have
the origin of the message (topic, partition, offset) and the reason.

Kafka Connect writes dead letters itself (errors.deadletterqueue.topic.name). The jobs of the
workbench write them to files, and `publish` produces them to a topic. `read` and `summary` show dead
letters, and `replay` produces them to their original topics.
"""

import base64
import contextlib
import json
import re
from typing import Any, Callable, Collection, Iterable, NamedTuple, Optional, Sequence, Union

import pandas

from ..base import LakeError, WorkbenchError, World, files
from ..base.paths import join_uri
from ..connect.validation import summarize_stacktrace
from . import registry, topics

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

# of the dead letters of a table that were settled (see hudi/settling.py); hidden from Spark
SETTLED_FILE = ".settled.json"
POSITION = ("topic", "partition", "offset")
Position = tuple[str, int, int]
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
        One row per dead letter: partition, offset (of the dead letter); replayed (bool); topic,
        origin_partition, origin_offset (the origin of the message; "" and -1 if the headers do not
        have a valid one); connector, stage, reason (which connector failed, in which stage, and
        why); key, value (bytes or None); headers ([(name, bytes)]); timestamp (of the message, in
        ms).

    Raises:
        LakeError: there is no such topic.
    """
    frame = pandas.DataFrame(_read(world, topic), columns=DeadLetter._fields)
    return frame.astype({"replayed": bool})  # also for an empty frame


def _read(world: World, topic: str) -> list[DeadLetter]:
    messages = topics.read_all(
        world, topic
    )  # first, because it raises an error for a missing topic
    replayed = _replayed_offsets(world, topic)
    return [_to_dead_letter(message, replayed) for message in messages]


def _to_dead_letter(
    message: topics.Message, replayed: Collection[tuple[int, int]] = ()
) -> DeadLetter:
    headers = message.headers() or []
    texts = {name: str(value or b"", "utf-8", "replace") for name, value in headers}

    def header(name: str) -> str:
        return texts.get(HEADER_PREFIX + name, "")

    return DeadLetter(
        message.partition(),
        message.offset(),
        (message.partition(), message.offset()) in replayed,
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

    A location is a topic whose first message is a dead letter, or a folder below `dead_letters` of the
    environment, to which the jobs of the workbench write. If a sink has a DLQ topic, its dead
    letters are in both.

    Returns:
        Columns location, origin, reason, dead_letters (count), replayed (count; 0 for a folder), settled
        (count; 0 for a topic): a later message of the same record key is in the table.
    """
    rows = [
        (f"topic {topic}", dead_letter.topic, dead_letter.reason, dead_letter.replayed, False)
        for topic in topics.names(world)
        if _has_dead_letters(world, topic)
        for dead_letter in _read(world, topic)
    ]
    root = world.lake.dead_letters
    for path in _list_files(root):
        folder = re.sub(r"(/\d{8})?/[^/]+$", "", path)  # without the folder of a batch
        settled = settled_positions(f"{root}/{folder.rpartition('/')[0]}")
        for record in _read_lines(root, path):
            is_settled = _is_settled(record, settled)
            origin = record.get("topic") or record["file"]
            rows.append((f"files {folder}", origin, record["reason"], False, is_settled))
    keys = ["location", "origin", "reason"]
    frame = pandas.DataFrame(rows, columns=[*keys, "replayed", "settled"]).groupby(keys)
    counts = frame[["replayed", "settled"]].sum()
    return counts.assign(dead_letters=frame.size()).reset_index()


def read_files(world: World, folder: str) -> list[dict[str, Any]]:
    """Return the dead letters in a folder below `dead_letters` of the environment, such as `summary` names.

    Returns:
        Dicts with reason, topic, partition, offset, file, text (the message; an Avro message as a dict),
        is_settled.
    """
    root, folder = world.lake.dead_letters, folder.strip("/")
    records = []
    for path in _list_files(f"{root}/{folder}"):
        settled = settled_positions(f"{root}/{folder}") | settled_positions(
            f"{root}/{folder.rpartition('/')[0]}"
        )
        for record in _read_lines(f"{root}/{folder}", path):
            text = _readable(world, record.get("text"))
            records.append({**record, "text": text, "is_settled": _is_settled(record, settled)})
    return records


def _readable(world: World, text: Any) -> Any:
    """Return the text of a dead letter, or the record if it is an Avro message in base64."""
    try:
        return registry.inspect_message(world, base64.b64decode(text, validate=True))["record"]
    except (WorkbenchError, TypeError, ValueError):
        return text


def settled_positions(uri: str) -> set[Position]:
    """Return the positions of the settled dead letters in a table's folder of dead letters."""
    positions = json.loads(files.read_text(f"{uri}/{SETTLED_FILE}") or "[]")
    return {(topic, partition, offset) for topic, partition, offset in positions}


def _has_dead_letters(world: World, topic: str) -> bool:
    """Return whether the first message of a partition is a dead letter."""
    watermarks = topics.watermark_offsets(world, topic).items()
    start = {partition: low for partition, (low, high) in watermarks if low < high}
    stop = {partition: low + 1 for partition, low in start.items()}
    with contextlib.closing(topics.consume(world, topic, start, stop)) as messages:
        headers = [name for message in messages for name, _ in message.headers() or []]
    return any(name.startswith(HEADER_PREFIX) for name in headers)


# --- replay


def replay(
    world: World, topic: str, *, offsets: Iterable[int] = (), transform: Optional[Transform] = None
) -> int:
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
        offsets: offsets of the dead letters to replay, by default all; only for a topic with one
            partition. A dead letter that was replayed before is skipped.
        transform: receives a dead letter (a row of `read`, fields by name) and returns the value to
            publish, or None to skip the dead letter.

    Returns:
        The number of replayed dead letters.

    Raises:
        LakeError: the topic, or an original topic or partition, does not exist; the original topic
            is an internal topic (INTERNAL_TOPICS) or the dead-letter topic itself; `offsets` are
            given for a topic with several partitions; another replay is running. In these cases,
            and if `transform` raises an error, nothing is published.
    """
    lock = f"{_state_path(world, topic)}/replay"
    with files.exclusive_lock(lock, f"replay of {topic}", "wait until it is done"):
        selected = _select(world, topic, set(offsets), transform)
        _check_origins(world, topic, [dead_letter for dead_letter, _ in selected])
        for origin in dict.fromkeys(dead_letter.topic for dead_letter, _ in selected):
            _publish_batches(world, topic, origin, [s for s in selected if s[0].topic == origin])
    return len(selected)


def _select(
    world: World, topic: str, offsets: set[int], transform: Optional[Transform]
) -> list[tuple[DeadLetter, Optional[bytes]]]:
    """Return the dead letters to replay, each with the value to publish."""
    dead_letters = _read(world, topic)
    if offsets and len(topics.watermark_offsets(world, topic)) > 1:
        raise LakeError(
            f"{topic} has several partitions, so an offset does not identify a dead letter",
            hint="select by `transform`, which gets partition and offset: None skips a dead letter",
        )
    selected = []
    for dead_letter in dead_letters:
        if dead_letter.replayed or (offsets and dead_letter.offset not in offsets):
            continue
        value = transform(dead_letter) if transform else dead_letter.value
        if value is not None or transform is None:
            selected.append((dead_letter, value))
    return selected


def _check_origins(world: World, topic: str, dead_letters: list[DeadLetter]) -> None:
    """Raise LakeError if the original topic and partition of a dead letter are unknown or rejected."""
    origins = {dead_letter.topic for dead_letter in dead_letters}
    if "" in origins:
        raise LakeError(
            f"a dead letter of {topic} does not name its original topic",
            expected=f"headers {HEADER_PREFIX}…",
            hint="configure the sink to write them: errors.deadletterqueue.context.headers.enable=true",
        )
    rejected = sorted(o for o in origins if o == topic or INTERNAL_TOPICS.fullmatch(o))
    if rejected:
        named = [
            f"offset {dead_letter.offset}: {dead_letter.topic}"
            for dead_letter in dead_letters
            if dead_letter.topic in rejected
        ]
        raise LakeError(
            f"dead letters of {topic} name original topics that a replay rejects: {', '.join(rejected)}",
            location="; ".join(named[:5]),
            expected="topics of a source; every producer can write headers",
            hint="find out who wrote these dead letters; select the others by offset, or by `transform`",
        )
    # raises if a topic is missing: producing would create it
    partitions = {origin: topics.watermark_offsets(world, origin) for origin in origins}
    invalid = {
        f"offset {dead_letter.offset}: {dead_letter.topic}, partition {dead_letter.origin_partition}"
        for dead_letter in dead_letters
        if dead_letter.origin_partition not in partitions[dead_letter.topic]
    }
    if invalid:
        raise LakeError(
            f"dead letters of {topic} name a partition that their topic does not have",
            location="; ".join(sorted(invalid)[:5]),
            expected="existing partitions",
            hint="select the others by offset, or by `transform`",
        )


def _publish_batches(
    world: World, topic: str, origin: str, selected: list[tuple[DeadLetter, Optional[bytes]]]
) -> None:
    """Publish dead letters to one topic, and record the progress after each batch."""
    folder = f"{_state_path(world, topic)}/{topics.topic_id(world, topic)}"
    for first in range(0, len(selected), REPLAY_BATCH_SIZE):
        batch = selected[first : first + REPLAY_BATCH_SIZE]
        records = [_to_original(topic, dead_letter, value) for dead_letter, value in batch]
        topics.produce(world, origin, records, **PRODUCER_SETTINGS)
        positions = [(dead_letter.partition, dead_letter.offset) for dead_letter, _ in batch]
        name = "{}-{}.json".format(*positions[0])
        files.write_text(f"{folder}/{name}", json.dumps(positions))


def _to_original(topic: str, dead_letter: DeadLetter, value: Optional[bytes]) -> Record:
    """Return the record that publishes a dead letter to its original partition."""
    internal = (HEADER_PREFIX, REPLAYED_HEADER)
    headers = [
        (name, content) for name, content in dead_letter.headers if not name.startswith(internal)
    ]
    headers.append(
        (REPLAYED_HEADER, f"{topic}/{dead_letter.partition}/{dead_letter.offset}".encode())
    )
    options = {
        "partition": dead_letter.origin_partition,
        "timestamp": dead_letter.timestamp,
        "headers": headers,
    }
    return dead_letter.key, value, options


def _state_path(world: World, topic: str) -> str:
    """Return the folder that records which dead letters of a topic were replayed.

    The folder contains the lock and, below the id of the topic, one file for each batch: [[partition,
    offset], …]. (A committed offset could not record single messages, and Kafka deletes the offsets
    of an inactive group after a week.)
    """
    return join_uri(f"{world.lake.checkpoints}/replayed", topic)


def _replayed_offsets(world: World, topic: str) -> set[tuple[int, int]]:
    """Return (partition, offset) of the dead letters that were replayed."""
    folder, topic_id = _state_path(world, topic), topics.topic_id(world, topic)
    positions = []
    # Earlier versions wrote one file for all batches. A folder may have the same name.
    root, _, former = f"{folder}.json".rpartition("/")
    if any(info.is_file and info.base_name == former for info in files.list_dir(root)):
        positions += json.loads(files.read_text(f"{root}/{former}") or "{}").get(topic_id, [])
    for name in files.list_files(f"{folder}/{topic_id}"):
        if name.endswith(".json"):
            positions += json.loads(files.read_bytes(f"{folder}/{topic_id}/{name}"))
    return {(partition, offset) for partition, offset in positions}


def replay_state_dirs(world: World) -> dict[str, str]:
    """Return {URI of a replay's state: dead-letter topic}, also for deleted topics."""
    folder = f"{world.lake.checkpoints}/replayed"
    topic_by_uri = {}
    for info in files.list_dir(folder):
        name = info.base_name
        # earlier versions wrote a file for each topic, and locks beside it
        if not info.is_file or name.endswith(".json"):
            topic_by_uri[f"{folder}/{name}"] = name[:-5] if info.is_file else name
    return topic_by_uri


# --- publishing


def publish(
    world: World,
    topic: str,
    uri: str,
    state_uri: str,
    connector: str,
    worker_class: str,
    landed_topic_id: Callable[[str], Optional[str]],
) -> int:
    """Publish the dead letters in a job's files to a dead-letter topic.

    A missing topic is created. The messages are read from their topics again, because a file has the
    text of a message, not its bytes. After an interruption the next call publishes the same dead
    letters again. Topic, partition and offset in the headers identify a duplicate.

    Args:
        world: the environment profile.
        topic: name of the dead-letter topic.
        uri: folder of the files (see spark.batch.DEAD_LETTER_COLUMNS). Records that come from a
            landed file are not published.
        state_uri: the file that lists which files were published. A file that was rewritten since
            is published again.
        connector: name of the job, for the headers.
        worker_class: name of the function that runs the job, for the headers.
        landed_topic_id: returns the id that a topic had when its dead letters were written, None
            if it is unknown. After a topic was recreated, its offsets have other messages.

    Returns:
        The number of published dead letters.

    Raises:
        LakeError: messages are no longer in their topics, or a topic was deleted or recreated. All
            other dead letters are published. A later call does not try the missing ones again.
    """
    versions, published = _list_files(uri), json.loads(files.read_text(state_uri) or "{}")
    reasons = {
        (line["topic"], line["partition"], line["offset"]): line["reason"]
        for path in sorted(versions)
        if versions[path] != published.get(path)
        for line in _read_lines(uri, path)
        if line.get("topic")
    }
    origins = dict.fromkeys(origin for origin, _, _ in reasons)
    dead_letters = []
    for origin in origins:
        positions = {(partition, offset) for name, partition, offset in reasons if name == origin}
        for message in _fetch(world, origin, positions, landed_topic_id(origin)):
            position = (origin, message.partition(), message.offset())
            dead_letters.append((message, reasons[position]))
    publish_messages(world, topic, dead_letters, connector, worker_class)
    if versions != published:
        files.write_text(state_uri, json.dumps(versions))
    missing = len(reasons) - len(dead_letters)
    if missing:
        raise LakeError(
            f"{missing} dead letters were not published to {topic}: their messages are gone from "
            f"{', '.join(origins)}",
            location=uri,
            hint="the files in this folder have their text, or the text as base64",
        )
    return len(dead_letters)


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
    if dead_letters:
        topics.create(world, topic, **TOPIC_SETTINGS)
        records = [
            to_record(message, connector, worker_class, reason) for message, reason in dead_letters
        ]
        topics.produce(world, topic, records, **PRODUCER_SETTINGS)


def to_record(message: topics.Message, connector: str, worker_class: str, reason: str) -> Record:
    """Return the dead letter of a message that could not be read, for `topics.produce`.

    The stage is VALUE_CONVERTER, because the jobs of the workbench fail only when they read a value.
    """
    errors: dict[str, Union[str, int]] = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "connector.name": connector,
        "task.id": 0,
        "stage": "VALUE_CONVERTER",
        "class.name": worker_class,
        "exception.class.name": "LakeError",
        "exception.message": reason,
        "exception.stacktrace": f"LakeError: {reason}",
    }
    headers = [(HEADER_PREFIX + name, str(value).encode()) for name, value in errors.items()]
    options = {
        "timestamp": message.timestamp()[1],
        "headers": [*(message.headers() or []), *headers],
    }
    return message.key(), message.value(), options


def _fetch(
    world: World, topic: str, positions: Collection[tuple[int, int]], id: Optional[str]
) -> list[topics.Message]:
    """Return the messages of a topic at these positions (partition, offset) that still exist.

    The result is empty if the topic is missing or has another id. All messages of a partition
    between the first and the last position are read.
    """
    if topic not in topics.names(world) or id not in (None, topics.topic_id(world, topic)):
        return []
    start, stop = {}, {}
    for partition, (low, high) in topics.watermark_offsets(world, topic).items():
        offsets = [n for p, n in positions if p == partition and low <= n < high]
        if offsets:
            start[partition], stop[partition] = min(offsets), max(offsets) + 1
    with contextlib.closing(topics.consume(world, topic, start, stop)) as messages:
        return [m for m in messages if (m.partition(), m.offset()) in positions]


def _list_files(uri: str) -> dict[str, str]:
    """Return {path: modification time and size} of the files of dead letters below a URI.

    Spark's own files and unfinished files are skipped.
    """
    return {
        path: f"{info.mtime_ns} {info.size}"
        for path, info in files.list_files(uri).items()
        if not re.search(r"(^|/)(\.|_SUCCESS$|_temporary/)", path)
    }


def reasons(uri: str) -> list[str]:
    """Return the reasons of the dead letters in a table's folder that are not settled."""
    paths, settled = _list_files(uri), settled_positions(uri)
    records = [record for path in paths for record in _read_lines(uri, path)]
    return [record["reason"] for record in records if not _is_settled(record, settled)]


def _is_settled(record: dict[str, Any], settled: set[Position]) -> bool:
    return tuple(map(record.get, POSITION)) in settled and not record.get("file")


def _read_lines(uri: str, path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in files.read_bytes(f"{uri}/{path}").splitlines()]
