"""Pictures of a table's past: its commits, a record's values over instants, what a read costs."""
from __future__ import annotations

from typing import Dict, Mapping, Optional, Sequence

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from ..base.errors import LakeError
from .show import GREY, INK, PALETTE, Picture, size, style

COLOURS = {"BULK_INSERT": GREY, "UPSERT": PALETTE[3], "COMPACT": PALETTE[1], "CLUSTER": PALETTE[2]}


def commits(tables: Mapping[str, pd.DataFrame], labels: Optional[Mapping[str, Mapping[str, str]]] = None,
            title: str = "") -> Figure:
    """Draw the commits of tables, one lane for each: a bar as high as the bytes written, coloured by operation, with
    bytes and rows above it.

    Args:
        tables: {name: frame as hudi.commits returns it}.
        labels: {name: {instant: label}}; a commit without a label is named by its operation. The time below is that of
            its instant.
    """
    if not tables or not all(len(frame) for frame in tables.values()):
        raise LakeError("there are no commits to draw", expected="frames as hudi.commits returns them")
    width = max(len(frame) for frame in tables.values())
    top = max(frame["bytes"].max() for frame in tables.values())
    with plt.rc_context(style()):
        fig, axes = plt.subplots(len(tables), 1, FigureClass=Picture, figsize=(11, 0.8 + 2.7 * len(tables)),
                                 squeeze=False)
        for ax, (name, frame) in zip(axes[:, 0], tables.items()):
            operations = frame["operation"].fillna("")
            colours = [COLOURS.get(o, PALETTE[4]) for o in operations]
            ax.bar(range(len(frame)), frame["bytes"], color=colours, width=0.62)
            for x, row in enumerate(frame.itertuples()):
                ax.text(x, row.bytes * 1.25, f"{size(row.bytes)}\n{row.written:,} row{'s'[row.written == 1:]}",
                        ha="center", va="bottom", fontsize=9)
            names = (labels or {}).get(name, {})
            ax.set_xticks(range(len(frame)), [_tick(i, names, o) for i, o in zip(frame["instant"], operations)])
            ax.set(yscale="log", ylim=(500, top * 12), xlim=(-0.6, width - 0.4), ylabel=name)
            ax.yaxis.set_ticks([])
            ax.yaxis.set_ticks([], minor=True)
            ax.grid(visible=False)
            ax.spines["left"].set_visible(False)
        seen = dict.fromkeys(o for frame in tables.values() for o in frame["operation"].dropna())
        handles = [plt.Rectangle((0, 0), 1, 1, color=COLOURS.get(o, PALETTE[4])) for o in seen]
        axes[0, 0].legend(handles, [o.lower().replace("_", " ") for o in seen], loc="upper right", ncols=len(seen),
                          bbox_to_anchor=(1, 1.16))
        fig.suptitle(title, x=0.03, ha="left", fontsize=15, weight="bold")
        fig.text(0.03, 0.012, "height of a bar: bytes written, on a logarithmic scale; times: of the instants, in UTC",
                 fontsize=11, color=INK)
        fig.tight_layout(rect=(0, 0.03, 1, 0.98))
    plt.close(fig)  # a cell shows the figure that it returns; left open it would show twice
    return fig


def _tick(instant: str, names: Mapping[str, str], operation: str) -> str:
    time = f"{instant[8:10]}:{instant[10:12]}:{instant[12:14]}"
    return f"{names.get(instant, operation.lower().replace('_', ' '))}\n{time}"


def life(values: pd.DataFrame, columns: Sequence[str], title: str = "") -> Figure:
    """Draw what a record's columns held over instants: a lane for each column, a band for each value.

    Args:
        values: one row for each instant, in order; the index names them.
    """
    missing = [c for c in columns if c not in values]
    if missing or not len(values):
        raise LakeError(f"there is no column {missing[0]!r}" if missing else "there are no instants to draw")
    with plt.rc_context(style()):
        fig, ax = plt.subplots(FigureClass=Picture, figsize=(11, 1.3 + 0.62 * len(columns)))
        for lane, column in enumerate(columns):
            for number, (start, stop, value) in enumerate(_bands(list(values[column]))):
                none = value == "null"
                colour = "#ECEEF1" if none else PALETTE[(3, 5, 2, 1, 4, 0)[number % 6]]
                ax.barh(lane, stop - start - 0.05, left=start + 0.025, height=0.66, color=colour,
                        alpha=1 if none else 0.3)
                room = int(13 * (stop - start) * 6 / len(values))  # characters that find a place in the band
                shown = value if len(value) <= room else value[:room - 1] + "…"
                ax.text(start + 0.1, lane, shown, va="center", fontsize=10, color="#6B7280" if none else INK)
        ax.set_yticks(range(len(columns)), columns)
        ax.set_xticks(range(len(values)), list(values.index), ha="left")
        ax.set(ylim=(len(columns) - 0.5, -0.6), xlim=(0, len(values)))
        ax.xaxis.tick_top()
        ax.grid(axis="y", visible=False)
        for spine in ax.spines.values():
            spine.set_visible(False)
        fig.suptitle(title, x=0.03, ha="left", fontsize=15, weight="bold")
        fig.tight_layout(rect=(0, 0, 1, 1))
    plt.close(fig)
    return fig


def _bands(values: Sequence[object]) -> list:
    """[(start, stop, text)] of runs of the same value; NaN, NaT and None are all `null`."""
    texts = ["null" if pd.isna(v) else f"{v:.15g}" if isinstance(v, float) else str(v) for v in values]
    starts = [i for i, text in enumerate(texts) if not i or text != texts[i - 1]]
    return [(a, b, texts[a]) for a, b in zip(starts, [*starts[1:], len(texts)])]


def costs(frame: pd.DataFrame, units: Dict[str, str], title: str = "", *, groups: Sequence[str] = ()) -> Figure:
    """Draw one measure beside the other: a panel for each column of `units`, a bar for each row of the frame.

    Args:
        units: {column: title of its panel}; a column whose name is `bytes` shows as kB, MB.
        groups: ends of the rows' names; each has a colour of its own.
    """
    colours = [next((PALETTE[(3, 1, 2)[n % 3]] for n, end in enumerate(groups) if str(name).endswith(end)), PALETTE[3])
               for name in frame.index]
    with plt.rc_context(style()):
        fig, axes = plt.subplots(1, len(units), FigureClass=Picture, figsize=(11, 1.4 + 0.5 * len(frame)), sharey=True,
                                 squeeze=False)
        for ax, (column, name) in zip(axes[0], units.items()):
            values = frame[column].astype(float)
            ax.barh(range(len(frame)), values, color=colours, height=0.6)
            for y, value in enumerate(values):
                ax.text(value + values.max() * 0.02, y, size(value) if column == "bytes" else f"{value:,.4g}",
                        va="center", fontsize=10)
            ax.set(xlim=(0, values.max() * 1.35 or 1), xticks=[])
            ax.set_title(name, fontsize=11, pad=8)
            ax.grid(visible=False)
            ax.spines["bottom"].set_visible(False)
        axes[0, 0].set_yticks(range(len(frame)), list(frame.index))
        axes[0, 0].set_ylim(len(frame) - 0.5, -0.5)
        fig.suptitle(title, x=0.03, ha="left", fontsize=15, weight="bold")
        fig.tight_layout(rect=(0, 0, 1, 0.97))
    plt.close(fig)
    return fig
