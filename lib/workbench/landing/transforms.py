"""Single message transforms of Kafka Connect, as a connector's JSON names them: what they make of a message.

Four of them (TYPES), with the semantics of Kafka's own; any other is refused by name. Plain Python, for it travels into
Spark tasks by value.
"""
from __future__ import annotations

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
    known, values = _parts(record, "value")
    bare = None if record.value_schema is None else {}
    return _made(record, "key", [_field(record.value_schema, known, name) for name in fields], values, bare)


def _extract(record: Record, side: str, fields: list[str]) -> Record:
    value, schema = getattr(record, side), getattr(record, f"{side}_schema")
    known, values = ((schema or {}).get("fields", []), {}) if value is None else _parts(record, side)
    of = {key: said for key, said in _field(schema, known, fields[0]).items() if key != "field"}
    return replace(record, **{side: values.get(fields[0]), f"{side}_schema": of or None})


def _insert(record: Record, side: str, inserted: list[tuple[str, bool, Optional[str]]]) -> Record:
    if getattr(record, side) is None:
        return record
    fields, values = _parts(record, side)
    new = [{"type": "string", "optional": optional, "field": name} for name, optional, _ in inserted]
    values |= {name: record.topic if text is None else text for name, _, text in inserted}
    return _made(record, side, fields + new, values, getattr(record, f"{side}_schema"))


def _replace(record: Record, side: str, exclude: set[str], include: set[str], renames: dict[str, str]) -> Record:
    if getattr(record, side) is None:
        return record
    fields, values = _parts(record, side)
    kept = {name: renames.get(name, name) for name in values
            if name not in exclude and (name in include or not include)}
    fields = [{**field, "field": kept[field["field"]]} for field in fields if field["field"] in kept]
    values = {new: values[old] for old, new in kept.items()}
    return _made(record, side, fields, values, getattr(record, f"{side}_schema"))


ACTIONS = {"ValueToKey": _value_to_key, "ExtractField": _extract, "InsertField": _insert, "ReplaceField": _replace}


def _parts(record: Record, side: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """(fields, their values) of a key or a value; a null is what its schema has for a default."""
    value, schema = getattr(record, side), getattr(record, f"{side}_schema")
    if not isinstance(value, dict):
        raise ValueError(f"it works on a struct only, found {type(value).__name__}")
    fields = [{"field": name} for name in value] if schema is None else schema["fields"]
    found = {field["field"]: value.get(field["field"]) for field in fields}
    return fields, {field["field"]: field.get("default") if found[field["field"]] is None else found[field["field"]]
                    for field in fields}


def _field(schema: Optional[dict[str, Any]], fields: list[dict[str, Any]], name: str) -> dict[str, Any]:
    found = {"field": name} if schema is None else next((f for f in fields if f["field"] == name), None)
    if found is None:
        raise ValueError(f"there is no field {name!r}; there are {[field['field'] for field in fields]}")
    return found


def _made(record: Record, side: str, fields: list[dict[str, Any]], values: dict[str, Any],
          like: Optional[dict[str, Any]]) -> Record:
    """A record with another struct, of these fields, with name, version, doc and parameters of the schema `like`;
    without a schema where that is None. It is never optional, for Kafka's transforms do not copy that either."""
    names = [field["field"] for field in fields]
    twice = [name for name in names if names.count(name) > 1]
    if like is not None and twice:
        raise ValueError(f"field {twice[0]!r} would be there twice")
    copied = {key: like[key] for key in ("name", "version", "doc", "parameters") if like and key in like}
    schema = {"type": "struct", "fields": fields, "optional": False, **copied} if like is not None else None
    return replace(record, **{side: {name: values.get(name) for name in names}, f"{side}_schema": schema})
