"""The configuration of a sink connector, parsed from its JSON.

The Lenses S3 sink (JSON lines) and the Confluent S3 sink (JSON lines, Avro or Parquet files) are
supported. A setting that the landing does not support raises an error that names the setting.
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
    """The parsed configuration of a sink connector of either plugin.

    Attributes:
        file_format: "json" (lines), "avro" or "parquet".
        folder: folder of the files, relative to the environment's landing folder.
        flush_count: maximum number of records in a file.
        topic_pattern: regular expression of the names of the topics.
        topic_names: the names of the topics; empty if the JSON has a pattern.
        partition_fields: the fields whose values name the folders.
        has_envelope: whether JSON values have the form {"schema": …, "payload": …}.
        is_confluent: whether the plugin is Confluent's sink, whose file names and rotation differ from
            those of Lenses' sink.
        message_format: "json" or "avro".
        codec: compression codec of Parquet files.
        time_partitioner: partitioner by time; None for folders by fields or by partition.
        rotate_interval_ms: maximum time between the first and the last record of a file; no limit
            if below 1.
        transforms: transforms of the values, in their order.
        fail_on_null: whether a message without a value is an error.
        name: name of the connector.
        dlq_topic: name of the topic for dead letters; "" for none.
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
        """The topics of the sink, for logs and error messages."""
        return ",".join(self.topic_names) or self.topic_pattern

    @property
    def state_path(self) -> str:
        """The path of the checkpoint and of the dead letters, each below its own folder."""
        if not self.is_confluent:
            return self.folder
        return f"{self.folder}.sink/" + re.sub(r"[^A-Za-z0-9._-]|^\.{1,2}$", "_", self.description)

    def matching_topics(self, topics: Iterable[str]) -> list[str]:
        """Return the topics that the sink lands."""
        return [topic for topic in topics if re.fullmatch(self.topic_pattern, topic)]

    def prefix_of(self, topic: str) -> str:
        """Return the folder of a topic's files, below the environment's landing folder."""
        return f"{self.folder}/{topic}" if self.is_confluent else self.folder

    def partition_folder(self, value: Any, partition: int, timestamp_ms: int) -> tuple[str, int]:
        """Return the folder of a record, relative to the folder of its topic, and the record's time.

        Args:
            value: the record.
            partition: partition of the message.
            timestamp_ms: timestamp of the message in ms since 1970.

        Returns:
            (folder, time in ms since 1970). The time is 0 if the folders are not by time.

        Raises:
            ValueError: a partition field or the time field is missing or invalid, or the folder's
                name is too long.
        """
        if self.time_partitioner:
            return self.time_partitioner.folder(value, timestamp_ms)
        if self.partition_fields:
            get = get_field if self.is_confluent else dict.get
            return partition_folder(value, self.partition_fields, get), 0
        return f"partition={partition}" if self.is_confluent else "", 0

    def object_path(self, topic: str, partition: int, first_offset: int, folder: str) -> str:
        """Return the path of a file, relative to the sink's folder, without its extension."""
        if self.is_confluent:  # filename.offset.zero.pad.width is 10
            return f"{topic}/{folder}/{topic}+{partition}+{first_offset:010d}"
        return f"{folder}/{topic}-{partition}-{first_offset:020d}".lstrip("/")


def parse(config: dict[str, str], world: Optional[World] = None) -> Sink:
    """Read a sink connector's JSON.

    The settings for the time until a flush (WITH_FLUSH_INTERVAL, rotate.schedule.interval.ms) are
    accepted and have no effect, because one run is one flush.

    Args:
        config: the connector's JSON.
        world: the environment profile. If it is given, the JSON must name its registry.

    Raises:
        ConnectorError: the landing does not support a setting.
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

    The files are `<folder>/<topic>/<partition folder>/<topic>+<partition>+<first offset><extension>`.
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
    """Raise ConnectorError if the converter does not use the environment's registry."""
    converter, registry = settings["value.converter"], f"the registry of {world.file}"
    if converter != world.registry.kind:
        raise settings.error_for(
            "value.converter", f"{world.registry.kind}, the converter for {registry}"
        )
    if converter == "glue":
        key, expected = REGISTRY_NAME_KEY, glue_registries(world)["value"]
        is_expected = settings[key] == expected
    else:
        url = world.registry.url.rstrip("/")
        key, expected = REGISTRY_URL_KEY, url + REGISTRY_V2
        is_expected = settings[key].rstrip("/") in (url, expected)
    if not is_expected:
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
    """Read the JSON of Lenses' sink; a missing clause has the sink's default.

    The statement `INSERT INTO bucket:prefix SELECT * FROM topic [PARTITIONBY a,b] [STOREAS `json`]
    [WITH_FLUSH_… = n]…` writes files `<prefix>/a=1/b=x/…json`.
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
