"""From raw messages to rows: one decode for a topic and for landed files, in Spark expressions only.

JSON is here; decode_avro does the same for Avro, and both judge what becomes of a message by `judged`.

In: a DataFrame with `key` and `text` (strings, either may be null) and where they came from (`topic`, `partition`,
`offset`, `file`). Out: the same plus `row` (the reader schema's struct), `outcome` and `reason`. Nothing is thrown away
here, so that messages = upserts + deletes + tombstones + dead letters.
"""
import json
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Optional

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ..base import ROOT, LakeError
from ..base.paths import within
from ..topic import avro
from ..topic.connect_schema import DECIMAL
from .tables import DIGITS, POSITION, Table

UPSERT, DELETE, TOMBSTONE, DEAD = "upsert", "delete", "tombstone", "dead"
ORIGIN = ("topic", "partition", "offset", "file")
DELETED = "_hoodie_is_deleted"
NOT_UTF8 = "not UTF-8, the text is its base64"
JUDGED = ("key", "row", "outcome", "reason", *ORIGIN, "text")  # what all decoders give
SCHEMA_ENDS = '},"payload":'
_BAD = "_bad"
PERMISSIVE = {"columnNameOfCorruptRecord": _BAD, "mode": "PERMISSIVE"}
CONNECT_FIELDS = "fields array<struct<field: string, name: string, parameters: map<string, string>>>"
MOST_OF_VALUE = 100  # characters of a value in the reason of a dead letter
# what Debezium puts into a NOT NULL column whose value a delete event does not have, as text
NO_VALUE = r"^(0(\.0+)?|0E-\d+|false|1970-01-01( 00:00:00)?)?$"


def reader_schema(name: str) -> T.StructType:
    """StructType of data/schemas/<name>.avsc."""
    path = Path(within(str(ROOT / "data" / "schemas"), f"{name}.avsc"))
    if not path.is_file():
        raise LakeError(f"there is no reader schema for {name}", where=str(path),
                        next_step="put the Avro schema of the rows there, or give schema=… to hudi.ingest")
    return avro.to_spark(json.loads(path.read_text(encoding="utf-8")))


def rows(raw: DataFrame, schema: T.StructType, table: Table) -> DataFrame:
    """Decode JSON messages, with or without the Connect envelope (`{"schema": …, "payload": …}`).

    Args:
        raw: columns `key`, `text`, `topic`, `partition`, `offset`, `file`.
        schema: the reader schema; fields it does not name are left out, fields that are missing are null.
        table: that the rows are for.

    Returns:
        `raw` plus `row`, `outcome` (upsert, delete, tombstone, dead) and `reason` (null unless dead). The `text` of a
        message that is not UTF-8 is its base64.

    Raises:
        LakeError: the schema lacks a key, ordering or partition field.
    """
    # what is missing is null, whatever the schema says, and judged below: to from_json every field is nullable
    envelope = T.StructType([T.StructField("payload", schema), T.StructField(_BAD, T.StringType())])
    # Connect's JsonConverter always writes schema first. A bare row gets the envelope put around it, so that there
    # is one parse for both, and text after the closing brace is an error, which from_json by itself overlooks.
    # The option keeps Spark from pruning the schema to what is asked for, which would lose the corrupt-record column.
    wrapped = F.col("text").rlike(r'^\s*\{\s*"schema"\s*:\s*(\{|null)') & F.col("text").rlike(r'"payload"\s*:')
    bare = F.concat(F.lit('{"payload":'), F.col("text"), F.lit("}"))
    # Connect sends the same schema with each message, and parsing it each time takes longer than the row does: it is
    # cut off where it stands as JsonConverter writes it. Names in a schema are keys of its own, never payload.
    end = F.instr("text", SCHEMA_ENDS)
    cut = F.col("text").startswith('{"schema":{') & (end > 0)
    rest = F.expr(f"substring(text, instr(text, '{SCHEMA_ENDS}') + 2)")
    text = F.when(cut, F.concat(F.lit("{"), rest)).when(wrapped, F.col("text")).otherwise(bare)
    parsed = F.from_json(text, envelope, PERMISSIVE)
    decimals = _connect_decimals(text, envelope, parsed)
    if decimals is not None:  # Connect says of a column that it is a Decimal, in the schema that comes with the message
        parsed = F.when(wrapped & F.col("text").contains(DECIMAL), decimals).otherwise(parsed)
    decoded = raw.withColumn("_parsed", parsed).select(
        *raw.columns, F.col("_parsed.payload").alias("row"), F.col(f"_parsed.{_BAD}").alias(_BAD))
    # no value, a JSON null, or an envelope with nothing in it
    nothing = F.col("text").isNull() | (F.col(_BAD).isNull() & F.col("row").isNull())
    wrong = [(_not_utf8(F.when(cut, rest).otherwise(F.col("text"))), F.lit(NOT_UTF8)),
             (F.col(_BAD).isNotNull() & F.get_json_object(text, "$").isNull(), F.lit("malformed JSON")),
             (F.col(_BAD).isNotNull(), _misfit(text, schema))]
    shown = F.when(F.col("reason") == NOT_UTF8, F.base64(F.col("text").cast("binary"))).otherwise(F.col("text"))
    return judged(decoded, schema, nothing, wrong, table).withColumn("text", shown).select(*JUDGED)


