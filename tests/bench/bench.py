"""`make bench`: how fast the workbench is, measured side by side in one run. A benchmark, not a
test: it exits 0 also when a goal is missed.

It runs in an instance of its own, on generated data (scale factor 100, 82,900 orders), and leaves
nothing behind.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
from functools import cache
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Optional

import bench_explore
import bench_landing
import bench_peers
import bench_reconcile
import bench_setup
import bench_snapshot
import bench_storefront
import bench_stream
import bench_travel
import fresh_stages
from bench_line import SCALE, Line, outbox_rows, say, seconds, write
from workbench import connect, hudi, stack
from workbench.base import params
from workbench.base.params import World
from workbench.base.paths import state_dir
from workbench.base.wait import background, wait_until
from workbench.hudi.decode import DELETED
from workbench.hudi.ingesting import PROGRESS_KEY
from workbench.hudi.loading import bulk_insert_options, deduplicate
from workbench.hudi.timeline import completed_actions
from workbench.run.run_record import checkout_commit, runs_dir
from workbench.source import postgres
from workbench.spark import session
from workbench.stack import artifacts
from workbench.topic import topics
from workbench.tracks import outbox

sys.path.append(str(Path(__file__).parents[1] / "help"))  # pytest does so by itself
import instance  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CAPTURES, ROWS, CHANGED, COMMITS, ROUNDS, SEED = 9, 200_000, 1_000, 50, 5, 7
# The table of an own flow of this size: Merge-on-Read, BUCKET, a compaction in every fifth commit. The key
# holds the partition field, because no index searches one partition for a row that may move.
FRESH = {
    "key": ("order_id", "ship_country"),
    "type": "mor",
    "index": "BUCKET",
    "buckets": 1,
}
FRESH_SHOWN = "the default table of this size by country, with its compactions"
NOTEBOOK = """
import bench
from workbench import query
world = bench.load_world()
print(query.sql(world, "SELECT count(*) AS n FROM datalake.cdc_events")["n"][0])
"""


def load_world() -> World:
    """Return the active world `local`."""
    world = params.load("local")
    params.activate(world)
    return world


# --- what several measures need
# --------------------------------------------------------------------------------------


@cache
def snapshot(world: World, spark: SparkSession) -> dict[str, float]:
    """Load the source, deploy the connector, ingest its snapshot from the topic; return the rows
    and the seconds."""
    rows = outbox_rows(world)
    took: dict[str, float] = {"cdc_events": rows}
    each = [_capture(world, spark, rows) for _ in range(CAPTURES)]
    took.update(
        {
            "cold": sum(each[0]),
            "to topic": statistics.median(e[0] for e in each[-3:]),
            "to Hudi": statistics.median(e[1] for e in each[-3:]),
        }
    )
    hudi.register(spark, outbox.flow.table(world))
    return took


def _capture(world: World, spark: SparkSession, rows: int) -> tuple[float, float]:
    """One snapshot from the source into a new topic and a new table; seconds to the topic and from
    there to Hudi."""
    table, topic, settings = (
        outbox.flow.table(world),
        outbox.flow.topic(world),
        connect.config(world, outbox.CONNECTOR),
    )
    connect.delete(world, outbox.CONNECTOR)
    postgres.drop_slot(world, settings["slot.name"])
    topics.delete(world, topic)
    hudi.drop(spark, world, table)
    begun = time.monotonic()
    connect.apply(world, outbox.CONNECTOR, settings)
    wait_until(
        lambda: topics.offset_span(world, topic) >= rows,
        "the snapshot",
        timeout=300,
        interval=0.02,
        failure_reason=lambda: connect.failure(world, outbox.CONNECTOR),
    )
    there = time.monotonic()
    hudi.ingest(spark, world, hudi.Topic(topic), table)
    done = time.monotonic()
    _holds(spark, table, rows)
    return there - begun, done - there


@cache
def many_rows(world: World, spark: SparkSession) -> DataFrame:
    """200,000 rows as a plain Parquet table: those of the snapshot, and copies of them with other
    order ids."""
    from pyspark.sql import functions as F

    place = f"{world.lake.root}/bench/rows"
    snapshot(world, spark)
    rows = hudi.read(spark, outbox.flow.table(world)).select(
        hudi.reader_schema("cdc_events").fieldNames()
    )
    last = rows.agg(F.max("order_id")).collect()[0][0]
    copies = [
        rows.withColumn("order_id", F.col("order_id") + F.lit(n * last).cast("int")) for n in (1, 2)
    ]
    rows.union(copies[0]).union(copies[1]).orderBy("order_id").limit(ROWS).repartition(
        4
    ).write.parquet(place)
    return spark.read.parquet(place)


# --- the measures
# ----------------------------------------------------------------------------------------------------


def freshness(
    world: World, spark: SparkSession, how: Optional[dict] = None, shown: str = FRESH_SHOWN
) -> list[Line]:
    """Commit in PostgreSQL → visible in a table of 200,000 rows that a continuous ingest of the topic
    keeps up to date."""
    table = outbox.flow.table(world, **{"name": "fresh", **(FRESH if how is None else how)})
    topic = hudi.Topic(outbox.flow.topic(world))
    rows = many_rows(world, spark)
    hudi.drop(spark, world, table)
    reached = {
        topic.id: {
            "offsets": {str(p): n for p, n in topics.end_offsets(world, topic.name).items()},
            "batch": 0,
        }
    }
    write(
        rows,
        table,
        {**table.options(), **bulk_insert_options(ROWS), PROGRESS_KEY: json.dumps(reached)},
    )
    job = hudi.IngestJob(spark, world, topic, table, hudi.reader_schema("cdc_events"))

    def follow(stop: threading.Event) -> None:
        for due in hudi.wait_for_changes(world, [job], stop):
            for each in due:
                each.run(stop.is_set)

    ids = postgres.query(world, "SELECT order_id, ship_country FROM cdc_events ORDER BY order_id")
    random, between, waited, stages = Random(SEED), threading.Event(), [], []
    with background(follow) as result, postgres.connect(world) as source:
        for n in range(COMMITS + 5):
            at = int(random.random() * len(ids))
            between.wait(random.random())  # at no fixed distance from the ingest's last batch
            times = _visible(spark, table, result, source, *ids.iloc[at], freight=1000 + n)
            waited.append(times[1] - times[0])
            stages.append(fresh_stages.stage_seconds(world, table, topic.name, *times))
    print(fresh_stages.picture(stages[5:]))
    waited = sorted(waited[5:])  # the first five warm up
    p50, p95 = statistics.median(waited), waited[int(0.95 * len(waited))]
    what = f"commit → visible in {ROWS:,} rows"
    return [
        Line(f"{what}, p50 of {COMMITS}", shown, "", p50, "s", 0.4),
        Line(f"{what}, p95 of {COMMITS}", shown, "", p95, "s", 0.7),
    ]


def _visible(
    spark: Any, table: hudi.Table, ingest: Any, source: Any, order: Any, country: str, freight: int
) -> tuple[float, float]:
    """Change one row. Return the time of its commit, and the time from which a query sees it, in
    seconds since 1970.

    The poller only lists the timeline; the row is read once a new commit is there, after the clock
    was stopped."""
    seen = _instants(table)
    source.execute("UPDATE cdc_events SET freight = %s WHERE order_id = %s", [freight, int(order)])
    committed = time.time()
    while True:
        seen = seen | wait_until(
            lambda known=seen: _instants(table) - known,
            "a commit of the ingest",
            timeout=60,
            interval=0.02,
            failure_reason=lambda: str(ingest.exception()) if ingest.done() else None,
        )
        visible = time.time()
        row = (
            hudi.read(spark, table)
            .where(f"order_id = {int(order)}")
            .where(f"ship_country = '{country}'")
        )
        if [r["freight"] for r in row.select("freight").collect()] == [freight]:
            return committed, visible


def _instants(table: hudi.Table) -> set[str]:
    """What is in the timeline. (How many there are says nothing: after a compaction Hudi archives
    the oldest.)"""
    return {done.instant for done in completed_actions(table)}


def upsert(world: World, spark: SparkSession) -> list[Line]:
    """1,000 rows into 200,000 with our options and with Hudi's defaults; the first load beside
    plain Parquet."""
    from pyspark.sql import functions as F

    rows = many_rows(world, spark).withColumn("__lsn", F.lit(1).cast("long"))
    stays, goes = F.lit(False).alias(DELETED), F.lit(True).alias(DELETED)
    newer, gone = (
        rows.where(f"order_id % 100 = {n}").withColumn("__lsn", F.lit(2).cast("long"))
        for n in (0, 1)
    )
    deleted = gone.count()
    versions = rows.select("*", stays).union(newer.select("*", stays)).union(gone.select("*", goes))
    # an index of one partition needs a key that holds the partition field
    ours = outbox.flow.table(world, name="bench_ours", key=FRESH["key"], index="SIMPLE")
    shipped = outbox.flow.table(world, name="bench_shipped")
    usual = outbox.flow.table(world, name="bench_defaults", key=FRESH["key"])
    mandatory = {
        "hoodie.table.name": usual.name,
        "hoodie.datasource.write.recordkey.field": ",".join(usual.key),
        "hoodie.datasource.write.partitionpath.field": ",".join(usual.partition),
        "hoodie.datasource.write.precombine.field": usual.ordering,
    }
    plain = f"{world.lake.root}/bench/plain"
    took: dict[str, list[float]] = {
        name: [] for name in ("plain", "load", "merged", "ours", "shipped", "usual")
    }
    for _ in range(3):
        took["plain"].append(
            seconds(
                lambda: rows.write.mode("overwrite").partitionBy(*ours.partition).parquet(plain)
            )
        )
        for name, loaded in (("merged", deduplicate(versions, ours)), ("load", rows)):
            hudi.drop(spark, world, ours)
            took[name].append(
                seconds(
                    lambda r=loaded: write(r, ours, {**ours.options(), **bulk_insert_options(ROWS)})
                )
            )
            _holds(spark, ours, ROWS - (deleted if name == "merged" else 0))
    write(rows, shipped, {**shipped.options(), **bulk_insert_options(ROWS)})
    write(rows, usual, {**mandatory, "hoodie.datasource.write.operation": "bulk_insert"})
    every = ROWS // CHANGED
    for n in range(ROUNDS + 1):
        changed = rows.where(f"order_id % {every} = {n}").withColumn(
            "__lsn", F.lit(n + 2).cast("long")
        )
        each = [
            ("ours", lambda c=changed: write(c, ours, ours.options())),
            ("shipped", lambda c=changed: write(c, shipped, shipped.options())),
            ("usual", lambda c=changed: write(c, usual, mandatory)),
        ]
        for name, work in each if n % 2 else each[::-1]:
            took[name].append(seconds(work))
    for table in (ours, shipped, usual):
        _holds(spark, table, ROWS)
    m = {name: statistics.median(v[1:]) for name, v in took.items()}  # the first of each warms up
    defaults, parquet = f"Hudi defaults: {m['usual']:.2f} s", f"plain Parquet: {m['plain']:.2f} s"
    what = f"upsert of {CHANGED:,} rows into {ROWS:,}, warm"
    return [
        Line(
            f"{what}, {ours.index} index",
            f"{m['ours']:.2f} s",
            defaults,
            m["ours"] / m["usual"],
            "×",
            0.6,
        ),
        Line(
            f"{what}, {shipped.index} index (a key in one partition only, as the walkthrough has it)",
            f"{m['shipped']:.2f} s",
            defaults,
            m["shipped"] / m["usual"],
            "×",
            0.6,
        ),
        Line(
            f"bulk insert of {ROWS:,} rows, each key once",
            f"{m['load']:.2f} s",
            parquet,
            m["load"] / m["plain"],
            "×",
            3,
        ),
        Line(
            "the same, where 1 % of the keys come again and 1 % are deleted",
            f"{m['merged']:.2f} s",
            parquet,
            m["merged"] / m["plain"],
            "×",
            3,
        ),
    ]


def _holds(spark: SparkSession, table: hudi.Table, rows: int) -> None:
    """Raise SystemExit where the table does not hold so many rows, each key once."""
    from pyspark.sql import functions as F

    found = hudi.read(spark, table).agg(F.count("*"), F.count_distinct(*table.key)).first()
    if tuple(found) != (rows, rows):
        raise SystemExit(
            f"{table.name} holds {found[0]:,} rows and {found[1]:,} keys, not {rows:,}: the measurement "
            "would mean nothing"
        )


def through(world: World, spark: SparkSession) -> list[Line]:
    """Connector applied → every row of the source in Hudi."""
    took = snapshot(world, spark)
    both = took["to topic"] + took["to Hudi"]
    parts = (
        f"{took['cdc_events']:,} rows, services warm (the last 3 of {CAPTURES}): "
        f"to topic {took['to topic']:.1f} s, on to Hudi {took['to Hudi']:.1f} s"
    )
    return [
        Line(
            f"snapshot through to Hudi, scale {SCALE}",
            parts,
            f"just started: {took['cold']:.1f} s",
            took["cdc_events"] / both,
            "rows/s",
            10_000,
            more_is_better=True,
        )
    ]


def second(world: World, spark: SparkSession) -> list[Line]:
    """A new Python process on the running stack, to its first query result."""
    snapshot(world, spark)
    took = [
        seconds(
            lambda: subprocess.run(
                [sys.executable, "-c", NOTEBOOK],
                check=True,
                stdout=subprocess.DEVNULL,
                cwd=Path(__file__).parent,
            )
        )
        for _ in range(3)
    ]
    return [
        Line(
            "second notebook, to its first query result",
            f"{min(took):.1f} to {max(took):.1f} s",
            "",
            statistics.median(took),
            "s",
            5,
        )
    ]


def runner(*_: Any) -> list[Line]:
    """The runner's own time over that of the cells, from the newest run of this commit that
    passed."""
    now = checkout_commit()
    for path in sorted(runs_dir().glob("*/run.json"), reverse=True):
        run = json.loads(path.read_text(encoding="utf-8"))
        if run.get("status") == "passed" and run.get("cell_seconds") and run.get("commit") == now:
            books = [n for n in run["notebooks"] if n.get("cell_seconds")]
            cells, all_of_it = (sum(n[k] for n in books) for k in ("cell_seconds", "seconds"))
            return [
                Line(
                    f"runner over the cells' own time ({path.parent.name}, {len(books)} notebooks)",
                    f"{all_of_it:.1f} s",
                    f"cells: {cells:.1f} s",
                    100 * (all_of_it / cells - 1),
                    "%",
                    25,
                )
            ]
    say(f"runner: {runs_dir()} has no passed run of this commit ({now}), do `make demo` first")
    return []


MEASURES = {
    "through": through,
    "second": second,
    "freshness": freshness,
    "upsert": upsert,
    "landing": bench_landing.landed,
    "snapshot": bench_snapshot.through,
    "sizes": bench_travel.sizes,
    "reconcile": bench_reconcile.reconciled,
    "peers": bench_peers.measured,
    "trace": bench_travel.traced,
    "explore": bench_explore.explored,
    "stream": bench_stream.streamed,
    "storefront": bench_storefront.converged,
    "runner": runner,
    "demo": bench_setup.demo,
}
WITHOUT_STACK = {"runner", "demo", "peers"}
NOT_BY_DEFAULT = ("demo", "peers")  # both download


def show(lines: list[Line]) -> None:
    """Print the lines as a table."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for title in ("what", "ours", "beside", "figure", "goal", ""):
        table.add_column(
            title, justify="right" if title in ("figure", "goal") else "left", overflow="fold"
        )
    for line in lines:
        digits = 0 if line.figure >= 100 else 2
        table.add_row(
            line.what,
            line.ours,
            line.beside,
            f"{line.figure:,.{digits}f} {line.unit}",
            f"{'≥' if line.more_is_better else '≤'} {line.goal:,g}",
            "[green]met[/]" if line.met else "[red]missed[/]",
        )
    Console(width=None if sys.stdout.isatty() else 150).print(table)


