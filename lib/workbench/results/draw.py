"""Pictures that can go into a slide: shares, some rows among the others, a table's commits, a
record's values over instants, what a read costs.
"""

import textwrap
from itertools import groupby
from pathlib import Path
from typing import Any, Mapping, NamedTuple, Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from IPython.core.pylabtools import print_figure
from matplotlib import rc_params_from_file
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgba
from matplotlib.dates import DateFormatter
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle
from rich.filesize import decimal as size_text

from ..base import LakeError, did_you_mean

STYLE = rc_params_from_file(
    Path(__file__).with_name("picture.mplstyle"), use_default_template=False
)
PALETTE, GRAY, INK = (
    STYLE["axes.prop_cycle"].by_key()["color"],
    STYLE["axes.edgecolor"],
    STYLE["text.color"],
)
BARE_STYLE = {
    **STYLE,
    "axes.spines.left": False,
    "axes.spines.bottom": False,
    "axes.grid.axis": "x",
}  # lanes, no axes
MEANING_COLORS = {
    "good": PALETTE[2],
    "bad": PALETTE[0],
    "neutral": PALETTE[3],
    "note": PALETTE[1],
}  # a loss is bad
OPERATION_COLORS = {
    "BULK_INSERT": GRAY,
    "UPSERT": PALETTE[3],
    "COMPACT": PALETTE[1],
    "CLUSTER": PALETTE[2],
}


class Picture(Figure):
    """A figure whose text is its title: a notebook keeps it beside the picture, the report has it
    for who does not see the picture. It is not pyplot's, so a cell that returns it shows it
    once.
    """

    def __init__(self, height: float = 6.2, title: str = "", **how: Any) -> None:
        super().__init__(figsize=(11, height), layout="constrained", **how)
        FigureCanvasAgg(self)
        self.suptitle(title, x=0.03, ha="left", fontsize=15, weight="bold")

    def __repr__(self) -> str:
        return " ".join(self.get_suptitle().split()) or super().__repr__()

    def _repr_png_(self) -> bytes:  # a notebook asks for it
        return print_figure(self, "png")


@plt.rc_context(STYLE)
def pie_top(series: pd.Series, top: int = 20, title: str = "", *, unit: str = "") -> Picture:
    """Draw the shares of the `top` largest values, and of all others together, as a ring with a
    list of its slices.

    The three largest have a colour of their own and their name beside them; the others share a
    colour that fades, the rest is grey.

    Args:
        series: values by name, not negative.
        top: how many names get a slice of their own.
        unit: text before the total, e.g. "$".
    """
    values = series.astype(float).sort_values(ascending=False)
    if not len(values) or values.min() < 0 or values.sum() <= 0:
        raise LakeError(
            "there is nothing to draw shares of", expected="values, none of them negative"
        )
    first, rest, total = values[:top], values[top:], values.sum()
    slices = (
        pd.concat([first, pd.Series({f"{len(rest)} others": rest.sum()})]) if len(rest) else first
    )
    colours = [*PALETTE[:3], *plt.cm.Blues(np.linspace(0.62, 0.2, max(1, top - 3)))][
        : len(first)
    ] + ["#DDE1E6"]
    labels = [
        f"{textwrap.fill(str(name), 18)}\n{value / total:.1%}" for name, value in first[:3].items()
    ]
    fig = Picture(title=title)
    ax, side = fig.subplots(1, 2, width_ratios=[1.5, 1])
    ax.pie(
        slices,
        labels=labels + [""] * (len(slices) - len(labels)),
        colors=colours,
        startangle=90,
        counterclock=False,
        wedgeprops={"width": 0.38, "edgecolor": "white", "linewidth": 1.2},
    )
    ax.text(
        0, 0.09, f"{first.sum() / total:.0%}", ha="center", va="center", fontsize=30, weight="bold"
    )
    ax.text(
        0,
        -0.13,
        f"top {len(first)} of {len(values)}\nof {unit}{total:,.0f}",
        ha="center",
        va="center",
    )
    side.axis("off")  # a list of all slices: swatch, name, value and share, one line each
    side.set(xlim=(0, 1), ylim=(len(slices) + 0.5, -1.6))
    lines = [
        (textwrap.shorten(str(name), 24, placeholder=" …"), f"{value:,.0f}", f"{value / total:.1%}")
        for name, value in slices.items()
    ]
    for at, (line, colour) in enumerate(
        zip([("", unit or "value", "share"), *lines], ["none", *colours]), -1
    ):
        side.add_patch(Rectangle((0, at - 0.32), 0.05, 0.64, color=colour, lw=0))
        for x, text, where in zip((0.09, 0.84, 1.0), line, ("left", "right", "right")):
            side.text(x, at, text, va="center", ha=where, fontsize=10)
    return fig


