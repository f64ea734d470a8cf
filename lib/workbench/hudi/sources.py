"""Where changes come from: a topic, or landed files."""
from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Optional, Tuple, Union

from ..base.errors import LakeError, nearest
from .tables import plain

FORMATS = ("json", "avro")


@dataclass(frozen=True)
class Topic:
    """A Kafka topic as the source. format: of its messages, "json", or "avro" with schemas in the world's registry."""

    name: str
    format: str = "json"

    def __post_init__(self) -> None:
        _check(self.format, f"topic {self.name}")

    @property
    def id(self) -> str:
        return "topic-" + plain(self.name)

    @property
    def topic(self) -> str:
        """Its name, under which the registry has the schemas of Avro."""
        return self.name


@dataclass(frozen=True)
class Landed:
    """Files below `<world.lake.landing>/<prefix>` as the source. format: "json", lines; or "avro", container files.

    Read in the order of the offsets in their names (see reading_order); files that are still being written are not.
    """

    prefix: str
    format: str = "json"

    def __post_init__(self) -> None:
        _check(self.format, f"the files in {self.prefix}")

    @property
    def id(self) -> str:
        return "landed-" + plain(self.prefix)

    @property
    def folder(self) -> str:
        """The prefix of all partitions of the topic: without the folder of one of them (DefaultPartitioner)."""
        return re.sub(r"/partition=\d+$", "", self.prefix.rstrip("/"))

    @property
    def topic(self) -> str:
        """The topic whose messages lie there as Avro; its name is that of the folder."""
        return self.folder.rpartition("/")[2]


Source = Union[Topic, Landed]


def _check(format: str, what: str) -> None:
    if format not in FORMATS:
        raise LakeError(f"format of {what} is {format!r}", expected=nearest(str(format), FORMATS))


def is_scratch(path: str) -> bool:
    """Whether a landed path is of a file that is still being written, or of a writer's own bookkeeping."""
    hidden = (part.startswith(".") or part.startswith("_") and "=" not in part for part in path.split("/"))
    return any(hidden) or path.endswith((".tmp", ".crc", ".inprogress"))


def reading_order(path: str, mtime: Optional[int]) -> Tuple[Any, ...]:
    """Sort key of landed files: by topic, partition and first offset where the name has them, else by time.

    `<topic>-<partition>-<first offset>.json` as the landing writes it, `<topic>(<partition>_<offset>).json` as Lenses,
    `<topic>+<partition>+<first offset>.avro` as Confluent.
    """
    name = path.rpartition("/")[2]
    found = re.fullmatch(r"(.+)[-+(](\d+)[-+_](\d+)\)?\.(json|avro)", name)
    if found:
        return True, found[1], int(found[2]), int(found[3]), path
    return False, "", 0, mtime or 0, path
