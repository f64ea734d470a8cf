"""The models of the supported settings, one for each connector and its value converter, and for each transform.

They have the defaults that the plugin documents. .ci/list_settings.py generates docs/settings.md from these
models. A setting that a model does not have is rejected by name.
"""

import re
from typing import Annotated, ClassVar, Literal, Optional, Union

from pydantic import Field

from ..base.registries import AVRO_CONVERTER
from .settings import Boolean, Ignored, Integer, List, PositiveInteger, Settings, Text

JSON_CONVERTER = "org.apache.kafka.connect.json.JsonConverter"  # the default of the embedded worker
GLUE_CONVERTER = "com.amazonaws.services.schemaregistry.kafkaconnect.AWSKafkaAvroConverter"


class ConnectorSettings(Settings):
    """The settings that all connectors have."""

    name: str = ""
    connector_class: str
    value_converter: str = JSON_CONVERTER
    transforms: str = ""
    tasks_max: Ignored
    """a run is one process"""
    SECTIONS: ClassVar[tuple[str, ...]] = ("transforms.",)


# --- sinks


class SinkSettings(ConnectorSettings):
    """The settings that both sinks have. Keys are not stored, so the settings of their converter have no effect."""

    key_converter: Ignored
    """a sink does not store keys"""
    # Dead letters never stop a landing (docs/differences.md). The setting decides whether a topic gets
    # them.
    errors_tolerance: Literal["none", "all"] = "none"
    errors_log_enable: Ignored
    """rejected messages are always reported"""
    errors_deadletterqueue_topic_name: str = ""
    errors_deadletterqueue_topic_replication_factor: Ignored
    """the broker's default is used"""
    # Connect's default is false. But a dead letter without the position of its message cannot be
    # replayed.
    errors_deadletterqueue_context_headers_enable: Literal["true"] = "true"
    # producer.override.* are settings of the producer of dead letters
    SECTIONS = (*ConnectorSettings.SECTIONS, "key.converter.", "producer.override.")
    REJECTED = {
        "table.name.format": "table.name.format belongs to the JDBC sink. The published walkthrough has "
        "it here, where Connect ignores it"
    }


class LensesSink(SinkSettings):
    """The S3 sink of Lenses (Stream Reactor)."""

    value_converter_schemas_enable: Boolean = True
    topics: Text
    """the topic that the KCQL reads"""
    connect_s3_kcql: str
    """INSERT INTO bucket:prefix SELECT * FROM topic [PARTITIONBY a,b] [STOREAS `json`] [WITH_FLUSH_COUNT = 50]"""
    aws_region: Ignored
    """the environment defines the location of the lake"""
    aws_custom_endpoint: Ignored
    """the environment defines the location of the lake"""
    REJECTED = {
        **SinkSettings.REJECTED,
        "schema.enable": "no Connect worker knows schema.enable: value.converter.schemas.enable was meant. "
        "The published walkthrough has this mistake: Connect ignores the setting and removes the "
        "envelope all the same",
    }


class ConfluentSink(SinkSettings):
    """The S3 sink of Confluent, with any converter."""

    topics: List[Annotated[str, Field(pattern=r"^(\.*[A-Za-z0-9_-][A-Za-z0-9._-]*|\.{3,})$")]] = ()
    """the names of topics"""
    topics_regex: re.Pattern[str] = re.compile("")
    """a regular expression"""
    topics_dir: str = Field("topics", pattern=r"^[\w+-][\w.+-]*(/[\w+-][\w.+-]*)*$")
    """a folder such as topics"""
    flush_size: PositiveInteger
    storage_class: Literal["io.confluent.connect.s3.storage.S3Storage"]
    format_class: Literal[
        "io.confluent.connect.s3.format.json.JsonFormat",
        "io.confluent.connect.s3.format.avro.AvroFormat",
        "io.confluent.connect.s3.format.parquet.ParquetFormat",
    ]
    parquet_codec: Literal["none", "snappy", "gzip", "zstd"] = "snappy"
    partitioner_class: Literal[
        "io.confluent.connect.storage.partitioner.DefaultPartitioner",
        "io.confluent.connect.storage.partitioner.FieldPartitioner",
    ] = "io.confluent.connect.storage.partitioner.DefaultPartitioner"
    partition_field_name: List[Annotated[str, Field(pattern=r"^[^/.\x00-\x1f\x7f]+$")]] = ()
    """the names of fields of the record, without / and ."""
    schema_compatibility: Literal["NONE"] = "NONE"
    # With true, these would write further files with the keys and the headers.
    store_kafka_keys: Literal["false"] = "false"
    store_kafka_headers: Literal["false"] = "false"
    behavior_on_null_values: Literal["fail", "ignore"] = "fail"
    s3_region: Ignored
    """the environment defines the location of the lake"""
    s3_bucket_name: Ignored
    """the environment defines the location of the lake"""
    s3_part_size: Ignored
    """the size of the parts of an upload"""
    rotate_schedule_interval_ms: Ignored
    """by the wall clock; a run is one flush and does not wait"""
    schema_generator_class: Ignored
    """for Hive"""
    timezone: Ignored
    """for folders by time, which are not supported"""


class ConfluentJsonSink(ConfluentSink):
    """The S3 sink of Confluent, for JSON."""

    value_converter_schemas_enable: Boolean = True