@plt.rc_context(STYLE)
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
    size_label: str = "",
) -> Picture:
    """Draw one dot per row, its area showing `size`; rows named in `labels` stand out and carry
    their name.

    Args:
        df: the index names its rows.
        labels: group → names, e.g. {"big customers": ["QUICK", …]}; each group has a colour.
    """
    named = [name for names in labels.values() for name in names]
    missing = [name for name in named if name not in df.index]
    if missing:
        raise LakeError(f"no row is named {missing[0]!r}", expected="names of the index")
    areas = df[size].astype(float) / float(df[size].max()) * 420
    dots = df[[x, y]].astype(float)
    others = df.index.difference(named)
    fig = Picture(title=title)
    ax = fig.subplots()
    ax.scatter(
        dots.loc[others, x],
        dots.loc[others, y],
        areas[others],
        color=GRAY,
        alpha=0.55,
        lw=0,
        label=f"{len(others)} others",
    )
    places = (
        dots.loc[named] / dots.max() * [1, 3]
    )  # names are wide and low: who is beside counts, not who is above
    for (group, names), colour in zip(labels.items(), [PALETTE[0], PALETTE[3], *PALETTE[1:3]]):
        ax.scatter(
            dots.loc[names, x],
            dots.loc[names, y],
            areas[names],
            color=colour,
            alpha=0.85,
            edgecolor="white",
            lw=0.8,
            label=group,
        )
        for (
            name
        ) in names:  # on the side that is away from the nearest named dot and from the margin
            apart = ((places - places.loc[name]) ** 2).sum(axis=1).drop(name)
            left = places.loc[name, x] > 0.95 or (
                len(apart) and places.loc[apart.idxmin(), x] > places.loc[name, x]
            )
            gap = (areas[name] / 3.14) ** 0.5 + 4
            ax.annotate(
                name,
                dots.loc[name],
                (-gap if left else gap, 0),
                textcoords="offset points",
                color=colour,
                ha="right" if left else "left",
                va="center",
                weight="bold",
                fontsize=10.5,
            )
    ax.margins(0.14, 0.1)
    ax.set(xlabel=x_label or x, ylabel=y_label or y)
    ax.xaxis.set_major_formatter("{x:,.0f}")
    ax.yaxis.set_major_formatter("{x:,.0f}")
    legend = ax.legend(
        loc="upper left",
        alignment="left",
        labelspacing=0.7,
        title_fontsize=10,
        title=f"dot size: {size_label or size} ({df[size].min():,.0f} to {df[size].max():,.0f})",
    )
    for handle in legend.legend_handles:
        handle.set_sizes([70])
    return fig


