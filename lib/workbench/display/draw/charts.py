"""Charts of values: a grid, measures side by side, a distribution, lines. The tables of a database."""

from typing import Any, Container, Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.dates import AutoDateLocator, DateFormatter
from matplotlib.patches import Rectangle
from rich.filesize import decimal as format_size

from .picture import (
    BARE_STYLE,
    GRAY,
    INK,
    PALETTE,
    STYLE,
    Picture,
    label_lanes,
    require_rows,
    styled,
)

# Lines of a panel; a point at a limit is drawn whole.
ONE_LINE: dict[str, Any] = {
    "marker": "o",
    "ms": 4,
    "color": PALETTE[3],
    "clip_on": False,
    "in_layout": False,
}
# Each is narrower than the one below it, so that equal values hide none.
LINES: list[dict[str, Any]] = [
    {**ONE_LINE, "ms": 7, "lw": 4},
    {**ONE_LINE, "ms": 5, "lw": 2.2, "color": PALETTE[0]},
    {**ONE_LINE, "ms": 3, "lw": 1, "color": PALETTE[2]},
]


@styled(BARE_STYLE)
def matrix(frame: pd.DataFrame, words: Mapping[Any, str], title: str = "") -> Picture:
    """Draw a frame as a grid: a cell for each value, with its word and its color.

    Args:
        frame: the values.
        words: {value: word}; the position of a value here selects its color.
        title: the title.
    """
    picture = Picture(1.6 + 0.42 * len(frame), title)
    ax = picture.subplots()
    colors = dict(zip(words, (PALETTE[2], PALETTE[0], PALETTE[1], GRAY)))
    for (y, x), value in np.ndenumerate(frame.to_numpy(dtype=object)):
        ax.add_patch(
            Rectangle((x - 0.46, y - 0.42), 0.92, 0.84, fc=colors[value], ec="white", lw=2)
        )
        ax.text(x, y, words[value], ha="center", va="center", color="white", fontsize=10)
    ax.set_xlim(-0.5, len(frame.columns) - 0.5)
    label_lanes(ax, frame.index, top=0.5)
    ax.set_xticks(range(len(frame.columns)), [name.replace("_", "\n") for name in frame.columns])
    ax.xaxis.tick_top()
    return picture


@styled(BARE_STYLE)
def costs(
    frame: pd.DataFrame, units: dict[str, str], title: str = "", *, colors: Sequence[str] = ()
) -> Picture:
    """Draw measures side by side: a panel for each column of `units`, a bar for each row.

    Args:
        frame: the measures; the index names the rows.
        units: {column: title of its panel}; a column named `bytes` is shown in kB or MB. Panels whose
            titles end in the same unit, such as ", in s", have the same scale.
        title: the title.
        colors: the color of each row; by default all are blue.
    """
    picture = Picture(1.4 + 0.5 * len(frame), title)
    axes = picture.subplots(1, len(units), sharey=True, squeeze=False)[0]
    # {unit: the greatest value in it}
    longest = frame[[*units]].astype(float).max().groupby([*map(_unit, units.values())]).max()
    for ax, (column, heading) in zip(axes, units.items()):
        values = frame[column].astype(float)
        bars = ax.barh(range(len(frame)), values, color=colors or PALETTE[3], height=0.6)
        texts = [format_size(int(v)) if column == "bytes" else _number(v) for v in values]
        ax.bar_label(bars, texts, padding=4, fontsize=10)
        ax.set(xlim=(0, longest[_unit(heading)] * 1.35 or 1), xticks=[])
        ax.set_title(heading, pad=8)
    label_lanes(axes[0], frame.index, top=0.5)
    return picture


def _unit(heading: str) -> str:
    """Return the unit at the end of a panel's title, "in s" of "all rows, in s"; without one, the whole title."""
    return heading.rpartition(", ")[2]


