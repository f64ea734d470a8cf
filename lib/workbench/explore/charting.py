"""Draw a frame as the chart that suits the types of its columns."""

from __future__ import annotations

import pandas as pd

from ..base import LakeError
from ..display import draw

MAX_BARS = 20
NUMBERS = ("integer", "floating", "mixed-integer-float", "decimal")  # types that pandas infers
TIMES = ("datetime", "datetime64", "date")


@draw.picture.styled(draw.STYLE)
def chart(frame: pd.DataFrame, title: str = "") -> draw.Picture:
    """Draw a frame; its column types choose the chart, and the title is the question that it answers.

    A time and numbers: lines. Two other columns and a number: a heat map of sums. One other column and a
    number: bars of sums, the largest first. Two numbers: dots. One number: a histogram. No number: bars
    of the numbers of rows.

    Args:
        frame: the rows.
        title: the title; by default the question.

    Raises:
        LakeError: the frame has no rows or no columns.
    """
    kinds = {name: pd.api.types.infer_dtype(frame[name], skipna=True) for name in frame}
    numbers = [name for name, kind in kinds.items() if kind in NUMBERS]
    times = [name for name, kind in kinds.items() if kind in TIMES]
    names = [name for name in frame if name not in (*numbers, *times)]
    if frame.empty:
        raise LakeError("there is nothing to draw", expected="at least one row")
    rows = frame.astype(dict.fromkeys(numbers, float))  # pandas draws no Decimal
    picture = draw.Picture(5.2)
    axes = picture.subplots()
    if times and numbers:
        question = f"How does {' and '.join(numbers)} change over {times[0]}?"
        rows.set_index(times[0])[numbers].sort_index().plot(ax=axes, marker="o")
    elif len(names) > 1 and numbers:
        question = f"How does {numbers[0]} depend on {names[0]} and {names[1]}?"
        grid = rows.pivot_table(numbers[0], names[0], names[1], "sum", fill_value=0)
        grid = grid.iloc[:MAX_BARS, :MAX_BARS]
        axes.grid(visible=False)
        picture.colorbar(axes.imshow(grid, cmap="Blues", aspect="auto"), label=numbers[0])
        axes.set_xticks(range(grid.shape[1]), [str(name) for name in grid], rotation=45, ha="right")
        axes.set_yticks(range(len(grid)), [str(name) for name in grid.index])
    elif names or times:
        name = [*names, *times][0]
        groups = rows.groupby(name, dropna=False)
        bars = groups[numbers[0]].sum() if numbers else groups.size()
        question = f"Which {name} has the most {numbers[0] if numbers else 'rows'}?"
        if len(bars) > MAX_BARS:
            question += f" ({MAX_BARS} of {len(bars):,})"
        bars.sort_values().tail(MAX_BARS).plot.barh(ax=axes, width=0.7, color=draw.PALETTE[3])
    elif len(numbers) > 1:
        question = f"How is {numbers[1]} related to {numbers[0]}?"
        rows.plot.scatter(numbers[0], numbers[1], ax=axes, alpha=0.6)
    else:
        question = f"How is {numbers[0]} distributed?"
        rows[numbers[0]].plot.hist(ax=axes, bins=40)
        axes.set_xlabel(numbers[0])
    picture.suptitle(title or question, x=0.03, ha="left", fontsize=15, weight="bold")
    return picture
