"""Convert Kafka Connect's schemas in JSON messages to Avro, as Confluent's AvroConverter does.

data/schemas/*.avsc have this form.
"""

import re
from typing import Any

from workbench.base.errors import LakeError

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
# Kafka Connect's own logical types equal Avro's. Debezium's types (io.debezium.time.Date,
# …data.Json, …) stay plain numbers and texts, with their name in `connect.name`: S1 and S2 show a
# date as INT32 days, as the JSON does.
LOGICAL = {
    "org.apache.kafka.connect.data.Date": "date",
    "org.apache.kafka.connect.data.Time": "time-millis",
    "org.apache.kafka.connect.data.Timestamp": "timestamp-millis",
}
DECIMAL = "org.apache.kafka.connect.data.Decimal"
NAME = re.compile(r"[A-Za-z_]\w*", re.A)


def connect_schema_to_avro(schema: dict[str, Any], name: str) -> dict[str, Any]:
    """Convert the `schema` part of a Connect JSON message to an Avro record schema.

    Args:
        schema: a struct, as JsonConverter writes it with schemas.enable=true.
        name: the record's full name, such as `msk.datalake.cdc_events.Value`.

    Returns:
        The Avro schema as a dict. An optional field is a union with null, null being its default
        (or the field's own default, whose branch Avro wants first). Narrow integers keep
        `connect.type`, named types `connect.name`.

    Raises:
        LakeError: the schema is not a struct, or Avro has no such type or field name.
    """
    if not isinstance(schema, dict) or schema.get("type") != "struct":
        raise LakeError(
            "the schema of a change event is not a struct",
            location=name,
            expected='{"type": "struct", "fields": […]}',
            hint="set value.converter.schemas.enable=true, and pass the message's 'schema' part",
        )
    return _record(schema, name, {})


def _record(schema: dict[str, Any], name: str, done: dict[str, Any]) -> Any:
    """Convert a record; `done` has the earlier ones: Avro defines a name once, and then refers to it."""
    if name in done:
        if done[name] == schema["fields"]:
            return name
        raise LakeError(f"two different records are called {name!r}", location=name)
    done[name] = schema["fields"]
    space, _, short = name.rpartition(".")
    for part in name.split("."):
        _check_name(part, name)
    fields = [_field(f, f"{name}.{f.get('field')}", done) for f in schema["fields"]]
    out = {
        "type": "record",
        "name": short,
        "namespace": space,
        "fields": fields,
        "connect.name": schema.get("name"),
    }
    return {k: v for k, v in out.items() if v not in (None, "")}


def _check_name(text: Any, where: str) -> None:
    if not isinstance(text, str) or not NAME.fullmatch(text):
        raise LakeError(
            f"{text!r} is not an Avro name",
            location=where,
            expected="letters, digits and _, no digit first",
            hint="Debezium: field.name.adjustment.mode=avro, schema.name.adjustment.mode=avro",
        )


def _field(field: dict[str, Any], where: str, done: dict[str, Any]) -> dict[str, Any]:
    _check_name(field.get("field"), where)
    kind, default = _type(field, where, done), field.get("default")
    out: dict[str, Any] = {"name": field["field"], "type": kind}
    if field.get("optional"):
        out.update(type=["null", kind] if default is None else [kind, "null"], default=default)
    elif default is not None:
        out["default"] = default
    return out


def _type(schema: dict[str, Any], where: str, done: dict[str, Any]) -> Any:
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
            location=where,
            expected=", ".join([*PRIMITIVES, "struct", "array", "map with text keys"]),
        )
    extra: dict[str, Any] = {}
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


def _element(schema: dict[str, Any], where: str, done: dict[str, Any]) -> Any:
    kind = _type(schema, where, done)
    return ["null", kind] if schema.get("optional") else kind
