"""Dead letters in a topic, as the sinks of a Kafka Connect put them there (KIP-298): the message as
it was, every byte of its key and its value, with headers that say where it came from and why it
could not be read.

A Connect writes them by itself (errors.deadletterqueue.topic.name); for jobs of ours `send` does
it, from the files that they put them into. `letters` and `counts` show them, and `replay` sends
them back to where they came from.
"""

import contextlib
import json
import re
from typing import Any, Callable, Iterable, Optional, Sequence

import pandas

from ..base import LakeError, World, files
from ..base.paths import join_uri
from ..connect.validation import summarize_stacktrace
from . import topics

# of the headers (org.apache.kafka.connect.runtime.errors.DeadLetterQueueReporter)
HEADER_PREFIX = "__connect.errors."
# header of a message that was sent back: `<topic>/<partition>/<offset>` of its letter
REPLAYED_HEADER = "workbench.replayed"
MAX_RECORD_BYTES = (
    2 << 20
)  # most bytes of a letter: its headers come on top of a message, of at most 1 MiB by a producer's default
PRODUCER_SETTINGS = {
    "message.max.bytes": MAX_RECORD_BYTES
}  # of a producer of letters, and of what comes back of them
# Topics that no letter goes back to, whatever its headers say: who writes them configures
# connectors. Those of Connect itself (stack/conf/connect.properties, deploy/eks), of Kafka and of
# MSK Connect, and Debezium's schema histories
INTERNAL_TOPICS = re.compile(
    r"__.*|connect-(configs|offsets|status)|(dbhistory|schema-?history)[._-].*"
)
REPLAY_BATCH_SIZE = 1_000  # letters of a replay between two records of its progress
COLUMNS = [
    "partition",
    "offset",
    "replayed",
    "topic",
    "origin_partition",
    "origin_offset",
    "connector",
    "stage",
    "reason",
    "key",
    "value",
    "headers",
    "timestamp",
]


# --- what is there
# ---------------------------------------------------------------------------------------------------


def read(world: World, topic: str) -> pandas.DataFrame:
    """The letters in a dead-letter topic, in their order.

    Returns:
        Columns partition, offset: of the letter; replayed: whether it was sent back; topic,
        origin_partition,
        origin_offset: where the message was ("" and -1 where its headers do not say it, or say no
            number);
        connector, stage, reason: who
        could not read it, at what, and why; key, value: bytes or None; headers: [(name, bytes)];
        timestamp: of the message, in ms.

    Raises: LakeError: there is no such topic.
    """
    there, done = topics.read_all(world, topic), {*map(tuple, _replayed_offsets(world, topic))}
    frame = pandas.DataFrame(
        [_to_row(m, (m.partition(), m.offset()) in done) for m in there], columns=COLUMNS
    )
    return frame.astype({"replayed": bool})  # also where there is no row


def _to_row(message: Any, replayed: bool) -> tuple:
    headers = message.headers() or []
    said = {name: str(value or b"", "utf-8", "replace") for name, value in headers}
    topic, partition, offset, connector, stage, trace = (
        said.get(HEADER_PREFIX + name, "")
        for name in (
            "topic",
            "partition",
            "offset",
            "connector.name",
            "stage",
            "exception.stacktrace",
        )
    )
    return (
        message.partition(),
        message.offset(),
        replayed,
        topic,
        _parse_number(partition),
        _parse_number(offset),
        connector,
        stage,
        summarize_stacktrace(trace),
        message.key(),
        message.value(),
        headers,
        message.timestamp()[1],
    )


def _parse_number(text: str) -> int:
    """A header's number, -1 where it is none that Kafka counts partitions or offsets by."""
    return int(text) if re.fullmatch("[0-9]{1,18}", text) else -1


