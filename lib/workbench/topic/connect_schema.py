"""Kafka Connect's schemas, as its JsonConverter writes them: the one model of the schema of a message.

A schema is {"type": "struct", "fields": [{"field": …, "type": …, …}, …], "optional": …, "name": …}.
The name may be that of a logical type, such as those below.

The conversion of Avro follows AvroData of the Avro converters.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import fastavro
from pyspark.sql import types as T

from ..base import LakeError, yaml_files

TYPE_MAPPINGS = yaml_files.load(Path(__file__).with_suffix(".yaml"))
LOGICAL_PREFIX = "org.apache.kafka.connect.data."
DECIMAL = LOGICAL_PREFIX + "Decimal"
DATE = LOGICAL_PREFIX + "Date"
TIMESTAMP = LOGICAL_PREFIX + "Timestamp"
# the parameter with a Decimal's precision; Avro converters write it if they know the precision
PRECISION_PARAMETER = "connect.decimal.precision"
MAX_DIGITS = 38  # digits of Spark's decimal
CONNECT_TYPES, LOGICAL_NAMES = TYPE_MAPPINGS["connect"], TYPE_MAPPINGS["connect names"]
# {name of a type: (Connect's type, Avro's logical type, Spark's type)}
TIMES: dict[str, tuple[str, str, str]] = TYPE_MAPPINGS["times"]
SPARK_TYPES: dict[str, str] = TYPE_MAPPINGS["spark"]


def from_avro(avsc: Any) -> dict[str, Any]:
    """Return the Connect schema of values that are encoded with an Avro schema.

    Raises:
        LakeError: it is no Avro schema; it is recursive, or has a union of several types.
    """
    try:
        # expand_schema replaces each reference to a named type by its definition
        return _connect_type(fastavro.schema.expand_schema(avsc), "the record")
    except LakeError:
        raise
    except Exception as e:  # noqa: BLE001 - fastavro raises errors of many classes
        raise LakeError(f"not an Avro schema: {type(e).__name__}: {e}") from None


def _connect_type(avsc: Any, path: str) -> dict[str, Any]:
    if isinstance(avsc, list):
        types = [branch for branch in avsc if branch != "null"]
        if len(types) != 1:
            raise LakeError(f"{path} is a union of {len(types)} types")
        return {**_connect_type(types[0], path), "optional": "null" in avsc}
    if not isinstance(avsc, dict):
        avsc = {"type": avsc}
    kind = avsc["type"]
    if not isinstance(kind, str):  # a type within a type
        return _connect_type(kind, path)
    if kind not in CONNECT_TYPES:
        raise LakeError(f"{path} is of Avro's type {kind}")
    schema = {"type": CONNECT_TYPES[kind], "optional": False}
    logical = avsc.get("logicalType")
    name = LOGICAL_NAMES.get(f"{kind} {logical}", avsc.get("connect.name"))
    if kind == "record":
        name = avsc.get("connect.name", avsc["name"])
        schema["fields"] = [
            {**_connect_type(each["type"], f"{path}.{each['name']}"), "field": each["name"]}
            for each in avsc["fields"]
        ]
    elif kind == "array":
        schema["items"] = _connect_type(avsc["items"], f"{path}[]")
    elif kind == "map":
        schema["keys"] = {"type": "string"}
        schema["values"] = _connect_type(avsc["values"], f"{path}{{}}")
    else:
        schema["type"] = avsc.get("connect.type", schema["type"])
    if name == DECIMAL and logical == "decimal":
        precision = str(avsc["precision"])
        schema["parameters"] = {"scale": str(avsc.get("scale", 0)), PRECISION_PARAMETER: precision}
    return {**schema, "name": name} if name else schema


def to_spark(schema: dict[str, Any], as_numbers: bool = False) -> T.StructType:
    """Return the Spark type of the records of a schema.

    A decimal of more digits than Spark's 38 becomes one of 38.

    Args:
        schema: the schema.
        as_numbers: whether dates and times are numbers, as in JSON.

    Raises:
        LakeError: it is not the schema of a record; Spark has no such type; or two fields of a record
            are one column to Spark, or Avro has no such name.
    """
    if schema.get("type") != "struct":
        raise LakeError("the schema is not that of a record", location=str(schema.get("type")))
    try:
        return _struct_type(schema, as_numbers, schema.get("name") or "Value")
    except (KeyError, TypeError, ValueError, AttributeError) as e:  # written by hand
        raise LakeError(f"not a schema of Kafka Connect: {type(e).__name__}: {e}") from None


def _struct_type(schema: dict[str, Any], as_numbers: bool, path: str) -> T.StructType:
    names: dict[str, str] = {}
    struct = T.StructType()
    for field in schema["fields"]:
        name = field["field"]
        same_name = names.setdefault(name.lower(), name)
        if same_name != name:
            raise LakeError(
                f"{path} has {name} and {same_name}, which Spark and Athena take for one",
                location=path,
                hint="rename one at the source",
            )
        if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
            raise LakeError(
                f"a column cannot be called {name!r}",
                location=path,
                expected="letters, digits and _, as in Avro",
                hint="Debezium: field.name.adjustment.mode=avro",
            )
        spark_type = _spark_type(field, as_numbers, f"{path}.{name}")
        struct.add(name, spark_type, nullable=bool(field.get("optional")))
    return struct


def _spark_type(schema: dict[str, Any], as_numbers: bool, path: str) -> T.DataType:
    kind, name = schema.get("type", ""), schema.get("name")
    if not isinstance(name, (str, type(None))):
        raise LakeError(f"the name of a type is {name}", location=path, expected="a text")
    if kind == "struct":
        return _struct_type(schema, as_numbers, path)
    if kind == "array":
        return T.ArrayType(_spark_type(schema["items"], as_numbers, f"{path}[]"))
    if kind == "map" and schema["keys"]["type"] == "string":
        values = _spark_type(schema["values"], as_numbers, f"{path}{{}}")
        return T.MapType(T.StringType(), values)
    if (kind, name) == ("bytes", DECIMAL):
        precision, scale = decimal_digits(schema)
        if 0 <= scale <= precision:
            return T.DecimalType(precision, scale)
    elif not as_numbers and name in TIMES and TIMES[name][0] == kind:
        return _type_of(TIMES[name][2])
    elif kind in SPARK_TYPES:
        return _type_of(SPARK_TYPES[kind])
    raise LakeError(
        f"no Spark type for {name or ''} {kind}".replace("  ", " "),
        location=path,
        expected=f"a decimal of at most {MAX_DIGITS} digits, map with text keys, {', '.join(SPARK_TYPES)}",
    )


def decimal_digits(schema: dict[str, Any]) -> tuple[int, int]:
    """Return precision and scale of a Decimal.

    The precision is that of the schema, but at most Spark's. It is Spark's if the schema has none.
    (An Avro converter writes 64 if the precision is unknown.)
    """
    parameters = schema["parameters"]
    precision = int(parameters.get(PRECISION_PARAMETER, MAX_DIGITS))
    return min(precision, MAX_DIGITS), int(parameters["scale"])


def _type_of(class_name: str) -> T.DataType:
    spark_type: T.DataType = getattr(T, class_name)()
    return spark_type
