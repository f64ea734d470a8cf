"""Iceberg and Delta Lake beside two tables of this library: what `peers_spark` measures, as lines with
goals, and as the part of docs/measured.md that `make bench ARGS="--only peers --write"` writes."""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable

from bench_line import Line, say
from workbench.base.paths import ROOT, VAR_DIR, state_dir

SIZES, ROUNDS, SEED = (10_000, 200_000, 1_000_000), 5, 7
LAST_RUN = VAR_DIR / "peers.json"
FIGURES = Path(__file__).with_name("peers.json")  # of the run that docs/measured.md shows
DOCUMENT = ROOT / "docs" / "measured.md"
BEGIN, END = "<!-- peers:begin -->", "<!-- peers:end -->"
DEFAULT, COW, ICEBERG = "default", "copy-on-write", "Iceberg merge-on-read"
DELTAS = ("Delta", "Delta deletion vectors")
NOTHING = 'No figures are stored. `make bench ARGS="--only peers --write"` writes them here.'
MIB = 1024 * 1024


def measured(*_: Any) -> list[Line]:
    """Run the measurement in a process of its own, print the medians, and return the goals."""
    folder = state_dir() / "peers"
    folder.mkdir(parents=True)
    output = folder / "figures.json"
    say(f"peers: the order of the tables is shuffled in each round, with the seed {SEED}")
    script = Path(__file__).with_name("peers_spark.py")
    command = [sys.executable, str(script), str(output), *map(str, (SEED, ROUNDS, *SIZES))]
    if subprocess.run(command).returncode:
        raise SystemExit("the measure peers failed: see the message above")
    LAST_RUN.write_bytes(output.read_bytes())
    figures = json.loads(LAST_RUN.read_text(encoding="utf-8"))
    print("\n".join(markdown(medians(figures))))
    return goals(figures, DEFAULT)


def average_seconds(
    figures: dict[str, Any],
    size: int,
    operation: str,
    table: str,
    average: Callable[[list[float]], float] = statistics.median,
) -> float:
    """Return the median seconds of an operation, or another average."""
    return average(figures["seconds"][str(size)][operation][table])


def medians(figures: dict[str, Any]) -> list[list[str]]:
    """Return a table: the seconds of each operation and the sizes on disk, a column for each table."""
    names = list(figures["bytes"]["after the load"])
    lines = [["", *names]]
    for operation in ("load", "upsert", "delete", "read"):
        for size, operations in figures["seconds"].items():
            if operation not in operations:
                continue
            shown = f"{operation}, {int(size):,} rows, s"
            each = (average_seconds(figures, int(size), operation, name) for name in names)
            lines.append([shown, *(f"{value:.2f}" for value in each)])
    for moment, each in figures["bytes"].items():
        lines.append([f"on disk {moment}, MiB", *(f"{each[name] / MIB:.1f}" for name in names)])
    return lines


