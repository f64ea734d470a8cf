"""Confluent's sink, done by the landing on real parts: Parquet of Debezium's Avro, JSON lines and
Parquet of JSON with its schema; killed in the middle, it lands each record once."""

import json
import random
import subprocess
import sys
from decimal import Decimal

import avro_help
import pytest
from confluent_sink import (
    FIELD_PARTITIONER,
    PARQUET,
    address_row,
    json_message,
)
from lake_help import new_topic, produce
from pyarrow import parquet
from pyspark.sql import functions as F
from workbench import connect, landing
from workbench.base import paths
from workbench.base.wait import wait_until
from workbench.source import postgres
from workbench.topic import topics

NAME = "parquet_test"
FILM, ACTOR = f"{NAME}.public.film", f"{NAME}.public.actor"
SCRIPT = r"""
    CREATE TYPE rating AS ENUM ('G', 'PG');
    CREATE DOMAIN year AS integer CHECK (VALUE > 1900);
    CREATE TABLE actor (actor_id int PRIMARY KEY, first_name text NOT NULL);
    INSERT INTO actor SELECT n, 'Actor ' || n FROM generate_series(1, 5) n;
    CREATE TABLE film (
      film_id int PRIMARY KEY, title text NOT NULL, release_year year, rental_duration smallint NOT NULL DEFAULT 3,
      rental_rate numeric(4, 2) NOT NULL DEFAULT 4.99, free numeric, rating rating, special_features text[],
      shown daterange, ratio double precision, raw bytea, doc jsonb, day date, seen timestamp,
      at timestamptz NOT NULL DEFAULT now(), clock time, id uuid);
    INSERT INTO film SELECT n, 'Film ' || n, 2006, 6, 0.99, 1.5, 'PG', ARRAY['Trailers', NULL],
      '[2020-01-01,2020-02-01)', CASE n WHEN 1 THEN 'NaN'::float8 WHEN 2 THEN '-Infinity'::float8 ELSE 0.1 END,
      '\x0001', '{"a": 1}', CASE n WHEN 3 THEN DATE '1582-10-15' ELSE DATE '2006-02-15' END,
      TIMESTAMP '2021-08-19 03:19:57.073053', '2017-09-10 17:46:03.905795+00', TIME '23:59:59.999999', gen_random_uuid()
      FROM generate_series(1, 25) n"""


@pytest.fixture(scope="module")
def lab(world):
    """A database whose connector has no transform, as the published one begins: whole envelopes."""
    flat = dict.fromkeys(
        k for k in connect.config(world, "moma_source") if k.startswith("transforms")
    )
    tables = {"table.include.list": "public.film,public.actor"}
    with avro_help.museum(world, NAME, SCRIPT, ("film", "actor"), **flat, **tables) as lab:
        yield lab


@pytest.fixture
def sink(lab):
    config = {
        **PARQUET,
        **{k: v for k, v in avro_help.sink_config(lab, NAME).items() if "converter" in k},
        "flush.size": "10",
        "topics.regex": rf"{NAME}\.public\.(.*)",
    }
    del config["topics"]
    yield config
    landing.drop(lab, config)


@pytest.fixture
def topic(world):
    name = new_topic(world)
    yield name
    topics.delete(world, name)


def names(world, topic, folder="topics"):
    root = paths.local_path(world.lake.landing) / folder / topic
    return [str(p.relative_to(root)) for p in sorted(root.rglob("*")) if p.is_file()]


def contents(world, topic, folder="topics"):
    """Return {path: bytes} of the files that a reader sees."""
    root = paths.local_path(world.lake.landing) / folder / topic
    visible = [n for n in names(world, topic, folder) if not n.rpartition("/")[2].startswith(".")]
    return {name: (root / name).read_bytes() for name in visible}


def read(spark, world, topic):
    return spark.read.parquet(f"{world.lake.landing}/topics/{topic}")


