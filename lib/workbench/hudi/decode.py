"""Decode JSON messages to rows: one decoder for a topic and for landed files, in Spark expressions only.

decode_avro does the same for Avro. Both use `classify` for the outcome of a message.

In: a DataFrame with `key` and `text` (strings, either may be null) and the origin (`topic`,
`partition`, `offset`, `file`). Out: the same plus `row` (a struct of the reader schema), `outcome` and
`reason`. No message is dropped: messages = upserts + deletes + tombstones + dead letters.
"""

from __future__ import annotations

import json
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Callable, Iterator, NamedTuple, Optional

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ..base import ROOT, LakeError
from ..base.added_columns import COMBINED_ORDERING_COLUMN, ENCODED_KEY_COLUMN
from ..base.paths import join_uri
from ..topic import avro
from ..topic.connect_schema import DECIMAL
from .evolution import leaf_types
from .tables import (
    OP_COLUMN,
    ORDERING_DIGITS,
    SNAPSHOT_OP,
    Table,
)

UPSERT, DELETE, TOMBSTONE, DEAD = "upsert", "delete", "tombstone", "dead"
ORIGIN = ("topic", "partition", "offset", "file")
DELETED = "_hoodie_is_deleted"
MISMATCH = "a value does not have the type of the reader schema"
NOT_UTF8 = "not UTF-8, the text is its base64"
# the columns that every decoder returns
OUTPUT_COLUMNS = ("key", "row", "outcome", "reason", *ORIGIN, "text")
SCHEMA_END = '},"payload":'
SENT = "_sent"  # the column of a row as it is sent
_CORRUPT = "_bad"
PERMISSIVE = {"columnNameOfCorruptRecord": _CORRUPT, "mode": "PERMISSIVE"}
# a value, or one in a list or map, that is a text
QUOTED_PATTERN = r'"({names})"\s*:\s*(\[[^\]]*|\{{[^}}]*:\s*)?"'
BASE64_REASON = "column {} has a Decimal as BASE64: set value.converter.decimal.format=NUMERIC in the connector's JSON"
HEX_DIGITS = "0123456789ABCDEF"
# all digits of a time, in UTC
ENCODED_KEY_FORMAT = {
    "timestampFormat": "yyyy-MM-dd HH:mm:ss.SSSSSS",
    "timeZone": "UTC",
    "ignoreNullFields": "false",
}
NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"  # Hudi's name of the partition for null
MAX_FOLDER_BYTES = 255
ESCAPED_PATTERN = r"[\x00-\x7F&&[^A-Za-z0-9_.-]]"
MAX_VALUE_CHARS = 100  # of a value in the reason of a dead letter


class ConvertedRow(NamedTuple):
    """A row in other types than those that are sent.

    Attributes:
        schema: its type.
        value: the row; null if the one that is sent is.
        lost: which value the column `row` cannot hold (it is null there), and why; null if it holds
            all.
    """

    schema: T.StructType
    value: Column
    lost: Column


def reader_schema(name: str) -> T.StructType:
    """Read the StructType of data/schemas/<name>.avsc."""
    path = Path(join_uri(str(ROOT / "data" / "schemas"), f"{name}.avsc"))
    if not path.is_file():
        raise LakeError(
            f"there is no reader schema for {name}",
            location=str(path),
            hint='messages in Avro: hudi.Topic(…, format="avro"), which uses the registry; '
            "in JSON: put the Avro schema of the rows there, or give schema=… to hudi.ingest",
        )
    return avro.to_spark(json.loads(path.read_text(encoding="utf-8")))


