"""Compare values and frames by the rules in the docstring of `check`, and describe differences."""

import datetime as dt
import json
import numbers
import re
import uuid
from decimal import Decimal
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

MAX_TEXT_CHARS = 300  # length of the text of one value
MAX_ELEMENTS = 12  # elements of a collection that are listed; further ones are counted
SEQUENCE_TYPES = (list, tuple, np.ndarray)
COLLECTION_TYPES = (*SEQUENCE_TYPES, set, frozenset, dict)
# Two values of one of these types are equal if Python says so
SIMPLE_TYPES = (str, int, float, Decimal, dt.date, np.generic)
ZONED_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d(:?\d\d)?)")


def differences(
    source: pd.DataFrame, lake: pd.DataFrame, key: list[str], labels: tuple[str, str]
) -> list[str]:
    """Compare two frames, and return one sentence per difference.

    Args:
        source: the expected rows.
        lake: the actual rows.
        key: columns that identify a row.
        labels: names of the lake's side and of the source's side in the sentences.

    Returns:
        Sentences about columns. If the columns are equal: sentences about rows and values.
    """
    lake_label, source_label = labels
    sentences = [
        *_column_differences(source, lake, source_label),
        *_column_differences(lake, source, lake_label),
    ]
    if sentences:
        return sentences
    source, lake = _parse_instants(source, lake), _parse_instants(lake, source)
    source, lake = (frame.set_axis(_key_index(frame, key)) for frame in (source, lake))
    for index, label in ((source.index, source_label), (lake.index, lake_label)):
        counts = index[index.duplicated()].value_counts()
        sentences += [f"{_format_key(key, k)}: {n + 1} rows in {label}" for k, n in counts.items()]
    source, lake = (frame[~frame.index.duplicated()] for frame in (source, lake))
    missing = source.index[~source.index.isin(lake.index)]
    extra = lake.index[~lake.index.isin(source.index)]
    one_sided = zip_longest(
        (f"{_format_key(key, k)}: missing in {lake_label}" for k in missing),
        (f"{_format_key(key, k)}: not in {source_label}" for k in extra),
    )
    # In turns, so that keys of different types stand side by side
    sentences += [sentence for pair in one_sided for sentence in pair if sentence]
    source = source[source.index.isin(lake.index)]
    lake = lake.loc[source.index]
    return sentences + [
        f"{_format_key(key, k)}, {column}: {lake_label} {format_value(actual, True)}, "
        f"{source_label} {format_value(expected, True)}"
        for column in source.columns.difference(key, sort=False)
        for k, actual, expected in zip(source.index, lake[column].array, source[column].array)
        if not values_equal(actual, expected)
    ]


def _column_differences(frame: pd.DataFrame, opposite: pd.DataFrame, label: str) -> list[str]:
    columns = frame.columns
    return [
        *(f"column {c}: only in {label}" for c in columns if c not in opposite.columns),
        *(f"column {c} occurs twice in {label}" for c in columns[columns.duplicated()]),
    ]


def _key_index(frame: pd.DataFrame, key: list[str]) -> pd.Index:
    """Return the keys as an index of tuples of normalized values.

    Equal numbers have the same hash, whatever their types.
    """
    keys = zip(*(map(normalize, frame[name].array) for name in key))
    return pd.Index([*keys], dtype=object, tupleize_cols=False)


def _parse_instants(frame: pd.DataFrame, opposite: pd.DataFrame) -> pd.DataFrame:
    """Convert texts to instants in the columns that hold zoned instants in the opposite frame.

    Debezium publishes a timestamptz as a text. A text without a zone, or one that is not an
    instant, stays a text.
    """
    zoned = [c for c in frame if _is_zoned(opposite[c])]
    instants = {c: [_parse_instant(value) for value in frame[c]] for c in zoned}
    return frame.assign(
        **{c: pd.Series(values, frame.index, dtype=object) for c, values in instants.items()}
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


def values_equal(x: Any, y: Any) -> bool:
    """Compare two values by the rules of `check`."""
    # Most equal values; much faster than what follows
    if x is y or (type(x) is type(y) and isinstance(x, SIMPLE_TYPES) and x == y):
        return True
    a, b = normalize(x), normalize(y)
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
    if isinstance(value, dict):
        return {str(k): normalize(v) for k, v in value.items()}
    if isinstance(value, SEQUENCE_TYPES):
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


def read_like(path: Path, df: pd.DataFrame) -> pd.DataFrame:
    """Read a CSV file with the types of a frame's columns; an empty cell is null.

    A column of texts stays one: its "007" is no number.
    """
    types = {name: pd.api.types.infer_dtype(column) for name, column in df.items()}
    rows = pd.read_csv(
        path,
        dtype={name: str for name, type_name in types.items() if type_name == "string"},
        keep_default_na=False,
        na_values=[""],
        float_precision="round_trip",
        dtype_backend="numpy_nullable",
    )
    for name in rows:
        if "date" in types.get(name, ""):
            rows[name] = pd.to_datetime(rows[name])
    return rows


def describe_difference(left: Any, right: Any, labels: tuple[str, str]) -> str:
    """Return the elements that one of two collections has alone; those of sequences with positions."""
    elements = [_list_elements(side) for side in (left, right)]
    if isinstance(left, SEQUENCE_TYPES) and isinstance(right, SEQUENCE_TYPES):
        elements = [[f"position {n}: {e}" for n, e in enumerate(own, 1)] for own in elements]
    lines = []
    for label, own, opposite in zip(labels, elements, reversed(elements)):
        only = [element for element in own if element not in set(opposite)]
        lines += [f"only {label}: {', '.join(only[:MAX_ELEMENTS])}"] if only else []
    if not lines:
        lines = [f"{label}: {type(side).__name__}" for label, side in zip(labels, (left, right))]
    return "\n".join(lines)


def _list_elements(collection: Any) -> list[str]:
    """Return the elements of a collection as texts; those of a set are sorted."""
    if isinstance(collection, dict):
        pairs = collection.items()
        return [f"{format_value(k, True)}: {format_value(v, True)}" for k, v in pairs]
    elements = [format_value(element, True) for element in collection]
    return elements if isinstance(collection, SEQUENCE_TYPES) else sorted(elements)


def _format_key(key: list[str], values: tuple[Any, ...]) -> str:
    return ", ".join(f"{k}={format_value(v, True)}" for k, v in zip(key, values))


def format_value(value: Any, quotes: bool = False) -> str:
    """Format a value as a short text.

    A collection shows its first MAX_ELEMENTS elements and the number of the others.

    Args:
        value: any value.
        quotes: put a text in quotes, so that a blank at its end is visible.
    """
    if isinstance(value, str):
        text = repr(value) if quotes or not value else value
    elif isinstance(value, (bool, np.bool_)):
        text = str(value).lower()
    elif isinstance(value, COLLECTION_TYPES):
        text = _format_collection(value)
    else:
        text = str(value)
    return text if len(text) <= MAX_TEXT_CHARS else text[: MAX_TEXT_CHARS - 1] + "…"


def _format_collection(collection: Any) -> str:
    elements = _list_elements(collection)
    is_sequence = isinstance(collection, SEQUENCE_TYPES)
    if len(elements) > MAX_ELEMENTS:
        elements[MAX_ELEMENTS:] = [f"… and {len(elements) - MAX_ELEMENTS:,} more"]
    text = ", ".join(elements) or "none"
    if not elements or (len(elements) == 1 and not is_sequence):
        return text
    opening, closing = "()" if isinstance(collection, tuple) else "[]" if is_sequence else "{}"
    return f"{opening}{text}{closing}"
