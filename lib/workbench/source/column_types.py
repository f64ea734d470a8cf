"""Types of the source's columns: what pandas makes of them."""

from typing import Any, Sequence

import pandas
import psycopg
from psycopg.types import datetime as of


def _with_text_fallback(loader: type[psycopg.adapt.Loader]) -> type[psycopg.adapt.Loader]:
    """A loader of psycopg that gives the text of a value where it raises by itself, for one that
    Python has not.
    """

    class OrText(loader):  # type: ignore[valid-type, misc]
        def load(self, data: Any) -> Any:
            try:
                return super().load(data)
            except psycopg.DataError:
                return bytes(data).decode()

    return OrText


TEXT_FALLBACK_LOADERS = {
    "date": _with_text_fallback(of.DateLoader),
    "time": _with_text_fallback(of.TimeLoader),
    "timetz": _with_text_fallback(of.TimetzLoader),
    "timestamp": _with_text_fallback(of.TimestampLoader),
    "timestamptz": _with_text_fallback(of.TimestamptzLoader),
}


def type_name(type_code: int) -> str:
    """What PostgreSQL calls a type; "" of an array, which is found by its element's."""
    known = psycopg.postgres.types.get(type_code)
    return known.name if known and known.oid == type_code else ""


def to_dataframe(
    names: Sequence[str], kinds: Sequence[str], rows: Sequence[Sequence[Any]]
) -> pandas.DataFrame:
    """Return a frame of these columns, each of a kind: as Spark's toPandas has it, so that both can
    be compared.
    """
    values = [
        pandas.Series([row[i] for row in rows], dtype=object, name=name)
        for i, name in enumerate(names)
    ]
    return pandas.concat([v.astype(_dtype(kind, v)) for v, kind in zip(values, kinds)], axis=1)


def _dtype(name: str, values: pandas.Series) -> str:
    nulls = bool(values.isna().any())
    if name in ("int2", "int4", "int8", "oid"):
        return "Int64" if nulls else "int64"
    if name == "bool":
        return "boolean" if nulls else "bool"
    if name in ("float4", "float8"):
        return "float64"
    if name not in ("timestamp", "timestamptz") or any(isinstance(v, str) for v in values):
        return "object"
    unit = (
        "ns" if all(1678 <= v.year <= 2261 for v in values if v is not None) else "us"
    )  # what 64 bits of ns hold
    return f"datetime64[{unit}{', UTC' if name == 'timestamptz' else ''}]"
