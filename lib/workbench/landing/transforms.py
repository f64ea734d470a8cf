"""Single message transforms (SMTs) of Kafka Connect: parse them from JSON, apply them to a message.

The four transforms in settings.yaml are supported, with the semantics of Kafka's implementations.
Other transforms are rejected. This module is pickled by value into Spark tasks, so it is plain
Python.
"""

from dataclasses import dataclass, replace
from typing import Any, Optional

from ..base import ConnectorError
from .settings import Settings, split_list, validate

PACKAGE_PREFIX = "org.apache.kafka.connect.transforms."
# the fields of a struct: (field of the Connect schema, value) each
StructFields = list[tuple[dict[str, Any], Any]]


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


@dataclass(frozen=True)
class Transform:
    """One transform.

    Attributes:
        name: alias in the JSON.
        kind: name of the class, without package and `$Key` or `$Value`.
        side: the side that is changed, "key" or "value".
        settings: the validated settings.
    """

    name: str
    kind: str
    side: str
    settings: Settings


def parse(config: dict[str, str], location: str) -> tuple[Transform, ...]:
    """Read the transforms of a connector's JSON, in their order.

    Args:
        config: the connector's JSON.
        location: the connector, for errors.

    Raises:
        ConnectorError: a transform or one of its settings is not supported, or Kafka Connect itself
            would reject it.
    """
    names = split_list(config.get("transforms", ""))
    prefixes = tuple(f"transforms.{name}." for name in names)
    for key in config:
        if key.startswith("transforms.") and not key.startswith(prefixes):
            raise ConnectorError(
                f"{key} belongs to no transform",
                location=location,
                expected=f"a name in transforms: {', '.join(names) or 'none is listed'}",
            )
    return tuple(_parse_transform(config, name, location) for name in names)


def _parse_transform(config: dict[str, str], name: str, location: str) -> Transform:
    prefix = f"transforms.{name}."
    own_config = {
        key[len(prefix) :]: value for key, value in config.items() if key.startswith(prefix)
    }
    settings = validate("transform", own_config, location, prefix)
    kind, _, side = own_config["type"][len(PACKAGE_PREFIX) :].partition("$")
    if kind == "InsertField":
        inserts_text = settings["static.field"] and settings["static.value"] is not None
        inserts_topic = settings["topic.field"] and not settings["static.field"]
        if not inserts_text and not inserts_topic:
            # Kafka Connect reports: No field insertion configured
            raise settings.error_for(
                "static.value",
                "something to insert: static.field and static.value, or topic.field (one "
                "published connector has this mistake)",
                "add these settings, or remove the transform",
            )
    return Transform(name, kind, side.lower() or "key", settings)


def apply(transforms: tuple[Transform, ...], record: Record) -> Record:
    """Return the record that results from these transforms, in their order.

    Raises:
        ValueError: Kafka Connect would fail the task: a field is missing or already exists, or a
            key or value is not a struct.
    """
    for transform in transforms:
        try:
            record = _apply_one(transform, record)
        except ValueError as e:
            raise ValueError(f"transform {transform.name} ({transform.kind}): {e}") from None
    return record


def _apply_one(transform: Transform, record: Record) -> Record:
    kind, side = transform.kind, transform.side
    source = "value" if kind == "ValueToKey" else side
    struct, schema = getattr(record, source), getattr(record, f"{source}_schema")
    if struct is None and kind != "ValueToKey":
        return record
    if not isinstance(struct, dict):
        raise ValueError(f"the {source} must be a struct, not {type(struct).__name__}")
    fields = IMPLEMENTATIONS[kind](_struct_fields(struct, schema), transform.settings, record.topic)
    new: Any
    if kind == "ExtractField":
        field, new = fields[0]
        new_schema = {key: value for key, value in field.items() if key != "field"} or None
    else:
        new = {field["field"]: value for field, value in fields}
        new_schema = schema and _struct_schema([field for field, _ in fields])
        if schema and source == side:
            # Kafka's transforms copy these attributes, but not "optional"
            copied = ("name", "version", "doc", "parameters")
            new_schema.update({key: schema[key] for key in copied if key in schema})
    return replace(record, **{side: new, f"{side}_schema": new_schema})


def _struct_fields(struct: dict[str, Any], schema: Optional[dict[str, Any]]) -> StructFields:
    """Return the fields of a struct. A null is replaced by the default in its schema."""
    declared = [{"field": name} for name in struct] if schema is None else schema["fields"]
    fields = []
    for field in declared:
        value = struct.get(field["field"])
        fields.append((field, field.get("default") if value is None else value))
    return fields


def _struct_schema(fields: list[dict[str, Any]]) -> dict[str, Any]:
    names = [field["field"] for field in fields]
    if len({*names}) < len(names):
        raise ValueError(f"a field name would occur twice: {names}")
    return {"type": "struct", "fields": fields, "optional": False}


def _select_fields(fields: StructFields, settings: Settings, topic: str) -> StructFields:
    """Return the fields that the settings name (ValueToKey, ExtractField)."""
    by_name = {field["field"]: (field, value) for field, value in fields}
    names = settings["fields"] if "fields" in settings.config else [settings["field"]]
    for name in names:
        if name not in by_name:
            raise ValueError(f"there is no field {name!r}; the fields are {[*by_name]}")
    return [by_name[name] for name in names]


def _insert_fields(fields: StructFields, settings: Settings, topic: str) -> StructFields:
    static = (settings["static.field"], settings["static.value"])
    inserted = [(settings["topic.field"], topic), static]
    field = {"type": "string", "optional": True}
    return fields + [({**field, "field": name}, text) for name, text in inserted if name]


def _replace_fields(fields: StructFields, settings: Settings, topic: str) -> StructFields:
    new_names = dict(pair.split(":") for pair in settings["renames"])
    include, exclude = settings["include"], settings["exclude"]
    renamed = []
    for field, value in fields:
        name = field["field"]
        if name not in exclude and (not include or name in include):
            renamed.append(({**field, "field": new_names.get(name, name)}, value))
    return renamed


IMPLEMENTATIONS = {
    "ValueToKey": _select_fields,
    "ExtractField": _select_fields,
    "InsertField": _insert_fields,
    "ReplaceField": _replace_fields,
}
