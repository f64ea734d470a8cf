"""Checks: each compares a claim with its source of truth, shows one line with both sides, and raises when they differ.

In a notebook the line is a MIME bundle; its JSON (`application/vnd.workbench.check+json`) is what the runner collects:
  {ok, what, left, right, left_label, right_label, detail, seconds}
Elsewhere the line is printed. A red line is shown first, then `errors.CheckFailed` is raised.

Values are compared by what they say, not by how Python or Arrow holds them:
  numbers   int, float, Decimal and NumPy's alike; a float counts as its shortest text (14.4 is Decimal("14.4"));
            exact unless a tolerance is given; True is not 1
  instants  a date is the midnight of that day; an instant without zone counts as UTC
  nothing   None, NaN, NaT and pandas.NA are the same; the empty text and 0 are something else
  JSON      a text holding an object or array equals the object or array, whatever the spacing and key order
"""
from __future__ import annotations

import contextlib
import contextvars
import datetime as dt
import html
import json
import numbers
import time
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, List, Sequence, Tuple, Type, Union

import numpy as np
import pandas as pd

from . import params
from .errors import CheckFailed, WorkbenchError
from .wait import wait_until

_quiet: contextvars.ContextVar = contextvars.ContextVar("quiet", default=False)
MIME = "application/vnd.workbench.check+json"
COLLECTIONS = (list, tuple, set, frozenset, dict)
SIMPLE = {str, int, float, bool, Decimal, dt.date, dt.datetime, bytes}  # equal when == says so: the quick way
SHOWN = 5  # differing rows that are named; the others are counted
SHORT = 60  # characters up to which a list, a set or a mapping stands on its side in full; a longer one is counted


def same_rows(
    source: pd.DataFrame, lake: pd.DataFrame, key: Union[str, Sequence[str]],
    what: str = "the lake holds the rows of the source", *, tolerance: float = 0, allow_empty: bool = False,
    lake_label: str = "lake", source_label: str = "source",
) -> None:
    """Compare two frames row by row and column by column; the order of rows and of columns does not matter.

    Args:
        source: the truth.
        lake: what is checked.
        key: column or columns that name a row.
        tolerance: largest difference at which two numbers count as equal.
        allow_empty: True where no rows on both sides is a right answer; otherwise two empty frames are refused,
            because such a check cannot fail.
        lake_label, source_label: what the two sides are called in the line shown.

    Raises:
        CheckFailed: naming missing, extra, duplicate and differing rows (the first five, and how many more).
    """
    began = time.perf_counter()
    found = _differences(source, lake, [key] if isinstance(key, str) else list(key), tolerance)
    if not found and source is lake:
        found = ["both sides are the same object: this check could not have failed"]
    if not found and not len(source) and not allow_empty:
        found = ["both sides are empty: this check could not have failed (allow_empty=True where that is right)"]
    _settle(not found, what, _size(lake, found), _size(source), lake_label, source_label, _lines(found), began)


def equal(what: str, left: Any, right: Any, left_label: str = "lake", right_label: str = "source", *,
          tolerance: float = 0) -> None:
    """Check that two values say the same. Raises CheckFailed; WorkbenchError for frames (use `same_rows`)."""
    began = time.perf_counter()
    if any(isinstance(side, (pd.DataFrame, pd.Series)) for side in (left, right)):
        raise WorkbenchError("check.equal compares single values", where=what, next_step="use check.same_rows")
    ok = _same(left, right, tolerance)
    sides, detail = [_text(left), _text(right)], ""
    if max(map(len, sides)) > SHORT and all(isinstance(side, COLLECTIONS) for side in (left, right)):
        detail = f"both: {sides[0]}" if ok else _apart(left, right, left_label, right_label)
        sides = [_count(left), _count(right)]
    _settle(ok, what, *sides, left_label, right_label, detail, began)


