"""The part of the landing that runs inside a Spark task: messages into objects and dead letters,
whatever the format.

It travels to the worker by value, with all that it uses of this package, and imports only pandas
and pyarrow there.
"""

from __future__ import annotations

import base64
import contextlib
import json
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Callable, Iterator

from ..base.files import open_filesystem, write_bytes
from ..base.paths import join_uri

COUNTERS = (
    "messages",
    "records",
    "tombstones",
    "dead_letters",
    "objects",
    "bytes",
)  # what a task counts


def landing_task(form: Any, target: str, dead: str) -> Callable:
    """Return the function for mapInPandas: writes the objects below `target`, yields one row of
    counts.

    Args:
        form: what becomes of a message, see formats.RecordEncoder.
        target, dead: addresses of the objects and of the dead letters.
    """
    return pickle_by_value(_land, form, target, dead)


def pickle_by_value(function: Callable, *given: Any) -> Callable:
    """Return a function for mapInPandas that is called with these and then the batches. It travels
    to the workers by value, with all that it uses of this package: a worker elsewhere does not have
    it.
    """
    from pyspark import cloudpickle

    import workbench

    cloudpickle.register_pickle_by_value(workbench)
    return partial(function, *given)


@dataclass
class OpenFiles:
    """Objects that are being filled and will be closed at the same time: {folder: (schema, first
    offset, records)};
    count: records in all; since: time of the first; folder: of the last.
    """

    objects: dict[str, tuple[Any, int, list[Any]]] = field(default_factory=dict)
    count: int = 0
    first_time: int = 0
    last_folder: str = ""


def _land(form: Any, target: str, dead: str, batches: Iterator) -> Iterator:
    import pandas

    system, root = open_filesystem(target)
    sink, total = form.sink, dict.fromkeys(COUNTERS, 0)
    filled: dict[tuple, OpenFiles] = {}
    bad: list[dict[str, Any]] = []

    def close(group: tuple) -> None:
        for folder, (schema, first, records) in filled.pop(group).objects.items():
            path = sink.object_path(*group[:2], first, folder) + form.format.extension
            data = form.format.encode_file(schema, records, path)
            write_bytes(system, join_uri(root, path), data)
            total["objects"] += 1
            total["bytes"] += len(data)

    for frame in batches:
        total["messages"] += len(frame)
        if "schema" in frame:
            form.converter.require_schemas(frame["schema"])
        for topic, partition, offset, keyed, sent, value, *more in frame.itertuples(
            index=False, name=None
        ):
            try:
                if value is None and not keyed:
                    raise ValueError("no value and no key")
                found = None if value is None else form.encode(topic, partition, sent, value, *more)
            except ValueError as e:
                bad.append(
                    {
                        "reason": str(e),
                        "topic": topic,
                        "partition": partition,
                        "offset": offset,
                        "text": None if value is None else _payload_text(value),
                    }
                )
                continue
            if found is None:
                if sink.fail_on_null:
                    raise RuntimeError(
                        f"offset {offset} of {topic}, partition {partition}, has no value, and "
                        "behavior.on.null.values is fail"
                    )
                total["tombstones"] += 1
                continue
            folder, schema, record, time = found
            group = (topic, partition) if sink.is_confluent else (topic, partition, folder)
            if group in filled and _must_rotate(
                filled[group], sink.rotate_interval_ms, folder, schema, time
            ):
                close(group)
            now = filled.setdefault(group, OpenFiles(first_time=time))
            now.objects.setdefault(folder, (schema, offset, []))[2].append(record)
            now.count, now.last_folder = now.count + 1, folder
            total["records"] += 1
            if now.count == sink.flush_count:
                close(group)
    for group in list(filled):
        close(group)
    if bad:
        system, root = open_filesystem(dead)
        name = "{topic}-{partition}-{offset:020d}.json".format(**bad[0])
        write_bytes(
            system,
            join_uri(root, name),
            "".join(json.dumps(letter) + "\n" for letter in bad).encode("utf-8"),
        )
    yield pandas.DataFrame([{**total, "dead_letters": len(bad)}])


def _payload_text(value: bytes) -> str:
    """What a dead letter shows of a message: its text, else base64. (Avro with a schema's id begins
    with a NUL.)
    """
    with contextlib.suppress(UnicodeDecodeError):
        if 0 not in value:
            return value.decode("utf-8")
    return base64.b64encode(value).decode("ascii")


def _must_rotate(now: OpenFiles, rotate: int, folder: str, schema: Any, time: int) -> bool:
    """Whether a record begins new objects: it has another schema (schema.compatibility NONE), or
    its time is too late (rotate.interval.ms), which in Confluent's TopicPartitionWriter ends all
    objects of a topic partition at once, as flush.size does; where objects end by time, another
    folder does so, too.
    """
    if folder in now.objects and now.objects[folder][0] is not schema:
        return True
    return rotate > 0 and (time - now.first_time >= rotate or folder != now.last_folder)
