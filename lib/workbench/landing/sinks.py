"""The configuration of a sink connector, parsed from its JSON.

The Lenses S3 sink (JSON lines) and the Confluent S3 sink (JSON lines, Avro or Parquet files) are
supported. A setting that the landing does not support raises an error that names the setting.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Iterable, Optional

from ..base import World
from ..base.paths import is_safe_relative_path
from ..base.registries import AVRO_CONVERTER, REGISTRY_V2, glue_registries
from . import models, transforms
from .partitioners import (
    FieldPartitioner,
    NumberPartitioner,
    Partitioner,
    get_field,
)
from .settings import REMOVE_HINT, ConnectorConfig, Settings

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
        partitioner: the folder of a record, relative to the folder of its topic.
        has_envelope: whether JSON values have the form {"schema": …, "payload": …}.
        is_confluent: whether the plugin is Confluent's sink, whose file names and rotation differ from
            those of Lenses' sink.
        message_format: "json" or "avro".
        codec: compression codec of Parquet files.
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
    partitioner: Partitioner = FieldPartitioner(())
    has_envelope: bool = True
    is_confluent: bool = False
    message_format: str = "json"
    codec: str = "none"
    transforms: tuple[transforms.Transform, ...] = ()
    fail_on_null: bool = False
    name: str = ""
    dlq_topic: str = ""

    @property
    def description(self) -> str:
        """The topics of the sink, for logs and error messages."""
        return ",".join(self.topic_names) or self.topic_pattern

    @property
    def group(self) -> str:
        """The consumer group of the connector in Kafka Connect."""
        return f"connect-{self.name}"

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

    def object_path(self, topic: str, partition: int, first_offset: int, folder: str) -> str:
        """Return the path of a file, relative to the sink's folder, without its extension."""
        if self.is_confluent:  # filename.offset.zero.pad.width is 10
            return f"{topic}/{folder}/{topic}+{partition}+{first_offset:010d}"
        return f"{folder}/{topic}-{partition}-{first_offset:020d}".lstrip("/")


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
    # the class is not checked, because keys are not stored
    config.section("key.converter.").parse(models.KeyConverter, "a key converter")
    if values.get("connector.class") != models.CONFLUENT:
        settings = config.parse_plugin("connector.class", models.SINKS)
        assert isinstance(settings, models.LensesSink)
        sink = _lenses_sink(config, settings)
    else:
        settings = confluent = config.parse_plugin(
            "partitioner.class", models.CONFLUENT_SINKS, default=models.DEFAULT_PARTITIONER
        )
        sink = _confluent_sink(config, confluent, world)
    queue = config.parse_plugin(
        "errors.tolerance", models.TOLERANCES, "errors.deadletterqueue.", "none"
    )
    dlq_topic = queue.topic_name if isinstance(queue, models.DeadLetterQueue) else ""
    if dlq_topic and sink.matching_topics([dlq_topic]):
        raise config.error(DLQ_TOPIC_KEY, "a topic that the sink does not land")
    return replace(sink, name=settings.name, dlq_topic=dlq_topic)