def true(what: str, condition: Any, seen: Any = None, expected: str = "yes") -> None:
    """Check a condition that has no second side. Raises CheckFailed.

    Only a bool is taken: a function, a tuple or a non-empty list would count as true whatever it says.

    Args:
        seen: what was looked at, e.g. 1,930 MB.
        expected: what it had to be, in words, e.g. "below 6 GiB".
    """
    began = time.perf_counter()
    if not isinstance(condition, (bool, np.bool_)):
        raise WorkbenchError(
            f"the condition is of type {type(condition).__name__}", where=what, expected="True or False")
    said = ("yes" if condition else "no") if seen is None else _text(seen)
    _settle(bool(condition), what, said, expected, "seen", "expected", "", began)


def reference(name: str, df: pd.DataFrame, *, tolerance: float = 0) -> None:
    """Compare a frame with data/reference/<name>.csv: same columns, same rows, in the same order.

    Raises:
        CheckFailed: naming the rows (counted from 1) that differ.
        WorkbenchError: there is no such reference table, or it holds no rows.
    """
    began = time.perf_counter()
    path = params.ROOT / "data" / "reference" / f"{name}.csv"
    shown = path.relative_to(params.ROOT)
    if not path.is_file():
        raise WorkbenchError(
            f"there is no reference table {name!r}", where=str(shown),
            next_step=f"read the rows; if they are right: df.to_csv(workbench.params.ROOT / '{shown}', index=False)",
        )
    truth = _read_like(path, df)
    if not len(truth):
        raise WorkbenchError(f"the reference table {name!r} holds no rows", where=str(shown))
    found = []
    if list(truth.columns) != list(df.columns):
        found = [f"columns: seen {', '.join(map(str, df.columns))}; reference {', '.join(truth.columns)}"]
    else:
        numbered = [f.reset_index(drop=True).assign(row=range(1, len(f) + 1)) for f in (truth, df)]
        found = _differences(*numbered, ["row"], tolerance, sides=("seen", "reference"))
    _settle(not found, f"as in reference table {name}", _size(df, found), _size(truth), "seen", "reference",
            _lines(found), began)


def eventually(what: str, condition: Callable[[], Any], timeout: float = 60, every: float = 0.2) -> Any:
    """Wait until `condition()` is true and return what it returned. Raises CheckFailed after `timeout` seconds."""
    began = time.perf_counter()
    try:
        seen = wait_until(condition, what, timeout=timeout, every=every, error=CheckFailed)
    except CheckFailed as e:
        _settle(False, what, "not yet", f"within {timeout:g} s", "seen", "expected", e.where, began)
    _settle(True, what, f"after {time.perf_counter() - began:.1f} s", f"within {timeout:g} s", "seen", "expected",
            "" if seen is True else _text(seen), began)
    return seen


def expect_failure(what: str, call: Callable[[], Any], error: Type[BaseException] = Exception, says: str = ""
                   ) -> BaseException:
    """Check that `call()` fails as it should, show the message that a person would read, and return the exception.

    Raises:
        CheckFailed: nothing was raised, or another exception, or its message does not contain `says`.
    """
    began = time.perf_counter()
    expected = ("an error" if error is Exception else error.__name__) + (f" saying {says!r}" if says else "")
    try:
        with _quietly():  # a red line inside is the one that was asked for
            returned = call()
    except error as e:
        ok = says.lower() in str(e).lower()
        _settle(ok, what, type(e).__name__, expected, "failed with", "expected", str(e), began)
        return e
    except Exception as e:  # noqa: BLE001 - any other exception is the difference this check is to report
        _settle(False, what, type(e).__name__, expected, "failed with", "expected", str(e), began)
    _settle(False, what, f"no failure, returned {_text(returned)}", expected, "seen", "expected", "", began)
    raise AssertionError("unreachable")


# ---- comparing

