"""Charts of values: shares, rankings, measures side by side, distributions, lines."""

import textwrap
from typing import Any, Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, DateFormatter
from matplotlib.patches import Rectangle
from rich.filesize import decimal as format_size

from ...base import LakeError
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


def _sorted_shares(values: pd.Series, purpose: str) -> pd.Series:
    """Sort values, the largest first; raise LakeError if they have no shares."""
    ranked = values.astype(float).sort_values(ascending=False)
    if not len(ranked) or ranked.min() < 0 or ranked.sum() <= 0:
        raise LakeError(f"there is nothing to {purpose}", expected="values, none of them negative")
    return ranked


@styled(STYLE)
def pie_top(series: pd.Series, top: int = 20, title: str = "", *, unit: str = "") -> Picture:
    """Draw the shares of the largest values and of all others together, as a ring with a list.

    The three largest slices have a color of their own and a label; the others fade, and the slice
    of all others is gray.

    Args:
        series: values by name, none of them negative.
        top: number of names that have a slice of their own.
        title: the title.
        unit: text before the total, e.g. "$".
    """
    values = _sorted_shares(series, "draw shares of")
    first, remaining, total = values[:top], values[top:], values.sum()
    slices = first
    if len(remaining):
        label = f"{len(remaining)} others"
        slices = pd.concat([first, pd.Series({label: remaining.sum()})])
    fading = plt.colormaps["Blues"](np.linspace(0.62, 0.2, max(1, top - 3)))
    colors = [*[*PALETTE[:3], *fading][: len(first)], "#DDE1E6"]
    labels = [
        f"{textwrap.fill(str(name), 18)}\n{value / total:.1%}" for name, value in first[:3].items()
    ]
    picture = Picture(title=title)
    ring, side = picture.subplots(1, 2, width_ratios=[1.5, 1])
    ring.pie(
        slices,
        labels=labels + [""] * (len(slices) - len(labels)),
        colors=colors,
        startangle=90,
        counterclock=False,
        wedgeprops={"width": 0.38, "edgecolor": "white", "linewidth": 1.2},
    )
    centered = {"ha": "center", "va": "center"}
    ring.text(0, 0.09, f"{first.sum() / total:.0%}", fontsize=30, weight="bold", **centered)
    summary = f"top {len(first)} of {len(values)}\nof {unit}{total:,.0f}"
    ring.text(0, -0.13, summary, **centered)
    _list_slices(side, slices, total, unit or "value", colors)
    return picture


def _list_slices(
    axes: Axes, slices: pd.Series, total: float, heading: str, colors: Sequence[Any]
) -> None:
    """List all slices below a heading: swatch, name, value and share, one line each."""
    axes.axis("off")
    axes.set(xlim=(0, 1), ylim=(len(slices) + 0.5, -1.6))
    lines = [("", heading, "share")]
    for name, value in slices.items():
        short_name = textwrap.shorten(str(name), 24, placeholder=" …")
        lines.append((short_name, f"{value:,.0f}", f"{value / total:.1%}"))
    for y, (line, color) in enumerate(zip(lines, ["none", *colors]), start=-1):
        axes.add_patch(Rectangle((0, y - 0.32), 0.05, 0.64, color=color, lw=0))
        for x, text, alignment in zip((0.09, 0.84, 1.0), line, ("left", "right", "right")):
            axes.text(x, y, text, va="center", ha=alignment, fontsize=10)


