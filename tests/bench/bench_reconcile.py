"""`operate.reconcile` of 1,000,001 rows, equal and with one planted value, beside `SELECT *` of both sides."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import psutil
from bench_line import Line, say
from pyspark.sql import functions as F
from workbench import hudi, operate, own, stack
from workbench.base import params
from workbench.source import postgres

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from workbench.base.params import World

NAME = "reconcile_bench"
RIDES = """
    DROP TABLE IF EXISTS rides;
    CREATE TABLE rides (id bigint PRIMARY KEY, name text, station int, price numeric(8,2), started timestamp,
        distance double precision, note text);
    INSERT INTO rides SELECT n, 'Ride ' || n, n % 700, (n % 5000) / 100.0, TIMESTAMP '2024-01-01' + n * INTERVAL '7 s',
        n / 7.0, CASE WHEN n % 3 > 0 THEN md5(n::text) END FROM generate_series(1, 1000001) n
    """


def reconciled(world: World, spark: SparkSession) -> list[Line]:
    """Seconds of a comparison, its memory, and the ratio to reading all rows of both sides."""
    stack.ensure_running(world, "apicurio")
    postgres.create_database(world, NAME)
    server = world.postgres
    source = params.Source(
        engine="postgres",
        host=server.host,
        port=server.port,
        database=NAME,
        user=server.admin_user,
        password=server.admin_password,
    )
    world = world.model_copy(update={"sources": {NAME: source}})
    at = world.source(NAME)
    postgres.execute(at, RIDES)
    say("reconcile: capturing 1,000,001 rows")
    own.capture(world, NAME, "rides")
    try:
        return measure(world, at, spark)
    finally:
        own.forget(world, NAME)
        postgres.execute(world, f"DROP DATABASE {NAME} WITH (FORCE)", database="postgres")


def measure(world: World, at: World, spark: SparkSession) -> list[Line]:
    """Return the lines for a captured table."""
    table = own.load(world, NAME).table(at, "rides")
    before = psutil.Process().memory_info().rss
    (equal,) = operate.reconcile(world, NAME)
    memory = (psutil.Process().memory_info().rss - before) / 1e6
    rows = hudi.read(spark, table).where("id = 500000").withColumn("name", F.lit("x"))
    rows = rows.select(
        *(c for c in rows.columns if not c.startswith("_hoodie_") or c.endswith("deleted"))
    )
    rows.write.format("hudi").options(**table.options()).mode("append").save(table.base)
    (planted,) = operate.reconcile(world, NAME)
    if not equal.is_equal or planted.counts != {"different": 1}:
        raise SystemExit(f"{equal}\n{planted}: the measurement would mean nothing")
    started = time.monotonic()
    with postgres.session(at) as connection:
        connection.execute("SELECT * FROM rides").fetchall()
    hudi.read_arrow(table)
    both = time.monotonic() - started
    what, beside = "reconcile 1,000,001 rows", f"SELECT * of both sides: {both:.2f} s"
    return [
        Line(what, f"{equal.seconds:.2f} s", beside, equal.seconds, "s", 15),
        Line(f"{what}, one planted", f"{planted.seconds:.2f} s", beside, planted.seconds, "s", 20),
        Line(f"{what}, ratio", f"{equal.seconds:.2f} s", beside, equal.seconds / both, "×", 3),
        Line(f"{what}, memory", f"{memory:.0f} MB", "", memory, "MB", 500),
    ]