def _differences(source: pd.DataFrame, lake: pd.DataFrame, key: List[str], tolerance: float,
                 sides: Tuple[str, str] = ("lake", "source")) -> List[str]:
    """Return one sentence per difference."""
    ours, theirs = sides
    found = [f"column {c}: only in the {theirs}" for c in source.columns if c not in lake.columns]
    found += [f"column {c}: only in the {ours}" for c in lake.columns if c not in source.columns]
    for side, frame in ((theirs, source), (ours, lake)):
        found += [f"key column {k} is not in the {side}" for k in key if k not in frame.columns]
        found += [f"column {c} stands twice in the {side}" for c in frame.columns[frame.columns.duplicated()]]
    if found:
        return found
    source_keys, lake_keys = _keys(source, key), _keys(lake, key)
    for side, keys in ((theirs, source_keys), (ours, lake_keys)):
        counts = keys[keys.duplicated()].value_counts()
        found += [f"{_named(key, k)}: {n + 1} rows in the {side}" for k, n in counts.items()]
    found += [f"{_named(key, k)}: missing in the {ours}" for k in source_keys[~source_keys.isin(lake_keys)]]
    found += [f"{_named(key, k)}: not in the {theirs}" for k in lake_keys[~lake_keys.isin(source_keys)]]
    left, right = lake[~lake_keys.duplicated()], source[~source_keys.duplicated()]
    left_keys, right_keys = lake_keys[~lake_keys.duplicated()], source_keys[~source_keys.duplicated()]
    at = left_keys.get_indexer(right_keys)
    left, right, names = left.iloc[at[at >= 0]], right[at >= 0], right_keys[at >= 0]
    for column in (c for c in source.columns if c not in key):
        a, b = left[column], right[column]
        for i in _unequal(a, b, tolerance):
            found.append(f"{_named(key, names[i])}, {column}: "
                         f"{ours} {_text(a.iloc[i])}, {theirs} {_text(b.iloc[i])}")
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
    if a.dtype.kind == b.dtype.kind == "M":
        a, b = (pd.to_datetime(side, utc=True).dt.as_unit("ns").astype("int64") for side in (a, b))  # NaT is one number
    kinds = str(a.dtype.kind) + str(b.dtype.kind)
    exact = kinds in ("ii", "uu", "ff", "bb") or (set(kinds) <= set("iuf") and _small(a) and _small(b))
    if exact and isinstance(a.dtype, np.dtype) and isinstance(b.dtype, np.dtype):
        x, y = a.to_numpy(), b.to_numpy()
        with np.errstate(invalid="ignore"):
            same = (x == y) | ((x != x) & (y != y))
            if tolerance and "b" not in kinds:
                same |= np.abs(x.astype(float) - y.astype(float)) <= tolerance
        return np.flatnonzero(~same)
    pairs = zip(a.to_numpy(object), b.to_numpy(object))
    return [i for i, (x, y) in enumerate(pairs)
            if not (x is y or type(x) is type(y) and type(x) in SIMPLE and x == y or _same(x, y, tolerance))]


def _widen(column: pd.Series) -> pd.Series:
    """A float32 column counts as the doubles that its shortest texts name (0.15, not 0.15000000596)."""
    if column.dtype == np.float32:
        return pd.Series(column.to_numpy().astype("U32").astype(float), index=column.index)
    return column


def _small(column: pd.Series) -> bool:
    """True where every number of the column has an exact double."""
    return column.dtype.kind == "f" or not len(column) or max(abs(int(column.max())), abs(int(column.min()))) <= 2**53


def _same(x: Any, y: Any, tolerance: float = 0) -> bool:
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


def _read_like(path: Path, df: pd.DataFrame) -> pd.DataFrame:
    """Read a CSV, giving each cell the type of the cell that stands there in `df`; an empty cell is nothing."""
    text = pd.read_csv(path, dtype=str, keep_default_na=False)

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

    for column in (c for c in text.columns if c in df.columns):
        like = [*df[column], *[None] * len(text)][: len(text)]
        text[column] = pd.Series([typed(c, v) for c, v in zip(text[column], like)], dtype=object)
    return text


# ---- showing

def _settle(ok: bool, what: str, left: str, right: str, left_label: str, right_label: str, detail: str,
            began: float) -> None:
    """Show the line; raise CheckFailed when it is a red one."""
    seconds = round(time.perf_counter() - began, 3)
    _display({"ok": ok, "what": what, "left": left, "right": right, "left_label": left_label,
              "right_label": right_label, "detail": detail, "seconds": seconds})
    if not ok:
        raise CheckFailed(f"check failed: {what}", where=detail.replace("\n", "\n            "),
                          expected=f"{right_label} {right}, but {left_label} {left}")


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    token = _quiet.set(True)
    try:
        yield
    finally:
        _quiet.reset(token)


