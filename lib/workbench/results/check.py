"""Checks: each compares a claim with its source of truth, shows one line with both sides, and
raises when they differ.

In a notebook the line is a MIME bundle; its JSON (`application/vnd.workbench.check+json`) is what
the runner collects:
  {ok, what, left, right, left_label, right_label, detail}
Elsewhere the line is printed. A red line is shown first, then `errors.CheckFailed` is raised.

What was published need not be so in data of your own. A check against it takes `own`, the folder
that these came from (`flow.loader.loaded_from`; empty of generated data): a difference is then
shown, `ok` is null, and nothing is raised. Checks against the source take no such thing.

Values are compared by what they say, not by how Python or Arrow holds them:
  numbers   int, float, Decimal and NumPy's alike; a float counts as its shortest text (14.4 is
  Decimal("14.4"));
            exact unless a tolerance is given; True is not 1
  instants  a date is the midnight of that day; an instant without zone counts as UTC; in
  `same_rows` a text with a zone
            is an instant where the other side's column holds instants with a zone
  nothing   None, NaN, NaT and pandas.NA are the same; the empty text and 0 are something else
  JSON      a text holding an object or array equals the object or array, whatever the spacing and
  key order
"""

import contextvars
import html
import time
from typing import Any, Callable, Optional, Sequence, Union

import IPython.display
import numpy as np
import pandas as pd

from ..base import errors, paths, wait
from ..base.terminal import LAYOUT_CHARACTERS, escape_unprintable
from . import check_values as values

__all__ = ["MIME", "same_rows", "equal", "true", "reference", "eventually", "expect_failure"]
MIME = "application/vnd.workbench.check+json"
STATE_MARKS = {
    True: ("✔", "#1a9850"),
    False: ("✘", "#d73027"),
    None: ("≠", "#b8860b"),
}  # None: own data differ
# characters up to which a list, a set or a mapping stands on its side in full; a longer one is
# counted
MAX_INLINE_CHARS = 60
MAX_DIFFERENCES = 5  # differing rows that are named; the others are counted
_quiet: contextvars.ContextVar = contextvars.ContextVar(
    "quiet", default=False
)  # where no check shows its line


def same_rows(
    source: pd.DataFrame,
    lake: pd.DataFrame,
    key: Union[str, Sequence[str]],
    claim: str = "the lake holds the rows of the source",
    *,
    allow_empty: bool = False,
    lake_label: str = "lake",
    source_label: str = "source",
) -> None:
    """Compare two frames row by row and column by column; the order of rows and of columns does not
    matter.

    Args:
        source: the truth.
        lake: what is checked.
        key: column or columns that name a row.
        allow_empty: True where no rows on both sides is a right answer; otherwise two empty frames
            are refused, because such a check cannot fail.
        lake_label, source_label: what the two sides are called in the line shown.

    Raises:
        CheckFailed: naming missing, extra, duplicate and differing rows (the first five, and how
            many more).
    """
    labels = lake_label, source_label
    found = values.differences(source, lake, [key] if isinstance(key, str) else list(key), labels)
    if not found and source is lake:
        found = ["both sides are the same object: this check could not have failed"]
    if not found and not len(source) and not allow_empty:
        found = [
            "both sides are empty: this check could not have failed (allow_empty=True where that is right)"
        ]
    _report_rows(found, claim, lake, source, labels)


def equal(
    claim: str,
    left: Any,
    right: Any,
    left_label: str = "lake",
    right_label: str = "source",
    *,
    custom_data: str = "",
) -> None:
    """Check that two values say the same. Raises CheckFailed; WorkbenchError for frames (use
    `same_rows`).
    """
    if any(isinstance(side, (pd.DataFrame, pd.Series)) for side in (left, right)):
        raise errors.WorkbenchError(
            "check.equal compares single values", location=claim, hint="use check.same_rows"
        )
    ok = values.values_equal(left, right)
    sides, detail = [values.format_value(side, quotes=not ok) for side in (left, right)], ""
    if max(map(len, sides)) > MAX_INLINE_CHARS and all(
        isinstance(side, values.COLLECTION_TYPES) for side in (left, right)
    ):
        detail = (
            f"both: {sides[0]}"
            if ok
            else values.describe_difference(left, right, left_label, right_label)
        )
        sides = [
            _count(len(side), *(("entry", "entries") if isinstance(side, dict) else ("value",)))
            for side in (left, right)
        ]
    elif not ok and sides[0] == sides[1]:  # 441, "441" and {441} read alike
        detail = f"{left_label}: {type(left).__name__}, {right_label}: {type(right).__name__}"
    _report(ok, claim, *sides, (left_label, right_label), detail, custom_data)