@plt.rc_context(STYLE)
def commits(
    tables: Mapping[str, pd.DataFrame],
    labels: Mapping[str, Mapping[str, str]] = {},
    title: str = "",
) -> Picture:
    """Draw the commits of tables, one lane for each: a bar as high as the bytes written, coloured
    by operation, with bytes and rows above it.

    Args:
        tables: {name: frame as hudi.commits returns it}.
        labels: {name: {instant: label}}; a commit without a label is named by its operation. The
            time below is that of its instant.
    """
    if not tables or not all(len(frame) for frame in tables.values()):
        raise LakeError(
            "there are no commits to draw", expected="frames as hudi.commits returns them"
        )
    width = max(len(frame) for frame in tables.values())
    top = max(frame["bytes"].max() for frame in tables.values())
    fig = Picture(0.8 + 2.7 * len(tables), title)
    axes = fig.subplots(len(tables), squeeze=False)[:, 0]
    for ax, (name, frame) in zip(axes, tables.items()):
        operations = frame["operation"].fillna("")
        bars = ax.bar(
            range(len(frame)),
            frame["bytes"],
            width=0.62,
            color=[OPERATION_COLORS.get(o, PALETTE[4]) for o in operations],
        )
        ax.bar_label(
            bars,
            [
                f"{size_text(row.bytes)}\n{row.written:,} row{'s'[row.written == 1 :]}"
                for row in frame.itertuples()
            ],
            padding=3,
            fontsize=9,
        )
        said = labels.get(name, {})
        ax.set_xticks(
            range(len(frame)),
            [
                f"{said.get(i, o.lower().replace('_', ' '))}\n{i[8:10]}:{i[10:12]}:{i[12:14]}"
                for i, o in zip(frame["instant"], operations)
            ],
        )
        ax.set(yscale="log", ylim=(500, top * 12), xlim=(-0.6, width - 0.4), ylabel=name)
        ax.tick_params(axis="y", which="both", left=False, labelleft=False)
        ax.grid(visible=False)
        ax.spines["left"].set_visible(False)
    seen = dict.fromkeys(o for frame in tables.values() for o in frame["operation"].dropna())
    handles = [Rectangle((0, 0), 1, 1, color=OPERATION_COLORS.get(o, PALETTE[4])) for o in seen]
    axes[0].legend(
        handles,
        [o.lower().replace("_", " ") for o in seen],
        loc="upper right",
        ncols=len(seen),
        bbox_to_anchor=(1, 1.16),
    )
    fig.supxlabel(
        "height of a bar: bytes written, on a logarithmic scale; times: of the instants, in UTC",
        x=0.03,
        ha="left",
        fontsize=11,
    )
    return fig


@plt.rc_context(BARE_STYLE)
def record_history(values: pd.DataFrame, columns: Sequence[str], title: str = "") -> Picture:
    """Draw what a record's columns held over instants: a lane for each column, a band for each
    value.

    Args:
        values: one row for each instant, in order; the index names them.
    """
    missing = [c for c in columns if c not in values]
    if missing or not len(values):
        raise LakeError(
            f"there is no column {missing[0]!r}" if missing else "there are no instants to draw"
        )
    fig = Picture(1.3 + 0.62 * len(columns), title)
    ax = fig.subplots()
    for lane, column in enumerate(columns):
        texts = [
            "null" if pd.isna(v) else f"{v:.15g}" if isinstance(v, float) else str(v)
            for v in values[column]
        ]
        for number, (value, run) in enumerate(groupby(range(len(texts)), texts.__getitem__)):
            start, none = next(run), value == "null"  # NaN, NaT and None are all null
            width = 1 + len(list(run))
            colour = "#ECEEF1" if none else PALETTE[(3, 5, 2, 1, 4, 0)[number % 6]]
            ax.barh(
                lane,
                width - 0.05,
                left=start + 0.025,
                height=0.66,
                color=colour,
                alpha=1 if none else 0.3,
            )
            room = int(13 * width * 6 / len(values))  # characters that find a place in the band
            shown = value if len(value) <= room else value[: room - 1] + "…"
            ax.text(
                start + 0.1, lane, shown, va="center", fontsize=10, color="#6B7280" if none else INK
            )
    ax.set_yticks(range(len(columns)), columns)
    ax.set_xticks(range(len(values)), list(values.index), ha="left")
    ax.set(ylim=(len(columns) - 0.5, -0.6), xlim=(0, len(values)))
    ax.xaxis.tick_top()
    return fig