def rows(
    raw: DataFrame,
    schema: T.StructType,
    table: Table,
    *,
    converted: Optional[ConvertedRow] = None,
    explain: bool = True,
) -> DataFrame:
    """Decode JSON messages, with or without the Connect envelope (`{"schema": …, "payload": …}`).

    Args:
        raw: columns `key`, `text`, `topic`, `partition`, `offset`, `file`.
        schema: the reader schema. Fields that it lacks are left out; fields that a message lacks are
            null.
        table: the table that the rows are for.
        converted: what becomes of a row of `schema` in the column SENT; by default it stays.
        explain: whether the reason of a value that does not have its type names the value. False
            makes the query smaller, and changes no outcome.

    Returns:
        `raw` plus `row`, `outcome` (upsert, delete, tombstone, dead) and `reason` (null unless
        dead).

    Raises:
        LakeError: the schema lacks a key, ordering or partition field.
    """
    # To from_json every field is nullable: a missing one is null, whatever the schema says, and
    # checked below.
    envelope = T.StructType().add("payload", schema).add(_CORRUPT, "string")
    text = F.col("text")
    # Connect's JsonConverter always writes schema first. A bare row is wrapped in an envelope. So
    # there is one parse for both, and text after the closing brace is an error, which from_json by
    # itself overlooks. PERMISSIVE keeps Spark from pruning the schema to the selected columns, which
    # would lose the corrupt-record column.
    has_envelope = text.rlike(r'^\s*\{\s*"schema"\s*:\s*(\{|null)') & text.rlike(r'"payload"\s*:')
    bare = F.concat(F.lit('{"payload":'), text, F.lit("}"))
    # Connect sends the same schema with each message. To parse it takes longer than the row: it is
    # cut off where it stands as JsonConverter writes it. Names in a schema are its own keys, never
    # payload.
    can_cut = _can_cut_schema()
    payload = F.expr(f"substring(text, instr(text, '{SCHEMA_END}') + 2)")
    wrapped = (
        F.when(can_cut, F.concat(F.lit("{"), payload)).when(has_envelope, text).otherwise(bare)
    )
    decoded = add_columns(raw, _text=wrapped)
    decoded = add_columns(decoded, _parsed=F.from_json("_text", envelope, PERMISSIVE))
    base64_columns, base64_errors = _base64_decimals(schema)
    decoded = decoded.select(
        "key",
        "text",
        *ORIGIN,
        "_text",
        *base64_columns,
        F.col("_parsed.payload").alias(SENT),
        F.col(f"_parsed.{_CORRUPT}").alias(_CORRUPT),
    )
    if converted is None:
        converted = ConvertedRow(schema, F.col(SENT), F.lit(None).cast("string"))
    decoded = add_columns(decoded, row=converted.value)
    decoded = add_columns(decoded, lost=converted.lost)
    is_corrupt = F.col(_CORRUPT).isNotNull()
    # no value, a JSON null, or an empty envelope
    is_tombstone = text.isNull() | (~is_corrupt & F.col(SENT).isNull())
    is_malformed = is_corrupt & F.get_json_object("_text", "$").isNull()
    mismatch = F.lit(MISMATCH)
    if explain:
        mismatch = _mismatch_reason(F.col("_text"), F.col(SENT), schema)
    errors = [
        (is_not_utf8(F.when(can_cut, payload).otherwise(text)), F.lit(NOT_UTF8)),
        (is_malformed, F.lit("malformed JSON")),
        *base64_errors,
        (is_corrupt, mismatch),
    ]
    classified = classify(decoded, converted.schema, is_tombstone, errors, table)
    return classified.select(*OUTPUT_COLUMNS)


def _can_cut_schema() -> Column:
    return F.col("text").startswith('{"schema":{') & (F.instr("text", SCHEMA_END) > 0)


def message_schema() -> Column:
    """Return the JSON of the Connect schema in the column `text`; "" without one, null without a text."""
    cut = F.expr(f"substring(text, 11, instr(text, '{SCHEMA_END}') - 10)")
    schema = F.when(_can_cut_schema(), cut).otherwise(F.get_json_object("text", "$.schema"))
    return F.when(F.col("text").isNotNull(), F.coalesce(schema, F.lit("")))


def add_columns(rows: DataFrame, **columns: Column) -> DataFrame:
    """Add new columns. Unlike withColumns, Spark Connect does not analyze the query for this step.

    Args:
        rows: without such columns.
        columns: {name: value}.
    """
    return rows.select("*", *(value.alias(name) for name, value in columns.items()))


def _mismatch_reason(text: Column, row: Column, schema: T.StructType) -> Column:
    """Return the reason of a message that does not have the reader schema: column, value and type.

    Args:
        text: the message with its envelope, without its schema.
        row: what is decoded of it.
        schema: the reader schema.
    """
    mismatches = [
        reason
        for f in schema
        for reason in _mismatches(
            text, f.dataType, row.getField(f.name), f"$.payload['{f.name}']", f.name
        )
    ]
    unnamed = F.lit(MISMATCH)
    no_record = F.concat(
        F.lit("the message is "),
        F.substring(F.get_json_object(text, "$.payload"), 1, MAX_VALUE_CHARS),
        F.lit(", which is no record"),
    )
    return F.when(row.isNull(), F.coalesce(no_record, unnamed)).otherwise(
        F.coalesce(*mismatches, unnamed)
    )


