"""Single message transforms of Kafka Connect, as a connector's JSON names them: what they make of a message.

Four of them (TYPES), with the semantics of Kafka's own; any other is refused by name. Plain Python, for it travels into
Spark tasks by value.
"""
from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, Optional

from ..base import ConnectorError, nearest

PACKAGE = "org.apache.kafka.connect.transforms."
# {kind: its settings that are honoured}. Kafka has more: partition.field, offset.field and timestamp.field, which a
# source does not know; replace.null.with.default, which is true here as by default; paths into nested structs.
SETTINGS = {"ValueToKey": ("fields",), "ExtractField": ("field",), "ReplaceField": ("exclude", "include", "renames"),
            "InsertField": ("topic.field", "static.field", "static.value")}
TYPES = {f"{PACKAGE}{kind}{'' if kind == 'ValueToKey' else '$' + side.title()}": (kind, side)
         for kind in SETTINGS for side in ("key", "value")}


@dataclass(frozen=True)
class Record:
    """One message. Key and value are Python's objects, a struct a dict; a schema is what Connect's JsonConverter writes
    under "schema", or None where there is none."""

    topic: str
    key: Any
    key_schema: Optional[dict[str, Any]]
    value: Any
    value_schema: Optional[dict[str, Any]]


@dataclass(frozen=True)
class Transform:
    """One transform. name: its alias in the JSON; side: what it changes, key or value; settings: as it needs them."""

    name: str
    kind: str
    side: str
    settings: dict[str, Any]


def parse(config: dict[str, str], where: str) -> tuple[Transform, ...]:
    """Read the transforms of a connector's JSON, in their order.

    Raises:
        ConnectorError: a transform or a setting of one is not honoured, or Kafka Connect would refuse it itself.
    """
    names = _listed(config.get("transforms", ""))
    for key in config:
        if key.startswith("transforms.") and not any(key.startswith(f"transforms.{name}.") for name in names):
            raise ConnectorError(f"{key} is of no transform", where=where,
                                 expected=f"one that transforms names: {', '.join(names) or 'it names none'}")
    return tuple(_transform(config, name, where) for name in names)


def _listed(text: str) -> list[str]:
    """The names of a list, each once."""
    return list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def _transform(config: dict[str, str], name: str, where: str) -> Transform:
    prefix = f"transforms.{name}."
    given = {key[len(prefix):]: value for key, value in config.items() if key.startswith(prefix)}
    type_ = given.pop("type", "")
    if type_ not in TYPES:
        raise ConnectorError(f"{prefix}type is {type_!r}", where=where, expected=nearest(type_, TYPES),
                             next_step="no other transform is honoured; run the real connector for it")
    kind, side = TYPES[type_]
    for key in given:
        if key not in SETTINGS[kind]:
            raise ConnectorError(f"{prefix}{key} is not honoured", where=where, expected=nearest(key, SETTINGS[kind]))
    if kind == "InsertField":
        return Transform(name, kind, side, {"inserted": _inserted(given, prefix, where)})
    if kind == "ReplaceField":
        pairs = [pair.split(":") for pair in _listed(given.get("renames", ""))]
        if not all(len(pair) == 2 and all(pair) for pair in pairs):
            raise ConnectorError(f"{prefix}renames is {given['renames']!r}", where=where, expected="old:new,other:new2")
        settings = {key: set(_listed(given.get(key, ""))) for key in ("exclude", "include")}
        return Transform(name, kind, side, {**settings, "renames": dict(pairs)})
    key = SETTINGS[kind][0]
    fields = _listed(given.get(key, "")) if kind == "ValueToKey" else [given.get(key, "")]
    if not all(fields) or not fields:
        raise ConnectorError(f"{prefix}{key} is missing", where=where, expected="the name of a field")
    return Transform(name, kind, side, {"fields": fields})


def _inserted(given: dict[str, str], prefix: str, where: str) -> list[tuple[str, bool, Optional[str]]]:
    """(field, whether it may be null, its text or None for the topic's name) of what InsertField inserts. An ! after
    the name makes a field required, a ? says the default."""
    if not {"topic.field", "static.field"} & given.keys():
        raise ConnectorError(
            f"{prefix}type is there and nothing to insert: no topic.field, no static.field", where=where,
            expected="Kafka Connect refuses it (No field insertion configured); one published connector has this flaw",
            next_step=f"leave this transform out, or give it {prefix}static.field and {prefix}static.value")
    if "static.field" in given and "static.value" not in given:
        raise ConnectorError(f"{prefix}static.value is missing", where=where, expected="the text to insert")
    named = [(given[key], given.get("static.value") if key == "static.field" else None)
             for key in ("topic.field", "static.field") if key in given]
    return [(name[:-1] if name[-1:] in "!?" else name, not name.endswith("!"), text) for name, text in named]


