"""Profile the columns of a table as of an instant, and compare them with another instant."""

from __future__ import annotations

from typing import Any, Optional, Sequence, Union

import pandas as pd
import pyarrow
from pyarrow import types

from .. import hudi
from ..base import World
from ..base.text import plural
from ..hudi.timeline import require_commits
from .finding import find
from .frames import Frame
from .views import Views, open_views, quoted

BARS = "▁▂▃▄▅▆▇█"
BINS = 12  # of a sparkline
DRIFT = 0.1  # least share of rows with another value that is highlighted
SHOWN_CHARS = 24  # of a value; the frame has all of it


def profile(
    world: World,
    table: Union[hudi.Table, str],
    *,
    at: str = "",
    against: str = "",
    where: str = "true",
) -> Frame:
    """Profile the columns of a table as of an instant.

    The sparkline of a number or a time is a histogram, and of other values the counts of the most
    frequent ones. The drift is the share of the rows that would need another value so that both
    instants had the same distribution: 0 to 1, over the bins of the histogram or the values; null is a
    value, too.

    Args:
        world: the world.
        table: the table, or its name (see `find`).
        at: label or instant; by default the last commit.
        against: label or instant to compare with; by default none.
        where: a condition on the rows in Athena's SQL.

    Returns:
        A row for each column: column, type, null_percent, distinct, min, max, top_five, sparkline; with
        `against` also drift. `changed` marks a drift from 0.1 on. A value longer than 24 characters
        is shown with an ellipsis; `rows` has all of it.

    Raises:
        LakeError: as `find` and `hudi.as_of`; or the condition is invalid.
    """
    table = find(world, table)
    at = at or require_commits(table, "profile")[-1].instant
    views = open_views(world, table, against or at, at, where)
    sides = ("after", "before") if against else ("after",)
    profiles = [_profile_column(views, name, sides) for name in views.columns]
    full, short = (_with_texts(profiles, limit) for limit in (None, SHOWN_CHARS))
    marked = pd.DataFrame(False, full.index, full.columns)
    rows = int(views.query("SELECT count(*) AS n FROM explore_after").loc[0, "n"])
    title = f"{table.name} at {at}: {plural(rows, 'row')}, {plural(len(full), 'column')}"
    if against:
        marked.loc[full["drift"] >= DRIFT, ["sparkline", "drift"]] = True
        title += f"; {marked['drift'].sum()} differ from {against}"
    return Frame(title, full, marked, len(full), short)


def _with_texts(profiles: Sequence[dict[str, Any]], limit: Optional[int]) -> pd.DataFrame:
    """Return the profiles, with values of at most `limit` characters; a longer one ends with `…`."""

    def text(value: Any) -> Any:
        is_long = limit and isinstance(value, str) and len(value) > limit
        return f"{value[:limit]}…" if is_long else value

    return pd.DataFrame(
        {
            **profile,
            "min": text(profile["min"]),
            "max": text(profile["max"]),
            "top_five": ", ".join(f"{text(str(v))} ({n:,})" for v, n in profile["top_five"]),
        }
        for profile in profiles
    )


def _profile_column(views: Views, name: str, sides: Sequence[str]) -> dict[str, Any]:
    """Return the row of a column (see `profile`); top_five as pairs of value and number."""
    rows = _values_sql(name, views.columns[name], sides)
    figures = (
        views.query(
            f"SELECT side, count(*) AS n, 1 - count(v) / count(*) AS nulls, count(DISTINCT v) AS d, "
            "CAST(min(v) AS TEXT) AS low, CAST(max(v) AS TEXT) AS high, "
            f"min(x) AS first, max(x) AS last FROM {rows} GROUP BY side ORDER BY side"
        )
        .set_index("side")
        .reindex([0, 1])  # a view without rows
    )

    def count(value: str) -> str:
        return (
            f"(SELECT {value} AS v, count(*) FILTER (side = 0) AS after, "
            f"count(*) FILTER (side = 1) AS before FROM {rows} GROUP BY 1) AS c"
        )

    def most_frequent(value: str) -> pd.Series:
        frequent = "WHERE v IS NOT NULL ORDER BY after DESC, before DESC, v"
        query = f"SELECT v, after FROM {count(value)} {frequent} LIMIT {BINS}"
        return views.query(f"SELECT * FROM ({query}) AS f").set_index("v")["after"]

    common = most_frequent("v")
    counted, bars = "v", common
    low, high = float(figures["first"].min()), float(figures["last"].max())
    if low == low:  # no NaN
        width = (high - low) / BINS or 1
        counted = f"CAST(least(floor((x - {low}) / {width}), {BINS - 1}) AS INT)"
        bars = most_frequent(counted).reindex(range(BINS), fill_value=0)
    drift = {}
    if len(sides) > 1:
        shares = "after / {} - before / {}".format(*figures["n"].fillna(1).astype(float))
        total = views.query(f"SELECT sum(abs({shares})) / 2 AS d FROM {count(counted)}")["d"][0]
        drift["drift"] = round(float(total), 3) if pd.notna(total) else 0.0
    return {
        "column": name,
        "type": str(views.columns[name]),
        "null_percent": round(100 * figures["nulls"][0], 1),
        "distinct": figures["d"][0],
        "min": figures["low"][0],
        "max": figures["high"][0],
        "top_five": [(v, n) for v, n in common.head().items() if n],
        "sparkline": "".join(BARS[int(7 * n / max(bars.max(), 1))] for n in bars),
        **drift,
    }


def _values_sql(name: str, kind: pyarrow.DataType, sides: Sequence[str]) -> str:
    """Return the SQL of the values of a column: side (its number), v, and x (as a number)."""
    value, number = quoted(name), "CAST(NULL AS DOUBLE)"
    if types.is_nested(kind):  # Spark does not count maps
        value = f"CAST({value} AS TEXT)"
    elif types.is_timestamp(kind) or types.is_date(kind):
        number = f"CAST(epoch(CAST({value} AS TIMESTAMP)) AS DOUBLE)"
    elif types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        number = f"CAST({value} AS DOUBLE)"
    columns = f"{value} AS v, CASE WHEN {number} - {number} = 0 THEN {number} END AS x"  # no NaN
    queries = [f"SELECT {n} AS side, {columns} FROM explore_{each}" for n, each in enumerate(sides)]
    return f"({' UNION ALL '.join(queries)}) AS r"
