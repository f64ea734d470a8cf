"""From raw messages to rows: one decode for a topic and for landed files, in Spark expressions
only.

JSON is here; decode_avro does the same for Avro, and both judge what becomes of a message by
`judged`.

In: a DataFrame with `key` and `text` (strings, either may be null) and where they came from
    (`topic`, `partition`,
`offset`, `file`). Out: the same plus `row` (the reader schema's struct), `outcome` and `reason`.
Nothing is thrown away here, so that messages = upserts + deletes + tombstones + dead letters.
"""

import json
from functools import reduce
from operator import or_
from pathlib import Path

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ..base import ROOT, LakeError
from ..base.paths import join_uri
from ..topic import avro
from ..topic.connect_schema import DECIMAL
from .tables import COMBINED_ORDERING_COLUMN, ORDERING_DIGITS, Table

UPSERT, DELETE, TOMBSTONE, DEAD = "upsert", "delete", "tombstone", "dead"
ORIGIN = ("topic", "partition", "offset", "file")
DELETED = "_hoodie_is_deleted"
NOT_UTF8 = "not UTF-8, the text is its base64"
OUTPUT_COLUMNS = ("key", "row", "outcome", "reason", *ORIGIN, "text")  # what all decoders give
SCHEMA_END = '},"payload":'
_CORRUPT = "_bad"
PERMISSIVE = {"columnNameOfCorruptRecord": _CORRUPT, "mode": "PERMISSIVE"}
BASE64_PATTERN = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
NON_FINITE_PATTERN = r'"(NaN|-?Infinity)"(?!:)'  # as JSON has a double that is none
MAX_VALUE_CHARS = 100  # characters of a value in the reason of a dead letter
# what Debezium puts into a NOT NULL column whose value a delete event does not have, as text
DEFAULT_VALUE_PATTERN = r"^(0(\.0+)?|0E-\d+|false|1970-01-01( 00:00:00)?)?$"


def reader_schema(name: str) -> T.StructType:
    """StructType of data/schemas/<name>.avsc."""
    path = Path(join_uri(str(ROOT / "data" / "schemas"), f"{name}.avsc"))
    if not path.is_file():
        raise LakeError(
            f"there is no reader schema for {name}",
            location=str(path),
            hint='messages in Avro: hudi.Topic(…, format="avro"), which uses the registry; '
            "in JSON: put the Avro schema of the rows there, or give schema=… to hudi.ingest",
        )
    return avro.to_spark(json.loads(path.read_text(encoding="utf-8")))


