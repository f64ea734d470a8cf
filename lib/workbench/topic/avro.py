"""Avro: one record's bytes and the object container file around many, by fastavro (Apache Avro
specification 1.11.1, "Object Container Files"); and schemas as Spark understands them.

For the landing, which must know that a message is exactly one record before it puts it between
others, and for looking at single messages. `reader` and `container` travel into Spark tasks by
value. What is malformed raises ValueError.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any, Callable, Sequence, Union

import yaml
from pyspark.sql import types as T

from ..base import LakeError, did_you_mean

MAX_SOURCE_DIGITS = (
    131_072 + 16_383
)  # the most that PostgreSQL's numeric has, before and after the point
TYPE_MAPPINGS = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
# What the next version of a schema must be able to do: read what was written with the one before it
# (BACKWARD), be read by that (FORWARD), both (FULL); TRANSITIVE: not that one only, but all before
# it.
COMPATIBILITY_MODES = (
    "NONE",
    *(kind + every for kind in ("BACKWARD", "FORWARD", "FULL") for every in ("", "_TRANSITIVE")),
)
MAX_DIGITS = 38  # the most that a decimal of Spark has
SPARK_TYPES = {
    kind: getattr(T, name)() for kind, name in TYPE_MAPPINGS["spark"].items()
}  # by Avro's type and its logical type
Reader = Callable[[bytes], Any]


class UnsafeSchema(LakeError):
    """A schema by which no message is decoded, whoever has registered it."""


EMPTY_ITEMS_MESSAGE = (
    "the items of an array take no bytes, so a few bytes can claim millions of them"
)


# --- one record
# ------------------------------------------------------------------------------------------------------


def create_reader(avsc: Any, *, raw_values: bool = False) -> Reader:
    """What reads the value that some bytes are, no byte less or more; it raises ValueError where
    they are not one.

    Args:
        avsc: the schema. plain: do not turn numbers and bytes into dates, times and decimals:
            Python has not all of those that Avro has (its years end at 9999).
    Raises: ValueError: not an Avro schema.
    """
    import fastavro

    try:
        parsed = fastavro.parse_schema(
            map_schema(avsc, _without_logical_type if raw_values else _widen_decimals)
        )
        empty = _has_empty_items(fastavro.schema.expand_schema(avsc))
    except Exception as e:  # noqa: BLE001 - it has errors of many classes
        raise ValueError(f"not an Avro schema: {type(e).__name__}: {e}") from None
    if empty:
        raise ValueError(EMPTY_ITEMS_MESSAGE)

    def read(data: bytes) -> Any:
        stream = io.BytesIO(data)
        try:
            value = fastavro.schemaless_reader(stream, parsed, None)
        except (Exception, RecursionError) as e:  # noqa: BLE001 - as many as there are ways to be malformed
            raise ValueError(f"{type(e).__name__}: {e}") from None
        if stream.tell() != len(data):
            raise ValueError(f"{len(data) - stream.tell()} bytes are left over")
        return value

    return read


def map_schema(avsc: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """A copy of a schema with each of its parts changed by `change`, the innermost ones first."""
    if isinstance(avsc, list):
        return [map_schema(each, change) for each in avsc]
    if not isinstance(avsc, dict):
        return avsc
    return change(
        {
            k: map_schema(v, change) if k in ("type", "items", "values", "fields") else v
            for k, v in avsc.items()
        }
    )


def _has_empty_items(avsc: Any) -> bool:
    """Whether an expanded schema has an array whose items take no bytes. Without one, the bytes of
    a message bound the memory and the time that it takes to decode.
    """
    if isinstance(avsc, list):
        return any(map(_has_empty_items, avsc))
    if not isinstance(avsc, dict):
        return False
    inner = [
        avsc.get("type"),
        avsc.get("items"),
        avsc.get("values"),
        *(f["type"] for f in avsc.get("fields", ())),
    ]
    return (
        avsc.get("type") == "array"
        and _takes_no_bytes(avsc["items"])
        or any(map(_has_empty_items, inner))
    )


def _takes_no_bytes(avsc: Any) -> bool:
    """Whether every value of an expanded schema is encoded in no bytes."""
    if not isinstance(avsc, dict):
        return avsc == "null"
    if avsc["type"] == "record":
        return all(_takes_no_bytes(f["type"]) for f in avsc["fields"])
    return avsc["type"] == "fixed" and not avsc["size"] or _takes_no_bytes(avsc["type"])


def _widen_decimals(found: dict[str, Any]) -> dict[str, Any]:
    """Decimals of any number of digits: one of more than its schema says would be rounded by
    fastavro.
    """
    if (
        found.get("logicalType") == "decimal"
        and found.get("type") == "bytes"
        and "precision" in found
    ):
        found["precision"] = max(found["precision"], MAX_SOURCE_DIGITS)
    return found


def _without_logical_type(found: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in found.items() if k != "logicalType"}


def parse_schema(text: Union[str, bytes], where: str) -> Any:
    """A schema as a registry gives it. Raises: LakeError: it is not JSON."""
    try:
        return json.loads(text)
    except ValueError:
        raise LakeError(
            "the registry holds something that is not an Avro schema",
            location=where,
            expected="JSON",
        ) from None


# --- a file of records
# -----------------------------------------------------------------------------------------------


def encode_container(avsc: Any, values: Sequence[Any], sync_marker: bytes, **more: str) -> bytes:
    """A file of records of one schema, not compressed.

    Args:
        avsc: the schema. values: as `reader(…, plain=True)` gives them. sync: 16 bytes that end
            each block; the same give the same file. more: further metadata of the file.
    """
    import fastavro

    out = io.BytesIO()
    fastavro.writer(
        out, fastavro.parse_schema(avsc), values, sync_marker=sync_marker, metadata=more
    )
    return out.getvalue()


def container_schema(data: bytes) -> str:
    """JSON of the schema that a container file was written with; the file is gone through to its
    end.

    Raises: ValueError: it is none, it is cut off, or it has no schema.
    """
    import fastavro

    try:
        blocks = fastavro.block_reader(io.BytesIO(data))
        for _ in blocks:
            pass
    except Exception as e:  # noqa: BLE001 - see reader
        raise ValueError(f"{type(e).__name__}: {e}") from None
    return blocks.metadata["avro.schema"]


# --- which schema reads what another has written
# ---------------------------------------------------------------------


def validate_mode(mode: str) -> str:
    """A compatibility mode, as it is. Raises: LakeError: it is none."""
    if mode not in COMPATIBILITY_MODES:
        raise LakeError(
            f"there is no compatibility mode {mode!r}",
            expected=did_you_mean(str(mode), COMPATIBILITY_MODES),
        )
    return mode


def check_compatibility(old: Sequence[Any], new: Any, mode: str) -> str:
    """Whether a schema may follow others by Avro's rules ("Schema Resolution", as Avro's own
    library has them).

    Args:
        old: the versions that there are, the oldest first; a mode that is not transitive looks at
            the last only.
        new: the next one. mode: one of MODES.

    Returns: "" where it may, else why not.
    Raises: LakeError: another mode, or no Avro schema.
    """
    from avro import compatibility, errors, schema

    kind, _, every = validate_mode(mode).partition("_")
    try:
        *before, after = (
            schema.parse(json.dumps(each)) for each in (*(old if every else old[-1:]), new)
        )
    except errors.AvroException as e:
        raise LakeError(f"not an Avro schema: {e}", location=full_name(new)) from None
    reads = [(after, each) for each in before if kind in ("BACKWARD", "FULL")]
    reads += [(each, after) for each in before if kind in ("FORWARD", "FULL")]
    found = [
        compatibility.ReaderWriterCompatibilityChecker().get_compatibility(*pair) for pair in reads
    ]
    return "; ".join(
        f"{', '.join(dict.fromkeys(k.value.replace('_', ' ') for k in each.incompatibilities))}: "
        f"{', '.join(sorted(each.messages))}"
        for each in found
        if each.incompatibilities
    )


# --- schemas as Spark has them
# ---------------------------------------------------------------------------------------


def for_spark(avsc: Any) -> Any:
    """Return an Avro schema as the registry has it, with every logical type said in the way that
    Spark understands.

    Debezium's dates and timestamps get Avro's logical type; a time of day becomes the plain number
    that it is. A decimal of more digits than Spark has (Connect's converters say 64 where the
    source says nothing) gets Spark's 38: a value that does not fit does not decode. Nothing changes
    in how the bytes are read.
    """
    return map_schema(avsc, _to_spark_logical_type)


def _to_spark_logical_type(found: dict[str, Any]) -> dict[str, Any]:
    kind, logical = TYPE_MAPPINGS["debezium"].get(found.get("connect.name", ""), (None, None))
    if kind is not None and found.get("type") == kind:
        found["logicalType"] = logical
    if found.get("logicalType") in ("time-millis", "time-micros"):
        del found["logicalType"]
    if found.get("logicalType") == "decimal" and found.get("precision", 0) > MAX_DIGITS:
        found["precision"] = MAX_DIGITS
    return found


def full_name(avsc: Any) -> str:
    """Return the full name of an Avro record schema; of another, its type."""
    if not isinstance(avsc, dict):
        return str(avsc)
    return ".".join(p for p in (avsc.get("namespace"), avsc.get("name")) if p) or str(
        avsc.get("type")
    )


def is_record(avsc: Any) -> bool:
    return isinstance(avsc, dict) and avsc.get("type") == "record"


def to_spark(avsc: Any) -> T.StructType:
    """Return the Spark type of an Avro record schema.

    Raises:
        LakeError: no schema of a record, or a type Spark has no equal for (union of several, fixed,
            time of day, recursion). UnsafeSchema: an array's items take no bytes; two fields of a
            record differ in case only.
    """
    import fastavro

    try:
        whole = fastavro.schema.expand_schema(
            avsc
        )  # a name that comes again is the record that it names
    except Exception as e:  # noqa: BLE001 - see reader
        raise LakeError(
            f"not an Avro schema: {type(e).__name__}: {e}", location=full_name(avsc)
        ) from None
    if not is_record(whole):
        raise LakeError(
            "the Avro schema is not a record",
            location=str(avsc)[:80],
            expected='{"type": "record", …}',
        )
    if _has_empty_items(whole):
        raise UnsafeSchema(
            EMPTY_ITEMS_MESSAGE, location=full_name(avsc), expected="items of one byte at least"
        )
    return _spark_type(whole, whole["name"])[0]


def _spark_type(avsc: Any, where: str) -> tuple[T.DataType, bool]:
    """Return (Spark's type, whether it may be null)."""
    if isinstance(avsc, list):
        branches = [b for b in avsc if b != "null"]
        if len(branches) != 1:
            raise LakeError(
                f"no Spark type for a union of {len(branches)} types",
                location=where,
                expected='["null", one type]',
            )
        return _spark_type(branches[0], where)[0], "null" in avsc
    if isinstance(avsc, str):
        avsc = {"type": avsc}
    if not isinstance(avsc["type"], str):  # a type within a type
        return _spark_type(avsc["type"], where)
    kind, logical = avsc["type"], avsc.get("logicalType")
    if kind == "record":
        names = {f["name"].lower(): f["name"] for f in avsc["fields"]}
        twice = [f["name"] for f in avsc["fields"] if names[f["name"].lower()] != f["name"]]
        if twice:
            raise UnsafeSchema(
                f"{where} has {names[twice[0].lower()]} and {twice[0]}, which Spark and Athena take for "
                "one",
                location=where,
                hint="rename one at the source",
            )
        return T.StructType(
            [
                T.StructField(f["name"], *_spark_type(f["type"], f"{where}.{f['name']}"))
                for f in avsc["fields"]
            ]
        ), False
    if kind == "array":
        return T.ArrayType(*_spark_type(avsc["items"], f"{where}[]")), False
    if kind == "map":
        return T.MapType(T.StringType(), *_spark_type(avsc["values"], f"{where}{{}}")), False
    if (
        kind in ("bytes", "fixed")
        and logical == "decimal"
        and avsc.get("precision", MAX_DIGITS + 1) <= MAX_DIGITS
    ):
        return T.DecimalType(avsc["precision"], avsc.get("scale", 0)), False
    found = SPARK_TYPES.get(" ".join(filter(None, [kind, logical])))
    if found is None:
        raise LakeError(
            f"no Spark type for Avro type {kind!r}"
            + (f" with logicalType {logical!r}" if logical else ""),
            location=where,
            expected=f"a decimal of at most {MAX_DIGITS} digits, " + ", ".join(SPARK_TYPES),
        )
    return found, False
