"""Compare claims with their source of truth.

Each check shows one line with both sides. If the sides differ, the line is red, and the check raises
`errors.CheckFailed`. In a notebook the line is a MIME bundle, and the runner collects its JSON
(`application/vnd.workbench.check+json`): {ok, what, left, right, left_label, right_label, detail}.
Outside a notebook the line is printed.

Published values can differ from those of the user's own data. A check against published values takes
`custom_data`, the folder of the user's data (`flow.loader.loaded_from`, empty for generated
data). A difference is then shown with `ok` null, and nothing is raised. Checks against the source
have no such parameter.

Values are compared by meaning, not by their Python or Arrow type:
  numbers   int, float, Decimal and NumPy's numbers are compared by value; a float counts as its
            shortest text (14.4 is Decimal("14.4")). The comparison is exact. True is not 1.
  instants  A date is the midnight of that day. An instant without a zone counts as UTC. In
            `same_rows` a text with a zone is an instant if the other side's column holds zoned
            instants.
  null      None, NaN, NaT and pandas.NA are equal. None of them equals the empty text or 0.
  JSON      A text that holds an object or array equals the object or array, whatever the spacing
            and key order.
"""

import contextvars
import html
import math
import time
from decimal import Decimal
from typing import Any, Callable, Optional, Sequence, Union

import IPython.core.getipython
import IPython.display
import numpy as np
import pandas as pd

from ..base import errors, paths, wait
from ..base.terminal import LAYOUT_CHARACTERS, escape_unprintable
from ..base.text import plural
from . import check_values as values

__all__ = [
    "MIME",
    "same_rows",
    "equal",
    "true",
    "figure",
    "reference",
    "eventually",
    "expect_failure",
]
MIME = "application/vnd.workbench.check+json"
# {ok: (mark, color)}; ok is None for a difference that is shown, not raised (custom_data)
STATE_MARKS = {True: ("✔", "#1a9850"), False: ("✘", "#d73027"), None: ("≠", "#b8860b")}
# Length of a collection's text; for a longer one the line shows the size, and the detail the elements
MAX_INLINE_CHARS = 60
MAX_DIFFERENCES = 5  # differences that are listed; further ones are counted
# True while expect_failure runs a call: checks in the call show nothing
_quiet: contextvars.ContextVar[bool] = contextvars.ContextVar("quiet", default=False)


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
    """Compare two frames row by row and column by column, in any order of rows and columns.

    Args:
        source: the expected rows.
        lake: the actual rows.
        key: column or columns that identify a row.
        claim: what the check claims, for the line shown.
        allow_empty: accept two empty frames. By default the check then fails, because it compares
            nothing.
        lake_label: name of the actual side in the line shown.
        source_label: name of the expected side in the line shown.

    Raises:
        CheckFailed: rows are missing, extra, duplicate or different. The error lists the first
            five, and counts the others.
    """
    labels = lake_label, source_label
    differences = values.differences(
        source, lake, [key] if isinstance(key, str) else list(key), labels
    )
    if not differences and source is lake:
        differences = ["both sides are the same object: this check could not have failed"]
    if not differences and not allow_empty:
        differences = _require_rows(source)
    _report_rows(differences, claim, lake, source, labels)


def equal(
    claim: str,
    left: Any,
    right: Any,
    left_label: str = "lake",
    right_label: str = "source",
    *,
    custom_data: str = "",
) -> None:
    """Check that two values are equal.

    Args:
        claim: what the check claims, for the line shown.
        left: the actual value.
        right: the expected value.
        left_label: name of the actual side in the line shown.
        right_label: name of the expected side in the line shown.
        custom_data: folder of the user's own data: a difference is then shown, not raised.

    Raises:
        CheckFailed: the values differ.
        WorkbenchError: a value is a frame (use `same_rows`).
    """
    if any(isinstance(side, (pd.DataFrame, pd.Series)) for side in (left, right)):
        raise errors.WorkbenchError(
            "check.equal compares single values", location=claim, hint="use check.same_rows"
        )
    ok, sides, labels = values.values_equal(left, right), (left, right), (left_label, right_label)
    texts = [values.format_value(side, quotes=not ok) for side in sides]
    detail = ""
    if all(isinstance(side, values.COLLECTION_TYPES) for side in sides) and (
        max(map(len, texts)) > MAX_INLINE_CHARS or max(map(len, sides)) > values.MAX_ELEMENTS
    ):
        detail = f"both: {texts[0]}" if ok else values.describe_difference(left, right, labels)
        texts = [plural(len(side), "item" if isinstance(side, dict) else "value") for side in sides]
    elif not ok and texts[0] == texts[1]:  # 441 and {441} have the same text
        detail = f"{left_label}: {type(left).__name__}, {right_label}: {type(right).__name__}"
    _report(ok, claim, texts[0], texts[1], labels, detail, custom_data)


