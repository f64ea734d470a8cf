"""The measure `peers`, in a Spark of its own: the same operations on the same rows with Hudi, Iceberg
and Delta Lake, in turns. `bench_peers` starts this as a process.

All tables are in one classic session with the settings of the workbench's own Spark: the same memory,
class path and parallelism. A Hudi table is written by Spark's DataFrame writer with the options that
the library makes (Table.options, bulk_insert_options), from what its ingest makes of a batch. The rest of an ingest is left out, as the others have none: the topic,
parsing, counts, dead letters. Iceberg and Delta get the same batches by MERGE on the key.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Callable, ContextManager
from unittest import mock

import bench
from bench_line import say, seconds
from workbench import hudi
from workbench.hudi import decode, loading
from workbench.own.files import OwnTable
from workbench.own.tables import layout
from workbench.run.run_record import checkout_commit
from workbench.spark import server, settings
from workbench.stack import artifacts, services

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from workbench.base.params import World

PINS = Path(__file__).with_name("peers.lock")
CHANGED, PARTITIONS = 1_000, 4
COLUMNS = {
    "id": "int",
    "part": "string",
    "name": "string",
    "price": "decimal(10,2)",
    "changed_at": "timestamp",
    "note": "string",
    "v": "bigint",
}
SCHEMA = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
OPERATIONS = ("upsert", "delete")
# What the three require of a session: their extensions, a catalog. Delta's snapshot has 50 partitions
# by default, however small a table is.
SETTINGS = {
    "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension,"
    "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions,"
    "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.catalog.iceberg": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.iceberg.type": "hadoop",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.databricks.delta.snapshotPartitions": "2",
}


def pins() -> ContextManager[object]:
    """Read peers.lock in place of params/jars.lock in this block.

    It has Delta Lake and Apache Iceberg, without their dependencies: Spark has antlr4-runtime 4.9.3,
    and Iceberg's jar contains its own.
    """
    return mock.patch.object(artifacts, "LOCK", PINS)


def pinned_jars() -> list[Path]:
    """Return the jars of peers.lock; missing ones are fetched."""
    with pins():
        artifacts.install(say)
        return artifacts.jars("peers")


def peer_versions() -> dict[str, str]:
    """Return the versions of Iceberg and Delta in peers.lock."""
    with pins():
        found = {a.org: a.rev for a in artifacts.locked_artifacts()}
    return {"Iceberg": found["org.apache.iceberg"], "Delta": found["io.delta"]}


def start(world: World, folder: Path) -> SparkSession:
    """Return a classic session with the settings of the workbench's Spark and those of SETTINGS."""
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    os.environ.pop("SPARK_CONNECT_MODE_ENABLED", None)
    os.environ.update(JAVA_HOME=str(artifacts.java_home()), SPARK_LOCAL_IP="127.0.0.1")
    conf = server.server_conf(world.spark, world.lake.tables)
    session_conf = settings.session_conf()
    paths = [conf["spark.driver.extraClassPath"], *map(str, pinned_jars())]
    conf |= {
        **SETTINGS,
        "spark.sql.catalog.iceberg.warehouse": f"file:{folder / 'iceberg'}",
        "spark.driver.extraClassPath": os.pathsep.join(paths),
        "spark.driver.extraJavaOptions": " ".join(
            [*services.JAVA_OPTIONS, *services.java_logging_options("peers", "warn")]
        ),
    }
    at_start = [(key, value) for key, value in conf.items() if key not in session_conf]
    spark = SparkSession.builder.config(conf=SparkConf().setAll(at_start)).getOrCreate()
    for key, value in session_conf.items():
        spark.conf.set(key, value)
    return spark


# --- the rows


def prepare(spark: SparkSession, folder: Path, size: int, planned: list[str]) -> None:
    """Write the rows, and a batch for each of the planned operations, as Parquet.

    A batch has 1,000 rows from all over the table and from all partitions. It repeats the rows of an
    earlier one where the table is too small for new ones.
    """
    every = size // CHANGED

    def values(version: int) -> str:
        return (
            f"cast(id as int) id, concat('p', pmod(hash(id), {PARTITIONS})) part, concat('Artist ', id) name, "
            f"cast(pmod(hash(id, {version}), 1000000) / 100 as decimal(10,2)) price, "
            f"timestamp_seconds(1700000000 + id + {version}) changed_at, "
            f"concat(sha1(cast(id as string)), ' {version}') note, {version}L v"
        )

    def write(rows: DataFrame, name: str, files: int, columns: str) -> None:
        rows.createOrReplaceTempView("made")
        made = spark.sql(f"SELECT {columns} FROM made")
        made.coalesce(files).write.parquet(f"file:{folder}/{name}")

    write(spark.range(size), "rows", 4, values(1))
    for number, operation in enumerate(planned):
        write(
            spark.range(size).where(f"id % {every} = {number % every}"),
            f"batch{number}",
            1,
            f"{values(number + 2)}, '{operation[0]}' __op",
        )


