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
CONVERTED_TYPES = {"struct", "array", "bytes"}  # of Avro: other values are as pyarrow accepts them
Schema = dict[str, Any]


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
        arrow_field(schema)  # raises if a type is not supported

        def encode(value: Any, line: Optional[str]) -> Any:
            try:
                return self.arrow_value(schema, value)
            except ValueError as e:
                raise ValueError(f"the record{e}") from None

        return encode

    def encode_file(self, schema: Any, records: list[Any], name: str) -> bytes:
        """Return the bytes of a file."""
        rows = pyarrow.array(records, arrow_field(schema).type)
        out = io.BytesIO()
        table = pyarrow.Table.from_struct_array(rows)
        parquet.write_table(table, out, compression=self.codec, store_schema=False)
        return out.getvalue()

    def arrow_value(self, schema: Schema, value: Any) -> Any:
        """Return a value of a Connect schema as pyarrow accepts it for `arrow_field`.

        Raises:
            ValueError: a value of JSON does not match the schema, or a decimal has too many digits. The
                error begins with the path of the value, relative to this one.
        """
        if self.is_from_json:
            value = _from_json(schema, value)
        kind = schema["type"]
        if value is None:
            return None
        if kind == "struct":
            struct, name = dict(value), ""
            try:
                for field in schema["fields"]:
                    if self.is_from_json or field["type"] in CONVERTED_TYPES:
                        name = field["field"]
                        struct[name] = self.arrow_value(field, value.get(name))
            except ValueError as e:
                raise ValueError(f".{name}{e}") from None
            return struct
        if kind == "array":
            try:
                return [self.arrow_value(schema["items"], item) for item in value]
            except ValueError as e:
                raise ValueError(f"[]{e}") from None
        if kind == "bytes" and schema.get("name") == DECIMAL:
            precision, scale = decimal_digits(schema)
            unscaled = int.from_bytes(value, "big", signed=True)
            if abs(unscaled) >= 10**precision:
                raise ValueError(f" has more than {precision} digits")
            return DECIMAL_CONTEXT.scaleb(unscaled, -scale)
        return value


def arrow_field(schema: Schema, path: str = "the record") -> pyarrow.Field:
    """Return Arrow's field for the values of a Connect schema.

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


def _from_json(schema: Schema, value: Any) -> Any:
    """Return a value of JSON, checked and decoded. A null is replaced by the schema's default, as in Connect."""
    kind = schema["type"]
    if value is None:
        value = schema.get("default")
        if value is None and schema.get("optional"):
            return None
    try:
        bound = INTEGER_BOUNDS.get(kind)
        if type(value) not in JSON_TYPES[kind] or (bound and not -bound <= value < bound):
            raise ValueError("another type or range")
        if kind == "bytes":
            return base64.b64decode(value, validate=True)
        if kind == "string":
            value.encode()  # raises for an unpaired surrogate
        return float(value) if kind in ("float", "double") else value
    except ValueError as e:
        raise ValueError(f" is {str(value)[:80]!r}, which is not a valid {kind}: {e}") from None
