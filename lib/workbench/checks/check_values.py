"""Compare values and frames by the rules in the docstring of `check`, and describe differences."""

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

MAX_TEXT_CHARS = 300  # length of the text of one value
MAX_ELEMENTS = 12  # elements of a collection that are listed; further ones are counted
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
# what psycopg returns for inet and cidr
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
    """Compare two frames, and return one sentence per difference.

    Args:
        source: the expected rows.
        lake: the actual rows.
        key: columns that identify a row.
        labels: names of the lake's side and of the source's side in the sentences.
        tolerance: largest difference at which two numbers count as equal.

    Returns:
        Sentences about columns. If the columns are equal: sentences about the types of the key. If
        these are equal, too: sentences about rows and values.
    """
    lake_label, source_label = labels
    sentences = [
        *_column_differences(source, lake, key, source_label),
        *_column_differences(lake, source, key, lake_label),
    ]
    if sentences:
        return sentences
    source, lake = _parse_instants(source, lake), _parse_instants(lake, source)
    source, lake = (frame.set_axis(_key_index(frame, key)) for frame in (source, lake))
    return _key_type_differences(source, lake, key, labels) or [
        *_row_differences(source, lake, key, labels),
        *_value_differences(source, lake, key, labels, tolerance),
    ]


def _column_differences(
    frame: pd.DataFrame, opposite: pd.DataFrame, key: list[str], label: str
) -> list[str]:
    columns = frame.columns
    return [
        *(f"column {c}: only in {label}" for c in columns if c not in opposite.columns),
        *(f"key column {k} is not in {label}" for k in key if k not in columns),
        *(f"column {c} occurs twice in {label}" for c in columns[columns.duplicated()]),
    ]


def _key_type_differences(
    source: pd.DataFrame, lake: pd.DataFrame, key: list[str], labels: tuple[str, str]
) -> list[str]:
    """Return sentences about key columns of different types, if no key is on both sides."""
    if source.index.isin(lake.index).any():
        return []
    sentences = []
    for column in key:
        lake_types, source_types = _type_names(lake[column]), _type_names(source[column])
        if lake_types and source_types and not lake_types & source_types:
            sentences.append(
                f"key column {column} is {format_value(lake_types)} in {labels[0]}, "
                f"{format_value(source_types)} in {labels[1]}: no keys can be equal, "
                "convert one side"
            )
    return sentences


def _row_differences(
    source: pd.DataFrame, lake: pd.DataFrame, key: list[str], labels: tuple[str, str]
) -> list[str]:
    """Return sentences about keys with several rows, and keys on one side only."""
    sentences = []
    for index, label in ((source.index, labels[1]), (lake.index, labels[0])):
        counts = index[index.duplicated()].value_counts()
        sentences += [f"{_format_key(key, k)}: {n + 1} rows in {label}" for k, n in counts.items()]
    missing = source.index.difference(lake.index, sort=False)
    extra = lake.index.difference(source.index, sort=False)
    return [
        *sentences,
        *(f"{_format_key(key, k)}: missing in {labels[0]}" for k in missing),
        *(f"{_format_key(key, k)}: not in {labels[1]}" for k in extra),
    ]


def _value_differences(
    source: pd.DataFrame,
    lake: pd.DataFrame,
    key: list[str],
    labels: tuple[str, str],
    tolerance: float,
) -> list[str]:
    """Return sentences about different values in the first rows of the keys on both sides."""
    source, lake = (frame[~frame.index.duplicated()] for frame in (source, lake))
    source = source[source.index.isin(lake.index)]
    lake = lake.loc[source.index]
    return [
        f"{_format_key(key, source.index[i])}, {column}: {labels[0]} "
        f"{format_value(lake[column].iat[i], True)}, {labels[1]} {format_value(source[column].iat[i], True)}"
        for column in source.columns.difference(key, sort=False)
        for i in _differing_positions(lake[column].array, source[column].array, tolerance)
    ]


