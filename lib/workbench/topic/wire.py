"""Messages in a wire format of the registry, taken apart inside Spark: which schema, and the Avro after it."""
from __future__ import annotations

from typing import TYPE_CHECKING

from . import registry

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ..base.params import World

MESSAGES = ("key binary, value binary, headers array<struct<key: string, value: binary>>, topic string, "
            "partition int, offset long, file string")


def framed(messages: DataFrame, world: World) -> DataFrame:
    """Add to messages (see MESSAGES) what registry.framed finds: `schema` and `body`; both null where it finds none."""
    from pyspark.sql import functions as F

    wire = registry.WIRES[world.registry.wire]
    plain = F.expr(f"length(value) > {wire.size} AND substring(value, 1, 1) = X'00'")
    number = F.expr(f"conv(hex(substring(value, 2, {wire.size})), 16, 10)")
    schema = F.when(plain, F.concat(F.lit(wire.kind + " "), number))
    body = F.when(plain, F.expr(f"substring(value, {wire.size + 2})"))
    for header, kind in reversed(list(registry.HEADERS.items())):
        id = F.expr(f"try_element_at(filter(headers, h -> h.key = '{header}' AND h.value IS NOT NULL), 1).value")
        schema = F.when(id.isNotNull(), F.concat(F.lit(kind + " "), F.conv(F.hex(id), 16, 10))).otherwise(schema)
        body = F.when(id.isNotNull(), F.col("value")).otherwise(body)
    return messages.withColumn("schema", schema).withColumn("body", body)



def not_avro(world: World) -> str:
    """Why a message that is not in the world's wire format is a dead letter."""
    wire = world.registry.wire
    return f"not Avro as {wire} has it: 00, {registry.WIRES[wire].size} bytes of schema id"



def unknown(world: World) -> str:
    """Why a message of a schema that the registry does not know is a dead letter; {} stands for the id."""
    return f"schema {{}} is not in the registry (registry.wire is {world.registry.wire})"
