"""How a message says which schema it was written with: a serializer puts the schema's id before the
bytes of the message. The formats, as their documentation has them (Apicurio: "Configuring Kafka
serializers/deserializers";
Confluent: "Wire format"; Glue: its library's SerializationDataEncoder, for AWS describes it
    nowhere):

  apicurio          magic byte 0, content id in 4 bytes: what Apicurio 3 writes by default
  apicurio_legacy8  magic byte 0, global id in 8 bytes: what Apicurio 2 writes with
  headers.enabled=false confluent         magic byte 0, schema id in 4 bytes, looked up at the API
  that speaks Confluent's language (ccompat) glue              version byte 3, compression byte 0,
  the UUID of a schema version in 16 bytes. (With compression byte
                    5 what follows is compressed by zlib, which Spark's SQL cannot undo: `not_avro`
                    says what to set.)

Nothing in the bytes tells the first three apart, so the world says which one it is:
`registry.wire`. (What Apicurio 2 writes by default, seen with 2.6.13, is none of them: the id goes
into a header of the message. No reader here looks there; a message without the magic byte is not
Avro for any of them.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Optional, Union
from uuid import UUID

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ..base import World

# kinds of id: of one version of an artifact (Glue: SchemaVersionId), of a text whoever uses it, of
# Confluent's API
GLOBAL_ID, CONTENT_ID, CCOMPAT = ID_KINDS = ("globalId", "contentId", "ccompat")
MESSAGE_COLUMNS = "key binary, value binary, topic string, partition int, offset long, file string"
GLUE_ZLIB_PREFIX = b"\3\5"  # a compressed message of Glue begins so


class WireFormat(NamedTuple):
    """A wire format: what a message begins with, how many bytes of id follow, and what kind of id
    they are.
    """

    magic: bytes
    id_size: int
    id_kind: str

    def __str__(self) -> str:
        return f"{self.magic.hex(' ')}, {self.id_size} bytes of schema id"


WIRE_FORMATS = {
    "apicurio": WireFormat(b"\0", 4, CONTENT_ID),
    "apicurio_legacy8": WireFormat(b"\0", 8, GLOBAL_ID),
    "confluent": WireFormat(b"\0", 4, CCOMPAT),
    "glue": WireFormat(b"\3\0", 16, GLOBAL_ID),
}


@dataclass(frozen=True)
class WireMessage:
    """A message taken apart: the format's name, the kind and number of its schema id (of Glue the
    UUID's text), the Avro after it.
    """

    wire: str
    id_kind: str
    schema_id: Union[int, str]
    body: bytes

    @property
    def schema(self) -> str:
        """The id as the ingest names it, such as `globalId 7`."""
        return f"{self.id_kind} {self.schema_id}"


def parse_wire_format(world: World, value: bytes) -> Optional[WireMessage]:
    """Take a message's value apart; None where it is not in the world's wire format."""
    magic, size, kind = WIRE_FORMATS[world.registry.wire]
    end = len(magic) + size
    if len(value) < end or not value.startswith(magic):
        return None
    id, body = value[len(magic) : end], value[end:]
    return WireMessage(
        world.registry.wire,
        kind,
        str(UUID(bytes=id)) if size == 16 else int.from_bytes(id, "big"),
        body,
    )


def with_wire_columns(messages: DataFrame, world: World) -> DataFrame:
    """Add to messages (see MESSAGES) what `framed` finds: `schema` and `body`; both null where it
    finds none.
    """
    magic, size, kind = WIRE_FORMATS[world.registry.wire]
    at, end = len(magic) + 1, len(magic) + size
    found = F.expr(
        f"length(value) >= {end} AND substring(value, 1, {len(magic)}) = X'{magic.hex()}'"
    )
    number = f"hex(substring(value, {at}, {size}))"
    number = (
        f"lower(regexp_replace({number}, '^(.{{8}})(.{{4}})(.{{4}})(.{{4}})', '$1-$2-$3-$4-'))"
        if size == 16
        else f"conv({number}, 16, 10)"
    )
    return messages.withColumns(
        {
            "schema": F.when(found, F.concat(F.lit(kind + " "), F.expr(number))),
            "body": F.when(found, F.expr(f"substring(value, {end + 1})")),
        }
    )


def not_avro_reason(world: World) -> str:
    """Why a message that is not in the world's wire format is a dead letter."""
    name = world.registry.wire
    compressed = (
        f" (one that begins with {GLUE_ZLIB_PREFIX.hex(' ')} is compressed, which Spark cannot undo: have it written "
        "without value.converter.compression)"
    )
    return f"not Avro as {name} has it: {WIRE_FORMATS[name]}" + (
        compressed if name == "glue" else ""
    )


def unknown_schema_reason(world: World) -> str:
    """Why a message of a schema that the registry does not know is a dead letter; {} stands for the
    id.
    """
    return f"schema {{}} is not in the registry (registry.wire is {world.registry.wire})"
