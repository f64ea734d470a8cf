"""Values and frames against each other, as check's docstring states it: what differs, told in sentences."""
from __future__ import annotations

import datetime as dt
import json
import numbers
import uuid
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any, Iterable, List, Tuple

import numpy as np
import pandas as pd

COLLECTIONS = (list, tuple, set, frozenset, dict)
SIMPLE = {str, int, float, bool, Decimal, dt.date, dt.datetime, bytes}  # equal when == says so: the quick way


def differences(source: pd.DataFrame, lake: pd.DataFrame, key: List[str], tolerance: float,
                sides: Tuple[str, str]) -> List[str]:
    """Return one sentence per difference; `sides` are what the lake's and the source's side are called in it."""
    ours, theirs = sides
    found = [f"column {c}: only in {theirs}" for c in source.columns if c not in lake.columns]
    found += [f"column {c}: only in {ours}" for c in lake.columns if c not in source.columns]
    for side, frame in ((theirs, source), (ours, lake)):
        found += [f"key column {k} is not in {side}" for k in key if k not in frame.columns]
        found += [f"column {c} stands twice in {side}" for c in frame.columns[frame.columns.duplicated()]]
    if found:
        return found
    source_keys, lake_keys = _keys(source, key), _keys(lake, key)
    for side, keys in ((theirs, source_keys), (ours, lake_keys)):
        counts = keys[keys.duplicated()].value_counts()
        found += [f"{_named(key, k)}: {n + 1} rows in {side}" for k, n in counts.items()]
    found += [f"{_named(key, k)}: missing in {ours}" for k in source_keys[~source_keys.isin(lake_keys)].unique()]
    found += [f"{_named(key, k)}: not in {theirs}" for k in lake_keys[~lake_keys.isin(source_keys)].unique()]
    left, right = lake[~lake_keys.duplicated()], source[~source_keys.duplicated()]
    left_keys, right_keys = lake_keys[~lake_keys.duplicated()], source_keys[~source_keys.duplicated()]
    at = left_keys.get_indexer(right_keys)
    left, right, names = left.iloc[at[at >= 0]], right[at >= 0], right_keys[at >= 0]
    for column in (c for c in source.columns if c not in key):
        a, b = left[column], right[column]
        for i in _unequal(a, b, tolerance):
            found.append(f"{_named(key, names[i])}, {column}: "
                         f"{ours} {quoted(a.iloc[i])}, {theirs} {quoted(b.iloc[i])}")
    return found


def _keys(frame: pd.DataFrame, key: List[str]) -> pd.Index:
    """The keys as an index of plain values: equal numbers hash alike, whatever their types."""
    columns = [frame[k] if frame[k].dtype.kind in "iu" else [_hashable(v) for v in frame[k].array] for k in key]
    if len(columns) == 1:
        return pd.Index(columns[0], dtype=object)
    return pd.Index(list(zip(*columns)), dtype=object, tupleize_cols=False)


def _hashable(value: Any) -> Any:
    plain = value if type(value) is str else _plain(value)
    return json.dumps(plain, default=str, sort_keys=True) if isinstance(plain, (dict, list)) else plain


def _unequal(a: pd.Series, b: pd.Series, tolerance: float) -> Iterable[int]:
    """Positions at which two aligned columns differ."""
    a, b = _widen(a), _widen(b)
    if a.dtype.kind == b.dtype.kind == "M":  # NaT is one number
        with suppress(pd.errors.OutOfBoundsDatetime):  # years that ns do not reach: one by one below
            a, b = [pd.to_datetime(side, utc=True).dt.as_unit("ns").astype("int64") for side in (a, b)]
    kinds = str(a.dtype.kind) + str(b.dtype.kind)
    exact = kinds in ("ii", "uu", "ff", "bb") or (set(kinds) <= set("iuf") and _small(a) and _small(b))
    if exact and isinstance(a.dtype, np.dtype) and isinstance(b.dtype, np.dtype):
        x, y = a.to_numpy(), b.to_numpy()
        with np.errstate(invalid="ignore"):
            alike = (x == y) | ((x != x) & (y != y))
            if tolerance and "b" not in kinds:
                alike |= np.abs(x.astype(float) - y.astype(float)) <= tolerance
        return np.flatnonzero(~alike)
    pairs = zip(a.to_numpy(object), b.to_numpy(object))
    return [i for i, (x, y) in enumerate(pairs)
            if not (x is y or type(x) is type(y) and type(x) in SIMPLE and x == y or same(x, y, tolerance))]


def _widen(column: pd.Series) -> pd.Series:
    """A float32 column counts as the doubles that its shortest texts name (0.15, not 0.15000000596)."""
    if column.dtype == np.float32:
        return pd.Series(column.to_numpy().astype("U32").astype(float), index=column.index)
    return column


def _small(column: pd.Series) -> bool:
    """True where every number of the column has an exact double."""
    return column.dtype.kind == "f" or not len(column) or max(abs(int(column.max())), abs(int(column.min()))) <= 2**53


def same(x: Any, y: Any, tolerance: float = 0) -> bool:
    """Whether two values say the same."""
    a, b = _plain(x), _plain(y)
    if isinstance(a, str) != isinstance(b, str) or (isinstance(a, str) and a != b):
        a, b = _parsed(a), _parsed(b)
    if tolerance and all(isinstance(v, (int, Decimal)) for v in (a, b)):
        return abs(Decimal(a) - Decimal(b)) <= Decimal(str(tolerance))
    return type(a) is type(b) and a == b if isinstance(a, (str, dict, list)) else bool(a == b)


