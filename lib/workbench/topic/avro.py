"""Avro: single records, object container files, compatibility, and conversion of schemas to Spark.

fastavro reads and writes records and files (Apache Avro specification 1.11.1, "Object Container
Files"). The landing uses this module, because it must verify that a message is exactly one record
before it writes the record to a file. Functions that show single messages use it, too.
Malformed data raises ValueError.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any, Callable, Sequence, Union

import fastavro
from pyspark.sql import types as T

from ..base import LakeError, did_you_mean, yaml_files

TYPE_MAPPINGS = yaml_files.load(Path(__file__).with_suffix(".yaml"))
# BACKWARD: the next version of a schema can read data written with the previous version. FORWARD: the
# previous version can read data written with the next one. FULL: both. TRANSITIVE: with all previous
# versions.
COMPATIBILITY_MODES = (
    "NONE",
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
)
MAX_SOURCE_DIGITS = 131_072 + 16_383  # digits of PostgreSQL's numeric, before and after the point
MAX_DIGITS = 38  # digits of Spark's decimal
# {"<Avro type> <logical type>": Spark's type}
SPARK_TYPES: dict[str, T.DataType] = {
    avro: getattr(T, name)() for avro, name in TYPE_MAPPINGS["spark"].items()
}
Reader = Callable[[bytes], Any]


# --- one record


def create_reader(avsc: Any, *, raw_values: bool = False) -> Reader:
    """Return a function that decodes the bytes of exactly one value.

    The function raises ValueError if the bytes are not exactly one value of the schema.

    Args:
        avsc: the schema.
        raw_values: whether dates, times and decimals stay numbers and bytes. Python cannot represent
            all values of Avro: its years end at 9999.

    Raises:
        ValueError: the schema is not an Avro schema.
    """
    try:
        change = _without_logical_type if raw_values else _widen_decimals
        schema = fastavro.parse_schema(map_schema(avsc, change))
    except Exception as e:  # noqa: BLE001 - fastavro raises errors of many classes
        raise ValueError(f"not an Avro schema: {type(e).__name__}: {e}") from None

    def read(data: bytes) -> Any:
        stream = io.BytesIO(data)
        try:
            value = fastavro.schemaless_reader(stream, schema, None)
        except (Exception, RecursionError) as e:  # noqa: BLE001 - one class for each kind of malformed data
            raise ValueError(f"{type(e).__name__}: {e}") from None
        left_over = len(data) - stream.tell()
        if left_over:
            raise ValueError(f"{left_over} bytes follow the value")
        return value

    return read


def map_schema(avsc: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """Return a copy of a schema with `change` applied to each of its parts, the innermost first."""
    if isinstance(avsc, list):
        return [map_schema(branch, change) for branch in avsc]
    if not isinstance(avsc, dict):
        return avsc
    nested = avsc.keys() & {"type", "items", "values", "fields"}
    return change({**avsc, **{key: map_schema(avsc[key], change) for key in nested}})


def _widen_decimals(avsc: dict[str, Any]) -> dict[str, Any]:
    """Raise the precision of decimals: fastavro would round values with more digits than declared."""
    if avsc.get("type") == "bytes" and avsc.get("logicalType") == "decimal":
        avsc["precision"] = MAX_SOURCE_DIGITS
    return avsc


def _without_logical_type(avsc: dict[str, Any]) -> dict[str, Any]:
    avsc.pop("logicalType", None)
    return avsc


def parse_schema(text: Union[str, bytes], location: str) -> Any:
    """Return the schema in a registry's JSON.

    Raises:
        LakeError: the text is not JSON.
    """
    try:
        return json.loads(text)
    except ValueError:
        raise LakeError(
            "the registry has an entry that is not an Avro schema",
            location=location,
            expected="JSON",
        ) from None


# --- a file of records


def encode_container(
    avsc: Any, values: Sequence[Any], sync_marker: bytes, **metadata: str
) -> bytes:
    """Return the bytes of an object container file, with records of one schema, without compression.

    Args:
        avsc: the schema.
        values: the records, as `create_reader(…, raw_values=True)` returns them.
        sync_marker: the 16 bytes after each block; the same marker gives the same file.
        metadata: further metadata of the file.
    """
    out = io.BytesIO()
    fastavro.writer(
        out, fastavro.parse_schema(avsc), values, sync_marker=sync_marker, metadata=metadata
    )
    return out.getvalue()


def container_schema(data: bytes) -> str:
    """Return the schema (JSON) of a container file after reading the file to its end.

    Raises:
        ValueError: the data is not a container file, is truncated, or has no schema.
    """
    try:
        blocks = fastavro.block_reader(io.BytesIO(data))
        for _ in blocks:
            pass
    except Exception as e:  # noqa: BLE001 - fastavro raises errors of many classes
        raise ValueError(f"{type(e).__name__}: {e}") from None
    return blocks.metadata["avro.schema"]


# --- compatibility of two schemas


def validate_mode(mode: str) -> str:
    """Return a compatibility mode unchanged.

    Raises:
        LakeError: there is no such mode.
    """
    if mode not in COMPATIBILITY_MODES:
        raise LakeError(
            f"there is no compatibility mode {mode!r}",
            expected=did_you_mean(str(mode), COMPATIBILITY_MODES),
        )
    return mode


def check_compatibility(old: Sequence[Any], new: Any, mode: str) -> str:
    """Check by Avro's rules ("Schema Resolution") whether a schema may follow other versions.

    Avro's own library implements the rules.

    Args:
        old: the existing versions, the oldest first. A mode without _TRANSITIVE compares only the
            last one.
        new: the next version.
        mode: one of COMPATIBILITY_MODES.

    Returns:
        "" if the schema is compatible, else the reason why it is not.

    Raises:
        LakeError: there is no such mode, or a schema is not Avro.
    """
    from avro import compatibility, errors, schema

    direction, _, transitive = validate_mode(mode).partition("_")
    compared = old if transitive else old[-1:]
    try:
        *before, after = (schema.parse(json.dumps(avsc)) for avsc in (*compared, new))
    except errors.AvroException as e:
        raise LakeError(f"not an Avro schema: {e}", location=full_name(new)) from None
    pairs = []  # (reader, writer)
    if direction in ("BACKWARD", "FULL"):
        pairs += [(after, version) for version in before]
    if direction in ("FORWARD", "FULL"):
        pairs += [(version, after) for version in before]
    reasons = []
    for reader, writer in pairs:
        checker: Any = compatibility.ReaderWriterCompatibilityChecker
        result = checker().get_compatibility(reader, writer)
        kinds = dict.fromkeys(kind.value.replace("_", " ") for kind in result.incompatibilities)
        if kinds:
            reasons.append(f"{', '.join(kinds)}: {', '.join(sorted(result.messages))}")
    return "; ".join(reasons)


# --- conversion of schemas to Spark


def for_spark(avsc: Any, as_numbers: bool = False) -> Any:
    """Return an Avro schema of the registry with the logical types that Spark understands.

    Debezium's dates and timestamps get Avro's logical types. A time of day becomes a plain number. A
    decimal with a higher precision than Spark's 38 gets precision 38, and a larger value fails to
    decode. (Connect's converters write precision 64 if the source declares none.) The encoding of
    values does not change.

    Args:
        avsc: the schema.
        as_numbers: whether the dates and timestamps of Connect and Debezium stay numbers, as in JSON.
    """
    return map_schema(avsc, _to_plain_type if as_numbers else _to_spark_logical_type)


def _to_plain_type(avsc: dict[str, Any]) -> dict[str, Any]:
    avsc = _to_spark_logical_type(avsc)
    if "connect.name" in avsc and avsc.get("logicalType") != "decimal":
        avsc.pop("logicalType", None)
    return avsc


def _to_spark_logical_type(avsc: dict[str, Any]) -> dict[str, Any]:
    kind, logical = TYPE_MAPPINGS["debezium"].get(avsc.get("connect.name", ""), (None, None))
    if kind is not None and avsc.get("type") == kind:
        avsc["logicalType"] = logical
    if avsc.get("logicalType") in ("time-millis", "time-micros"):
        del avsc["logicalType"]
    if avsc.get("logicalType") == "decimal" and avsc.get("precision", 0) > MAX_DIGITS:
        avsc["precision"] = MAX_DIGITS
    return avsc


def full_name(avsc: Any) -> str:
    """Return the full name of an Avro record schema, the type of any other schema."""
    if not isinstance(avsc, dict):
        return str(avsc)
    parts = [avsc[key] for key in ("namespace", "name") if avsc.get(key)]
    return ".".join(parts) or str(avsc.get("type"))


def is_record(avsc: Any) -> bool:
    """Return whether an Avro schema is a record schema."""
    return isinstance(avsc, dict) and avsc.get("type") == "record"


def to_spark(avsc: Any) -> T.StructType:
    """Return the Spark type of an Avro record schema, in which all may be null.

    Raises:
        LakeError: the schema is not a record schema, or has a type without an equivalent in Spark
            (union of several types, fixed, time of day, recursion), or two fields of a record whose names
            differ only in case, which are one column for Spark.
    """
    try:
        # expand_schema replaces each reference to a named type by its definition
        expanded: Any = fastavro.schema.expand_schema(avsc)
    except Exception as e:  # noqa: BLE001 - fastavro raises errors of many classes
        raise LakeError(
            f"not an Avro schema: {type(e).__name__}: {e}", location=full_name(avsc)
        ) from None
    if not is_record(expanded):
        raise LakeError(
            "the Avro schema is not a record",
            location=str(avsc)[:80],
            expected='{"type": "record", …}',
        )
    return _struct_type(expanded["fields"], expanded["name"])


def connect_names(avsc: Any) -> list[str]:
    """Return the name of Connect's type of each field of a record, of a list that of its elements.

    It is "" for a type without a name.
    """
    expanded: Any = fastavro.schema.expand_schema(avsc)
    return [_connect_name(field["type"]) for field in expanded["fields"]]


def _connect_name(avsc: Any) -> str:
    if isinstance(avsc, list):
        return next(filter(None, map(_connect_name, avsc)), "")
    if not isinstance(avsc, dict):
        return ""
    return avsc.get("connect.name") or _connect_name(avsc.get("items"))


def _struct_type(fields: Sequence[dict[str, Any]], path: str) -> T.StructType:
    names: dict[str, str] = {}
    struct = T.StructType()
    for field in fields:
        name = field["name"]
        same_name = names.setdefault(name.lower(), name)
        if same_name != name:
            raise LakeError(
                f"{path} has {name} and {same_name}, which Spark and Athena take for one",
                location=path,
                hint="rename one at the source",
            )
        struct.add(name, _spark_type(field["type"], f"{path}.{name}"))
    return struct


def _spark_type(avsc: Any, path: str) -> T.DataType:
    if isinstance(avsc, list):
        branches = [branch for branch in avsc if branch != "null"]
        if len(branches) != 1:
            raise LakeError(
                f"no Spark type for a union of {len(branches)} types",
                location=path,
                expected='["null", one type]',
            )
        return _spark_type(branches[0], path)
    if isinstance(avsc, str):
        avsc = {"type": avsc}
    kind, logical = avsc["type"], avsc.get("logicalType")
    if not isinstance(kind, str):  # a type within a type
        return _spark_type(kind, path)
    if kind == "record":
        return _struct_type(avsc["fields"], path)
    if kind == "array":
        return T.ArrayType(_spark_type(avsc["items"], f"{path}[]"))
    if kind == "map":
        return T.MapType(T.StringType(), _spark_type(avsc["values"], f"{path}{{}}"))
    if logical == "decimal" and avsc["precision"] <= MAX_DIGITS:
        return T.DecimalType(avsc["precision"], avsc.get("scale", 0))
    name = f"{kind} {logical}" if logical else kind
    if name not in SPARK_TYPES:
        raise LakeError(
            f"no Spark type for Avro type {name!r}",
            location=path,
            expected=f"a decimal of at most {MAX_DIGITS} digits, {', '.join(SPARK_TYPES)}",
        )
    return SPARK_TYPES[name]