def summary(world: World) -> pandas.DataFrame:
    """How many dead letters there are, by place, origin and reason; and how many of those in a
    topic were sent back.

    A place is a topic (whose first message is a letter), or a folder below the world's
    `dead_letters`, where our jobs put them: those of a sink that names a topic are in both.
    """
    rows = [
        ("topic " + topic, one.topic, one.reason, one.replayed)
        for topic in topics.names(world)
        if _has_dead_letters(world, topic)
        for one in read(world, topic).itertuples()
    ]
    for path in _list_files(world.lake.dead_letters):
        folder = re.sub(r"(/\d{8})?/[^/]+$", "", path)  # without that of a batch
        rows += [
            ("files " + folder, one.get("topic") or one["file"], one["reason"], False)
            for one in _read_lines(world.lake.dead_letters, path)
        ]
    frame = pandas.DataFrame(rows, columns=["place", "origin", "reason", "replayed"])
    return (
        frame.groupby(["place", "origin", "reason"])["replayed"]
        .agg(letters="size", replayed="sum")
        .reset_index()
    )


def _has_dead_letters(world: World, topic: str) -> bool:
    start = {
        p: begin
        for p, (begin, end) in topics.watermark_offsets(world, topic).items()
        if begin < end
    }
    with contextlib.closing(
        topics.consume(world, topic, start, {p: n + 1 for p, n in start.items()})
    ) as found:
        return any(name.startswith(HEADER_PREFIX) for m in found for name, _ in m.headers() or [])


# --- back to where they came from
# ------------------------------------------------------------------------------------


def replay(
    world: World,
    topic: str,
    *,
    offsets: Iterable[int] = (),
    transform: Optional[Callable[[Any], Optional[bytes]]] = None,
) -> int:
    """Send letters back to the partition that they came from, each once; return how many. The
    message is as it was, its time and its own headers too, and has one header more (REPLAYED). What
    cannot be read again becomes a new letter.

    It comes behind all that was sent to the topic since: who reads it goes by an ordering field,
    not by the order. Progress is recorded after each batch of BATCH letters. After an interruption,
    or the loss of Kafka, the next replay sends at most one batch twice; its messages have the same
    header.

    Args:
        offsets: of these letters only, in a topic of one partition; one that was sent back is not
            sent again.
        mend: is given a letter (a row of `letters`, fields by name), and gives the value that is
            sent; None leaves the letter where it is.

    Raises:
        LakeError: there is no such topic, or no topic or partition to go back to; a letter names a
            topic of Connect's own, a schema history, or the dead-letter topic itself; offsets of a
            topic of several partitions; another replay is going on. What `mend` raises. Nothing is
            sent then.
    """
    with files.exclusive_lock(
        f"{_state_path(world, topic)}/replay", f"replay of {topic}", "wait until it is done"
    ):
        chosen = _select(world, topic, set(offsets), transform)
        _check_origins(world, topic, [letter for letter, _ in chosen])
        by_origin: dict[str, list[Any]] = {}
        for letter, value in chosen:
            by_origin.setdefault(letter.topic, []).append((letter, value))
        for origin, letters_of in by_origin.items():
            _publish_batches(world, topic, origin, letters_of)
    return len(chosen)


def _select(
    world: World, topic: str, offsets: set[int], mend: Optional[Callable[[Any], Optional[bytes]]]
) -> list[tuple[Any, Optional[bytes]]]:
    """Return the letters to send back, each with the value to send."""
    found = read(world, topic)
    if offsets and len(topics.watermark_offsets(world, topic)) > 1:
        raise LakeError(
            f"{topic} has several partitions, and an offset names a letter in each of them",
            hint="choose by `mend`, which is given partition and offset: None leaves a letter",
        )
    selected = found[~found["replayed"] & (found["offset"].isin(offsets) | (not offsets))]
    values = [
        (one, one.value if mend is None else mend(one))
        for one in selected.itertuples(name="Letter")
    ]
    return [(one, value) for one, value in values if mend is None or value is not None]


