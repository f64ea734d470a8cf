"""Pictures of events in order: commits, the values of a record, dots in lanes."""

from itertools import groupby
from typing import Mapping, Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from rich.filesize import decimal as format_size

from ...base.text import plural
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

MEANING_COLORS = {
    "good": PALETTE[2],
    "bad": PALETTE[0],
    "neutral": PALETTE[3],
    "note": PALETTE[1],
}
OPERATION_COLORS = {
    "BULK_INSERT": GRAY,
    "UPSERT": PALETTE[3],
    "COMPACT": PALETTE[1],
    "CLUSTER": PALETTE[2],
}


@styled(STYLE)
def commits(
    tables: Mapping[str, pd.DataFrame],
    labels: Mapping[str, Mapping[str, str]] = {},
    title: str = "",
) -> Picture:
    """Draw the commits of tables, one lane for each table and one bar for each commit.

    A bar is as high as the bytes written, colored by operation, with bytes and rows above it and
    the time of its instant below it.

    Args:
        tables: {name: frame as hudi.commits returns it}.
        labels: {name: {instant: label}}; by default a commit is labeled with its operation.
        title: the title.

    Raises:
        LakeError: a table has no commits.
    """
    require_rows(tables)
    for frame in tables.values():
        require_rows(frame)
    right = max(len(frame) for frame in tables.values()) - 0.4
    top = max(1, *(frame["bytes"].max() for frame in tables.values())) * 1.4
    picture = Picture(0.8 + 2.7 * len(tables), title)
    axes = picture.subplots(len(tables), squeeze=False)[:, 0]
    for ax, (name, frame) in zip(axes, tables.items()):
        _draw_commits(ax, frame, labels.get(name, {}))
        ax.set(ylim=(0, top), xlim=(-0.6, right), ylabel=name)
        ax.tick_params(axis="y", which="both", left=False, labelleft=False)
        ax.grid(visible=False)
        ax.spines["left"].set_visible(False)
    operations = pd.concat([frame["operation"].dropna() for frame in tables.values()]).unique()
    axes[0].legend(
        [Patch(color=_operation_color(operation)) for operation in operations],
        [_operation_text(operation) for operation in operations],
        loc="upper right",
        ncols=max(1, len(operations)),
        bbox_to_anchor=(1, 1.16),
    )
    picture.supxlabel(
        "height of a bar: bytes written; times: of the instants, in UTC",
        x=0.03,
        ha="left",
        fontsize=11,
    )
    return picture


def _draw_commits(ax: Axes, frame: pd.DataFrame, labels: Mapping[str, str]) -> None:
    operations = frame["operation"].fillna("")
    colors = [_operation_color(operation) for operation in operations]
    bars = ax.bar(range(len(frame)), frame["bytes"], width=0.62, color=colors)
    sizes = [
        f"{format_size(row.bytes)}\n{plural(row.written, 'row')}" for row in frame.itertuples()
    ]
    ax.bar_label(bars, sizes, padding=3, fontsize=9)
    ticks = []
    for instant, operation in zip(frame["instant"], operations):
        label = labels.get(instant, _operation_text(operation))
        ticks.append(f"{label}\n{instant[8:10]}:{instant[10:12]}:{instant[12:14]}")
    ax.set_xticks(range(len(frame)), ticks)


def _operation_color(operation: str) -> str:
    return str(OPERATION_COLORS.get(operation, PALETTE[4]))


def _operation_text(operation: str) -> str:
    return operation.lower().replace("_", " ")


@styled(BARE_STYLE)
def record_history(values: pd.DataFrame, columns: Sequence[str], title: str = "") -> Picture:
    """Draw the values of a record's columns over instants: a lane per column, a band per value.

    Args:
        values: one row for each instant, in order; the index names them.
        columns: the columns to draw.
        title: the title.

    Raises:
        LakeError: there are no rows.
    """
    require_rows(values)
    picture = Picture(1.3 + 0.62 * len(columns), title)
    ax = picture.subplots()
    chars_per_instant = 13 * 6 / len(values)
    for lane, column in enumerate(columns):
        start = 0
        for number, (text, run) in enumerate(groupby(values[column].map(_value_text))):
            width, is_null = len(list(run)), text == "null"
            color = "#ECEEF1" if is_null else PALETTE[(3, 5, 2, 1, 4, 0)[number % 6]]
            ax.barh(
                lane,
                width - 0.05,
                left=start + 0.025,
                height=0.66,
                color=color,
                alpha=1 if is_null else 0.3,
            )
            max_chars = int(chars_per_instant * width)
            if len(text) > max_chars:
                text = text[: max_chars - 1] + "…"
            color = "#6B7280" if is_null else INK
            ax.text(start + 0.1, lane, text, va="center", fontsize=10, color=color)
            start += width
    label_lanes(ax, columns)
    ax.set_xticks(range(len(values)), list(values.index), ha="left")
    ax.set_xlim(0, len(values))
    ax.xaxis.tick_top()
    return picture


def _value_text(value: object) -> str:
    if pd.isna(value):
        return "null"
    return f"{value:.15g}" if isinstance(value, float) else str(value)


@styled(STYLE)
def lanes(
    frame: pd.DataFrame,
    x: str,
    lane: str,
    kind: str,
    title: str,
    *,
    x_label: str,
    meanings: Mapping[str, str],
    ticks: Sequence[float] = (),
    group: str = "",
) -> Picture:
    """Draw events in order: a dot for each row, in a lane for each value of `lane`.

    Args:
        frame: the events; lanes are in the order of their first rows.
        x: column of a dot's position, numbers or instants.
        lane: column of the lanes.
        kind: column of the dots' kinds, which have colors.
        title: the title.
        x_label: text below the axis.
        meanings: {kind: "good", "bad", "neutral" or "note"}, which sets the color and the order in
            the legend.
        ticks: positions of lines across all lanes.
        group: column of groups, such as transactions; a group with several rows has a common
            background.

    Raises:
        LakeError: there are no rows.
        ValueError: a kind has no meaning.
    """
    require_rows(frame)
    names = list(frame[lane].unique())
    kinds = sorted(frame[kind].unique(), key=[*meanings].index)
    picture = Picture(1.7 + 0.42 * len(names), title)
    ax = picture.subplots()
    if group:
        _draw_groups(ax, frame.groupby(group)[x], len(names) - 0.45)
    if ticks:
        ax.grid(axis="x", visible=False)  # its lines would look like ticks
    for tick in ticks:
        ax.axvline(tick, color=GRAY, lw=1, zorder=1)
    for one in reversed(kinds):  # the first one is drawn above the others
        rows = frame[frame[kind] == one]
        y = rows[lane].map(names.index)
        color = MEANING_COLORS[meanings[one]]
        ax.scatter(rows[x], y, color=color, s=46, ec="white", lw=0.5, label=one, zorder=3)
    label_lanes(ax, names, bottom=0.6)
    ax.set_xlabel(x_label or x)
    if pd.api.types.is_integer_dtype(frame[x]):
        ax.locator_params(axis="x", integer=True)
    picture.legend(loc="outside lower left", ncols=len(kinds), reverse=True)
    return picture


def _draw_groups(ax: Axes, groups: "pd.core.groupby.SeriesGroupBy", y: float) -> None:
    for _, positions in groups:
        if len(positions) > 1:
            ends = positions.min(), positions.max()
            ax.plot(ends, [y, y], color=INK, lw=2, solid_capstyle="butt")
            ax.axvspan(*ends, color=GRAY, alpha=0.16, lw=0)
