"""A table whose source changes its columns: which columns it has then, and what is said of the
change.

The lake outlives each version of a schema, so a table has the columns of all of them, every one may
be null, and a column only becomes wider. A column that is new is put behind the others and reads as
null in older rows; one that is gone stays and is null in newer rows; one that is renamed is both.
What no column holds stops the ingest.
"""

import json
from functools import reduce
from typing import Callable, Collection, Mapping, Optional

from pyspark.sql import types as T

from ..base import LakeError
from ..topic import avro
from .timeline import CompletedAction

# (from, to): of numbers that lose nothing. (Avro lets a reader see a long as a double, too, of
# which not all digits are there.) Hudi reads them so in older files; a float as the double of the
# same few digits, 0.1 as 0.1.
LOSSLESS_WIDENINGS = {("int", "bigint"), ("int", "double"), ("float", "double")}
# Hudi has no smaller whole number than int: a column of these becomes one.
SMALL_INTEGERS = {
    (small, wide) for small in ("tinyint", "smallint") for wide in ("int", "bigint", "double")
} | {("tinyint", "smallint")}
# What Hudi reads so, too, but no reader of Avro, and no query expects: where a person says so.
TEXT_CONVERSIONS = {("int", "string"), ("bigint", "string")}
RECAPTURE_HINT = (
    "capture it anew, as topic and registry keep both types: recapture.run(spark, world, connector, config, "
    "recapture.CapturedTable(source, table)) takes a new snapshot into a new topic and then replaces the table"
)
INCOMPATIBLE_HINT = (
    "say which type it is to be with hudi.ingest(…, schema=…): the old one, and what it cannot read is a dead "
    "letter, which a replay brings in once the source is mended; or string for a whole number that is no key, "
    f"which the column becomes. Or {RECAPTURE_HINT}"
)
WideningRule = Callable[
    [T.DataType, T.DataType], bool
]  # whether a column of one type may become one of another


def table_columns(done: list[CompletedAction]) -> Optional[T.StructType]:
    """The columns that the last of a table's commits says, without Hudi's own; None before the
    first one.
    """
    texts = (commit.metadata.get("extraMetadata", {}).get("schema") for commit in reversed(done))
    text = next(filter(None, texts), None)
    found = avro.to_spark(json.loads(text)) if text else None
    return found and T.StructType([f for f in found if not f.name.startswith("_hoodie_")])


def merge_schemas(where: str, *types: T.StructType) -> T.StructType:
    """The fields of all, the oldest first, each of a type that holds the values of all: what
    messages are read into.

    Args: where: whose they are, for what is said of them.
    Raises: LakeError: there is no such type; names the field and both. Or names differ in upper and
        lower case only.
    """
    return reduce(
        lambda old, new: _merge_fields(old, new, where, _can_widen, _can_widen), types, types[0]
    )


def evolve(
    where: str, table: T.StructType, rows: T.StructType, as_text: bool, key: Collection[str] = ()
) -> T.StructType:
    """The columns of a table that takes rows in. Some are wider than Hudi's readers see in older
    files: see `needs_rewrite`.

    Args:
        as_text: whether a whole number may become a text.
        key: columns of the table's key, whose type stays (but for int to bigint): Hudi finds a row
            by its key's text.
    Raises: LakeError: a key column would change its type; and as `merged`.
    """
    _check_key_types(where, table, rows, key)
    texts = TEXT_CONVERSIONS if as_text else set()
    return _merge_fields(
        table,
        rows,
        where,
        lambda old, new: _can_widen(old, new) or _type_names(old, new) in texts,
        _can_widen,
    )


def needs_rewrite(old: T.DataType, new: T.DataType, inside: bool = False) -> bool:
    """Whether no reader of Hudi sees the values of older files as those of the new columns: a
    decimal of more digits anywhere, and a wider number inside a struct, a list or a map (Spark
    3.5.7, Hudi 1.0.2).

    Args: old, new: columns of a table; the new ones as `grown` returns them.
    """
    if isinstance(old, T.StructType) and isinstance(new, T.StructType):
        after = {f.name: f.dataType for f in new}
        return any(
            needs_rewrite(f.dataType, after[f.name], inside or _is_nested(f.dataType)) for f in old
        )
    if isinstance(old, T.ArrayType) and isinstance(new, T.ArrayType):
        return needs_rewrite(old.elementType, new.elementType, True)
    if isinstance(old, T.MapType) and isinstance(new, T.MapType):
        return needs_rewrite(old.valueType, new.valueType, True)
    return old != new and (
        inside or _type_names(old, new) not in LOSSLESS_WIDENINGS | TEXT_CONVERSIONS
    )


def _is_nested(kind: T.DataType) -> bool:
    return isinstance(kind, (T.StructType, T.ArrayType, T.MapType))


def _type_names(old: T.DataType, new: T.DataType) -> tuple[str, str]:
    return old.simpleString(), new.simpleString()


