"""The rows of a table as of an instant, with the cells that changed since the frame before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

import pandas as pd
import sqlglot
from sqlglot import exp

from .. import hudi
from ..base import LakeError, World
from ..base.text import plural
from ..display import show
from ..hudi.labeling import resolve_instant
from ..hudi.timeline import HistoryRemoved, parse_instant, require_commits
from .finding import find
from .views import MAX_RESULT_ROWS, Views, column, open_views, parse_condition

SHOWN_ROWS = 20


@dataclass(frozen=True, eq=False)
class Frame:
    """The rows of a table as of an instant.

    Attributes:
        title: table, instant, rows, and what changed since the previous frame.
        rows: the rows in the order of their keys, with the columns of the source.
        changed: True for each cell of `rows` that is new, or has another value than in the previous
            frame.
        added: number of rows that the previous frame does not have.
        removed: number of rows that only the previous frame has.
    """

    title: str
    rows: pd.DataFrame
    changed: pd.DataFrame
    added: int
    removed: int

    def _changed_first(self) -> pd.DataFrame:
        is_changed = self.changed.any(axis=1)
        return self.rows.loc[is_changed.sort_values(ascending=False, kind="stable").index]

    def __repr__(self) -> str:
        """Return the title and the first rows; a changed cell ends with `*`."""
        rows = self._changed_first().head(SHOWN_ROWS)
        texts = rows.astype(str).mask(self.changed.loc[rows.index], rows.astype(str) + " *")
        return f"{self.title}\n{texts.to_string(index=False)}"

    def _repr_html_(self) -> str:
        html: str = show.table(self._changed_first(), self.title, SHOWN_ROWS, self.changed).data
        return html


def at(
    world: World, table: Union[hudi.Table, str], instant: str = "", *, where: str = "true"
) -> Frame:
    """Return the rows of a table as of an instant, and mark what changed since the frame before.

    The frame before is that of the previous label, or else of the previous commit. If there is none, or
    if its files were cleaned away, no cell is marked.

    Args:
        world: the world.
        table: the table, or its name (see `find`).
        instant: label or instant; by default the last commit.
        where: a condition on the rows in Athena's SQL, such as "birth_year > 1900".

    Raises:
        LakeError: as `find` and `hudi.as_of`; the condition is invalid; or more than MAX_RESULT_ROWS
            rows fulfill it.
    """
    table = find(world, table)
    actions = require_commits(table, "read")
    until = resolve_instant(world, table, instant or actions[-1].instant)
    labels = dict(hudi.labels(world, table)[["instant", "label"]].to_numpy())
    instants = [action.instant for action in actions]
    previous = max(
        [one for one in labels if one < until] or [one for one in instants if one < until],
        default=until,
    )
    try:
        views = open_views(world, table, explore_before=previous, explore_after=until)
    except HistoryRemoved:
        previous = until
        views = open_views(world, table, explore_before=until, explore_after=until)
    rows, changed, removed = _compare(views, table, where)
    added = int(changed[table.key[0]].sum())
    title = (
        f"{table.name} at {labels.get(until, until)} ({parse_instant(until):%Y-%m-%d %H:%M:%S} UTC)"
    )
    title += f": {plural(len(rows), 'row')}"
    if previous != until:
        updated = int(changed.any(axis=1).sum()) - added
        title += f"; since {labels.get(previous, previous)}: "
        title += f"{added:,} added, {removed:,} removed, {updated:,} changed"
    return Frame(title, rows, changed, added, removed)


def _compare(views: Views, table: hudi.Table, where: str) -> tuple[pd.DataFrame, pd.DataFrame, int]:
    """Return the chosen rows of `explore_after`, their changed cells, and the number of removed rows."""
    condition = parse_condition(where)
    chosen = sqlglot.select("*").from_("explore_after").where(condition).subquery("a")
    count = int(views.query(sqlglot.select("count(*) AS n").from_(chosen)).loc[0, "n"])
    if count > MAX_RESULT_ROWS:
        raise LakeError(
            f"{count:,} rows of {table.name} are to be shown",
            location=f"where: {where}",
            expected=f"at most {MAX_RESULT_ROWS:,}",
            hint='select rows with where="…"; explore.profile and query.sql read all of them',
        )
    columns = list(views.columns)
    key = tuple(exp.to_identifier(name, quoted=True) for name in table.key)
    joined = views.query(
        sqlglot.select(*[column(name, "a") for name in columns])
        .select(*[views.differs(name).as_(f"changed {n}") for n, name in enumerate(columns)])
        .from_(chosen)
        .join("explore_before AS b", join_type="left", using=key)
        .order_by(*[column(name, "a") for name in table.key])
    )
    removed = views.query(
        sqlglot.select("count(*) AS n")
        .from_(sqlglot.select("*").from_("explore_before").where(condition).subquery("b"))
        .join("explore_after AS a", join_type="anti", using=key)
    )
    changed = joined.iloc[:, len(columns) :].set_axis(columns, axis=1)
    return joined.iloc[:, : len(columns)], changed, int(removed.loc[0, "n"])