def test_parquet_of_debezium_avro_and_a_change_of_the_schema(lab, spark, sink):
    topics.wait_for_messages(lab, FILM, 25, connector=NAME)
    topics.wait_for_messages(lab, ACTOR, 5, connector=NAME)
    done = landing.run(lab, sink)
    assert (done.records, done.dead_letters, done.objects) == (30, 0, 4)
    assert names(lab, FILM) == [f"partition=0/{FILM}+0+{n:010d}.gz.parquet" for n in (0, 10, 20)]
    film = read(spark, lab, FILM)
    kinds = {f.name: f.dataType.simpleString() for f in film.schema["after"].dataType}
    assert kinds == {
        "film_id": "int",
        "title": "string",
        "release_year": "int",
        "rental_duration": "int",
        "rental_rate": "decimal(4,2)",
        "free": "struct<scale:int,value:binary>",
        "rating": "string",
        "special_features": "array<string>",
        "shown": "string",
        "ratio": "double",
        "raw": "binary",
        "doc": "string",
        "day": "int",
        "seen": "bigint",
        "at": "string",
        "clock": "bigint",
        "id": "string",
    }
    rows = {r["after"]["film_id"]: r for r in film.collect()}
    assert len(rows) == 25 and all(r["op"] == "r" and r["before"] is None for r in rows.values())
    one = rows[1]["after"]
    assert (one["rental_rate"], one["special_features"], one["seen"], one["at"]) == (
        Decimal("0.99"),
        ["Trailers", None],
        1629343197073053,
        "2017-09-10T17:46:03.905795Z",
    )
    assert str(one["ratio"]) == "nan" and rows[2]["after"]["ratio"] == float("-inf")
    assert rows[3]["after"]["day"] == -141427, "days since 1970, of the calendar without a gap"
    assert (
        rows[1]["source"]["snapshot"].startswith(("first", "true"))
        and rows[1]["source"]["table"] == "film"
    )

    postgres.execute(
        lab, "UPDATE film SET release_year = 2021, rental_rate = 2.99 WHERE film_id = 1"
    )
    postgres.execute(lab, "ALTER TABLE film ADD COLUMN length smallint")
    postgres.execute(lab, "UPDATE film SET length = 86 WHERE film_id = 1")
    postgres.execute(lab, "DELETE FROM film WHERE film_id = 5")
    topics.wait_for_messages(lab, FILM, 29, connector=NAME)  # with the delete's tombstone
    more = landing.run(lab, sink)
    assert (more.records, more.tombstones, more.objects) == (3, 1, 2), "a file holds one schema"
    assert names(lab, FILM)[3:] == [f"partition=0/{FILM}+0+{n:010d}.gz.parquet" for n in (25, 26)]
    film = spark.read.option("mergeSchema", "true").parquet(f"{lab.lake.landing}/topics/{FILM}")
    changed = film.where("op = 'u'").orderBy("source.lsn").select("after.*").collect()
    assert [(r.release_year, r.rental_rate, r.length) for r in changed] == [
        (2021, Decimal("2.99"), None),
        (2021, Decimal("2.99"), 86),
    ]
    gone = film.where("op = 'd'").collect()[0]
    assert gone["after"] is None and gone["before"]["film_id"] == 5
    assert gone["before"]["at"] == "1970-01-01T00:00:00.000000Z", (
        "what is no key is its type's default"
    )
    assert landing.run(lab, sink) == landing.LandingCounts()


LANDER = """
import json, sys
from workbench import landing
from workbench.base import params
landing.run(params.load("local"), json.loads(sys.argv[1]), batch=300)
"""


@pytest.mark.parametrize("kills", [3, pytest.param(30, marks=pytest.mark.drill)])
def test_killed_while_landing_each_record_is_there_once(world, spark, topic, kills):
    """A process is killed at random moments of a landing in small batches; nothing is half-written,
    lost or doubled: the files are to the byte those of a landing that was not killed."""
    count, rng = 600 * kills, random.Random(kills)
    root = paths.local_path(world.lake.landing) / "topics" / topic
    produce(world, topic, *[(str(n), json_message(address_row(n))) for n in range(count)])
    sink = {**PARQUET, **FIELD_PARTITIONER, "topics": topic, "flush.size": "50"}
    whole = {**sink, "topics.dir": "whole"}
    try:
        for _ in range(kills):
            wanted = len(names(world, topic)) + rng.randrange(20)
            process = subprocess.Popen([sys.executable, "-c", LANDER, json.dumps(sink)])
            wait_until(
                lambda n=wanted: len(names(world, topic)) > n,
                "more files",
                interval=0.001,
                failure_reason=lambda p=process: f"exit code {p.poll()}" if p.poll() else None,
            )
            process.kill()
            process.wait()
            for name in names(world, topic):
                if not name.rpartition("/")[2].startswith("."):  # a visible file is whole
                    parquet.ParquetFile(root / name).read()
        landing.run(world, sink, batch=300)
        landing.run(world, whole, batch=300)
        assert contents(world, topic) == contents(world, topic, "whole")
        rows = read(spark, world, topic)
        assert sorted(r.address_id for r in rows.select("address_id").collect()) == list(
            range(count)
        )
        firsts = (
            rows.groupBy(F.input_file_name().alias("file"))
            .agg(F.min("address_id").alias("n"))
            .collect()
        )
        assert all(r.n == int(r.file[-len("0000000000.gz.parquet") :][:10]) for r in firsts), (
            "names say first offsets"
        )
    finally:
        landing.drop(world, sink)
        landing.drop(world, whole)
