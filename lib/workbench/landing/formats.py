"""The two formats of the landing (see writing.task): JSON messages as files of lines, Avro messages as container files.

Both travel to the worker by value, Containers with topic/avro.py. There they need the pandas and pyarrow that
mapInPandas needs, and for Avro fastavro.
"""
from __future__ import annotations

import base64
import hashlib
import http.client
import json
import platform
import re
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from typing import Any, Optional, Sequence

from ..topic.avro import container, reader
from ..topic.registry import LARGEST
from ..topic.wire import CCOMPAT

SCHEMA_ID = "workbench.schema"  # metadata of a file: the id by which its messages named the schema
# what Hive escapes in a partition folder (org.apache.hadoop.hive.common.FileUtils.charToEscape)
ESCAPED = {ord(c): f"%{ord(c):02X}" for c in (*map(chr, range(1, 32)), *'"#%\'*/:=?\\\x7f{[]^')}
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
MOST_OF_NAME, MOST_OF_FOLDER = 255, 900  # bytes: a file system takes no longer name, S3 no key above 1024


@dataclass(frozen=True)
class Lines:
    """Files of lines: the place of a record is the partition folder of its row.

    fields: those that name partitions. envelope: values come as {"schema": …, "payload": …}.
    """

    fields: tuple[str, ...]
    envelope: bool
    side_by_side = True

    def read(self, value: bytes) -> tuple[Optional[str], str, Optional[str]]:
        """(folder, line, why there is none); an empty envelope is no record either.

        Nothing that a message holds may raise here: it would stop the landing of all that come after it.
        """
        try:
            payload, line, reason = unwrap(bytes(value).decode("utf-8"), self.envelope)
            if payload is None:
                return None, line, reason
            folder = folder_of(payload, self.fields)
            parts = [len(part.encode("utf-8")) for part in folder.split("/")]
            line.encode("utf-8")
        except UnicodeDecodeError:
            return None, "", "not UTF-8, the text is its base64"
        except RecursionError:
            return None, "", "nested too deeply"
        except UnicodeEncodeError:
            return None, "", "half of a surrogate pair"
        if "\0" in folder:
            return None, "", "a partition value holds the character NUL"
        if max(parts) > MOST_OF_NAME or sum(parts) + len(parts) > MOST_OF_FOLDER:
            return None, "", "a partition value is too long for the name of a folder"
        return folder, line, None

    def text(self, value: bytes) -> str:
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            return base64.b64encode(value).decode("ascii")

    def object(self, topic: str, partition: int, first: int, folder: str, lines: list[str]) -> tuple[str, bytes]:
        name = f"{topic}-{partition}-{first:020d}.json"
        return (f"{folder}/{name}" if folder else name), "".join(line + "\n" for line in lines).encode("utf-8")


def unwrap(text: str, envelope: bool) -> tuple[Optional[dict], str, Optional[str]]:
    """Return (payload, the payload as one line of JSON, None), or (None, "", why it cannot be landed).

    The line is the payload's own text wherever it can be: numbers keep every digit they came with.
    """
    try:
        whole = json.loads(text, parse_constant=_no_constant)
    except ValueError:
        return None, "", "malformed JSON"
    payload, line = whole, text
    if envelope and isinstance(whole, dict) and set(whole) == {"schema", "payload"}:
        payload = whole["payload"]
        line = _payload_text(text)
    if payload is None:
        return None, "", None
    if not isinstance(payload, dict):
        return None, "", "not a JSON object"
    if not line or "\n" in line or "\r" in line:
        line = json.dumps(payload, ensure_ascii=False, separators=(",", ":"))
    return payload, line, None


def folder_of(payload: dict, fields: Sequence[str]) -> str:
    """The partition folder of a row, `a=1/b=x`, escaped as Hive does; null, empty and absent become Hive's default."""
    parts = []
    for name in fields:
        value = payload.get(name)
        if isinstance(value, bool):
            value = str(value).lower()
        text = json.dumps(value) if isinstance(value, (dict, list)) else "" if value is None else str(value)
        parts.append(name + "=" + (text.translate(ESCAPED) or NO_VALUE))
    return "/".join(parts)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")  # Python reads NaN and Infinity, nobody else does


def _payload_text(text: str) -> str:
    """The text of the payload in `{"schema":…,"payload":…}` as JsonConverter writes it; else ""."""
    start = re.match(r'\s*\{\s*"schema"\s*:\s*', text)
    if not start:
        return ""
    _, end = json.JSONDecoder().raw_decode(text, start.end())  # the text is JSON: the schema is, too
    after = re.compile(r'\s*,\s*"payload"\s*:\s*').match(text, end)
    return text[after.end():].rstrip()[:-1].rstrip() if after else ""


@dataclass(frozen=True)
class Containers:
    """Container files of one schema each: the place of a record is the id of its schema.

    urls: {kind of id: address of a schema, {} for the id}. not_avro, unknown: reasons of dead letters; {} for the id.
    """

    urls: dict[str, str]
    not_avro: str
    unknown: str
    known: dict[str, tuple[str, Any]] = field(default_factory=dict)  # {schema id: what `_known` says}
    side_by_side = False  # schema.compatibility NONE: a message of another schema begins another file

    def read(self, value: bytes, schema: Optional[str], body: Optional[bytes]) -> tuple:
        if schema is None:
            return None, None, self.not_avro
        if schema not in self.known:
            self.known[schema] = _known(schema, self.urls, self.unknown)
        text, read = self.known[schema]
        if read is None:
            return None, None, text
        try:
            return schema, read(body), None
        except ValueError as e:
            return None, None, f"the bytes are not Avro of schema {schema}: {e}"

    def text(self, value: bytes) -> str:
        return base64.b64encode(value).decode("ascii")

    def object(self, topic: str, partition: int, first: int, schema: str, records: list[Any]) -> tuple[str, bytes]:
        # the same again when the batch is done again, to the byte
        sync = hashlib.md5(f"{topic}+{partition}+{first}".encode(), usedforsecurity=False).digest()
        return (f"{topic}/partition={partition}/{topic}+{partition}+{first:010d}.avro",
                container(json.loads(self.known[schema][0]), records, sync, **{SCHEMA_ID: schema}))


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


def _known(schema: str, urls: dict[str, str], unknown: str) -> tuple[str, Any]:
    """The JSON of a schema and what reads its records; or why there is none, and None.

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
        return text, reader(json.loads(text), plain=True)
    except (ValueError, KeyError, TypeError) as e:
        return f"schema {schema} cannot be read: {e}", None