@styled(STYLE)
def scatter(
    df: pd.DataFrame,
    x: str,
    y: str,
    size: str,
    labels: Mapping[str, Sequence[str]],
    title: str = "",
    *,
    x_label: str = "",
    y_label: str = "",
) -> Picture:
    """Draw a dot per row; rows named in `labels` stand out and carry their name.

    Args:
        df: the rows; the index names them.
        x: column of the horizontal position.
        y: column of the vertical position.
        size: column that the area of a dot shows.
        labels: {group: names}, e.g. {"big customers": ["QUICK", …]}; each group has a color.
        title: the title.
        x_label: text below the horizontal axis, by default the column's name.
        y_label: text beside the vertical axis, by default the column's name.

    Raises:
        LakeError: a name is not in the index.
    """
    named = [name for names in labels.values() for name in names]
    missing = [name for name in named if name not in df.index]
    if missing:
        raise LakeError(f"no row is named {missing[0]!r}", expected="names of the index")
    areas = df[size].astype(float) / float(df[size].max()) * 420
    dots = df[[x, y]].astype(float)
    unnamed = df.index.difference(named)
    picture = Picture(title=title)
    ax = picture.subplots()

    def add_dots(names: Sequence[str], label: str, **style: Any) -> None:
        ax.scatter(dots.loc[names, x], dots.loc[names, y], areas[names], label=label, **style)

    add_dots(unnamed, f"{len(unnamed)} others", color=GRAY, alpha=0.55, lw=0)
    # Labels are wide and low: a neighbor at the side is closer than one above
    positions = dots.loc[named] / dots.max() * [1, 3]
    for (group, names), color in zip(labels.items(), [PALETTE[0], PALETTE[3], *PALETTE[1:3]]):
        add_dots(names, group, color=color, alpha=0.85, edgecolor="white", lw=0.8)
        for name in names:
            gap = (areas[name] / np.pi) ** 0.5 + 4
            _label_dot(ax, name, dots.loc[name], gap, _is_label_left(positions, name), color)
    ax.margins(0.14, 0.1)
    ax.set(xlabel=x_label or x, ylabel=y_label or y)
    ax.xaxis.set_major_formatter("{x:,.0f}")
    ax.yaxis.set_major_formatter("{x:,.0f}")
    legend = ax.legend(
        loc="upper left",
        alignment="left",
        labelspacing=0.7,
        title_fontsize=10,
        title=f"dot size: {size} ({df[size].min():,.0f} to {df[size].max():,.0f})",
    )
    plt.setp(legend.legend_handles, sizes=[70])
    return picture


def _label_dot(ax: Axes, name: str, dot: pd.Series, gap: float, is_left: bool, color: str) -> None:
    ax.annotate(
        name,
        dot,
        (-gap if is_left else gap, 0),
        textcoords="offset points",
        color=color,
        ha="right" if is_left else "left",
        va="center",
        weight="bold",
        fontsize=10.5,
    )


def _is_label_left(positions: pd.DataFrame, name: str) -> bool:
    """Return True if a dot's label goes to its left.

    It goes away from the right margin, else away from the nearest labeled dot.
    """
    dot = positions.loc[name]
    if dot.iloc[0] > 0.95:
        return True
    distances = ((positions - dot) ** 2).sum(axis=1).drop(name)
    return len(distances) > 0 and positions.loc[distances.idxmin()].iloc[0] > dot.iloc[0]


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
    frame: pd.DataFrame, units: dict[str, str], title: str = "", *, groups: Sequence[str] = ()
) -> Picture:
    """Draw measures side by side: a panel for each column of `units`, a bar for each row.

    Args:
        frame: the measures; the index names the rows.
        units: {column: title of its panel}; a column named `bytes` is shown in kB or MB. Panels whose
            titles end in the same unit, such as ", in s", have the same scale.
        title: the title.
        groups: suffixes of the rows' names; each has a color of its own.
    """
    colors = []
    for name in frame.index:
        group = [number for number, end in enumerate(groups) if str(name).endswith(end)]
        colors.append(PALETTE[(3, 1, 2)[group[0] % 3]] if group else PALETTE[3])
    picture = Picture(1.4 + 0.5 * len(frame), title)
    axes = picture.subplots(1, len(units), sharey=True, squeeze=False)[0]
    # {unit: the greatest value in it}
    longest = frame[[*units]].astype(float).max().groupby([*map(_unit, units.values())]).max()
    for ax, (column, heading) in zip(axes, units.items()):
        values = frame[column].astype(float)
        bars = ax.barh(range(len(frame)), values, color=colors, height=0.6)
        texts = [format_size(int(v)) if column == "bytes" else f"{v:,.4g}" for v in values]
        ax.bar_label(bars, texts, padding=4, fontsize=10)
        ax.set(xlim=(0, longest[_unit(heading)] * 1.35 or 1), xticks=[])
        ax.set_title(heading, pad=8)
    label_lanes(axes[0], frame.index, top=0.5)
    return picture


