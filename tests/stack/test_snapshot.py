"""Batches of a snapshot are bulk inserts while it runs; the lake equals the source whatever comes."""

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import avro_help
import pytest
from lake_help import (
    SCHEMA,
    change_record,
    kill_service_during,
    new_table,
    new_topic,
    produce,
    table_content,
)
from pyspark.sql import types as T
from workbench import connect, hudi
from workbench.base import paths
from workbench.base.wait import wait_until
from workbench.hudi import changes
from workbench.results import check
from workbench.source import postgres
from workbench.spark import session
from workbench.topic import registry, topics

BATCH = 50  # messages
NAME, ROWS = "overlapped", 6_000
SCRIPT = f"""
    CREATE TABLE visits (id int PRIMARY KEY, part text NOT NULL, n int NOT NULL);
    ALTER TABLE visits REPLICA IDENTITY FULL;
    INSERT INTO visits SELECT id, 'p' || id % 2, 0 FROM generate_series(1, {ROWS}) AS id;
"""
# A snapshot of several seconds: at most one row in half a millisecond.
SLOW = {
    "table.include.list": "public.visits",
    "snapshot.select.statement.overrides": "public.visits",
    "snapshot.select.statement.overrides.public.visits": "SELECT * FROM public.visits WHERE "
    "pg_sleep(0.0005)::text = ''",
    "snapshot.fetch.size": "100",
    "max.batch.size": "100",
}


@pytest.fixture
def lake(world, spark, monkeypatch):
    """A topic and a table of their own, with `go(*messages)`: send and ingest them."""
    monkeypatch.setattr(changes, "SMALL_BATCH_MESSAGES", 2)
    made = []

    def make(**fields):
        topic, table = new_topic(world), new_table(world, **fields)
        made.append((topic, table))

        def go(*messages, **knobs):
            produce(world, topic, *messages)
            knobs = {"schema": SCHEMA, "batch": BATCH, **knobs}
            return hudi.ingest(session(world), world, hudi.Topic(topic), table, **knobs)

        return SimpleNamespace(
            topic=topic,
            table=table,
            go=go,
            rows=lambda: table_content(session(world), table),
            operations=lambda: list(hudi.commits(table)["operation"]),
        )

    yield make
    for topic, table in made:
        hudi.drop(session(world), world, table)
        topics.delete(world, topic)


def reads(*keys, lsn=1):
    return [change_record(key, lsn, part="pq"[key % 2], op="r") for key in keys]


def expected(*keys, lsn=1):
    return [(key, "pq"[key % 2], "x", lsn) for key in keys]


@pytest.mark.parametrize("kind, index", [("cow", "SIMPLE"), ("mor", "GLOBAL_SIMPLE")])
def test_batches_of_new_rows_are_bulk_inserts(lake, kind, index):
    it = lake(type=kind, index=index)
    keys = [n * 37 % 101 for n in range(2 * BATCH)]  # in no order
    done = it.go(*reads(*keys))
    assert (done.upserts, done.batches) == (2 * BATCH, 2)
    it.go(*reads(101))  # a small batch makes no small file, and does not end the mode
    it.go(*reads(102, 103, 104))
    assert it.operations() == ["BULK_INSERT", "BULK_INSERT", "UPSERT", "BULK_INSERT"]
    assert it.rows() == expected(*sorted(keys), 101, 102, 103, 104)


# {what ends the mode: the messages of the second batch, and {key: ordering value} that it leaves}
FIRST = range(10, 20)
ENDS = {
    "a change": ([*reads(1, 2, 3), change_record(4, 5, "x", "p", "c")], {1: 1, 2: 1, 3: 1, 4: 5}),
    "a delete": ([*reads(1, 2, 3), change_record(12, 5, "x", "p", "d")], {1: 1, 2: 1, 3: 1}),
    "a tombstone": ([*reads(1, 2, 3), ("1", None)], {1: 1, 2: 1, 3: 1}),
    "a dead letter": ([*reads(1, 2, 3), {**reads(4)[0], "id": None}], {1: 1, 2: 1, 3: 1}),
    "a repeated key": ([*reads(1, 2, 3), *reads(2, lsn=5)], {1: 1, 2: 5, 3: 1}),
    "a known key": ([*reads(1, 2, 30), *reads(15, lsn=5)], {1: 1, 2: 1, 15: 5, 30: 1}),
    "all rows again": (reads(*FIRST, 20, lsn=5), {key: 5 for key in (*FIRST, 20)}),
    "a small change": ([change_record(15, 5, part="q", op="u")], {15: 5}),
    "a repeated key, small": ([*reads(1), *reads(1, lsn=5)], {1: 5}),
}
SHORT = ("a change", "a repeated key", "a known key", "a repeated key, small")