def _check_origins(world: World, topic: str, chosen: Sequence[Any]) -> None:
    """Raise LakeError where a letter names no topic and partition that it may be sent back to."""
    origins = {one.topic for one in chosen}
    if "" in origins:
        raise LakeError(
            f"a letter of {topic} does not say where it came from",
            expected=f"headers {HEADER_PREFIX}…",
            hint="let the sink write them: errors.deadletterqueue.context.headers.enable=true",
        )
    refused = sorted(
        origin for origin in origins if origin == topic or INTERNAL_TOPICS.fullmatch(origin)
    )
    if refused:
        named = [f"offset {one.offset}: {one.topic}" for one in chosen if one.topic in refused]
        raise LakeError(
            f"letters of {topic} name topics that no letter is sent back to: {', '.join(refused)}",
            location="; ".join(named[:5]),
            expected="topics of a source; anybody can write a header",
            hint="find out who wrote these letters; choose the others by offset, or by `mend`",
        )
    partitions = {
        origin: topics.watermark_offsets(world, origin) for origin in origins
    }  # one that is gone would be made
    odd = sorted(
        {
            f"offset {one.offset}: {one.topic}, partition {one.origin_partition}"
            for one in chosen
            if one.origin_partition not in partitions[one.topic]
        }
    )
    if odd:
        raise LakeError(
            f"letters of {topic} name a partition that their topic does not have",
            location="; ".join(odd[:5]),
            expected="partitions that are there",
            hint="choose the others by offset, or by `mend`",
        )


def _publish_batches(
    world: World, topic: str, origin: str, chosen: Sequence[tuple[Any, Optional[bytes]]]
) -> None:
    """Send letters back to one topic, and record the progress after each batch."""
    folder = f"{_state_path(world, topic)}/{topics.topic_id(world, topic)}"
    for begin in range(0, len(chosen), REPLAY_BATCH_SIZE):
        batch = chosen[begin : begin + REPLAY_BATCH_SIZE]
        topics.produce(
            world, origin, [_to_original(topic, *each) for each in batch], **PRODUCER_SETTINGS
        )
        places = [[one.partition, one.offset] for one, _ in batch]
        files.write_text(f"{folder}/{places[0][0]}-{places[0][1]}.json", json.dumps(places))


def _to_original(topic: str, one: Any, value: Optional[bytes]) -> tuple:
    own = [
        (name, v)
        for name, v in one.headers
        if not name.startswith((HEADER_PREFIX, REPLAYED_HEADER))
    ]
    mark = (REPLAYED_HEADER, f"{topic}/{one.partition}/{one.offset}".encode())
    return (
        one.key,
        value,
        {"partition": one.origin_partition, "timestamp": one.timestamp, "headers": [*own, mark]},
    )


def _state_path(world: World, topic: str) -> str:
    """Return the folder that records which letters of a topic were sent back: below the id of the
    topic, a file for each batch, [[partition, offset], …]; beside the ids the lock. (The offset of
    a consumer group is one place for all, and Kafka forgets it after a week.)
    """
    return join_uri(f"{world.lake.checkpoints}/replayed", topic)


def _replayed_offsets(world: World, topic: str) -> list[list[int]]:
    folder, topic_id = _state_path(world, topic), topics.topic_id(world, topic)
    root, _, name = f"{folder}.json".rpartition("/")  # one file for all, of former versions
    is_there = any(
        info.is_file and info.base_name == name for info in files.list_dir(root)
    )  # a topic may be called so
    former = json.loads((files.read_text(f"{folder}.json") if is_there else None) or "{}")
    batches = [name for name in files.list_files(f"{folder}/{topic_id}") if name.endswith(".json")]
    return [
        *former.get(topic_id, []),
        *(
            place
            for name in batches
            for place in json.loads(files.read_bytes(f"{folder}/{topic_id}/{name}"))
        ),
    ]


def replay_state_dirs(world: World) -> dict[str, str]:
    """Return {address of the records of a replay: its dead-letter topic}, also of topics that are
    gone.
    """
    folder = f"{world.lake.checkpoints}/replayed"
    found = files.list_dir(folder)
    former = {
        info.base_name: info.base_name[: -len(".json")]
        for info in found
        if info.is_file and info.base_name.endswith(".json")
    }  # other files are locks of former versions
    topics_ = {info.base_name: info.base_name for info in found if not info.is_file}
    return {f"{folder}/{name}": topic for name, topic in {**topics_, **former}.items()}