def _display(line: dict) -> None:
    if _quiet.get():
        return
    try:
        from IPython import get_ipython
        from IPython.display import display
    except ImportError:  # the library works without a notebook
        get_ipython = lambda: None  # noqa: E731
    if get_ipython() is None:
        print(as_text(line))
    else:
        display({MIME: line, "text/html": as_html(line), "text/plain": as_text(line)}, raw=True)


def as_text(line: dict) -> str:
    """The line of a check as plain text."""
    detail = "".join(f"\n    {row}" for row in line["detail"].splitlines())
    return (f"{'✔' if line['ok'] else '✘'} {line['what']}: {line['left_label']} {line['left']} · "
            f"{line['right_label']} {line['right']}{detail}")


def as_html(line: dict) -> str:
    """The line of a check as HTML that stands in a light and in a dark notebook."""
    e = {k: html.escape(str(v)) for k, v in line.items()}
    mark, colour = ("✔", "#1a9850") if line["ok"] else ("✘", "#d73027")
    detail = f"<pre style='margin:.3em 0 0 1.6em;white-space:pre-wrap'>{e['detail']}</pre>" if line["detail"] else ""
    return (
        f"<div style='border-left:4px solid {colour};background:{colour}14;padding:.35em .7em;margin:.2em 0'>"
        f"<b style='color:{colour}'>{mark}</b> {e['what']} <span style='opacity:.75;margin-left:.6em'>"
        f"{e['left_label']} <b>{e['left']}</b> · {e['right_label']} <b>{e['right']}</b></span>{detail}</div>"
    )


def _size(frame: pd.DataFrame, found: Sequence[str] = ()) -> str:
    counts = [(len(frame), "row"), (frame.shape[1], "column"), (len(found), "difference")]
    rows, columns, differences = (f"{n:,} {noun}{'s'[n == 1:]}" for n, noun in counts)
    return f"{rows} × {columns}" + (f", {differences}" if found else "")


def _count(values: Any) -> str:
    noun = "entries" if isinstance(values, dict) else "values"
    return f"{len(values):,} {noun}"


def _apart(left: Any, right: Any, left_label: str, right_label: str) -> str:
    """Where two collections differ: what only one of them has, or the first place at which they disagree."""
    sets = [set(side.items()) if isinstance(side, dict) and all(isinstance(v, str) for v in side.values()) else
            side if isinstance(side, (set, frozenset)) else None for side in (left, right)]
    if None not in sets:
        only = [(left_label, sets[0] - sets[1]), (right_label, sets[1] - sets[0])]
        return "\n".join(f"only {label}: {_text(values)}" for label, values in only if values)
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        at = next((i for i, (x, y) in enumerate(zip(left, right)) if not _same(x, y)), min(len(left), len(right)))
        sides = [_text(side[at]) if at < len(side) else "nothing" for side in (left, right)]
        return f"first at place {at + 1}: {left_label} {sides[0]}, {right_label} {sides[1]}"
    return f"{left_label} {_text(left)}\n{right_label} {_text(right)}"


def _named(key: List[str], value: Any) -> str:
    values = value if len(key) > 1 else (value,)
    return ", ".join(f"{k}={_text(v)}" for k, v in zip(key, values))


def _lines(found: List[str]) -> str:
    more = [f"… and {len(found) - SHOWN:,} more"] if len(found) > SHOWN else []
    return "\n".join(found[:SHOWN] + more)


def _text(value: Any) -> str:
    """A value as short text."""
    if value is pd.NA:  # neither equal to the empty text nor not
        return str(value)
    if isinstance(value, (bool, np.bool_)):
        return str(bool(value)).lower()
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, COLLECTIONS) and not value:
        return "none"
    if isinstance(value, (set, frozenset)):  # sorted, so that two equal ones read alike
        value = "{" + ", ".join(sorted(map(repr, value))) + "}"
    if isinstance(value, pd.Timestamp) and value == value.normalize() and value.tz is None:
        value = value.date()
    text = repr(value) if value in ("",) else str(value)
    return text if len(text) <= 200 else text[:199] + "…"
