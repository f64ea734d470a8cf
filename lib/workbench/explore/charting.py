"""Draw a frame as the chart that suits the types of its columns."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes

from ..base import LakeError
from ..display import draw

MAX_BARS = 20
FIRST_YEAR, LAST_YEAR = 100, 9000  # of an axis of times
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
        LakeError: the frame has no rows or no columns, or times or numbers that no axis can show.
    """
    if frame.empty:
        raise LakeError("there is nothing to draw", expected="at least one row")
    kinds = frame.apply(pd.api.types.infer_dtype)
    numbers = list(frame.columns[kinds.isin(NUMBERS)])
    times = list(frame.columns[kinds.isin(TIMES)])
    names = list(frame.columns.difference([*numbers, *times], sort=False))
    try:
        rows = frame.astype(dict.fromkeys(numbers, float))  # pandas draws no Decimal
    except OverflowError:
        raise LakeError(
            f"column {' or '.join(numbers)} has a number that a chart cannot show",
            expected="numbers between -1e308 and 1e308",
        ) from None
    picture = draw.Picture(5.2)
    axes = picture.subplots()
    if times and numbers:
        _require_drawable(rows[times[0]])
        question = f"How does {' and '.join(numbers)} change over {times[0]}?"
        rows.set_index(times[0])[numbers].sort_index().plot(ax=axes, marker="o")
        axes.set_ylabel(numbers[0] if len(numbers) == 1 else "")
    elif names[1:] and numbers:
        question = f"How does {numbers[0]} depend on {names[0]} and {names[1]}?"
        grid = rows.pivot_table(numbers[0], names[0], names[1], "sum", fill_value=0)
        _draw_heat_map(picture, grid.iloc[:MAX_BARS, :MAX_BARS], numbers[0])
    elif names or times:
        question = _draw_bars(axes, rows, [*names, *times][0], numbers)
    elif numbers[1:]:
        question = f"How is {numbers[1]} related to {numbers[0]}?"
        rows.plot.scatter(numbers[0], numbers[1], ax=axes, alpha=0.6)
    else:
        question = f"How is {numbers[0]} distributed?"
        rows[numbers[0]].plot.hist(ax=axes, bins=40)
        axes.set_xlabel(numbers[0])
    picture.suptitle(title or question, x=0.03, ha="left", fontsize=15, weight="bold")
    return picture


def _require_drawable(times: pd.Series) -> None:
    """Raise LakeError for a time near the limits of Python's calendar: matplotlib needs room for an axis."""
    outside = [time for time in times.dropna() if not FIRST_YEAR <= time.year <= LAST_YEAR]
    if outside:
        raise LakeError(
            f"column {times.name} has {len(outside):,} times that a chart cannot show, such as {outside[0]}",
            expected=f"years from {FIRST_YEAR} to {LAST_YEAR}",
            hint=f"leave them out: frame[frame[{times.name!r}] < …]",
        )


def _draw_heat_map(picture: draw.Picture, grid: pd.DataFrame, label: str) -> None:
    (axes,) = picture.axes
    axes.grid(visible=False)
    picture.colorbar(axes.imshow(grid, cmap="Blues", aspect="auto"), label=label)
    axes.set_xticks(range(grid.shape[1]), grid.columns.astype(str), rotation=45, ha="right")
    axes.set_yticks(range(len(grid)), grid.index.astype(str))


def _draw_bars(axes: Axes, rows: pd.DataFrame, name: str, numbers: list[str]) -> str:
    """Draw the sums of the first number, or the numbers of rows; return the question."""
    groups = rows.groupby(name, dropna=False)
    bars = groups[numbers[0]].sum() if numbers else groups.size()
    bars.sort_values().tail(MAX_BARS).plot.barh(ax=axes, width=0.7, color=draw.PALETTE[3])
    axes.set_xlabel(numbers[0] if numbers else "rows")
    question = f"Which {name} has the most {numbers[0] if numbers else 'rows'}?"
    return question if len(bars) <= MAX_BARS else f"{question} ({MAX_BARS} of {len(bars):,})"
