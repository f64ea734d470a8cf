"""Decode messages to rows, in Spark expressions only: no Python runs inside Spark.

1. `split`: a message is a schema, or its id, and a body.
2. Each body is parsed with its schema: from_json (decode_json) or from_avro (decode_avro).
3. The records of all schemas become rows of one schema (schemas).
4. `classify`: an upsert, a delete, a tombstone or a dead letter. No message is dropped.

Records of landed Avro files begin at step 3 (decode_avro.read_files).
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ..base import ROOT, LakeError
from ..base.added_columns import COMBINED_ORDERING_COLUMN, ENCODED_KEY_COLUMN
from ..base.paths import join_uri
from ..topic import avro
from .schemas import Schemas
from .tables import (
    OP_COLUMN,
    ORDERING_DIGITS,
    SNAPSHOT_OP,
    Table,
)

UPSERT, DELETE, TOMBSTONE, DEAD = "upsert", "delete", "tombstone", "dead"
ORIGIN = ("topic", "partition", "offset", "file")
DELETED = "_hoodie_is_deleted"
# SQL of the columns that a message has and a row of a file lacks
NO_MESSAGE = (
    "CAST(NULL AS string) AS key",
    "CAST(NULL AS string) AS topic",
    "CAST(NULL AS int) AS partition",
    "CAST(NULL AS bigint) AS offset",
)
# the columns of a decoded message
OUTPUT_COLUMNS = ("row", "key", "outcome", "reason", *ORIGIN, "text")
# SQL of the values of a key as JSON, in which different keys have different texts; all digits of a time, in UTC
ENCODED_KEY = """to_json(named_struct({}), map(
    'timestampFormat', 'yyyy-MM-dd HH:mm:ss.SSSSSS', 'timeZone', 'UTC', 'ignoreNullFields', 'false'))"""
NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"  # Hudi's name of the partition for null
MAX_FOLDER_BYTES = 255
# SQL of the greatest length of the name of a text's folder: Hudi escapes some of these characters.
FOLDER_BYTES = r"octet_length(regexp_replace(row.`{name}`, r'[\x00-\x7F&&[^A-Za-z0-9_.-]]', '%XX'))"
# SQL of why a folder cannot have a text in its name
UNUSABLE_PARTITION = """
    CASE WHEN row.`{name}` IN ('', '{null}') THEN
        'partition field {name} is an empty text, which queries read as null'
    WHEN {bytes} > {limit} THEN
        concat('partition field {name} has {limit} bytes at most, as the name of a folder, and not ', {bytes})
    END"""


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
    return avro.to_spark(json.loads(path.read_text(encoding="utf-8")), as_numbers=True)


def rows(messages: DataFrame, schemas: Schemas, table: Table, in_memory: bool = False) -> DataFrame:
    """Decode messages.

    Args:
        messages: columns `key`, `value`, `topic`, `partition`, `offset`, `file`.
        schemas: the schemas of their source.
        table: the table that the rows are for.
        in_memory: whether the messages are part of the query.

    Returns:
        OUTPUT_COLUMNS: the key, `row`, `outcome` (upsert, delete, tombstone, dead), `reason` (null unless
        dead), the origin, and `text`, which has the bytes of the message.

    Raises:
        LakeError: the schema of the rows lacks a key, ordering or partition field; and as
            Schemas.resolve.
        StackError: the registry does not respond.
    """
    messages = schemas.split(messages)
    ids = schemas.resolve(schemas_in(messages, in_memory) if schemas.differ else Counter())
    decoded = decode_messages(messages, schemas, ids)
    decoded = add_columns(decoded, text=F.col("value").cast("string"))
    return classify(decoded, schemas.row_schema, table)


def schemas_in(messages: DataFrame, in_memory: bool) -> Counter[str]:
    """Count the messages of each schema.

    Args:
        messages: as Schemas.split returns them.
        in_memory: whether they are part of the query.

    Returns:
        {id: messages}, that of the newest message first.
    """
    found = messages.where("value IS NOT NULL AND schema IS NOT NULL")
    found = found.selectExpr("schema", "1 AS n", "struct(offset, file) AS at")
    if not in_memory:  # rows in the query plan are collected without a Spark job
        found = found.groupBy("schema").agg(F.expr("sum(n) AS n"), F.expr("max(at) AS at"))
        found = found.orderBy("at")
    found = found.where(~is_not_utf8(F.col("schema"))).select("schema", "n")
    counts: Counter[str] = Counter()
    for id, n in reversed(found.collect()):
        counts[id] += n
    return counts


def decode_messages(messages: DataFrame, schemas: Schemas, ids: Sequence[str]) -> DataFrame:
    """Decode messages without a classification; they may be a stream.

    Args:
        messages: as Schemas.split returns them.
        schemas: the schemas of their source.
        ids: ids of all known schemas in them.

    Returns:
        `messages` with the columns that `classify` takes.
    """
    parsed: dict[str, Column] = {}
    errors, rows, losses = [], [], []
    for n, id in enumerate(ids):
        has_schema, column = F.col("schema") == id, f"_parsed{n}"
        reason = schemas.unreadable_reason(id)
        if reason:
            errors.append((has_schema, schemas.not_parsed(F.lit(reason))))
            continue
        row, lost = schemas.convert(f"{column}.payload", id)
        parsed[column] = F.when(has_schema, schemas.parse(id))
        errors.append((has_schema, schemas.error(column, id)))
        rows.append((has_schema, row))
        losses.append((has_schema, lost))
    no_text = F.lit(None).cast("string")
    no_row = F.lit(None).cast(schemas.row_schema)
    errors.insert(0, (F.col("value").isNull(), no_text))
    unknown = schemas.not_parsed(schemas.unknown_reason())
    decoded = add_columns(add_columns(messages, **parsed), error=_case(errors, unknown))
    decoded = add_columns(decoded, row=F.when(F.col("error").isNull(), _case(rows, no_row)))
    return add_columns(decoded, lost=_case(losses, no_text))


def _case(branches: list[tuple[Column, Column]], otherwise: Column) -> Column:
    case: Any = F
    for condition, value in branches:
        case = case.when(condition, value)
    result: Column = case.otherwise(otherwise) if branches else otherwise
    return result


def add_columns(rows: DataFrame, **columns: Column) -> DataFrame:
    """Add new columns. Unlike withColumns, Spark Connect does not analyze the query for this step.

    Args:
        rows: without such columns.
        columns: {name: value}.
    """
    return rows.select("*", *(value.alias(name) for name, value in columns.items()))


def is_not_utf8(text: Column) -> Column:
    """Return whether a string is not UTF-8.

    Spark takes any bytes for a string; a conversion to Java's strings changes them if they are not
    UTF-8.
    """
    return F.encode(text, "UTF-8") != text.cast("binary")


def classify(decoded: DataFrame, schema: T.StructType, table: Table) -> DataFrame:
    """Return OUTPUT_COLUMNS; `row` has the columns of DERIVED_COLUMNS that the table has.

    Args:
        decoded: columns `row` (of type `schema`), `error` (why it is not decoded), `lost` (which value
            the row cannot hold, and why), `key`, `text` and the origin. A message without a row and an
            error is a tombstone.
        schema: the schema of the rows.
        table: the table that the rows are for.

    Raises:
        LakeError: the schema lacks a key, ordering or partition field, or a key field is a timestamp.
    """
    check_columns(schema, table)
    is_delete, is_tombstone = _is_delete(schema), "row IS NULL AND error IS NULL"
    unusable = _unusable_partitions(schema, table)
    required = [("record key", name) for name in table.key]
    required += [("ordering field", name) for name in table.ordering_fields]
    nulls = [f"if(row.`{name}` IS NULL, '{role} {name} is null', NULL)" for role, name in required]
    # a delete needs its key only
    lost, *partitions = [f"if({is_delete}, NULL, {sql})" for sql in ("lost", *unusable.values())]
    error = f"coalesce({', '.join(['error', lost, *nulls, *partitions])})"
    reason = f"if({is_tombstone}, if(key IS NULL, 'no value and no key', NULL), {error})"
    outcome = (
        f"CASE WHEN reason IS NOT NULL THEN '{DEAD}' WHEN {is_tombstone} THEN '{TOMBSTONE}' "
        f"WHEN {is_delete} THEN '{DELETE}' ELSE '{UPSERT}' END"
    )
    classified = add_columns(decoded, reason=F.expr(reason))
    classified = add_columns(classified, outcome=F.expr(outcome))
    values = _derived_columns(schema, table)
    for name, problem in unusable.items():  # of a delete: no row has such a value
        values[name] = f"if(({problem}) IS NULL, row.`{name}`, NULL)"
    row = F.col("row")
    for name, value in values.items():
        row = row.withField(name, F.expr(value))
    return classified.select(row.alias("row"), *OUTPUT_COLUMNS[1:])


def check_columns(schema: T.StructType, table: Table) -> None:
    """Raise LakeError if rows of a schema lack a field of a table, or have one that cannot be a key."""
    for name in (*table.key, *table.ordering_fields, *table.partition):
        if name not in schema.names:
            raise LakeError(
                f"the reader schema has no field {name!r}", expected=", ".join(schema.names)
            )
    for name in () if table.encodes_key else table.key:
        if isinstance(schema[name].dataType, T.TimestampType):
            raise LakeError(
                f"the key field {name} is a timestamp: Hudi writes it as text in a first load, and as a number later",
                location=table.base,
                expected="a table with encodes_key=True",
            )


def _is_delete(schema: T.StructType) -> str:
    """Return SQL of whether a row is a delete event."""
    marks = {"__deleted": "true", "__op": "d"}
    conditions = [
        f"CAST(row.{name} AS string) <=> '{value}'"
        for name, value in marks.items()
        if name in schema.names
    ]
    return f"({' OR '.join(conditions) or 'false'})"


def _unusable_partitions(schema: T.StructType, table: Table) -> dict[str, str]:
    """Return {partition field: SQL of why the name of a partition cannot have its text; null if it can}."""
    reasons = {}
    for name in table.partition if table.checks_partition else ():
        if isinstance(schema[name].dataType, T.StringType):
            limit = MAX_FOLDER_BYTES - len(f"{name}=".encode())
            length = FOLDER_BYTES.format(name=name)
            reasons[name] = UNUSABLE_PARTITION.format(
                name=name, null=NULL_PARTITION, bytes=length, limit=limit
            )
    return reasons


def _combined_ordering_value(schema: T.StructType, table: Table) -> str:
    """Return SQL of the value of the combined ordering column (see Table.ordering_value)."""
    values = []
    for name in table.ordering_fields:
        value = f"row.`{name}`"
        if name == OP_COLUMN:
            value = f"if({value} = '{SNAPSHOT_OP}', '0', '1')"
        elif schema[name].dataType != T.StringType():
            value = f"lpad(CAST({value} AS string), {ORDERING_DIGITS}, '0')"
        values.append(value)
    # / sorts before every digit and letter: of two texts of which one begins with the other, the
    # shorter stays the smaller
    # A change of the key's text is a delete and a create of one position, and may be of one record key
    # (1.0 to 1.00): the create is the newer one.
    values.append(f"if({_is_delete(schema)}, NULL, '1')")
    return f"concat_ws('/', {', '.join(values)})"


def _derived_columns(schema: T.StructType, table: Table) -> dict[str, str]:
    """Return {column: SQL of its value} of the columns that the ingest adds: texts."""
    columns = {}
    if len(table.ordering_fields) > 1:
        columns[COMBINED_ORDERING_COLUMN] = _combined_ordering_value(schema, table)
    if table.encodes_key:
        key = ", ".join(f"'{name}', row.`{name}`" for name in table.key)
        columns[ENCODED_KEY_COLUMN] = ENCODED_KEY.format(key)
    return columns


def classified_schema(schema: T.StructType, table: Table) -> T.StructType:
    """Return the type of `row` after `classify`."""
    columns = [T.StructField(name, T.StringType()) for name in _derived_columns(schema, table)]
    return T.StructType([*schema, *columns])
