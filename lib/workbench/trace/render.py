"""Show the history of a row: as text, and as a figure."""

from __future__ import annotations

import io
import shutil
from dataclasses import dataclass
from typing import Any, Optional, cast

import pandas

from ..base.terminal import escape_unprintable
from ..base.text import plural
from ..display import show as tables
from ..hudi.timeline import parse_instant
from .in_lake import short_name, view_names
from .in_topic import TracedTable

# {column: title} of the printed tables
SOURCE_COLUMNS = {
    "change": "",
    "made_at": "made at (UTC)",
    "op": "op",
    "what": "what",
    "lsn": "LSN",
    "transaction": "transaction",
}
TOPIC_COLUMNS = {
    "change": "",
    "offset": "partition:offset",
    "in_topic_at": "in the topic at",
    "schema": "schema",
    "landed": "landed file",
}
HIDDEN_FIELDS = ["view", "_hoodie_commit_seqno", "_hoodie_record_key"]


@dataclass(frozen=True, repr=False)
class RowHistory:
    """The history of a row, as `row` returns it.

    Attributes:
        table: the traced table.
        key: record key of the row.
        changes: one row per change (see `row`).
        views: the current rows of each view (see `row`).
    """

    table: TracedTable
    key: Any
    changes: pandas.DataFrame
    views: pandas.DataFrame

    def __repr__(self) -> str:
        """Return what `workbench trace` prints."""
        return text(self)

    def _repr_html_(self) -> str:
        title = f"{self.table.name} {self.key}: {plural(len(self.changes), 'change')}"
        parts = {title: self.changes, "shown now": self.views}
        return "".join(str(tables.table(frame, name).data) for name, frame in parts.items())


def show(history: RowHistory) -> None:
    """Print the changes of a row in the source, the topic and the lake, and the rows of the views."""
    from rich.console import Console

    _write(Console(), history)


def text(history: RowHistory) -> str:
    """Return what `show` prints, as wide as the terminal, or 150 characters wide without one."""
    from rich.console import Console

    width = shutil.get_terminal_size((150, 24)).columns
    console = Console(file=io.StringIO(), width=width)
    with console.capture() as captured:
        _write(console, history)
    return captured.get().rstrip()


def _write(console: Any, history: RowHistory) -> None:
    from rich.text import Text

    changes = history.changes.copy()
    for column in ("made_at", "in_topic_at"):
        changes[column] = changes[column].dt.strftime("%Y-%m-%d %H:%M:%S.%f").str[:-3]
    has_version = changes["version"].notna()
    changes.loc[has_version, "schema"] += ", version " + changes["version"][has_version].astype(str)
    changes["offset"] = changes["partition"].astype(str) + ":" + changes["offset"].astype(str)
    title = escape_unprintable(f"{history.table.name} {history.key}")
    summary = escape_unprintable(f"  {len(changes)} changes; topic {history.table.topic}")
    console.print(Text.assemble((title, "bold"), summary))
    _print(console, changes, SOURCE_COLUMNS)
    _print(console, changes, TOPIC_COLUMNS)
    for lake in history.table.tables:
        short = short_name(lake, history.table.tables)
        columns = {
            "change": "",
            f"{short}_commit": f"commit of {lake.name}",
            f"{short}_file_group": "file group",
            f"{short}_file": "file",
            **view_names(lake, short),
        }
        _print(console, changes, columns)
    if len(history.views):  # a line for each field: rows are wide, and there are few views
        fields = history.views.drop(columns=HIDDEN_FIELDS, errors="ignore").astype(object).T
        titles: dict[Any, str] = {"index": "shown now"}
        titles.update(enumerate(history.views["view"]))
        _print(console, fields.reset_index(), titles)


def _print(console: Any, frame: pandas.DataFrame, columns: dict[Any, str]) -> None:
    from rich.table import Column, Table
    from rich.text import Text

    table = Table(
        *(Column(title, overflow="fold") for title in columns.values()),
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
    )
    for row in frame[list(columns)].itertuples(index=False):
        table.add_row(*[Text(_format(value)) for value in row])
    console.print(table)
    console.print()


def _format(value: Any) -> str:
    if pandas.api.types.is_scalar(value) and pandas.isna(
        value
    ):  # a list has a null in each element
        return ""
    return f"{value:.15g}" if isinstance(value, float) else escape_unprintable(str(value))


def draw(history: RowHistory) -> Any:
    """Draw the changes of a row over time: one line per change, from source to topic to each table.

    The time axis is not to scale.

    Returns:
        A matplotlib figure.
    """
    import matplotlib.pyplot as plt
    from cycler import cycler
    from matplotlib.ticker import MaxNLocator

    from ..display import draw as charts

    changes, stages = history.changes, _stages(history)
    times = sorted({time for stage in stages.values() for time in stage})
    # after the last color the line style changes, after the last line style the marker
    styles = (
        cycler(marker="os^D")
        * cycler(linestyle=["-", "--", ":"])
        * cycler(color=[*charts.PALETTE, charts.INK])
    )
    legend_rows = (len(changes) + 1) // 2  # the legend has two columns
    height = 1.4 + 0.75 * len(stages) + 0.25 * (legend_rows + 1)  # inches
    with plt.rc_context(cast(Any, charts.STYLE)):
        figure = charts.Picture(
            height,
            f"{history.table.name} {history.key}: from the source to the lake (UTC, not to scale)",
        )
        axes = figure.subplots()
        for style, (number, change) in zip(styles(), changes.iterrows()):
            points = [
                (times.index(stage[number]), -level) if number in stage else None
                for level, stage in enumerate(stages.values())
            ]
            _draw_change(axes, change, points, style)
        axes.set_yticks([-level for level in range(len(stages))], list(stages))
        axes.xaxis.set_major_locator(MaxNLocator(10, integer=True))
        axes.xaxis.set_major_formatter(
            lambda n, _: f"{times[int(n)]:%H:%M:%S}" if 0 <= n < len(times) else ""
        )
        axes.set_ylim(0.6 - len(stages), 0.6)
        figure.legend(loc="outside lower left", ncols=2)
    return figure


def _stages(history: RowHistory) -> dict[str, pandas.Series]:
    """Return {name of a stage: times at which the changes reached it}: source, topic, tables."""
    changes = history.changes
    stages = {
        "source": changes["made_at"].dropna(),
        f"topic {history.table.topic}": changes["in_topic_at"],
    }
    for lake in history.table.tables:
        commits = changes[f"{lake.type}_commit"]
        stages[f"commit of {lake.name}"] = commits[commits != ""].map(parse_instant)
    return stages


def _draw_change(
    axes: Any, change: pandas.Series, points: list[Optional[tuple[int, int]]], style: dict[str, Any]
) -> None:
    """Draw the line of one change.

    Args:
        axes: the axes to draw on.
        change: the row of the change.
        points: (x, y) for each stage: source (None if its time is unknown), topic, and each table
            (None if the table does not have the change).
        style: marker, line style and color.
    """
    source, topic, *tables = points
    assert topic is not None, "every message has a time"
    line = [source, topic] if source else [topic]
    axes.plot(*zip(*line), **style, label=f"{change['change']}  {change['what']}")
    axes.annotate(
        str(change["change"]), line[0], textcoords="offset points", xytext=(0, 7), ha="center"
    )
    for table in tables:
        if table is not None:
            # a bend, because a straight line to one table could pass through another table
            bend = (table[0], topic[1] - 0.5)
            axes.plot(*zip(topic, bend, table), **style, markevery=[2])
