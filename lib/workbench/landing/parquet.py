"""Parquet files of one schema, by pyarrow: Connect's schemas and values as Arrow has them.

What Connect's own logical types mean is kept: Timestamp, Date, Decimal. All others are what they
are written as, so Debezium's times stay numbers, as the Confluent sink writes them (its AvroData
knows Connect's own only). One thing is otherwise than there: Connect's Time stays the number of
milliseconds that it is, for Spark reads no file with a time of day in it.
"""

from __future__ import annotations

import base64
import decimal
import io
from dataclasses import dataclass
from functools import partial
from typing import Any, Callable

import pyarrow
from pyarrow import parquet

from ..topic.avro import TYPE_MAPPINGS
from ..topic.connect_schema import DATE, DECIMAL, PRECISION_PARAMETER, TIMESTAMP

CODEC_SUFFIXES = {
    "none": "",
    "snappy": ".snappy",
    "gzip": ".gz",
    "zstd": ".zstd",
}  # parquet's CompressionCodecName
MAX_DIGITS = 38  # the most that a decimal of Spark, Athena and Hive has
DECIMAL_CONTEXT = decimal.Context(prec=MAX_DIGITS)
INTEGER_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
# Arrow's type of each type of Connect (as in AvroData the smaller integers are Avro's int), and
# Python's of its values
ARROW_TYPES = {kind: getattr(pyarrow, name)() for kind, name in TYPE_MAPPINGS["arrow"].items()}
LOGICAL_TYPES = {
    ("int64", TIMESTAMP): pyarrow.timestamp("ms", tz="UTC"),
    ("int32", DATE): pyarrow.date32(),
}
PYTHON_TYPES = {
    "boolean": (bool,),
    "string": (str,),
    "bytes": (bytes, str),
    "float": (float, int),
    "double": (float, int),
    "struct": (dict,),
    "array": (list,),
    **dict.fromkeys(INTEGER_BITS, (int,)),
}


@dataclass(frozen=True)
class Parquet:
    """The format (see formats.JsonLines)."""

    codec: str

    @property
    def extension(self) -> str:
        return CODEC_SUFFIXES[self.codec] + ".parquet"

    def encoder_for(self, schema: Any) -> Callable[[Any, Any], Any]:
        if schema is None or schema.get("type") != "struct":
            raise ValueError("a Parquet file holds structs with a schema, and this is none")
        _, fit = arrow_field(schema, "the record")
        return lambda value, line: fit(value)

    def encode_file(self, schema: Any, records: list[Any], name: str) -> bytes:
        out = io.BytesIO()
        rows = pyarrow.Table.from_pylist(
            records, pyarrow.schema(list(arrow_field(schema, "the record")[0].type))
        )
        parquet.write_table(rows, out, compression=self.codec, store_schema=False)
        return out.getvalue()


def arrow_field(schema: dict[str, Any], where: str) -> tuple[pyarrow.Field, Callable[[Any], Any]]:
    """Arrow's field for values of a Connect schema, and what makes such a value, as JSON or Avro
    has it, Arrow's. That raises ValueError, which says where, when the value is none of the
    schema's. A null is its default, as for Connect.

    Raises: ValueError: Parquet has no such type, or none that Spark reads.
    """
    kind, logical = schema.get("type"), schema.get("name")
    type_ = LOGICAL_TYPES.get((kind, logical)) or ARROW_TYPES.get(kind)
    convert: Any = {
        "string": _validate_utf8,
        "bytes": partial(_decode_bytes, where),
        "float": float,
        "double": float,
    }.get(kind)
    if (kind, logical) == ("bytes", DECIMAL):
        type_, convert = _decimal(schema.get("parameters") or {}, where)
    elif kind == "struct" and schema["fields"]:
        inner = {f["field"]: arrow_field(f, f"{where}.{f['field']}") for f in schema["fields"]}
        type_ = pyarrow.struct([field for field, _ in inner.values()])
        fits = [(name, fit) for name, (_, fit) in inner.items()]
        convert = lambda value: {name: fit(value.get(name)) for name, fit in fits}  # noqa: E731
    elif kind == "array":
        item, each = arrow_field(schema["items"], f"{where}[]")
        type_, convert = pyarrow.list_(item), lambda value: [*map(each, value)]
    if type_ is None:
        raise ValueError(
            f"{where} is of type {kind!r}, which Parquet cannot hold here (nor a struct without a "
            "field)"
        )
    optional, default, half = (
        bool(schema.get("optional")),
        schema.get("default"),
        1 << INTEGER_BITS.get(kind, 0) >> 1,
    )

    def fit(value: Any) -> Any:
        value = default if value is None else value
        if value is None and optional:
            return None
        if type(value) not in PYTHON_TYPES[kind] or half and not -half <= value < half:
            raise ValueError(f"{where} is {str(value)[:80]!r}, which is no {kind}")
        return value if convert is None else convert(value)

    return pyarrow.field(schema.get("field", "element"), type_, nullable=optional), fit


def _decimal(
    said: dict[str, str], where: str
) -> tuple[pyarrow.DataType, Callable[[Any], decimal.Decimal]]:
    """Where nobody says how many digits a decimal has, and where it is more (64 of an AvroConverter
    that does not know), it has as many as Spark: a number that has more does not fit.
    """
    precision, scale = (
        min(int(said.get(PRECISION_PARAMETER, MAX_DIGITS)), MAX_DIGITS),
        int(said["scale"]),
    )
    if not 0 <= scale <= precision:
        raise ValueError(
            f"{where} is a decimal with {scale} digits after the point; Spark has {MAX_DIGITS} in all"
        )

    def convert(value: Any) -> decimal.Decimal:
        unscaled = int.from_bytes(_decode_bytes(where, value), "big", signed=True)
        if abs(unscaled) >= 10**precision:
            raise ValueError(f"{where} has more than {precision} digits")
        return DECIMAL_CONTEXT.scaleb(unscaled, -scale)

    return pyarrow.decimal128(precision, scale), convert


def _decode_bytes(where: str, value: Any) -> bytes:
    """Bytes are base64 in JSON."""
    try:
        return value if isinstance(value, bytes) else base64.b64decode(value, validate=True)
    except ValueError:
        raise ValueError(f"{where} is {value[:80]!r}, which is not base64") from None


def _validate_utf8(text: str) -> str:
    """The text. Raises: UnicodeEncodeError: half of a surrogate pair is in it."""
    return text if text.isascii() or text.encode() else text