def true(
    claim: str, condition: Any, actual: Any = None, expected: str = "yes", *, custom_data: str = ""
) -> None:
    """Check a condition that has no second side. Raises CheckFailed.

    Only a bool is taken: a function, a tuple or a non-empty list would count as true whatever it
    says.

    Args:
        seen: what was looked at, e.g. 1,930 MB.
        expected: what it had to be, in words, e.g. "below 6 GiB".
    """
    if not isinstance(condition, (bool, np.bool_)):
        raise errors.WorkbenchError(
            f"the condition is of type {type(condition).__name__}",
            location=claim,
            expected="True or False",
        )
    said = ("yes" if condition else "no") if actual is None else values.format_value(actual)
    _report(bool(condition), claim, said, expected, own=custom_data)


def reference(name: str, df: pd.DataFrame, *, tolerance: float = 0, custom_data: str = "") -> None:
    """Compare a frame with data/reference/<name>.csv: same columns, same rows, in the same order.

    Args:
        tolerance: largest difference at which two numbers count as equal.

    Raises:
        CheckFailed: naming the rows (counted from 1) that differ.
        WorkbenchError: there is no such reference table, or it holds no rows.
    """
    path = paths.ROOT / "data" / "reference" / f"{name}.csv"
    shown = path.relative_to(paths.ROOT)
    if not path.is_file():
        raise errors.WorkbenchError(
            f"there is no reference table {name!r}",
            location=str(shown),
            hint=f"read the rows; if they are right: df.to_csv(paths.ROOT / '{shown}', "
            "index=False)",
        )
    truth, labels = values.read_like(path, df), ("seen", "reference")
    if not len(truth):
        raise errors.WorkbenchError(
            f"the reference table {name!r} holds no rows", location=str(shown)
        )
    found = [
        f"columns: seen {', '.join(map(str, df.columns))}; reference {', '.join(truth.columns)}"
    ]
    if list(truth.columns) == list(df.columns):
        numbered = [frame.assign(row=range(1, len(frame) + 1)) for frame in (truth, df)]
        found = values.differences(*numbered, ["row"], labels, tolerance)
    _report_rows(found, f"as in reference table {name}", df, truth, labels, tolerance, custom_data)


def eventually(
    claim: str,
    condition: Callable[[], Any],
    timeout: float = 60,
    interval: float = 0.2,
    *,
    failure_reason: Optional[Callable[[], Optional[str]]] = None,
) -> Any:
    """Wait until `condition()` is true and return what it returned.

    Args:
        failed: returns a sentence as soon as waiting has become pointless, as connect.failure does
            of a connector.

    Raises:
        CheckFailed: after `timeout` seconds, or at once when `failed` returns a sentence.
    """
    began, expected = time.perf_counter(), f"within {timeout:g} s"
    try:
        seen = wait.wait_until(
            condition,
            claim,
            timeout=timeout,
            interval=interval,
            failure_reason=failure_reason,
            error=errors.CheckFailed,
        )
    except errors.CheckFailed as e:
        _report(False, claim, "not yet", expected, detail=e.location or e.message)
    detail = "" if seen is True else values.format_value(seen)
    _report(True, claim, f"after {time.perf_counter() - began:.1f} s", expected, detail=detail)
    return seen