def _check_key_types(
    where: str, table: T.StructType, rows: T.StructType, key: Collection[str]
) -> None:
    after = {f.name: f.dataType for f in rows}
    for name, old in ((f.name, f.dataType) for f in table if f.name in key):
        new = after.get(name, old)
        if not (old == new or _can_widen(new, old) or _type_names(old, new) == ("int", "bigint")):
            raise LakeError(
                f"{where}.{name} is {old.simpleString()} and would become {new.simpleString()}: a key "
                "column keeps its type",
                expected="the same type, or bigint after int",
                hint="leave its type as it was: of a bigint unsigned set the connector's "
                "bigint.unsigned.handling.mode (long: bigint; precise: decimal(20,0)). "
                f"Or {RECAPTURE_HINT}",
            )


def _merge_fields(
    old: T.StructType, new: T.StructType, where: str, wider: WideningRule, inside: WideningRule
) -> T.StructType:
    """wider: for these fields; inside: for what is in them."""
    before, after = ({f.name: f.dataType for f in of} for of in (old, new))
    alike = {name.lower(): name for name in (*after, *before)}
    twice = [name for name in {**before, **after} if alike[name.lower()] != name]
    if twice:
        raise LakeError(
            f"{where} has {alike[twice[0].lower()]} and {twice[0]}, which Spark and Athena take for one",
            hint="rename one at the source; or leave one out: hudi.ingest(…, schema=…)",
        )
    return T.StructType(
        [
            T.StructField(
                name,
                _merge_types(
                    before.get(name, after.get(name)),
                    after.get(name, before.get(name)),
                    f"{where}.{name}",
                    wider,
                    inside,
                ),
            )
            for name in {**before, **after}
        ]
    )


def _merge_types(
    old: T.DataType, new: T.DataType, where: str, wider: WideningRule, inside: WideningRule
) -> T.DataType:
    if isinstance(old, T.StructType) and isinstance(new, T.StructType):
        return _merge_fields(old, new, where, inside, inside)
    if isinstance(old, T.ArrayType) and isinstance(new, T.ArrayType):
        return T.ArrayType(
            _merge_types(old.elementType, new.elementType, f"{where}[]", inside, inside)
        )
    if isinstance(old, T.MapType) and isinstance(new, T.MapType):
        return T.MapType(
            T.StringType(),
            _merge_types(old.valueType, new.valueType, f"{where}{{}}", inside, inside),
        )
    if old == new or _can_widen(new, old):
        return old
    if wider(old, new):
        return new
    raise LakeError(
        f"{where} was {old.simpleString()} and becomes {new.simpleString()}: its column cannot follow",
        expected="a new column, or a wider one: "
        + ", ".join(f"{a} to {b}" for a, b in sorted(LOSSLESS_WIDENINGS)),
        hint=INCOMPATIBLE_HINT,
    )


def _can_widen(old: T.DataType, new: T.DataType) -> bool:
    return _type_names(old, new) in LOSSLESS_WIDENINGS | SMALL_INTEGERS or is_wider_decimal(
        old, new
    )


def is_wider_decimal(have: T.DataType, want: T.DataType) -> bool:
    """Whether every decimal of type `have` is one of type `want`. (Avro wants equal types here;
    nothing gets lost.)
    """
    if not (isinstance(have, T.DecimalType) and isinstance(want, T.DecimalType)):
        return False
    return want.scale >= have.scale and want.precision - want.scale >= have.precision - have.scale


def leaf_paths(schema: T.DataType, path: str = "") -> set[str]:
    """Paths of the columns of a schema, those within structs too."""
    if isinstance(schema, T.StructType):
        return {leaf for f in schema for leaf in leaf_paths(f.dataType, f"{path}.{f.name}")}
    if isinstance(schema, T.ArrayType):
        return leaf_paths(schema.elementType, f"{path}[]")
    if isinstance(schema, T.MapType):
        return leaf_paths(schema.valueType, f"{path}{{}}")
    return {path}


def field_types(schema: T.StructType) -> dict[str, str]:
    """{name: type} of a schema's fields."""
    return {f.name: f.dataType.simpleString() for f in schema}


def describe_change(
    before: Mapping[str, str], now: Mapping[str, str], table: Mapping[str, str]
) -> str:
    """What has changed from one schema of the source to the next, in the columns of the table; ""
    if nothing. Each as `fields` gives it.
    """
    return "; ".join(
        [
            *(f"added {name} {kind}" for name, kind in now.items() if name not in before),
            *(
                f"widened {name} {before[name]} to {kind}"
                if table[name] == kind
                else f"changed {name} {before[name]} to {kind}, in a column of {table[name]}"
                for name, kind in now.items()
                if before.get(name, kind) != kind
            ),
            *(
                f"dropped {name} {kind}, which stays and is null in new rows"
                for name, kind in before.items()
                if name not in now
            ),
        ]
    )