def rows(raw: DataFrame, schema: T.StructType, table: Table) -> DataFrame:
    """Decode JSON messages, with or without the Connect envelope (`{"schema": …, "payload": …}`).

    Args:
        raw: columns `key`, `text`, `topic`, `partition`, `offset`, `file`.
        schema: the reader schema; fields it does not name are left out, fields that are missing are
            null.
        table: that the rows are for.

    Returns:
        `raw` plus `row`, `outcome` (upsert, delete, tombstone, dead) and `reason` (null unless
        dead). The `text` of a message that is not UTF-8 is its base64.

    Raises:
        LakeError: the schema lacks a key, ordering or partition field.
    """
    # what is missing is null, whatever the schema says, and judged below: to from_json every field
    # is nullable
    envelope = T.StructType(
        [T.StructField("payload", schema), T.StructField(_CORRUPT, T.StringType())]
    )
    # Connect's JsonConverter always writes schema first. A bare row gets the envelope put around
    # it, so that there is one parse for both, and text after the closing brace is an error, which
    # from_json by itself overlooks. The option keeps Spark from pruning the schema to what is asked
    # for, which would lose the corrupt-record column.
    wrapped = F.col("text").rlike(r'^\s*\{\s*"schema"\s*:\s*(\{|null)') & F.col("text").rlike(
        r'"payload"\s*:'
    )
    bare = F.concat(F.lit('{"payload":'), F.col("text"), F.lit("}"))
    # Connect sends the same schema with each message, and parsing it each time takes longer than
    # the row does: it is cut off where it stands as JsonConverter writes it. Names in a schema are
    # keys of its own, never payload.
    end = F.instr("text", SCHEMA_END)
    cut = F.col("text").startswith('{"schema":{') & (end > 0)
    rest = F.expr(f"substring(text, instr(text, '{SCHEMA_END}') + 2)")
    text = F.when(cut, F.concat(F.lit("{"), rest)).when(wrapped, F.col("text")).otherwise(bare)
    decoded = raw.withColumn("_text", text).withColumn(
        "_parsed", F.from_json("_text", envelope, PERMISSIVE)
    )
    if _has_decimals(
        schema
    ):  # Connect says of a value that it is a Decimal, in the schema that comes with the message
        decoded = _decode_connect_decimals(
            decoded, wrapped & F.col("text").contains(DECIMAL), envelope
        )
    decoded = decoded.select(
        *raw.columns,
        "_text",
        F.col("_parsed.payload").alias("row"),
        F.col(f"_parsed.{_CORRUPT}").alias(_CORRUPT),
    )
    # no value, a JSON null, or an envelope with nothing in it
    nothing = F.col("text").isNull() | (F.col(_CORRUPT).isNull() & F.col("row").isNull())
    wrong = [
        (_is_not_utf8(F.when(cut, rest).otherwise(F.col("text"))), F.lit(NOT_UTF8)),
        (
            F.col(_CORRUPT).isNotNull() & F.get_json_object("_text", "$").isNull(),
            F.lit("malformed JSON"),
        ),
        (F.col(_CORRUPT).isNotNull(), _mismatch_reason(F.col("_text"), F.col("row"), schema)),
    ]
    shown = F.when(F.col("reason") == NOT_UTF8, F.base64(F.col("text").cast("binary"))).otherwise(
        F.col("text")
    )
    return (
        classify(decoded, schema, nothing, wrong, table)
        .withColumn("text", shown)
        .select(*OUTPUT_COLUMNS)
    )


def _mismatch_reason(text: Column, row: Column, schema: T.StructType) -> Column:
    """Return the reason of a message that does not have the reader schema: column, value and type.

    Args:
        text: the message with its envelope, without its schema. row: what is decoded of it.
    """

    def misfits(kind: T.DataType, value: Column, path: str, name: str) -> list[Column]:
        """Conditions with reasons of a column, or a field within one, at a path of JSON; null where
        it fits.
        """
        shown = F.get_json_object(text, path)
        what = F.concat(
            F.lit(f"column {name} is "),
            F.substring(shown, 1, MAX_VALUE_CHARS),
            F.lit(f", which is no {kind.simpleString()}"),
        )
        if isinstance(kind, T.StructType):
            whole = F.when(~shown.startswith("{"), what)
            return [
                whole,
                *(
                    one
                    for f in kind
                    for one in misfits(
                        f.dataType,
                        value.getField(f.name),
                        f"{path}['{f.name}']",
                        f"{name}.{f.name}",
                    )
                ),
            ]
        if isinstance(kind, (T.ArrayType, T.MapType)):
            inner = T.StructType(
                [
                    T.StructField("v", _replace_decimals(T.StringType(), kind)),
                    T.StructField(_CORRUPT, T.StringType()),
                ]
            )
            again = F.from_json(F.concat(F.lit('{"v":'), shown, F.lit("}")), inner, PERMISSIVE)
            return [
                F.when(again[_CORRUPT].isNotNull() | _has_lost_value(again["v"], value, kind), what)
            ]
        lost = F.when(value.isNull() & shown.isNotNull(), what)
        if not isinstance(kind, T.FractionalType):
            return [lost]
        perhaps.append(lost)  # a text that is no base64 takes the Decimals beside it along
        return [F.when(~shown.rlike(BASE64_PATTERN), lost)]

    perhaps: list[Column] = []
    unnamed = F.lit("a value does not have the type of the reader schema")
    whole = F.concat(
        F.lit("the message is "),
        F.substring(F.get_json_object(text, "$.payload"), 1, MAX_VALUE_CHARS),
        F.lit(", which is no record"),
    )
    named = [
        one
        for f in schema
        for one in misfits(f.dataType, row.getField(f.name), f"$.payload['{f.name}']", f.name)
    ]
    return F.when(row.isNull(), F.coalesce(whole, unnamed)).otherwise(
        F.coalesce(*named, *perhaps, unnamed)
    )


