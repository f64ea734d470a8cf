"""Parquet files of one schema, written by pyarrow: Connect's schemas and values in Arrow's types.

Connect's own logical types keep their meaning: Timestamp, Date, Decimal. All others become their
base type, so Debezium's times stay numbers, as in the files of the Confluent sink (its AvroData
knows Connect's own types only). One type differs from that sink: Connect's Time stays a number of
milliseconds, because Spark reads no file with a time of day.
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

from ..topic.avro import MAX_DIGITS, TYPE_MAPPINGS
from ..topic.connect_schema import DATE, DECIMAL, PRECISION_PARAMETER, TIMESTAMP

# by parquet's CompressionCodecName
CODEC_SUFFIXES = {"none": "", "snappy": ".snappy", "gzip": ".gz", "zstd": ".zstd"}
DECIMAL_CONTEXT = decimal.Context(prec=MAX_DIGITS)
INTEGER_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
# Arrow's type of each type of Connect (as in AvroData the smaller integers are Avro's int)
ARROW_TYPES = {kind: getattr(pyarrow, name)() for kind, name in TYPE_MAPPINGS["arrow"].items()}
LOGICAL_TYPES = {
    ("int64", TIMESTAMP): pyarrow.timestamp("ms", tz="UTC"),
    ("int32", DATE): pyarrow.date32(),
}
# the types of values in Python
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
    """The format (see formats.JsonLines)."""

    codec: str

    @property
    def extension(self) -> str:
        """The extension of the files."""
        return CODEC_SUFFIXES[self.codec] + ".parquet"

    def encoder_for(self, schema: Any) -> Callable[[Any, Optional[str]], Any]:
        """Return the function that converts a value to Arrow's."""
        if schema is None or schema.get("type") != "struct":
            raise ValueError("a Parquet file holds structs with a schema, and this is none")
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

    The converter takes a value as JSON or Avro has it. It replaces a null by the schema's default,
    as Connect does, and raises ValueError where the value does not match the schema.

    Args:
        schema: the Connect schema.
        path: of the value in the record, for errors.

    Raises:
        ValueError: Parquet has no such type, or Spark cannot read it.
    """
    kind, default = schema.get("type"), schema.get("default")
    optional = bool(schema.get("optional"))
    arrow_type, convert = _arrow_type(schema, path)
    int_bound = 1 << INTEGER_BITS[kind] - 1 if kind in INTEGER_BITS else None

    def convert_nullable(value: Any) -> Any:
        value = default if value is None else value
        if value is None and optional:
            return None
        is_valid = type(value) in PYTHON_TYPES[kind]
        if is_valid and int_bound:
            is_valid = -int_bound <= value < int_bound
        if not is_valid:
            raise ValueError(f"{path} is {str(value)[:80]!r}, which is no {kind}")
        return convert(value)

    name = schema.get("field", "element")
    return pyarrow.field(name, arrow_type, nullable=optional), convert_nullable


def _arrow_type(schema: dict[str, Any], path: str) -> tuple[pyarrow.DataType, Converter]:
    kind: Any = schema.get("type")
    name: Any = schema.get("name")
    if (kind, name) == ("bytes", DECIMAL):
        return _decimal_type(schema.get("parameters") or {}, path)
    if kind == "struct" and schema["fields"]:
        by_name = {  # of fields with the same name the last one: a file with both is unreadable
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
            f"{path} is of type {kind!r}, which Parquet cannot hold here (nor a struct without a "
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

    Where the schema has no precision, or more digits than Spark (64 of an AvroConverter that does
    not know the precision), the decimal has Spark's precision. A number with more digits does not
    fit.
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
    """Return bytes, which are base64 in JSON."""
    try:
        return value if isinstance(value, bytes) else base64.b64decode(value, validate=True)
    except ValueError:
        raise ValueError(f"{path} is {value[:80]!r}, which is not base64") from None


def _validate_utf8(text: str) -> str:
    """Return the text.

    Raises:
        UnicodeEncodeError: the text has half of a surrogate pair.
    """
    text.encode()
    return text
