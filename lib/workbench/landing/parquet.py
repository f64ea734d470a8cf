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
from functools import partial
from typing import Any, Callable, Optional

import pyarrow
from pyarrow import parquet

from ..topic.connect_schema import (
    DATE,
    DECIMAL,
    MAX_DIGITS,
    PRECISION_PARAMETER,
    TIMESTAMP,
    TYPE_MAPPINGS,
)

# {codec: suffix before .parquet}; the suffixes are those of Parquet's CompressionCodecName
CODEC_SUFFIXES = {"none": "", "snappy": ".snappy", "gzip": ".gz", "zstd": ".zstd"}
DECIMAL_CONTEXT = decimal.Context(prec=MAX_DIGITS)
INTEGER_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
# {Connect's type: Arrow's type}; the smaller integers are 32 bits wide, as in AvroData
ARROW_TYPES = {kind: getattr(pyarrow, name)() for kind, name in TYPE_MAPPINGS["arrow"].items()}
LOGICAL_TYPES = {
    ("int64", TIMESTAMP): pyarrow.timestamp("ms", tz="UTC"),
    ("int32", DATE): pyarrow.date32(),
}
# {Connect's type: Python types of its values}
PYTHON_TYPES: dict[Any, tuple[type, ...]] = {
    "boolean": (bool,),
    "string": (str,),
    "bytes": (bytes, str),
    "float": (float, int),
    "double": (float, int),
    "struct": (dict,),
    "array": (list,),
    **dict.fromkeys(INTEGER_BITS, (int,)),
}
Converter = Callable[[Any], Any]


@dataclass(frozen=True)
class Parquet:
    """The Parquet format. formats.JsonLines describes the interface."""

    codec: str

    @property
    def extension(self) -> str:
        """The extension of the files."""
        return CODEC_SUFFIXES[self.codec] + ".parquet"

    def encoder_for(self, schema: Any) -> Callable[[Any, Optional[str]], Any]:
        """Return the function that converts a value to one that pyarrow accepts for the schema."""
        if schema is None or schema.get("type") != "struct":
            raise ValueError("Parquet requires a struct with a schema")
        _, convert = arrow_field(schema, "the record")
        return lambda value, line: convert(value)

    def encode_file(self, schema: Any, records: list[Any], name: str) -> bytes:
        """Return the bytes of a file."""
        field, _ = arrow_field(schema, "the record")
        rows = pyarrow.Table.from_pylist(records, pyarrow.schema(list(field.type)))
        out = io.BytesIO()
        parquet.write_table(rows, out, compression=self.codec, store_schema=False)
        return out.getvalue()


def arrow_field(schema: dict[str, Any], path: str) -> tuple[pyarrow.Field, Converter]:
    """Return Arrow's field for the values of a Connect schema, and the converter of a value.

    The converter takes a value that was decoded from JSON or Avro. It replaces a null by the schema's
    default, as Connect does, and raises ValueError if the value does not match the schema.

    Args:
        schema: the Connect schema.
        path: path of the value in the record, for errors.

    Raises:
        ValueError: Parquet has no such type, or Spark cannot read it.
    """
    kind, default = schema.get("type"), schema.get("default")
    optional = bool(schema.get("optional"))
    arrow_type, convert = _arrow_type(schema, path)
    valid_types = PYTHON_TYPES[kind]
    int_bound = 1 << INTEGER_BITS[kind] - 1 if kind in INTEGER_BITS else None

    def convert_nullable(value: Any) -> Any:
        if value is None:
            value = default
            if value is None and optional:
                return None
        is_valid = type(value) in valid_types
        if not is_valid or (int_bound and not -int_bound <= value < int_bound):
            raise ValueError(f"{path} is {str(value)[:80]!r}, which is not a valid {kind}")
        return convert(value)

    name = schema.get("field", "element")
    return pyarrow.field(name, arrow_type, nullable=optional), convert_nullable


def _arrow_type(schema: dict[str, Any], path: str) -> tuple[pyarrow.DataType, Converter]:
    kind: Any = schema.get("type")
    name: Any = schema.get("name")
    if (kind, name) == ("bytes", DECIMAL):
        return _decimal_type(schema.get("parameters") or {}, path)
    if kind == "struct" and schema["fields"]:
        by_name = {  # of fields with one name the last is kept: a file with both is unreadable
            field["field"]: arrow_field(field, f"{path}.{field['field']}")
            for field in schema["fields"]
        }
        fields = list(by_name.values())
        converters = [(name, convert) for name, (_, convert) in by_name.items()]
        return (
            pyarrow.struct([field for field, _ in fields]),
            lambda value: {name: convert(value.get(name)) for name, convert in converters},
        )
    if kind == "array":
        item, convert_item = arrow_field(schema["items"], f"{path}[]")
        return pyarrow.list_(item), lambda value: [convert_item(element) for element in value]
    arrow_type = LOGICAL_TYPES.get((kind, name)) or ARROW_TYPES.get(kind)
    if arrow_type is None:
        raise ValueError(
            f"{path} has type {kind!r}, which the landing cannot write to Parquet (a struct needs a "
            "field)"
        )
    converters_by_type: dict[str, Converter] = {
        "string": _validate_utf8,
        "bytes": partial(_decode_bytes, path),
        "float": float,
        "double": float,
    }
    return arrow_type, converters_by_type.get(kind, lambda value: value)


def _decimal_type(
    parameters: dict[str, str], path: str
) -> tuple[pyarrow.DataType, Callable[[Any], decimal.Decimal]]:
    """Return Arrow's decimal and the converter of a value.

    The precision is that of the schema, but at most Spark's. It is Spark's if the schema has none.
    (An Avro converter writes 64 if the precision is unknown.) The converter raises ValueError for a
    number with more digits.
    """
    precision = min(int(parameters.get(PRECISION_PARAMETER, MAX_DIGITS)), MAX_DIGITS)
    scale = int(parameters["scale"])
    if not 0 <= scale <= precision:
        raise ValueError(
            f"{path} is a decimal with {scale} digits after the point; Spark has {MAX_DIGITS} in all"
        )

    def convert(value: Any) -> decimal.Decimal:
        unscaled = int.from_bytes(_decode_bytes(path, value), "big", signed=True)
        if abs(unscaled) >= 10**precision:
            raise ValueError(f"{path} has more than {precision} digits")
        return DECIMAL_CONTEXT.scaleb(unscaled, -scale)

    return pyarrow.decimal128(precision, scale), convert


def _decode_bytes(path: str, value: Any) -> bytes:
    """Return bytes unchanged, and decode the base64 text that JSON has instead."""
    try:
        return value if isinstance(value, bytes) else base64.b64decode(value, validate=True)
    except ValueError:
        raise ValueError(f"{path} is {value[:80]!r}, which is not base64") from None


def _validate_utf8(text: str) -> str:
    """Return a text unchanged.

    Raises:
        UnicodeEncodeError: the text has an unpaired surrogate.
    """
    text.encode()
    return text