@styled(STYLE)
def distribution(values: pd.Series, title: str, *, x_label: str) -> Picture:
    """Draw a histogram with lines at the median and at the 95th percentile.

    Args:
        values: the values.
        title: the title.
        x_label: text below the axis.
    """
    require_rows(values)
    picture = Picture(4.2, title)
    ax = picture.subplots()
    ax.hist(values, bins=40, color=PALETTE[3], alpha=0.75)
    for share, color in ((0.5, INK), (0.95, PALETTE[0])):
        bound = values.quantile(share)
        ax.axvline(bound, color=color, lw=1.5, label=f"{share:.0%} are below {bound:,.3g}")
    ax.set(xlabel=x_label, ylabel=f"number, of {len(values):,}", xlim=(0, None))
    picture.legend(loc="outside lower left", ncols=2)
    return picture


@styled(STYLE)
def panels(
    frame: pd.DataFrame,
    x: str,
    lines: Mapping[str, Sequence[str]],
    title: str = "",
    *,
    x_label: str = "",
) -> Picture:
    """Draw columns as lines, in panels below each other.

    An axis of numbers includes zero, so that a change looks as large as it is; an axis of instants
    does not.

    Args:
        frame: the rows.
        x: column of the common horizontal axis.
        lines: {title of a panel: its columns, at most three}.
        title: the title.
        x_label: text below the axis, by default the column's name.

    Raises:
        LakeError: the frame has no rows.
    """
    require_rows(frame)
    picture = Picture(0.9 + 1.55 * len(lines), title)
    axes = picture.subplots(len(lines), sharex=True, squeeze=False)[:, 0]
    for ax, (heading, columns) in zip(axes, lines.items()):
        for number, column in enumerate(columns):
            rows = frame[frame[column].notna()]  # Matplotlib fails with a missing instant
            style = LINES[number] if len(columns) > 1 else ONE_LINE
            ax.plot(rows[x], rows[column], label=column.replace("_", " "), **style)
        if all(pd.api.types.is_numeric_dtype(frame[column]) for column in columns):
            numbers = np.nan_to_num(frame[[*columns]].to_numpy(dtype=float))
            bottom, top = min(0, numbers.min() * 1.12), max(0, numbers.max() * 1.12)
            ax.set_ylim(bottom, top if bottom or top else 1)
        else:
            ax.yaxis.set_major_locator(AutoDateLocator(maxticks=5))
            ax.yaxis.set_major_formatter(DateFormatter("%H:%M"))
        ax.set_title(heading, pad=5)
        if len(columns) > 1:
            ax.legend(loc="lower right", bbox_to_anchor=(1, 0.98), ncols=len(columns), fontsize=9)
    axes[-1].set_xlabel(x_label or x)
    if pd.api.types.is_integer_dtype(frame[x]):
        axes[-1].locator_params(axis="x", integer=True)
    return picture


@styled(BARE_STYLE)
def entities(tables: pd.DataFrame, title: str, blue: Container[str] = ()) -> Picture:
    """Draw the tables of a database with their keys (◆), and an arrow for each reference (→).

    Args:
        tables: the result of `data/catalog/postgres_tables.sql` or `mariadb_tables.sql`.
        title: the title.
        blue: names of the tables that are drawn in blue.

    Raises:
        LakeError: there are no tables.
    """
    require_rows(tables)
    height = tables["y"].max()
    picture = Picture(0.8 + height * 0.19, title)
    ax = picture.subplots()
    ax.axis((0, tables["lane"].max() + 0.7, height, 0))
    ax.axis("off")
    boxes = {}
    for row in tables.itertuples():
        color = PALETTE[3] if row.table in blue else INK
        box = {"boxstyle": "round", "fc": "white", "ec": color}
        boxes[row.table] = ax.text(row.lane, row.y, row.content, color=color, bbox=box)
    for row in tables.itertuples():
        for other in row.refers_to.splitlines():
            ends = boxes[other], boxes[row.table]
            arrow = {"arrowstyle": "->", "color": GRAY}
            ax.annotate("", (-0.05, 0.5), (1, 0.5), *ends, arrowprops=arrow, zorder=0)
    return picture


def _number(value: float) -> str:
    """Return a number with about four digits, and whole ones from a thousand on."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:,.4g}"