def _misfit(text: Column, schema: T.StructType) -> Column:
    """Which column of a message does not have the type of the reader schema, its value, and the type."""
    def misfit(field: T.StructField) -> Column:
        value = F.get_json_object(text, f"$.payload['{field.name}']")
        what = F.concat(F.lit(f"column {field.name} is "), F.substring(value, 1, MOST_OF_VALUE),
                        F.lit(f", which is no {field.dataType.simpleString()}"))
        return F.when(F.col("row").getField(field.name).isNull() & value.isNotNull(), what)

    within = F.lit("a value within a column does not have the type of the reader schema")
    whole = F.concat(F.lit("the message is "), F.substring(F.get_json_object(text, "$.payload"), 1, MOST_OF_VALUE),
                     F.lit(", which is no record"))
    return F.when(F.col("row").isNull(), F.coalesce(whole, within)).otherwise(F.coalesce(*map(misfit, schema), within))


def _connect_decimals(text: Column, envelope: T.StructType, parsed: Column) -> Optional[Column]:
    """Messages whose schema says of columns that they are Connect's Decimals: base64 of the unscaled number, with the
    scale in the schema (JsonConverter's decimal.format BASE64), or a number (NUMERIC).

    A column that the reader has as another kind of number, or within a struct, is none of them.

    Args:
        text: the message with its envelope, without its schema. envelope: what it is parsed into.
        parsed: what the same message is without Decimals.
    Returns: a struct of type `envelope`; None where the reader has no column that takes them.
    """
    schema = envelope["payload"].dataType
    names = [f.name for f in schema if isinstance(f.dataType, T.FractionalType)]
    if not names:
        return None

    def parsed_with(kind: T.DataType) -> Column:
        fields = [T.StructField(f.name, kind if f.name in names else f.dataType) for f in schema]
        payload = T.StructField("payload", T.StructType(fields))
        return F.from_json(text, T.StructType([payload, envelope[_BAD]]), PERMISSIVE)

    # the first takes any value, the second bytes in base64 only, `parsed` numbers
    texts, encoded = parsed_with(T.StringType()), parsed_with(T.BinaryType())
    columns = F.from_json(F.get_json_object("text", "$.schema"), CONNECT_FIELDS)["fields"]

    def value(field: T.StructField) -> Column:
        if field.name not in names:
            return texts["payload"][field.name]
        mine = F.filter(columns, lambda c: (c["field"] == field.name) & (c["name"] == DECIMAL))
        scale, data = F.get(mine, F.lit(0))["parameters"]["scale"].cast("int"), encoded["payload"][field.name]
        return F.when(scale.isNotNull() & data.isNotNull(), _from_unscaled(data, scale, field.dataType)).otherwise(
            parsed["payload"][field.name])

    row = F.struct(*[value(f).alias(f.name) for f in schema])
    wrong = [texts["payload"][name].isNotNull() & value(schema[name]).isNull() for name in names]
    bad = F.coalesce(texts[_BAD], F.when(reduce(or_, wrong), text))
    return F.struct(F.when(texts["payload"].isNotNull(), row).alias("payload"), bad.alias(_BAD))


