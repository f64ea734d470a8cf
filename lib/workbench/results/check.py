"""Checks: each compares a claim with its source of truth, shows one line with both sides, and raises when they differ.

In a notebook the line is a MIME bundle; its JSON (`application/vnd.workbench.check+json`) is what the runner collects:
  {ok, what, left, right, left_label, right_label, detail}
Elsewhere the line is printed. A red line is shown first, then `errors.CheckFailed` is raised.

What was published need not be so in data of your own. A check against it takes `own`, the folder that these came from
(`flow.loader.loaded_from`; empty of generated data): a difference is then shown, `ok` is null, and nothing is raised.
Checks against the source take no such thing.

Values are compared by what they say, not by how Python or Arrow holds them:
  numbers   int, float, Decimal and NumPy's alike; a float counts as its shortest text (14.4 is Decimal("14.4"));
            exact unless a tolerance is given; True is not 1
  instants  a date is the midnight of that day; an instant without zone counts as UTC
  nothing   None, NaN, NaT and pandas.NA are the same; the empty text and 0 are something else
  JSON      a text holding an object or array equals the object or array, whatever the spacing and key order
"""
from __future__ import annotations

import time
from typing import Any, Callable, Optional, Sequence, Type, Union

import numpy as np
import pandas as pd

from ..base import paths
from ..base.errors import CheckFailed, WorkbenchError
from ..base.wait import wait_until
from . import check_line as line
from . import check_values as values
from .check_line import MIME

__all__ = ["MIME", "same_rows", "equal", "true", "reference", "eventually", "expect_failure"]
SHORT = 60  # characters up to which a list, a set or a mapping stands on its side in full; a longer one is counted


def same_rows(source: pd.DataFrame, lake: pd.DataFrame, key: Union[str, Sequence[str]],
              what: str = "the lake holds the rows of the source", *, tolerance: float = 0, allow_empty: bool = False,
              lake_label: str = "lake", source_label: str = "source") -> None:
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
    keys = [key] if isinstance(key, str) else list(key)
    found = values.differences(source, lake, keys, tolerance, sides=(lake_label, source_label))
    if not found and source is lake:
        found = ["both sides are the same object: this check could not have failed"]
    if not found and not len(source) and not allow_empty:
        found = ["both sides are empty: this check could not have failed (allow_empty=True where that is right)"]
    line.judge(not found, what, line.size(lake, found, tolerance), line.size(source), lake_label, source_label,
               line.lines(found))


def equal(what: str, left: Any, right: Any, left_label: str = "lake", right_label: str = "source", *,
          tolerance: float = 0, own: str = "") -> None:
    """Check that two values say the same. Raises CheckFailed; WorkbenchError for frames (use `same_rows`)."""
    if any(isinstance(side, (pd.DataFrame, pd.Series)) for side in (left, right)):
        raise WorkbenchError("check.equal compares single values", where=what, next_step="use check.same_rows")
    left, right = (side.tolist() if isinstance(side, np.ndarray) else side for side in (left, right))
    ok = values.same(left, right, tolerance)
    sides, detail = [values.text(side, quotes=not ok) for side in (left, right)], ""
    if max(map(len, sides)) > SHORT and all(isinstance(side, values.COLLECTIONS) for side in (left, right)):
        detail = f"both: {sides[0]}" if ok else values.apart(left, right, left_label, right_label)
        sides = [line.count(left), line.count(right)]
    elif not ok and sides[0] == sides[1]:  # 441, "441" and {441} read alike
        detail = f"{left_label}: {type(left).__name__}, {right_label}: {type(right).__name__}"
    line.judge(ok, what, *sides, left_label, right_label, detail, own)


def true(what: str, condition: Any, seen: Any = None, expected: str = "yes", *, own: str = "") -> None:
    """Check a condition that has no second side. Raises CheckFailed.

    Only a bool is taken: a function, a tuple or a non-empty list would count as true whatever it says.

    Args:
        seen: what was looked at, e.g. 1,930 MB.
        expected: what it had to be, in words, e.g. "below 6 GiB".
    """
    if not isinstance(condition, (bool, np.bool_)):
        raise WorkbenchError(f"the condition is of type {type(condition).__name__}", where=what,
                             expected="True or False")
    said = ("yes" if condition else "no") if seen is None else values.text(seen)
    line.judge(bool(condition), what, said, expected, "seen", "expected", own=own)


def reference(name: str, df: pd.DataFrame, *, tolerance: float = 0, own: str = "") -> None:
    """Compare a frame with data/reference/<name>.csv: same columns, same rows, in the same order.

    Raises:
        CheckFailed: naming the rows (counted from 1) that differ.
        WorkbenchError: there is no such reference table, or it holds no rows.
    """
    path = paths.ROOT / "data" / "reference" / f"{name}.csv"
    shown = path.relative_to(paths.ROOT)
    if not path.is_file():
        raise WorkbenchError(f"there is no reference table {name!r}", where=str(shown),
                             next_step=f"read the rows; if they are right: df.to_csv(paths.ROOT / '{shown}', "
                                       "index=False)")
    truth = values.read_like(path, df)
    if not len(truth):
        raise WorkbenchError(f"the reference table {name!r} holds no rows", where=str(shown))
    found = [f"columns: seen {', '.join(map(str, df.columns))}; reference {', '.join(truth.columns)}"]
    if list(truth.columns) == list(df.columns):
        numbered = [f.reset_index(drop=True).assign(row=range(1, len(f) + 1)) for f in (truth, df)]
        found = values.differences(*numbered, ["row"], tolerance, sides=("seen", "reference"))
    line.judge(not found, f"as in reference table {name}", line.size(df, found, tolerance), line.size(truth), "seen",
               "reference", line.lines(found), own)


def eventually(what: str, condition: Callable[[], Any], timeout: float = 60, every: float = 0.2, *,
               failed: Optional[Callable[[], Optional[str]]] = None) -> Any:
    """Wait until `condition()` is true and return what it returned.

    Args:
        failed: returns a sentence as soon as waiting has become pointless, as connect.failure does of a connector.

    Raises:
        CheckFailed: after `timeout` seconds, or at once when `failed` returns a sentence.
    """
    began = time.perf_counter()
    try:
        seen = wait_until(condition, what, timeout=timeout, every=every, failed=failed, error=CheckFailed)
    except CheckFailed as e:
        line.judge(False, what, "not yet", f"within {timeout:g} s", "seen", "expected", e.where or e.what)
    line.judge(True, what, f"after {time.perf_counter() - began:.1f} s", f"within {timeout:g} s", "seen", "expected",
               "" if seen is True else values.text(seen))
    return seen


def expect_failure(what: str, call: Callable[[], Any], error: Type[BaseException] = Exception, says: str = ""
                   ) -> BaseException:
    """Check that `call()` fails as it should, show the message that a person would read, and return the exception.

    Raises:
        CheckFailed: nothing was raised, or another exception, or its message does not contain `says`.
    """
    expected = ("an error" if error is Exception else error.__name__) + (f" saying {says!r}" if says else "")
    try:
        with line.quietly():  # a red line inside is the one that was asked for
            returned = call()
    except error as e:
        ok = says.lower() in str(e).lower()
        line.judge(ok, what, type(e).__name__, expected, "failed with", "expected", str(e))
        return e
    except Exception as e:  # noqa: BLE001 - any other exception is the difference this check is to report
        line.judge(False, what, type(e).__name__, expected, "failed with", "expected", str(e))
    line.judge(False, what, f"no failure, returned {values.text(returned)}", expected, "seen", "expected")
    raise AssertionError("unreachable")
