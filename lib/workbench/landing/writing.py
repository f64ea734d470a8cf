"""The part of the landing that runs inside a Spark task: messages into objects and dead letters, whatever the format.

It travels to the worker by value, with `open_address` and the module of the format, and imports only pandas and
pyarrow.
"""
from __future__ import annotations

import json
import os
import sys
import uuid
from typing import Any, Callable, Dict, Iterator, List, Tuple

from ..base.files import open_address

COUNTS = ("records", "tombstones", "dead_letters", "objects", "bytes")  # what a task counts


def task(form: Any, target: str, dead: str, most: int) -> Callable:
    """Return the function for mapInPandas: writes the objects below `target`, yields one row of counts.

    Args:
        form: of the objects, json_lines.Lines or avro_files.Containers. It has

            modules: names of those that travel with it
            side_by_side: whether objects of several places of one topic partition are filled at the same time
            check(): raises where this worker lacks something
            read(value, *more) -> (place, record, why there is none), `more` being the columns after `value`; a
                message that is neither a record nor a dead letter has no place either
            text(value) -> what a dead letter shows of it
            object(topic, partition, first offset, place, records) -> (path below `target`, bytes)
        target, dead: addresses of the objects and of the dead letters.
        most: records of one object.
    """
    from pyspark import cloudpickle

    for name in (__name__, open_address.__module__, *form.modules):  # a worker elsewhere does not have this package
        cloudpickle.register_pickle_by_value(sys.modules[name])

    def land(batches: Iterator) -> Iterator:
        import pandas

        form.check()
        yield pandas.DataFrame([_land(form, batches, target, dead, most)])

    return land


def _land(form: Any, batches: Iterator, target: str, dead: str, most: int) -> Dict[str, int]:
    system, root = open_address(target)
    total = dict.fromkeys(COUNTS, 0)
    waiting: Dict[Tuple, Tuple[Any, int, List[Any]]] = {}  # place, first offset, records of each object being filled
    bad: Dict[Tuple[str, int], List[dict]] = {}

    def flush(key: Tuple) -> None:
        place, first, records = waiting.pop(key)
        path, data = form.object(*key[:2], first, place, records)
        _write(system, f"{root}/{path}", data)
        total["objects"] += 1
        total["bytes"] += len(data)

    for frame in batches:
        for topic, partition, offset, keyed, value, *more in frame.itertuples(index=False, name=None):
            if value is not None:
                place, record, reason = form.read(value, *more)
            else:
                place, record, reason = None, None, None if keyed else "no value and no key"
            if reason is not None:
                bad.setdefault((topic, partition), []).append(
                    {"reason": reason, "topic": topic, "partition": partition, "offset": offset,
                     "text": None if value is None else form.text(value)})
            elif place is None:
                total["tombstones"] += 1
            else:
                key = (topic, partition, place if form.side_by_side else None)
                if key in waiting and waiting[key][0] != place:
                    flush(key)
                records = waiting.setdefault(key, (place, offset, []))[2]
                records.append(record)
                total["records"] += 1
                if len(records) == most:
                    flush(key)
    for key in list(waiting):
        flush(key)
    system, root = open_address(dead)
    for (topic, partition), letters in bad.items():
        text = "".join(json.dumps(letter) + "\n" for letter in letters)
        _write(system, f"{root}/{topic}-{partition}-{letters[0]['offset']:020d}.json", text.encode("utf-8"))
        total["dead_letters"] += len(letters)
    return total


def _write(system: Any, path: str, text: bytes) -> None:
    """Write an object whole or not at all: a rename on a file system; an upload to S3 shows only when complete."""
    if system.type_name != "local":
        with system.open_output_stream(path) as out:
            out.write(text)
        return
    folder, name = os.path.split(path)
    os.makedirs(folder, exist_ok=True)
    scratch = os.path.join(folder, "." + uuid.uuid4().hex)  # Spark's listings skip names with a dot
    with open(scratch, "wb") as out:
        out.write(text)
    os.replace(scratch, path)