def _has_decimals(kind: T.DataType) -> bool:
    """Whether a value of this type may hold Connect's Decimals, at any depth."""
    return isinstance(kind, T.FractionalType) or any(map(_has_decimals, _child_types(kind)))


def _child_types(kind: T.DataType) -> list[T.DataType]:
    """The types within a type."""
    if isinstance(kind, T.StructType):
        return [f.dataType for f in kind]
    if isinstance(kind, T.ArrayType):
        return [kind.elementType]
    return [kind.valueType] if isinstance(kind, T.MapType) else []


def _replace_decimals(other: T.DataType, kind: T.DataType) -> T.DataType:
    """The same type with `other` where a Decimal may be."""
    if isinstance(kind, T.StructType):
        return T.StructType(
            [T.StructField(f.name, _replace_decimals(other, f.dataType)) for f in kind]
        )
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(_replace_decimals(other, kind.elementType))
    if isinstance(kind, T.MapType):
        return T.MapType(kind.keyType, _replace_decimals(other, kind.valueType))
    return other if isinstance(kind, T.FractionalType) else kind


def _connect_schema(kinds: list[T.DataType]) -> T.StructType:
    """The type of Connect's schema of a value that the reader has as one of these types, as far as
    Decimals need it.
    """
    said = [
        T.StructField("field", T.StringType()),
        T.StructField("name", T.StringType()),
        T.StructField("parameters", T.MapType(T.StringType(), T.StringType())),
    ]
    for key, of in (("fields", T.StructType), ("items", T.ArrayType), ("values", T.MapType)):
        inner = [
            part
            for kind in kinds
            if isinstance(kind, of)
            for part in _child_types(kind)
            if _has_decimals(part)
        ]
        if inner:
            part = _connect_schema(inner)
            said.append(T.StructField(key, T.ArrayType(part) if key == "fields" else part))
    return T.StructType(said)


def _decode_connect_decimals(
    decoded: DataFrame, applies: Column, envelope: T.StructType
) -> DataFrame:
    """Decode messages whose schema says of values, at any depth, that they are Connect's Decimals:
    base64 of the unscaled number, with the scale in the schema (JsonConverter's decimal.format
    BASE64), or a number (NUMERIC).

    A value that the reader has as another kind of number is none of them.

    Args:
        decoded: with columns `text`, `_text` (the envelope without its schema) and `_parsed` (of
            type `envelope`).
        applies: whether a message has Decimals.

    Returns:
        The same with `_parsed` of these messages anew.
    """
    schema = envelope["payload"].dataType

    def parsed_with(kind: T.DataType, json_: Column) -> Column:
        payload = T.StructField("payload", _replace_decimals(kind, schema))
        return F.when(
            applies, F.from_json(json_, T.StructType([payload, envelope[_CORRUPT]]), PERMISSIVE)
        )

    said = F.from_json(F.get_json_object("text", "$.schema"), _connect_schema([schema]))
    # the first takes any value, the second bytes in base64 only, `_parsed` numbers
    bytes_only = F.regexp_replace(
        "_text", NON_FINITE_PATTERN, "null"
    )  # what is no base64 ends a parse into bytes
    decoded = decoded.withColumns(
        {
            "_texts": parsed_with(T.StringType(), F.col("_text")),
            "_encoded": parsed_with(T.BinaryType(), bytes_only),
            "_said": F.when(applies, said),
        }
    )
    texts, encoded, parsed = (
        F.col(f"{name}.payload") for name in ("_texts", "_encoded", "_parsed")
    )
    decoded = decoded.withColumn(
        "_row", _decode_value(texts, encoded, parsed, F.col("_said"), schema)
    )
    bad = F.coalesce(
        F.col(f"_texts.{_CORRUPT}"),
        F.when(_has_lost_value(texts, F.col("_row"), schema), F.col("_text")),
    )
    made = F.struct(F.col("_row").alias("payload"), bad.alias(_CORRUPT))
    return decoded.withColumn("_parsed", F.when(applies, made).otherwise(F.col("_parsed")))