def _parse_instants(frame: pd.DataFrame, opposite: pd.DataFrame) -> pd.DataFrame:
    """Convert texts to instants in the columns that hold zoned instants in the opposite frame.

    Debezium publishes a timestamptz as a text. A text without a zone, or one that is not an
    instant, stays a text.
    """
    return frame.assign(
        **{
            c: pd.Series([_parse_instant(v) for v in frame[c]], frame.index, dtype=object)
            for c in frame.columns
            if _is_zoned(opposite[c]) and not _is_zoned(frame[c])
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
    """Return the names of the types of a column's values; all numbers are one type."""
    values = [normalize(value) for value in column]
    return {
        "number" if isinstance(value, (int, Decimal)) else type(value).__name__
        for value in values
        if value is not None
    }


def _key_index(frame: pd.DataFrame, key: list[str]) -> pd.Index:
    """Return the keys as an index of normalized values.

    Equal numbers have the same hash, whatever their types.
    """
    columns = [
        frame[k] if frame[k].dtype.kind in "iu" else [normalize(v) for v in frame[k].array]
        for k in key
    ]
    keys = columns[0] if len(key) == 1 else list(zip(*columns))
    return pd.Index(keys, dtype=object, tupleize_cols=False)


def _differing_positions(a: Iterable[Any], b: Iterable[Any], tolerance: float) -> list[int]:
    """Return the positions at which two columns differ.

    Equal values of one simple type are skipped before `values_equal`, which is slower.
    """
    return [
        i
        for i, (x, y) in enumerate(zip(a, b))
        if not (type(x) is type(y) and type(x) in DIRECTLY_COMPARABLE and x == y)
        and not values_equal(x, y, tolerance)
    ]


def values_equal(x: Any, y: Any, tolerance: float = 0) -> bool:
    """Compare two values by the rules of `check`.

    Args:
        x: a value.
        y: another value.
        tolerance: largest difference at which two numbers count as equal.
    """
    a, b = normalize(x), normalize(y)
    if tolerance and isinstance(a, (int, Decimal)) and isinstance(b, (int, Decimal)):
        return abs(Decimal(a) - Decimal(b)) <= Decimal(str(tolerance))
    return bool(a == b) or bool(_parse_json(a) == _parse_json(b))


def _parse_json(value: Any) -> Any:
    """Return the object or array in a JSON text, any other value unchanged."""
    if not isinstance(value, str) or not value.lstrip().startswith(("{", "[")):
        return value
    try:
        return normalize(json.loads(value))
    except ValueError:
        return value


def normalize(value: Any) -> Any:  # noqa: PLR0911 - a table of types
    """Return the normalized form of a value, in which values of all drivers are comparable."""
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
        return Decimal(str(value))  # str returns the shortest text, also for a float32
    if isinstance(value, (dt.date, np.datetime64)):
        stamp = pd.Timestamp(value)
        return stamp.tz_localize("UTC") if stamp.tz is None else stamp.tz_convert("UTC")
    return value


def _format_address(value: Any) -> str:
    """Return PostgreSQL's text of an address.

    Python before 3.13 formats IPv4-mapped IPv6 addresses differently.
    """
    mapped = getattr(value, "ipv4_mapped", None)
    if not mapped:
        return str(value)
    _, slash, prefix = str(value).partition("/")
    return f"::ffff:{mapped}{slash}{prefix}"


def read_like(path: Path, df: pd.DataFrame) -> pd.DataFrame:
    """Read a CSV file, and convert its cells to the types of a frame.

    Args:
        path: the file.
        df: the frame; a cell is converted to the type of the frame's cell at the same position.

    Returns:
        The rows of the file; an empty cell is None.
    """
    rows = pd.read_csv(path, dtype=str, keep_default_na=False)
    for column in rows.columns.intersection(df.columns):
        examples = [*df[column], *[None] * len(rows)]
        values = [_convert_cell(cell, like) for cell, like in zip(rows[column], examples)]
        rows[column] = pd.Series(values, dtype=object)
    return rows


def _convert_cell(cell: str, example: Any) -> Any:
    example = normalize(example)
    if cell == "" and not isinstance(example, str):
        return None
    if example is None:
        return cell
    if isinstance(example, tuple):
        return {"true": True, "false": False}.get(cell.lower(), cell)
    convert = Decimal if isinstance(example, (int, Decimal)) else type(example)
    try:
        return convert(cell)
    except (ValueError, ArithmeticError):
        return cell


def describe_difference(left: Any, right: Any, left_label: str, right_label: str) -> str:
    """Describe where two collections differ.

    Returns:
        For sets and mappings the elements of only one side, for sequences the first position that
        differs, otherwise both collections.
    """
    if isinstance(left, dict) and isinstance(right, dict):
        return _describe_only(
            (left_label, _items_missing(left, right)), (right_label, _items_missing(right, left))
        )
    if isinstance(left, (set, frozenset)) and isinstance(right, (set, frozenset)):
        return _describe_only((left_label, left - right), (right_label, right - left))
    if isinstance(left, (list, tuple, np.ndarray)) and isinstance(right, (list, tuple, np.ndarray)):
        position = 0
        while position < min(len(left), len(right)) and values_equal(
            left[position], right[position]
        ):
            position += 1
        values = [
            format_value(side[position], True) if position < len(side) else "nothing"
            for side in (left, right)
        ]
        return (
            f"first at position {position + 1}: {left_label} {values[0]}, {right_label} {values[1]}"
        )
    return f"{left_label} {format_value(left, True)}\n{right_label} {format_value(right, True)}"


def _items_missing(mapping: dict[Any, Any], opposite: dict[Any, Any]) -> dict[Any, Any]:
    return {
        k: v for k, v in mapping.items() if k not in opposite or not values_equal(v, opposite[k])
    }


def _describe_only(*sides: tuple[str, Any]) -> str:
    return "\n".join(f"only {label}: {format_value(v, True)}" for label, v in sides if v)


def _format_key(key: list[str], value: Any) -> str:
    values = value if len(key) > 1 else (value,)
    return ", ".join(f"{k}={format_value(v, True)}" for k, v in zip(key, values))


def format_value(value: Any, quotes: bool = False) -> str:
    """Format a value as a short text.

    A collection shows its first MAX_ELEMENTS elements and the number of the others.

    Args:
        value: any value.
        quotes: put a text in quotes, so that a blank at its end is visible.
    """
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, str):
        text = repr(value) if quotes or not value else value
    elif isinstance(value, (bool, np.bool_)):
        text = str(value).lower()
    elif isinstance(value, COLLECTION_TYPES):
        text = _format_collection(value, quotes)
    elif isinstance(value, pd.Timestamp) and value == value.normalize() and value.tz is None:
        text = str(value.date())
    else:
        text = str(value)
    return text if len(text) <= MAX_TEXT_CHARS else text[: MAX_TEXT_CHARS - 1] + "…"


def _format_collection(value: Any, quotes: bool) -> str:
    if not value:
        return "none"
    is_sequence = isinstance(value, (list, tuple))
    is_single = len(value) == 1 and not is_sequence  # shown without brackets
    quotes = quotes or not is_single
    if isinstance(value, dict):
        elements = [
            f"{format_value(k, quotes)}: {format_value(v, quotes)}" for k, v in value.items()
        ]
    else:
        elements = [format_value(v, quotes) for v in value]
    if isinstance(value, (set, frozenset)):
        elements.sort()  # equal sets have the same text
    if is_single:
        return elements[0]
    if len(elements) > MAX_ELEMENTS:
        elements[MAX_ELEMENTS:] = [f"… and {len(elements) - MAX_ELEMENTS:,} more"]
    opening, closing = "[]" if isinstance(value, list) else "()" if is_sequence else "{}"
    return f"{opening}{', '.join(elements)}{closing}"
