"""Converters of message values, JSON and Avro, which work like Connect's converters.

A JSON value contains its schema or none, an Avro value the id of its schema. If a value cannot be
read, a converter raises ValueError with the reason.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, Collection, NamedTuple, NoReturn, Optional, Union

from ..base import LakeError, World
from ..topic import registry, wire
from ..topic.avro import Reader, create_reader
from ..topic.connect_schema import from_avro

# Malformed messages may have any number of ids. After this many only known ids are requested.
MAX_UNKNOWN_SCHEMAS = 100


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")  # only Python reads NaN and Infinity


DECODER = json.JSONDecoder(parse_constant=_reject_constant)


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
            payload = DECODER.decode(line)
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
            schema, end = DECODER.raw_decode(text, start.end())
            payload = re.compile(r'\s*,\s*"payload"\s*:\s*').match(text, end)
            if payload:
                self.last_schema.clear()
                self.last_schema[text[: payload.end()]] = schema
                return schema, text[payload.end() : -1].rstrip()
        return None, text


class AvroConverter:
    """Reads Avro. Each schema is fetched once."""

    def __init__(self, world: World, use_connect_schema: bool, known: Collection[str] = ()):
        """Create a converter for the environment's registry.

        Args:
            world: the environment profile.
            use_connect_schema: whether to return the Connect schema, else (id, Avro schema).
            known: ids that the registry has, such as `globalId 7`.
        """
        self.world, self.use_connect_schema, self.known = world, use_connect_schema, known
        self._prefix_size = wire.prefix_size(world)
        self._resolved: dict[bytes, Union[str, tuple[str, Any, Reader]]] = {}  # by the first bytes
        self._unknown: set[str] = set()

    def read(self, value: bytes) -> Converted:
        """Read the value of a message.

        Raises:
            ValueError: the value cannot be read.
            StackError: the registry does not respond.
        """
        prefix = value[: self._prefix_size]
        if prefix not in self._resolved:
            self._resolved[prefix] = self._resolve(value)
        resolved = self._resolved[prefix]
        if isinstance(resolved, str):
            raise ValueError(resolved)
        id, schema, read = resolved
        try:
            return Converted(schema, read(value[self._prefix_size :]), None)
        except ValueError as e:
            raise ValueError(f"the bytes are not Avro of schema {id}: {e}") from None

    def _resolve(self, value: bytes) -> Union[str, tuple[str, Any, Reader]]:
        """Return (id, schema, reader of its records), or the reason why such messages cannot be read."""
        message = wire.parse_wire_format(self.world, value)
        if message is None:
            return wire.not_avro_reason(self.world)
        id = message.schema
        if id not in self.known and len(self._unknown) >= MAX_UNKNOWN_SCHEMAS:
            return f"schema {id} was not requested: the registry has none of {MAX_UNKNOWN_SCHEMAS} others"
        try:
            avsc = registry.find(self.world, message.schema_id, message.id_kind)
            if avsc is None:
                self._unknown.add(id)
                return wire.unknown_schema_reason(self.world).format(id)
            read = create_reader(avsc, raw_values=True)
            return id, from_avro(avsc) if self.use_connect_schema else (id, avsc), read
        except (LakeError, ValueError, KeyError, TypeError) as e:
            return f"schema {id} cannot be read: {e}"
