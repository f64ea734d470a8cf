"""A trace for people to look at: as text, and as a picture."""

from typing import Any

import pandas

from ..base.terminal import escape_unprintable
from ..hudi.timeline import parse_instant
from .in_lake import view_names
from .row_history import RowHistory


def show(life: RowHistory) -> None:
    """Print a biography: where the changes come from, where they went, and what the views show."""
    from rich.console import Console
    from rich.text import Text

    console, shown = Console(), life.changes.copy()
    for column in ("made_at", "in_topic_at"):
        shown[column] = shown[column].dt.strftime("%Y-%m-%d %H:%M:%S.%f").str[:-3]
    shown["schema"] = [
        s if v is None else f"{s}, version {v}" for s, v in zip(shown["schema"], shown["version"])
    ]
    shown["place"] = [f"{p}:{o}" for p, o in zip(shown["partition"], shown["offset"])]
    console.print(
        Text.assemble(
            (escape_unprintable(f"{life.table.name} {life.key}"), "bold"),
            escape_unprintable(f"  {len(shown)} changes; topic {life.table.topic}"),
        )
    )
    _print(
        console,
        shown,
        {
            "change": "",
            "made_at": "made at (UTC)",
            "op": "op",
            "what": "what",
            "lsn": "LSN",
            "transaction": "transaction",
        },
    )
    _print(
        console,
        shown,
        {
            "change": "",
            "place": "partition:offset",
            "in_topic_at": "in the topic at",
            "schema": "schema",
            "landed": "landed file",
        },
    )
    for lake in life.table.tables:
        _print(
            console,
            shown,
            {
                "change": "",
                f"{lake.type}_commit": f"commit of {lake.name}",
                f"{lake.type}_file_group": "file group",
                f"{lake.type}_file": "file",
                **view_names(lake),
            },
        )
    if len(life.views):  # a line for each field: rows are wide, and there are few views
        fields = life.views.drop(
            columns=["view", "_hoodie_commit_seqno", "_hoodie_record_key"], errors="ignore"
        )
        _print(
            console,
            fields.astype(object).T.reset_index(),
            {"index": "shown now", **dict(enumerate(life.views["view"]))},
        )


def _print(console: Any, frame: pandas.DataFrame, columns: dict[Any, str]) -> None:
    from rich.table import Column, Table
    from rich.text import Text

    out = Table(
        *(Column(title, overflow="fold") for title in columns.values()),
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
    )
    for line in frame[list(columns)].itertuples(index=False):
        out.add_row(
            *[
                Text(
                    ""
                    if pandas.isna(v)
                    else f"{v:.15g}"
                    if isinstance(v, float)
                    else escape_unprintable(str(v))
                )
                for v in line
            ]
        )
    console.print(out)
    console.print()


def draw(life: RowHistory) -> Any:
    """The timeline of a biography, as a Figure of matplotlib: a line per change, from the source to
    the topic and from there to each table. The distances in time are not to scale.
    """
    import matplotlib.pyplot as plt
    from matplotlib.ticker import MaxNLocator

    from ..results import draw as charts

    changes = life.changes
    stages = {
        "source": changes["made_at"].dropna(),
        f"topic {life.table.topic}": changes["in_topic_at"],
    }
    for lake in life.table.tables:
        commits = changes[f"{lake.type}_commit"]
        stages[f"commit of {lake.name}"] = commits[commits != ""].map(parse_instant)
    times = sorted({t for stage in stages.values() for t in stage})
    at = {t: n for n, t in enumerate(times)}
    # where the colours are used up: other lines, then other marks
    looks = (
        plt.cycler(marker="os^D")
        * plt.cycler(linestyle=["-", "--", ":"])
        * plt.cycler(color=[*charts.PALETTE, charts.INK])
    )
    key = 0.25 * -(-len(changes) // 2) + 0.25  # inches of the legend, which has two columns
    with plt.rc_context(charts.STYLE):
        figure = charts.Picture(
            1.4 + 0.75 * len(stages) + key,
            f"{life.table.name} {life.key}: from the source to the lake (UTC, not to scale)",
        )
        axes = figure.subplots()
        for look, (number, change) in zip(looks(), changes.iterrows()):
            source, topic, *tables = [
                (at[stage[number]], -level) if number in stage else None
                for level, stage in enumerate(stages.values())
            ]
            way = [p for p in (source, topic) if p]
            axes.plot(*zip(*way), **look, label=f"{change['change']}  {change['what']}")
            axes.annotate(
                str(change["change"]),
                way[0],
                textcoords="offset points",
                xytext=(0, 7),
                ha="center",
            )
            for table in filter(
                None, tables
            ):  # a bend, or one table would look like a station on the way to another
                axes.plot(*zip(topic, (table[0], topic[1] - 0.5), table), **look, markevery=[2])
        axes.set_yticks([-n for n in range(len(stages))], list(stages))
        axes.xaxis.set_major_locator(MaxNLocator(10, integer=True))
        axes.xaxis.set_major_formatter(
            lambda n, _: f"{times[int(n)]:%H:%M:%S}" if 0 <= n < len(times) else ""
        )
        axes.set_ylim(0.6 - len(stages), 0.6)
        figure.legend(loc="outside lower left", ncols=2)
    return figure
