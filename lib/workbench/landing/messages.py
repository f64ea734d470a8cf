"""What a message says, as Connect's converters find it: JSON with or without its schema, and Avro
with its schema's id.

Both give (schema, value, line), value None where the message holds nothing, line the value's own
text where it is JSON; and raise ValueError, which says why it cannot be read. They travel into
Spark tasks by value; Avro needs fastavro there.
"""

from __future__ import annotations

import json
import platform
import re
import sys
from dataclasses import dataclass, field
from typing import Any, Iterable, Optional

from ..topic.avro import create_reader
from ..topic.connect_schema import from_avro

Converted = tuple[Any, Any, Optional[str]]
# a task says so, and the landing asks (see `unmet`)
UNRESOLVED_SCHEMA = "the registry has not been asked for schema"


@dataclass(frozen=True)
class JsonConverter:
    """envelope: values come as {"schema": …, "payload": …}. strict: all of them do, as Connect's
    JsonConverter wants, and their schema is asked for; else what has no envelope is the value
    itself.
    """

    has_envelope: bool
    strict: bool = False
    last_schema: dict[str, Any] = field(
        default_factory=dict
    )  # {the last message's text up to its payload: its schema}

    def read(self, value: bytes) -> Converted:
        try:
            text = str(value, "utf-8").rstrip()
        except UnicodeDecodeError:
            raise ValueError("not UTF-8, the text is its base64") from None
        try:
            schema, line = self._split_envelope(text) if self.has_envelope else (None, text)
            payload = json.loads(line, parse_constant=_reject_constant)
        except ValueError:
            raise ValueError("malformed JSON") from None
        if self.has_envelope and line is text:
            if isinstance(payload, dict) and payload.keys() == {
                "schema",
                "payload",
            }:  # in another order
                schema, payload, line = payload["schema"], payload["payload"], ""
            elif self.strict:
                raise ValueError(
                    'not {"schema": …, "payload": …}, as value.converter.schemas.enable=true has it'
                )
        if payload is not None and not isinstance(payload, dict):
            raise ValueError("not a JSON object")
        return (
            schema if self.strict else None,
            payload,
            None if "\n" in line or "\r" in line else line or None,
        )

    def _split_envelope(self, text: str) -> tuple[Any, str]:
        """The schema, and the payload's own text, in which numbers keep every digit they came with;
        None and the text where it does not begin as JsonConverter writes it. A schema that the last
        message had is not read again.
        """
        for before, schema in self.last_schema.items():
            if text.startswith(before) and text.endswith("}"):
                return schema, text[len(before) : -1].rstrip()
        start = re.match(r'\s*\{\s*"schema"\s*:\s*', text)
        if start and text.endswith("}"):
            schema, end = json.JSONDecoder(parse_constant=_reject_constant).raw_decode(
                text, start.end()
            )
            payload = re.compile(r'\s*,\s*"payload"\s*:\s*').match(text, end)
            if payload:
                self.last_schema.clear()
                self.last_schema[text[: payload.end()]] = schema
                return schema, text[payload.end() : -1].rstrip()
        return None, text


def parse_unresolved(error: str) -> set[str]:
    """The schemas that tasks have said nobody asked for, out of the text of an error. That may be
    cut anywhere: half an id has neither of the signs that stand behind a whole one.
    """
    return {
        *re.findall(
            r"\w+ [0-9a-f-]+(?=[,;])",
            " ".join(re.findall(rf"{UNRESOLVED_SCHEMA} ([\w ,;-]+)", error)),
        )
    }


def _reject_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")  # Python reads NaN and Infinity, nobody else does


@dataclass(frozen=True)
class AvroConverter:
    """texts: {schema id: JSON of the schema, null of one that is not there}, for a task asks no
    registry. not_avro,
    unknown: reasons of dead letters. {} stands for the id. connect: give Connect's schema; else the
        id and the JSON of
    Avro's. ask: end a batch with schemas that are not among the texts; else the registry has none
    of them.
    """

    schemas_by_id: dict[str, str]
    not_avro_reason: str
    unknown_reason: str
    use_connect_schema: bool
    fail_on_unknown: bool = True
    resolved: dict[str, tuple[Any, Any]] = field(
        default_factory=dict
    )  # {schema id: what `_known` says}

    def require_schemas(self, schemas: Iterable[Optional[str]]) -> None:
        """Look at the schemas of messages before they are read.

        Raises: ConnectionError, which names those that nobody has asked the registry for, a hundred
            at most. That ends the batch: it is done again.
        """
        unmet = sorted({*schemas} - {None, *self.schemas_by_id})
        if unmet and self.fail_on_unknown:
            raise ConnectionError(f"{UNRESOLVED_SCHEMA} {', '.join(unmet[:100])};")

    def read(self, value: bytes, schema: Optional[str], body: Optional[bytes]) -> Converted:
        if schema is None:
            raise ValueError(self.not_avro_reason)
        if schema not in self.resolved:
            self.resolved[schema] = self._resolve(schema)
        found, read = self.resolved[schema]
        if read is None:
            raise ValueError(found)
        try:
            return found, read(body), None
        except ValueError as e:
            raise ValueError(f"the bytes are not Avro of schema {schema}: {e}") from None

    def _resolve(self, schema: str) -> tuple[Any, Any]:
        """A schema and what reads its records; or why there is none, and None.

        Raises: ModuleNotFoundError, on one line, for the landing says that line: the worker's
            Python has no fastavro.
        """
        try:
            import fastavro  # noqa: F401
        except ImportError:
            raise ModuleNotFoundError(
                f"landing Avro needs fastavro, and {sys.executable} on {platform.node()} has no fastavro: install it "
                "on every machine that runs executors of Spark, or send it along with spark.archives"
            ) from None
        try:
            avsc = json.loads(self.schemas_by_id.get(schema, "null"))
            if avsc is None:
                return self.unknown_reason.format(schema), None
            read = create_reader(avsc, raw_values=True)
            return from_avro(avsc) if self.use_connect_schema else (
                schema,
                self.schemas_by_id[schema],
            ), read
        except (ValueError, KeyError, TypeError) as e:
            return f"schema {schema} cannot be read: {e}", None
