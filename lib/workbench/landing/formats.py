"""From a message to a record of a file: read, transform, choose the folder, encode.

This module is pickled by value for the worker. There it needs the pandas and pyarrow that
mapInPandas needs, and for Avro fastavro.
"""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass, field
from typing import Any, Callable, NamedTuple, Optional, Union

from ..topic.avro import encode_container
from .messages import AvroConverter, JsonConverter
from .parquet import Parquet
from .sinks import Sink
from .transforms import Record, apply

# metadata of a file: the schema id in its messages
SCHEMA_ID_KEY = "workbench.schema"
ValueEncoder = Callable[[Any, Optional[str]], Any]  # of a value and its line of JSON


class EncodedRecord(NamedTuple):
    """A record for a file.

    Attributes:
        folder: of the file, below that of the topic.
        schema: of the file.
        content: the record as the format of the file has it.
        time_ms: the record's time, 0 where the folders are not by time.
    """

    folder: str
    schema: Any
    content: Any
    time_ms: int


@dataclass(frozen=True)
class JsonLines:
    """Lines of JSON. An unchanged value keeps its text; bytes become base64, as in Connect.

    Each format has the extension of its files, and two methods. `encoder_for` returns a function
    that encodes a value as a record; it raises ValueError where files of the format cannot hold
    values of the schema. `encode_file` returns the bytes of a file, the same for the same
    arguments.
    """

    extension = ".json"

    def encoder_for(self, schema: Any) -> ValueEncoder:
        """Return the function that encodes a value as its line."""
        return _to_json_line

    def encode_file(self, schema: Any, records: list[bytes], name: str) -> bytes:
        """Return the bytes of a file."""
        return b"".join(record + b"\n" for record in records)


def _to_json_line(value: Any, line: Optional[str]) -> bytes:
    if line is None:
        line = json.dumps(
            value,
            ensure_ascii=False,
            separators=(",", ":"),
            allow_nan=False,
            default=lambda data: base64.b64encode(data).decode(),
        )
    return line.encode()


@dataclass(frozen=True)
class AvroContainer:
    """Container files of Avro, with the records as they came. The schema is Avro's id and JSON."""

    extension = ".avro"

    def encoder_for(self, schema: Any) -> ValueEncoder:
        """Return the function that returns a value unchanged."""
        return lambda value, line: value

    def encode_file(self, schema: tuple[str, str], records: list[Any], name: str) -> bytes:
        """Return the bytes of a file; its name gives the sync marker."""
        id, avsc = schema
        sync_marker = hashlib.md5(name.encode(), usedforsecurity=False).digest()
        return encode_container(json.loads(avsc), records, sync_marker, **{SCHEMA_ID_KEY: id})


FileFormat = Union[JsonLines, AvroContainer, Parquet]
MessageConverter = Union[JsonConverter, AvroConverter]


@dataclass(frozen=True)
class RecordEncoder:
    """Encodes the messages of a sink's topics as records of its files.

    Attributes:
        sink: what the sink connector's JSON asks for.
        converter: reads the values of messages.
        format: of the files.
        encoders_by_schema: the schemas so far, each with the encoder of its values. Messages of one
            schema get the same object, so the comparison with the schema of a file is fast.
    """

    sink: Sink
    converter: MessageConverter
    format: FileFormat
    encoders_by_schema: list[tuple[Any, ValueEncoder]] = field(default_factory=list)

    def encode(
        self, topic: str, partition: int, timestamp_ms: int, value: Optional[bytes], *columns: Any
    ) -> Optional[EncodedRecord]:
        """Encode a message; return None where it has no payload.

        Args:
            topic: name of its topic.
            partition: number of its partition.
            timestamp_ms: its timestamp.
            value: its value.
            columns: the columns that the converter needs beside the value.

        Raises:
            ValueError: the reason for a dead letter. A message causes no other error.
        """
        if value is None:
            return None
        try:
            schema, content, line = self.converter.read(value, *columns)
            if content is None:
                return None
            if self.sink.transforms:
                record = apply(self.sink.transforms, Record(topic, None, None, content, schema))
                schema, content, line = record.value_schema, record.value, None
            folder, time_ms = self.sink.partition_folder(content, partition, timestamp_ms)
            schema, encode = self._encoder_for(schema)
            return EncodedRecord(folder, schema, encode(content, line), time_ms)
        except (TypeError, KeyError, AttributeError, OverflowError, RecursionError) as e:
            # no converter wrote this message
            raise ValueError(
                f"its schema or a value cannot be read: {type(e).__name__}: {e}"
            ) from None

    def _encoder_for(self, schema: Any) -> tuple[Any, ValueEncoder]:
        for entry in self.encoders_by_schema:
            if entry[0] is schema or entry[0] == schema:
                return entry
        self.encoders_by_schema.append((schema, self.format.encoder_for(schema)))
        return self.encoders_by_schema[-1]