def _decode_value(
    text: Column, encoded: Column, parsed: Column, said: Column, kind: T.DataType
) -> Column:
    """A value of the reader's type, out of what it is where a Decimal is text, is bytes, and is a
    number.

    Args:
        said: Connect's schema of the value.
    """
    if not _has_decimals(kind):
        return text
    if isinstance(kind, T.StructType):

        def field(f: T.StructField) -> Column:
            mine = F.get(F.filter(said["fields"], lambda c: c["field"] == f.name), F.lit(0))
            return _decode_value(
                text[f.name], encoded[f.name], parsed[f.name], mine, f.dataType
            ).alias(f.name)

        return F.when(text.isNotNull(), F.struct(*map(field, kind)))
    if isinstance(kind, T.ArrayType):
        return F.transform(
            text,
            lambda one, n: _decode_value(
                one, F.get(encoded, n), F.get(parsed, n), said["items"], kind.elementType
            ),
        )
    if isinstance(kind, T.MapType):
        at = F.try_element_at
        return F.transform_values(
            text,
            lambda key, one: _decode_value(
                one, at(encoded, key), at(parsed, key), said["values"], kind.valueType
            ),
        )
    scale = F.when(said["name"] == DECIMAL, said["parameters"]["scale"].cast("int"))
    # a list of one binds the bytes to a name: the expression has them a hundred times
    number = F.get(
        F.transform(F.array(encoded), lambda data: _from_unscaled(data, scale, kind)), F.lit(0)
    )
    return F.when(scale.isNotNull() & encoded.isNotNull(), number).otherwise(parsed)


def _has_lost_value(text: Column, value: Column, kind: T.DataType) -> Column:
    """Whether a part of a value is there as text, and null as what the reader wants."""
    if not _has_decimals(kind):
        return F.lit(False)
    if isinstance(kind, T.StructType):
        # one list of conditions, as in `judged`
        lost = F.array(
            *(
                _has_lost_value(text[f.name], value[f.name], f.dataType)
                for f in kind
                if _has_decimals(f.dataType)
            )
        )
    elif isinstance(kind, T.ArrayType):
        lost = F.transform(
            text, lambda one, n: _has_lost_value(one, F.get(value, n), kind.elementType)
        )
    elif isinstance(kind, T.MapType):
        lost = F.map_values(
            F.transform_values(
                text,
                lambda key, one: _has_lost_value(one, F.try_element_at(value, key), kind.valueType),
            )
        )
    else:
        return text.isNotNull() & value.isNull()
    return F.coalesce(F.exists(lost, lambda one: one), F.lit(False))


def _from_unscaled(data: Column, scale: Column, kind: T.DataType) -> Column:
    """The number whose unscaled value is `data`, big-endian in two's complement; null where `kind`
    does not hold it.
    """
    digits = F.hex(data)
    negative = F.conv(F.substring(digits, 1, 1), 16, 10).cast("int") >= 8
    digits = F.when(negative, F.lpad(digits, 32, "F")).otherwise(F.lpad(digits, 32, "0"))
    high = F.conv(F.substring(digits, 1, 16), 16, -10).cast("decimal(20,0)")
    low = F.conv(F.substring(digits, 17, 16), 16, 10).cast("decimal(20,0)")
    # of a negative one the complement, which no step makes greater than 38 digits hold
    half = F.lit(str(2**64)).cast("decimal(20,0)")
    high, low = (
        F.when(negative, -high - 1).otherwise(high),
        F.when(negative, half - 1 - low).otherwise(low),
    )
    size = high * half + low
    unscaled = F.when(negative, -size - 1).otherwise(size).cast("string")
    fits = F.length(data).between(1, 16)
    if isinstance(kind, T.DecimalType):  # a cast would round
        lost = F.call_function("repeat", F.lit("0"), scale - kind.scale)
        fits &= (scale <= kind.scale) | (unscaled == "0") | unscaled.endswith(lost)
    return F.when(fits, F.concat(unscaled, F.lit("E"), (-scale).cast("string")).cast(kind))


def null_message_columns() -> list[Column]:
    """What a message has and a row of a file has not, as nulls."""
    kinds = {"key": "string", "topic": "string", "partition": "int", "offset": "bigint"}
    return [F.lit(None).cast(kind).alias(name) for name, kind in kinds.items()]


