"""Schema evolution: which columns a table has when its source's schema changes, and its description.

The lake outlives each version of a schema. So a table has the columns of all versions, each column is
nullable, and a column only becomes wider. A new column is added behind the others and is null in older
rows. A dropped one stays and is null in newer rows. A renamed one is both. A change that no column can
hold stops the ingest.
"""

from __future__ import annotations

import json
from typing import Any, Collection, Mapping, Optional, cast

from pyspark.sql import types as T

from ..base import LakeError
from ..topic import avro
from .timeline import CompletedAction, extra_metadata

# (from, to): number types without loss. (Avro also lets a reader see a long as a double, which drops
# digits.) Hudi applies these to older files; a float becomes the double of the same decimal digits. Its smallest
# whole number is int: a column of a smaller type becomes one.
LOSSLESS_WIDENINGS = {
    ("float", "double"),
    ("tinyint", "smallint"),
    *((small, "int") for small in ("tinyint", "smallint")),
    *((whole, wide) for whole in ("tinyint", "smallint", "int") for wide in ("bigint", "double")),
}
INCOMPATIBLE_HINT = (
    "leave its type as it was: of a bigint unsigned set the connector's bigint.unsigned.handling.mode (long: "
    "bigint; precise: decimal(20,0)). Or capture it anew, as the topic keeps both types: `workbench recapture FLOW` "
    "removes the topics and the lake tables of a flow, and ingests a new snapshot; for a table of no flow, run "
    "hudi.drop and ingest the topic of a new connector"
)


def table_columns(actions: list[CompletedAction]) -> Optional[T.StructType]:
    """Return the columns in the last commit that has a schema, without Hudi's own; None before it."""
    for action in reversed(actions):
        schema = extra_metadata(action.metadata).get("schema")
        if schema:
            columns = avro.to_spark(json.loads(schema))
            return T.StructType([f for f in columns if not f.name.startswith("_hoodie_")])
    return None


def merge_schemas(path: str, *schemas: T.StructType) -> T.StructType:
    """Merge schemas into one that holds the values of all, the fields of the oldest first.

    Messages of all these schemas are read into the result.

    Args:
        path: name of the table or record, for error messages.
        schemas: oldest first.

    Raises:
        LakeError: a field has no such type (names the field and both types), or names differ only in
            case.
    """
    merged = schemas[0]
    for schema in schemas:  # the first one with itself: its names are checked, its fields nullable
        merged = _merge_fields(merged, schema, path)
    return merged


def needs_rewrite(old: Any, new: Any, depth: int = 0) -> bool:
    """Return whether Hudi's readers cannot apply the new columns to older files.

    This is so for a decimal of more digits anywhere, and for a wider number inside a struct, a list
    or a map (Spark 3.5.7, Hudi 1.0.2).

    Args:
        old: the columns of a table, or the type of a value in them.
        new: its columns, merged with those of new rows, or the type of the same value.
        depth: how many structs, lists and maps the value is in; 1 for a column.
    """
    if isinstance(old, T.StructType):
        return any(needs_rewrite(f.dataType, new[f.name].dataType, depth + 1) for f in old)
    if isinstance(old, T.ArrayType):
        return needs_rewrite(old.elementType, new.elementType, depth + 1)
    if isinstance(old, T.MapType):
        return needs_rewrite(old.valueType, new.valueType, depth + 1)
    return old != new and (depth > 1 or _type_names(old, new) not in LOSSLESS_WIDENINGS)


def _type_names(old: T.DataType, new: T.DataType) -> tuple[str, str]:
    return old.simpleString(), new.simpleString()


def check_key_types(path: str, old: T.StructType, new: T.StructType, key: Collection[str]) -> None:
    """Raise LakeError if a key column gets another type than bigint after int: Hudi finds a row by its text.

    Args:
        path: name of the table, for the error message.
        old: its columns.
        new: its columns, merged with those of new rows.
        key: record key fields.
    """
    for name in key:
        names = _type_names(old[name].dataType, new[name].dataType)
        if names[0] != names[1] and names != ("int", "bigint"):
            raise LakeError(
                f"{path}.{name} is {names[0]} and would become {names[1]}: a key column keeps its type",
                expected="the same type, or bigint after int",
                hint=INCOMPATIBLE_HINT,
            )


def _merge_fields(old: T.StructType, new: T.StructType, path: str) -> T.StructType:
    old_types, new_types = ({f.name: f.dataType for f in schema} for schema in (old, new))
    merged = T.StructType()
    names: dict[str, str] = {}
    for name, new_type in {**old_types, **new_types}.items():
        same_name = names.setdefault(name.lower(), name)
        if same_name != name:
            raise LakeError(
                f"{path} has {same_name} and {name}, which Spark and Athena take for one",
                hint="rename one at the source",
            )
        old_type = old_types.get(name, new_type)
        merged.add(name, _merge_types(old_type, new_type, f"{path}.{name}"))
    return merged


def _merge_types(old: Any, new: Any, path: str) -> T.DataType:
    kind = type(old) if isinstance(new, type(old)) else None
    if kind is T.StructType:
        return _merge_fields(old, new, path)
    if kind is T.ArrayType:
        return T.ArrayType(_merge_types(old.elementType, new.elementType, f"{path}[]"))
    if kind is T.MapType:
        value = _merge_types(old.valueType, new.valueType, f"{path}{{}}")
        return T.MapType(T.StringType(), value)
    if old == new or _can_widen(new, old):
        return cast(T.DataType, old)
    if _can_widen(old, new):
        return cast(T.DataType, new)
    widenings = ", ".join(f"{a} to {b}" for a, b in sorted(LOSSLESS_WIDENINGS))
    raise LakeError(
        f"{path} was {old.simpleString()} and becomes {new.simpleString()}: its column cannot follow",
        expected=f"a new column, or a wider one: {widenings}",
        hint=INCOMPATIBLE_HINT,
    )


def _can_widen(old: T.DataType, new: T.DataType) -> bool:
    """Return whether the type `new` holds every value of the type `old`."""
    if isinstance(old, T.DecimalType) and isinstance(new, T.DecimalType):
        return new.scale >= old.scale and new.precision - new.scale >= old.precision - old.scale
    return _type_names(old, new) in LOSSLESS_WIDENINGS


def field_types(schema: T.StructType) -> dict[str, str]:
    """Return {name: type} of a schema's fields."""
    return {f.name: f.dataType.simpleString() for f in schema}


def describe_change(
    old: Mapping[str, str], new: Mapping[str, str], table: Mapping[str, str]
) -> str:
    """Describe how the schema of a source changed; "" if it did not.

    Args:
        old: the older fields, as `field_types` returns them.
        new: the newer fields.
        table: the columns of the table.
    """
    added, changed = [], []
    for name, kind in new.items():
        if name not in old:
            added.append(f"added {name} {kind}")
        elif old[name] == kind:
            continue
        elif table[name] == kind:
            changed.append(f"widened {name} {old[name]} to {kind}")
        else:
            changed.append(f"changed {name} {old[name]} to {kind}, in a column of {table[name]}")
    dropped = [
        f"dropped {name} {kind}, which stays and is null in new rows"
        for name, kind in old.items()
        if name not in new
    ]
    return "; ".join([*added, *changed, *dropped])
