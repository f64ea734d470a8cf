"""The rows of a table as of an instant, and the difference between two instants."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Iterator, Mapping, Union

import pandas as pd
import pyarrow

from .. import hudi
from ..base import LakeError, World
from ..base.text import plural
from ..display.result import Result
from ..hudi.labeling import resolve_instant
from ..hudi.timeline import HistoryRemoved, parse_instant, require_commits
from .finding import KEYLESS, find
from .views import Views, open_views, quoted, require_small, stored_rows


@dataclass(frozen=True, eq=False, repr=False)
class Frame(Result):
    """Rows with marked cells: those of a table as of an instant, or the profile of its columns.

    Attributes:
        title: table, instant, number of rows, and what changed since the previous frame.
        rows: the rows in the order of their keys, with the columns of the source.
        changed: True for each cell of `rows` that is new, or has another value than in the previous
            frame; with the index and columns of `rows`. Such cells are highlighted.
        limit: number of rows that are displayed; those with changed cells come first.
    """

    title: str
    rows: pd.DataFrame
    changed: pd.DataFrame
    limit: int = 20

    def parts(self) -> Mapping[str, pd.DataFrame]:
        """Return the rows, those with changed cells first."""
        is_changed = self.changed.any(axis=1).sort_values(ascending=False, kind="stable")
        return {"": self.rows.loc[is_changed.index]}


@dataclass(frozen=True, eq=False, repr=False)
class Diff(Result):
    """The difference between the rows of a table as of two instants.

    Attributes:
        title: table, instants, and the numbers of added, removed and changed rows.
        added: the rows that only the second instant has.
        removed: the rows that only the first instant has.
        cells: a row for each changed cell: the key, `column`, `before`, `after`.
        moved: those of `cells` whose column is a partition field.
    """

    title: str
    added: pd.DataFrame
    removed: pd.DataFrame
    cells: pd.DataFrame
    moved: pd.DataFrame

    @property
    def columns(self) -> pd.DataFrame:
        """The number of changed cells for each column, the largest first: `column`, `count`."""
        return self.cells["column"].value_counts().reset_index()

    def parts(self) -> Mapping[str, pd.DataFrame]:
        """Return the tables that are not empty."""
        parts = {
            "changes per column": self.columns,
            "before and after": self.cells,
            "moved to another partition": self.moved,
            "added": self.added,
            "removed": self.removed,
        }
        return {name: frame for name, frame in parts.items() if len(frame)}


def at(
    world: World, table: Union[hudi.Table, str], instant: str = "", *, where: str = "true"
) -> Frame:
    """Return the rows of a table as of an instant, and mark what changed since the previous frame.

    The previous frame is that of the label before, or else of the commit before. If there is none, or if
    its files were cleaned away, no cell is marked.

    Args:
        world: the world.
        table: the table, or its name (see `find`).
        instant: label or instant; by default the last commit.
        where: a condition on the rows in Athena's SQL, such as "birth_year > 1900". A row that begins
            to fulfill it is new.

    Raises:
        LakeError: as `find` and `hudi.as_of`; the condition is invalid; or there are more than
            MAX_RESULT_ROWS rows.
    """
    table = find(world, table)
    instants = [action.instant for action in require_commits(table, "read")]
    after = resolve_instant(world, table, instant or instants[-1])
    if where == "true":
        require_small(table, stored_rows(table))
    labels = dict(hudi.labels(world, table)[["instant", "label"]].to_numpy())
    earlier = [one for one in labels if one < after] or [one for one in instants if one < after]
    before = max(earlier, default=after)
    try:
        views = open_views(world, table, before, after, where)
    except HistoryRemoved:
        before = after
        views = open_views(world, table, after, after, where)
    names = ", ".join(map(quoted, views.columns))
    key = ", ".join(map(quoted, table.key))
    rows = views.query(f"SELECT {names} FROM explore_after ORDER BY {key}")
    title = f"{table.name} at {instant or labels.get(after, after)} ({parse_instant(after):%Y-%m-%d %H:%M:%S} UTC)"
    title += f": {plural(len(rows), 'row')}"
    changed = pd.DataFrame(False, rows.index, rows.columns)
    if before != after:
        difference = _compare(views)
        title += f"; since {labels.get(before, before)}: {difference.title}"
        positions = {key: number for number, key in enumerate(_keys(rows, table))}
        changed.loc[[positions[key] for key in _keys(difference.added, table)]] = True
        for name, cells in difference.cells.groupby("column"):
            changed.loc[[positions[key] for key in _keys(cells, table)], name] = True
    return Frame(title, rows, changed)


def diff(
    world: World, table: Union[hudi.Table, str], since: str, until: str = "", *, where: str = "true"
) -> Diff:
    """Compare the rows of a table as of two instants, by key.

    Columns of Hudi and of the capture, such as `__lsn`, are not compared, so that a row that was written
    again with the same values has no change. A row that is marked as deleted is removed.

    Args:
        world: the world.
        table: the table, or its name (see `find`).
        since: label or instant.
        until: label or instant; by default the last commit.
        where: a condition on the rows of both instants in Athena's SQL.

    Raises:
        LakeError: as `at`; or the table has no key.
    """
    table = find(world, table)
    if table.key == KEYLESS:
        raise LakeError(
            f"table {table.name} has no record key: a changed row cannot be told from a new one",
            location=f"{table.base}/.hoodie/hoodie.properties",
            expected="hoodie.table.recordkey.fields",
            hint='name the columns of a key: dataclasses.replace(explore.find(…), key=("id",)); or compare '
            "the columns: explore.profile(…, against=…)",
        )
    until = until or require_commits(table, "read")[-1].instant
    result = _compare(open_views(world, table, since, until, where))
    return replace(result, title=f"{table.name} from {since} to {until}: {result.title}")


def _compare(views: Views) -> Diff:
    """Compare both views by key; the title has the numbers of rows only."""
    key, columns = views.table.key, list(views.columns)
    selected, differences = [], []
    for number, (name, kind) in enumerate(views.columns.items()):
        after, before = f"a.{quoted(name)}", f"b.{quoted(name)}"
        selected.append(f"{after} AS after_{number}, {before} AS before_{number}")
        if pyarrow.types.is_map(kind):  # Spark does not compare maps
            after, before = f"CAST({after} AS TEXT)", f"CAST({before} AS TEXT)"
        differences.append(f"{after} IS DISTINCT FROM {before}")
        selected.append(f"{differences[-1]} AS differs_{number}")
    keys = [(f"a.{quoted(name)}", f"b.{quoted(name)}") for name in key]
    same_key = " AND ".join(f"{a} IS NOT DISTINCT FROM {b}" for a, b in keys)
    order = ", ".join(f"coalesce({a}, {b})" for a, b in keys)
    rows = views.query(f"""
        WITH a AS (SELECT *, true AS explore_here FROM explore_after),
             b AS (SELECT *, true AS explore_here FROM explore_before)
        SELECT {", ".join(selected)}, a.explore_here IS NULL AS removed, b.explore_here IS NULL AS added
        FROM a FULL JOIN b ON {same_key}
        WHERE a.explore_here IS NULL OR b.explore_here IS NULL OR {" OR ".join(differences)}
        ORDER BY {order}""")
    after, before, differs = (
        rows[[f"{side}_{n}" for n in range(len(columns))]].set_axis(columns, axis=1)
        for side in ("after", "before", "differs")
    )
    is_added, is_removed = rows["added"], rows["removed"]
    is_changed = ~is_added & ~is_removed
    cells = []
    for name in columns:
        cell = after[[*key]].assign(column=name, before=before[name], after=after[name])
        cell = cell[differs[name] & is_changed]
        cells.append(cell.astype({"before": object, "after": object}))
    changed = pd.concat(cells).sort_index(kind="stable").reset_index(drop=True)
    counts = is_added.sum(), is_removed.sum(), is_changed.sum()
    return Diff(
        "{:,} added, {:,} removed, {:,} changed".format(*counts),
        after[is_added].reset_index(drop=True),
        before[is_removed].reset_index(drop=True),
        changed,
        changed[changed["column"].isin(views.table.partition)].reset_index(drop=True),
    )


def _keys(frame: pd.DataFrame, table: hudi.Table) -> Iterator[tuple[Any, ...]]:
    yield from frame[[*table.key]].itertuples(index=False, name=None)
