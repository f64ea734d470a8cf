"""What notebooks show: tables, folded JSON, the files of the lake, and two charts that can go into a slide."""
from __future__ import annotations

import html
import json as jsons
import math
import re
import textwrap
from itertools import chain, cycle, repeat
from numbers import Integral, Number
from typing import Any, List, Optional, Sequence, Tuple

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from IPython import get_ipython
from IPython.display import HTML
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from ..base import paths
from ..base.errors import LakeError
from .show_names import flattened as flattened
from .show_names import short_names as short_names
from .show_names import timeline_steps as timeline_steps

# Okabe and Ito's palette, told apart with every colour blindness (jfly.uni-koeln.de/color), without its yellow
PALETTE = ["#D55E00", "#E69F00", "#009E73", "#0072B2", "#CC79A7", "#56B4E9"]
GREY, INK = "#B8BEC6", "#22262B"
WIDE = 120  # characters of a cell that are shown
NULL = "\0null"  # in a table's cell; no text of a database has a zero character


class Picture(Figure):
    """A figure whose text is its title: a notebook keeps it beside the picture, the report takes it for a caption."""

    def __repr__(self) -> str:
        titles = [self.get_suptitle(), *(axes.get_title(where) for axes in self.axes for where in ("left", "center"))]
        return next((" ".join(title.split()) for title in titles if title), super().__repr__())


def json(obj: Any, folded: bool = True, title: str = "JSON") -> HTML:
    """Show an object, or a text holding JSON, indented; folded it is one line to click on."""
    if isinstance(obj, (str, bytes)):
        obj = jsons.loads(obj)
    text = html.escape(jsons.dumps(obj, indent=2, ensure_ascii=False, default=str))
    pre = f"<pre style='margin:.3em 0 .3em 1em;overflow-x:auto;font-family:monospace'>{text}</pre>"
    return HTML(f"<details><summary>{html.escape(title)}</summary>{pre}</details>" if folded else pre)


def table(df: pd.DataFrame, caption: str = "", limit: int = 20) -> HTML:
    """Show the first `limit` rows of a frame without its index, and how many more there are.

    Whole numbers are whole, null is grey, and a column of numbers stands to the right, its fractions with equally many
    decimals. Whole numbers in a column of bytes (it has the word in its name) are in groups of three digits; of others
    the name does not tell a count from a key, a year or an offset, which must have none.
    """
    return HTML(_table(df, caption, limit, index=False))


def row(df: pd.DataFrame, caption: str = "") -> HTML:
    """Show the first row of a frame with a line for each of its columns."""
    return table(df.head(1).T.reset_index().set_axis(["column", "value"], axis=1), caption, limit=len(df.columns))


def frames(on: Any = None) -> None:
    """Let a notebook show every frame as `table` does, a wide one scrolling in its own box. The rows' names are shown
    where they have a meaning. Importing this module does it.

    Args:
        on: the IPython shell; the running one by default. Outside of IPython nothing happens.
    """
    shell = on or get_ipython()
    if shell is not None:
        formatter = shell.display_formatter.formatters["text/html"]
        formatter.for_type(pd.DataFrame, _frame)


def _frame(df: pd.DataFrame) -> str:
    if all(name is not None and name not in df.columns for name in df.index.names):
        return _table(df.reset_index(), "", 20, index=False)
    return _table(df, "", 20, index=not pd.api.types.is_integer_dtype(df.index.dtype))


def _table(df: pd.DataFrame, caption: str, limit: int, index: bool) -> str:
    plain, sides = df.head(limit).copy(), []
    for at, (name, column) in enumerate(df.items()):
        values, side = _column(str(name), list(_whole(column).head(limit)))
        plain.isetitem(at, pd.Series(values, index=plain.index, dtype=object))
        sides.append(side)
    with pd.option_context("display.max_colwidth", WIDE):
        # to_html escapes its cells: an HTML text in the data stays text
        body = plain.to_html(index=index, border=0, na_rep="", justify="left", max_cols=60, index_names=False)
    # text reads from the left; nbconvert's style puts everything to the right, and only the cell itself goes before it
    sides = sides if len(sides) <= 60 else ["left"]
    heads = chain(["left"] * index * df.index.nlevels, sides if df.columns.nlevels == 1 else [], repeat("left"))
    for tag, turns in (("td", cycle(sides)), ("th", heads)):
        body = re.sub(f"<{tag}>", lambda m, tag=tag, turns=turns: f"<{tag} style='text-align:{next(turns)}'>", body)
    body = body.replace(NULL, "<span style='color:#8A9099'>null</span>")
    more = f" – first {limit} of {len(df):,} rows" if len(df) > limit else "" if len(df) else " no rows"
    head = f"<div style='margin:.2em 0'><b>{html.escape(caption)}</b>{more}</div>" if caption or more else ""
    return f"{head}<div style='overflow-x:auto;max-width:100%'>{body}</div>"


