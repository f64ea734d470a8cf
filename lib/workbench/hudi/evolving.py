"""A table whose source changes its columns: which columns it has then, and what is said of the change.

The lake outlives each version of a schema, so a table has the columns of all of them, every one may be null, and a
column only becomes wider. A column that is new is put behind the others and reads as null in older rows; one that is
gone stays and is null in newer rows; one that is renamed is both. What no column holds stops the ingest.
"""
import json
from functools import reduce
from typing import Mapping, Optional

from pyspark.sql import types as T

from ..base import LakeError
from ..topic import avro
from .timeline import Done

# (from, to): of numbers that lose nothing. (Avro lets a reader see a long as a double, too, of which not all digits are
# there.)
WIDER = {("int", "bigint"), ("int", "double"), ("float", "double")}
CHOICES = ("go on with the old type, hudi.ingest(…, schema=…): what it cannot read is a dead letter, which a replay "
           "brings in once the source is mended; or hudi.drop, and ingest anew with schema=… of the new type")


def columns(done: list[Done]) -> Optional[T.StructType]:
    """The columns that the last of a table's commits says, without Hudi's own; None before the first one."""
    texts = (commit.body.get("extraMetadata", {}).get("schema") for commit in reversed(done))
    text = next(filter(None, texts), None)
    found = avro.to_spark(json.loads(text)) if text else None
    return found and T.StructType([f for f in found if not f.name.startswith("_hoodie_")])


def merged(where: str, *types: T.DataType) -> T.DataType:
    """The type that holds the values of all, the oldest first: of records the fields of all.

    Args: where: whose types they are, for what is said of them.
    Raises: LakeError: there is none; names the field and both types. Or names differ in upper and lower case only.
    """
    return reduce(lambda old, new: _merged(old, new, where), types, types[0])


def _merged(old: T.DataType, new: T.DataType, where: str) -> T.DataType:
    if isinstance(old, T.StructType) and isinstance(new, T.StructType):
        known = {f.name: f.dataType for f in (*new, *old)}  # of a name that both have, the old type
        newer = {f.name: f.dataType for f in new}
        names = [*old.fieldNames(), *(f.name for f in new if f.name not in old.fieldNames())]
        alike: dict[str, str] = {}
        for name in names:
            other = alike.setdefault(name.lower(), name)
            if other != name:
                raise LakeError(f"{where} has {other} and {name}, which are one name to Spark and to Athena",
                                next_step="rename one at the source; or leave one out: hudi.ingest(…, schema=…)")
        return T.StructType([
            T.StructField(n, _merged(known[n], newer.get(n, known[n]), f"{where}.{n}")) for n in names])
    if isinstance(old, T.ArrayType) and isinstance(new, T.ArrayType):
        return T.ArrayType(_merged(old.elementType, new.elementType, f"{where}[]"))
    if isinstance(old, T.MapType) and isinstance(new, T.MapType):
        return T.MapType(T.StringType(), _merged(old.valueType, new.valueType, f"{where}{{}}"))
    if _holds(new, old):
        return new
    if _holds(old, new):
        return old
    raise LakeError(f"{where} was {old.simpleString()} and becomes {new.simpleString()}: no column holds both",
                    expected="a new column, or a wider type: " + ", ".join(f"{a} to {b}" for a, b in sorted(WIDER))
                    + ", a decimal of more digits", next_step=CHOICES)


def _holds(wide: T.DataType, narrow: T.DataType) -> bool:
    names = (narrow.simpleString(), wide.simpleString())
    return names[0] == names[1] or names in WIDER or more_digits(narrow, wide)


def more_digits(have: T.DataType, want: T.DataType) -> bool:
    """Whether every decimal of type `have` is one of type `want`. (Avro wants equal types here; nothing gets lost.)"""
    if not (isinstance(have, T.DecimalType) and isinstance(want, T.DecimalType)):
        return False
    return want.scale >= have.scale and want.precision - want.scale >= have.precision - have.scale


def fields(schema: T.StructType) -> dict[str, str]:
    """{name: type} of a schema's fields."""
    return {f.name: f.dataType.simpleString() for f in schema}


def told(before: Mapping[str, str], now: Mapping[str, str], table: Mapping[str, str]) -> str:
    """What has changed from one schema of the source to the next, and what the table makes of it; "" if nothing.

    Args: before, now, table: `fields` of the schemas, and of the table that both go into.
    """
    new = [f"added {name} {kind}" for name, kind in now.items() if name not in before]
    gone = [f"dropped {name} {kind}, which stays and is null in new rows" for name, kind in before.items()
            if name not in now]
    other = [(name, before[name], kind) for name, kind in now.items() if before.get(name, kind) != kind]
    return "; ".join([*new, *(f"widened {name} {old} to {kind}" if table[name] == kind else
                              f"narrowed {name} {old} to {kind}, in a column of {table[name]} as before"
                              for name, old, kind in other), *gone])
