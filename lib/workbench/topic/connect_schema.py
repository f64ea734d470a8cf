"""Kafka Connect's schemas, as its JsonConverter writes them.

A schema is {"type": "struct", "fields": [{"field": …, "type": …, …}, …], "optional": …, "name": …}.
The name may be that of a logical type, such as those below.

The conversions from and to Avro follow AvroData of the Avro converters.
"""

from __future__ import annotations

import re
from typing import Any

import fastavro

from ..base import LakeError
from .avro import MAX_DIGITS, TYPE_MAPPINGS

LOGICAL_PREFIX = "org.apache.kafka.connect.data."
DECIMAL = LOGICAL_PREFIX + "Decimal"
DATE = LOGICAL_PREFIX + "Date"
TIMESTAMP = LOGICAL_PREFIX + "Timestamp"
# the parameter with a Decimal's precision; Avro converters write it if they know the precision
PRECISION_PARAMETER = "connect.decimal.precision"
CONNECT_TYPES, LOGICAL_NAMES = TYPE_MAPPINGS["connect"], TYPE_MAPPINGS["connect names"]
AVRO_TYPES, AVRO_LOGICAL_TYPES = TYPE_MAPPINGS["avro"], TYPE_MAPPINGS["avro logical"]


def from_avro(avsc: Any) -> dict[str, Any]:
    """Return the Connect schema of values that are encoded with an Avro schema.

    Args:
        avsc: the Avro schema, one that `avro.create_reader` accepts.

    Raises:
        ValueError: the schema is recursive, or has a union of several types or an unknown type.
    """
    # expand_schema replaces each reference to a named type by its definition
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
        name = avsc.get("connect.name", avsc["name"])
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


def to_avro(schema: dict[str, Any], path: str = "Value") -> Any:
    """Return an Avro schema with the types of a Connect schema, for values in JSON.

    It differs from the one of Confluent's AvroConverter: records are named by their paths, and
    neither defaults nor versions are kept. Debezium's types (io.debezium.time.Date, …) have no
    logical type: the values stay numbers and texts, with their name in `connect.name`.

    Args:
        schema: Connect's schema.
        path: where it stands in the message's schema, for error messages.

    Raises:
        LakeError: Avro has no such type or field name.
    """
    kind, name = schema.get("type"), schema.get("name")
    avsc: dict[str, Any] = {"type": AVRO_TYPES.get(kind)}
    if kind == "struct":
        avsc["name"] = path
        avsc["fields"] = [
            {"name": field["field"], "type": to_avro(field, f"{path}.{field['field']}")}
            for field in schema["fields"]
        ]
    elif kind == "array":
        avsc["items"] = to_avro(schema["items"], f"{path}.items")
    elif kind == "map" and schema["keys"].get("type") == "string":
        avsc.update(type=kind, values=to_avro(schema["values"], f"{path}.values"))
    if not avsc["type"] or not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", path, re.ASCII):
        raise LakeError(
            f"Avro has no such name, or no type for Connect type {kind!r}",
            location=path,
            expected=f"{', '.join(AVRO_TYPES)}, map with text keys; a name of letters, digits and _",
            hint="Debezium: field.name.adjustment.mode=avro",
        )
    if name:
        avsc.update({"connect.name": name, "logicalType": AVRO_LOGICAL_TYPES.get(name)})
    if name == DECIMAL:
        parameters = schema["parameters"]
        avsc["scale"] = int(parameters["scale"])
        avsc["precision"] = int(parameters.get(PRECISION_PARAMETER, MAX_DIGITS))
    return ["null", avsc] if schema.get("optional") else avsc