@plt.rc_context(STYLE)
def lanes(
    frame: pd.DataFrame,
    x: str,
    lane: str,
    kind: str,
    title: str = "",
    *,
    group: str = "",
    x_label: str = "",
    ticks: Sequence[float] = (),
    meanings: Mapping[str, str] = {},
) -> Picture:
    """Draw what happened where and in what order: a dot for each row, in a lane for each value of
    `lane`, coloured by `kind`; lanes in the order of their first rows.

    Args:
        x: column with a dot's place, numbers or instants. group: column; its rows that have one
            value there, if there are several, stand on a common ground (a transaction). ticks:
            places of lines across all lanes.
        meanings: {value of `kind`: "good", "bad", "neutral" or "note"}, which sets its colour and
            the order of the legend; without it the colours are the palette's, in the order of the
            rows.
    """
    if not len(frame):
        raise LakeError("there is nothing to draw", expected="a frame with a row for each dot")
    names, kinds = (list(dict.fromkeys(frame[column])) for column in (lane, kind))
    kinds.sort(key=lambda one: [*meanings, one].index(one))
    colours = dict(zip(kinds, [*PALETTE, GRAY] * len(kinds)))
    colours.update({one: MEANING_COLORS[word] for one, word in meanings.items()})
    fig = Picture(1.7 + 0.42 * len(names), title)
    ax = fig.subplots()
    for _, rows in frame.groupby(group) if group else ():
        if len(rows) > 1:
            ax.plot(
                [rows[x].min(), rows[x].max()],
                [len(names) - 0.45] * 2,
                color=INK,
                lw=2,
                solid_capstyle="butt",
            )
            ax.axvspan(rows[x].min(), rows[x].max(), color=GRAY, alpha=0.16, lw=0)
    for tick in ticks:
        ax.axvline(tick, color=GRAY, lw=1, zorder=1)
    for one in kinds:
        rows = frame[frame[kind] == one]
        ax.scatter(
            rows[x],
            rows[lane].map(names.index),
            color=colours[one],
            s=46,
            lw=0,
            label=str(one),
            zorder=3,
        )
    ax.set_yticks(range(len(names)), names)
    ax.set(ylim=(len(names) - 0.4, -0.6), xlabel=x_label or x)
    if pd.api.types.is_integer_dtype(frame[x]):
        ax.locator_params(axis="x", integer=True)
    fig.legend(loc="outside upper right", ncols=len(kinds))
    return fig


@plt.rc_context(BARE_STYLE)
def matrix(
    frame: pd.DataFrame,
    words: Mapping[Any, str],
    title: str = "",
    *,
    marked: Sequence[tuple[str, str]] = (),
) -> Picture:
    """Draw a frame as a grid, a cell for each value, which a word and a colour tell.

    Args:
        words: {value: word}; each value has the colour of its place here, the palette's from green
            on.
        marked: (row, column) of cells to frame.
    """
    fig = Picture(1.6 + 0.42 * len(frame), title)
    ax, colours = fig.subplots(), dict(zip(words, (PALETTE[2], PALETTE[0], PALETTE[1], GRAY)))
    for (y, x), value in np.ndenumerate(frame.to_numpy(dtype=object)):
        edge = INK if (frame.index[y], frame.columns[x]) in marked else "white"
        ax.add_patch(Rectangle((x - 0.46, y - 0.42), 0.92, 0.84, fc=colours[value], ec=edge, lw=2))
        ax.text(x, y, words[value], ha="center", va="center", color="white", fontsize=10)
    ax.set(xlim=(-0.5, len(frame.columns) - 0.5), ylim=(len(frame) - 0.5, -0.5))
    ax.set_yticks(range(len(frame)), list(frame.index))
    ax.set_xticks(range(len(frame.columns)), [name.replace("_", "\n") for name in frame.columns])
    ax.xaxis.tick_top()
    return fig


