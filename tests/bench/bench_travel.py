"""Time travel at size: an upsert of 1,000 rows into tables of 10,000, 100,000 and 1,000,000 rows,
Copy-on-Write and Merge-on-Read, with our options and with Hudi's defaults, in turns; and one row
traced in the whole museum."""

from __future__ import annotations

import statistics
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench_line import Line, say, seconds, write
from workbench import connect, hudi, landing, stack, trace
from workbench.hudi.loading import bulk_insert_options
from workbench.hudi.tables import TABLE_TYPES
from workbench.source import postgres
from workbench.tracks import moma, museum

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from workbench.base.params import World

SIZES, CHANGED, ROUNDS = (10_000, 100_000, 1_000_000), 1_000, 3
# SIMPLE reads the keys of every file of the key's partition, so it grows with the table; BUCKET
# reads none. The museum's own tables have GLOBAL_SIMPLE: a key is looked for in the files of all
# partitions, so that its row may move.
INDEX = {"ours": "SIMPLE", "global": "GLOBAL_SIMPLE", "bucket": "BUCKET"}
KEY = ("id", "part")  # an index of one partition needs a key that holds the partition field
PARTITIONS = 7  # no divisor of a power of ten: the rows of one upsert lie in all of them

TRACE = """
import sys
import bench
from workbench import trace
from workbench.tracks import museum
world = bench.load_world()
print(trace.row(world, museum.flow, sys.argv[1], sys.argv[2]).changes)
"""


@dataclass(frozen=True)
class Case:
    """A table of so many rows, and the options it is written with."""

    size: int
    kind: str
    who: str
    table: hudi.Table
    options: dict[str, str]


def rows(spark: SparkSession, size: int) -> DataFrame:
    """So many rows in few columns, spread over all partitions."""
    return spark.range(size).selectExpr(
        "cast(id as int) id",
        f"concat('p', id % {PARTITIONS}) part",
        "concat('Artist ', id) name",
        "1L v",
    )


def cases(world: World, size: int) -> list[Case]:
    """Our options and Hudi's defaults, for both types of table; and ours with two other indexes,
    for Merge-on-Read."""
    made = []
    for kind in ("cow", "mor"):
        ours = hudi.table(
            world, f"bench_{kind}_{size}", key=KEY, ordering="v", partition=("part",), type=kind
        )
        usual = hudi.table(world, f"bench_{kind}_{size}_defaults", key=KEY, ordering="v", type=kind)
        mandatory = {
            "hoodie.table.name": usual.name,
            "hoodie.datasource.write.table.type": TABLE_TYPES[kind],
            "hoodie.datasource.write.recordkey.field": ",".join(KEY),
            "hoodie.datasource.write.partitionpath.field": "part",
            "hoodie.datasource.write.precombine.field": "v",
        }
        made += [
            Case(size, kind, "ours", ours, ours.options()),
            Case(size, kind, "defaults", usual, mandatory),
        ]
    for who in ("global", "bucket"):
        other = replace(
            ours, name=f"{ours.name}_{who}", base=f"{ours.base}_{who}", index=INDEX[who]
        )
        made.append(Case(size, "mor", who, other, other.options()))
    return made


def measure(spark: SparkSession, world: World, size: int) -> dict[tuple[str, str], float]:
    """{(kind, who): median seconds of an upsert}; every table is filled first and dropped
    afterwards."""
    every, all_rows, made = size // CHANGED, rows(spark, size), cases(world, size)
    took: dict[tuple[str, str], list[float]] = {(c.kind, c.who): [] for c in made}
    try:
        for case in made:
            plain = {"hoodie.datasource.write.operation": "bulk_insert"}
            first = plain if case.who == "defaults" else bulk_insert_options(size)
            write(all_rows, case.table, {**case.options, **first})
        for number in range(ROUNDS + 1):
            changed = all_rows.where(f"id % {every} = {number}").selectExpr(
                "id", "part", "concat(name, '!') name", f"{number + 2}L v"
            )
            for case in made if number % 2 else made[::-1]:
                took[case.kind, case.who].append(
                    seconds(lambda c=case, n=changed: write(n, c.table, c.options))
                )
        for case in made:
            _right(spark, case)
    finally:
        for case in made:
            hudi.drop(None, world, case.table)
    return {
        which: statistics.median(each[1:]) for which, each in took.items()
    }  # the first of each warms up


