"""The values of messages, as Connect's converters read them: JSON and Avro.

JSON comes with or without its schema, Avro with the id of its schema. A converter raises ValueError
with the reason why a value cannot be read. This module is pickled by value into Spark tasks; Avro
requires fastavro there.
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

# a task reports this, and the landing fetches the schemas (see `parse_unresolved`)
UNRESOLVED_SCHEMA = "the registry has not been asked for schema"


class Converted(NamedTuple):
    """A value that was read.

    Attributes:
        schema: the schema of the value.
        value: None where the message has no payload.
        line: the value's own text where it is JSON on one line, else None.
    """

    schema: Any
    value: Any
    line: Optional[str]


@dataclass(frozen=True)
class JsonConverter:
    """Reads JSON.

    Attributes:
        has_envelope: whether values come as {"schema": …, "payload": …}.
        strict: whether all of them do, as Connect's JsonConverter requires, and their schema is
            returned. Otherwise a text without envelope is the value itself.
        last_schema: {text of the last message up to its payload: its schema}.
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
            # an envelope in another order, or none
            if isinstance(payload, dict) and payload.keys() == {"schema", "payload"}:
                schema, payload, line = payload["schema"], payload["payload"], ""
            elif self.strict:
                raise ValueError(
                    'not {"schema": …, "payload": …}, as value.converter.schemas.enable=true has it'
                )
        if payload is not None and not isinstance(payload, dict):
            raise ValueError("not a JSON object")
        is_line = line and "\n" not in line and "\r" not in line
        return Converted(schema if self.strict else None, payload, line if is_line else None)

    def _split_envelope(self, text: str) -> tuple[Any, str]:
        """Return the schema and the payload's own text, in which numbers keep all their digits.

        Where the text does not begin as JsonConverter writes it, return None and the text. The
        schema of the last message is not parsed again.
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

    The text may be cut anywhere: an incomplete id has neither of the characters that follow a
    complete one.
    """
    lists = re.findall(rf"{UNRESOLVED_SCHEMA} ([\w ,;-]+)", error)
    return {*re.findall(r"\w+ [0-9a-f-]+(?=[,;])", " ".join(lists))}


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")  # only Python reads NaN and Infinity


@dataclass(frozen=True)
class AvroConverter:
    """Reads Avro. A task does not query the registry: it gets the schemas with the converter.

    Attributes:
        schemas_by_id: {schema id: JSON of the schema, null where the registry has none}.
        not_avro_reason: reason of a dead letter that is not Avro.
        unknown_reason: reason of a dead letter with an unknown schema, with {} for the id.
        use_connect_schema: whether to return Connect's schema, else the id and the JSON of Avro's.
        fail_on_unknown: whether a schema that is not in `schemas_by_id` ends the batch. Otherwise
            it counts as unknown.
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
            ConnectionError: names the unresolved schemas, a hundred at most. It ends the batch,
                which is repeated.
        """
        unresolved = sorted({id for id in schemas if id is not None} - self.schemas_by_id.keys())
        if unresolved and self.fail_on_unknown:
            raise ConnectionError(f"{UNRESOLVED_SCHEMA} {', '.join(unresolved[:100])};")

    def read(self, value: bytes, schema: Optional[str], body: bytes) -> Converted:
        """Read the value of a message.

        Args:
            value: the whole value.
            schema: its schema id, None where the value is not in the wire format.
            body: the Avro in the value.

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
        """Return a schema and the reader of its records, or the reason why they cannot be read.

        Raises:
            ModuleNotFoundError: the worker's Python has no fastavro. The message is one line, which
                the landing reports.
        """
        try:
            import fastavro  # noqa: F401
        except ImportError:
            raise ModuleNotFoundError(
                f"landing Avro needs fastavro, and {sys.executable} on {platform.node()} has no fastavro: install it "
                "on every machine that runs executors of Spark, or send it along with spark.archives"
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
