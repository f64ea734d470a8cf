"""Parquet files of one schema, written by pyarrow: Connect's schemas and values in Arrow's types.

Connect's logical types Timestamp, Date and Decimal become Arrow's. Other logical types become their
base types, so Debezium's times stay numbers, as in the files of the Confluent sink (its AvroData
supports only Connect's own logical types). One type differs from that sink: Connect's Time stays a
number of milliseconds, because Spark cannot read Parquet files with a time of day.
"""

from __future__ import annotations

import base64
import decimal
import io
from dataclasses import dataclass
from typing import Any, Callable, Optional

import pyarrow
from pyarrow import parquet

from ..topic.connect_schema import (
    DATE,
    DECIMAL,
    MAX_DIGITS,
    TIMESTAMP,
    TYPE_MAPPINGS,
    decimal_digits,
)

# {codec: suffix before .parquet}; the suffixes are those of Parquet's CompressionCodecName
CODEC_SUFFIXES = {"none": "", "snappy": ".snappy", "gzip": ".gz", "zstd": ".zstd"}
DECIMAL_CONTEXT = decimal.Context(prec=MAX_DIGITS)
# {Connect's type: the first number that is too large}
INTEGER_BOUNDS = {f"int{bits}": 1 << bits - 1 for bits in (8, 16, 32, 64)}
# {Connect's type: Arrow's type}; the smaller integers are 32 bits wide, as in AvroData
ARROW_TYPES = {kind: getattr(pyarrow, name)() for kind, name in TYPE_MAPPINGS["arrow"].items()}
LOGICAL_TYPES = {
    ("int64", TIMESTAMP): pyarrow.timestamp("ms", tz="UTC"),
    ("int32", DATE): pyarrow.date32(),
}
FLOATS = ("float", "double")
CONVERTED_TYPES = ("struct", "array", "bytes")  # those whose values of Avro are changed
# {Connect's type: Python types of its values in JSON}
JSON_TYPES: dict[Any, tuple[type, ...]] = {
    "boolean": (bool,),
    "string": (str,),
    "bytes": (str,),  # base64
    **dict.fromkeys(FLOATS, (float, int)),
    "struct": (dict,),
    "array": (list,),
    **dict.fromkeys(INTEGER_BOUNDS, (int,)),
}


@dataclass(frozen=True)
class Parquet:
    """The Parquet format. formats.JsonLines describes the interface.

    Attributes:
        codec: compression codec.
        is_from_json: whether values were decoded from JSON. Those of Avro have the types of their schema.
    """

    codec: str
    is_from_json: bool

    @property
    def extension(self) -> str:
        """The extension of the files."""
        return CODEC_SUFFIXES[self.codec] + ".parquet"

    def encoder_for(self, schema: Any) -> Callable[[Any, Optional[str]], Any]:
        """Return the function that converts a value to one that pyarrow accepts for the schema."""
        if schema is None or schema.get("type") != "struct":
            raise ValueError("Parquet requires a struct with a schema")
        arrow_field(schema, "the record")
        return lambda value, line: arrow_value(value, schema, "the record", self.is_from_json)

    def encode_file(self, schema: Any, records: list[Any], name: str) -> bytes:
        """Return the bytes of a file."""
        row_type = arrow_field(schema, "the record").type
        rows = pyarrow.Table.from_struct_array(pyarrow.array(records, row_type))
        out = io.BytesIO()
        parquet.write_table(rows, out, compression=self.codec, store_schema=False)
        return out.getvalue()


def arrow_field(schema: dict[str, Any], path: str) -> pyarrow.Field:
    """Return Arrow's field for the values of a Connect schema.

    Args:
        schema: the Connect schema.
        path: path of the value in the record, for errors.

    Raises:
        ValueError: Parquet has no such type, or Spark cannot read it.
    """
    kind: Any = schema.get("type")
    name: Any = schema.get("name")
    arrow_type = LOGICAL_TYPES.get((kind, name)) or ARROW_TYPES.get(kind)
    if (kind, name) == ("bytes", DECIMAL):
        precision, scale = decimal_digits(schema)
        if not 0 <= scale <= precision:
            raise ValueError(
                f"{path} is a decimal with {scale} digits after the point; Spark has {MAX_DIGITS} in all"
            )
        arrow_type = pyarrow.decimal128(precision, scale)
    elif kind == "struct" and schema["fields"]:
        by_name = {  # of fields with one name the last is kept: a file with both is unreadable
            field["field"]: arrow_field(field, f"{path}.{field['field']}")
            for field in schema["fields"]
        }
        arrow_type = pyarrow.struct([*by_name.values()])
    elif kind == "array":
        arrow_type = pyarrow.list_(arrow_field(schema["items"], f"{path}[]"))
    if arrow_type is None:
        raise ValueError(
            f"{path} has type {kind!r}, which the landing cannot write to Parquet (a struct needs a "
            "field)"
        )
    return pyarrow.field(schema.get("field", "element"), arrow_type, bool(schema.get("optional")))


def arrow_value(value: Any, schema: dict[str, Any], path: str, is_from_json: bool) -> Any:
    """Return a value as pyarrow takes it for the field of its Connect schema.

    Args:
        value: the value.
        schema: its Connect schema, of which `arrow_field` has a field.
        path: path of the value in the record, for errors.
        is_from_json: see Parquet.

    Raises:
        ValueError: a value of JSON does not match the schema, or a decimal has too many digits.
    """
    kind = schema["type"]
    if is_from_json:
        value = _decode_json(value, schema, path)
    if value is None:
        return None
    if kind == "struct":
        converted = {**value}
        for field in schema["fields"]:
            name = field["field"]
            if is_from_json or field["type"] in CONVERTED_TYPES:
                converted[name] = arrow_value(
                    value.get(name), field, f"{path}.{name}", is_from_json
                )
        return converted
    if kind == "array":
        items = schema["items"]
        return [arrow_value(item, items, f"{path}[]", is_from_json) for item in value]
    if kind == "bytes" and schema.get("name") == DECIMAL:
        precision, scale = decimal_digits(schema)
        unscaled = int.from_bytes(value, "big", signed=True)
        if abs(unscaled) >= 10**precision:
            raise ValueError(f"{path} has more than {precision} digits")
        return DECIMAL_CONTEXT.scaleb(unscaled, -scale)
    return value


def _decode_json(value: Any, schema: dict[str, Any], path: str) -> Any:
    """Return a value of JSON as one of Avro would be. A null is the schema's default, as in Connect."""
    kind = schema["type"]
    if value is None:
        value = schema.get("default")
        if value is None and schema.get("optional"):
            return None
    bound = INTEGER_BOUNDS.get(kind)
    try:
        if type(value) not in JSON_TYPES[kind] or (bound and not -bound <= value < bound):
            raise ValueError("another type or range")
        if kind == "bytes":
            return base64.b64decode(value, validate=True)
        if kind == "string":
            value.encode()  # an error for an unpaired surrogate
        return float(value) if kind in FLOATS else value
    except ValueError as e:
        raise ValueError(
            f"{path} is {str(value)[:80]!r}, which is not a valid {kind}: {e}"
        ) from None
