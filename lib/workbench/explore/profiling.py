"""Profile the columns of a table as of an instant, and compare them with another instant."""

from __future__ import annotations

from typing import Any, Union

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
COMMON_VALUES = 50  # that are compared
DRIFT = 0.1  # least share of rows with another value that is highlighted


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
    instants had the same distribution: 0 to 1, over the bins of the histogram or the most frequent
    values.

    Args:
        world: the world.
        table: the table, or its name (see `find`).
        at: label or instant; by default the last commit.
        against: label or instant to compare with; by default none.
        where: a condition on the rows in Athena's SQL.

    Returns:
        A row for each column: column, type, null_percent, distinct, min, max, top_five, sparkline; with
        `against` also drift. `changed` marks a drift from 0.1 on.

    Raises:
        LakeError: as `find` and `hudi.as_of`; or the condition is invalid.
    """
    table = find(world, table)
    at = at or require_commits(table, "profile")[-1].instant
    views = open_views(world, table, against or at, at, where)
    result = pd.DataFrame([_profile_column(views, name) for name in views.columns])
    marked = pd.DataFrame(False, result.index, result.columns)
    rows = int(views.query("SELECT count(*) AS n FROM explore_after").loc[0, "n"])
    title = f"{table.name} at {at}: {plural(rows, 'row')}, {plural(len(result), 'column')}"
    if not against:
        return Frame(title, result.drop(columns="drift"), marked.drop(columns="drift"), len(result))
    marked.loc[result["drift"] >= DRIFT, ["sparkline", "drift"]] = True
    title += f"; {marked['drift'].sum()} differ from {against}"
    return Frame(title, result, marked, len(result))


def _profile_column(views: Views, name: str) -> dict[str, Any]:
    """Return the row of a column (see `profile`)."""
    rows = _values_sql(name, views.columns[name])
    figures = (
        views.query(
            f"SELECT side, count(*) AS n, 1 - count(v) / count(*) AS nulls, count(DISTINCT v) AS d, "
            "left(CAST(min(v) AS TEXT), 40) AS low, left(CAST(max(v) AS TEXT), 40) AS high, "
            f"min(x) AS first, max(x) AS last FROM {rows} GROUP BY side ORDER BY side"
        )
        .set_index("side")
        .reindex([0, 1])  # a view without rows
    )

    def count(value: str, limit: int) -> pd.DataFrame:
        return views.query(
            f"SELECT * FROM (SELECT {value} AS v, count(*) FILTER (side = 0) AS after, "
            f"count(*) FILTER (side = 1) AS before FROM {rows} WHERE {value} IS NOT NULL GROUP BY 1 "
            f"ORDER BY 2 DESC, 3 DESC, 1 LIMIT {limit}) AS c"
        ).set_index("v")

    common = count("v", COMMON_VALUES)
    bars = common
    low, high = float(figures["first"].min()), float(figures["last"].max())
    if low == low:  # no NaN
        width = (high - low) / BINS or 1
        bars = count(f"CAST(least(floor((x - {low}) / {width}), {BINS - 1}) AS INT)", BINS)
        bars = bars.reindex(range(BINS), fill_value=0)
    shares = bars.astype(float) / figures["n"].fillna(1).to_numpy()
    others = shares.sum().diff().abs().iloc[1]  # nulls, and values that are not compared
    return {
        "column": name,
        "type": str(views.columns[name]),
        "null_percent": round(100 * figures["nulls"][0], 1),
        "distinct": figures["d"][0],
        "min": figures["low"][0],
        "max": figures["high"][0],
        "top_five": ", ".join(
            f"{str(v)[:24]} ({n:,})" for v, n in common["after"].head().items() if n
        ),
        "sparkline": "".join(
            BARS[int(7 * n / max(bars["after"].max(), 1))] for n in bars["after"].head(BINS)
        ),
        "drift": round((shares.diff(axis=1).abs().sum().iloc[1] + others) / 2, 3),
    }


def _values_sql(name: str, kind: pyarrow.DataType) -> str:
    """Return the SQL of the values of a column: side (0: after, 1: before), v, and x (as a number)."""
    value, number = quoted(name), "CAST(NULL AS DOUBLE)"
    if types.is_nested(kind):  # Spark does not count maps
        value = f"CAST({value} AS TEXT)"
    elif types.is_timestamp(kind) or types.is_date(kind):
        number = f"CAST(epoch(CAST({value} AS TIMESTAMP)) AS DOUBLE)"
    elif types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        number = f"CAST({value} AS DOUBLE)"
    columns = f"{value} AS v, CASE WHEN {number} - {number} = 0 THEN {number} END AS x"  # no NaN
    return (
        f"(SELECT 0 AS side, {columns} FROM explore_after "
        f"UNION ALL SELECT 1, {columns} FROM explore_before) AS r"
    )
