"""Batches of a snapshot are bulk inserts while it runs; the lake equals the source whatever comes."""

from types import SimpleNamespace

import pytest
from lake_help import (
    SCHEMA,
    change_record,
    new_table,
    new_topic,
    produce,
    table_content,
)
from pyspark.sql import types as T
from workbench import hudi
from workbench.hudi import changes
from workbench.spark import session
from workbench.topic import topics

BATCH = 50  # messages


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
