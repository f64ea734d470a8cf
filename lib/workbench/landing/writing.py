"""The files of a topic partition: which record a file has, and when it is closed."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Any, Callable, Iterable, Optional

from ..base import LakeError
from ..topic.topics import Message
from .formats import EncodedRecord, RecordEncoder

DeadLetter = tuple[Message, str]  # a message, and the reason why it is not landed


@dataclass
class OpenFile:
    """A file that is not written yet: schema, offset of the first record, records."""

    schema: Any
    first_offset: int
    records: list[Any] = field(default_factory=list)


@dataclass
class FileGroup:
    """The files of a topic partition that are closed at the same time.

    For Confluent's sink these are all files of the partition (TopicPartitionWriter), for Lenses' sink
    the files of one folder.

    Attributes:
        encoder: has the configuration of the sink and the format of the files.
        write: writes a file; takes its path and its bytes.
        topic: name of the topic.
        partition: number of the partition.
        files: {folder: open file}.
        record_count: number of records in the open files.
    """

    encoder: RecordEncoder
    write: Callable[[str, bytes], None]
    topic: str
    partition: int
    files: dict[str, OpenFile] = field(default_factory=dict)
    record_count: int = 0

    def add(self, offset: int, record: EncodedRecord) -> None:
        """Add a record to the file of its folder; close the open files before or after that if needed."""
        open_file = self.files.get(record.folder)
        if open_file and open_file.schema is not record.schema:  # schema.compatibility NONE
            self.close()
        file = self.files.setdefault(record.folder, OpenFile(record.schema, offset))
        file.records.append(record.content)
        self.record_count += 1
        if self.record_count == self.encoder.sink.flush_count:
            self.close()

    def close(self) -> None:
        """Write the open files."""
        sink, file_format = self.encoder.sink, self.encoder.format
        for folder, file in self.files.items():
            path = sink.object_path(self.topic, self.partition, file.first_offset, folder)
            path += file_format.extension
            self.write(path, file_format.encode_file(file.schema, file.records, path))
        self.files.clear()
        self.record_count = 0


def write_files(
    messages: Iterable[Message], encoder: RecordEncoder, write: Callable[[str, bytes], None]
) -> tuple[dict[str, int], list[DeadLetter]]:
    """Write the messages of one topic partition to files.

    The names of the files depend only on the offset of the first message, so that a repeated call
    overwrites them.

    Args:
        messages: the messages, in the order of their offsets.
        encoder: encodes the messages.
        write: writes a file; takes its path in the sink's folder and its bytes.

    Returns:
        ({"messages", "records", "tombstones", "dead_letters": count}, dead letters).

    Raises:
        LakeError: a message has no value, and the sink fails then.
    """
    sink = encoder.sink
    groups: dict[str, FileGroup] = {}
    dead_letters: list[DeadLetter] = []
    count = records = 0
    for message in messages:
        count += 1
        value = message.value()
        try:
            if value is None and message.key() is None:
                raise ValueError("no value and no key")
            record = encoder.encode(message.topic(), message.partition(), value)
        except ValueError as e:
            dead_letters.append((message, str(e)))
            continue
        if record is None:
            if sink.fail_on_null:
                raise _null_error(message)
            continue
        records += 1
        name = "" if sink.is_confluent else record.folder
        if name not in groups:
            groups[name] = FileGroup(encoder, write, message.topic(), message.partition())
        groups[name].add(message.offset(), record)
    for group in groups.values():
        group.close()
    tombstones = count - records - len(dead_letters)
    counts = {"messages": count, "records": records, "tombstones": tombstones}
    return {**counts, "dead_letters": len(dead_letters)}, dead_letters


def _null_error(message: Message) -> LakeError:
    return LakeError(
        f"the message at offset {message.offset()} of {message.topic()}, partition {message.partition()}, has "
        "no value, and behavior.on.null.values is fail",
        hint="behavior.on.null.values=ignore leaves such messages out",
    )


def dead_letter_line(dead_letter: DeadLetter) -> dict[str, Any]:
    """Return a dead letter with the columns of spark.batch.DEAD_LETTER_COLUMNS."""
    message, reason = dead_letter
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
