"""What becomes of a message: read, transformed, given a folder, and made a record of one of the
formats of files.

It travels to the worker by value. There it needs the pandas and pyarrow that mapInPandas needs, and
for Avro fastavro.
"""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass, field
from typing import Any, Callable, Optional, Union

from ..topic.avro import encode_container
from .messages import AvroConverter, JsonConverter
from .parquet import Parquet
from .sinks import Sink
from .transforms import Record, apply

SCHEMA_ID_KEY = (
    "workbench.schema"  # metadata of a file: the id by which its messages named the schema
)


@dataclass(frozen=True)
class JsonLines:
    """Lines of JSON: a value's own text where nothing has changed it. Bytes become base64, as in
    Connect.

    A format has an `extension` of names; holder(schema), which gives what makes (value, its line of
    JSON) a record, and raises ValueError where files of the format cannot hold such values; and
    data(schema, records, name): the bytes of a file, the same whenever they are asked for.
    """

    extension = ".json"

    def encoder_for(self, schema: Any) -> Callable[[Any, Optional[str]], bytes]:
        return _to_json_line

    def encode_file(self, schema: Any, records: list[bytes], name: str) -> bytes:
        return b"".join(record + b"\n" for record in records)


def _to_json_line(value: Any, line: Optional[str]) -> bytes:
    if line is None:
        line = json.dumps(
            value,
            ensure_ascii=False,
            separators=(",", ":"),
            allow_nan=False,
            default=lambda part: base64.b64encode(part).decode("ascii"),
        )
    return line.encode("utf-8")


@dataclass(frozen=True)
class AvroContainer:
    """Container files of Avro, of records as they came; schema: id and JSON of Avro's."""

    extension = ".avro"

    def encoder_for(self, schema: Any) -> Callable[[Any, Any], Any]:
        return lambda value, line: value

    def encode_file(self, schema: tuple[str, str], records: list[Any], name: str) -> bytes:
        sync = hashlib.md5(name.encode(), usedforsecurity=False).digest()
        return encode_container(json.loads(schema[1]), records, sync, **{SCHEMA_ID_KEY: schema[0]})


@dataclass(frozen=True)
class RecordEncoder:
    """What a sink makes of the messages of its topics.

    settled: the schemas seen, each with what makes its values records: messages of one schema name
        the same object,
    so whether another follows is asked quickly.
    """

    sink: Sink
    converter: Union[JsonConverter, AvroConverter]
    format: Union[JsonLines, AvroContainer, Parquet]
    encoders_by_schema: list[tuple[Any, Callable[[Any, Any], Any]]] = field(default_factory=list)

    def encode(
        self, topic: str, partition: int, sent: int, value: bytes, *more: Any
    ) -> Optional[tuple[str, Any, Any, int]]:
        """(folder, schema, record, time) of a message; None where it holds nothing.

        Args:
            sent: its timestamp, in ms; more: the columns that the converter needs besides its
                value.

        Raises: ValueError, and nothing else that a message could cause: why it is a dead letter.
        """
        try:
            schema, value, line = self.converter.read(value, *more)
            if value is None:
                return None
            if self.sink.transforms:
                made = apply(self.sink.transforms, Record(topic, None, None, value, schema))
                schema, value, line = made.value_schema, made.value, None
            folder, time = self.sink.partition_folder(value, partition, sent)
            schema, record = self._encoder_for(schema)
            return folder, schema, record(value, line), time
        except (
            TypeError,
            KeyError,
            AttributeError,
            OverflowError,
            RecursionError,
        ) as e:  # made by no converter
            raise ValueError(
                f"its schema or a value cannot be read: {type(e).__name__}: {e}"
            ) from None

    def _encoder_for(self, schema: Any) -> tuple[Any, Callable[[Any, Any], Any]]:
        for known in self.encoders_by_schema:
            if known[0] is schema or known[0] == schema:
                return known
        self.encoders_by_schema.append((schema, self.format.encoder_for(schema)))
        return self.encoders_by_schema[-1]
