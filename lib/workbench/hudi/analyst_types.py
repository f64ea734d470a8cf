"""Analyst types: the types that charts and SQL work with, in place of Debezium's numbers and texts.

analyst_types.yaml has the types, and is the one place that says what becomes of a value. It serves
Avro and JSON: both have the names of Connect's types in the schema of a message. Columns and lists are
converted; what is within a record or a map stays as it is sent.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Mapping, Optional

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ..base import yaml_files
from ..topic.connect_schema import to_spark

TYPES = yaml_files.load(Path(__file__).with_suffix(".yaml"))
# What Debezium sends for a large value that an update did not change, and that it could not read from the table: this
# text, its bytes, a list with one of them, or a list of the bytes as numbers (UnchangedToastedPlaceholder of its
# PostgreSQL connector).
UNAVAILABLE = "__debezium_unavailable_value"
DEFAULT_SCALE = 10  # digits after the decimal point of a numeric without precision
MAX_VALUE_CHARS = 100  # of a value in the reason of a dead letter


def convert(
    record: str, sent_schema: dict[str, Any], scales: Mapping[str, int]
) -> tuple[T.StructType, Column, Column]:
    """Convert a record to analyst types.

    Args:
        record: name of the column that has the record, whose dates and times are numbers.
        sent_schema: its schema, of Kafka Connect.
        scales: {column: digits after the decimal point} of numeric columns without precision; by
            default DEFAULT_SCALE.

    Returns:
        The type of the row; the row, null if the record is; and which value the column `row` cannot hold (it is
        null there), and why, null if it holds all.
    """
    schema, values, reasons = T.StructType(), [], [F.lit(None).cast("string")]
    for field, sent_field in zip(to_spark(sent_schema, as_numbers=True), sent_schema["fields"]):
        rule = TYPES.get(_element_name(sent_field))
        sent = value = F.col(f"{record}.`{field.name}`")
        placeholder = _placeholder(field.dataType)
        if placeholder is not None:
            unread = f"the large value of {field.name} is not in the log, and could not be read from the row"
            reasons.append(F.when(sent == placeholder, F.lit(unread)))
        if rule:
            row_value = F.col(f"row.`{field.name}`")
            scale = scales.get(field.name, DEFAULT_SCALE)
            is_list = isinstance(field.dataType, T.ArrayType)
            kind, value = _convert_list(sent if is_list else F.array(sent), rule, scale)
            if is_list:
                field.dataType = T.ArrayType(kind)
                is_lost = F.size(F.array_compact(sent)) > F.size(F.array_compact(row_value))
            else:
                field.dataType, value = kind, F.get(value, F.lit(0))
                is_lost = sent.isNotNull() & row_value.isNull()
            sent_json = F.to_json(F.struct(sent.alias(field.name)))
            accepted = f" is not {rule['values'].format(38 - scale, scale)}"
            reason = F.concat(F.substring(sent_json, 1, MAX_VALUE_CHARS), F.lit(accepted))
            reasons.append(F.when(is_lost, reason))
        schema.add(field)
        values.append(value.alias(field.name))
    row = F.when(F.col(record).isNotNull(), F.struct(*values))
    return schema, row, F.coalesce(*reasons)


def _element_name(schema: dict[str, Any]) -> Optional[str]:
    """Return the name of Connect's type of a value, of a list that of its elements."""
    return _element_name(schema["items"]) if schema["type"] == "array" else schema.get("name")


def _placeholder(kind: T.DataType) -> Optional[Column]:
    """Return what Debezium sends in the place of a large value of this type; None for a type without large values."""
    if isinstance(kind, T.ArrayType):
        if isinstance(kind.elementType, (T.IntegerType, T.LongType)):
            return F.lit([*UNAVAILABLE.encode()]).cast(kind)
        one = _placeholder(kind.elementType)
        return None if one is None else F.array(one)
    is_text = isinstance(kind, (T.StringType, T.BinaryType))
    return F.lit(UNAVAILABLE).cast(kind) if is_text else None


def _convert_list(sent: Column, rule: dict[str, Any], scale: int) -> tuple[T.DataType, Column]:
    """Convert the values of a list.

    Args:
        sent: the list.
        rule: of TYPES.
        scale: digits after the decimal point of a numeric without precision.

    Returns:
        The analyst type of a value, and the list.
    """
    rule = json.loads(json.dumps(rule).replace("{scale}", str(scale)))
    field = {"name": "", "type": rule["type"], "nullable": True, "metadata": {}}
    values = F.call_function("transform", sent, F.expr(f"x -> {rule['value']}"))
    return T.StructField.fromJson(field).dataType, values