def true(
    claim: str,
    condition: Any,
    actual: Any = None,
    expected: str = "yes",
    *,
    custom_data: str = "",
) -> None:
    """Check a condition.

    Args:
        claim: what the check claims, for the line shown.
        condition: a bool. Other types are rejected: a function or a non-empty list is always true.
        actual: the measured value, e.g. 1,930 MB; by default yes or no.
        expected: the expectation in words, e.g. "below 6 GiB".
        custom_data: folder of the user's own data: a difference is then shown, not raised.

    Raises:
        CheckFailed: the condition is False.
        WorkbenchError: the condition is not a bool.
    """
    if not isinstance(condition, (bool, np.bool_)):
        raise errors.WorkbenchError(
            f"the condition is of type {type(condition).__name__}",
            location=claim,
            expected="True or False",
        )
    if actual is None:
        actual = "yes" if condition else "no"
    _report(bool(condition), claim, values.format_value(actual), expected, custom_data=custom_data)


def figure(name: str, value: float, unit: str = "", *, tolerance: Optional[float] = None) -> None:
    """Show a number of this run, and record it without an expectation.

    `workbench runs diff` shows how it moved since another run.

    Args:
        name: what the number is, such as "revenue of the day".
        value: the number.
        unit: its unit.
        tolerance: the share by which it may move between two runs, such as 0.05; by default any.

    Raises:
        WorkbenchError: the value is not a finite number.
    """
    number = values.normalize(value)
    if not isinstance(number, (int, Decimal)) or not math.isfinite(number):
        raise errors.WorkbenchError(
            f"{values.format_value(value)} is no figure", location=name, expected="a finite number"
        )
    allowed = "any" if tolerance is None else f"{tolerance * 100:g} %"
    text = f"{values.format_value(value)} {unit}".strip()
    _report(True, name, text, allowed, ("value", "tolerance"))


def reference(name: str, df: pd.DataFrame, *, custom_data: str = "") -> None:
    """Compare a frame with data/reference/<name>.csv: same columns and rows, in the same order.

    Args:
        name: path of the reference table below data/reference, without `.csv`.
        df: the actual rows.
        custom_data: folder of the user's own data: a difference is then shown, not raised.

    Raises:
        CheckFailed: rows differ, or there are none. The error numbers them from 1.
        WorkbenchError: the reference table does not exist.
    """
    path = paths.ROOT / "data" / "reference" / f"{name}.csv"
    if not path.is_file():
        raise errors.WorkbenchError(
            f"there is no reference table {name!r}",
            location=str(path),
            hint=f"inspect the rows; if they are right: df.to_csv('{path}', index=False)",
        )
    published, labels = values.read_like(path, df), ("actual", "reference")
    if list(published.columns) == list(df.columns):
        expected_rows, actual_rows = (
            frame.assign(row=range(1, len(frame) + 1)) for frame in (published, df)
        )
        differences = values.differences(expected_rows, actual_rows, ["row"], labels)
        differences = differences or _require_rows(published)
    else:
        columns = (", ".join(map(str, frame.columns)) for frame in (df, published))
        differences = ["columns: actual {}; reference {}".format(*columns)]
    claim = f"as in reference table {name}"
    _report_rows(differences, claim, df, published, labels, custom_data)


def eventually(
    claim: str,
    condition: Callable[[], Any],
    timeout: float = 60,
    interval: float = 0.2,
    *,
    failure_reason: Optional[Callable[[], Optional[str]]] = None,
) -> Any:
    """Wait until `condition()` is true, and return what it returned.

    Args:
        claim: what the check claims, for the line shown.
        condition: called without arguments.
        timeout: seconds before the check fails.
        interval: seconds between two calls.
        failure_reason: returns a sentence if the condition can no longer become true, as
            connect.failure does for a failed connector.

    Raises:
        CheckFailed: after `timeout` seconds, or at once when `failure_reason` returns a sentence.
    """
    start, expected = time.perf_counter(), f"within {timeout:g} s"
    try:
        result = wait.wait_until(
            condition,
            claim,
            timeout=timeout,
            interval=interval,
            failure_reason=failure_reason,
            error=errors.CheckFailed,
        )
    except errors.CheckFailed as e:
        _report(False, claim, "not yet", expected, detail=e.location or e.message)
    detail = "" if result is True else values.format_value(result)
    seconds = time.perf_counter() - start
    _report(True, claim, f"after {seconds:.1f} s", expected, detail=detail)
    return result


