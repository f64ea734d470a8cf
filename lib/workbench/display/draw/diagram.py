"""Diagrams of boxes and arrows."""

from typing import Mapping, NamedTuple, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Patch

from ...base import LakeError, did_you_mean
from .picture import BARE_STYLE, INK, PALETTE, Picture, styled


class Box(NamedTuple):
    """A box of `flow`: its text, the column and row of its center, and its kind.

    Rows count downwards.
    """

    text: str
    column: float
    row: float
    kind: str


class Arrow(NamedTuple):
    """An arrow of `flow`: the names of the boxes at its ends, and its text.

    A lossy arrow carries what can be lost.
    """

    start: str
    end: str
    text: str = ""
    lossy: bool = False


@styled({**BARE_STYLE, "axes.grid": False})
def flow(
    boxes: Mapping[str, Box], arrows: Sequence[Arrow], kinds: Mapping[str, str], title: str = ""
) -> Picture:
    """Draw boxes in a grid, and arrows between them.

    Two arrows between the same boxes bend away from each other. A lossy arrow is red and dashed.

    Args:
        boxes: {name: box}.
        arrows: the arrows.
        kinds: {kind of a box: color}, in the order of the legend.
        title: the title.

    Raises:
        LakeError: an arrow names a missing box.
    """
    for arrow in arrows:
        for name in (arrow.start, arrow.end):
            if name not in boxes:
                raise LakeError(f"no box is named {name!r}", expected=did_you_mean(name, boxes))
    columns = [box.column for box in boxes.values()]
    rows = [box.row for box in boxes.values()]
    picture = Picture(1.0 + 1.15 * (max(rows) - min(rows) + 1), title)
    ax = picture.subplots()
    ax.set(
        xlim=(min(columns) - 0.5, max(columns) + 0.5),
        ylim=(max(rows) + 0.4, min(rows) - 0.4),
        xticks=[],
        yticks=[],
    )
    patches = {name: _draw_box(ax, box, kinds[box.kind]) for name, box in boxes.items()}
    pairs = {(arrow.start, arrow.end) for arrow in arrows}
    for arrow in arrows:
        bend = 0.08 if (arrow.end, arrow.start) in pairs else 0
        _draw_arrow(ax, arrow, boxes, patches, bend)
    handles = [Patch(fc=to_rgba(color, 0.15), ec=color) for color in kinds.values()]
    picture.legend(handles, list(kinds), loc="outside lower left", ncols=len(kinds))
    return picture


def _draw_box(ax: Axes, box: Box, color: str) -> Patch:
    ax.text(box.column, box.row, box.text, ha="center", va="center", fontsize=10)
    return ax.add_patch(
        FancyBboxPatch(
            (box.column - 0.36, box.row - 0.25),
            0.72,
            0.5,
            "round,pad=0,rounding_size=0.05",
            fc=to_rgba(color, 0.15),
            ec=color,
            lw=1.5,
        )
    )


def _draw_arrow(
    ax: Axes,
    arrow: Arrow,
    boxes: Mapping[str, Box],
    patches: Mapping[str, Patch],
    bend: float,
) -> None:
    """Draw an arrow, shifted to its side by `bend` columns."""
    start, end = (
        np.array([boxes[name].column, boxes[name].row]) for name in (arrow.start, arrow.end)
    )
    dx, dy = end - start
    shift = np.array([-dy, dx]) / np.hypot(dx, dy) * bend
    color = PALETTE[0] if arrow.lossy else INK
    ax.add_patch(
        FancyArrowPatch(
            start + shift,
            end + shift,
            arrowstyle="-|>",
            mutation_scale=14,
            shrinkA=2,
            shrinkB=2,
            color=color,
            lw=1.4,
            ls="--" if arrow.lossy else "-",
            patchA=patches[arrow.start],
            patchB=patches[arrow.end],
        )
    )
    # two diagonal arrows may cross in the middle
    place = 0.4 if dx and dy else 0.5
    x, y = start + place * (end - start) + shift * 1.4
    alignment = "center"
    if shift[0]:
        alignment = "left" if shift[0] > 0 else "right"
    ax.text(
        x,
        y,
        arrow.text,
        ha=alignment,
        va="center",
        fontsize=9,
        color=color,
        bbox={"fc": "white", "ec": "none", "pad": 1.5},
    )
