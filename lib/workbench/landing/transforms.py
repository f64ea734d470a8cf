"""Single message transforms (SMTs) of Kafka Connect: parse them from JSON, apply them to a message.

The four transforms in settings.yaml are supported, with the semantics of Kafka's implementations.
Other transforms are rejected.
"""

from dataclasses import dataclass, replace
from typing import Any, Optional, Sequence

from .settings import SUPPORTED, ConnectorConfig, Values, split_list

Transforms = dict[str, Values]  # {alias in the JSON: settings}, in their order
# the fields of a struct: (field of the Connect schema, value) each
StructFields = list[tuple[dict[str, Any], Any]]
# Kafka's transforms copy these attributes of the value's schema, but not "optional"
COPIED_ATTRIBUTES = ("name", "version", "doc", "parameters")
TEXT_TYPE = {"type": "string", "optional": True}


@dataclass(frozen=True)
class Record:
    """One message.

    Key and value are Python objects; a struct is a dict. A schema is a Connect schema in the JSON form
    of JsonConverter, or None.
    """

    topic: str
    key: Any
    key_schema: Optional[dict[str, Any]]
    value: Any
    value_schema: Optional[dict[str, Any]]


def parse(config: ConnectorConfig) -> Transforms:
    """Read the transforms of a connector's JSON.

    Raises:
        ConnectorError: a transform or one of its settings is not supported, or Kafka Connect itself
            would reject it.
    """
    names = split_list(config.values.get("transforms", ""))
    prefixes = tuple(f"transforms.{name}." for name in names)
    for key in config.values:
        if key.startswith("transforms.") and not key.startswith(prefixes):
            expected = f"a name in transforms: {', '.join(names) or 'none is listed'}"
            raise config.error(key, expected, problem="belongs to no transform")
    return {name: _parse_transform(config, f"transforms.{name}.") for name in names}


def _parse_transform(config: ConnectorConfig, prefix: str) -> Values:
    supported = config.choose(f"{prefix}type", SUPPORTED["transforms"])["settings"]
    settings = config.parse(supported, prefix)
    if _kind(settings) == "InsertField":
        text_key = f"{prefix}static.value"
        lacks_text = settings["static.field"] and text_key not in config.values
        if lacks_text or not (settings["static.field"] or settings["topic.field"]):
            # Kafka Connect reports: No field insertion configured
            raise config.error(
                text_key,
                "something to insert: static.field and static.value, or topic.field (one "
                "published connector has this mistake)",
                "add these settings, or remove the transform",
            )
    return settings


def _kind(settings: Values) -> str:
    """Return the class of a transform, without its package and without $Key or $Value."""
    return settings["type"].rpartition(".")[2].partition("$")[0]


def apply(transforms: Transforms, record: Record) -> Record:
    """Return the record that results from these transforms, in their order.

    Raises:
        ValueError: Kafka Connect would fail the task: a field is missing or already exists, or a
            key or value is not a struct.
    """
    for name, settings in transforms.items():
        try:
            record = _apply_one(settings, record)
        except ValueError as e:
            raise ValueError(f"transform {name} ({_kind(settings)}): {e}") from None
    return record


def _apply_one(settings: Values, record: Record) -> Record:
    kind = _kind(settings)
    if kind == "ExtractField":
        if record.key is None:
            return record
        key_fields = _struct_fields("key", record.key, record.key_schema)
        [(field, key)] = _select([settings["field"]], key_fields)
        schema = {attribute: value for attribute, value in field.items() if attribute != "field"}
        return replace(record, key=key, key_schema=schema)
    if record.value is None and kind != "ValueToKey":
        return record
    fields = _struct_fields("value", record.value, record.value_schema)
    if kind == "ValueToKey":
        key, schema = _to_struct(_select(split_list(settings["fields"]), fields))
        return replace(record, key=key, key_schema=schema)
    if kind == "ReplaceField":
        new_names = dict(pair.split(":") for pair in split_list(settings["renames"]))
        fields = [
            ({**field, "field": new_names.get(field["field"], field["field"])}, value)
            for field, value in fields
        ]
    else:
        texts = [
            (settings["topic.field"], record.topic),
            (settings["static.field"], settings["static.value"]),
        ]
        fields += [({**TEXT_TYPE, "field": name}, text) for name, text in texts if name]
    value, schema = _to_struct(fields)
    old_schema = record.value_schema or {}
    schema.update({key: old_schema[key] for key in COPIED_ATTRIBUTES if key in old_schema})
    return replace(record, value=value, value_schema=schema)


def _struct_fields(side: str, struct: Any, schema: Optional[dict[str, Any]]) -> StructFields:
    """Return the fields of a struct. A null is replaced by the default in its schema."""
    if schema is None or not isinstance(struct, dict):
        kind = type(struct).__name__
        raise ValueError(f"the {side} must be a struct with a schema, not {kind}")
    fields = []
    for field in schema["fields"]:
        value = struct.get(field["field"])
        fields.append((field, field.get("default") if value is None else value))
    return fields


def _select(names: Sequence[str], fields: StructFields) -> StructFields:
    by_name = {field["field"]: (field, value) for field, value in fields}
    for name in names:
        if name not in by_name:
            raise ValueError(f"there is no field {name!r}; the fields are {[*by_name]}")
    return [by_name[name] for name in names]


def _to_struct(fields: StructFields) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a struct and its schema."""
    struct = {field["field"]: value for field, value in fields}
    if len(struct) < len(fields):
        names = [field["field"] for field, _ in fields]
        raise ValueError(f"a field name would occur twice: {names}")
    return struct, {"type": "struct", "fields": [field for field, _ in fields], "optional": False}
