"""The files of a topic partition: which record a file has, and when it is closed."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Callable, Iterable, NamedTuple

from ..base import LakeError
from ..topic.topics import Message
from .formats import EncodedRecord, RecordEncoder

DeadLetter = tuple[Message, str]  # a message, and the reason why it is not landed
Write = Callable[[str, bytes], None]  # takes the path of a file in the sink's folder, and its bytes


class OpenFile(NamedTuple):
    """A file that is not written yet: schema, message of the first record, records."""

    schema: Any
    first: Message
    records: list[Any]


class FileGroup:
    """The files of a topic partition that are closed at the same time.

    For Confluent's sink these are all files of the partition (TopicPartitionWriter), for Lenses' sink
    the file of one folder.
    """

    def __init__(self, encoder: RecordEncoder, write: Write):
        """Create a group without files."""
        self._encoder, self._write = encoder, write
        self._files: dict[str, OpenFile] = {}  # by folder
        self._record_count = 0

    def add(self, message: Message, record: EncodedRecord) -> None:
        """Add a record to the file of its folder; close the open files before or after that if needed."""
        open_file = self._files.get(record.folder)
        if open_file and open_file.schema is not record.schema:  # schema.compatibility NONE
            self.close()
        file = self._files.setdefault(record.folder, OpenFile(record.schema, message, []))
        file.records.append(record.content)
        self._record_count += 1
        if self._record_count == self._encoder.sink.flush_count:
            self.close()

    def close(self) -> None:
        """Write the open files."""
        sink, file_format = self._encoder.sink, self._encoder.format
        for folder, file in self._files.items():
            path = sink.object_path(file.first, folder) + file_format.extension
            self._write(path, file_format.encode_file(file.schema, file.records, path))
        self._files.clear()
        self._record_count = 0


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
    sink = encoder.sink
    groups: dict[str, FileGroup] = defaultdict(lambda: FileGroup(encoder, write))
    dead_letters: list[DeadLetter] = []
    records = tombstones = 0
    for message in messages:
        try:
            record = encoder.encode(message)
        except ValueError as e:
            dead_letters.append((message, str(e)))
            continue
        if record:
            records += 1
            groups["" if sink.is_confluent else record.folder].add(message, record)
        elif sink.fail_on_null:
            raise _null_error(message)
        else:
            tombstones += 1
    for group in groups.values():
        group.close()
    found = {"records": records, "tombstones": tombstones, "dead_letters": len(dead_letters)}
    return {"messages": sum(found.values()), **found}, dead_letters


def _null_error(message: Message) -> LakeError:
    return LakeError(
        f"the message at offset {message.offset()} of {message.topic()}, partition {message.partition()}, has "
        "no value, and behavior.on.null.values is fail",
        hint="behavior.on.null.values=ignore leaves such messages out",
    )