@pytest.mark.parametrize(
    "what",
    [what if what in SHORT else pytest.param(what, marks=pytest.mark.drill) for what in ENDS],
)
def test_what_ends_the_mode_ends_it_for_good(lake, what):
    messages, after = ENDS[what]
    it = lake()
    it.go(*reads(*FIRST))
    it.go(*messages)
    it.go(*reads(31, 32, 33))
    assert it.operations() == ["BULK_INSERT", "UPSERT", "UPSERT"]
    content = {**dict.fromkeys(FIRST, 1), **after, 31: 1, 32: 1, 33: 1}
    if what == "a delete":
        del content[12]
    assert it.rows() == [row for key in sorted(content) for row in expected(key, lsn=content[key])]


def test_a_first_batch_that_is_no_snapshot_begins_no_mode(lake):
    for first in (
        [*reads(1, 2, 3), change_record(4, 1, part="p", op="c")],
        [*reads(1, 2, 3, 4), *reads(4)],
    ):
        it = lake()
        it.go(*first)
        it.go(*reads(5, 6, 7))
        assert it.operations() == ["BULK_INSERT", "UPSERT"]
        assert it.rows() == expected(*range(1, 8))


NO_OP = T.StructType([f for f in SCHEMA if f.name != "__op"])


@pytest.mark.parametrize(
    "fields, schema, keys",
    [
        ({"index": "BUCKET"}, SCHEMA, range(1, 7)),
        ({"key": ("part",)}, SCHEMA, (5, 6)),  # two rows: the key is a partition
        ({}, NO_OP, range(1, 7)),
    ],
)
def test_tables_without_the_mode(lake, fields, schema, keys):
    it = lake(**fields)
    for part in ((1, 2), (3, 4, 5, 6)):
        it.go(*[row for n in part for row in reads(n, lsn=n)], schema=schema)
    assert it.operations() == ["BULK_INSERT", "UPSERT"]
    assert [row[0] for row in it.rows()] == list(keys)


def test_a_key_with_a_partition_field(lake):
    """An empty text reads as null there: the other fields of the key are compared."""
    it = lake(key=("id", "part"))
    empty = [{**row, "part": ""} for row in reads(1, 2, 3)]
    it.go(*empty)
    it.go(*reads(4, 5, 6))
    it.go(*[{**row, "__lsn": 5} for row in empty])
    assert it.operations() == ["BULK_INSERT", "BULK_INSERT", "UPSERT"]
    assert [(row[0], row[3]) for row in it.rows()] == [(n, 5 if n < 4 else 1) for n in range(1, 7)]


def test_other_commits_end_the_mode(lake, world, spark):
    it = lake()
    it.go(*reads(1, 2, 3))
    other = new_topic(world)
    produce(world, other, *reads(4, 5, 6))
    hudi.ingest(spark, world, hudi.Topic(other), it.table, schema=SCHEMA)
    topics.delete(world, other)
    it.go(*reads(7, 8, 9))
    assert it.operations() == ["BULK_INSERT", "UPSERT", "UPSERT"]
    more = T.StructType([*SCHEMA, T.StructField("more", T.StringType())])
    wider = lake()
    wider.go(*reads(1, 2, 3))
    wider.go(*reads(4, 5, 6), schema=more)
    assert wider.operations() == ["BULK_INSERT", "UPSERT"]
    sql = lake()
    sql.go(*reads(1, 2, 3))
    row = hudi.read(spark, sql.table).where("id = 3").drop("_hoodie_is_deleted")
    hidden = [name for name in row.columns if name.startswith("_hoodie")]
    options = {**sql.table.options(), "hoodie.datasource.write.operation": "delete"}
    row.drop(*hidden).write.format("hudi").options(**options).mode("append").save(sql.table.base)
    sql.go(*reads(7, 8, 9))
    assert sql.operations() == ["BULK_INSERT", "DELETE", "UPSERT"]
    assert sql.rows() == expected(1, 2, 7, 8, 9)


def test_an_ingest_waits_until_the_source_is_complete(lake):
    """It takes whole batches until then, and the rest at the end."""
    it, keys, commits = lake(), range(BATCH + 10), []

    def is_complete():
        commits.append(len(it.operations()))
        return len(commits) >= 5

    assert it.go(*reads(*keys), until=is_complete).batches == 2
    assert commits == [0, 1, 1, 1, 1, 2]
    assert it.rows() == expected(*keys)


