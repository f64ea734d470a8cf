"""How a message says which schema it was written with: a serializer puts the schema's id before the bytes of the
message. The formats, as their documentation has them (Apicurio: "Configuring Kafka serializers/deserializers";
Confluent: "Wire format"):

  apicurio          magic byte 0, content id in 4 bytes: what Apicurio 3 writes by default
  apicurio_legacy8  magic byte 0, global id in 8 bytes: what Apicurio 2 writes with headers.enabled=false
  confluent         magic byte 0, schema id in 4 bytes, looked up at the API that speaks Confluent's language (ccompat)

Nothing in the bytes tells them apart, so the world says which one it is: `registry.wire`. (What Apicurio 2 writes by
default, seen with 2.6.13, is none of them: the id goes into a header of the message. No reader here looks there; a
message without the magic byte is not Avro for any of them.)
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ..base import World

GLOBAL, CONTENT, CCOMPAT = "globalId", "contentId", "ccompat"
MESSAGES = "key binary, value binary, topic string, partition int, offset long, file string"
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


def framed(world: World, value: bytes) -> Optional[Framed]:
    """Take a message's value apart; None where it is not in the world's wire format."""
    size, kind = WIRES[world.registry.wire]
    if len(value) <= size or value[0] != 0:
        return None
    return Framed(world.registry.wire, kind, int.from_bytes(value[1:size + 1], "big"), value[size + 1:])


def framed_in_spark(messages: DataFrame, world: World) -> DataFrame:
    """Add to messages (see MESSAGES) what `framed` finds: `schema` and `body`; both null where it finds none."""
    size, kind = WIRES[world.registry.wire]
    found = F.expr(f"length(value) > {size} AND substring(value, 1, 1) = X'00'")
    number = F.expr(f"conv(hex(substring(value, 2, {size})), 16, 10)")
    return messages.withColumns({"schema": F.when(found, F.concat(F.lit(kind + " "), number)),
                                 "body": F.when(found, F.expr(f"substring(value, {size + 2})"))})


def not_avro(world: World) -> str:
    """Why a message that is not in the world's wire format is a dead letter."""
    wire = world.registry.wire
    return f"not Avro as {wire} has it: 00, {WIRES[wire][0]} bytes of schema id"


def unknown(world: World) -> str:
    """Why a message of a schema that the registry does not know is a dead letter; {} stands for the id."""
    return f"schema {{}} is not in the registry (registry.wire is {world.registry.wire})"