def _whole(column: pd.Series) -> pd.Series:
    """Pandas makes floats of whole numbers beside which one is missing; here they are whole again."""
    there = column.dropna()
    if column.dtype.kind == "f" and len(there) < len(column) and (there % 1 == 0).all():
        return column.astype("Int64")
    return column


def _column(name: str, values: List[Any]) -> Tuple[List[Any], str]:
    """A column's values as they are shown, and the side at which they stand."""
    cells = [_cell(value) for value in values]
    numbers = [v for v in values if isinstance(v, Number) and not isinstance(v, (bool, np.bool_)) and not pd.isna(v)]
    if not numbers or len(numbers) + cells.count(NULL) < len(cells):
        return cells, "left"
    if "bytes" in re.findall("[a-z]+", name.lower()):
        cells = [f"{value:,}" if isinstance(value, Integral) else cell for value, cell in zip(values, cells)]
    most = max((len(c.partition(".")[2]) for c in cells if isinstance(c, str)), default=0)
    return [f"{v:.{most}f}" if isinstance(v, float) and isinstance(c, str) and c != NULL else c
            for v, c in zip(values, cells)], "right"


def _cell(value: Any) -> Any:
    """A cell's value as it is shown: None, NaN and NA as null, what was parsed from JSON as JSON."""
    if pd.api.types.is_scalar(value) and pd.isna(value):
        return NULL
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    if isinstance(value, (dict, list)):
        return jsons.dumps(value, ensure_ascii=False, default=str)
    if isinstance(value, float) and (1e-3 <= abs(value) < 1e9 or not value):  # four decimals, and at least one
        return re.sub(r"(\.\d+?)0+$", r"\1", f"{value:.4f}")
    return value


def avro(name: str) -> HTML:
    """Show the fields of data/schemas/<name>.avsc: type, whether one may be missing, and what the type stands for (the
    name that Kafka Connect gives to it, e.g. io.debezium.time.Date)."""
    schema = jsons.loads((paths.ROOT / "data" / "schemas" / f"{name}.avsc").read_text(encoding="utf-8"))
    rows = []
    for field in schema["fields"]:
        kinds = field["type"] if isinstance(field["type"], list) else [field["type"]]
        (kind,) = [k if isinstance(k, dict) else {"type": k} for k in kinds if k != "null"]
        meaning = kind.get("logicalType") or kind.get("connect.name") or kind.get("connect.type", "")
        rows.append((field["name"], kind["type"], "yes" if "null" in kinds else "", meaning))
    return table(pd.DataFrame(rows, columns=["field", "type", "may be missing", "meaning"]), limit=len(rows))


def tree(address: str, limit: int = 20, last: int = 0) -> HTML:
    """Show the files below a `file:` address (or a path), with sizes; hidden files and checksums are left out.

    Args:
        limit: how many files are shown from the beginning. last: and how many from the end.

    Raises:
        LakeError: the address is of another file system, or there is no such folder.
    """
    text = str(address)
    folder = paths.local_path(text if ":" in text else f"file:{text}")
    if folder is None:
        raise LakeError("only the files of a file: address can be listed", where=text)
    if not folder.is_dir():
        raise LakeError("there is no such folder", where=text, next_step="run the cells above: they write it")
    files = sorted(p for p in folder.rglob("*") if p.is_file() and not p.name.startswith((".", "_")))
    files = [p for p in files if not any(part.startswith(".") for part in p.relative_to(folder).parts)]
    lines, before = [f"{folder.name}/"], ()
    hidden = files[limit:max(limit, len(files) - last)]
    for path in [*files[:limit], *([None] if hidden else []), *files[limit + len(hidden):]]:
        if path is None:
            lines.append(f"  … and {len(hidden):,} more")
            before = ()
            continue
        parts = path.relative_to(folder).parts
        shared = next((i for i, (a, b) in enumerate(zip(parts, before)) if a != b), min(len(parts), len(before)))
        lines += ["  " * (depth + 1) + parts[depth] + "/" for depth in range(shared, len(parts) - 1)]
        lines.append("  " * len(parts) + f"{parts[-1]}  ({size(path.stat().st_size)})")
        before = parts[:-1]
    total = sum(p.stat().st_size for p in files)
    lines.append(f"{len(files):,} file{'s'[len(files) == 1:]}, {size(total)}")
    return HTML(f"<pre style='line-height:1.35;font-family:monospace'>{html.escape(chr(10).join(lines))}</pre>")


