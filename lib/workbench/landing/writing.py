"""The part of the landing that runs inside a Spark task: messages into objects and dead letters, whatever the format.

It travels to the worker by value, with all that it uses of this package, and imports only pandas and pyarrow there.
"""
from __future__ import annotations

import json
from typing import Any, Callable, Iterator

from ..base.files import open_address, write_bytes

COUNTS = ("records", "tombstones", "dead_letters", "objects", "bytes")  # what a task counts


def task(form: Any, target: str, dead: str, most: int) -> Callable:
    """Return the function for mapInPandas: writes the objects below `target`, yields one row of counts.

    Args:
        form: of the objects, formats.Lines or formats.Containers. It has

            side_by_side: whether objects of several places of one topic partition are filled at the same time
            read(value, *more) -> (place, record, why there is none), `more` being the columns after `value`; a
                message that is neither a record nor a dead letter has no place either
            text(value) -> what a dead letter shows of it
            object(topic, partition, first offset, place, records) -> (path below `target`, bytes)
        target, dead: addresses of the objects and of the dead letters.
        most: records of one object.
    """
    from pyspark import cloudpickle

    import workbench

    cloudpickle.register_pickle_by_value(workbench)  # a worker elsewhere does not have this package

    def land(batches: Iterator) -> Iterator:
        import pandas

        yield pandas.DataFrame([_land(form, batches, target, dead, most)])

    return land


def _land(form: Any, batches: Iterator, target: str, dead: str, most: int) -> dict[str, int]:
    system, root = open_address(target)
    total = dict.fromkeys(COUNTS, 0)
    waiting: dict[tuple, tuple[Any, int, list[Any]]] = {}  # place, first offset, records of each object being filled
    bad: dict[tuple[str, int], list[dict]] = {}

    def flush(key: tuple) -> None:
        place, first, records = waiting.pop(key)
        path, data = form.object(*key[:2], first, place, records)
        write_bytes(system, f"{root}/{path}", data)
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
        write_bytes(system, f"{root}/{topic}-{partition}-{letters[0]['offset']:020d}.json", text.encode("utf-8"))
        total["dead_letters"] += len(letters)
    return total