@plt.rc_context(BARE_STYLE)
def costs(
    frame: pd.DataFrame, units: dict[str, str], title: str = "", *, groups: Sequence[str] = ()
) -> Picture:
    """Draw one measure beside the other: a panel for each column of `units`, a bar for each row of
    the frame.

    Args:
        units: {column: title of its panel}; a column whose name is `bytes` shows as kB, MB.
        groups: ends of the rows' names; each has a colour of its own.
    """
    colours = [
        next(
            (PALETTE[(3, 1, 2)[n % 3]] for n, end in enumerate(groups) if str(name).endswith(end)),
            PALETTE[3],
        )
        for name in frame.index
    ]
    fig = Picture(1.4 + 0.5 * len(frame), title)
    axes = fig.subplots(1, len(units), sharey=True, squeeze=False)[0]
    for ax, (column, name) in zip(axes, units.items()):
        values = frame[column].astype(float)
        bars = ax.barh(range(len(frame)), values, color=colours, height=0.6)
        said = [size_text(int(v)) if column == "bytes" else f"{v:,.4g}" for v in values]
        ax.bar_label(bars, said, padding=4, fontsize=10)
        ax.set(xlim=(0, values.max() * 1.35 or 1), xticks=[])
        ax.set_title(name, fontsize=11, weight="bold", loc="left", pad=8)
    axes[0].set_yticks(range(len(frame)), list(frame.index))
    axes[0].set_ylim(len(frame) - 0.5, -0.5)
    return fig


@plt.rc_context(STYLE)
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
    """Draw the sums of a column: a bar for each value of `x`, in their order, stacked by `kind`,
    the largest below.

    Colors follow the names of the kinds, not their sums: a kind keeps its color when the picture is
    drawn again.

    Args:
        rest: kinds that are none of the named ones, such as "Unassigned"; they are grey.
    """
    if not len(frame):
        raise LakeError("there is nothing to draw", expected="a frame with rows")
    sums = frame.pivot_table(y, x, kind, "sum", fill_value=0)
    kinds = sums.sum().sort_values(ascending=False).index
    colours = dict(zip(sorted(set(kinds) - set(muted)), [*PALETTE, INK] * len(kinds)))
    fig = Picture(4.6, title)
    ax, below = fig.subplots(), np.zeros(len(sums))
    for one in kinds:
        ax.bar(
            range(len(sums)),
            sums[one],
            bottom=below,
            width=0.74,
            color=colours.get(one, GRAY),
            label=str(one),
        )
        below += sums[one].to_numpy(dtype=float)
    ax.set_xticks(range(len(sums)), list(sums.index))
    ax.set(xlabel=x_label or x, ylabel=y_label or y, ylim=(0, max(below) * 1.06 or 1))
    ax.yaxis.set_major_formatter("{x:,.0f}")
    ax.grid(axis="x", visible=False)
    fig.legend(loc="outside right upper", reverse=True)
    return fig


@plt.rc_context(BARE_STYLE)
def ranking(
    values: pd.Series, title: str = "", *, unit: str = "", muted: Sequence[str] = ()
) -> Picture:
    """Draw one bar per value, the largest on top, with the value and its share of the sum.

    Args:
        values: values by name, none of them negative.
        unit: text before a value, e.g. "$".
        rest: names that are none of the ranked ones, such as "Unassigned"; their bars are grey.
    """
    ranked = values.astype(float).sort_values(ascending=False)
    if not len(ranked) or ranked.min() < 0 or ranked.sum() <= 0:
        raise LakeError("there is nothing to rank", expected="values, none of them negative")
    fig = Picture(1.1 + 0.42 * len(ranked), title)
    ax = fig.subplots()
    bars = ax.barh(
        range(len(ranked)),
        ranked,
        color=[GRAY if name in muted else PALETTE[3] for name in ranked.index],
        height=0.7,
    )
    ax.bar_label(
        bars, [f"{unit}{value:,.0f} · {value / ranked.sum():.1%}" for value in ranked], padding=5
    )
    ax.set_yticks(range(len(ranked)), list(ranked.index))
    ax.set(xlim=(0, ranked.max() * 1.2), ylim=(len(ranked) - 0.4, -0.6), xticks=[])
    return fig


