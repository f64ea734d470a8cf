"""Avro messages into container files, inside a Spark task. It travels to the worker by value, with avro.py and
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
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from ..topic.avro import container, reader
from ..topic.registry import CCOMPAT, LARGEST, fetch
from .writing import _open, _write

SCHEMA_ID = "workbench.schema"  # metadata of a file: the id by which its messages named the schema


def task(target: str, dead: str, most: int, urls: Dict[str, str], not_avro: str, unknown: str) -> Callable:
    """Return the function for mapInPandas: writes `<target>/<topic>/partition=<n>/…`, yields one row of counts.

    Args:
        most: records of one file.
        urls: {kind of id: address of a schema, {} for the id}.
        not_avro, unknown: reasons of dead letters; {} for the id.
    """
    from pyspark import cloudpickle

    import workbench.landing.avro_files as this
    import workbench.landing.writing as write
    import workbench.topic.avro as format_
    import workbench.topic.registry as registry

    for module in (this, write, format_, registry):  # a worker elsewhere does not have this package
        cloudpickle.register_pickle_by_value(module)

    def land(batches: Iterator) -> Iterator:
        import pandas

        _has_fastavro()
        system, root = _open(target)
        dead_system, dead_root = _open(dead)
        total = {"records": 0, "tombstones": 0, "dead_letters": 0, "objects": 0, "bytes": 0}
        known: Dict[str, Tuple[str, Any]] = {}  # schema id: its JSON and what reads it; or why it cannot be read, None
        waiting: Dict[Tuple[str, int], Tuple[str, int, List[Any]]] = {}  # schema id, first offset, records
        bad: Dict[Tuple[str, int], List[Tuple[int, str]]] = {}

        def flush(place: Tuple[str, int]) -> None:
            schema, first, values = waiting.pop(place)
            topic, partition = place
            path = f"{root}/{topic}/partition={partition}/{topic}+{partition}+{first:010d}.avro"
            # the same again when the batch is done again, to the byte
            sync = hashlib.md5(f"{topic}+{partition}+{first}".encode(), usedforsecurity=False).digest()
            text = container(json.loads(known[schema][0]), values, sync, **{SCHEMA_ID: schema})
            _write(system, path, text)
            total["objects"] += 1
            total["bytes"] += len(text)

        def decoded(keyed: bool, value: Optional[bytes], schema: Optional[str], body: Optional[bytes]
                    ) -> Tuple[Any, Optional[str]]:
            """The record, or why there is none."""
            if value is None:
                return None, None if keyed else "no value and no key"
            if schema is None:
                return None, not_avro
            if schema not in known:
                known[schema] = _known(schema, urls, unknown)
            text, read = known[schema]
            if read is None:
                return None, text
            try:
                return read(body), None
            except ValueError as e:
                return None, f"the bytes are not Avro of schema {schema}: {e}"

        for frame in batches:
            for topic, partition, offset, keyed, value, schema, body in frame.itertuples(index=False, name=None):
                record, reason = decoded(keyed, value, schema, body)
                if reason is not None:
                    total["dead_letters"] += 1
                    text = None if value is None else base64.b64encode(value).decode("ascii")
                    letter = {"reason": reason, "topic": topic, "partition": partition, "offset": offset, "text": text}
                    bad.setdefault((topic, partition), []).append((offset, json.dumps(letter)))
                    continue
                if value is None:
                    total["tombstones"] += 1
                    continue
                place = (topic, partition)
                if place in waiting and waiting[place][0] != schema:  # schema.compatibility NONE: a file has one schema
                    flush(place)
                records = waiting.setdefault(place, (schema, offset, []))[2]
                records.append(record)
                total["records"] += 1
                if len(records) == most:
                    flush(place)
        for place in list(waiting):
            flush(place)
        for (topic, partition), lines in bad.items():
            name = f"{topic}-{partition}-{lines[0][0]:020d}.json"
            _write(dead_system, f"{dead_root}/{name}", "".join(line + "\n" for _, line in lines).encode("utf-8"))
        yield pandas.DataFrame([total])

    return land


def _has_fastavro() -> None:
    """Raise ModuleNotFoundError, on one line, where the worker's Python has no fastavro: the landing says that line."""
    try:
        import fastavro  # noqa: F401
    except ImportError as e:
        raise ModuleNotFoundError(
            "the Python of a Spark executor has no fastavro, which landing Avro needs: install it on every machine "
            "that runs executors, or send it along with spark.archives; "
            f"seen in {sys.executable} on {platform.node()}: {e}") from None


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
