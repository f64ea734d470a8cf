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

BINS = 12  # of the numbers or times of a column, whose distributions are compared
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

    The drift is the share of the rows that would need another value so that both instants had the same
    distribution: 0 to 1, over twelve intervals of numbers and times, else over the values; null is a
    value, too.

    Args:
        world: the world.
        table: the table, or its name (see `find`).
        at: label or instant; by default the last commit.
        against: label or instant to compare with; by default none.
        where: a condition on the rows in Athena's SQL.

    Returns:
        A row for each column: column, type, null_percent, distinct, min, max (as texts); with `against`
        also drift. `changed` marks a drift from 0.1 on.

    Raises:
        LakeError: as `find` and `hudi.as_of`; or the condition is invalid.
    """
    table = find(world, table)
    at = at or require_commits(table, "profile")[-1].instant
    views = open_views(world, table, against or at, at, where)
    before, after = (_count(views, side) for side in ("before", "after"))
    rows = pd.DataFrame(_profile_column(views, name, after) for name in views.columns)
    title = f"{table.name} at {at}: {plural(after, 'row')}, {plural(len(rows), 'column')}"
    changed = pd.DataFrame(False, rows.index, rows.columns)
    if against:
        rows["drift"] = [_drift(views, name, before, after) for name in views.columns]
        changed["drift"] = rows["drift"] >= DRIFT
        title += f"; {changed['drift'].sum()} differ from {against}"
    return Frame(title, rows, changed, len(rows))


def _count(views: Views, side: str) -> int:
    return int(views.query(f"SELECT count(*) AS n FROM explore_{side}").loc[0, "n"])


def _profile_column(views: Views, name: str, count: int) -> dict[str, Any]:
    value = _value(name, views.columns[name])
    figures = views.query(
        f"SELECT count({value}) AS filled, count(DISTINCT {value}) AS d, "
        f"CAST(min({value}) AS TEXT) AS low, CAST(max({value}) AS TEXT) AS high FROM explore_after"
    ).loc[0]
    return {
        "column": name,
        "type": str(views.columns[name]),
        "null_percent": round(100 * (count - figures["filled"]) / max(count, 1), 1),
        "distinct": figures["d"],
        "min": figures["low"],
        "max": figures["high"],
    }


def _drift(views: Views, name: str, before: int, after: int) -> float:
    """Return the drift of a column (see `profile`) between views with these numbers of rows."""
    value, number = _value(name, views.columns[name]), _number(name, views.columns[name])
    interval = value
    if number:
        interval = f"least(floor(({number} - low) / width), {BINS - 1})"
    distance = views.query(f"""
        WITH numbers AS (SELECT {number or 0} AS x FROM explore_before
                         UNION ALL SELECT {number or 0} AS x FROM explore_after),
             span AS (SELECT min(x) AS low, coalesce(nullif((max(x) - min(x)) / {BINS}, 0), 1) AS width FROM numbers),
             shares AS (SELECT {interval} AS v, 1 / {max(after, 1)} AS share FROM explore_after CROSS JOIN span
                        UNION ALL SELECT {interval}, -1 / {max(before, 1)} FROM explore_before CROSS JOIN span),
             differences AS (SELECT abs(sum(share)) AS difference FROM shares GROUP BY v)
        SELECT sum(difference) / 2 AS d FROM differences""")
    total = distance.loc[0, "d"]
    return round(float(total), 3) if pd.notna(total) else 0.0


def _value(name: str, kind: pyarrow.DataType) -> str:
    """Return the SQL of a column's values."""
    is_nested = types.is_nested(kind)  # Spark does not count maps
    return f"CAST({quoted(name)} AS TEXT)" if is_nested else quoted(name)


def _number(name: str, kind: pyarrow.DataType) -> str:
    """Return the SQL of a column's values as finite numbers; "" if they are no numbers or times."""
    if types.is_timestamp(kind) or types.is_date(kind):
        number = f"CAST(epoch(CAST({quoted(name)} AS TIMESTAMP)) AS DOUBLE)"
    elif types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        number = f"CAST({quoted(name)} AS DOUBLE)"
    else:
        return ""
    return f"CASE WHEN {number} - {number} = 0 THEN {number} END"
