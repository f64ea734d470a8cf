"""What an analyst waits for in a notebook: a frame of a slider, a difference, a profile, the list of
tables; with Spark's time for the same rows beside it."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Callable

from bench_line import Line, seconds, write
from workbench import explore, hudi
from workbench.explore import views
from workbench.hudi.loading import bulk_insert_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from workbench.base.params import World

ARTISTS, NATIONS, LABELS, TABLES = 15_900, 120, 7, 30  # as in the museum
WORKS, COLUMNS, ROUNDS = 138_000, 30, 6


def table(world: World, name: str, **fields: object) -> hudi.Table:
    return hudi.table(
        world, name, key=("id",), ordering="v", database="bench_explore", type="cow", **fields
    )


def artists(spark: SparkSession, version: int) -> DataFrame:
    """The rows of the artists; each version changes 40 of them and moves one in four of these."""
    return spark.range(ARTISTS).selectExpr(
        "cast(id as int) id",
        f"if(id % 400 = {version}, 'Renamed {version}', concat('Artist ', id)) name",
        f"concat('Nation ', (id + if(id % 1600 = {version}, 1, 0)) % {NATIONS}) nationality",
        "if(id % 3 = 0, null, cast(1800 + id % 200 as int)) birth_year",
        "concat('https://www.moma.org/artists/', id) url",
        f"{version}L v",
    )


def works(spark: SparkSession) -> DataFrame:
    """Many rows in 30 columns: texts, whole numbers, decimals, days and nulls."""
    kinds = (
        "concat('Text ', hash(id, {0}) % power(10, 1 + {0} % 5))",
        "hash(id, {0}) % 1000",
        "cast(rand({0}) * 1000 as decimal(10, 2))",
        "date_add(date '1900-01-01', cast(rand({0}) * 40000 as int))",
        "if(rand({0}) < 0.3, null, rand({0}))",
    )
    columns = [f"{kinds[n % len(kinds)].format(n)} c{n}" for n in range(COLUMNS - 2)]
    return spark.range(WORKS).selectExpr("cast(id as int) id", *columns, "1L v")


def explored(world: World, spark: SparkSession) -> list[Line]:
    """Measure the calls, each after one call that warms up."""
    museum = table(world, "artists", partition=("nationality",), index="GLOBAL_SIMPLE")
    labels = [f"t{n}" for n in range(LABELS)]
    for version, label in enumerate(labels):
        write(artists(spark, version), museum, museum.options())
        hudi.label(world, museum, label)
    large = table(world, "works")
    write(works(spark), large, {**large.options(), **bulk_insert_options(WORKS)})
    small = spark.range(20).selectExpr("cast(id as int) id", "1L v")
    for number in range(TABLES - 2):
        each = table(world, f"small_{number}")
        write(small, each, {**each.options(), **bulk_insert_options(20)})

    def frame(label: str) -> None:
        explore.at(world, museum, label)._repr_html_()

    def difference(label: str) -> None:
        explore.diff(world, museum, "t0", label)

    def profile(_: str) -> None:
        explore.profile(world, large)

    def uncached(work: Callable[[str], None], label: str) -> None:
        world.state.get("explore.rows", dict).clear()
        work(label)

    lines = []
    for what, work, goal, rounds in (
        (f"a frame of {ARTISTS:,} rows as HTML, p95 of {LABELS} labels", frame, 0.3, ROUNDS),
        (f"a difference of {ARTISTS:,} rows, p95", difference, 1, 1),
        (f"a profile of {WORKS:,} rows × {COLUMNS} columns", profile, 3, 1),
    ):
        used = labels[1:] if work is not profile else labels[:1] * 3
        work(used[0])
        took = sorted(seconds(lambda: work(label)) for _ in range(rounds) for label in used)  # noqa: B023
        first = [seconds(lambda: uncached(work, label)) for label in used]  # noqa: B023
        spark_took = _with_spark(work, used[:3])
        p95 = took[int(0.95 * len(took))]
        ours = f"p50 {statistics.median(took):.2f} s, p95 {p95:.2f} s, first {max(first):.2f} s"
        lines.append(Line(what, ours, f"Spark: {spark_took:.1f} s", p95, "s", goal))
    listed = explore.tables(world)
    if sum(listed["kind"].str.startswith("Hudi")) < TABLES:
        raise SystemExit("there are less tables than are to be listed")
    took = [seconds(lambda: explore.tables(world)) for _ in range(3)]
    counted = seconds(lambda: [hudi.read(spark, t).count() for t in _tables(world)])
    what = f"explore.tables of {TABLES} tables and the sources"
    lines.append(
        Line(what, f"{max(took):.2f} s", f"Spark counts: {counted:.1f} s", max(took), "s", 2)
    )
    for each in _tables(world):
        hudi.drop(spark, world, each)
    return lines


def _tables(world: World) -> list[hudi.Table]:
    return [t for t in explore.finding.lake_tables(world) if t.database == "bench_explore"]


def _with_spark(work: Callable[[str], None], used: list[str]) -> float:
    """Return the median of the seconds that the same call takes with Spark."""
    in_memory, views.MAX_ROWS = views.MAX_ROWS, 0
    try:
        return statistics.median(seconds(lambda: work(label)) for label in used)  # noqa: B023
    finally:
        views.MAX_ROWS = in_memory