@pytest.fixture
def visits(world, spark, monkeypatch):
    """The slow snapshot of a source table, and tables of both types that are ingested beside it."""
    monkeypatch.setattr(changes, "SMALL_BATCH_MESSAGES", 2)
    stopped = threading.Event()
    with avro_help.museum(world, NAME, SCRIPT, tables=("visits",), **SLOW) as lab:
        topic = f"{NAME}.public.visits"
        topics.wait_for_messages(lab, topic, 1, connector=NAME)
        tables = [
            hudi.table(
                lab, f"{NAME}_{kind}", key=("id",), ordering="__lsn", partition=("part",), type=kind
            )
            for kind in ("cow", "mor")
        ]
        source = hudi.Topic(topic, format="avro")

        def span(n):
            return topics.wait_for_messages(lab, topic, n, connector=NAME)

        def load(table):
            return hudi.ingest(session(lab), lab, source, table, batch=1_000, until=stopped.is_set)

        with ThreadPoolExecutor(2) as pool:
            jobs = [pool.submit(load, table) for table in tables]
            try:
                yield SimpleNamespace(
                    lab=lab, topic=topic, tables=tables, jobs=jobs, span=span, stopped=stopped
                )
            finally:
                stopped.set()
        for table in tables:
            hudi.drop(spark, lab, table)


def equals_source(it, world):
    """Add a row, and wait until the tables have it; return the operations of each table."""
    postgres.execute(it.lab, f"INSERT INTO visits VALUES ({ROWS + 1}, 'p1', 1)")
    wait_until(lambda: last_id(it) == ROWS + 1, "the last row in the topic", timeout=60)
    it.stopped.set()
    for job in it.jobs:
        job.result(120)
    source = postgres.query(it.lab, "SELECT id, part, n FROM visits")
    for table in it.tables:
        lake = hudi.read(session(world), table).select("id", "part", "n").toPandas()
        check.same_rows(source, lake, key="id", claim=f"{table.name} = source")
    return [list(hudi.commits(table)["operation"]) for table in it.tables]


def last_id(it):
    """Return the id in the last message of the topic."""
    ends = topics.end_offsets(it.lab, it.topic)
    last = topics.read(it.lab, it.topic, start_offsets={p: n - 1 for p, n in ends.items()})
    record = registry.inspect_message(it.lab, last["value"].iloc[-1])["record"]
    return record and record["id"]


def change(it):
    postgres.execute(it.lab, "UPDATE visits SET n = n + 1 WHERE id % 100 = 0")
    postgres.execute(it.lab, "DELETE FROM visits WHERE id % 100 = 1")


def test_changes_during_the_snapshot(visits, world):
    visits.span(ROWS // 3)
    change(visits)
    for operations in equals_source(visits, world):
        assert operations[:2] == ["BULK_INSERT"] * 2 and operations[-1] == "UPSERT"


def test_an_interrupted_snapshot(visits, world):
    before = visits.span(ROWS // 2)
    config = {**connect.deployed(visits.lab, NAME), "poll.interval.ms": "60"}
    connect.apply(visits.lab, NAME, config)  # restarts the connector's task
    visits.span(before + ROWS // 2)  # the second attempt is on its way
    change(visits)
    for operations in equals_source(visits, world):
        assert operations[:2] == ["BULK_INSERT"] * 2
        assert set(operations[operations.index("UPSERT") :]) == {"UPSERT"}
    total = topics.offset_span(visits.lab, visits.topic)
    assert total > ROWS * 5 // 4, "the snapshot was not interrupted: nothing is tested"


@pytest.mark.drill
def test_spark_killed_during_a_bulk_insert(lake):
    it, keys = lake(), range(60_000)
    it.go(*reads(*keys[:20_000]), batch=20_000)
    folder = paths.local_path(it.table.base)

    def data_files():
        return {p for p in folder.rglob("*.parquet") if not p.name.startswith(".")}

    before = data_files()
    raised = kill_service_during(
        lambda: it.go(*reads(*keys[20_000:]), batch=20_000),
        lambda: data_files() - before,
        "a file is there, its commit is not",
    )
    assert raised and it.operations() == ["BULK_INSERT"], "it was committed before the kill"
    assert it.rows() == expected(*keys[:20_000])
    it.go(batch=20_000)
    assert it.rows() == expected(*keys)
    assert it.operations() == ["BULK_INSERT"] * 3