def expect_failure(
    claim: str, call: Callable[[], Any], error: type[Exception] = Exception, contains: str = ""
) -> Exception:
    """Check that a call fails, show its error message, and return the exception.

    Args:
        claim: what the check claims, for the line shown.
        call: called without arguments.
        error: type of the expected exception.
        contains: text that the error message contains, ignoring case.

    Raises:
        CheckFailed: the call raised nothing or another exception, or its message does not contain
            the text.
    """
    expected = "an error" if error is Exception else error.__name__
    if contains:
        expected += f" whose message contains {contains!r}"
    # a failing check in the call is the expected failure, so its red line is not shown
    quiet_context = contextvars.copy_context()
    quiet_context.run(_quiet.set, True)
    try:
        returned = quiet_context.run(call)
    except Exception as e:  # noqa: BLE001 - any other exception is a difference to report
        ok = isinstance(e, error) and contains.lower() in str(e).lower()
        _report(ok, claim, type(e).__name__, expected, ("failed with", "expected"), str(e))
        return e
    _report(False, claim, f"no failure, returned {values.format_value(returned)}", expected)
    raise AssertionError("unreachable")


def _require_rows(expected: pd.DataFrame) -> list[str]:
    """Return a difference if there are no rows: nothing was compared."""
    return [] if len(expected) else ["both sides are empty: this check could not have failed"]


# ---- display of a check's line


def _report_rows(
    differences: list[str],
    claim: str,
    left: pd.DataFrame,
    right: pd.DataFrame,
    labels: tuple[str, str],
    custom_data: str = "",
) -> None:
    """Show the line of a check of two frames: their sizes, and the first differences."""
    left_size, right_size = (
        f"{plural(len(frame), 'row')} × {plural(frame.shape[1], 'column')}"
        for frame in (left, right)
    )
    result = plural(len(differences), "difference") if differences else "no value differs"
    details = differences[:MAX_DIFFERENCES]
    if len(differences) > MAX_DIFFERENCES:
        details.append(f"… and {len(differences) - MAX_DIFFERENCES:,} more")
    _report(
        not differences,
        claim,
        f"{left_size}, {result}",
        right_size,
        labels,
        "\n".join(details),
        custom_data,
    )


def _report(
    ok: bool,
    claim: str,
    left: str,
    right: str,
    labels: tuple[str, str] = ("actual", "expected"),
    detail: str = "",
    custom_data: str = "",
) -> None:
    """Show the line of a check; raise CheckFailed if the check failed without `custom_data`."""
    if custom_data and not ok:
        note = f"shown, not raised: the data are your own, from {custom_data}"
        detail = f"{note}\n{detail}".rstrip()
    line = {
        "ok": ok or (None if custom_data else False),
        "what": claim,
        "left": left,
        "right": right,
        "left_label": labels[0],
        "right_label": labels[1],
        "detail": detail,
    }
    text = as_text(line)
    if _quiet.get():
        pass
    elif IPython.core.getipython.get_ipython() is None:
        print(escape_unprintable(text, LAYOUT_CHARACTERS))
    else:
        bundle = {MIME: line, "text/html": _as_html(line), "text/plain": text}
        IPython.display.display(bundle, raw=True)
    if not (ok or custom_data):
        raise errors.CheckFailed(
            f"check failed: {claim}",
            location=detail.replace("\n", "\n            "),
            expected=f"{labels[1]} {right}, but {labels[0]} {left}",
        )


def as_text(line: dict[str, Any]) -> str:
    """Return the line of a check as plain text.

    Args:
        line: the JSON of the line (see the module's description).
    """
    detail = "".join(f"\n    {row}" for row in line["detail"].splitlines())
    return (
        f"{STATE_MARKS[line['ok']][0]} {line['what']}: {line['left_label']} {line['left']} · "
        f"{line['right_label']} {line['right']}{detail}"
    )


def _as_html(line: dict[str, Any]) -> str:
    """Return the line of a check as HTML for light and dark notebooks."""
    escaped = {key: html.escape(str(value)) for key, value in line.items()}
    mark, color = STATE_MARKS[line["ok"]]
    detail = ""
    if line["detail"]:
        style = "margin:.3em 0 0 1.6em;white-space:pre-wrap"
        detail = f"<pre style='{style}'>{escaped['detail']}</pre>"
    box_style = (
        f"border-left:4px solid {color};background:{color}14;padding:.35em .7em;margin:.2em 0"
    )
    return (
        f"<div style='{box_style}'><b style='color:{color}'>{mark}</b> {escaped['what']}: "
        f"<span style='opacity:.75;margin-left:.6em'>"
        f"{escaped['left_label']} <b>{escaped['left']}</b> · "
        f"{escaped['right_label']} <b>{escaped['right']}</b></span>{detail}</div>"
    )
