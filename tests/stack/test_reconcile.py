"""`workbench reconcile`: planted differences are found, and nothing else, in all types and beside a writer."""

import datetime as dt
import math
import random
import re
import struct
import threading
from decimal import Decimal

import own_help
import pandas
import pyarrow
import pytest
from pg_types import TYPES
from pyspark.sql import functions as F
from test_mariadb import ROW
from test_mariadb import TYPES as MARIADB_TYPES
from typer.testing import CliRunner
from workbench import hudi, operate, own, stack
from workbench.base import LakeError
from workbench.cli import main
from workbench.cli import operate as cli_operate
from workbench.operate import reconcile_sql, reconciling
from workbench.source import mariadb, postgres

DATABASE = "reconcile_test"
# what Debezium sends as null, which is a difference
LOST = {"mood[]": "NULL"}


def kept(kind):
    """Return the values of a type that arrive in the lake."""
    lost = next((text for name, text in LOST.items() if kind.name.startswith(name)), None)
    return [value for value in kind.accepted if not (lost and re.search(lost, value))]


KINDS = {f"c{n:02d}": (kind, kept(kind)) for n, kind in enumerate(TYPES) if kind.accepted}
TRIPS = """
    CREATE TABLE trips (id int PRIMARY KEY, name text, docked boolean);
    INSERT INTO trips SELECT n, 'Trip ' || n, n % 2 = 0 FROM generate_series(1, 3000) n;
    CREATE TABLE rides (id text, nr smallint, region text, day date, PRIMARY KEY (id, nr));
    INSERT INTO rides SELECT 'ride/' || n, n % 3, CASE WHEN n % 10 > 0 THEN 'a=b/ü ' || n % 2 END, DATE '2024-02-29'
        FROM generate_series(1, 300) n;
    """


def rows_of_all_types():
    """Return statements that create a table with all types, and 90 rows; each seventh value is null."""
    columns = ", ".join(f"{name} {kind.name}" for name, (kind, _) in KINDS.items())
    yield f"""
        CREATE EXTENSION IF NOT EXISTS vector; CREATE TYPE mood AS ENUM ('happy', 'sad');
        CREATE DOMAIN positive AS int CHECK (VALUE > 0); CREATE DOMAIN loose AS numeric;
        CREATE TABLE kinds (id bigint PRIMARY KEY, {columns});
        ALTER TABLE kinds REPLICA IDENTITY FULL"""
    for row in range(90):
        values = [
            "NULL" if (row + n) % 7 == 6 and "serial" not in kind.name else texts[row % len(texts)]
            for n, (kind, texts) in enumerate(KINDS.values())
        ]
        yield f"INSERT INTO kinds VALUES ({row - 5}, {', '.join(values)})"


@pytest.fixture(scope="module")
def bikes(world):
    """The world with the source `bikes`, whose three tables are captured."""
    with own_help.stack_database(world, DATABASE) as changed:
        table, *rows = rows_of_all_types()
        execute(changed, f"{TRIPS}; {table}")
        own.capture(changed, "bikes", "rides", partition=["region", "day"])
        own.capture(changed, "bikes", "trips", "kinds")
        execute(changed, "; ".join(rows))  # `own.compare` cannot compare all of these
        yield changed


def execute(world, statement):
    return postgres.execute(world.source("bikes"), statement)


def lake_table(world, name):
    return own.load(world, "bikes").table(world.source("bikes"), name)


def write(spark, table, rows, operation="upsert", **options):
    """Write rows into a lake table as no ingest would."""
    rows = rows.select(
        *(c for c in rows.columns if not c.startswith("_hoodie_") or c.endswith("deleted"))
    )
    writer = rows.write.format("hudi").options(**table.options()).options(**options)
    writer.option("hoodie.datasource.write.operation", operation).mode("append").save(table.base)


def found(result):
    return {(row.key, row.kind, row.column) for row in result.differences.itertuples()}


def reconcile(world, table, at=""):
    (result,) = operate.reconcile(world, "bikes", table, at)
    return result


def test_equal_tables_of_all_types_have_no_difference(bikes, monkeypatch):
    monkeypatch.setattr(cli_operate, "open_world", lambda name: bikes)
    done = CliRunner().invoke(main.app, ["reconcile", "bikes"])
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert [line.partition(";")[0] for line in lines] == [
        "rides: 300 rows in the source, 300 in the lake",
        "trips: 3,000 rows in the source, 3,000 in the lake",
        "kinds: 90 rows in the source, 90 in the lake",
    ]
    assert all("; no difference; " in line and "without" not in line for line in lines)
    kinds = own.load(bikes, "bikes").table(bikes.source("bikes"), "kinds")
    last = operate.last_reconciliation(bikes, kinds)
    assert last["is_equal"] and last["rows"] == [90, 90]
    with pytest.raises(LakeError, match="(?s)no captured table 'bikes/trip'.*trips"):
        operate.reconcile(bikes, "bikes", "trip")


