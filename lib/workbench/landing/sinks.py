"""What a sink connector's JSON asks for.

Supported are the Lenses S3 sink (JSON lines) and the Confluent S3 sink (JSON lines, Avro or Parquet
files). A setting that the landing does not support is an error that names it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, Iterable, Optional
from zoneinfo import ZoneInfo

from ..base import World
from ..base.paths import is_safe_relative_path
from ..stack.services import AVRO_CONVERTER, REGISTRY_V2, glue_registries
from . import transforms
from .partitioners import TimePartitioner, get_field, partition_folder, to_strftime
from .settings import REMOVE_HINT, Settings, validate

LENSES = "io.lenses.streamreactor.connect.aws.s3.sink.S3SinkConnector"
REGISTRY_URL_KEY = "value.converter.apicurio.registry.url"
REGISTRY_NAME_KEY = "value.converter.registry.name"
ENVELOPE_KEY = "value.converter.schemas.enable"
DLQ_TOPIC_KEY = "errors.deadletterqueue.topic.name"
KCQL_CLAUSE = re.compile(
    r"(?:^|\s)(insert\s+into|select|from|partitionby|storeas|with_\w+)[\s=]+", re.I
)


@dataclass(frozen=True)
class Sink:
    """What the JSON of a sink connector asks for, of either plugin.

    Attributes:
        file_format: "json" (lines), "avro" or "parquet".
        folder: of the files, below the environment's landing folder.
        flush_count: largest number of records in a file.
        topic_pattern: regular expression of the topics' names.
        topic_names: the names, where the JSON has them.
        partition_fields: the fields that name folders.
        has_envelope: whether JSON values come as {"schema": …, "payload": …}.
        is_confluent: whether files are named and rotated as Confluent's sink does it, else as
            Lenses'.
        message_format: "json" or "avro".
        codec: of Parquet.
        time_partitioner: of folders by time.
        rotate_interval_ms: longest time between the first and the last record of a file; below 1
            for any.
        transforms: of the values, before everything else.
        fail_on_null: whether a message without a value is an error.
        name: of the connector.
        dlq_topic: the topic for dead letters.
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
        """The topics of the sink, for people."""
        return ",".join(self.topic_names) or self.topic_pattern

    @property
    def state_path(self) -> str:
        """The path of its checkpoint and of its dead letters, below their folders."""
        if not self.is_confluent:
            return self.folder
        return f"{self.folder}.sink/" + re.sub(r"[^A-Za-z0-9._-]|^\.{1,2}$", "_", self.description)

    def matching_topics(self, topics: Iterable[str]) -> list[str]:
        """Return those of these topics that the sink lands."""
        return [topic for topic in topics if re.fullmatch(self.topic_pattern, topic)]

    def prefix_of(self, topic: str) -> str:
        """Return the folder of a topic's files, below the environment's landing folder."""
        return f"{self.folder}/{topic}" if self.is_confluent else self.folder

    def partition_folder(self, value: Any, partition: int, timestamp_ms: int) -> tuple[str, int]:
        """Return the folder of a record, below that of its topic, and its time.

        Args:
            value: the record.
            partition: of its message.
            timestamp_ms: of its message.

        Returns:
            The folder, and the time in ms; 0 where the folders are not by time.

        Raises:
            ValueError: the record has no folder, or its name is too long.
        """
        if self.time_partitioner:
            return self.time_partitioner.folder(value, timestamp_ms)
        if self.partition_fields:
            get = get_field if self.is_confluent else dict.get
            return partition_folder(value, self.partition_fields, get), 0
        return f"partition={partition}" if self.is_confluent else "", 0

    def object_path(self, topic: str, partition: int, first_offset: int, folder: str) -> str:
        """Return the path of a file below the landing folder, without its extension."""
        if self.is_confluent:  # filename.offset.zero.pad.width is 10
            return f"{topic}/{folder}/{topic}+{partition}+{first_offset:010d}"
        return f"{folder}/{topic}-{partition}-{first_offset:020d}".lstrip("/")


def parse(config: dict[str, str], world: Optional[World] = None) -> Sink:
    """Read a sink connector's JSON.

    Two settings are allowed and change nothing: how long a sink may wait before it flushes
    (WITH_FLUSH_INTERVAL, rotate.schedule.interval.ms). One run is one flush and does not wait.

    Args:
        config: the connector's JSON.
        world: the environment profile. Where it is given, the JSON must name its registry.

    Raises:
        ConnectorError: names a setting that the landing does not support.
    """
    settings = validate("sink", config, config.get("name", "the S3 sink's JSON"))
    if config["connector.class"] == LENSES:
        sink = _parse_lenses(settings)
    else:
        sink = _parse_confluent(settings, world)
    dlq_topic = settings[DLQ_TOPIC_KEY]
    if dlq_topic and sink.matching_topics([dlq_topic]):
        raise settings.error_for(DLQ_TOPIC_KEY, "a topic that the sink does not land")
    return replace(sink, name=config.get("name", ""), dlq_topic=dlq_topic)


