"""Avro messages as container files, for the landing (see writing.task). It travels to the worker with topic/avro.py and
registry.fetch. The worker's Python needs fastavro, beside the pandas and pyarrow that mapInPandas needs.

Each message is decoded by the schema it names, and written into a file of that schema. What is not exactly one record
is a dead letter: a file with a malformed one in it could not be read from there on.
"""
from __future__ import annotations

import base64
import hashlib
import json
import platform
import sys
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Tuple

from ..topic.avro import container, reader
from ..topic.registry import LARGEST, fetch
from ..topic.wire import CCOMPAT

SCHEMA_ID = "workbench.schema"  # metadata of a file: the id by which its messages named the schema


@dataclass(frozen=True)
class Containers:
    """Container files of one schema each: the place of a record is the id of its schema.

    urls: {kind of id: address of a schema, {} for the id}. not_avro, unknown: reasons of dead letters; {} for the id.
    """

    urls: Dict[str, str]
    not_avro: str
    unknown: str
    known: Dict[str, Tuple[str, Any]] = field(default_factory=dict)  # {schema id: what `_known` says}
    modules = (__name__, container.__module__, fetch.__module__)
    side_by_side = False  # schema.compatibility NONE: a message of another schema begins another file

    def check(self) -> None:
        """Raise ModuleNotFoundError, on one line, where the worker's Python has no fastavro: the landing says that
        line."""
        try:
            import fastavro  # noqa: F401
        except ImportError as e:
            raise ModuleNotFoundError(
                "the Python of a Spark executor has no fastavro, which landing Avro needs: install it on every machine "
                "that runs executors, or send it along with spark.archives; "
                f"seen in {sys.executable} on {platform.node()}: {e}") from None

    def read(self, value: bytes, schema: Optional[str], body: Optional[bytes]
             ) -> Tuple[Optional[str], Any, Optional[str]]:
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

    def object(self, topic: str, partition: int, first: int, schema: str, records: List[Any]) -> Tuple[str, bytes]:
        # the same again when the batch is done again, to the byte
        sync = hashlib.md5(f"{topic}+{partition}+{first}".encode(), usedforsecurity=False).digest()
        return (f"{topic}/partition={partition}/{topic}+{partition}+{first:010d}.avro",
                container(json.loads(self.known[schema][0]), records, sync, **{SCHEMA_ID: schema}))


def _known(schema: str, urls: Dict[str, str], unknown: str) -> Tuple[str, Any]:
    """The JSON of a schema and what reads its records; or why there is none, and None.

    Raises: ConnectionError: the registry cannot say. That ends the batch: it is done again.
    """
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