def _mismatches(
    text: Column, kind: T.DataType, value: Column, path: str, name: str
) -> Iterator[Column]:
    """Yield the reasons why a value, or a field within it, does not have its type; null where it has.

    Args:
        text: the message with its envelope, without its schema.
        kind: the reader's type.
        value: the decoded value.
        path: JSON path of the value in the message.
        name: name of the column or field.
    """
    json_value = F.get_json_object(text, path)
    reason = F.concat(
        F.lit(f"column {name} is "),
        F.substring(json_value, 1, MAX_VALUE_CHARS),
        F.lit(f", which is no {kind.simpleString()}"),
    )
    if isinstance(kind, T.StructType):
        yield F.when(~json_value.startswith("{"), reason)
        for f in kind:
            field_path, field_name = f"{path}['{f.name}']", f"{name}.{f.name}"
            yield from _mismatches(text, f.dataType, value.getField(f.name), field_path, field_name)
    elif isinstance(kind, (T.ArrayType, T.MapType)):
        alone = T.StructType().add("v", kind).add(_CORRUPT, "string")
        parsed = F.from_json(F.concat(F.lit('{"v":'), json_value, F.lit("}")), alone, PERMISSIVE)
        yield F.when(parsed[_CORRUPT].isNotNull(), reason)
    else:
        yield F.when(value.isNull() & json_value.isNotNull(), reason)


def _base64_decimals(
    schema: T.StructType,
) -> tuple[list[Column], list[tuple[Column, Column]]]:
    """Find the Decimals of a message that JsonConverter wrote as BASE64, its default.

    Spark would read the digits of such a text as the number.

    Returns:
        The column `_base64`, which has these Decimals as bytes, and (condition, reason) of each column
        with Decimals. Both are empty for a schema without Decimals.
    """
    kind = _struct_of_decimals(schema)
    if not kind.fields:
        return [], []
    names = {[part for part in path if part not in ("[]", "{}")][-1] for path in leaf_types(kind)}
    pattern = QUOTED_PATTERN.format(names="|".join(f"\\Q{name}\\E" for name in sorted(names)))
    # the schema in the message marks a value as Connect's Decimal; the second parse is for few messages
    may_be = F.col("text").contains(DECIMAL) & F.col("_text").rlike(pattern)
    envelope = T.StructType().add("payload", kind).add(_CORRUPT, "string")
    parsed = F.from_json("_text", envelope, PERMISSIVE)
    errors = [
        (
            _has_bytes(F.col(f"_base64.`{f.name}`"), f.dataType),
            F.lit(BASE64_REASON.format(f.name)),
        )
        for f in kind
    ]
    return [F.when(may_be, parsed["payload"]).alias("_base64")], errors


def _struct_of_decimals(kind: T.StructType) -> T.StructType:
    fields = ((f.name, _decimals_as_bytes(f.dataType)) for f in kind)
    return T.StructType([T.StructField(name, part) for name, part in fields if part is not None])


def _decimals_as_bytes(kind: T.DataType) -> Optional[T.DataType]:
    """Return the part of a type that has Decimals, with bytes in their place; None without any."""
    if isinstance(kind, T.StructType):
        return _struct_of_decimals(kind) or None
    if isinstance(kind, T.ArrayType):
        element = _decimals_as_bytes(kind.elementType)
        return None if element is None else T.ArrayType(element)
    if isinstance(kind, T.MapType):
        value = _decimals_as_bytes(kind.valueType)
        return None if value is None else T.MapType(kind.keyType, value)
    return T.BinaryType() if isinstance(kind, T.DecimalType) else None


def _has_bytes(value: Column, kind: T.DataType) -> Column:
    """Return whether a value of `_decimals_as_bytes` has bytes anywhere."""
    if isinstance(kind, T.StructType):
        values = F.array(*(_has_bytes(value[f.name], f.dataType) for f in kind))
        return F.exists(values, lambda one: one)
    if isinstance(kind, T.ArrayType):
        has_bytes = F.exists(value, lambda one: _has_bytes(one, kind.elementType))
    elif isinstance(kind, T.MapType):
        has_bytes = F.exists(F.map_values(value), lambda one: _has_bytes(one, kind.valueType))
    else:
        return value.isNotNull()
    return F.coalesce(has_bytes, F.lit(False))


