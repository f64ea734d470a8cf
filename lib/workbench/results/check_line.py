"""The line that a check shows, in a notebook and elsewhere; a red one raises."""
from __future__ import annotations

import contextlib
import contextvars
import html
from typing import Any, Iterator, List, Optional, Sequence

import IPython.display
import pandas as pd

from ..base.errors import CheckFailed

_quiet: contextvars.ContextVar = contextvars.ContextVar("quiet", default=False)
MIME = "application/vnd.workbench.check+json"
STATES = {True: ("✔", "#1a9850"), False: ("✘", "#d73027"), None: ("≠", "#b8860b")}  # None: own data differ
SHOWN = 5  # differing rows that are named; the others are counted


def judge(ok: bool, what: str, left: str, right: str, left_label: str, right_label: str, detail: str = "",
          own: str = "") -> None:
    """Show the line; raise CheckFailed when it is a red one. Of `own` data a difference is shown only."""
    if own and not ok:
        detail = "\n".join(filter(None, [f"shown, not judged: the data are your own, from {own}", detail]))
    _display({"ok": None if own and not ok else ok, "what": what, "left": left, "right": right,
              "left_label": left_label, "right_label": right_label, "detail": detail})
    if not (ok or own):
        raise CheckFailed(f"check failed: {what}", where=detail.replace("\n", "\n            "),
                          expected=f"{right_label} {right}, but {left_label} {left}")


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """No check shows its line meanwhile."""
    token = _quiet.set(True)
    try:
        yield
    finally:
        _quiet.reset(token)


def _display(line: dict) -> None:
    if _quiet.get():
        return
    if IPython.get_ipython() is None:
        print(as_text(line))
    else:
        IPython.display.display({MIME: line, "text/html": as_html(line), "text/plain": as_text(line)}, raw=True)


def as_text(line: dict) -> str:
    """The line of a check as plain text."""
    detail = "".join(f"\n    {row}" for row in line["detail"].splitlines())
    return (f"{STATES[line['ok']][0]} {line['what']}: {line['left_label']} {line['left']} · "
            f"{line['right_label']} {line['right']}{detail}")


def as_html(line: dict) -> str:
    """The line of a check as HTML that stands in a light and in a dark notebook."""
    e = {k: html.escape(str(v)) for k, v in line.items()}
    sign, colour = STATES[line["ok"]]
    detail = f"<pre style='margin:.3em 0 0 1.6em;white-space:pre-wrap'>{e['detail']}</pre>" if line["detail"] else ""
    return (f"<div style='border-left:4px solid {colour};background:{colour}14;padding:.35em .7em;margin:.2em 0'>"
            f"<b style='color:{colour}'>{sign}</b> {e['what']}: <span style='opacity:.75;margin-left:.6em'>"
            f"{e['left_label']} <b>{e['left']}</b> · {e['right_label']} <b>{e['right']}</b></span>{detail}</div>")


def size(frame: pd.DataFrame, found: Optional[Sequence[str]] = None, tolerance: float = 0) -> str:
    """A frame as one side of a line: its rows and columns and, where it was compared, how many differences were found.
    """
    counts = [(len(frame), "row"), (frame.shape[1], "column"), (len(found or ()), "difference")]
    rows, columns, differences = (f"{n:,} {noun}{'s'[n == 1:]}" for n, noun in counts)
    if found is None:
        return f"{rows} × {columns}"
    none = "no value differs" + (f" by more than {tolerance:g}" if tolerance else "")
    return f"{rows} × {columns}, {differences if found else none}"


def count(values: Any) -> str:
    """A collection as one side of a line: how many it holds."""
    one, more = ("entry", "entries") if isinstance(values, dict) else ("value", "values")
    return f"{len(values):,} {one if len(values) == 1 else more}"


def lines(found: List[str]) -> str:
    """Differences as the detail of a line: the first ones, and how many more."""
    more = [f"… and {len(found) - SHOWN:,} more"] if len(found) > SHOWN else []
    return "\n".join(found[:SHOWN] + more)
