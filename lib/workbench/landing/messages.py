"""Converters of message values, JSON and Avro, which work like Connect's converters.

A JSON value contains its schema or none, an Avro value the id of its schema. If a value cannot be
read, a converter raises ValueError with the reason. This module is pickled by value into Spark
tasks; Avro requires fastavro there.
"""

from __future__ import annotations

import json
import platform
import re
import sys
from dataclasses import dataclass, field
from typing import Any, Iterable, NamedTuple, NoReturn, Optional, Union

from ..topic.avro import Reader, create_reader
from ..topic.connect_schema import from_avro

# tasks report schema ids with this text, and the landing fetches the schemas (see `parse_unresolved`)
UNRESOLVED_SCHEMA = "the landing has not fetched schema"


class Converted(NamedTuple):
    """A decoded value.

    Attributes:
        schema: the schema of the value.
        value: the value, None if the message has no payload.
        line: the original text of the value if it is JSON on one line, else None.
    """

    schema: Any
    value: Any
    line: Optional[str]


@dataclass(frozen=True)
class JsonConverter:
    """Reads JSON.

    Attributes:
        has_envelope: whether values have the form {"schema": …, "payload": …}.
        strict: whether a value without this envelope is rejected, as Connect's JsonConverter does,
            and the schema is returned. Otherwise a text without an envelope is the value itself.
        last_schema: cache with one entry, {text of the last message before its payload: schema}.
    """

    has_envelope: bool
    strict: bool = False
    last_schema: dict[str, Any] = field(default_factory=dict)

    def read(self, value: bytes) -> Converted:
        """Read the value of a message.

        Raises:
            ValueError: the value cannot be read.
        """
        try:
            text = value.decode().rstrip()
        except UnicodeDecodeError:
            raise ValueError("not UTF-8, the text is its base64") from None
        try:
            schema, line = self._split_envelope(text) if self.has_envelope else (None, text)
            payload = json.loads(line, parse_constant=_reject_constant)
        except ValueError:
            raise ValueError("malformed JSON") from None
        if self.has_envelope and line is text:
            # no envelope, or an envelope with another order of keys
            if isinstance(payload, dict) and payload.keys() == {"schema", "payload"}:
                schema, payload, line = payload["schema"], payload["payload"], ""
            elif self.strict:
                raise ValueError(
                    'not {"schema": …, "payload": …}, which value.converter.schemas.enable=true requires'
                )
        if payload is not None and not isinstance(payload, dict):
            raise ValueError("not a JSON object")
        is_line = line and "\n" not in line and "\r" not in line
        return Converted(schema if self.strict else None, payload, line if is_line else None)

    def _split_envelope(self, text: str) -> tuple[Any, str]:
        """Return the schema and the original text of the payload, which has all digits of numbers.

        Returns None and the whole text if it does not begin with a schema, as JsonConverter writes
        it. A schema that equals that of the last message is not parsed again.
        """
        for prefix, schema in self.last_schema.items():
            if text.startswith(prefix) and text.endswith("}"):
                return schema, text[len(prefix) : -1].rstrip()
        start = re.match(r'\s*\{\s*"schema"\s*:\s*', text)
        if start and text.endswith("}"):
            decoder = json.JSONDecoder(parse_constant=_reject_constant)
            schema, end = decoder.raw_decode(text, start.end())
            payload = re.compile(r'\s*,\s*"payload"\s*:\s*').match(text, end)
            if payload:
                self.last_schema.clear()
                self.last_schema[text[: payload.end()]] = schema
                return schema, text[payload.end() : -1].rstrip()
        return None, text


def parse_unresolved(error: str) -> set[str]:
    """Return the schema ids that tasks report as unresolved in the text of an error.

    The text may be truncated. A complete id is followed by a comma or semicolon; an id that is cut
    off is ignored.
    """
    lists = re.findall(rf"{UNRESOLVED_SCHEMA} ([\w ,;-]+)", error)
    return {*re.findall(r"\w+ [0-9a-f-]+(?=[,;])", " ".join(lists))}


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")  # only Python reads NaN and Infinity


@dataclass(frozen=True)
class AvroConverter:
    """Reads Avro. The converter carries the schemas, because tasks do not query the registry.

    Attributes:
        schemas_by_id: {schema id: JSON of the schema; "null" if the registry has none}.
        not_avro_reason: reason of a dead letter that is not Avro.
        unknown_reason: reason of a dead letter with an unknown schema; {} is replaced by the id.
        use_connect_schema: whether to return the Connect schema, else (id, JSON of the Avro schema).
        fail_on_unknown: whether a schema id that is not in `schemas_by_id` ends the batch. Otherwise
            its schema counts as unknown.
        resolved: {schema id: result of `_resolve`}.
    """

    schemas_by_id: dict[str, str]
    not_avro_reason: str
    unknown_reason: str
    use_connect_schema: bool
    fail_on_unknown: bool = True
    resolved: dict[str, Union[str, tuple[Any, Reader]]] = field(default_factory=dict)

    def require_schemas(self, schemas: Iterable[Optional[str]]) -> None:
        """Check the schema ids of messages before the messages are read.

        Raises:
            ConnectionError: schemas are unresolved; the error names at most a hundred. It ends the
                batch, which is repeated.
        """
        unresolved = sorted({id for id in schemas if id is not None} - self.schemas_by_id.keys())
        if unresolved and self.fail_on_unknown:
            raise ConnectionError(f"{UNRESOLVED_SCHEMA} {', '.join(unresolved[:100])};")

    def read(self, value: bytes, schema: Optional[str], body: bytes) -> Converted:
        """Read the value of a message.

        Args:
            value: value of the message.
            schema: schema id of the message, None if the value is not in the wire format.
            body: the Avro data of the value.

        Raises:
            ValueError: the value cannot be read.
        """
        if schema is None:
            raise ValueError(self.not_avro_reason)
        if schema not in self.resolved:
            self.resolved[schema] = self._resolve(schema)
        resolved = self.resolved[schema]
        if isinstance(resolved, str):
            raise ValueError(resolved)
        value_schema, read = resolved
        try:
            return Converted(value_schema, read(body), None)
        except ValueError as e:
            raise ValueError(f"the bytes are not Avro of schema {schema}: {e}") from None

    def _resolve(self, schema: str) -> Union[str, tuple[Any, Reader]]:
        """Return (schema, reader of its records), or the reason why the records cannot be read.

        Raises:
            ModuleNotFoundError: the worker's Python has no fastavro. The message is one line, which
                the landing reports.
        """
        try:
            import fastavro  # noqa: F401
        except ImportError:
            raise ModuleNotFoundError(
                f"landing Avro requires fastavro, which {sys.executable} on {platform.node()} lacks: install it "
                "on every machine with Spark executors, or ship it with spark.archives"
            ) from None
        text = self.schemas_by_id.get(schema, "null")
        try:
            avsc = json.loads(text)
            if avsc is None:
                return self.unknown_reason.format(schema)
            read = create_reader(avsc, raw_values=True)
            return from_avro(avsc) if self.use_connect_schema else (schema, text), read
        except (ValueError, KeyError, TypeError) as e:
            return f"schema {schema} cannot be read: {e}"
