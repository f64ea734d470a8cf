"""Encode a message as a record of a file: read, transform, select the folder, encode."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any, Callable, NamedTuple, Optional, Union

from ..topic.avro import encode_container
from ..topic.topics import Message
from .messages import Read
from .parquet import Parquet
from .sinks import Sink
from .transforms import Record, apply

# key in the metadata of a file; the value is the schema id of its messages
SCHEMA_ID_KEY = "workbench.schema"
ValueEncoder = Callable[[Any, Optional[str]], Any]  # takes a value and its line of JSON


class EncodedRecord(NamedTuple):
    """A record for a file.

    Attributes:
        folder: folder of the file, relative to the folder of the topic.
        schema: schema of the file.
        content: the record, encoded in the format of the file.
    """

    folder: str
    schema: Any
    content: Any


class JsonLines:
    """JSON lines. An unchanged value keeps its text; bytes become base64, as in Connect.

    Every format has an `extension` of its files, and two methods. `encoder_for` returns a function
    that encodes a value as a record, or raises ValueError if files of the format do not support the
    schema. `encode_file` returns the bytes of a file, and is deterministic.
    """

    extension = ".json"

    def encoder_for(self, schema: Any) -> ValueEncoder:
        """Return the function that encodes a value as a line."""
        return to_json_line

    def encode_file(self, schema: Any, records: list[bytes], name: str) -> bytes:
        """Return the bytes of a file."""
        return b"".join(record + b"\n" for record in records)


def to_json_line(value: Any, line: Optional[str]) -> bytes:
    """Return a value as JSON: its original text, if there is one."""
    if line is None:
        line = json.dumps(
            value,
            ensure_ascii=False,
            separators=(",", ":"),
            allow_nan=False,
            default=lambda data: base64.b64encode(data).decode(),
        )
    return line.encode()


class AvroContainer:
    """Avro container files with unchanged records. A schema is (schema id, Avro schema)."""

    extension = ".avro"

    def encoder_for(self, schema: Any) -> ValueEncoder:
        """Return the function that returns a value unchanged."""
        return lambda value, line: value

    def encode_file(self, schema: tuple[str, Any], records: list[Any], name: str) -> bytes:
        """Return the bytes of a file; the sync marker is a hash of its name."""
        id, avsc = schema
        sync_marker = hashlib.md5(name.encode(), usedforsecurity=False).digest()
        return encode_container(avsc, records, sync_marker, **{SCHEMA_ID_KEY: id})


FileFormat = Union[JsonLines, AvroContainer, Parquet]


class RecordEncoder:
    """Encodes the messages of a sink's topics as records of its files."""

    def __init__(self, sink: Sink, read: Read, format: FileFormat):
        """Create an encoder for a sink, the function that reads its values, and the format of its files."""
        self.sink, self.read, self.format = sink, read, format
        # the schemas so far, each with the encoder of its values: messages with equal schemas get the
        # same schema object, which makes comparisons of schemas fast
        self._encoders: list[tuple[Any, ValueEncoder]] = []

    def encode(self, message: Message) -> Optional[EncodedRecord]:
        """Encode a message; return None if it has a key, but no payload.

        Raises:
            ValueError: the message becomes a dead letter with this reason. No message causes another
                error; StackError says that the registry does not respond.
        """
        value = message.value()
        if value is None:
            if message.key() is None:
                raise ValueError("no value and no key")
            return None
        try:
            schema, content, line = self.read(value)
            if content is None:
                return None
            if self.sink.transforms:
                record = Record(message.topic(), None, None, content, schema)
                record = apply(self.sink.transforms, record)
                schema, content, line = record.value_schema, record.value, None
            folder = self.sink.record_folder(content, message.partition())
            schema, encode = self._encoder_for(schema)
            return EncodedRecord(folder, schema, encode(content, line))
        except (TypeError, KeyError, AttributeError, OverflowError, RecursionError) as e:
            # the message was not written by Connect's converter
            raise ValueError(
                f"the schema or a value cannot be read: {type(e).__name__}: {e}"
            ) from None

    def _encoder_for(self, schema: Any) -> tuple[Any, ValueEncoder]:
        for entry in self._encoders:
            if entry[0] is schema or entry[0] == schema:
                return entry
        self._encoders.append((schema, self.format.encoder_for(schema)))
        return self._encoders[-1]
