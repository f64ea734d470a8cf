"""Single message transforms (SMTs) of Kafka Connect: parse them from JSON, apply them to a message.

The four transforms in models.py are supported, with the semantics of Kafka's implementations.
Other transforms are rejected.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Callable, Optional, Sequence

from ..base import ConnectorError
from . import models
from .settings import ConnectorConfig, split_list

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
        change: takes the fields of a struct and the name of the topic, and returns the new fields.
    """

    name: str
    kind: str
    side: str
    change: Callable[[StructFields, str], StructFields]


def parse(config: ConnectorConfig) -> tuple[Transform, ...]:
    """Read the transforms of a connector's JSON, in their order.

    Raises:
        ConnectorError: a transform or one of its settings is not supported, or Kafka Connect itself
            would reject it.
    """
    names = split_list(config.values.get("transforms", ""))
    prefixes = tuple(f"transforms.{name}." for name in names)
    for key in config.values:
        if key.startswith("transforms.") and not key.startswith(prefixes):
            raise ConnectorError(
                f"{key} belongs to no transform",
                location=config.location,
                expected=f"a name in transforms: {', '.join(names) or 'none is listed'}",
            )
    return tuple(_parse_transform(config, name) for name in names)


def _parse_transform(config: ConnectorConfig, name: str) -> Transform:
    prefix = f"transforms.{name}."
    settings = config.parse_plugin(f"{prefix}type", models.TRANSFORMS, prefix)
    change: Callable[[StructFields, str], StructFields]
    if isinstance(settings, models.InsertField):
        static_field, text = settings.static_field, settings.static_value
        inserts_text = static_field and text is not None
        if not inserts_text and (static_field or not settings.topic_field):
            # Kafka Connect reports: No field insertion configured
            raise config.error(
                f"{prefix}static.value",
                "something to insert: static.field and static.value, or topic.field (one "
                "published connector has this mistake)",
                "add these settings, or remove the transform",
            )
        change = partial(_insert_fields, settings.topic_field, static_field, text)
    elif isinstance(settings, models.ReplaceField):
        new_names = dict(pair.split(":") for pair in settings.renames)
        change = partial(_replace_fields, settings.include, settings.exclude, new_names)
    elif isinstance(settings, models.ExtractField):
        change = partial(_select_fields, (settings.field,))
    else:
        change = partial(_select_fields, settings.fields)
    kind, _, side = settings.type[len(models.TRANSFORM_PACKAGE) :].partition("$")
    return Transform(name, kind, side.lower() or "key", change)


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
    fields = transform.change(_struct_fields(struct, schema), record.topic)
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


def _select_fields(names: Sequence[str], fields: StructFields, topic: str) -> StructFields:
    """Return the named fields (ValueToKey, ExtractField)."""
    by_name = {field["field"]: (field, value) for field, value in fields}
    for name in names:
        if name not in by_name:
            raise ValueError(f"there is no field {name!r}; the fields are {[*by_name]}")
    return [by_name[name] for name in names]


def _insert_fields(
    topic_field: str, static_field: str, text: Optional[str], fields: StructFields, topic: str
) -> StructFields:
    field = {"type": "string", "optional": True}
    inserted = [(topic_field, topic), (static_field, text)]
    return fields + [({**field, "field": name}, value) for name, value in inserted if name]


def _replace_fields(
    include: Sequence[str],
    exclude: Sequence[str],
    new_names: dict[str, str],
    fields: StructFields,
    topic: str,
) -> StructFields:
    renamed = []
    for field, value in fields:
        name = field["field"]
        if name not in exclude and (not include or name in include):
            renamed.append(({**field, "field": new_names.get(name, name)}, value))
    return renamed