def size(count: float) -> str:
    """A number of bytes as text, e.g. 1.4 MB."""
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def style() -> dict:
    """The matplotlib settings of the project's charts; `with plt.rc_context(show.style())` draws with them."""
    return {
        "figure.dpi": 160, "savefig.dpi": 160, "figure.facecolor": "white", "axes.facecolor": "white",
        "font.family": "sans-serif", "font.sans-serif": ["Inter", "Helvetica Neue", "Arial", "DejaVu Sans"],
        "font.size": 11, "text.color": INK, "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK,
        "axes.titlesize": 15, "axes.titleweight": "bold", "axes.titlelocation": "left", "axes.titlepad": 14,
        "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": GREY, "axes.linewidth": 0.8,
        "axes.grid": True, "grid.color": "#E8EBEF", "axes.axisbelow": True, "xtick.major.size": 0,
        "ytick.major.size": 0, "legend.frameon": False, "axes.prop_cycle": plt.cycler(color=PALETTE),
    }


def pie_top(series: pd.Series, top: int = 20, title: str = "", *, highlight: int = 3, unit: str = "") -> Figure:
    """Draw the shares of the `top` largest values, and of all others together, as a ring.

    Args:
        series: values by name, not negative.
        top: how many names get a slice of their own.
        highlight: how many of them get a colour of their own; the others share one that fades, the rest is grey.
        unit: text before the total, e.g. "$".
    """
    values = series.astype(float).sort_values(ascending=False)
    if not len(values) or values.min() < 0 or values.sum() <= 0:
        raise LakeError("there is nothing to draw shares of", expected="values, none of them negative")
    first, rest, total = values[:top], values[top:], values.sum()
    slices = pd.concat([first, pd.Series({f"{len(rest)} others": rest.sum()})]) if len(rest) else first
    fade = [plt.cm.Blues(0.62 - 0.42 * i / max(1, top - highlight - 1)) for i in range(max(0, len(first) - highlight))]
    colours = (PALETTE[:highlight] + fade)[: len(first)] + ["#DDE1E6"] * bool(len(rest))
    with plt.rc_context(style()):
        fig, (ax, side) = plt.subplots(1, 2, FigureClass=Picture, figsize=(11, 6.2), width_ratios=[1.5, 1])
        wedges, _ = ax.pie(slices, colors=colours, startangle=90, counterclock=False, radius=1.0,
                           wedgeprops={"width": 0.38, "edgecolor": "white", "linewidth": 1.2})
        fig.tight_layout(rect=(0, 0, 1, 0.97))
        draw, taken = fig.canvas.get_renderer(), []
        for wedge, (name, value) in zip(wedges, slices.items()):
            if value / total >= 0.03 and name in first.index:  # the list names the smaller ones, and what collides
                label = _label(ax, wedge, f"{textwrap.fill(str(name), 18)}\n{value / total:.1%}")
                box = label.get_window_extent(draw)
                if any(box.overlaps(other) for other in taken):
                    label.remove()
                else:
                    taken.append(box)
        ax.text(0, 0.09, f"{first.sum() / total:.0%}", ha="center", va="center", fontsize=30, weight="bold")
        ax.text(0, -0.13, f"top {len(first)} of {len(values)}\nof {unit}{total:,.0f}", ha="center", va="center")
        side.axis("off")
        _legend(side, slices, colours, total, unit)
        fig.suptitle(title, x=0.03, ha="left", fontsize=16, weight="bold")
        fig.tight_layout(rect=(0, 0, 1, 0.97))
    plt.close(fig)  # a cell shows the figure that it returns; left open it would show twice
    return fig


def _label(ax: Any, wedge: Any, text: str) -> Any:
    angle = (wedge.theta1 + wedge.theta2) / 2
    x, y = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    return ax.annotate(text, (x, y), (1.14 * x, 1.14 * y), ha="left" if x > 0 else "right", va="center", fontsize=10.5,
                       arrowprops={"arrowstyle": "-", "color": GREY, "lw": 0.8, "shrinkA": 0, "shrinkB": 0})