def from_unscaled(data: Column, scale: Column, kind: T.DataType) -> Column:
    """Return a number; null where `kind` does not hold it.

    Args:
        data: the unscaled value, big-endian in two's complement.
        scale: digits after the decimal point.
        kind: the type of the number.
    """
    # Not from_avro: it fails the batch at a value of more than 38 digits, and needs spark-avro.
    unscaled = _bind(F.hex(data), _unscaled_digits)
    number = _bind(unscaled, lambda digits: _scaled(digits, scale, kind))
    return F.when(F.length(data).between(1, 16), number)


def _unscaled_digits(hexadecimal: Column) -> Column:
    """Return a whole number in decimal digits; null if it has more than 38.

    Args:
        hexadecimal: the number in two's complement, of 1 to 16 bytes.
    """
    # of a negative number the complement: no step exceeds 38 digits unless the number does
    is_negative = hexadecimal >= "8"
    complement = F.translate(hexadecimal, HEX_DIGITS, HEX_DIGITS[::-1])
    digits = F.lpad(F.when(is_negative, complement).otherwise(hexadecimal), 32, "0")
    high, low = (
        F.conv(F.substring(digits, start, 16), 16, 10).cast("decimal(20,0)") for start in (1, 17)
    )
    magnitude = high * F.lit(str(2**64)).cast("decimal(20,0)") + low + is_negative.cast("int")
    sign = F.when(is_negative, "-").otherwise("")
    return F.concat(sign, magnitude.cast("string"))


def _scaled(unscaled: Column, scale: Column, kind: T.DataType) -> Column:
    """Return a number; null where `kind` does not hold it.

    Args:
        unscaled: its digits, without the decimal point.
        scale: digits after the decimal point.
        kind: the type of the number.
    """
    number = F.concat(unscaled, F.lit("E"), (-scale).cast("string")).cast(kind)
    if not isinstance(kind, T.DecimalType):
        return number
    # a cast would round
    zeros = F.call_function("repeat", F.lit("0"), scale - kind.scale)
    is_exact = (scale <= kind.scale) | (unscaled == "0") | unscaled.endswith(zeros)
    return F.when(is_exact, number)


def _bind(value: Column, function: Callable[[Column], Column]) -> Column:
    """Return function(value), with `value` once in the plan and evaluated once.

    Spark copies an expression to each place that uses it. Where one uses another twice, and that a
    third, the plan grows exponentially.
    """
    return F.transform(F.array(value), function)[0]


def null_message_columns() -> list[Column]:
    """Return the columns that a message has and a row of a file lacks, as nulls."""
    kinds = {"key": "string", "topic": "string", "partition": "int", "offset": "bigint"}
    return [F.lit(None).cast(kind).alias(name) for name, kind in kinds.items()]


def is_not_utf8(text: Column) -> Column:
    """Return whether a string is not UTF-8.

    Spark takes any bytes for a string; a conversion to Java's strings changes them if they are not
    UTF-8.
    """
    return F.encode(text, "UTF-8") != text.cast("binary")


def classify(
    decoded: DataFrame,
    schema: T.StructType,
    is_tombstone: Column,
    errors: list[tuple[Column, Column]],
    table: Table,
) -> DataFrame:
    """Add `outcome`, and `reason` of a dead letter; to `row` the columns of DERIVED_COLUMNS that the table has.

    Args:
        decoded: columns `row` (of type `schema`), `lost` (see ConvertedRow), `key`, and those that the
            conditions use.
        schema: the reader schema.
        is_tombstone: whether the message holds no row.
        errors: (condition, reason) of each decoding error; the first that applies counts.
        table: the table that the rows are for.

    Raises:
        LakeError: the schema lacks a key, ordering or partition field.
    """
    _require_fields(schema, table)
    is_delete = _is_delete(schema)
    unusable = _unusable_partitions(schema, table)
    # a delete needs its key only
    errors = [*errors, (~is_delete, F.col("lost")), *_null_field_errors(table)]
    errors += [(~is_delete, reason) for reason in unusable.values()]
    missing_key_reason = F.when(F.col("key").isNull(), "no value and no key")
    error_reason = F.coalesce(*(F.when(condition, reason) for condition, reason in errors))
    outcome = (
        F.when(F.col("reason").isNotNull(), F.lit(DEAD))
        .when(is_tombstone, F.lit(TOMBSTONE))
        .when(is_delete, F.lit(DELETE))
        .otherwise(F.lit(UPSERT))
    )
    classified = add_columns(
        decoded, reason=F.when(is_tombstone, missing_key_reason).otherwise(error_reason)
    )
    classified = add_columns(classified, outcome=outcome)
    values = _derived_values(schema, table)
    for name, problem in unusable.items():  # of a delete: no row has such a value
        values[name] = F.when(problem.isNull(), F.col(f"row.{name}"))
    row = F.col("row")
    for name, value in values.items():
        row = row.withField(name, value)
    return classified.withColumn("row", row) if values else classified