# --- those of our jobs
# -----------------------------------------------------------------------------------------------


def publish(
    world: World,
    topic: str,
    uri: str,
    state_uri: str,
    connector: str,
    worker_class: str,
    landed_topic_id: Callable[..., Any],
) -> int:
    """Send what a job has put aside to a dead-letter topic, which is made where it is missing;
    return how many.

    The messages are read from their topics once more: a file has a message's text, not its bytes.
    Killed on the way, it sends the same ones again the next time; topic, partition and offset in
    the headers tell a double.

    Args:
        place: address of the files (see landing.batch.DEAD_LETTER); what in them comes from a
            landed file is not sent.
        noted: address of the file that keeps which of them were sent; one that was written anew
            since is sent again.
        connector, by: for the headers, the name of the job and of the function that does its work.
        known: gives the id that a topic had when its letters were written, None where nobody knows:
            of one that was made anew since, another message stands at a letter's place.

    Raises:
        LakeError: messages are no longer in their topic, or it is gone, or another one by now. All
            others are sent; these are not tried again.
    """
    there, sent = _list_files(uri), json.loads(files.read_text(state_uri) or "{}")
    dead: dict[str, dict[tuple[int, int], str]] = {}  # {topic: {(partition, offset): reason}}
    for path in sorted(path for path in there if sent.get(path) != there[path]):
        for one in filter(lambda one: one.get("topic"), _read_lines(uri, path)):
            dead.setdefault(one["topic"], {})[one["partition"], one["offset"]] = one["reason"]
    found = [
        (m, why[m.partition(), m.offset()])
        for origin, why in dead.items()
        for m in _fetch(world, origin, why, landed_topic_id(origin))
    ]
    if found:
        topics.create(world, topic, **{"max.message.bytes": str(MAX_RECORD_BYTES)})
        topics.produce(
            world,
            topic,
            [to_record(m, connector, worker_class, reason) for m, reason in found],
            **PRODUCER_SETTINGS,
        )
    if there != sent:
        files.write_text(state_uri, json.dumps(there))
    gone = sum(map(len, dead.values())) - len(found)
    if gone:
        raise LakeError(
            f"{gone} dead letters were not sent to {topic}: their messages are gone from {', '.join(dead)}",
            location=uri,
            hint="the files there have their text, or its base64",
        )
    return len(found)


def to_record(message: Any, connector: str, worker_class: str, reason: str) -> tuple:
    """The letter of a message that could not be read, as `topics.produce` takes it. (What fails in
    ours, whoever reads, is the reading of a value.)
    """
    said = {
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
    headers = [
        *(message.headers() or []),
        *((HEADER_PREFIX + name, str(value).encode()) for name, value in said.items()),
    ]
    return message.key(), message.value(), {"timestamp": message.timestamp()[1], "headers": headers}


def _fetch(
    world: World, topic: str, places: Iterable[tuple[int, int]], id: Optional[str]
) -> list[Any]:
    """The messages at places of a topic, (partition, offset) each, those that are still there; none
    where the topic is gone, or has another id than this one. Of each partition all is read from the
    first to the last.
    """
    if topic not in topics.names(world) or id not in (None, topics.topic_id(world, topic)):
        return []
    start, stop = {}, {}
    for partition, (begin, end) in topics.watermark_offsets(world, topic).items():
        offsets = [n for p, n in places if p == partition and begin <= n < end]
        start[partition], stop[partition] = min(offsets, default=end), max(offsets, default=-1) + 1
    with contextlib.closing(topics.consume(world, topic, start, stop)) as found:
        return [m for m in found if (m.partition(), m.offset()) in places]


def _list_files(place: str) -> dict[str, str]:
    """{path: when it was written, and its size} of the files of dead letters below an address,
    without Spark's own, and without those that are being written.
    """
    return {
        path: f"{info.mtime_ns} {info.size}"
        for path, info in files.list_files(place).items()
        if not re.search(r"(^|/)(\.|_SUCCESS$|_temporary/)", path)
    }


def _read_lines(place: str, path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in files.read_bytes(f"{place}/{path}").splitlines()]
