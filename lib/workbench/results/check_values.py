"""Values and frames against each other, as check's docstring states it: what differs, told in
sentences.
"""

import datetime as dt
import ipaddress
import json
import numbers
import re
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any, Iterable

import numpy as np
import pandas as pd

DIRECTLY_COMPARABLE = {
    bool,
    np.bool_,
    int,
    np.int32,
    np.int64,
    float,
    np.float64,
    Decimal,
    str,
    dt.date,
    pd.Timestamp,
    type(None),
}
COLLECTION_TYPES = (list, tuple, np.ndarray, set, frozenset, dict)
# what psycopg makes of inet and cidr
ADDRESS_TYPES = (
    ipaddress.IPv4Address,
    ipaddress.IPv6Address,
    ipaddress.IPv4Network,
    ipaddress.IPv6Network,
)
ZONED_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d(:?\d\d)?)")


def differences(
    source: pd.DataFrame,
    lake: pd.DataFrame,
    key: list[str],
    labels: tuple[str, str],
    tolerance: float = 0,
) -> list[str]:
    """Return one sentence per difference; `labels` are what the lake's and the source's side are
    called in it.
    """
    ours, theirs = labels
    found = []
    for side, frame, other in ((theirs, source, lake), (ours, lake, source)):
        found += [f"column {c}: only in {side}" for c in frame.columns if c not in other.columns]
        found += [f"key column {k} is not in {side}" for k in key if k not in frame.columns]
        found += [
            f"column {c} stands twice in {side}" for c in frame.columns[frame.columns.duplicated()]
        ]
    if found:
        return found
    source, lake = _parse_instants(source, lake), _parse_instants(lake, source)
    source, lake = (frame.set_axis(_key_index(frame, key)) for frame in (source, lake))
    if not source.index.isin(lake.index).any():
        types = {k: (_type_names(lake[k]), _type_names(source[k])) for k in key}
        found = [
            f"key column {k} is {format_value(a)} in {ours}, {format_value(b)} in {theirs}: no keys can be equal, convert one side"
            for k, (a, b) in types.items()
            if a and b and not a & b
        ]
    if found:
        return found
    for side, frame in ((theirs, source), (ours, lake)):
        counts = frame.index[frame.index.duplicated()].value_counts()
        found += [f"{_format_key(key, k)}: {n + 1} rows in {side}" for k, n in counts.items()]
    source, lake = (frame[~frame.index.duplicated()] for frame in (source, lake))
    found += [
        f"{_format_key(key, k)}: missing in {ours}"
        for k in source.index.difference(lake.index, sort=False)
    ]
    found += [
        f"{_format_key(key, k)}: not in {theirs}"
        for k in lake.index.difference(source.index, sort=False)
    ]
    source = source[source.index.isin(lake.index)]
    lake = lake.loc[source.index]
    for column in (c for c in source.columns if c not in key):
        a, b = lake[column].array, source[column].array
        found += [
            f"{_format_key(key, source.index[i])}, {column}: {ours} {format_value(a[i], True)}, {theirs} {format_value(b[i], True)}"
            for i in _differing_positions(a, b, tolerance)
        ]
    return found


