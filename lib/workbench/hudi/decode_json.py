"""Decode JSON messages of Kafka Connect, with or without the envelope `{"schema": …, "payload": …}`."""

from __future__ import annotations

import contextlib
import json
import re
from collections import Counter
from typing import Optional

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ..base import World
from ..topic.connect_schema import DECIMAL
from .analyst_types import MAX_VALUE_CHARS
from .ddl import literal
from .decode import ORIGIN, add_columns, is_not_utf8
from .evolution import field_types
from .schemas import MAX_SCHEMAS, Schemas, WriterSchema

NOT_UTF8 = "not UTF-8, the text is its base64"
MALFORMED = "malformed JSON"
NO_SCHEMA = (
    "schema of the message cannot be read: it is none of Kafka Connect, or not one of the "
    f"{MAX_SCHEMAS} most frequent ones of the batch"
)
BASE64 = "a Decimal is BASE64: set value.converter.decimal.format=NUMERIC in the connector's JSON"
# SQL of whether a message is as JsonConverter writes it. Connect sends the same schema with each message. To parse it
# takes longer than the row: it is cut off. Names in a schema are its own keys, never payload.
CAN_CUT = """startswith(value, '{"schema":{') AND instr(value, '},"payload":') > 0"""
# SQL of the schema of a message, "" without one
SCHEMA_ID = (
    "CASE WHEN "
    + CAN_CUT
    + """ THEN substring(value, 11, instr(value, '},"payload":') - 10)
    ELSE coalesce(get_json_object(value, '$.schema'), '') END"""
)
# SQL of the envelope without the schema. A bare row is wrapped. So there is one parse for both, and text after the
# closing brace is an error, which from_json by itself overlooks.
BODY = (
    "CASE WHEN "
    + CAN_CUT
    + r""" THEN concat('{', substring(value, instr(value, '},"payload":') + 2))
    WHEN value RLIKE r'^\s*\{\s*"schema"\s*:\s*(\{|null)' AND value RLIKE r'"payload"\s*:' THEN value
    ELSE concat('{"payload":', value, '}') END"""
)
_CORRUPT = "_bad"
# Keeps Spark from pruning the type to the selected fields, which would lose the corrupt-record field
PERMISSIVE = {"columnNameOfCorruptRecord": _CORRUPT, "mode": "PERMISSIVE"}
# SQL of the first column that has a value in the message and none in the decoded row. There is one lambda for all
# columns: Spark copies an expression to each place that uses it.
MISMATCH_REASON = """
    CASE WHEN {texts} IS NULL THEN
        concat('the message is ', substring(get_json_object(body, '$.payload'), 1, {limit}), ', which is no record')
    ELSE get(
        transform(
            map_entries(map_filter({texts}, (name, text) ->
                text IS NOT NULL
                AND try_element_at({types}, name) IS NOT NULL
                AND try_element_at({decoded}, name) IS NULL)),
            entry -> concat('column ', entry.key, ' is ', substring(entry.value, 1, {limit}), ', which is no ',
                try_element_at({types}, entry.key))),
        0)
    END"""
DECIMAL_TYPE = re.compile(r'"decimal\(\d+,\d+\)"')  # in the JSON of a schema of Spark
# a value, or one in a list or map, that is a text
QUOTED_PATTERN = r'"({names})"\s*:\s*(\[[^\]]*|\{{[^}}]*:\s*)?"'