def _parse_confluent(settings: Settings, world: Optional[World]) -> Sink:
    """Read the JSON of Confluent's sink.

    Its files are `<folder>/<topic>/<partition>/<topic>+<n>+<offset>.avro`, with the offset of their
    first record.
    """
    names, file_format = settings["topics"], settings["format.class"]
    message_format = "json" if settings["value.converter"] == "json" else "avro"
    has_envelope, is_parquet = settings[ENVELOPE_KEY], file_format == "parquet"
    if bool(names) == bool(settings["topics.regex"]):
        raise settings.error_for("topics", "either topics or topics.regex")
    settings.parse_with("topics.regex", re.compile, "a regular expression")
    if message_format == "json" and (file_format == "avro" or (is_parquet and not has_envelope)):
        schemas = f"value.converter={AVRO_CONVERTER}"
        if is_parquet:
            schemas = f"{ENVELOPE_KEY}=true, or {schemas}"
        raise settings.error_for(
            "format.class", f"a format that needs no schema of values, or {schemas}"
        )
    if file_format == "avro" and "transforms" in settings.config:
        raise settings.error_for("transforms", "none with AvroFormat", REMOVE_HINT)
    if message_format == "avro" and world:
        _require_registry(settings, world)
    return Sink(
        file_format,
        settings["topics.dir"],
        settings["flush.size"],
        settings["topics.regex"] or "|".join(map(re.escape, names)),
        tuple(names),
        tuple(settings["partition.field.name"] or ()),
        has_envelope,
        is_confluent=True,
        message_format=message_format,
        codec=settings["parquet.codec"],
        time_partitioner=_parse_time_partitioner(settings),
        rotate_interval_ms=settings["rotate.interval.ms"],
        transforms=transforms.parse(settings.config, settings.location),
        fail_on_null=settings["behavior.on.null.values"] == "fail",
    )


def _require_registry(settings: Settings, world: World) -> None:
    """Raise ConnectorError where the converter does not use the environment's registry."""
    converter, registry = settings["value.converter"], f"the registry of {world.file}"
    if converter != world.registry.kind:
        raise settings.error_for("value.converter", f"that of {registry}, {world.registry.kind}")
    if converter == "glue":
        key, expected = REGISTRY_NAME_KEY, glue_registries(world)["value"]
        is_ours = settings[key] == expected
    else:
        url = world.registry.url.rstrip("/")
        key, expected = REGISTRY_URL_KEY, url + REGISTRY_V2
        is_ours = settings[key].rstrip("/") in (url, expected)
    if not is_ours:
        raise settings.error_for(key, f"{registry}: {expected}")


def _parse_time_partitioner(settings: Settings) -> Optional[TimePartitioner]:
    """Read the settings of TimeBasedPartitioner; return None for another partitioner."""
    if settings["partitioner.class"] != "time":
        return None
    settings.parse_with("timezone", ZoneInfo, "a name such as UTC")
    example = "a pattern such as 'year'=YYYY/'month'=MM/'day'=dd/'hour'=HH"
    uses_field = settings["timestamp.extractor"] == "RecordField"
    return TimePartitioner(
        settings.parse_with("path.format", to_strftime, example),
        settings["partition.duration.ms"],
        settings["timezone"],
        settings["timestamp.field"] if uses_field else "",
    )


def _parse_lenses(settings: Settings) -> Sink:
    """Read the JSON of Lenses' sink; a clause that is left out has the sink's own default.

    Its files are `<prefix>/a=1/b=x/…json` by `INSERT INTO bucket:prefix SELECT * FROM topic
    [PARTITIONBY a,b] [STOREAS `json`] [WITH_FLUSH_… = n]…`.
    """
    first, *parts = KCQL_CLAUSE.split(settings["connect.s3.kcql"].strip().rstrip(";"))
    names = [" ".join(name.upper().split()) for name in parts[::2]]
    if first or len({*names}) < len(names):
        raise settings.error_for(
            "connect.s3.kcql",
            "one statement, INSERT INTO bucket:prefix SELECT * FROM topic "
            "PARTITIONBY a,b STOREAS `json` WITH_FLUSH_INTERVAL = 60 WITH_FLUSH_COUNT = 50",
        )
    clauses = dict(zip(names, (text.strip().strip("`") for text in parts[1::2])))
    kcql = validate("kcql", clauses, settings.location, "KCQL: ")
    topic = kcql["FROM"]
    if settings["topics"] != topic:
        raise settings.error_for("topics", f"{topic}, which the KCQL reads")
    prefix = kcql["INSERT INTO"].partition(":")[2].rstrip("/")
    if not is_safe_relative_path(prefix):
        raise kcql.error_for(
            "INSERT INTO", "bucket:prefix, a prefix below the landing: no part of it empty, . or .."
        )
    return Sink(
        "json",
        prefix,
        kcql["WITH_FLUSH_COUNT"],
        re.escape(topic),
        (topic,),
        tuple(kcql["PARTITIONBY"]),
        settings[ENVELOPE_KEY],
        transforms=transforms.parse(settings.config, settings.location),
    )