class ConfluentApicurioSink(ConfluentSink):
    """The S3 sink of Confluent, for Avro with the schemas of Apicurio Registry."""

    value_converter_apicurio_registry_url: str = ""
    # Schema ids are read from values, not from headers (topic/wire.py).
    value_converter_apicurio_registry_headers_enabled: Literal["false"] = "false"
    auto_register: Ignored = Field("", alias="value.converter.apicurio.registry.auto-register")
    """for a producer"""
    find_latest: Ignored = Field("", alias="value.converter.apicurio.registry.find-latest")
    """for a producer"""


class ConfluentGlueSink(ConfluentSink):
    """The S3 sink of Confluent, for Avro with the schemas of AWS Glue Schema Registry."""

    value_converter_registry_name: str = "default-registry"
    value_converter_region: Ignored
    """the environment defines the region"""
    value_converter_avroRecordType: Ignored
    """a class of Java's"""
    value_converter_schemaAutoRegistrationEnabled: Ignored
    """for a producer"""
    value_converter_schemaNameGenerationClass: Ignored
    """for a producer"""
    value_converter_compatibility: Ignored
    """for a producer"""


LENSES = "io.lenses.streamreactor.connect.aws.s3.sink.S3SinkConnector"
CONFLUENT = "io.confluent.connect.s3.S3SinkConnector"
# {class of the connector: {class of the value converter: model}}
SINKS: dict[str, dict[str, type[Union[LensesSink, ConfluentSink]]]] = {
    LENSES: {JSON_CONVERTER: LensesSink},
    CONFLUENT: {
        JSON_CONVERTER: ConfluentJsonSink,
        AVRO_CONVERTER: ConfluentApicurioSink,
        GLUE_CONVERTER: ConfluentGlueSink,
    },
}

# --- sources


class JdbcSource(ConnectorSettings):
    """The JDBC source of Confluent, for PostgreSQL. It writes JSON with a schema."""

    key_converter: Literal["org.apache.kafka.connect.json.JsonConverter"] = (
        "org.apache.kafka.connect.json.JsonConverter"
    )
    key_converter_schemas_enable: Literal["true"] = "true"
    value_converter_schemas_enable: Literal["true"] = "true"
    value_converter_decimal_format: Literal["BASE64", "NUMERIC"] = "BASE64"
    connection_url: Text
    """jdbc:postgresql://<host>:<port>/<database>"""
    connection_user: Text
    """the user who reads the database for connectors"""
    connection_password: Text
    """a reference that the Connect worker resolves"""
    topic_prefix: str = Field(pattern="^[A-Za-z0-9_.-]+$")
    """the prefix of a topic's name; for a query the whole name"""
    mode: Literal["timestamp"]
    timestamp_column_name: str = Field(pattern="^[^,]+$")
    """the name of one column"""
    table_whitelist: List[str] = ()
    query: str = ""
    schema_pattern: str = "public"
    batch_max_rows: PositiveInteger = 100
    timestamp_delay_interval_ms: Integer = Field(0, ge=0)
    """a whole number from 0"""
    numeric_mapping: Literal["none", "best_fit"] = "none"
    validate_non_null: Boolean = True
    poll_interval_ms: Ignored
    """the caller decides when the next poll starts"""
    REJECTED = {
        "catalog.pattern": "schema.pattern: a catalog of PostgreSQL is a database, and the driver ignores "
        "it. The published walkthrough has a schema here"
    }


JDBC = "io.confluent.connect.jdbc.JdbcSourceConnector"
SOURCES = {JDBC: {JSON_CONVERTER: JdbcSource}}

# --- transforms
# Kafka's transforms have further settings: partition.field, offset.field and timestamp.field, which a
# source does not have; include and exclude; replace.null.with.default, which is true here as by default;
# paths into nested structs.


class TransformSettings(Settings):
    """The settings that all transforms have."""

    type: str


class ValueToKey(TransformSettings):
    """Replaces the key by a struct of fields of the value."""

    fields: List[str] = Field(min_length=1)
    """the name of a field"""


class ExtractField(TransformSettings):
    """Replaces the key by one of its fields."""

    field: Text
    """the name of a field"""


class ReplaceField(TransformSettings):
    """Renames fields of the value."""

    renames: List[Annotated[str, Field(pattern="^[^:]+:[^:]+$")]] = Field(min_length=1)
    """old:new,other:new2"""


class InsertField(TransformSettings):
    """Adds the name of the topic, or a text, to the value."""

    topic_field: str = Field("", pattern="^(.*[^!?])?$")
    """the name of a field, with no ! or ? after it"""
    static_field: str = Field("", pattern="^(.*[^!?])?$")
    """the name of a field, with no ! or ? after it"""
    static_value: Optional[str] = None


Transform = Union[ValueToKey, ExtractField, ReplaceField, InsertField]
TRANSFORM_PACKAGE = "org.apache.kafka.connect.transforms."
TRANSFORMS: dict[str, type[Transform]] = {
    f"{TRANSFORM_PACKAGE}ValueToKey": ValueToKey,
    f"{TRANSFORM_PACKAGE}ExtractField$Key": ExtractField,
    f"{TRANSFORM_PACKAGE}ReplaceField$Value": ReplaceField,
    f"{TRANSFORM_PACKAGE}InsertField$Value": InsertField,
}
