"""The part of the landing that runs in Spark tasks: write messages to files and dead letters.

The module is pickled by value into the tasks, with all modules of this package that it uses. There
it imports only pandas and pyarrow.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, Iterable, Iterator, Optional

from ..base.files import open_filesystem, write_bytes
from ..base.paths import join_uri
from .messages import AvroConverter

if TYPE_CHECKING:
    import pandas

    from .formats import EncodedRecord, RecordEncoder

COUNTERS = ("messages", "records", "tombstones", "dead_letters", "objects", "bytes")
BatchFunction = Callable[[Iterable["pandas.DataFrame"]], Iterable["pandas.DataFrame"]]


def landing_task(encoder: RecordEncoder, target: str, dead_letters_uri: str) -> BatchFunction:
    """Return the function for mapInPandas that writes the files and yields one row of COUNTERS.

    Args:
        encoder: encodes the messages.
        target: URI of the folder for the files.
        dead_letters_uri: URI of the folder for the dead letters.
    """
    return pickle_by_value(_land, encoder, target, dead_letters_uri)


def pickle_by_value(function: Callable[..., Any], *arguments: Any) -> BatchFunction:
    """Return a function for mapInPandas that calls `function` with these arguments and the batches.

    The function is pickled by value, with all modules of this package that it uses, because remote
    workers do not have the package.
    """
    from pyspark import cloudpickle

    import workbench

    register: Callable[[Any], None] = cloudpickle.register_pickle_by_value
    register(workbench)
    return partial(function, *arguments)


@dataclass
class OpenFile:
    """A file that is not written yet: schema, offset of the first record, records."""

    schema: Any
    first_offset: int
    records: list[Any] = field(default_factory=list)


@dataclass
class PartitionWriter:
    """Writes the files of a topic partition that are closed at the same time.

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


def _land(
    encoder: RecordEncoder,
    target: str,
    dead_letters_uri: str,
    batches: Iterable[pandas.DataFrame],
) -> Iterator[pandas.DataFrame]:
    import pandas

    sink, counts = encoder.sink, dict.fromkeys(COUNTERS, 0)
    filesystem, root = open_filesystem(target)
    writers: dict[tuple[str, int, str], PartitionWriter] = {}
    dead_letters: list[dict[str, Any]] = []

    def write(path: str, data: bytes) -> None:
        write_bytes(filesystem, join_uri(root, path), data)
        counts["objects"] += 1
        counts["bytes"] += len(data)

    for frame in batches:
        counts["messages"] += len(frame)
        if isinstance(encoder.converter, AvroConverter):
            encoder.converter.require_schemas(frame["schema"])
        for topic, partition, offset, has_key, value, *columns in frame.itertuples(
            index=False, name=None
        ):
            try:
                if value is None and not has_key:
                    raise ValueError("no value and no key")
                record = encoder.encode(topic, partition, value, *columns)
            except ValueError as e:
                position = {"topic": topic, "partition": partition, "offset": offset}
                dead_letters.append({"reason": str(e), **position, "text": _payload_text(value)})
                continue
            if record is None:
                if sink.fail_on_null:
                    raise RuntimeError(
                        f"the message at offset {offset} of {topic}, partition {partition}, has no value, and "
                        "behavior.on.null.values is fail"
                    )
                counts["tombstones"] += 1
                continue
            counts["records"] += 1
            key = (topic, partition, "" if sink.is_confluent else record.folder)
            if key not in writers:
                writers[key] = PartitionWriter(encoder, write, topic, partition)
            writers[key].add(offset, record)
    for writer in writers.values():
        writer.close()
    _write_dead_letters(dead_letters_uri, dead_letters)
    counts["dead_letters"] = len(dead_letters)
    yield pandas.DataFrame([counts])


def _write_dead_letters(uri: str, dead_letters: list[dict[str, Any]]) -> None:
    if dead_letters:
        filesystem, root = open_filesystem(uri)
        name = "{topic}-{partition}-{offset:020d}.json".format(**dead_letters[0])
        lines = "".join(json.dumps(dead_letter) + "\n" for dead_letter in dead_letters)
        write_bytes(filesystem, join_uri(root, name), lines.encode())


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
