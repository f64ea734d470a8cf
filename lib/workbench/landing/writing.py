"""The files of a topic partition: which record a file has, and when it is closed."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any, Callable, Iterable, NamedTuple

from ..base import LakeError
from ..topic.topics import Message
from .formats import RecordEncoder

DeadLetter = tuple[Message, str]  # a message, and the reason why it is not landed
Write = Callable[[str, bytes], None]  # takes the path of a file in the sink's folder, and its bytes


class OpenFile(NamedTuple):
    """A file that is not written yet: schema, message of the first record, records."""

    schema: Any
    first: Message
    records: list[Any]


def write_files(
    messages: Iterable[Message], encoder: RecordEncoder, write: Write
) -> tuple[dict[str, int], list[DeadLetter]]:
    """Write the messages of one topic partition, in the order of their offsets, to files.

    The names of the files depend only on the offset of the first message, so that a repeated call
    overwrites them.

    Returns:
        ({"messages", "records", "tombstones", "dead_letters": count}, dead letters).

    Raises:
        LakeError: a message has no value, and the sink fails then.
    """
    sink, file_format = encoder.sink, encoder.format
    # The files of a group are closed at the same time. For Confluent's sink these are all files of the
    # partition (TopicPartitionWriter), for Lenses' sink the file of one folder.
    groups: dict[str, dict[str, OpenFile]] = defaultdict(dict)  # {group: {folder: file}}
    sizes, dead_letters = Counter[str](), list[DeadLetter]()
    records = tombstones = 0

    def close(group: str) -> None:
        for folder, file in groups.pop(group).items():
            path = sink.object_path(file.first, folder) + file_format.extension
            write(path, file_format.encode_file(file.schema, file.records, path))
        del sizes[group]

    for message in messages:
        try:
            record = encoder.encode(message)
        except ValueError as e:
            dead_letters.append((message, str(e)))
            continue
        if record is None:
            if sink.fail_on_null:
                raise _null_error(message)
            tombstones += 1
            continue
        group = "" if sink.is_confluent else record.folder
        open_file = groups[group].get(record.folder)
        if open_file and open_file.schema is not record.schema:  # schema.compatibility NONE
            close(group)
        new_file = OpenFile(record.schema, message, [])
        groups[group].setdefault(record.folder, new_file).records.append(record.content)
        records += 1
        sizes[group] += 1
        if sizes[group] == sink.flush_count:
            close(group)
    for group in [*groups]:
        close(group)
    found = {"records": records, "tombstones": tombstones, "dead_letters": len(dead_letters)}
    return {"messages": sum(found.values()), **found}, dead_letters


def _null_error(message: Message) -> LakeError:
    return LakeError(
        f"the message at offset {message.offset()} of {message.topic()}, partition {message.partition()}, has "
        "no value, and behavior.on.null.values is fail",
        hint="behavior.on.null.values=ignore leaves such messages out",
    )