def digest(rows: DataFrame) -> tuple[int, int]:
    """Return the number of rows and a checksum over all columns."""
    hashed = f"sum(cast(xxhash64({', '.join(COLUMNS)}) as decimal(38,0)))"
    count, total = rows.selectExpr("count(*)", hashed).collect()[0]
    return count, int(total or 0)


def expected(spark: SparkSession, folder: Path, done: list[str]) -> tuple[int, int]:
    """Return the digest of what these batches make of the rows, by plain Spark."""
    names = ["rows", *(f"batch{number}" for number in range(len(done)))]
    versions = spark.read.schema(f"{SCHEMA}, __op string").parquet(
        *(f"file:{folder}/{name}" for name in names)
    )
    versions.createOrReplaceTempView("versions")
    newest = spark.sql(
        f"SELECT max_by(struct({', '.join(COLUMNS)}, __op), v) r FROM versions GROUP BY id"
    )
    return digest(newest.select("r.*").where("__op IS NULL OR __op <> 'd'"))


# --- the tables


@dataclass
class HudiTable:
    """A table of this library."""

    spark: SparkSession
    name: str
    table: hudi.Table

    @property
    def folder(self) -> Path:
        return Path(self.table.base.removeprefix("file:"))

    def load(self, rows: DataFrame, size: int) -> None:
        options = {**self.table.options(), **loading.bulk_insert_options(size, rows.schema)}
        self._write(rows, options)

    def change(self, batch: DataFrame, operation: str) -> None:
        outcome = decode.DELETE if operation == "delete" else decode.UPSERT
        rows = batch.selectExpr(f"struct({', '.join(batch.columns)}) row", f"'{outcome}' outcome")
        columns = batch.select(*COLUMNS).schema
        self._write(loading.to_changes(rows, self.table, columns), self.table.options())

    def _write(self, rows: DataFrame, options: dict[str, str]) -> None:
        rows.write.format("hudi").options(**options).mode("append").save(self.table.base)

    def read(self) -> DataFrame:
        return hudi.read(self.spark, self.table)

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