def random_values(draw):
    """Return {type in PostgreSQL: (type in the lake, random values)}."""
    signs = "!|ne p'\\%{}\u2603\U0001f600\u00e9"
    micros = [draw.randint(-(10**15), 10**17) for _ in range(300)]
    bits = [struct.unpack("d", draw.randbytes(8))[0] for _ in range(300)]
    bits32 = [struct.unpack("f", draw.randbytes(4))[0] for _ in range(300)]
    epoch = dt.datetime(1970, 1, 1)
    times = [epoch + dt.timedelta(microseconds=micro) for micro in micros]
    return {
        "float8": (pyarrow.float64(), [*bits, 0.0, -0.0, 0.1, 5e-324, math.inf, -math.inf]),
        "float4": (pyarrow.float32(), [*bits32, -0.0]),
        "numeric(20,6)": (
            pyarrow.decimal128(20, 6),
            [Decimal(draw.randint(-(10**20), 10**20)).scaleb(-6) for _ in range(300)],
        ),
        "bigint": (pyarrow.int64(), [*micros, 2**63 - 1, -(2**63)]),
        "timestamp": (pyarrow.timestamp("us"), times),
        "date": (pyarrow.date32(), [time.date() for time in times]),
        "bytea": (pyarrow.binary(), [draw.randbytes(n % 9) for n in range(300)]),
        "text": (pyarrow.string(), ["".join(draw.choices(signs, k=n % 7)) for n in range(300)]),
    }


def test_random_values_have_the_same_text_on_both_sides(bikes):
    for kind, (lake, values) in random_values(random.Random(3)).items():
        values = [*values, None]
        rows = pyarrow.table({"v": pyarrow.array(values, lake)})
        side = reconciling.in_memory(rows, {"v": lake}, ["v"])
        query = f"SELECT {{}} FROM unnest(%s::{kind.partition('(')[0]}[]) AS v"
        for make in (reconcile_sql.text_sql, reconcile_sql.cell_sql):
            ours = make(reconcile_sql.DIALECTS["postgres"], lake, "v").replace("%", "%%")
            frame = postgres.query(bikes.source("bikes"), query.format(ours), [values])
            source = [
                None if text is None or text is pandas.NA else text for text in frame.iloc[:, 0]
            ]
            found = side.run(f"SELECT {make(side.dialect, lake, 'v')} FROM {side.rows}")
            assert source == [text for (text,) in found], kind


def test_rows_as_of_a_label_are_compared_without_the_keys_that_changed_later(bikes, spark):
    table = lake_table(bikes, "trips")
    write(spark, table, hudi.read(spark, table).where("id = 10").withColumn("name", F.lit("wrong")))
    own.follow(bikes, "bikes")
    hudi.label(bikes.source("bikes"), table, "planted")
    execute(
        bikes,
        "UPDATE trips SET name = 'later' WHERE id BETWEEN 20 AND 29; DELETE FROM trips WHERE id = 30",
    )
    result = reconcile(bikes, "trips", "planted")
    assert found(result) == {("10", "different", "name")}
    assert result.excluded == 11 and result.rows == (2999, 3000) and not result.is_equal
    execute(bikes, "UPDATE trips SET docked = NOT docked WHERE id = 10")  # the whole row again
    assert reconcile(bikes, "trips").is_equal


def planted(name, kind):
    """Return SQL of another value of a lake column, in Spark's dialect."""
    if kind.startswith("array"):
        item = kind[len("array<") : -1]
        return (
            f"if(size({name}) > 0, slice({name}, 1, size({name}) - 1), array(CAST(NULL AS {item})))"
        )
    if kind.startswith("decimal(38"):
        return f"CAST('-7.0000000001' AS {kind})"
    if kind.startswith("decimal"):
        scale = int(re.findall(r"\d+", kind)[1])
        return f"CAST(coalesce({name}, 0) + 1e-{scale}BD AS {kind})"
    return {
        "boolean": f"NOT coalesce({name}, false)",
        "int": f"coalesce({name}, 0) + 1",
        "bigint": f"coalesce({name}, 0) + 1",
        "float": f"CAST(if(abs({name}) < 1e30, {name} * 1.0000002D, 1) AS float)",
        "double": f"if(abs({name}) < 1e300, {name} * 1.0000000000000002D, 1)",
        "string": f"coalesce({name} || 'x', '')",
        "binary": f"concat(coalesce({name}, X''), X'01')",
        "date": f"if({name} = DATE '2001-02-03', DATE '2001-02-04', DATE '2001-02-03')",
        "timestamp": f"if(date_trunc('second', {name}) < {name}, date_trunc('second', {name}), current_timestamp())",
        "struct<x:double,y:double>": "named_struct('x', 7.25D, 'y', 1D)",
    }[kind]


