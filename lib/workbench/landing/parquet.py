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
# {Connect's type: Python types of its values in JSON}
JSON_TYPES: dict[Any, tuple[type, ...]] = {
    "boolean": (bool,),
    "string": (str,),
    "bytes": (str,),  # base64
    "float": (float, int),
    "double": (float, int),
    "struct": (dict,),
    "array": (list,),
    **dict.fromkeys(INTEGER_BOUNDS, (int,)),
}
Converter = Callable[[Any], Any]


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
        _, convert = arrow_field(schema, "the record", self.is_from_json)
        return lambda value, line: convert(value) if convert else value

    def encode_file(self, schema: Any, records: list[Any], name: str) -> bytes:
        """Return the bytes of a file."""
        field, _ = arrow_field(schema, "the record", self.is_from_json)
        rows = pyarrow.Table.from_struct_array(pyarrow.array(records, field.type))
        out = io.BytesIO()
        parquet.write_table(rows, out, compression=self.codec, store_schema=False)
        return out.getvalue()


def arrow_field(
    schema: dict[str, Any], path: str, is_from_json: bool
) -> tuple[pyarrow.Field, Optional[Converter]]:
    """Return Arrow's field for the values of a Connect schema, and the converter of a value.

    The converter raises ValueError if a value of JSON does not match the schema, or a decimal has too many
    digits. None stands for a converter that returns each value unchanged.

    Args:
        schema: the Connect schema.
        path: path of the value in the record, for errors.
        is_from_json: see Parquet.

    Raises:
        ValueError: Parquet has no such type, or Spark cannot read it.
    """
    kind: Any = schema.get("type")
    name: Any = schema.get("name")
    convert: Optional[Converter] = None
    if (kind, name) == ("bytes", DECIMAL):
        arrow_type, convert = _decimal_type(schema, path)
    elif kind == "struct" and schema["fields"]:
        by_name = {  # of fields with one name the last is kept: a file with both is unreadable
            field["field"]: arrow_field(field, f"{path}.{field['field']}", is_from_json)
            for field in schema["fields"]
        }
        arrow_type = pyarrow.struct([field for field, _ in by_name.values()])
        convert = _struct_converter({n: change for n, (_, change) in by_name.items() if change})
    elif kind == "array":
        item, convert_item = arrow_field(schema["items"], f"{path}[]", is_from_json)
        arrow_type = pyarrow.list_(item)
        convert = _array_converter(convert_item)
    else:
        arrow_type = LOGICAL_TYPES.get((kind, name)) or ARROW_TYPES.get(kind)
        if arrow_type is None:
            raise ValueError(
                f"{path} has type {kind!r}, which the landing cannot write to Parquet (a struct needs a "
                "field)"
            )
    if is_from_json:
        convert = _json_converter(schema, path, convert)
    is_optional = bool(schema.get("optional"))
    return pyarrow.field(schema.get("field", "element"), arrow_type, is_optional), convert


def _struct_converter(converters: dict[str, Converter]) -> Optional[Converter]:
    def convert(struct: Any) -> Any:
        if struct is not None:
            for name, change in converters.items():
                struct[name] = change(struct.get(name))
        return struct

    return convert if converters else None


def _array_converter(convert_item: Optional[Converter]) -> Optional[Converter]:
    if convert_item is None:
        return None
    return lambda items: items and [convert_item(item) for item in items]


def _json_converter(schema: dict[str, Any], path: str, convert: Optional[Converter]) -> Converter:
    """Return the converter of a value of JSON: checked, decoded, then converted like one of Avro.

    It replaces a null by the schema's default, as Connect does.
    """
    kind, default = schema["type"], schema.get("default")
    decode: Converter = JSON_DECODERS.get(kind, lambda value: value)
    types, bound = JSON_TYPES[kind], INTEGER_BOUNDS.get(kind)

    def convert_json(value: Any) -> Any:
        if value is None:
            value = default
            if value is None and schema.get("optional"):
                return None
        try:
            if type(value) not in types or (bound and not -bound <= value < bound):
                raise ValueError("another type or range")
            decoded = decode(value)
        except ValueError as e:
            raise ValueError(
                f"{path} is {str(value)[:80]!r}, which is not a valid {kind}: {e}"
            ) from None
        return convert(decoded) if convert else decoded

    return convert_json


def _decimal_type(schema: dict[str, Any], path: str) -> tuple[pyarrow.DataType, Converter]:
    """Return Arrow's decimal and the converter of a value, which raises ValueError for more digits."""
    precision, scale = decimal_digits(schema)
    if not 0 <= scale <= precision:
        raise ValueError(
            f"{path} is a decimal with {scale} digits after the point; Spark has {MAX_DIGITS} in all"
        )
    bound = 10**precision

    def convert(value: Optional[bytes]) -> Optional[decimal.Decimal]:
        if value is None:
            return None
        unscaled = int.from_bytes(value, "big", signed=True)
        if not -bound < unscaled < bound:
            raise ValueError(f"{path} has more than {precision} digits")
        return DECIMAL_CONTEXT.scaleb(unscaled, -scale)

    return pyarrow.decimal128(precision, scale), convert


def _validate_utf8(text: str) -> str:
    """Return a text unchanged; raise UnicodeEncodeError if it has an unpaired surrogate."""
    text.encode()
    return text


JSON_DECODERS: dict[str, Converter] = {
    "float": float,
    "double": float,
    "string": _validate_utf8,
    "bytes": partial(base64.b64decode, validate=True),
    "struct": dict,  # a copy: the converter of a struct changes it, and it may be a schema's default
}
