"""Reading of message values, JSON and Avro, which works like Connect's converters.

A JSON value contains its schema or none, an Avro value the id of its schema. A `Read` function returns
(schema, value, line): the schema of the value; the value, None if the message has no payload; its original
text if it is JSON on one line, else None. If a value cannot be read, it raises ValueError with the reason.
"""

from __future__ import annotations

import json
import re
from typing import Any, Callable, Collection, NoReturn, Optional

from ..base import LakeError, World
from ..topic import registry
from ..topic.connect_schema import from_avro

Converted = tuple[Any, Any, Optional[str]]
Read = Callable[[bytes], Converted]
SCHEMA_START = re.compile(r'\s*\{\s*"schema"\s*:\s*')
PAYLOAD_START = re.compile(r'\s*,\s*"payload"\s*:\s*')


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")  # only Python reads NaN and Infinity


DECODER = json.JSONDecoder(parse_constant=_reject_constant)


class JsonConverter:
    """Reads JSON."""

    def __init__(self, has_envelope: bool, strict: bool = False):
        """Create a converter.

        Args:
            has_envelope: whether values have the form {"schema": …, "payload": …}.
            strict: whether a value without this envelope is rejected, as Connect's JsonConverter does,
                and the schema is returned. Otherwise a text without an envelope is the value itself.
        """
        self.has_envelope, self.strict = has_envelope, strict
        # the text of the last message before its payload, and its schema
        self._prefix = ""
        self._schema: Any = None

    def read(self, value: bytes) -> Converted:
        """Read the value of a message."""
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
        return schema if self.strict else None, payload, line if is_line else None

    def _split_envelope(self, text: str) -> tuple[Any, str]:
        """Return the schema and the original text of the payload, which has all digits of numbers.

        Returns None and the whole text if it does not begin with a schema, as JsonConverter writes
        it. A schema that equals that of the last message is not parsed again.
        """
        if not text.endswith("}"):
            return None, text
        if not (self._prefix and text.startswith(self._prefix)):
            start = SCHEMA_START.match(text)
            if not start:
                return None, text
            schema, end = DECODER.raw_decode(text, start.end())
            payload = PAYLOAD_START.match(text, end)
            if not payload:
                return None, text
            self._prefix, self._schema = text[: payload.end()], schema
        return self._schema, text[len(self._prefix) : -1].rstrip()


def avro_reader(world: World, use_connect_schema: bool, known: Collection[str] = ()) -> Read:
    """Return the function that reads an Avro value by the schemas of the environment's registry.

    Its StackError says that the registry does not respond.

    Args:
        world: the environment profile.
        use_connect_schema: whether to return the Connect schema, else (id, Avro schema).
        known: ids that the registry has (see registry.Decoder).
    """
    convert_schema = from_avro if use_connect_schema else None
    decode = registry.Decoder(world, raw_values=True, known=known, convert_schema=convert_schema)

    def read(value: bytes) -> Converted:
        try:
            record, id, schema = decode(value)
        except LakeError as e:
            raise ValueError(e.message) from None
        return schema if use_connect_schema else (id, schema), record, None

    return read
