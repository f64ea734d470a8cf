"""Wire formats: how a message names its schema.

A serializer writes the id of the schema before the Avro data. The formats (documented in Apicurio,
"Configuring Kafka serializers/deserializers", and Confluent, "Wire format"; for Glue only in the
source code of SerializationDataEncoder):

    apicurio_legacy8  magic byte 0, global id in 8 bytes: Apicurio 2 with headers.enabled=false
    glue              version byte 3, compression byte 0, UUID of a schema version in 16 bytes.
                      If the compression byte is 5, the rest is compressed by zlib. Spark SQL cannot
                      decompress it; `not_avro_reason` names the setting to change.

The environment names the format (`registry.wire`). A message without the magic bytes is rejected as not
Avro. (By default Apicurio 2, tested with 2.6.13, writes the id into a header instead. No consumer here reads
that header.)
"""

from __future__ import annotations

from typing import NamedTuple, Optional, Union
from uuid import UUID

from pyspark.sql import DataFrame

from ..base import World

ID_KIND = "globalId"  # the id of a version of an artifact (Glue: SchemaVersionId)
MESSAGE_COLUMNS = "key binary, value binary, topic string, partition int, offset long, file string"
UUID_BYTES = 16
GLUE_ZLIB_PREFIX = b"\3\5"  # a compressed message of Glue starts with these bytes
SchemaId = Union[int, str]  # a number; for Glue the UUID of a schema version


class WireFormat(NamedTuple):
    """A wire format: the first bytes of a message, and the size of the schema id."""

    magic: bytes
    id_size: int

    def __str__(self) -> str:
        """Return the format for an error message."""
        return f"{self.magic.hex(' ')}, {self.id_size} bytes of schema id"


WIRE_FORMATS = {
    "apicurio_legacy8": WireFormat(b"\0", 8),
    "glue": WireFormat(b"\3\0", UUID_BYTES),
}


class WireMessage(NamedTuple):
    """The parts of a message.

    Attributes:
        schema_id: a number; for Glue the UUID as text.
        body: the Avro data after the schema id.
    """

    schema_id: SchemaId
    body: bytes

    @property
    def schema(self) -> str:
        """The schema id for people and for a DataFrame, such as `globalId 7`."""
        return f"{ID_KIND} {self.schema_id}"


def prefix_size(world: World) -> int:
    """Return the number of bytes before the Avro data of a message: magic bytes and schema id."""
    magic, size = WIRE_FORMATS[world.registry.wire]
    return len(magic) + size


def parse_wire_format(world: World, value: bytes) -> Optional[WireMessage]:
    """Return the parts of a message's value, None if it is not in the wire format."""
    magic, size = WIRE_FORMATS[world.registry.wire]
    end = prefix_size(world)
    if len(value) < end or not value.startswith(magic):
        return None
    raw = value[len(magic) : end]
    schema_id = str(UUID(bytes=raw)) if size == UUID_BYTES else int.from_bytes(raw, "big")
    return WireMessage(schema_id, value[end:])


def with_wire_columns(messages: DataFrame, world: World) -> DataFrame:
    """Add the schema id and the body of `parse_wire_format` to a Spark DataFrame of messages.

    Args:
        messages: the messages, with the columns of MESSAGE_COLUMNS.
        world: the environment profile.

    Returns:
        The messages with two more columns, `schema` (such as `globalId 7`) and `body` (bytes). Both
        are null if the value is not in the wire format.
    """
    magic, size = WIRE_FORMATS[world.registry.wire]
    start, end = len(magic) + 1, len(magic) + size
    schema_id = f"hex(substring(value, {start}, {size}))"
    if size == UUID_BYTES:
        groups = "^(.{8})(.{4})(.{4})(.{4})"
        schema_id = f"lower(regexp_replace({schema_id}, '{groups}', '$1-$2-$3-$4-'))"
    else:
        schema_id = f"conv({schema_id}, 16, 10)"
    matches = f"length(value) >= {end} AND startswith(value, X'{magic.hex()}')"
    # not withColumns: Spark Connect would analyze the query for this step
    return messages.selectExpr(
        "*",
        f"IF({matches}, concat('{ID_KIND} ', {schema_id}), NULL) AS schema",
        f"IF({matches}, substring(value, {end + 1}), NULL) AS body",
    )


def not_avro_reason(world: World) -> str:
    """Return why a message that is not in the wire format is a dead letter."""
    name = world.registry.wire
    reason = f"not Avro in wire format {name}: {WIRE_FORMATS[name]}"
    if name == "glue":
        reason += (
            f" (a message that starts with {GLUE_ZLIB_PREFIX.hex(' ')} is compressed, and Spark cannot "
            "decompress it: remove value.converter.compression from its producer)"
        )
    return reason


def unknown_schema_reason(world: World) -> str:
    """Return why a message with an unknown schema is a dead letter, with {} for the schema id."""
    return f"schema {{}} is not in the registry (registry.wire is {world.registry.wire})"