@dataclass
class SqlTable:
    """A table of Iceberg or Delta. `target` is its name in SQL, `kind` its format."""

    spark: SparkSession
    name: str
    kind: str
    target: str
    folder: Path
    properties: dict[str, str]

    def load(self, rows: DataFrame, size: int) -> None:
        listed = ", ".join(f"'{key}' = '{value}'" for key, value in self.properties.items())
        rows.createOrReplaceTempView("batch")
        self.spark.sql(
            f"CREATE TABLE {self.target} USING {self.kind} PARTITIONED BY (part) "
            f"TBLPROPERTIES ({listed}) AS SELECT * FROM batch"
        )

    def change(self, batch: DataFrame, operation: str) -> None:
        batch.select(*COLUMNS).createOrReplaceTempView("batch")
        work = (
            "WHEN MATCHED AND s.v >= t.v THEN DELETE"
            if operation == "delete"
            else "WHEN MATCHED AND s.v >= t.v THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
        self.spark.sql(f"MERGE INTO {self.target} t USING batch s ON t.id = s.id {work}")

    def read(self) -> DataFrame:
        return self.spark.table(self.target)

    def remove(self) -> None:
        if self.kind == "iceberg":
            self.spark.sql(f"DROP TABLE IF EXISTS {self.target}")
        shutil.rmtree(self.folder, ignore_errors=True)


def tables(spark: SparkSession, world: World, folder: Path, size: int) -> list[Any]:
    """Return the table of an own flow, a Copy-on-Write one, and two of each of the others."""
    # an index of one partition needs a key that holds the partition field
    fields: dict[str, Any] = {"key": ("id", "part"), "partition": ("part",)}
    made: list[Any] = []
    for name, kind in (("default", ""), ("copy-on-write", "cow")):
        own = OwnTable.model_construct(type=kind, rows=size, columns={}, **fields)
        chosen = layout(own).model_dump()
        table = hudi.table(world, f"{name}_{size}", ordering="v", **fields, **chosen)
        made.append(HudiTable(spark, name, table))
    for mode in ("merge-on-read", "copy-on-write"):
        name = f"{mode.replace('-', '_')}_{size}"
        modes = {f"write.{operation}.mode": mode for operation in ("merge", "update", "delete")}
        target = f"iceberg.bench.{name}"
        path = folder / "iceberg" / "bench" / name
        properties = {"format-version": "2", **modes}
        made.append(SqlTable(spark, f"Iceberg {mode}", "iceberg", target, path, properties))
    for name, vectors in (("Delta", "false"), ("Delta deletion vectors", "true")):
        path = folder / "delta" / f"{vectors}_{size}"
        properties = {"delta.enableDeletionVectors": vectors}
        made.append(SqlTable(spark, name, "delta", f"delta.`file:{path}`", path, properties))
    return made


# --- the run


class Run:
    """One run: the session, the lake, and what was measured."""

    def __init__(self, world: World, folder: Path, seed: int, rounds: int):
        self.world, self.folder, self.random = world, folder, Random(seed)
        self.rounds = rounds + 1  # the first one of each operation warms up
        self.spark = start(world, folder)
        self.seconds: dict[str, dict[str, dict[str, list[float]]]] = {}  # size, operation, table
        self.bytes: dict[str, dict[str, int]] = {}  # moment, table
        self.hudi: dict[str, dict[str, str]] = {}  # size, table: its type and index

    def measure(self, size: int, detailed: bool) -> None:
        """Measure the operations on tables of this size.

        Args:
            size: rows of a table.
            detailed: also measure loads, deletes, reads and the size on disk.
        """
        say(f"peers: {size:,} rows")
        folder = self.folder / str(size)
        operations = OPERATIONS if detailed else OPERATIONS[:1]
        planned = [name for name in operations for _ in range(self.rounds)]
        prepare(self.spark, folder, size, planned)
        made = tables(self.spark, self.world, self.folder, size)
        self.hudi[str(size)] = {
            t.name: f"{t.table.type}, {t.table.index}" for t in made if isinstance(t, HudiTable)
        }
        rows = self.spark.read.parquet(f"file:{folder}/rows")
        took = self.seconds[str(size)] = {}
        if detailed:
            took["load"] = self._in_turns(
                made, self.rounds, lambda t, _: t.load(rows, size), lambda t: t.remove()
            )
        else:
            self._in_turns(made, 1, lambda t, _: t.load(rows, size))
        self._check(made, folder, [])
        self._weigh(made, "after the load", detailed)
        for n, operation in enumerate(operations):
            first = n * self.rounds
            say(f"peers: {size:,} rows, {operation}")
            batches = [
                self.spark.read.parquet(f"file:{folder}/batch{first + number}")
                for number in range(self.rounds)
            ]
            took[operation] = self._in_turns(
                made, self.rounds, lambda t, number, o=operation, b=batches: t.change(b[number], o)
            )
            self._check(made, folder, planned[: first + self.rounds])
        if detailed:
            took["read"] = self._in_turns(made, self.rounds, lambda t, _: digest(t.read()))
        self._weigh(made, "after all operations", detailed)
        for table in made:
            table.remove()

    def _in_turns(
        self,
        made: list[Any],
        count: int,
        work: Callable[[Any, int], Any],
        before: Callable[[Any], Any] = lambda _: None,
    ) -> dict[str, list[float]]:
        """Do the work with each table, in a new order each round; return the seconds of each.

        The first round warms up and is left out. `before` is not timed.
        """
        took: dict[str, list[float]] = {table.name: [] for table in made}
        for number in range(count):
            for table in self.random.sample(made, len(made)):
                before(table)
                took[table.name].append(seconds(lambda t=table, n=number: work(t, n)))
        return {name: each[1:] for name, each in took.items()}

    def _check(self, made: list[Any], folder: Path, done: list[str]) -> None:
        """Raise SystemExit unless each table holds the rows that plain Spark finds."""
        right = expected(self.spark, folder, done)
        for table in made:
            result = digest(table.read())
            if result != right:
                raise SystemExit(
                    f"{table.name}, after {done[-1] if done else 'load'} in {folder.name} rows, holds "
                    f"{result[0]:,} rows with the checksum {result[1]}, not {right[0]:,} with {right[1]}: "
                    "the measurement would mean nothing"
                )

    def _weigh(self, made: list[Any], moment: str, detailed: bool) -> None:
        if detailed:
            self.bytes[moment] = {
                table.name: sum(f.stat().st_size for f in table.folder.rglob("*") if f.is_file())
                for table in made
            }


def main(output: Path, seed: int, rounds: int, *sizes: int) -> None:
    """Measure the sizes and write the figures as JSON; of the middle size all operations."""
    folder = output.parent
    load_average = os.getloadavg()[0]
    run = Run(bench.load_world(), folder, seed, rounds)
    for size in sizes:
        run.measure(size, detailed=size == sizes[len(sizes) // 2])
    figures = {
        "date": dt.date.today().isoformat(),
        "commit": checkout_commit(),
        "processors": os.cpu_count(),
        "load_average": round(load_average, 1),
        "seed": seed,
        "rounds": rounds,
        "changed": CHANGED,
        "partitions": PARTITIONS,
        "sizes": sizes,
        "hudi": run.hudi,
        "versions": {"Hudi": artifacts.versions()["hudi"], **peer_versions()},
        "seconds": run.seconds,
        "bytes": run.bytes,
    }
    output.write_text(json.dumps(figures), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