@plt.rc_context({**BARE_STYLE, "axes.spines.bottom": True})
def spans(
    frame: pd.DataFrame,
    kinds: Mapping[str, str],
    title: str = "",
    *,
    marks: Mapping[str, pd.Timestamp] = {},
) -> Picture:
    """Draw spans of time, one bar per row below the one before, with its bounds in it.

    Args:
        frame: columns start, end (instants) and kind.
        kinds: {kind: color}, in the order of the legend.
        marks: {text: instant}; each is a line across all bars, with its text above.
    """
    if not len(frame):
        raise LakeError("there is nothing to draw", expected="a frame with a row for each span")
    fig = Picture(2.0 + 0.36 * len(frame), title)
    ax = fig.subplots()
    for lane, row in enumerate(frame.itertuples()):
        ax.barh(
            lane,
            row.end - row.start,
            left=row.start,
            height=0.72,
            color=kinds[row.kind],
            alpha=0.45,
        )
        ax.text(row.start, lane, f"  {row.start:%H:%M} – {row.end:%H:%M}", va="center", fontsize=10)
    for place, (text, instant) in enumerate(marks.items()):
        ax.plot([instant] * 2, [len(frame) - 0.5, -0.9 - 0.62 * place], color=INK, lw=1.4)
        ax.text(instant, -0.95 - 0.62 * place, f" {text}", va="bottom", fontsize=10)
    ax.set(ylim=(len(frame) - 0.4, -1.2 - 0.62 * len(marks)), yticks=[])
    ax.xaxis.set_major_formatter(DateFormatter("%H:%M"))
    handles = [Rectangle((0, 0), 1, 1, color=colour, alpha=0.45) for colour in kinds.values()]
    fig.legend(handles, list(kinds), loc="outside lower left", ncols=len(kinds))
    return fig


class Box(NamedTuple):
    """A box of `flow`: its text, the column and row of its center (rows count downwards), and its
    kind.
    """

    text: str
    column: float
    row: float
    kind: str


class Arrow(NamedTuple):
    """An arrow of `flow`: the names of the boxes at its ends, its text, and whether what it carries
    can be lost.
    """

    start: str
    end: str
    text: str = ""
    lossy: bool = False


@plt.rc_context({**BARE_STYLE, "axes.grid": False})
def flow(
    boxes: Mapping[str, Box], arrows: Sequence[Arrow], kinds: Mapping[str, str], title: str = ""
) -> Picture:
    """Draw which part hands what to which: boxes in a grid, and arrows between them.

    Two arrows between the same boxes bend away from each other. A lossy arrow is red and dashed.

    Args:
        boxes: {name: box}.
        kinds: {kind of a box: color}, in the order of the legend.

    Raises:
        LakeError: an arrow names a box that is missing.
    """
    missing = [name for arrow in arrows for name in arrow[:2] if name not in boxes]
    if missing:
        raise LakeError(
            f"no box is named {missing[0]!r}", expected=did_you_mean(missing[0], list(boxes))
        )
    columns, rows = zip(*((box.column, box.row) for box in boxes.values()))
    fig = Picture(1.0 + 1.15 * (max(rows) - min(rows) + 1), title)
    ax = fig.subplots()
    ax.set(
        xlim=(min(columns) - 0.5, max(columns) + 0.5),
        ylim=(max(rows) + 0.4, min(rows) - 0.4),
        xticks=[],
        yticks=[],
    )
    patches = {}
    for name, (text, column, row, kind) in boxes.items():
        patches[name] = ax.add_patch(
            FancyBboxPatch(
                (column - 0.36, row - 0.25),
                0.72,
                0.5,
                "round,pad=0,rounding_size=0.05",
                fc=to_rgba(kinds[kind], 0.15),
                ec=kinds[kind],
                lw=1.5,
            )
        )
        ax.text(column, row, text, ha="center", va="center", fontsize=10)
    pairs = {arrow[:2] for arrow in arrows}
    for arrow in arrows:
        start, end = (np.array(boxes[name][1:3], dtype=float) for name in arrow[:2])
        way = end - start
        aside = (
            np.array([-way[1], way[0]]) / np.hypot(*way) * (0.08 if arrow[1::-1] in pairs else 0)
        )
        colour = PALETTE[0] if arrow.lossy else INK
        ax.add_patch(
            FancyArrowPatch(
                start + aside,
                end + aside,
                arrowstyle="-|>",
                mutation_scale=14,
                shrinkA=2,
                shrinkB=2,
                color=colour,
                lw=1.4,
                ls="--" if arrow.lossy else "-",
                patchA=patches[arrow.start],
                patchB=patches[arrow.end],
            )
        )
        x, y = (start + end) / 2 + aside * 1.4
        ax.text(
            x,
            y,
            arrow.text,
            ha="left" if aside[0] > 0 else "right" if aside[0] < 0 else "center",
            va="center",
            fontsize=9,
            color=colour,
            bbox={"fc": "white", "ec": "none", "pad": 1.5},
        )
    handles = [
        Rectangle((0, 0), 1, 1, fc=to_rgba(colour, 0.15), ec=colour) for colour in kinds.values()
    ]
    fig.legend(handles, list(kinds), loc="outside lower left", ncols=len(kinds))
    return fig