def _parse_instants(frame: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    """The frame with texts as instants in those columns that are instants with a zone in the other
    frame. (Debezium publishes a timestamptz as a text.) A text without a zone, or one that is no
    instant, stays a text.
    """
    zoned = [c for c in frame.columns if _is_zoned(other[c]) and not _is_zoned(frame[c])]
    return frame.assign(
        **{
            c: pd.Series(list(map(_parse_instant, frame[c])), frame.index, dtype=object)
            for c in zoned
        }
    )


def _is_zoned(column: pd.Series) -> bool:
    if column.dtype != object:
        return isinstance(column.dtype, pd.DatetimeTZDtype)
    return any(isinstance(value, dt.datetime) and value.tzinfo is not None for value in column)


def _parse_instant(value: Any) -> Any:
    if not isinstance(value, str) or not ZONED_TIMESTAMP.fullmatch(value):
        return value
    try:
        return pd.Timestamp(value)
    except ValueError:
        return value


def _type_names(column: pd.Series) -> set[str]:
    """Names of the types of a column's values; all numbers are one type."""
    values = [normalize(value) for value in column]
    return {
        "number" if isinstance(value, (int, Decimal)) else type(value).__name__
        for value in values
        if value is not None
    }


def _key_index(frame: pd.DataFrame, key: list[str]) -> pd.Index:
    """The keys as an index of plain values: equal numbers hash alike, whatever their types."""
    columns = [
        frame[k] if frame[k].dtype.kind in "iu" else [normalize(v) for v in frame[k].array]
        for k in key
    ]
    return pd.Index(
        columns[0] if len(key) == 1 else list(zip(*columns)), dtype=object, tupleize_cols=False
    )


def _differing_positions(a: Iterable[Any], b: Iterable[Any], tolerance: float) -> list[int]:
    """Positions at which two columns differ: values of one plain type are compared as they are;
    `same` judges the rest.
    """
    return [
        i
        for i, (x, y) in enumerate(zip(a, b))
        if not (
            type(x) is type(y)
            and type(x) in DIRECTLY_COMPARABLE
            and x == y
            or values_equal(x, y, tolerance)
        )
    ]


def values_equal(x: Any, y: Any, tolerance: float = 0) -> bool:
    """Whether two values say the same."""
    a, b = normalize(x), normalize(y)
    if tolerance and all(isinstance(v, (int, Decimal)) for v in (a, b)):
        return abs(Decimal(a) - Decimal(b)) <= Decimal(str(tolerance))
    return bool(a == b) or bool(_parse_json(a) == _parse_json(b))


def _parse_json(value: Any) -> Any:
    """A text that holds JSON's objects or arrays as these, anything else as it is."""
    try:
        return (
            normalize(json.loads(value))
            if isinstance(value, str) and value.lstrip()[:1] in ("{", "[")
            else value
        )
    except ValueError:
        return value


def normalize(value: Any) -> Any:  # noqa: PLR0911 - a table of types
    """Return the value in the one form in which values of all drivers are compared."""
    if isinstance(value, (str, uuid.UUID)):
        return str(value)
    if isinstance(value, ADDRESS_TYPES):
        return _format_address(value)
    if isinstance(value, dict):
        return {str(k): normalize(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [normalize(v) for v in value]
    if isinstance(value, (bool, np.bool_)):
        return ("bool", bool(value))
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if pd.isna(value):
        return None
    if isinstance(value, (float, np.floating)):
        return Decimal(str(value))  # str: shortest text, of a float32, too
    if isinstance(value, (dt.date, np.datetime64)):
        stamp = pd.Timestamp(value)
        return stamp.tz_localize("UTC") if stamp.tz is None else stamp.tz_convert("UTC")
    return value


def _format_address(value: Any) -> str:
    """Return PostgreSQL's text of an address. Python before 3.13 writes an IPv4 address in IPv6
    otherwise.
    """
    mapped = getattr(value, "ipv4_mapped", None)
    if not mapped:
        return str(value)
    _, slash, prefix = str(value).partition("/")
    return f"::ffff:{mapped}{slash}{prefix}"


def read_like(path: Path, df: pd.DataFrame) -> pd.DataFrame:
    """Read a CSV, giving each cell the type of the cell that stands there in `df`; an empty cell is
    nothing.
    """
    found = pd.read_csv(path, dtype=str, keep_default_na=False)
    for column in found.columns.intersection(df.columns):
        like = [*df[column], *[None] * len(found)]
        found[column] = pd.Series(list(map(_convert_cell, found[column], like)), dtype=object)
    return found


def _convert_cell(cell: str, like: Any) -> Any:
    like = normalize(like)
    if cell == "" and not isinstance(like, str):
        return None
    if isinstance(like, tuple):
        return {"true": True, "false": False}.get(cell.lower(), cell)
    try:
        return (
            Decimal(cell)
            if isinstance(like, (int, Decimal))
            else type(like)(cell)
            if like is not None
            else cell
        )
    except (ValueError, ArithmeticError):
        return cell


def describe_difference(left: Any, right: Any, left_label: str, right_label: str) -> str:
    """Where two collections differ: what only one of them has, or the first place at which they
    disagree.
    """
    sets = [
        set(side.items())
        if isinstance(side, dict) and all(isinstance(v, str) for v in side.values())
        else side
        if isinstance(side, (set, frozenset))
        else None
        for side in (left, right)
    ]
    if None not in sets:
        only = [(left_label, sets[0] - sets[1]), (right_label, sets[1] - sets[0])]
        return "\n".join(
            f"only {label}: {format_value(values, True)}" for label, values in only if values
        )
    if all(isinstance(side, (list, tuple, np.ndarray)) for side in (left, right)):
        at = next(
            (i for i, (x, y) in enumerate(zip(left, right)) if not values_equal(x, y)),
            min(len(left), len(right)),
        )
        sides = [
            format_value(side[at], True) if at < len(side) else "nothing" for side in (left, right)
        ]
        return f"first at place {at + 1}: {left_label} {sides[0]}, {right_label} {sides[1]}"
    return f"{left_label} {format_value(left, True)}\n{right_label} {format_value(right, True)}"


def _format_key(key: list[str], value: Any) -> str:
    values = value if len(key) > 1 else (value,)
    return ", ".join(f"{k}={format_value(v, True)}" for k, v in zip(key, values))


@np.printoptions(legacy="1.25")  # NumPy 2 calls its numbers, inside a collection, by their type
def format_value(value: Any, quotes: bool = False) -> str:
    """A value as short text. Of a value that differs a text stands in quotes, so that a blank at
    its end is seen.
    """
    value = value.tolist() if isinstance(value, np.ndarray) else value
    if isinstance(value, str):
        said = repr(value) if quotes or not value else value
    elif isinstance(value, (bool, np.bool_)):
        said = str(value).lower()
    elif isinstance(value, COLLECTION_TYPES) and not value:
        said = "none"
    elif (
        isinstance(value, (set, frozenset, dict)) and len(value) == 1
    ):  # a single one needs no brackets
        (only,) = value.items() if isinstance(value, dict) else [value]
        said = ": ".join(format_value(v, quotes) for v in only)
    elif isinstance(value, (set, frozenset)):  # sorted, so that two equal ones read alike
        said = "{" + ", ".join(sorted(map(repr, value))) + "}"
    elif isinstance(value, pd.Timestamp) and value == value.normalize() and value.tz is None:
        said = str(value.date())
    else:
        said = str(value)
    return said if len(said) <= 200 else said[:199] + "…"