class CarriedSchemas(Schemas):
    """The schemas that JSON messages carry. The id of a schema is its JSON; "" if there is none."""

    sends_numbers = True
    schema_id = SCHEMA_ID

    def split(self, messages: DataFrame) -> DataFrame:
        """Return the messages as texts with `schema`, and `body`, the envelope without the schema."""
        # the cast accepts any bytes: see is_not_utf8
        text = F.col("value").cast("string").alias("value")
        texts = messages.select("key", text, *ORIGIN)
        return add_columns(texts, schema=F.expr(self.schema_id), body=F.expr(BODY))

    def resolve(self, counts: Counter[str]) -> list[str]:
        """Read the most frequent schemas; the newest one is the latest."""
        found = {}
        frequent = dict(counts.most_common(MAX_SCHEMAS))
        for id in filter(frequent.get, counts):
            with contextlib.suppress(Exception):  # a message may contain anything there
                schema = self.resolved.get(id) or self.read(json.loads(id))
                if not schema.error:
                    found[id] = schema
        self.add(found, next(iter(found.values()), None))
        return list(found)

    def parse(self, id: str) -> Column:
        """Return struct<payload, _bad>; `_bad` is null if the payload is exactly a row, or null."""
        return _parse(self.resolved[id].sent)

    def error(self, parsed: str, id: str) -> Column:
        """Return why a message is not exactly one record; null if it is."""
        sent = self.resolved[id].sent
        mismatch = _mismatch_reason(parsed, sent)
        is_corrupt = F.col(f"{parsed}.{_CORRUPT}").isNotNull()
        return (
            F.when(is_not_utf8(F.col("body")), NOT_UTF8)
            .when(_has_base64_decimal(sent), BASE64)
            .when(is_corrupt, F.when(_is_malformed(), MALFORMED).otherwise(mismatch))
        )

    def not_parsed(self, reason: Column) -> Column:
        """Return why a message is a dead letter; null without a payload."""
        return (
            F.when(is_not_utf8(F.col("value")), NOT_UTF8)
            .when(_is_malformed(), MALFORMED)
            .when(F.get_json_object("body", "$.payload").isNotNull(), reason)
        )

    def unknown_reason(self) -> Column:
        """Return why a schema that a message carries is not read."""
        return F.lit(NO_SCHEMA)

    def name(self, id: str) -> str:
        """Return one name for all: a schema is long."""
        return "of the message"


class PublishedSchema(CarriedSchemas):
    """The reader schema is that of all JSON messages; a schema that they carry is not read."""

    differ = False
    schema_id = "''"

    def __init__(
        self, world: World, topic: str, columns: Optional[T.StructType], schema: T.StructType
    ):
        """Use a reader schema for all messages."""
        super().__init__(world, topic, columns)
        self.schema = WriterSchema(None, {"name": topic}, schema, schema)

    def resolve(self, counts: Counter[str]) -> list[str]:
        """Return the id of the reader schema."""
        self.add({"": self.schema}, self.schema)
        return [""]


def _parse(schema: T.StructType) -> Column:
    """Return struct<payload, _bad> of a message; `_bad` is null if the payload is exactly a row of the schema."""
    # To from_json every field is nullable: a missing one is null, whatever the schema says.
    envelope = T.StructType().add("payload", schema).add(_CORRUPT, "string")
    return F.from_json("body", envelope, PERMISSIVE)


def _is_malformed() -> Column:
    return F.get_json_object("body", "$").isNull()


def _mismatch_reason(parsed: str, schema: T.StructType) -> Column:
    """Return the reason of a message that does not have its schema (see MISMATCH_REASON).

    A value within a record or list of records is not found: the reason names these columns. The query has
    the same size for any number of columns.

    Args:
        parsed: name of the column that has the decoded row as `payload`.
        schema: its schema.
    """
    query = MISMATCH_REASON.format(
        texts="from_json(body, 'payload map<string,string>').payload",
        decoded=f"from_json(to_json({parsed}.payload), 'map<string,string>')",
        types=f"from_json({literal(json.dumps(field_types(schema)))}, 'map<string,string>')",
        limit=MAX_VALUE_CHARS,
    )
    nested = [f.name for f in schema if "struct<" in f.dataType.simpleString()]
    within = "a value does not have the type of the reader schema"
    if nested:
        within = f"a value within {' or '.join(nested)} does not have its type"
    return F.coalesce(F.expr(query), F.lit(within))


def _has_base64_decimal(schema: T.StructType) -> Column:
    """Return whether a message has a Decimal that JsonConverter wrote as BASE64, its default.

    Spark would read the digits of such a text as the number.
    """
    names = {*re.findall(r"(\w+):(?:array<|map<string,)*decimal", schema.simpleString())}
    if not names:
        return F.lit(False)
    pattern = QUOTED_PATTERN.format(names="|".join(f"\\Q{name}\\E" for name in sorted(names)))
    # The schema in the message marks a value as Connect's Decimal. The pattern may stand for another
    # field of the name: few messages are parsed once more.
    may_have = F.col("value").contains(DECIMAL) & F.col("body").rlike(pattern)
    # A text in place of a Decimal is bytes to the one type, and an error to the other. A number is an
    # error to both.
    as_bytes, as_flags = (
        _parse(T.StructType.fromJson(json.loads(DECIMAL_TYPE.sub(f'"{kind}"', schema.json()))))
        for kind in ("binary", "boolean")
    )
    return may_have & ~F.to_json(as_bytes["payload"]).eqNullSafe(F.to_json(as_flags["payload"]))