def main() -> None:
    """Run the measures and print them."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--only",
        nargs="+",
        choices=list(MEASURES),
        default=[m for m in MEASURES if m not in NOT_BY_DEFAULT],
        help=f"{' and '.join(NOT_BY_DEFAULT)}, which download files, are measured only when they are named",
    )
    trial = "of sizes and peers, to try these measures"
    parser.add_argument(
        "--sizes", nargs="+", type=int, metavar="ROWS", help=f"rows of the tables {trial}"
    )
    parser.add_argument("--rounds", type=int, help=f"rounds {trial}")
    parser.add_argument(
        "--write", action="store_true", help="write the figures of peers into docs/measured.md"
    )
    options = parser.parse_args()
    chosen = options.only
    if options.write and ("peers" not in chosen or options.sizes):
        parser.error("--write stores the figures of `--only peers`, with its own sizes")
    # each round, and the one that warms up, changes 1,000 other rows
    if options.sizes and min(options.sizes) < CHANGED * ((options.rounds or ROUNDS) + 1):
        parser.error(f"a table needs {CHANGED:,} rows for each round, and {CHANGED:,} more")
    for module in (bench_travel, bench_peers):
        vars(module)["SIZES"] = tuple(sorted(set(options.sizes or module.SIZES)))
        vars(module)["ROUNDS"] = options.rounds or module.ROUNDS
    os.environ["WORKBENCH_INSTANCE"] = "bench"
    os.environ["WORKBENCH_PORT_BASE"] = os.environ.get("WORKBENCH_BENCH_PORT_BASE", "23400")
    artifacts.install()
    world, lines = load_world(), []
    with instance.exclusive_run():
        measure(chosen, world, lines)
    show(lines)
    if options.write:
        bench_peers.publish()
    print(f"WORKBENCH_JAVA_OPTIONS={os.environ.get('WORKBENCH_JAVA_OPTIONS', '')}")
    print(
        f"load average at the end: {', '.join(f'{x:.1f}' for x in os.getloadavg())}; {os.cpu_count()} processors"
    )


def measure(chosen: list[str], world: World, lines: list[Line]) -> None:
    """Start the stack, add the lines of these measures, and leave nothing behind."""
    stack.down()
    shutil.rmtree(state_dir(), ignore_errors=True)
    instance.stop_with_process(os.getpid(), remove=True)
    try:
        spark = None
        if set(chosen) - WITHOUT_STACK:
            lines.append(bench_setup.start(world))
            spark = session(world)
        for name in (n for n in MEASURES if n in chosen):
            say(name)
            found = MEASURES[name](world, spark)
            for line in found:  # said at once: a later measure may fail
                say(f"{line.what}: {line.figure:,.2f} {line.unit}")
            lines += found
        if spark is not None:
            lines.append(bench_setup.memory(world))
    finally:
        stack.down()
        shutil.rmtree(state_dir(), ignore_errors=True)


if __name__ == "__main__":
    main()