def _right(spark: SparkSession, case: Case) -> None:
    """The rows are as many as were loaded, and those that were upserted are the new ones; or
    nothing was measured."""
    found = (
        hudi.read(spark, case.table)
        .selectExpr("count(*) n", "count_if(v > 1) changed")
        .collect()[0]
    )
    if (found["n"], found["changed"]) != (case.size, CHANGED * (ROUNDS + 1)):
        raise SystemExit(
            f"{case.table.name} holds {found['n']:,} rows, {found['changed']:,} of them changed: "
            "the measurement would mean nothing"
        )


def sizes(world: World, spark: SparkSession) -> list[Line]:
    """Every size and type as a ratio to Hudi's defaults, and how a Merge-on-Read table's upsert
    grows with its size."""
    took: dict[Any, float] = {}
    for size in SIZES:
        say(f"sizes: {size:,} rows")
        took.update({(size, *which): each for which, each in measure(spark, world, size).items()})
    lines = []
    for kind, who, goal in (
        ("cow", "ours", 1.0),
        ("mor", "ours", 0.5),
        ("mor", "global", 0.5),
        ("mor", "bucket", 0.5),
    ):
        shown = f"{kind}, {INDEX[who]} index"
        for size in SIZES:
            ours, usual = took[size, kind, who], took[size, kind, "defaults"]
            lines.append(
                Line(
                    f"upsert of {CHANGED:,} rows into {size:,}, {shown}",
                    f"{ours:.2f} s",
                    f"Hudi defaults: {usual:.2f} s",
                    ours / usual,
                    "×",
                    goal,
                )
            )
        small, large = (took[size, kind, who] for size in (SIZES[0], SIZES[-1]))
        if kind == "mor":
            lines.append(
                Line(
                    f"upsert into {SIZES[-1]:,} over {SIZES[0]:,}, {shown}",
                    f"{large:.2f} s",
                    f"{small:.2f} s",
                    large / small,
                    "×",
                    3,
                )
            )
    return lines


def traced(world: World, spark: SparkSession) -> list[Line]:
    """One row of each table followed from the source's log to the lake, in a museum of its full
    size."""
    stack.ensure_running(world, "apicurio")
    moma.loader.load(world, scale=1, confirm=lambda _: True, progress=lambda _: None)
    both = [f"public.{name}" for name in museum.flow.names]
    postgres.create_publication(world, museum.flow.publication, both, database=museum.DATABASE)
    postgres.grant_replication(world, both, database=museum.DATABASE)
    loaded = museum.flow.deploy(world)
    museum.flow.sync(spark, world)
    lines = []
    for name, key, changed in (
        ("artists", museum.BAKKER, museum.RECORD_HISTORY["t1"][0]),
        ("artworks", museum.PICADOR, museum.UPDATES["u1"]),
    ):
        museum.flow.change(world, name, key, **changed)
        museum.flow.sync(spark, world, *museum.flow.tables(world, name))
        landing.run(world, connect.config(world, museum.SINK))
        asks = [
            sys.executable,
            "-c",
            TRACE,
            name,
            str(key),
        ]  # as `workbench trace` does: its start counts too
        took = [
            seconds(
                lambda a=asks: subprocess.run(
                    a, check=True, stdout=subprocess.DEVNULL, cwd=Path(__file__).parent
                )
            )
            for _ in range(3)
        ]
        found = trace.row(world, museum.flow, name, key).changes
        if len(found) != 2 or not found["landed"].astype(bool).all():
            raise SystemExit(
                f"{name} {key} has not both its versions, landed: the measurement would mean nothing"
            )
        lines.append(
            Line(
                f"trace of one of {loaded[museum.flow.topic(world, name)]:,} {name}",
                f"{min(took):.1f} to {max(took):.1f} s",
                "",
                statistics.median(took),
                "s",
                5,
            )
        )
    return lines
