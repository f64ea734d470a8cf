"""Converters of message values, JSON and Avro, which work like Connect's converters.

A JSON value contains its schema or none, an Avro value the id of its schema. If a value cannot be
read, a converter raises ValueError with the reason.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, Collection, NamedTuple, NoReturn, Optional

from ..base import LakeError, World
from ..topic import registry
from ..topic.connect_schema import from_avro


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
    """Reads Avro by the schemas of the environment's registry."""

    def __init__(self, world: World, use_connect_schema: bool, known: Collection[str] = ()):
        """Create a converter.

        Args:
            world: the environment profile.
            use_connect_schema: whether to return the Connect schema, else (id, Avro schema).
            known: ids that the registry has (see registry.Decoder).
        """
        self.use_connect_schema = use_connect_schema
        convert_schema = from_avro if use_connect_schema else None
        self._decode = registry.Decoder(
            world, raw_values=True, known=known, convert_schema=convert_schema
        )

    def read(self, value: bytes) -> Converted:
        """Read the value of a message.

        Raises:
            ValueError: the value cannot be read.
            StackError: the registry does not respond.
        """
        try:
            record, id, schema = self._decode(value)
        except LakeError as e:
            raise ValueError(e.message) from None
        return Converted(schema if self.use_connect_schema else (id, schema), record, None)