@plt.rc_context(STYLE)
def distribution(values: pd.Series, title: str = "", *, x_label: str = "") -> Picture:
    """Draw how often which values are: a histogram, with lines at the median and where 95 % lie
    below.
    """
    if not len(values):
        raise LakeError("there is nothing to draw", expected="a series with values")
    fig = Picture(4.2, title)
    ax = fig.subplots()
    ax.hist(values, bins=40, color=PALETTE[3], alpha=0.75)
    for share, colour in ((0.5, INK), (0.95, PALETTE[0])):
        at = values.quantile(share)
        ax.axvline(at, color=colour, lw=1.5, label=f"{share:.0%} are below {at:,.3g}")
    ax.set(xlabel=x_label or values.name, ylabel=f"of {len(values):,}", xlim=(0, None))
    fig.legend(loc="outside upper right", ncols=2)
    return fig


@plt.rc_context(STYLE)
def panels(
    frame: pd.DataFrame,
    x: str,
    lines: Mapping[str, Sequence[str]],
    title: str = "",
    *,
    x_label: str = "",
) -> Picture:
    """Draw columns over one: panels below each other, {title: the columns that are lines in it}.

    An axis of numbers holds zero, so that a change looks as large as it is; an axis of instants
    does not.

    Raises: LakeError: the frame has no rows.
    """
    if not len(frame):
        raise LakeError("there is nothing to draw", expected="a frame with rows")
    fig = Picture(0.9 + 1.55 * len(lines), title)
    axes = fig.subplots(len(lines), sharex=True, squeeze=False)[:, 0]
    for ax, (name, columns) in zip(axes, lines.items()):
        for column, colour in zip(columns, (PALETTE[3], PALETTE[0], PALETTE[2])):
            known = frame[frame[column].notna()]  # Matplotlib fails with an instant that is none
            ax.plot(
                known[x],
                known[column],
                marker="o",
                ms=4,
                color=colour,
                label=column.replace("_", " "),
            )
        if all(pd.api.types.is_numeric_dtype(frame[column]) for column in columns):
            numbers = np.nan_to_num(frame[[*columns]].agg(["min", "max"]).to_numpy(dtype=float))
            least, most = min(0, numbers.min() * 1.12), max(0, numbers.max() * 1.12)
            ax.set_ylim(least, most if least or most else 1)
        ax.set_title(name, fontsize=11, weight="bold", loc="left", pad=5)
        if len(columns) > 1:
            ax.legend(loc="lower right", bbox_to_anchor=(1, 0.98), ncols=len(columns), fontsize=9)
    axes[-1].set_xlabel(x_label or x)
    return fig