def expect_failure(
    claim: str, call: Callable[[], Any], error: type[Exception] = Exception, contains: str = ""
) -> Exception:
    """Check that `call()` fails as it should, show the message that a person would read, and return
    the exception.

    Raises:
        CheckFailed: nothing was raised, or another exception, or its message does not contain
            `says`.
    """
    expected = ("an error" if error is Exception else error.__name__) + (
        f" saying {contains!r}" if contains else ""
    )
    own = contextvars.copy_context()  # a red line inside is the one that was asked for
    own.run(_quiet.set, True)
    try:
        returned = own.run(call)
    except Exception as e:  # noqa: BLE001 - any other exception is the difference this check is to report
        ok = isinstance(e, error) and contains.lower() in str(e).lower()
        _report(ok, claim, type(e).__name__, expected, ("failed with", "expected"), str(e))
        return e
    _report(False, claim, f"no failure, returned {values.format_value(returned)}", expected)
    raise AssertionError("unreachable")


# ---- the line that a check shows, in a notebook and elsewhere


def _report_rows(
    found: list[str],
    what: str,
    left: pd.DataFrame,
    right: pd.DataFrame,
    labels: tuple[str, str],
    tolerance: float = 0,
    own: str = "",
) -> None:
    """Judge two frames by the differences found: rows and columns on each side, the first
    differences below.
    """
    sizes = [
        f"{_count(len(frame), 'row')} × {_count(frame.shape[1], 'column')}"
        for frame in (left, right)
    ]
    none = "no value differs" + (f" by more than {tolerance:g}" if tolerance else "")
    more = [f"… and {len(found) - MAX_DIFFERENCES:,} more"] if len(found) > MAX_DIFFERENCES else []
    _report(
        not found,
        what,
        f"{sizes[0]}, {_count(len(found), 'difference') if found else none}",
        sizes[1],
        labels,
        "\n".join(found[:MAX_DIFFERENCES] + more),
        own,
    )


def _report(
    ok: bool,
    what: str,
    left: str,
    right: str,
    labels: tuple[str, str] = ("seen", "expected"),
    detail: str = "",
    own: str = "",
) -> None:
    """Show the line; raise CheckFailed when it is a red one. Of `own` data a difference is shown
    only.
    """
    if own and not ok:
        detail = "\n".join(
            filter(None, [f"shown, not judged: the data are your own, from {own}", detail])
        )
    line = {
        "ok": None if own and not ok else ok,
        "what": what,
        "left": left,
        "right": right,
        "left_label": labels[0],
        "right_label": labels[1],
        "detail": detail,
    }
    if not _quiet.get() and IPython.get_ipython() is None:
        print(escape_unprintable(as_text(line), LAYOUT_CHARACTERS))
    elif not _quiet.get():
        IPython.display.display(
            {MIME: line, "text/html": _as_html(line), "text/plain": as_text(line)}, raw=True
        )
    if not (ok or own):
        raise errors.CheckFailed(
            f"check failed: {what}",
            location=detail.replace("\n", "\n            "),
            expected=f"{labels[1]} {right}, but {labels[0]} {left}",
        )


def _count(n: int, one: str, more: str = "") -> str:
    return f"{n:,} {one if n == 1 else more or one + 's'}"


def as_text(line: dict) -> str:
    """The line of a check as plain text."""
    detail = "".join(f"\n    {row}" for row in line["detail"].splitlines())
    return (
        f"{STATE_MARKS[line['ok']][0]} {line['what']}: {line['left_label']} {line['left']} · "
        f"{line['right_label']} {line['right']}{detail}"
    )


def _as_html(line: dict) -> str:
    """The line of a check as HTML that stands in a light and in a dark notebook."""
    e = {k: html.escape(str(v)) for k, v in line.items()}
    sign, colour = STATE_MARKS[line["ok"]]
    detail = (
        f"<pre style='margin:.3em 0 0 1.6em;white-space:pre-wrap'>{e['detail']}</pre>"
        if line["detail"]
        else ""
    )
    return (
        f"<div style='border-left:4px solid {colour};background:{colour}14;padding:.35em .7em;margin:.2em 0'>"
        f"<b style='color:{colour}'>{sign}</b> {e['what']}: <span style='opacity:.75;margin-left:.6em'>"
        f"{e['left_label']} <b>{e['left']}</b> · {e['right_label']} <b>{e['right']}</b></span>{detail}</div>"
    )