def goals(
    figures: dict[str, Any],
    table: str,
    average: Callable[[list[float]], float] = statistics.median,
) -> list[Line]:
    """Return the goals of a table, each a ratio of two medians of the run, or of other averages."""
    sizes = figures["sizes"]
    small, middle, large = sizes[0], sizes[len(sizes) // 2], sizes[-1]
    lines = []

    def add(what: str, ours: float, name: str, other: float, goal: float) -> None:
        shown, beside = f"{table}: {ours:.2f} s", f"{name}: {other:.2f} s"
        lines.append(Line(what, shown, beside, ours / other, "×", goal))

    def beside(operation: str, size: int, goal: float, name: str = ICEBERG) -> None:
        ours, other = (average_seconds(figures, size, operation, n, average) for n in (table, name))
        what = f"{operation}, {size:,} rows, against {name}"
        add(what, ours, name, other, goal)

    for size in dict.fromkeys((middle, large)):
        beside("upsert", size, 0.8)
        # the faster one of the two
        delta = min(
            DELTAS, key=lambda name: average_seconds(figures, size, "upsert", name, average)
        )
        beside("upsert", size, 0.2, delta)
    ours, other = (
        average_seconds(figures, size, "upsert", table, average) for size in (large, small)
    )
    what = f"upsert, {large:,} rows against {small:,}"
    if figures["hudi"][str(small)][table] != figures["hudi"][str(large)][table]:
        what += " of another type or index"
    add(what, ours, f"{small:,} rows", other, 1.5)
    beside("read", middle, 2.0)
    beside("load", middle, 1.5)
    return lines


def markdown(table: list[list[str]]) -> list[str]:
    """Return the lines of a table in Markdown; the first row is its head."""
    head, *body = (f"| {' | '.join(row)} |" for row in table)
    return [head, "|---" * len(table[0]) + "|", *body]


def part(figures: dict[str, Any]) -> str:
    """Return the part of docs/measured.md that shows these figures, with its markers."""
    versions = ", ".join(f"{name} {version}" for name, version in figures["versions"].items())
    kinds = "; ".join(
        f"{int(size):,} rows: {made[DEFAULT]}" for size, made in figures["hudi"].items()
    )
    averages = {"median": statistics.median, "mean": statistics.mean}
    columns = {
        f"{table}, {name}": goals(figures, table, average)
        for table in (DEFAULT, COW)
        for name, average in averages.items()
    }
    met = {
        name: f"{sum(line.met for line in lines)} of {len(lines)}"
        for name, lines in columns.items()
    }
    results = [["goal, in the same run", "at most", *columns]]
    for lines in zip(*columns.values()):
        # the faster one of Delta's tables may be another one by another average
        what, goal = lines[0].what, f"{lines[0].goal:g} ×"
        shown = (f"{one.figure:.2f} × {'' if one.met else '– missed'}".strip() for one in lines)
        results.append([what, goal, *shown])
    text = f"""
{BEGIN}
## Beside Iceberg and Delta Lake

`make bench ARGS="--only peers --write"` wrote this part on {figures["date"]}, at commit {figures["commit"]}: {versions}.
All tables are in one Spark session, on {figures["processors"]} processors; the load average was {figures["load_average"]} at the start. Each
figure is the median of {figures["rounds"]} rounds. A round changes the same {figures["changed"]:,} rows in {figures["partitions"]} partitions of every table, in
shuffled order (seed {figures["seed"]}). After each operation all tables held the same rows. `{DEFAULT}` is the table of
an own flow of this size ({kinds}), `{COW}` the same with `type="cow"`. Spark's writer writes both, with the options of the
library. The steps of an ingest (topic, parsing, counts) are not measured. Every fifth commit compacts a Merge-on-Read table. The mean includes
this cost, but the median does not show it. Iceberg and Delta are not compacted. They receive a batch by `MERGE` on the key alone; Hudi's writer
gets the key and the partition. Hudi's files are compressed with snappy, those of the others with their defaults. `tests/bench/peers_spark.py` has all settings. By the median the default table meets {met[f"{DEFAULT}, median"]} goals, by the mean {met[f"{DEFAULT}, mean"]}.

{chr(10).join(markdown(medians(figures)))}

{chr(10).join(markdown(results))}
{END}
"""
    return text.strip()


def stored_part() -> str:
    """Return the part that docs/measured.md must have."""
    if not FIGURES.exists():
        return f"{BEGIN}\n{NOTHING}\n{END}"
    return part(json.loads(FIGURES.read_text(encoding="utf-8")))


def publish() -> None:
    """Store the figures of the last run, and write them into docs/measured.md."""
    FIGURES.write_bytes(LAST_RUN.read_bytes())
    document = DOCUMENT.read_text(encoding="utf-8")
    text = re.sub(f"{BEGIN}.*?{END}", lambda _: stored_part(), document, flags=re.S)
    DOCUMENT.write_text(text, encoding="utf-8")
