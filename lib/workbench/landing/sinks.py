"""What a sink connector's JSON asks for: the Lenses S3 sink (JSON lines) and the Confluent S3 sink
(JSON lines, Avro or Parquet files).

A setting that the landing does not honour is an error that names it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, Iterable, Optional
from zoneinfo import ZoneInfo

from ..base import World
from ..base.paths import is_safe_relative_path
from ..stack.services import AVRO_CONVERTER, REGISTRY_V2, glue_registries
from . import settings, transforms
from .partitioners import TimePartitioner, get_field, partition_folder, to_strftime

LENSES = "io.lenses.streamreactor.connect.aws.s3.sink.S3SinkConnector"
REGISTRY_URL_KEY, REGISTRY_NAME_KEY = (
    "value.converter.apicurio.registry.url",
    "value.converter.registry.name",
)
ENVELOPE_KEY, DLQ_TOPIC_KEY = "value.converter.schemas.enable", "errors.deadletterqueue.topic.name"
KCQL_CLAUSE = re.compile(
    r"(?:^|\s)(insert\s+into|select|from|partitionby|storeas|with_\w+)[\s=]+", re.I
)


@dataclass(frozen=True)
class Sink:
    """What the JSON of a sink connector asks for, whichever plugin it is for.

    format: of the files, "json" (lines), "avro" or "parquet". folder: of objects, below the world's
        landing address.
    flush_count: most records of one object. pattern: of the topics' names; names: those, where the
        JSON has them.
    fields: those that name partitions. envelope: JSON values come as {"schema": …, "payload": …}.
    confluent: objects are named and cut as Confluent's sink does it; else as Lenses'. messages:
        "json" or "avro".
    codec: of Parquet. times: folders by time. rotate: most milliseconds between the times of the
        first and the last
    record of an object, below 1 for any. transforms: of values, before all else. null_fails: a
    message without a value is an error. name: of the connector. dead_letters: the topic that they
    are sent to.
    """

    file_format: str
    folder: str
    flush_count: int
    topic_pattern: str
    topic_names: tuple[str, ...] = ()
    partition_fields: tuple[str, ...] = ()
    has_envelope: bool = True
    is_confluent: bool = False
    message_format: str = "json"
    codec: str = "none"
    time_partitioner: Optional[TimePartitioner] = None
    rotate_interval_ms: int = -1
    transforms: tuple[transforms.Transform, ...] = ()
    fail_on_null: bool = False
    name: str = ""
    dlq_topic: str = ""

    @property
    def description(self) -> str:
        """What it lands, for people."""
        return ",".join(self.topic_names) or self.topic_pattern

    @property
    def state_path(self) -> str:
        """The name of its progress and of its dead letters."""
        if not self.is_confluent:
            return self.folder
        return f"{self.folder}.sink/" + re.sub(r"[^A-Za-z0-9._-]|^\.{1,2}$", "_", self.description)

    def matching_topics(self, topics: Iterable[str]) -> list[str]:
        """Those of these topics that it lands."""
        return [t for t in topics if re.fullmatch(self.topic_pattern, t)]

    def prefix_of(self, topic: str) -> str:
        """The folder of a topic's objects, below the world's landing address."""
        return f"{self.folder}/{topic}" if self.is_confluent else self.folder

    def partition_folder(self, value: Any, partition: int, sent: int) -> tuple[str, int]:
        """The folder of a record, below that of its topic, and its time, where folders are by time;
        both times in ms.

        Raises: ValueError: the record has none, or it cannot be the name of a folder.
        """
        if self.time_partitioner:
            return self.time_partitioner.folder(value, sent)
        if self.partition_fields:
            return partition_folder(
                value, self.partition_fields, get_field if self.is_confluent else dict.get
            ), 0
        return f"partition={partition}" if self.is_confluent else "", 0

    def object_path(self, topic: str, partition: int, first: int, folder: str) -> str:
        """The path of an object below `folder`, without its ending; first: the offset of its first
        record.
        """
        if self.is_confluent:  # filename.offset.zero.pad.width is 10
            return f"{topic}/{folder}/{topic}+{partition}+{first:010d}"
        return f"{folder}/{topic}-{partition}-{first:020d}".lstrip("/")


def parse(config: dict[str, str], world: Optional[World] = None) -> Sink:
    """Read a sink connector's JSON. Raises ConnectorError naming any setting that the landing does
    not honour.

    Understood, and it changes nothing: how long a sink may wait before it flushes
    (WITH_FLUSH_INTERVAL, rotate.schedule.interval.ms), for a run is one flush and waits for
    nothing.

    Args:
        world: where it is given, the registry that the JSON names has to be the world's.
    """
    said = settings.validate("sink", config, config.get("name", "the S3 sink's JSON"))
    sink = (
        _parse_lenses(said)
        if config["connector.class"] == LENSES
        else _parse_confluent(said, world)
    )
    if said[DLQ_TOPIC_KEY] and sink.matching_topics([said[DLQ_TOPIC_KEY]]):
        raise said.error_for(DLQ_TOPIC_KEY, "a topic that the sink does not land")
    return replace(sink, name=config.get("name", ""), dlq_topic=said[DLQ_TOPIC_KEY])


def _parse_confluent(said: settings.Settings, world: Optional[World]) -> Sink:
    """Objects `<folder>/<topic>/<partition>/<topic>+<n>+<offset>.avro`, the offset that of their
    first record.
    """
    names, format, converter = said["topics"], said["format.class"], said["value.converter"]
    messages = "json" if converter == "json" else "avro"
    if bool(names) == bool(said["topics.regex"]):
        raise said.error_for("topics", "either topics or topics.regex")
    said.parse_with("topics.regex", re.compile, "a regular expression")
    if messages == "json" and (format == "avro" or format == "parquet" and not said[ENVELOPE_KEY]):
        needed = (
            f"{ENVELOPE_KEY}=true, or " * (format == "parquet")
            + f"value.converter={AVRO_CONVERTER}"
        )
        raise said.error_for("format.class", f"one that needs no schema of values, or {needed}")
    if format == "avro" and "transforms" in said.config:
        raise said.error_for("transforms", "none with AvroFormat", settings.REMOVE_HINT)
    if messages == "avro" and world:
        if converter != world.registry.kind:
            raise said.error_for(
                "value.converter", f"that of the registry of {world.file}, {world.registry.kind}"
            )
        own = world.registry.url.rstrip("/")
        if converter == "apicurio" and said[REGISTRY_URL_KEY].rstrip("/") not in (
            own,
            own + REGISTRY_V2,
        ):
            raise said.error_for(
                REGISTRY_URL_KEY, f"the registry of {world.file}: {own}{REGISTRY_V2}"
            )
        values = glue_registries(world)["value"]
        if converter == "glue" and said[REGISTRY_NAME_KEY] != values:
            raise said.error_for(REGISTRY_NAME_KEY, f"the registry of {world.file}: {values}")
    return Sink(
        format,
        said["topics.dir"],
        said["flush.size"],
        said["topics.regex"] or "|".join(map(re.escape, names)),
        tuple(names),
        tuple(said["partition.field.name"] or ()),
        said[ENVELOPE_KEY],
        is_confluent=True,
        message_format=messages,
        codec=said["parquet.codec"],
        time_partitioner=_parse_time_partitioner(said)
        if said["partitioner.class"] == "time"
        else None,
        rotate_interval_ms=said["rotate.interval.ms"],
        transforms=transforms.parse(said.config, said.location),
        fail_on_null=said["behavior.on.null.values"] == "fail",
    )


def _parse_time_partitioner(said: settings.Settings) -> TimePartitioner:
    """What TimeBasedPartitioner is told."""
    said.parse_with("timezone", ZoneInfo, "a name such as UTC")
    pattern = said.parse_with(
        "path.format", to_strftime, "a pattern such as 'year'=YYYY/'month'=MM/'day'=dd/'hour'=HH"
    )
    return TimePartitioner(
        pattern,
        said["partition.duration.ms"],
        said["timezone"],
        said["timestamp.field"] if said["timestamp.extractor"] == "RecordField" else "",
    )


def _parse_lenses(said: settings.Settings) -> Sink:
    """Objects `<prefix>/a=1/b=x/…json` by `INSERT INTO bucket:prefix SELECT * FROM topic
    [PARTITIONBY a,b] [STOREAS `json`] [WITH_FLUSH_… = n]…`; what is left out has the sink's own
    default.
    """
    first, *parts = KCQL_CLAUSE.split(said["connect.s3.kcql"].strip().rstrip(";"))
    clauses = {
        " ".join(name.upper().split()): text.strip().strip("`")
        for name, text in zip(parts[::2], parts[1::2])
    }
    if first or len(clauses) < len(parts) // 2:
        raise said.error_for(
            "connect.s3.kcql",
            "one statement, INSERT INTO bucket:prefix SELECT * FROM topic "
            "PARTITIONBY a,b STOREAS `json` WITH_FLUSH_INTERVAL = 60 WITH_FLUSH_COUNT = 50",
        )
    kcql = settings.validate("kcql", clauses, said.location, "KCQL: ")
    if said["topics"] != kcql["FROM"]:
        raise said.error_for("topics", f"{kcql['FROM']}, which the KCQL reads")
    prefix = kcql["INSERT INTO"].partition(":")[2].rstrip("/")
    if not is_safe_relative_path(prefix):
        raise kcql.error_for(
            "INSERT INTO", "bucket:prefix, a prefix below the landing: no part of it empty, . or .."
        )
    return Sink(
        "json",
        prefix,
        kcql["WITH_FLUSH_COUNT"],
        re.escape(kcql["FROM"]),
        (kcql["FROM"],),
        tuple(kcql["PARTITIONBY"]),
        said[ENVELOPE_KEY],
        transforms=transforms.parse(said.config, said.location),
    )
