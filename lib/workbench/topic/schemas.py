"""Avro schemas as Spark understands them: logical types said in its way, and the Spark type of a record."""
from __future__ import annotations

from typing import Any, Dict, Optional, Tuple

from ..base.errors import LakeError
from . import avro

# Debezium's types that Avro has too, with time.precision.mode=adaptive. A timestamp without time zone counts from 1970
# as if its clock stood at UTC. (ZonedTimestamp is a text, Time and MicroTime are numbers: Spark has no time of day.)
DEBEZIUM = {
    "io.debezium.time.Date": ("int", "date"),
    "io.debezium.time.Timestamp": ("long", "timestamp-millis"),
    "io.debezium.time.MicroTimestamp": ("long", "timestamp-micros"),
}
DIGITS = 38  # the most that a decimal of Spark has
# (Avro type, its logical type): Spark's type, by the name it has in JSON
SPARK = {
    ("int", None): "integer", ("long", None): "long", ("float", None): "float", ("double", None): "double",
    ("boolean", None): "boolean", ("string", None): "string", ("bytes", None): "binary", ("enum", None): "string",
    ("int", "date"): "date", ("long", "timestamp-millis"): "timestamp", ("long", "timestamp-micros"): "timestamp",
    ("string", "uuid"): "string",
}


def exact(avsc: Any) -> Any:
    """Return an Avro schema as the registry has it, with every logical type said in the way that Spark understands.

    Debezium's dates and timestamps get Avro's logical type; a time of day becomes the plain number that it is. A
    decimal of more digits than Spark has (Connect's converters say 64 where the source says nothing) gets Spark's 38:
    a value that does not fit does not decode. Nothing changes in how the bytes are read.
    """
    return avro.rebuilt(avsc, _exact)


def _exact(found: Dict[str, Any]) -> Dict[str, Any]:
    kind, logical = DEBEZIUM.get(found.get("connect.name", ""), (None, None))
    if kind is not None and found.get("type") == kind:
        found["logicalType"] = logical
    if found.get("logicalType") in ("time-millis", "time-micros"):
        del found["logicalType"]
    if found.get("logicalType") == "decimal" and found.get("precision", 0) > DIGITS:
        found["precision"] = DIGITS
    return found


def full_name(avsc: Any) -> str:
    """Return the full name of an Avro record schema; of another, its type."""
    if not isinstance(avsc, dict):
        return str(avsc)
    return ".".join(p for p in (avsc.get("namespace"), avsc.get("name")) if p) or str(avsc.get("type"))


def avro_to_spark(avsc: Dict[str, Any]) -> Any:
    """Return the Spark StructType of an Avro record schema.

    Raises:
        LakeError: not a record, or a type Spark has no equal for (union of several, fixed, time of day, recursion).
    """
    from pyspark.sql.types import StructType

    if not isinstance(avsc, dict) or avsc.get("type") != "record":
        raise LakeError("the Avro schema is not a record", where=str(avsc)[:80], expected='{"type": "record", …}')
    return StructType.fromJson(_spark(avsc, avsc.get("name", ""), avsc.get("namespace", ""), {})[0])


def _spark(avsc: Any, where: str, space: str, named: Dict[str, Optional[Any]]) -> Tuple[Any, bool]:
    """Return (Spark's type, as its JSON has it; whether it may be null). `named` holds the finished records by full
    name, None while one is being built."""
    if isinstance(avsc, list):
        branches = [b for b in avsc if b != "null"]
        if len(branches) != 1:
            raise LakeError(f"no Spark type for a union of {len(branches)} types", where=where,
                            expected='["null", one type]')
        return _spark(branches[0], where, space, named)[0], "null" in avsc
    if isinstance(avsc, str):
        avsc = {"type": avsc}
    kind, logical = avsc.get("type"), avsc.get("logicalType")
    if isinstance(kind, (dict, list)):
        return _spark(kind, where, space, named)
    if kind == "record":
        return _record(avsc, where, space, named), False
    if kind == "array":
        element, null = _spark(avsc["items"], f"{where}[]", space, named)
        return {"type": "array", "elementType": element, "containsNull": null}, False
    if kind == "map":
        value, null = _spark(avsc["values"], f"{where}{{}}", space, named)
        return {"type": "map", "keyType": "string", "valueType": value, "valueContainsNull": null}, False
    if (kind, logical) == ("bytes", "decimal"):
        digits, scale = avsc["precision"], avsc.get("scale", 0)
        if not 0 <= scale <= digits <= DIGITS:
            raise LakeError(f"no Spark type for decimal({digits}, {scale})", where=where, expected="at most 38 digits")
        return f"decimal({digits},{scale})", False
    found = SPARK.get((kind, logical)) or named.get(_full(kind, space))
    if found is None:
        raise LakeError(f"no Spark type for Avro type {kind!r}" + (f" with logicalType {logical!r}" if logical else ""),
                        where=where, expected=", ".join(" ".join(filter(None, each)) for each in SPARK))
    return found, False


def _record(avsc: Dict[str, Any], where: str, space: str, named: Dict[str, Optional[Any]]) -> Dict[str, Any]:
    full = _full(avsc["name"], avsc.get("namespace", space))
    named[full] = None
    fields = []
    for field in avsc["fields"]:
        kind, null = _spark(field["type"], f"{where}.{field['name']}", full.rpartition(".")[0], named)
        fields.append({"name": field["name"], "type": kind, "nullable": null, "metadata": {}})
    named[full] = {"type": "struct", "fields": fields}
    return named[full]


def _full(name: str, space: str) -> str:
    return name if "." in name else f"{space}.{name}".lstrip(".")
