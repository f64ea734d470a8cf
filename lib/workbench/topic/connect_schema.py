"""Kafka Connect's schemas, as its JsonConverter writes them.

A schema is {"type": "struct", "fields": [{"field": …, "type": …, …}, …], "optional": …, "name": …}.
A name may give a type another meaning, such as the logical types below.

The conversion from Avro is that of the AvroConverters (AvroData.toConnectSchema). This module is
pickled by value into Spark tasks.
"""

from __future__ import annotations

from typing import Any

from .avro import TYPE_MAPPINGS

LOGICAL_PREFIX = "org.apache.kafka.connect.data."
DECIMAL = LOGICAL_PREFIX + "Decimal"
DATE = LOGICAL_PREFIX + "Date"
TIMESTAMP = LOGICAL_PREFIX + "Timestamp"
# the parameter with a Decimal's precision, which AvroConverters write where they know it
PRECISION_PARAMETER = "connect.decimal.precision"
CONNECT_TYPES, LOGICAL_NAMES = TYPE_MAPPINGS["connect"], TYPE_MAPPINGS["connect names"]


def from_avro(avsc: Any) -> dict[str, Any]:
    """Return Connect's schema of the values that are written with an Avro schema.

    Args:
        avsc: the Avro schema, one that `avro.create_reader` accepts.

    Raises:
        ValueError: the schema has a union of several types, or a record within itself. Neither is
            converted.
    """
    import fastavro

    # expanded: the definition replaces a repeated name
    return _connect_type(fastavro.schema.expand_schema(avsc), "the record")


def _connect_type(avsc: Any, path: str) -> dict[str, Any]:
    if isinstance(avsc, list):
        branches = [branch for branch in avsc if branch != "null"]
        if len(branches) != 1:
            raise ValueError(f"{path} is a union of {len(branches)} types")
        return {**_connect_type(branches[0], path), "optional": "null" in avsc}
    if not isinstance(avsc, dict):
        avsc = {"type": avsc}
    kind, logical = avsc["type"], avsc.get("logicalType")
    name = avsc.get("connect.name") or LOGICAL_NAMES.get(f"{kind} {logical}")
    schema = {"type": avsc.get("connect.type") or CONNECT_TYPES.get(kind), "optional": False}
    if kind == "record":
        fields = [
            {**_connect_type(f["type"], f"{path}.{f['name']}"), "field": f["name"]}
            for f in avsc["fields"]
        ]
        schema.update(type="struct", fields=fields)
        name = name or avsc["name"]
    elif kind == "array":
        schema.update(type="array", items=_connect_type(avsc["items"], f"{path}[]"))
    elif kind not in CONNECT_TYPES:
        raise ValueError(f"{path} is of Avro's type {kind}")
    if name == DECIMAL and logical == "decimal":
        precision = str(avsc["precision"])
        schema["parameters"] = {"scale": str(avsc.get("scale", 0)), PRECISION_PARAMETER: precision}
    if name:
        schema["name"] = name
    return schema