def test_a_planted_value_of_each_type_is_named(bikes, spark):
    """Also rows that are missing in the lake, and rows whose delete was lost."""
    table = lake_table(bikes, "kinds")
    rows = hudi.read(spark, table)
    ids = {name: n + 1 for n, name in enumerate(KINDS)}
    changed = [
        F.expr(f"CASE WHEN id = {ids[name]} THEN {planted(name, kind)} ELSE {name} END").alias(name)
        if name in ids
        else F.col(name)
        for name, kind in rows.dtypes
    ]
    write(spark, table, rows.where(f"id BETWEEN 1 AND {len(ids)}").select(*changed))
    write(spark, table, rows.where("id < -3"), "delete")
    extra = rows.where("id IN (0, 71)").withColumn("id", F.col("id") + 100)
    write(spark, table, extra)
    result = reconcile(bikes, "kinds")
    expected = {(str(n), "different", name) for name, n in ids.items()}
    expected |= {(str(n), "missing in the lake", "(rows)") for n in (-5, -4)}
    expected |= {(str(n), "extra in the lake", "(rows)") for n in (100, 171)}
    assert found(result) == expected and result.undecided == 0
    assert result.counts == {
        "different": len(ids),
        "missing in the lake": 2,
        "extra in the lake": 2,
    }
    assert "<td" in result._repr_html_()


def test_duplicates_and_wrong_partitions_are_named(bikes, spark):
    """The row of a key is in two partitions after a move; another one is not where its values say."""
    table = lake_table(bikes, "rides")
    rows = hudi.read(spark, table)
    moved = rows.where("id = 'ride/1'").withColumn("region", F.lit("old"))
    write(spark, table, moved, "insert")
    result = reconcile(bikes, "rides")
    assert found(result) == {
        ("ride/1, 1", "duplicate in the lake", "(rows)"),
        ("ride/1, 1", "duplicate in the lake", "region"),
    }
    assert result.rows == (300, 301)


def test_beside_a_writer_only_planted_differences_are_found(bikes, spark):
    table = lake_table(bikes, "trips")
    rows = hudi.read(spark, table)
    write(spark, table, rows.where("id = 1000").withColumn("name", F.lit("")))
    write(spark, table, rows.where("id = 1001"), "delete")
    write(spark, table, rows.where("id = 1002").withColumn("id", F.lit(9000)))
    stop, written = threading.Event(), []

    def change():
        draw = random.Random(7)
        with postgres.connect(bikes.source("bikes")) as connection:
            while not stop.wait(0.01):
                key = draw.choice([*range(40, 60), draw.randint(2000, 2900)])
                statement = draw.choice(
                    (
                        "UPDATE trips SET docked = NOT docked WHERE id = %s",
                        "DELETE FROM trips WHERE id = %s",
                        "INSERT INTO trips VALUES (%s, 'new', true) ON CONFLICT (id) DO UPDATE SET name = 'x'",
                    )
                )
                written.append(connection.execute(statement, [key]).rowcount)

    writer = threading.Thread(target=change)
    writer.start()
    try:
        result = reconcile(bikes, "trips")
    finally:
        stop.set()
        writer.join()
    assert sum(written) > 20, "the writer wrote"
    assert found(result) == {
        ("1000", "different", "name"),
        ("1001", "missing in the lake", "(rows)"),
        ("9000", "extra in the lake", "(rows)"),
    }
    assert result.undecided == 0


def test_mariadbs_types(world, spark):
    stack.ensure_running(world, "mariadb", "apicurio")
    mine = own_help.with_source(
        world,
        engine="mariadb",
        port=world.mysql.port,
        database=DATABASE,
        user=world.mysql.admin_user,
        password=world.mysql.admin_password,
    )
    mariadb.create_database(mine, DATABASE)
    try:
        mariadb.execute(mine, f"CREATE TABLE goods ({MARIADB_TYPES})", database=DATABASE)
        for key in range(1, 31):
            row = [key, *(None if (key + n) % 5 == 0 else v for n, v in enumerate(ROW[1:]))]
            insert = f"INSERT INTO goods VALUES ({', '.join(['%s'] * len(row))})"
            mariadb.execute(mine, insert, row, DATABASE)
        own.capture(mine, "bikes", "goods", flow="goods")
        (result,) = operate.reconcile(mine, "goods")
        assert result.is_equal and result.rows == (30, 30) and not result.not_compared, result
        table = own.load(mine, "goods").table(mine.source("bikes"), "goods")
        rows = hudi.read(spark, table)
        kinds = {
            name: kind for name, kind in rows.dtypes if not name.startswith("_") and name != "id"
        }
        ids = {name: n + 1 for n, name in enumerate(kinds)}
        changed = [
            F.expr(
                f"CASE WHEN id = {ids[name]} THEN {planted(name, kinds[name])} ELSE {name} END"
            ).alias(name)
            if name in ids
            else F.col(name)
            for name in rows.columns
        ]
        write(spark, table, rows.where(f"id <= {len(ids)}").select(*changed))
        (result,) = operate.reconcile(mine, "goods")
        assert found(result) == {(str(n), "different", name) for name, n in ids.items()}
    finally:
        if "goods" in own.names(mine):
            own.forget(mine, "goods")
        mariadb.execute(mine, f"DROP DATABASE {DATABASE}")
