"""Schemas of change events: Kafka Connect's own (inside JSON messages) → Avro (.avsc) → Spark.

Why (S2): a reader of JSON messages needs types that JSON does not have, and the Connect schema that travels with every
message is in a form only Connect reads. One Avro file stands in for it. It is written as Confluent's AvroConverter
would register it, so that a later step to a schema registry changes nothing.
"""

from __future__ import annotations

import re
from typing import Any, Dict, Optional, Tuple

from ..base.errors import LakeError

PRIMITIVES = {
    "int8": "int",
    "int16": "int",
    "int32": "int",
    "int64": "long",
    "float": "float",
    "double": "double",
    "float32": "float",
    "float64": "double",
    "boolean": "boolean",
    "string": "string",
    "bytes": "bytes",
}
# Kafka Connect's own logical types mean what Avro's mean. Debezium's (io.debezium.time.Date, …data.Json, …) stay
# plain numbers and texts, named in `connect.name`: S1 and S2 show a date as INT32 days, and the JSON says just that.
LOGICAL = {
    "org.apache.kafka.connect.data.Date": "date",
    "org.apache.kafka.connect.data.Time": "time-millis",
    "org.apache.kafka.connect.data.Timestamp": "timestamp-millis",
}
DECIMAL = "org.apache.kafka.connect.data.Decimal"
# Debezium's types that Avro has too, with time.precision.mode=adaptive. A timestamp without time zone counts from 1970
# as if its clock stood at UTC. (ZonedTimestamp is a text, Time and MicroTime are numbers: Spark has no time of day.)
DEBEZIUM = {
    "io.debezium.time.Date": ("int", "date"),
    "io.debezium.time.Timestamp": ("long", "timestamp-millis"),
    "io.debezium.time.MicroTimestamp": ("long", "timestamp-micros"),
}
DIGITS = 38  # the most that a decimal of Spark has
NAME = re.compile(r"[A-Za-z_]\w*", re.A)


def connect_schema_to_avro(schema: Dict[str, Any], name: str) -> Dict[str, Any]:
    """Turn the `schema` part of a Connect JSON message into an Avro record schema.

    Args:
        schema: a struct, as JsonConverter writes it with schemas.enable=true.
        name: the record's full name, such as `msk.datalake.cdc_events.Value`.

    Returns:
        The Avro schema as a dict. An optional field is a union with null, null being its default (or the field's own
        default, whose branch Avro wants first). Narrow integers keep `connect.type`, named types `connect.name`.

    Raises:
        LakeError: not a struct; a type or a field name that Avro does not have.
    """
    if not isinstance(schema, dict) or schema.get("type") != "struct":
        raise LakeError(
            "the schema of a change event is not a struct",
            where=name,
            expected='{"type": "struct", "fields": […]}',
            next_step="is value.converter.schemas.enable true? Hand over the message's 'schema' part",
        )
    return _record(schema, name, {})


def _record(schema: Dict[str, Any], name: str, done: Dict[str, Any]) -> Any:
    """`done` holds the records met so far: Avro defines a name once and refers to it afterwards."""
    if name in done:
        if done[name] == schema["fields"]:
            return name
        raise LakeError(f"two different records are called {name!r}", where=name)
    done[name] = schema["fields"]
    space, _, short = name.rpartition(".")
    for part in name.split("."):
        _check_name(part, name)
    fields = [_field(f, f"{name}.{f.get('field')}", done) for f in schema["fields"]]
    out = {"type": "record", "name": short, "namespace": space, "fields": fields, "connect.name": schema.get("name")}
    return {k: v for k, v in out.items() if v not in (None, "")}


def _check_name(text: Any, where: str) -> None:
    if not isinstance(text, str) or not NAME.fullmatch(text):
        raise LakeError(
            f"{text!r} is not an Avro name",
            where=where,
            expected="letters, digits and _, no digit first",
            next_step="Debezium: field.name.adjustment.mode=avro, schema.name.adjustment.mode=avro",
        )


def _field(field: Dict[str, Any], where: str, done: Dict[str, Any]) -> Dict[str, Any]:
    _check_name(field.get("field"), where)
    kind, default = _type(field, where, done), field.get("default")
    out: Dict[str, Any] = {"name": field["field"], "type": kind}
    if field.get("optional"):
        out.update(type=["null", kind] if default is None else [kind, "null"], default=default)
    elif default is not None:
        out["default"] = default
    return out


def _type(schema: Dict[str, Any], where: str, done: Dict[str, Any]) -> Any:
    kind, label = schema.get("type"), schema.get("name")
    if kind == "struct":
        return _record(schema, label or where, done)
    if kind == "array":
        return {"type": "array", "items": _element(schema["items"], f"{where}.items", done)}
    if kind == "map" and schema.get("keys", {}).get("type") == "string":
        return {"type": "map", "values": _element(schema["values"], f"{where}.values", done)}
    if kind not in PRIMITIVES:
        raise LakeError(
            f"no Avro type for Connect type {kind!r}",
            where=where,
            expected=", ".join([*PRIMITIVES, "struct", "array", "map with text keys"]),
        )
    extra: Dict[str, Any] = {}
    if kind in ("int8", "int16"):
        extra["connect.type"] = kind
    if label:
        extra.update({"connect.version": schema.get("version"), "connect.name": label})
    if label in LOGICAL:
        extra["logicalType"] = LOGICAL[label]
    if label == DECIMAL:
        given = schema.get("parameters", {})
        extra.update(
            logicalType="decimal",
            scale=int(given.get("scale", 0)),
            precision=int(given.get("connect.decimal.precision", 38)),
        )
    extra = {k: v for k, v in extra.items() if v is not None}
    return {"type": PRIMITIVES[kind], **extra} if extra else PRIMITIVES[kind]


