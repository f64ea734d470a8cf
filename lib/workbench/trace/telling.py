"""A trace for people to look at: as text, and as a picture."""
from __future__ import annotations

import datetime as dt
import math
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

from ..hudi.timeline import time_of
from .in_lake import names

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

    from .model import Biography

LINES, MARKS = ("-", "--", ":"), "os^D"  # three and four: together they are used up after 12 rounds of colours


def show(life: Biography) -> None:
    """Print a biography: where the changes come from, where they went, and what the views show."""
    from rich.console import Console

    console = Console()
    shown = life.changes.copy()
    for column in ("made_at", "in_topic_at"):
        shown[column] = shown[column].map(lambda t: "" if t is None else f"{t:%Y-%m-%d %H:%M:%S.%f}"[:-3])
    shown["schema"] = [s if v is None else f"{s}, version {v}" for s, v in zip(shown["schema"], shown["version"])]
    shown["place"] = [f"{p}:{o}" for p, o in zip(shown["partition"], shown["offset"])]
    console.print(f"[b]{life.table.name} {life.key}[/b]  {len(shown)} changes; topic {life.table.topic}",
                  highlight=False)
    _print(console, shown, {"change": "", "made_at": "made at (UTC)", "op": "op", "what": "what", "lsn": "LSN",
                            "transaction": "transaction"})
    _print(console, shown, {"change": "", "place": "partition:offset", "in_topic_at": "in the topic at",
                            "schema": "schema", "landed": "landed file"})
    for lake in life.table.tables:
        columns = {"change": "", f"{lake.type}_commit": f"commit of {lake.name}",
                   f"{lake.type}_file_group": "file group", f"{lake.type}_file": "file"}
        _print(console, shown, {**columns, **names(lake)})
    if len(life.views):  # a line for each field: rows are wide, and there are few views
        hidden = {"view", "_hoodie_commit_seqno", "_hoodie_record_key"}
        fields = [c for c in life.views if c not in hidden]
        across = life.views[fields].astype(object).T
        across.insert(0, "field", fields)
        _print(console, across, {"field": "shown now", **dict(enumerate(life.views["view"]))})
    for note in life.notes:
        console.print(note, markup=False, highlight=False)


def _print(console: Any, frame: pandas.DataFrame, columns: Dict[str, str]) -> None:
    import pandas
    from rich.table import Table
    from rich.text import Text

    out = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in columns.values():
        out.add_column(title, overflow="fold")
    for _, line in frame.iterrows():
        cells = ("" if pandas.isna(v) else int(v) if isinstance(v, float) and v == int(v) else v
                 for v in (line[c] for c in columns))
        out.add_row(*[Text(str(cell)) for cell in cells])
    console.print(out)
    console.print()


def draw(life: Biography) -> Figure:
    """The timeline of a biography: a line per change, from the source to the topic and from there to each table. The
    distances in time are not to scale."""
    import matplotlib.pyplot as plt

    from ..results import draw as charts

    stages: Dict[str, List[Optional[dt.datetime]]] = {
        "source": list(life.changes["made_at"]), f"topic {life.table.topic}": list(life.changes["in_topic_at"])}
    for lake in life.table.tables:
        stages[f"commit of {lake.name}"] = [time_of(i) if i else None for i in life.changes[f"{lake.type}_commit"]]
    times = sorted({t for row in stages.values() for t in row if t})
    at = {t: n for n, t in enumerate(times)}
    colours = [*charts.PALETTE, charts.INK]
    lines = -(-len(life.changes) // 2)  # of the legend, which has two columns
    with plt.rc_context(charts.STYLE):
        key = 0.25 * lines + 0.25  # inches
        figure = charts.Picture(1.4 + 0.75 * len(stages) + key,
                                f"{life.table.name} {life.key}: from the source to the lake (UTC, not to scale)")
        axes = figure.subplots()
        starts = []
        for number, (_, change) in enumerate(life.changes.iterrows()):
            path, marks = _path([(at[row[number]], -level) if row[number] else None
                                 for level, row in enumerate(stages.values())])
            again, colour = divmod(number, len(colours))  # where the colours are used up: other lines and marks
            axes.plot(*zip(*path), color=colours[colour], linestyle=LINES[again % len(LINES)],
                      marker=MARKS[again % len(MARKS)], markevery=marks,
                      label=f"{change['change']}  {change['what']}")
            axes.annotate(str(change["change"]), path[0], textcoords="offset points", xytext=(0, 7), ha="center")
            starts.append(path[0][0])
        axes.set_yticks([-n for n in range(len(stages))], list(stages))
        ticks = _apart(sorted(set(starts)), len(times) / 10)
        axes.set_xticks(ticks, [f"{times[n]:%H:%M:%S}" for n in ticks])
        axes.set_ylim(0.6 - len(stages), 0.6)
        height = figure.get_figheight()
        figure.legend(loc="lower left", ncols=2, bbox_to_anchor=(0, 0))
        figure.tight_layout(rect=(0, key / height, 1, 1))
    return figure


def _path(points: List[Optional[tuple]]) -> Tuple[List[tuple], List[int]]:
    """The points of a line and which of them bear a mark: source, topic, first table; then, with a gap before it, topic
    and table again for every other table, for each of them is made from the topic. A line bends before it comes down
    to a table, so that no table looks like a station on the way to another."""
    source, topic, *tables = points
    path = [p for p in (source, topic) if p]
    marks = list(range(len(path)))
    for number, table in enumerate(p for p in tables if p):
        if topic:
            path += [(math.nan, math.nan), topic] if number else []
            path.append((table[0], topic[1] - 0.5))
        marks.append(len(path))
        path.append(table)
    return path, marks


def _apart(places: List[int], least: float) -> List[int]:
    """Those of the places that stand far enough apart for a label each."""
    kept: List[int] = []
    for place in places:
        if not kept or place - kept[-1] >= least:
            kept.append(place)
    return kept
