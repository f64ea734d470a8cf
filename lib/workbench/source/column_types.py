"""Conversion of source columns to pandas types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterable, Sequence

import psycopg
from psycopg.types import datetime as datetime_types
from psycopg.types.string import TextLoader

if TYPE_CHECKING:
    import pandas


def _with_text_fallback(loader: type[psycopg.adapt.Loader]) -> type[psycopg.adapt.Loader]:
    """Return a psycopg loader that returns the text of a value that Python cannot represent."""

    class TextFallbackLoader(loader):  # type: ignore[valid-type, misc]
        def load(self, data: Any) -> Any:
            try:
                return super().load(data)
            except psycopg.DataError:
                return bytes(data).decode()

    return TextFallbackLoader


LOADERS: dict[str, type[psycopg.adapt.Loader]] = {
    **{
        name: _with_text_fallback(getattr(datetime_types, f"{name.capitalize()}Loader"))
        for name in ("date", "time", "timetz", "timestamp", "timestamptz")
    },
    # Debezium publishes an address as PostgreSQL's text, too
    **dict.fromkeys(("inet", "cidr"), TextLoader),
}


def type_name(type_code: int) -> str:
    """Return PostgreSQL's name of a type; empty for an array, for which psycopg returns the element type."""
    info = psycopg.postgres.types.get(type_code)
    return info.name if info and info.oid == type_code else ""


def to_dataframe(columns: Iterable[tuple[str, str, Sequence[Any]]]) -> pandas.DataFrame:
    """Return columns as a DataFrame with the dtypes of Spark's toPandas, so that both can be compared.

    Args:
        columns: name, PostgreSQL's name of the type, and values of each column.
    """
    import pandas  # a local import: a process that only writes starts a second sooner

    converted = []
    for name, kind, values in columns:
        column = pandas.Series(values, dtype=object, name=name)
        converted.append(column.astype(_dtype(kind, column)))
    return pandas.concat(converted, axis=1)


# {type: (dtype without NULLs, dtype with NULLs)}
DTYPES = {
    **dict.fromkeys(("int2", "int4", "int8", "oid"), ("int64", "Int64")),
    **dict.fromkeys(("float4", "float8"), ("float64", "float64")),
    "bool": ("bool", "boolean"),
}


def _dtype(name: str, values: pandas.Series) -> str:
    if name in DTYPES:
        without_nulls, with_nulls = DTYPES[name]
        return with_nulls if values.isna().any() else without_nulls
    if name not in ("timestamp", "timestamptz") or any(isinstance(v, str) for v in values):
        return "object"
    # 64 bits of nanoseconds cover these years
    fits_nanoseconds = all(1678 <= v.year <= 2261 for v in values if v is not None)
    unit = "ns" if fits_nanoseconds else "us"
    zone = ", UTC" if name == "timestamptz" else ""
    return f"datetime64[{unit}{zone}]"