def _element(schema: Dict[str, Any], where: str, done: Dict[str, Any]) -> Any:
    kind = _type(schema, where, done)
    return ["null", kind] if schema.get("optional") else kind


def exact(avro: Any) -> Any:
    """Return an Avro schema as the registry has it, with every logical type said in the way that Spark understands.

    Debezium's dates and timestamps get Avro's logical type; a time of day becomes the plain number that it is. A
    decimal of more digits than Spark has (Connect's converters say 64 where the source says nothing) gets Spark's 38:
    a value that does not fit does not decode. Nothing changes in how the bytes are read.
    """
    if isinstance(avro, list):
        return [exact(branch) for branch in avro]
    if not isinstance(avro, dict):
        return avro
    out = {k: exact(v) if k in ("type", "items", "values") else v for k, v in avro.items()}
    if isinstance(avro.get("fields"), list):
        out["fields"] = [{**f, "type": exact(f["type"])} for f in avro["fields"]]
    kind, mark = DEBEZIUM.get(avro.get("connect.name", ""), (None, None))
    if kind is not None and avro.get("type") == kind:
        out["logicalType"] = mark
    if avro.get("logicalType") in ("time-millis", "time-micros"):
        del out["logicalType"]
    if avro.get("logicalType") == "decimal" and avro.get("precision", 0) > DIGITS:
        out["precision"] = DIGITS
    return out


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
    if not isinstance(avsc, dict) or avsc.get("type") != "record":
        raise LakeError("the Avro schema is not a record", where=str(avsc)[:80], expected='{"type": "record", …}')
    return _spark(avsc, avsc.get("name", ""), avsc.get("namespace", ""), {})[0]


def _spark(avro: Any, where: str, space: str, named: Dict[str, Optional[Any]]) -> Tuple[Any, bool]:
    """Return (Spark type, nullable); `named` holds the finished records by full name, None while one is being built."""
    from pyspark.sql import types as t

    plain = {
        "int": t.IntegerType(),
        "long": t.LongType(),
        "float": t.FloatType(),
        "double": t.DoubleType(),
        "boolean": t.BooleanType(),
        "string": t.StringType(),
        "bytes": t.BinaryType(),
    }
    logical = {
        ("int", "date"): t.DateType(),
        ("long", "timestamp-millis"): t.TimestampType(),
        ("long", "timestamp-micros"): t.TimestampType(),
        ("string", "uuid"): t.StringType(),
    }
    if isinstance(avro, list):
        branches = [b for b in avro if b != "null"]
        if len(branches) != 1:
            raise LakeError(
                f"no Spark type for a union of {len(branches)} types", where=where, expected='["null", one type]'
            )
        return _spark(branches[0], where, space, named)[0], "null" in avro
    if isinstance(avro, str):
        full = avro if "." in avro else f"{space}.{avro}".lstrip(".")
        found = plain.get(avro) or named.get(full)
        if found is None:
            raise LakeError(f"no Spark type for Avro type {avro!r}", where=where, expected=", ".join(plain))
        return found, False
    kind = avro.get("type")
    if kind == "record":
        name = avro["name"]
        full = name if "." in name else f"{avro.get('namespace', space)}.{name}".lstrip(".")
        named[full] = None
        below = full.rpartition(".")[0]
        parts = [(f["name"], *_spark(f["type"], f"{where}.{f['name']}", below, named)) for f in avro["fields"]]
        named[full] = t.StructType([t.StructField(*part) for part in parts])
        return named[full], False
    if kind == "array":
        return t.ArrayType(*_spark(avro["items"], f"{where}[]", space, named)), False
    if kind == "map":
        return t.MapType(t.StringType(), *_spark(avro["values"], f"{where}{{}}", space, named)), False
    if kind == "enum":
        return t.StringType(), False
    if isinstance(kind, (dict, list)):
        return _spark(kind, where, space, named)
    mark = avro.get("logicalType")
    if mark == "decimal" and kind == "bytes":
        if not 0 <= avro.get("scale", 0) <= avro["precision"] <= DIGITS:
            raise LakeError(
                f"no Spark type for decimal({avro['precision']}, {avro.get('scale', 0)})",
                where=where,
                expected="at most 38 digits",
            )
        return t.DecimalType(avro["precision"], avro.get("scale", 0)), False
    if mark and (kind, mark) not in logical:
        raise LakeError(
            f"no Spark type for Avro {kind} with logicalType {mark!r}",
            where=where,
            expected="date, timestamp-millis, timestamp-micros, decimal, uuid",
        )
    return (logical[kind, mark], False) if mark else _spark(kind, where, space, named)