def _unit(heading: str) -> str:
    """Return the unit at the end of a panel's title, "in s" of "all rows, in s"; without one, the whole title."""
    return heading.rpartition(", ")[2]


@styled(STYLE)
def stacked(
    frame: pd.DataFrame,
    x: str,
    y: str,
    kind: str,
    title: str = "",
    *,
    x_label: str = "",
    y_label: str = "",
    muted: Sequence[str] = (),
) -> Picture:
    """Draw sums as bars that are stacked by kind, the largest kind at the bottom.

    A kind keeps its color when the picture is drawn again: colors follow the sorted names.

    Args:
        frame: the rows to sum.
        x: column with a bar for each value, in their order.
        y: column to sum.
        kind: column of the kinds.
        title: the title.
        x_label: text below the bars, by default the column's name.
        y_label: text beside the bars, by default the column's name.
        muted: kinds that are drawn gray, such as "Unassigned".
    """
    require_rows(frame)
    sums = frame.pivot_table(y, x, kind, "sum", fill_value=0)
    kinds = sums.sum().sort_values(ascending=False).index
    colors = dict(zip(sorted(set(kinds) - set(muted)), [*PALETTE, INK] * len(kinds)))
    picture = Picture(4.6, title)
    ax = picture.subplots()
    sums[kinds].astype(float).plot.bar(
        ax=ax,
        stacked=True,
        width=0.74,
        rot=0,
        legend=False,
        color=[colors.get(one, GRAY) for one in kinds],
    )
    top = float(sums.sum(axis=1).max())
    ax.set(xlabel=x_label or x, ylabel=y_label or y, ylim=(0, top * 1.06 or 1))
    ax.yaxis.set_major_formatter("{x:,.0f}")
    ax.grid(axis="x", visible=False)
    picture.legend(loc="outside right upper", reverse=True)
    return picture


@styled(BARE_STYLE)
def ranking(
    values: pd.Series, title: str = "", *, unit: str = "", muted: Sequence[str] = ()
) -> Picture:
    """Draw one bar per value, the largest on top, with the value and its share of the sum.

    Args:
        values: values by name, none of them negative.
        title: the title.
        unit: text before a value, e.g. "$".
        muted: names whose bars are gray, such as "Unassigned".
    """
    ranked = _sorted_shares(values, "rank")
    picture = Picture(1.1 + 0.42 * len(ranked), title)
    ax = picture.subplots()
    colors = [GRAY if name in muted else PALETTE[3] for name in ranked.index]
    bars = ax.barh(range(len(ranked)), ranked, color=colors, height=0.7)
    texts = [f"{unit}{value:,.0f} · {value / ranked.sum():.1%}" for value in ranked]
    ax.bar_label(bars, texts, padding=5)
    label_lanes(ax, ranked.index, bottom=0.6)
    ax.set(xlim=(0, ranked.max() * 1.2), xticks=[])
    return picture


@styled(STYLE)
def distribution(values: pd.Series, title: str = "", *, x_label: str = "") -> Picture:
    """Draw a histogram with lines at the median and at the 95th percentile.

    Args:
        values: the values.
        title: the title.
        x_label: text below the axis, by default the name of the series.
    """
    require_rows(values)
    picture = Picture(4.2, title)
    ax = picture.subplots()
    ax.hist(values, bins=40, color=PALETTE[3], alpha=0.75)
    for share, color in ((0.5, INK), (0.95, PALETTE[0])):
        bound = values.quantile(share)
        ax.axvline(bound, color=color, lw=1.5, label=f"{share:.0%} are below {bound:,.3g}")
    ax.set(xlabel=x_label or values.name, ylabel=f"number, of {len(values):,}", xlim=(0, None))
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
    return picture