def _from_unscaled(data: Column, scale: Column, kind: T.DataType) -> Column:
    """The number whose unscaled value is `data`, big-endian in two's complement; null where `kind` does not hold it."""
    digits = F.hex(data)
    negative = F.conv(F.substring(digits, 1, 1), 16, 10).cast("int") >= 8
    digits = F.when(negative, F.lpad(digits, 32, "F")).otherwise(F.lpad(digits, 32, "0"))
    high = F.conv(F.substring(digits, 1, 16), 16, -10).cast("decimal(20,0)")
    low = F.conv(F.substring(digits, 17, 16), 16, 10).cast("decimal(20,0)")
    # of a negative one the complement, which no step makes greater than 38 digits hold
    half = F.lit(str(2 ** 64)).cast("decimal(20,0)")
    high, low = F.when(negative, -high - 1).otherwise(high), F.when(negative, half - 1 - low).otherwise(low)
    size = high * half + low
    unscaled = F.when(negative, -size - 1).otherwise(size).cast("string")
    fits = F.length(data).between(1, 16)
    if isinstance(kind, T.DecimalType):  # a cast would round
        lost = F.call_function("repeat", F.lit("0"), scale - kind.scale)
        fits &= (scale <= kind.scale) | (unscaled == "0") | unscaled.endswith(lost)
    return F.when(fits, F.concat(unscaled, F.lit("E"), (-scale).cast("string")).cast(kind))


def no_message() -> list[Column]:
    """What a message has and a row of a file has not, as nulls."""
    kinds = {"key": "string", "topic": "string", "partition": "int", "offset": "bigint"}
    return [F.lit(None).cast(kind).alias(name) for name, kind in kinds.items()]


def _not_utf8(text: Column) -> Column:
    """Spark takes any bytes for a string; they change on the way through Java's strings if they are not UTF-8."""
    return F.encode(text, "UTF-8") != text.cast("binary")


def judged(decoded: DataFrame, schema: T.StructType, nothing: Column, wrong: list[tuple[Column, Column]],
           table: Table) -> DataFrame:
    """Add `reason` and `outcome`: what becomes of a message, and why it is a dead letter if it is one; and to `row` the
    position that a table of several ordering fields has.

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
    marks = [F.col(f"row.{name}").cast("string").eqNullSafe(value)
             for name, value in (("__deleted", "true"), ("__op", "d")) if name in names]
    deleted = reduce(or_, marks, F.lit(False))
    needed = [*(("record key", name) for name in table.key),
              *(("ordering field", name) for name in table.ordering_fields)]
    wrong = [*wrong, *((F.col(f"row.{name}").isNull(), F.lit(f"{what} {name} is null")) for what, name in needed)]
    beside = [n for n in table.partition if n not in table.key]
    if beside and not table.index.startswith("GLOBAL_"):
        # A source table without REPLICA IDENTITY FULL sends deletes that hold nothing but the key. Without the
        # partition the row cannot be found, and the delete would be lost without a word.
        bare = [F.coalesce(F.col(f"row.{n}").cast("string").rlike(NO_VALUE), F.lit(True))
                for n in names if n not in table.key and not n.startswith("__")]
        why = f"the delete holds its key only, not {beside[0]} (REPLICA IDENTITY FULL, or a GLOBAL_ index, cures it)"
        # one list of conditions: a chain of a hundred is deeper than Spark Connect takes an expression
        wrong.append((deleted & F.forall(F.array(F.lit(True), *bare), lambda one: one), F.lit(why)))
    lost = F.when(F.col("key").isNull(), "no value and no key")
    reason = F.when(nothing, lost).otherwise(F.coalesce(*(F.when(condition, why) for condition, why in wrong)))
    outcome = (F.when(F.col("reason").isNotNull(), F.lit(DEAD)).when(nothing, F.lit(TOMBSTONE))
               .when(deleted, F.lit(DELETE)).otherwise(F.lit(UPSERT)))
    decoded = decoded.withColumn("reason", reason).withColumn("outcome", outcome)
    if table.ordering_column != POSITION:
        return decoded
    parts = ((F.col(f"row.{name}"), schema[name].dataType == T.StringType()) for name in table.ordering_fields)
    # / is before every digit and letter: where a text begins as another does, the shorter one is the smaller still
    text = F.concat_ws("/", *(part if text else F.lpad(part.cast("string"), DIGITS, "0") for part, text in parts))
    return decoded.withColumn("row", F.col("row").withField(POSITION, text))


def judged_schema(schema: T.StructType, table: Table) -> T.StructType:
    """The type of `row` as `judged` leaves it."""
    return T.StructType([*schema, *([T.StructField(POSITION, T.StringType())] if table.ordering_column == POSITION
                                    else [])])
