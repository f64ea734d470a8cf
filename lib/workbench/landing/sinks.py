"""The configuration of a sink connector, parsed from its JSON.

The Lenses S3 sink (JSON lines) and the Confluent S3 sink (JSON lines, Avro or Parquet files) are
supported. A setting that the landing does not support raises an error that names the setting.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from typing import Any, Iterable, Optional, Sequence

from ..base import World
from ..base.paths import is_safe_relative_path
from ..base.registries import AVRO_CONVERTER, REGISTRY_V2, glue_registries
from ..topic.topics import Message
from . import transforms
from .settings import JSON_CONVERTER, REMOVE_HINT, SUPPORTED, ConnectorConfig, Values, split_list

LENSES = "io.lenses.streamreactor.connect.aws.s3.sink.S3SinkConnector"
SCHEMAS_KEY = "value.converter.schemas.enable"
KCQL_KEY = "connect.s3.kcql"
DLQ_TOPIC_KEY = "errors.deadletterqueue.topic.name"
# the clauses of WITH_… in any order
KCQL = re.compile(
    r"\s*INSERT\s+INTO\s+[^\s:]+:(?P<prefix>[^\s`]+)\s+SELECT\s+\*\s+FROM\s+`?(?P<topic>[^\s`;]+)`?"
    r"(\s+PARTITIONBY\s+(?P<fields>\w+(\s*,\s*\w+)*))?(\s+STOREAS\s+`?json`?)?"
    r"(?!.*(?P<clause>WITH_FLUSH_\w+).*(?P=clause))"  # each clause once
    r"(\s+WITH_FLUSH_INTERVAL\s*=\s*[1-9]\d*|\s+WITH_FLUSH_COUNT\s*=\s*(?P<count>[1-9]\d*))*\s*;?\s*",
    re.I,
)
DEFAULT_FLUSH_COUNT = 50_000
# the characters that Hive escapes in partition folders
# (org.apache.hadoop.hive.common.FileUtils.charToEscape), and NUL, which file systems reject
HIVE_ESCAPES = {ord(c): f"%{ord(c):02X}" for c in (*map(chr, range(32)), *"\"#%'*/:=?\\\x7f{[]^")}
DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"
MAX_NAME_BYTES = 255  # a limit of file systems
MAX_FOLDER_BYTES = 900  # a key in S3 has at most 1024 bytes


@dataclass(frozen=True)
class Sink:
    """The parsed configuration of a sink connector of either plugin.

    Attributes:
        file_format: "json" (lines), "avro" or "parquet".
        folder: folder of the files, relative to the environment's landing folder.
        flush_count: maximum number of records in a file.
        topic_pattern: regular expression of the names of the topics.
        topic_names: the names of the topics; empty if the JSON has a pattern.
        partition_fields: the fields whose values are the folder of a record; None for folders by the
            number of the topic partition.
        has_envelope: whether JSON values have the form {"schema": …, "payload": …}.
        is_confluent: whether the plugin is Confluent's sink, whose file names and rotation differ from
            those of Lenses' sink.
        message_format: "json" or "avro".
        codec: compression codec of Parquet files.
        transforms: transforms of the values.
        fail_on_null: whether a message without a value is an error.
        name: name of the connector.
        dlq_topic: name of the topic for dead letters; "" for none.
    """

    file_format: str
    folder: str
    flush_count: int
    topic_pattern: str
    topic_names: tuple[str, ...] = ()
    partition_fields: Optional[tuple[str, ...]] = ()
    has_envelope: bool = True
    is_confluent: bool = False
    message_format: str = "json"
    codec: str = "none"
    transforms: transforms.Transforms = field(default_factory=dict)
    fail_on_null: bool = False
    name: str = ""
    dlq_topic: str = ""

    @property
    def description(self) -> str:
        """The topics of the sink, for logs and error messages."""
        return ",".join(self.topic_names) or self.topic_pattern

    @property
    def state_path(self) -> str:
        """The path of the dead letters, below their folder."""
        if not self.is_confluent:
            return self.folder
        return f"{self.folder}.sink/" + re.sub(r"[^A-Za-z0-9._-]|^\.{1,2}$", "_", self.description)

    def matching_topics(self, topics: Iterable[str]) -> list[str]:
        """Return the topics that the sink lands."""
        return [topic for topic in topics if re.fullmatch(self.topic_pattern, topic)]

    def prefix_of(self, topic: str) -> str:
        """Return the folder of a topic's files, below the environment's landing folder."""
        return f"{self.folder}/{topic}" if self.is_confluent else self.folder

    def record_folder(self, record: dict[str, Any], partition: int) -> str:
        """Return the folder of a record, relative to the folder of its topic.

        Raises:
            ValueError: Confluent's sink requires a field that the record does not have, or the name of the
                folder is too long.
        """
        if self.partition_fields is None:
            return f"partition={partition}"
        for name in self.partition_fields:
            if self.is_confluent and name not in record:
                raise ValueError(f"there is no field {name}")
        return folder_by_fields(self.partition_fields, record)

    def object_path(self, first: Message, folder: str) -> str:
        """Return the path of a file, relative to the sink's folder, without its extension.

        Args:
            first: the message of its first record.
            folder: folder of its records.
        """
        topic, partition, offset = first.topic(), first.partition(), first.offset()
        if self.is_confluent:  # filename.offset.zero.pad.width is 10
            return f"{topic}/{folder}/{topic}+{partition}+{offset:010d}"
        return f"{folder}/{topic}-{partition}-{offset:020d}".lstrip("/")


def folder_by_fields(fields: Sequence[str], record: dict[str, Any]) -> str:
    """Return the folder of a record by the values of its fields, `a=1/b=x`; "" without fields.

    It works like Lenses' PARTITIONBY and Confluent's FieldPartitioner, but values are escaped as Hive does it.
    A null, empty or missing value becomes Hive's default partition.

    Raises:
        ValueError: the name of the folder is too long.
    """
    names = []
    for name in fields:
        value = record.get(name)
        text = value if isinstance(value, str) else json.dumps(value)
        is_empty = value is None or not text
        names.append(f"{name}={DEFAULT_PARTITION if is_empty else text.translate(HIVE_ESCAPES)}")
    folder = "/".join(names)
    is_long = any(len(name.encode()) > MAX_NAME_BYTES for name in names)
    if is_long or len(folder.encode()) >= MAX_FOLDER_BYTES:
        raise ValueError("a partition value is too long for the name of a folder")
    return folder


def parse(values: dict[str, str], world: Optional[World] = None) -> Sink:
    """Read a sink connector's JSON.

    The settings for the time until a flush (WITH_FLUSH_INTERVAL, rotate.schedule.interval.ms) are
    accepted and have no effect, because one run is one flush.

    Args:
        values: the connector's JSON.
        world: the environment profile. If it is given, the JSON must name its registry.

    Raises:
        ConnectorError: the landing does not support a setting.
    """
    config = ConnectorConfig(values, values.get("name", "the S3 sink's JSON"))
    settings = config.parse_connector(SUPPORTED["sinks"])
    if settings["connector.class"] == LENSES:
        sink = _lenses_sink(config, settings)
    else:
        sink = _confluent_sink(config, settings, world)
    dlq_topic = settings[DLQ_TOPIC_KEY]
    if dlq_topic and settings["errors.tolerance"] == "none":
        raise config.error(DLQ_TOPIC_KEY, "errors.tolerance=all with it")
    if dlq_topic and sink.matching_topics([dlq_topic]):
        raise config.error(DLQ_TOPIC_KEY, "a topic that the sink does not land")
    return replace(sink, name=settings["name"], dlq_topic=dlq_topic)


def _confluent_sink(config: ConnectorConfig, settings: Values, world: Optional[World]) -> Sink:
    """Read the JSON of Confluent's sink.

    The files are `<folder>/<topic>/<partition folder>/<topic>+<partition>+<first offset><extension>`.
    """
    file_format = settings["format.class"].rpartition(".")[2].removesuffix("Format").lower()
    is_json = settings["value.converter"] == JSON_CONVERTER
    has_envelope = settings.get(SCHEMAS_KEY) != "false"
    if world and not is_json:
        _require_registry(config, settings, world)
    if file_format == "avro" and is_json:
        raise config.error("format.class", f"JsonFormat, or value.converter={AVRO_CONVERTER}")
    if file_format == "parquet" and not has_envelope:
        raise config.error("format.class", "JsonFormat, or value.converter.schemas.enable=true")
    if settings["transforms"] and (file_format == "avro" or not has_envelope):
        raise config.error("transforms", "none with AvroFormat, or without schemas", REMOVE_HINT)
    fields = tuple(split_list(settings["partition.field.name"]))
    is_by_field = settings["partitioner.class"].endswith("FieldPartitioner")
    if bool(fields) != is_by_field:
        raise config.error("partition.field.name", "the names of fields for FieldPartitioner")
    names, pattern = tuple(split_list(settings["topics"])), settings["topics.regex"]
    if bool(names) == bool(pattern):
        raise config.error("topics", "either topics or topics.regex")
    try:
        re.compile(pattern)
    except re.error as e:
        raise config.error("topics.regex", f"a regular expression ({e})") from None
    return Sink(
        file_format,
        settings["topics.dir"],
        int(settings["flush.size"]),
        pattern or "|".join(map(re.escape, names)),
        names,
        fields if is_by_field else None,
        has_envelope,
        is_confluent=True,
        message_format="json" if is_json else "avro",
        codec=settings["parquet.codec"],
        transforms=transforms.parse(config),
        fail_on_null=settings["behavior.on.null.values"] == "fail",
    )


def _require_registry(config: ConnectorConfig, settings: Values, world: World) -> None:
    """Raise ConnectorError if the Avro converter does not use the environment's registry."""
    registry, is_glue = f"the registry of {world.file}", world.registry.kind == "glue"
    if (settings["value.converter"] != AVRO_CONVERTER) != is_glue:
        expected = f"{world.registry.kind}, the converter for {registry}"
        raise config.error("value.converter", expected)
    if is_glue:
        key, valid = "value.converter.registry.name", [glue_registries(world)["value"]]
    else:
        key, url = "value.converter.apicurio.registry.url", world.registry.url.rstrip("/")
        valid = [url + path for path in (REGISTRY_V2, f"{REGISTRY_V2}/", "", "/")]
    if settings[key] not in valid:
        raise config.error(key, f"{registry}: {valid[0]}")


def _lenses_sink(config: ConnectorConfig, settings: Values) -> Sink:
    """Read the JSON of Lenses' sink; a missing clause has the sink's default.

    The files are `<prefix>/a=1/b=x/<topic>-<partition>-<first offset>.json`.
    """
    statement = KCQL.fullmatch(settings[KCQL_KEY])
    prefix = statement["prefix"].rstrip("/") if statement else ""
    if not statement or not is_safe_relative_path(prefix):
        form = SUPPORTED["sinks"][LENSES][JSON_CONVERTER]["settings"][KCQL_KEY]["is"]
        raise config.error(KCQL_KEY, form)
    if settings["transforms"]:
        raise config.error("transforms", "none with the Lenses sink", REMOVE_HINT)
    transforms.parse(config)  # raises if the JSON has settings of a transform that it does not list
    topic = statement["topic"]
    if settings["topics"] != topic:
        raise config.error("topics", f"{topic}, which the KCQL reads")
    return Sink(
        "json",
        prefix,
        int(statement["count"] or DEFAULT_FLUSH_COUNT),
        re.escape(topic),
        (topic,),
        tuple(split_list(statement["fields"] or "")),
        settings[SCHEMAS_KEY] == "true",
    )