def _require_fields(schema: T.StructType, table: Table) -> None:
    names = schema.fieldNames()
    for name in (*table.key, *table.ordering_fields, *table.partition):
        if name not in names:
            raise LakeError(f"the reader schema has no field {name!r}", expected=", ".join(names))


def _is_delete(schema: T.StructType) -> Column:
    """Return whether a row is a delete event."""
    conditions = [
        F.col(f"row.{name}").cast("string").eqNullSafe(value)
        for name, value in (("__deleted", "true"), ("__op", "d"))
        if name in schema.fieldNames()
    ]
    return reduce(or_, conditions, F.lit(False))


def _null_field_errors(table: Table) -> list[tuple[Column, Column]]:
    """Return (condition, reason) of the record key and ordering fields that are null."""
    fields = [("record key", name) for name in table.key]
    fields += [("ordering field", name) for name in table.ordering_fields]
    return [
        (F.col(f"row.{name}").isNull(), F.lit(f"{role} {name} is null")) for role, name in fields
    ]


def _unusable_partitions(schema: T.StructType, table: Table) -> dict[str, Column]:
    """Return {partition field: why the name of a partition cannot have its text; null if it can}."""
    reasons = {}
    for name in table.partition if table.checks_partition else ():
        if isinstance(schema[name].dataType, T.StringType):
            value = F.col(f"row.{name}")
            # the greatest length: Hudi escapes some of these characters
            size = F.octet_length(F.regexp_replace(value, ESCAPED_PATTERN, "%XX"))
            limit = MAX_FOLDER_BYTES - len(f"{name}=".encode())
            reasons[name] = F.when(
                value.isin("", NULL_PARTITION),
                F.lit(f"partition field {name} is an empty text, which queries read as null"),
            ).when(
                size > limit,
                F.concat(
                    F.lit(
                        f"partition field {name} has {limit} bytes at most, as the name of a folder, and not "
                    ),
                    size.cast("string"),
                ),
            )
    return reasons


def _combined_ordering_value(schema: T.StructType, table: Table) -> Column:
    """Return the value of the combined ordering column (see Table.ordering_value)."""
    values = []
    for name in table.ordering_fields:
        value = F.col(f"row.{name}")
        if name == OP_COLUMN:
            value = F.when(value == SNAPSHOT_OP, "0").otherwise("1")
        elif schema[name].dataType != T.StringType():
            value = F.lpad(value.cast("string"), ORDERING_DIGITS, "0")
        values.append(value)
    # / sorts before every digit and letter: of two texts of which one begins with the other, the
    # shorter stays the smaller
    # A change of the key's text is a delete and a create of one position, and may be of one record key
    # (1.0 to 1.00): the create is the newer one.
    values.append(F.when(~_is_delete(schema), "1"))
    return F.concat_ws("/", *values)


def _derived_columns(table: Table) -> list[str]:
    """Return those of DERIVED_COLUMNS that a table has."""
    ordering = [COMBINED_ORDERING_COLUMN] if len(table.ordering_fields) > 1 else []
    return ordering + ([ENCODED_KEY_COLUMN] if table.encodes_key else [])


def _derived_values(schema: T.StructType, table: Table) -> dict[str, Column]:
    """Return {column: value} of the columns that the ingest adds."""
    values = {
        COMBINED_ORDERING_COLUMN: _combined_ordering_value(schema, table),
        ENCODED_KEY_COLUMN: _encoded_key(table),
    }
    return {name: values[name] for name in _derived_columns(table)}


def _encoded_key(table: Table) -> Column:
    """Return the values of the key as JSON, in which different keys have different texts."""
    key = F.struct(*(F.col(f"row.{name}").alias(name) for name in table.key))
    return F.to_json(key, ENCODED_KEY_FORMAT)


def classified_schema(schema: T.StructType, table: Table) -> T.StructType:
    """Return the type of `row` after `classify`."""
    columns = [T.StructField(name, T.StringType()) for name in _derived_columns(table)]
    return T.StructType([*schema, *columns]) if columns else schema