def _parsed(value: Any) -> Any:
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            return _plain(json.loads(value))
        except ValueError:
            return value
    return value


def _plain(value: Any) -> Any:  # noqa: PLR0911 - a table of types
    """Return the value in the one form in which values of all drivers are compared."""
    if value is None or value is pd.NaT or value is pd.NA or type(value) is str:
        return None if type(value) is not str else value
    if isinstance(value, (bool, np.bool_)):
        return ("bool", bool(value))
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return None if value != value else Decimal(str(value))  # str: shortest text, of a float32, too
    if isinstance(value, Decimal):
        return None if value.is_nan() else value
    if isinstance(value, (dt.datetime, np.datetime64)):
        stamp = pd.Timestamp(value)
        return None if stamp is pd.NaT else stamp.tz_localize("UTC") if stamp.tz is None else stamp.tz_convert("UTC")
    if isinstance(value, dt.date):
        return pd.Timestamp(value, tz="UTC")
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if hasattr(value, "asDict"):  # a row inside a Spark frame
        value = value.asDict()
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_plain(v) for v in value]
    return str(value) if isinstance(value, (str, uuid.UUID)) else value


def read_like(path: Path, df: pd.DataFrame) -> pd.DataFrame:
    """Read a CSV, giving each cell the type of the cell that stands there in `df`; an empty cell is nothing."""
    found = pd.read_csv(path, dtype=str, keep_default_na=False)

    def typed(cell: str, like: Any) -> Any:
        like = _plain(like)
        try:
            if cell == "" and not isinstance(like, str):
                return None
            if isinstance(like, tuple):
                return {"true": True, "false": False}.get(cell.lower(), cell)
            if isinstance(like, (int, Decimal)):
                return Decimal(cell)
            return pd.Timestamp(cell) if isinstance(like, pd.Timestamp) else cell
        except (ValueError, ArithmeticError):
            return cell

    for column in (c for c in found.columns if c in df.columns):
        like = [*df[column], *[None] * len(found)][: len(found)]
        found[column] = pd.Series([typed(c, v) for c, v in zip(found[column], like)], dtype=object)
    return found


def apart(left: Any, right: Any, left_label: str, right_label: str) -> str:
    """Where two collections differ: what only one of them has, or the first place at which they disagree."""
    sets = [set(side.items()) if isinstance(side, dict) and all(isinstance(v, str) for v in side.values()) else
            side if isinstance(side, (set, frozenset)) else None for side in (left, right)]
    if None not in sets:
        only = [(left_label, sets[0] - sets[1]), (right_label, sets[1] - sets[0])]
        return "\n".join(f"only {label}: {quoted(values)}" for label, values in only if values)
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        at = next((i for i, (x, y) in enumerate(zip(left, right)) if not same(x, y)), min(len(left), len(right)))
        sides = [quoted(side[at]) if at < len(side) else "nothing" for side in (left, right)]
        return f"first at place {at + 1}: {left_label} {sides[0]}, {right_label} {sides[1]}"
    return f"{left_label} {quoted(left)}\n{right_label} {quoted(right)}"


def _named(key: List[str], value: Any) -> str:
    values = value if len(key) > 1 else (value,)
    return ", ".join(f"{k}={quoted(v)}" for k, v in zip(key, values))


def quoted(value: Any) -> str:
    """A value that differs, as short text: texts stand in quotes, so that a blank at their end is seen."""
    if isinstance(value, str):
        return _short(repr(value))
    if isinstance(value, (set, frozenset, dict)) and len(value) == 1:
        (only,) = value
        return f"{quoted(only)}: {quoted(value[only])}" if isinstance(value, dict) else quoted(only)
    return text(value)


def text(value: Any) -> str:  # noqa: PLR0911 - a table of types
    """A value as short text."""
    if isinstance(value, str) and not value:
        return "''"
    if isinstance(value, (bool, np.bool_)):
        return str(bool(value)).lower()
    if isinstance(value, np.ndarray):
        value = value.tolist()
    elif isinstance(value, np.generic):
        value = value.item()
    else:
        value = _python_numbers(value)
    if isinstance(value, COLLECTIONS) and not value:
        return "none"
    if isinstance(value, (set, frozenset, dict)) and len(value) == 1:  # a single one needs no brackets
        (only,) = value
        return f"{text(only)}: {text(value[only])}" if isinstance(value, dict) else text(only)
    if isinstance(value, (set, frozenset)):  # sorted, so that two equal ones read alike
        value = "{" + ", ".join(sorted(map(repr, value))) + "}"
    if isinstance(value, pd.Timestamp) and value == value.normalize() and value.tz is None:
        value = value.date()
    return _short(str(value))


def _python_numbers(value: Any) -> Any:
    """A value whose numbers are Python's: NumPy 2 calls its own, inside a collection, by their type."""
    if type(value) in (list, tuple, set, frozenset):
        return type(value)(map(_python_numbers, value))
    if type(value) is dict:
        return {_python_numbers(k): _python_numbers(v) for k, v in value.items()}
    return value.item() if isinstance(value, np.number) else value


def _short(said: str) -> str:
    return said if len(said) <= 200 else said[:199] + "…"