def _is_not_utf8(text: Column) -> Column:
    """Spark takes any bytes for a string; they change on the way through Java's strings if they are
    not UTF-8.
    """
    return F.encode(text, "UTF-8") != text.cast("binary")


def classify(
    decoded: DataFrame,
    schema: T.StructType,
    nothing: Column,
    wrong: list[tuple[Column, Column]],
    table: Table,
) -> DataFrame:
    """Add `reason` and `outcome`: what becomes of a message, and why it is a dead letter if it is
    one; and to `row` the position that a table of several ordering fields has.

    Args:
        decoded: columns `row` (of type `schema`), `key`, and whatever the conditions ask for.
        nothing: whether the message holds no row, and is a tombstone.
        wrong: (condition, reason) of what cannot be decoded; the first that holds counts.

    Raises:
        LakeError: the schema lacks a key, ordering or partition field.
    """
    names = schema.fieldNames()
    missing = [f for f in (*table.key, *table.ordering_fields, *table.partition) if f not in names]
    if missing:
        raise LakeError(f"the reader schema has no field {missing[0]!r}", expected=", ".join(names))
    marks = [
        F.col(f"row.{name}").cast("string").eqNullSafe(value)
        for name, value in (("__deleted", "true"), ("__op", "d"))
        if name in names
    ]
    deleted = reduce(or_, marks, F.lit(False))
    needed = [
        *(("record key", name) for name in table.key),
        *(("ordering field", name) for name in table.ordering_fields),
    ]
    wrong = [
        *wrong,
        *(
            (F.col(f"row.{name}").isNull(), F.lit(f"{what} {name} is null"))
            for what, name in needed
        ),
    ]
    beside = [n for n in table.partition if n not in table.key]
    if beside and not table.index.startswith("GLOBAL_"):
        # A source table without REPLICA IDENTITY FULL sends deletes that hold nothing but the key.
        # Without the partition the row cannot be found, and the delete would be lost without a
        # word.
        bare = [
            F.coalesce(F.col(f"row.{n}").cast("string").rlike(DEFAULT_VALUE_PATTERN), F.lit(True))
            for n in names
            if n not in table.key and not n.startswith("__")
        ]
        why = f"the delete holds its key only, not {beside[0]} (REPLICA IDENTITY FULL, or a GLOBAL_ index, cures it)"
        # one list of conditions: a chain of a hundred is deeper than Spark Connect takes an
        # expression
        wrong.append((deleted & F.forall(F.array(F.lit(True), *bare), lambda one: one), F.lit(why)))
    lost = F.when(F.col("key").isNull(), "no value and no key")
    reason = F.when(nothing, lost).otherwise(
        F.coalesce(*(F.when(condition, why) for condition, why in wrong))
    )
    outcome = (
        F.when(F.col("reason").isNotNull(), F.lit(DEAD))
        .when(nothing, F.lit(TOMBSTONE))
        .when(deleted, F.lit(DELETE))
        .otherwise(F.lit(UPSERT))
    )
    decoded = decoded.withColumn("reason", reason).withColumn("outcome", outcome)
    if table.ordering_column != COMBINED_ORDERING_COLUMN:
        return decoded
    parts = (
        (F.col(f"row.{name}"), schema[name].dataType == T.StringType())
        for name in table.ordering_fields
    )
    # / is before every digit and letter: where a text begins as another does, the shorter one is
    # the smaller still
    text = F.concat_ws(
        "/",
        *(
            part if text else F.lpad(part.cast("string"), ORDERING_DIGITS, "0")
            for part, text in parts
        ),
    )
    return decoded.withColumn("row", F.col("row").withField(COMBINED_ORDERING_COLUMN, text))


def classified_schema(schema: T.StructType, table: Table) -> T.StructType:
    """The type of `row` as `judged` leaves it."""
    return T.StructType(
        [
            *schema,
            *(
                [T.StructField(COMBINED_ORDERING_COLUMN, T.StringType())]
                if table.ordering_column == COMBINED_ORDERING_COLUMN
                else []
            ),
        ]
    )
