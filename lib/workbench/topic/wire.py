"""How a message says which schema it was written with: a serializer puts the schema's id before the bytes of the
message, or into a header of it. The formats, as their documentation has them (Apicurio: "Configuring Kafka
serializers/deserializers"; Confluent: "Wire format"):

  apicurio          magic byte 0, content id in 4 bytes: what Apicurio 3 writes by default
  apicurio_legacy8  magic byte 0, global id in 8 bytes: what Apicurio 2 writes with headers.enabled=false
  confluent         magic byte 0, schema id in 4 bytes, looked up at the API that speaks Confluent's language (ccompat)
  headers           the message is Avro from its first byte, the id in 8 bytes of the header apicurio.value.globalId or
                    apicurio.value.contentId: what Apicurio 2 writes by default (seen with 2.6.13: its SerdeConfig has
                    ENABLE_HEADERS_DEFAULT true); known by itself, whatever `registry.wire` says

Nothing in the bytes tells the first three apart, so the world says which one it is: `registry.wire`.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ..base.params import World

GLOBAL, CONTENT, CCOMPAT = "globalId", "contentId", "ccompat"
HEADERS = {"apicurio.value.globalId": GLOBAL, "apicurio.value.contentId": CONTENT}  # the first one counts
MESSAGES = ("key binary, value binary, headers array<struct<key: string, value: binary>>, topic string, "
            "partition int, offset long, file string")


# of each wire format how many bytes of id follow the magic byte, and what kind of id they are
WIRES = {"apicurio": (4, CONTENT), "apicurio_legacy8": (8, GLOBAL), "confluent": (4, CCOMPAT)}


@dataclass(frozen=True)
class Framed:
    """A message taken apart: the format's name, the kind and number of its schema id, the Avro after it."""

    wire: str
    kind: str
    id: int
    body: bytes

    @property
    def schema(self) -> str:
        """The id as the ingest names it, such as `globalId 7`."""
        return f"{self.kind} {self.id}"


def framed(world: World, value: bytes, headers: Optional[Sequence[tuple]] = None) -> Optional[Framed]:
    """Take a message's value apart; None where it is not in the world's wire format."""
    named = {k: bytes(v) for k, v in reversed(list(headers or ())) if v is not None}
    for header, kind in HEADERS.items():
        if header in named:
            return Framed("headers", kind, int.from_bytes(named[header], "big"), value)
    size, kind = WIRES[world.registry.wire]
    if len(value) <= size or value[0] != 0:
        return None
    return Framed(world.registry.wire, kind, int.from_bytes(value[1:size + 1], "big"), value[size + 1:])


def framed_in_spark(messages: DataFrame, world: World) -> DataFrame:
    """Add to messages (see MESSAGES) what `framed` finds: `schema` and `body`; both null where it finds none."""
    size, kind = WIRES[world.registry.wire]
    plain = F.expr(f"length(value) > {size} AND substring(value, 1, 1) = X'00'")
    schema = F.when(plain, F.concat(F.lit(kind + " "), F.expr(f"conv(hex(substring(value, 2, {size})), 16, 10)")))
    body = F.when(plain, F.expr(f"substring(value, {size + 2})"))
    for header, kind in reversed(list(HEADERS.items())):
        id = F.expr(f"try_element_at(filter(headers, h -> h.key = '{header}' AND h.value IS NOT NULL), 1).value")
        schema = F.when(id.isNotNull(), F.concat(F.lit(kind + " "), F.conv(F.hex(id), 16, 10))).otherwise(schema)
        body = F.when(id.isNotNull(), F.col("value")).otherwise(body)
    return messages.withColumn("schema", schema).withColumn("body", body)


def not_avro(world: World) -> str:
    """Why a message that is not in the world's wire format is a dead letter."""
    wire = world.registry.wire
    return f"not Avro as {wire} has it: 00, {WIRES[wire][0]} bytes of schema id"


def unknown(world: World) -> str:
    """Why a message of a schema that the registry does not know is a dead letter; {} stands for the id."""
    return f"schema {{}} is not in the registry (registry.wire is {world.registry.wire})"