def apply(chain: tuple[Transform, ...], record: Record) -> Record:
    """Return what these transforms make of a record, one after the other.

    Raises:
        ValueError: where Kafka Connect would fail the task: a field that is not there, one that is there already, a key
            or value without fields.
    """
    for transform in chain:
        try:
            record = ACTIONS[transform.kind](record, transform.side, **transform.settings)
        except ValueError as e:
            raise ValueError(f"transform {transform.name} ({transform.kind}): {e}") from None
    return record


def _value_to_key(record: Record, _: str, fields: list[str]) -> Record:
    value, schema = _fields_of(record.value), record.value_schema
    if schema is None:
        return replace(record, key={name: value.get(name) for name in fields}, key_schema=None)
    known = [_field(schema, name) for name in fields]
    return replace(record, key={field["field"]: _get(value, field) for field in known}, key_schema=_struct(known))


def _extract(record: Record, side: str, fields: list[str]) -> Record:
    value, schema = getattr(record, side), getattr(record, f"{side}_schema")
    value = None if value is None else _fields_of(value)
    field = {"field": fields[0]} if schema is None else _field(schema, fields[0])
    return replace(record, **{side: None if value is None else _get(value, field),
                              f"{side}_schema": {k: v for k, v in field.items() if k != "field"} or None})


def _insert(record: Record, side: str, inserted: list[tuple[str, bool, Optional[str]]]) -> Record:
    value, schema = getattr(record, side), getattr(record, f"{side}_schema")
    if value is None:
        return record
    more = {name: record.topic if text is None else text for name, _, text in inserted}
    if schema is None:
        return replace(record, **{side: {**_fields_of(value), **more}})
    fields = [{"type": "string", "optional": optional, "field": name} for name, optional, _ in inserted]
    return replace(record, **{side: {**_known(value, schema), **more},
                              f"{side}_schema": _struct([*schema["fields"], *fields], schema)})


def _replace(record: Record, side: str, exclude: set[str], include: set[str], renames: dict[str, str]) -> Record:
    value, schema = getattr(record, side), getattr(record, f"{side}_schema")
    if value is None:
        return record
    values = _fields_of(value) if schema is None else _known(value, schema)
    kept = {name: renames.get(name, name) for name in values
            if name not in exclude and (name in include or not include)}
    changed = {side: {new: values[old] for old, new in kept.items()}}
    if schema is not None:
        fields = [{**field, "field": kept[field["field"]]} for field in schema["fields"] if field["field"] in kept]
        changed[f"{side}_schema"] = _struct(fields, schema)
    return replace(record, **changed)


ACTIONS = {"ValueToKey": _value_to_key, "ExtractField": _extract, "InsertField": _insert, "ReplaceField": _replace}


def _fields_of(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"it works on a struct only, found {type(value).__name__}")
    return value


def _known(value: Any, schema: dict[str, Any]) -> dict[str, Any]:
    """The fields of a struct, those that its schema has."""
    value = _fields_of(value)
    return {field["field"]: _get(value, field) for field in schema["fields"]}


def _get(value: dict[str, Any], field: dict[str, Any]) -> Any:
    """A field's value; where that is null, what its schema has for a default."""
    found = value.get(field["field"])
    return field.get("default") if found is None else found


def _field(schema: dict[str, Any], name: str) -> dict[str, Any]:
    for field in schema.get("fields", ()):
        if field["field"] == name:
            return field
    raise ValueError(f"there is no field {name!r}; there are {[field['field'] for field in schema.get('fields', ())]}")


def _struct(fields: list[dict[str, Any]], like: Optional[dict[str, Any]] = None) -> dict[str, Any]:
    """The schema of these fields, with name, version, doc and parameters of another one. It is never optional, for
    Kafka's transforms do not copy that either."""
    twice = [name for name, times in Counter(field["field"] for field in fields).items() if times > 1]
    if twice:
        raise ValueError(f"field {twice[0]!r} would be there twice")
    copied = {key: like[key] for key in ("name", "version", "doc", "parameters") if like and key in like}
    return {"type": "struct", "fields": fields, "optional": False, **copied}
