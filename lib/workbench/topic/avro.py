"""Avro: single records, object container files, compatibility, and conversion of schemas to Spark.

fastavro reads and writes records and files (Apache Avro specification 1.11.1, "Object Container
Files"). The landing uses this module, because it must verify that a message is exactly one record
before it writes the record to a file. Functions that show single messages use it, too.
Malformed data raises ValueError.
"""

from __future__ import annotations

import io
import json
from typing import Any, Callable, Sequence, Union

import fastavro
from pyspark.sql import types as T

from ..base import LakeError, did_you_mean
from . import connect_schema
from .connect_schema import CONNECT_TYPES, MAX_DIGITS, TIMES

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
SPARK_TIMES = {logical for _, logical, _ in TIMES.values()}
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
    try:
        after = schema.parse(json.dumps(new))
        before = [schema.parse(json.dumps(avsc)) for avsc in (old if transitive else old[-1:])]
    except errors.AvroException as e:
        raise LakeError(f"not an Avro schema: {e}", location=full_name(new)) from None
    pairs = []  # (reader, writer)
    if direction in ("BACKWARD", "FULL"):
        pairs += [(after, version) for version in before]
    if direction in ("FORWARD", "FULL"):
        pairs += [(version, after) for version in before]
    reasons = []
    for pair in pairs:
        checker: Any = compatibility.ReaderWriterCompatibilityChecker()  # type: ignore[no-untyped-call]
        result = checker.get_compatibility(*pair)
        kinds = dict.fromkeys(kind.value.replace("_", " ") for kind in result.incompatibilities)
        if kinds:
            reasons.append(f"{', '.join(kinds)}: {', '.join(sorted(result.messages))}")
    return "; ".join(reasons)


# --- conversion of schemas to Spark


def for_spark(avsc: Any, as_numbers: bool = False) -> Any:
    """Return an Avro schema of the registry with which Spark reads the types of `to_spark`.

    Debezium's dates and timestamps get Avro's logical types. A time of day becomes a plain number. A
    decimal with a higher precision than Spark's 38 gets precision 38, and a larger value fails to
    decode. (Connect's converters write precision 64 if the source declares none.) The encoding of
    values does not change.

    Args:
        avsc: the schema.
        as_numbers: whether dates and timestamps stay numbers, as in JSON.
    """
    return map_schema(avsc, _as_number if as_numbers else _as_time)


def _as_time(avsc: dict[str, Any]) -> dict[str, Any]:
    kind, logical, _ = TIMES.get(avsc.get("connect.name", ""), (None, None, None))
    if kind is None or CONNECT_TYPES.get(str(avsc.get("type"))) != kind:
        logical = avsc.get("logicalType")
    avsc = _as_number(avsc)
    if logical in SPARK_TIMES:
        avsc["logicalType"] = logical
    return avsc


def _as_number(avsc: dict[str, Any]) -> dict[str, Any]:
    logical = avsc.get("logicalType")
    if logical == "decimal":
        return {**avsc, "precision": min(avsc.get("precision", 0), MAX_DIGITS)}
    return avsc if logical == "uuid" else _without_logical_type(avsc)


def full_name(avsc: Any) -> str:
    """Return the full name of an Avro record schema, the type of any other schema."""
    if not isinstance(avsc, dict):
        return str(avsc)
    parts = [avsc[key] for key in ("namespace", "name") if avsc.get(key)]
    return ".".join(parts) or str(avsc.get("type"))


def is_record(avsc: Any) -> bool:
    """Return whether an Avro schema is a record schema."""
    return isinstance(avsc, dict) and avsc.get("type") == "record"


def to_spark(avsc: Any, as_numbers: bool = False) -> T.StructType:
    """Return the Spark type of an Avro record schema; see connect_schema.to_spark."""
    return connect_schema.to_spark(connect_schema.from_avro(avsc), as_numbers)
