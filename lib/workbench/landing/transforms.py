"""Single message transforms of Kafka Connect, as a connector's JSON names them: what they make of a
message.

Four of them (settings.yaml), with the semantics of Kafka's own; any other is refused by name. Plain
Python, for it travels into Spark tasks by value.
"""

from dataclasses import dataclass, replace
from typing import Any, Optional

from ..base import ConnectorError
from . import settings

PACKAGE_PREFIX = "org.apache.kafka.connect.transforms."
StructFields = list[
    tuple[dict[str, Any], Any]
]  # of a struct: what Connect's schema says of a field, and its value


@dataclass(frozen=True)
class Record:
    """One message. Key and value are Python's objects, a struct a dict; a schema is what Connect's
    JsonConverter writes under "schema", or None where there is none.
    """

    topic: str
    key: Any
    key_schema: Optional[dict[str, Any]]
    value: Any
    value_schema: Optional[dict[str, Any]]


@dataclass(frozen=True)
class Transform:
    """One transform. name: its alias in the JSON; side: what it changes, key or value; said: its
    settings.
    """

    name: str
    kind: str
    side: str
    settings: settings.Settings


def parse(config: dict[str, str], where: str) -> tuple[Transform, ...]:
    """Read the transforms of a connector's JSON, in their order.

    Raises:
        ConnectorError: a transform or a setting of one is not honoured, or Kafka Connect would
            refuse it itself.
    """
    names = list(
        dict.fromkeys(
            name.strip() for name in config.get("transforms", "").split(",") if name.strip()
        )
    )
    for key in config:
        if key.startswith("transforms.") and not any(
            key.startswith(f"transforms.{name}.") for name in names
        ):
            raise ConnectorError(
                f"{key} is of no transform",
                location=where,
                expected=f"one that transforms names: {', '.join(names) or 'it names none'}",
            )
    return tuple(_parse_transform(config, name, where) for name in names)


def _parse_transform(config: dict[str, str], name: str, where: str) -> Transform:
    prefix = f"transforms.{name}."
    given = {key[len(prefix) :]: value for key, value in config.items() if key.startswith(prefix)}
    said = settings.validate("transform", given, where, prefix)
    kind, _, side = given["type"][len(PACKAGE_PREFIX) :].partition("$")
    # Kafka Connect refuses it, too: No field insertion configured
    if kind == "InsertField" and (
        said["static.value"] is None if said["static.field"] else not said["topic.field"]
    ):
        raise said.error_for(
            "static.value",
            "something to insert: static.field and static.value, or topic.field; one "
            "published connector has this flaw",
            "add them, or leave this transform out",
        )
    return Transform(name, kind, side.lower() or "key", said)


def apply(chain: tuple[Transform, ...], record: Record) -> Record:
    """Return what these transforms make of a record, one after the other.

    Raises:
        ValueError: where Kafka Connect would fail the task: a field that is not there, one that is
            there already, a key or value without fields.
    """
    for transform in chain:
        try:
            record = _apply_one(transform, record)
        except ValueError as e:
            raise ValueError(f"transform {transform.name} ({transform.kind}): {e}") from None
    return record


def _apply_one(transform: Transform, record: Record) -> Record:
    kind, side = transform.kind, transform.side
    read = "value" if kind == "ValueToKey" else side
    struct, schema = getattr(record, read), getattr(record, f"{read}_schema")
    if struct is None and kind != "ValueToKey":
        return record
    if not isinstance(struct, dict):
        raise ValueError(f"it works on a struct only, found {type(struct).__name__}")
    known = [{"field": name} for name in struct] if schema is None else schema["fields"]
    # a null is what its schema has for a default
    fields = [
        (of, of.get("default") if struct.get(of["field"]) is None else struct[of["field"]])
        for of in known
    ]
    made = IMPLEMENTATIONS[kind](fields, transform.settings, record.topic)
    values = {of["field"]: value for of, value in made}
    if kind == "ExtractField":
        [(of, value)] = made
        new = {key: said for key, said in of.items() if key != "field"}
        return replace(record, **{side: value, f"{side}_schema": new or None})
    if schema is not None:
        if len(values) < len(made):
            raise ValueError(
                f"a field would be there twice, among {[of['field'] for of, _ in made]}"
            )
        # of the schema it was the rest stays; but it is never optional, for Kafka's transforms do
        # not copy that
        kept = {
            key: schema[key]
            for key in ("name", "version", "doc", "parameters")
            if key in schema and side == read
        }
        schema = {"type": "struct", "fields": [of for of, _ in made], "optional": False, **kept}
    return replace(record, **{side: values, f"{side}_schema": schema})


def _select_fields(fields: StructFields, said: settings.Settings, _: str) -> StructFields:
    """What ValueToKey and ExtractField make: some of the fields."""
    by_name = {of["field"]: (of, value) for of, value in fields}
    names = said["fields"] if "fields" in said.config else [said["field"]]
    for name in names:
        if name not in by_name:
            raise ValueError(f"there is no field {name!r}; there are {[*by_name]}")
    return [by_name[name] for name in names]


def _insert_fields(fields: StructFields, said: settings.Settings, topic: str) -> StructFields:
    inserted = [(said["topic.field"], topic), (said["static.field"], said["static.value"])]
    return fields + [
        ({"type": "string", "optional": True, "field": name}, text)
        for name, text in inserted
        if name
    ]


def _replace_fields(fields: StructFields, said: settings.Settings, _: str) -> StructFields:
    renames = dict(pair.split(":") for pair in said["renames"])
    return [
        ({**of, "field": renames.get(of["field"], of["field"])}, value)
        for of, value in fields
        if of["field"] not in said["exclude"]
        and (of["field"] in said["include"] or not said["include"])
    ]


IMPLEMENTATIONS = {
    "ValueToKey": _select_fields,
    "ExtractField": _select_fields,
    "InsertField": _insert_fields,
    "ReplaceField": _replace_fields,
}