def _confluent_sink(
    config: ConnectorConfig, settings: models.ConfluentSink, world: Optional[World]
) -> Sink:
    """Read the JSON of Confluent's sink.

    The files are `<folder>/<topic>/<partition folder>/<topic>+<partition>+<first offset><extension>`.
    """
    converter = config.parse_plugin(
        "value.converter",
        models.CONFLUENT_CONVERTERS,
        "value.converter.",
        models.DEFAULT_CONVERTER,
    )
    needs_schema = "a format that needs no schema of values, or"
    avro = f"value.converter={AVRO_CONVERTER}"
    has_envelope, message_format = True, "avro"
    if isinstance(converter, models.JsonConverter):
        has_envelope, message_format = converter.schemas_enable, "json"
    elif world:
        _require_registry(config, converter, world)
    file_format, codec = "json", "none"
    chosen = config.parse_plugin("format.class", models.FORMATS, "parquet.")
    if isinstance(chosen, models.AvroFormat):
        file_format = "avro"
        if message_format == "json":
            raise config.error("format.class", f"{needs_schema} {avro}")
        if settings.transforms:
            raise config.error("transforms", "none with AvroFormat", REMOVE_HINT)
    elif isinstance(chosen, models.ParquetFormat):
        file_format, codec = "parquet", chosen.codec
        if not has_envelope:
            schemas = f"value.converter.schemas.enable=true, or {avro}"
            raise config.error("format.class", f"{needs_schema} {schemas}")
    pattern = settings.topics_regex.pattern
    if bool(settings.topics) == bool(pattern):
        raise config.error("topics", "either topics or topics.regex")
    return Sink(
        file_format,
        settings.topics_dir,
        settings.flush_size,
        pattern or "|".join(map(re.escape, settings.topics)),
        settings.topics,
        _partitioner(settings),
        has_envelope,
        is_confluent=True,
        message_format=message_format,
        codec=codec,
        transforms=transforms.parse(config),
        fail_on_null=settings.behavior_on_null_values == "fail",
    )


def _partitioner(settings: models.ConfluentSink) -> Partitioner:
    if isinstance(settings, models.ConfluentFieldSink):
        return FieldPartitioner(settings.partition_field_name, get_field)
    return NumberPartitioner()


def _require_registry(config: ConnectorConfig, converter: Settings, world: World) -> None:
    """Raise ConnectorError if the Avro converter does not use the environment's registry."""
    registry, url = f"the registry of {world.file}", world.registry.url.rstrip("/")
    kind, key, valid = "apicurio", "value.converter.apicurio.registry.url", [url + REGISTRY_V2, url]
    if isinstance(converter, models.GlueConverter):
        kind, key = "glue", "value.converter.registry.name"
    if kind != world.registry.kind:
        raise config.error(
            "value.converter", f"{world.registry.kind}, the converter for {registry}"
        )
    if kind == "glue":
        valid = [glue_registries(world)["value"]]
    else:
        valid += [f"{address}/" for address in valid]
    if config.values.get(key) not in valid:
        raise config.error(key, f"{registry}: {valid[0]}")


def _lenses_sink(config: ConnectorConfig, settings: models.LensesSink) -> Sink:
    """Read the JSON of Lenses' sink; a missing clause has the sink's default.

    The statement `INSERT INTO bucket:prefix SELECT * FROM topic [PARTITIONBY a,b] [STOREAS `json`]
    [WITH_FLUSH_… = n]…` writes files `<prefix>/a=1/b=x/…json`.
    """
    converter = config.parse_plugin(
        "value.converter", models.LENSES_CONVERTERS, "value.converter.", models.DEFAULT_CONVERTER
    )
    first, *parts = KCQL_CLAUSE.split(settings.connect_s3_kcql.strip().rstrip(";"))
    names = [" ".join(name.upper().split()) for name in parts[::2]]
    if first or len({*names}) < len(names):
        raise config.error(
            "connect.s3.kcql",
            "one statement, INSERT INTO bucket:prefix SELECT * FROM topic "
            "PARTITIONBY a,b STOREAS `json` WITH_FLUSH_INTERVAL = 60 WITH_FLUSH_COUNT = 50",
        )
    clauses = dict(zip(names, (text.strip().strip("`") for text in parts[1::2])))
    statement = ConnectorConfig(clauses, config.location, "KCQL: ")
    kcql = statement.parse(models.Kcql, "the sink")
    if settings.topics != kcql.from_:
        raise config.error("topics", f"{kcql.from_}, which the KCQL reads")
    prefix = kcql.insert_into.partition(":")[2].rstrip("/")
    if not is_safe_relative_path(prefix):
        raise statement.error(
            "INSERT INTO", "bucket:prefix, a prefix below the landing: no part of it empty, . or .."
        )
    return Sink(
        kcql.store_as.lower(),
        prefix,
        kcql.flush_count,
        re.escape(kcql.from_),
        (kcql.from_,),
        FieldPartitioner(kcql.partition_by),
        converter.schemas_enable,
        transforms=transforms.parse(config),
    )
