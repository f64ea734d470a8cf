"""What a message says, as Connect's converters find it: JSON with or without its schema, and Avro with its schema's id.

Both give (schema, value, line), value None where the message holds nothing, line the value's own text where it is
JSON; and raise ValueError, which says why it cannot be read. They travel into Spark tasks by value; Avro needs fastavro
there.
"""
from __future__ import annotations

import base64
import contextlib
import http.client
import json
import platform
import re
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from typing import Any, Optional

from ..topic.avro import reader
from ..topic.connect_schema import from_avro
from ..topic.registry import LARGEST
from ..topic.wire import CCOMPAT

Found = tuple[Any, Any, Optional[str]]
MOST_SCHEMAS = 8  # that are looked for by their text


@dataclass(frozen=True)
class Json:
    """envelope: values come as {"schema": …, "payload": …}. strict: all of them do, as Connect's JsonConverter wants,
    and their schema is asked for; else what has no envelope is the value itself."""

    envelope: bool
    strict: bool = False
    known: dict[str, Any] = field(default_factory=dict)  # {a message's text up to its payload: its schema}

    def read(self, value: bytes) -> Found:
        try:
            text = bytes(value).decode("utf-8")
        except UnicodeDecodeError:
            raise ValueError("not UTF-8, the text is its base64") from None
        schema, payload, line = self._again(text) or self._anew(text)
        if payload is not None and not isinstance(payload, dict):
            raise ValueError("not a JSON object")
        return schema if self.strict else None, payload, None if "\n" in line or "\r" in line else line or None

    def _again(self, text: str) -> Any:
        """The same, where a message before it began with the same schema, which need not be read again."""
        text = text.rstrip()
        for before, schema in self.known.items():
            if text.startswith(before) and text.endswith("}"):
                line = text[len(before):-1].rstrip()
                with contextlib.suppress(ValueError):
                    return schema, json.loads(line, parse_constant=_no_constant), line
        return None

    def _anew(self, text: str) -> Any:
        try:
            whole = json.loads(text, parse_constant=_no_constant)
        except ValueError:
            raise ValueError("malformed JSON") from None
        if not (self.envelope and isinstance(whole, dict) and set(whole) == {"schema", "payload"}):
            if self.envelope and self.strict:
                raise ValueError('not {"schema": …, "payload": …}, as value.converter.schemas.enable=true has it')
            return None, whole, text
        before, line = _parts(text)
        if before:
            if len(self.known) == MOST_SCHEMAS:
                self.known.clear()
            self.known[before] = whole["schema"]
        return whole["schema"], whole["payload"], line

    def text(self, value: bytes) -> str:
        """What a dead letter shows of a message."""
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            return base64.b64encode(value).decode("ascii")


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")  # Python reads NaN and Infinity, nobody else does


def _parts(text: str) -> tuple[str, str]:
    """The text before the payload in `{"schema":…,"payload":…}` as JsonConverter writes it, and the payload's own, in
    which numbers keep every digit they came with; or both empty."""
    start = re.match(r'\s*\{\s*"schema"\s*:\s*', text)
    if not start:
        return "", ""
    _, end = json.JSONDecoder().raw_decode(text, start.end())  # the text is JSON: the schema is, too
    after = re.compile(r'\s*,\s*"payload"\s*:\s*').match(text, end)
    return (text[:after.end()], text[after.end():].rstrip()[:-1].rstrip()) if after else ("", "")


@dataclass(frozen=True)
class Avro:
    """urls: {kind of id: address of a schema}. not_avro, unknown: reasons of dead letters. {} stands for the id.
    connect: give Connect's schema; else the id and the JSON of Avro's."""

    urls: dict[str, str]
    not_avro: str
    unknown: str
    connect: bool
    known: dict[str, tuple[Any, Any]] = field(default_factory=dict)  # {schema id: what `_known` says}

    def read(self, value: bytes, schema: Optional[str], body: Optional[bytes]) -> Found:
        if schema is None:
            raise ValueError(self.not_avro)
        if schema not in self.known:
            self.known[schema] = _known(schema, self.urls, self.unknown, self.connect)
        found, read = self.known[schema]
        if read is None:
            raise ValueError(found)
        try:
            return found, read(body), None
        except ValueError as e:
            raise ValueError(f"the bytes are not Avro of schema {schema}: {e}") from None

    def text(self, value: bytes) -> str:
        return base64.b64encode(value).decode("ascii")


def fetch(url: str) -> tuple[int, bytes]:
    """Status and bytes of the answer to one question, whatever the status. It travels into Spark tasks by value, so it
    may use nothing but Python's own library.

    Raises: ConnectionError: there is no answer.
    """
    opener = urllib.request.build_opener()  # urlopen keeps the proxies of its first call
    try:
        with opener.open(url, timeout=30) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as e:
        return e.code, b""
    except (OSError, ValueError, http.client.HTTPException) as e:  # the last: an answer that breaks off
        raise ConnectionError(f"the schema registry does not answer at {url}: {getattr(e, 'reason', e)}") from None


def _known(schema: str, urls: dict[str, str], unknown: str, connect: bool) -> tuple[Any, Any]:
    """A schema (see Avro) and what reads its records; or why there is none, and None.

    Raises: ConnectionError: the registry cannot say. That ends the batch: it is done again. ModuleNotFoundError, on one
        line, for the landing says that line: the worker's Python has no fastavro.
    """
    try:
        import fastavro  # noqa: F401
    except ImportError as e:
        raise ModuleNotFoundError(
            "the Python of a Spark executor has no fastavro, which landing Avro needs: install it on every machine "
            "that runs executors, or send it along with spark.archives; seen in "
            f"{sys.executable} on {platform.node()}: {e}") from None
    kind, _, number = schema.partition(" ")
    url = urls[kind].format(number)
    status, found = fetch(url) if int(number) <= LARGEST else (404, b"")
    if status == 404:
        return unknown.format(schema), None
    if status >= 400:
        raise ConnectionError(f"the schema registry answers {status} to {url}")
    try:
        text = json.loads(found)["schema"] if kind == CCOMPAT else found.decode("utf-8")
        avsc = json.loads(text)
        return from_avro(avsc) if connect else (schema, text), reader(avsc, plain=True)
    except (ValueError, KeyError, TypeError) as e:
        return f"schema {schema} cannot be read: {e}", None