def _legend(ax: Any, slices: pd.Series, colours: Sequence, total: float, unit: str) -> None:
    """A list of all slices: swatch, name, value and share, one line each."""
    ax.set(xlim=(0, 1), ylim=(len(slices) + 0.5, -1.6))
    for x, head in ((0.84, unit or "value"), (1.0, "share")):
        ax.text(x, -1.1, head, va="center", ha="right", fontsize=10, color="#5D6773")
    for row, ((name, value), colour) in enumerate(zip(slices.items(), colours)):
        ax.add_patch(plt.Rectangle((0, row - 0.32), 0.05, 0.64, color=colour, lw=0))
        ax.text(0.09, row, textwrap.shorten(str(name), 24, placeholder=" …"), va="center", fontsize=10)
        ax.text(0.84, row, f"{value:,.0f}", va="center", ha="right", fontsize=10)
        ax.text(1.0, row, f"{value / total:.1%}", va="center", ha="right", fontsize=10)


def scatter(df: pd.DataFrame, x: str, y: str, size: str, labels: Optional[dict] = None, title: str = "", *,
            name: Optional[str] = None, x_label: str = "", y_label: str = "", size_label: str = "") -> Figure:
    """Draw one dot per row, its area showing `size`; rows named in `labels` stand out and carry their name.

    Args:
        labels: group → names, e.g. {"big customers": ["QUICK", …]}; each group has a colour.
        name: column holding the names; the index where it is not given.
    """
    frame = df.set_index(name) if name else df
    groups = labels or {}
    if not isinstance(groups, dict):
        groups = {"": list(groups)}
    missing = [n for names in groups.values() for n in names if n not in frame.index]
    if missing:
        raise LakeError(f"no row is named {missing[0]!r}", expected=f"names of {name or 'the index'}")
    area = frame[size].astype(float) / float(frame[size].max()) * 420
    named = {n for names in groups.values() for n in names}
    others = [n for n in frame.index if n not in named]
    with plt.rc_context(style()):
        fig, ax = plt.subplots(FigureClass=Picture, figsize=(11, 6.2))
        ax.scatter(frame.loc[others, x], frame.loc[others, y], area[others], color=GREY, alpha=0.55, lw=0,
                   label="other customers" if not groups else f"{len(others)} others")
        texts = []
        for (group, names), colour in zip(groups.items(), [PALETTE[0], PALETTE[3], *PALETTE[1:3]]):
            ax.scatter(frame.loc[names, x], frame.loc[names, y], area[names], color=colour, alpha=0.85,
                       edgecolor="white", lw=0.8, label=group)
            texts += [(n, float(frame.loc[n, x]), float(frame.loc[n, y]), float(area[n]), colour) for n in names]
        ax.set(xlabel=x_label or x, ylabel=y_label or y)
        ax.margins(0.1)
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.0f}"))
        _names(fig, ax, texts)
        note = f"dot size: {size_label or size} ({frame[size].min():,.0f} to {frame[size].max():,.0f})"
        legend = ax.legend(loc="upper left", title=note, alignment="left", labelspacing=0.7)
        for handle in legend.legend_handles:
            handle.set_sizes([70])
        legend.get_title().set_fontsize(10)
        ax.set_title(title)
        fig.tight_layout()
    plt.close(fig)
    return fig


def _names(fig: Figure, ax: Any, texts: list) -> None:
    """Write each name beside its dot, at the first of eight places where it fits and covers no other name or dot that
    has one."""
    fig.tight_layout()
    draw, frame = fig.canvas.get_renderer(), ax.get_window_extent()
    dots = []
    for _, x, y, area, _ in texts:
        px, py = ax.transData.transform((x, y))
        r = (area / math.pi) ** 0.5 * fig.dpi / 72
        dots.append((px - r, py - r, px + r, py + r))
    taken = list(dots)
    for (name, x, y, area, colour), own in zip(texts, dots):
        gap = (area / math.pi) ** 0.5 + 4
        for dx, dy in ((1, 0), (-1, 0), (0, 1), (0, -1), (0.8, 0.8), (0.8, -0.8), (-0.8, 0.8), (-0.8, -0.8)):
            text = ax.annotate(
                name, (x, y), (dx * gap, dy * gap), textcoords="offset points", weight="bold", fontsize=10.5,
                color=colour, ha={1: "left", -1: "right", 0: "center"}[(dx > 0) - (dx < 0)],
                va={1: "bottom", -1: "top", 0: "center"}[(dy > 0) - (dy < 0)])
            box = text.get_window_extent(draw)
            hit = [t for t in taken if t is not own
                   and box.x0 < t[2] and box.x1 > t[0] and box.y0 < t[3] and box.y1 > t[1]]
            if not hit and frame.x0 <= box.x0 and box.x1 <= frame.x1:
                break
            if (dx, dy) != (-0.8, -0.8):
                text.remove()
        taken.append((box.x0, box.y0, box.x1, box.y1))


frames()
