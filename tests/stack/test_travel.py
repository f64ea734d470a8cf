"""A table's past on real Kafka and Spark: as of labels, increments, both views of a Merge-on-Read
table."""

import os
from types import SimpleNamespace

import pytest
from lake_help import INLINE_COMPACTION, SCHEMA, change_record, new_table, new_topic, produce
from workbench import hudi
from workbench.base import paths
from workbench.base.errors import LakeError
from workbench.topic import topics

KINDS = [pytest.param("cow", marks=pytest.mark.drill), "mor"]  # track 50 has both
# written once, looked at by several tests: four commits, each under a label
HISTORY = [
    (
        "loaded",
        [change_record(1, 1, "one"), change_record(2, 1, "two"), change_record(3, 1, "three")],
    ),
    ("updated", [change_record(1, 2, "one, changed")]),
    ("moved", [change_record(1, 3, "one, moved", part="q"), change_record(4, 1, "four")]),
    ("deleted", [change_record(2, 2, op="d")]),
]


@pytest.fixture(scope="module", params=KINDS)
def past(world, spark, request):
    topic = new_topic(world)
    table = new_table(
        world, type=request.param, index="GLOBAL_SIMPLE", extra={"hoodie.compact.inline": "false"}
    )
    for label, messages in HISTORY:
        produce(world, topic, *messages)
        hudi.ingest(spark, world, hudi.Topic(topic), table, schema=SCHEMA)
        hudi.label(world, table, label)
    yield SimpleNamespace(table=table, kind=request.param, rows=lambda frame: rows(frame))
    hudi.drop(spark, world, table)
    topics.delete(world, topic)


def rows(frame):
    return sorted((r.id, r.part, r.text) for r in frame.collect())


NOW = [(1, "q", "one, moved"), (3, "p", "three"), (4, "p", "four")]


def test_the_table_as_of_each_label(past, world, spark):
    def at(label):
        return rows(hudi.as_of(spark, world, past.table, label))

    assert at("loaded") == [(1, "p", "one"), (2, "p", "two"), (3, "p", "three")]
    assert at("updated") == [(1, "p", "one, changed"), (2, "p", "two"), (3, "p", "three")]
    assert at("moved") == [
        (1, "q", "one, moved"),
        (2, "p", "two"),
        (3, "p", "three"),
        (4, "p", "four"),
    ]
    assert at("deleted") == rows(hudi.read(spark, past.table)) == NOW


def test_the_time_of_the_request_orders_commits_not_that_of_completion(past, world, spark):
    """Hudi 1.0.2 takes a file's modification time for the completion time of a commit in table
    version 6."""
    first = hudi.commits(past.table)["instant"].iloc[0]
    files_of_it = list((paths.local_path(past.table.base) / ".hoodie").glob(f"{first}.*commit"))
    (was,) = [f.stat().st_mtime for f in files_of_it]
    os.utime(files_of_it[0], (was + 3600,) * 2)  # as if it had ended after all others
    try:
        labels = hudi.labels(world, past.table)
        assert list(labels["label"]) == [label for label, _ in HISTORY]
        assert [r[2] for r in rows(hudi.as_of(spark, world, past.table, "loaded"))] == [
            "one",
            "two",
            "three",
        ]
        assert (
            rows(hudi.as_of(spark, world, past.table, "deleted"))
            == rows(hudi.read(spark, past.table))
            == NOW
        )
        assert rows(hudi.between(spark, world, past.table, "updated", "moved")) == [
            (1, "q", "one, moved"),
            (4, "p", "four"),
        ]
        assert rows(hudi.between(spark, world, past.table, "loaded")) == [
            (1, "q", "one, moved"),
            (4, "p", "four"),
        ]
    finally:
        os.utime(files_of_it[0], (was,) * 2)


def test_increments_begin_is_exclusive_and_end_inclusive(past, world, spark):
    """And the time that orders them is that of the request, the only one in table version 6."""

    def between(begin="", end=""):
        return rows(hudi.between(spark, world, past.table, begin, end))

    assert between("loaded", "updated") == [(1, "p", "one, changed")]
    assert between("updated", "updated") == []
    assert between("updated", "moved") == [(1, "q", "one, moved"), (4, "p", "four")]
    assert between(end="loaded") == [(1, "p", "one"), (2, "p", "two"), (3, "p", "three")]
    assert between("loaded") == [(1, "q", "one, moved"), (4, "p", "four")], (
        "a deleted row is in no increment"
    )


def test_the_two_views_of_a_merge_on_read_table(lake, world, spark):
    it = lake(
        type="mor",
        catalog="people",
        index="GLOBAL_SIMPLE",
        extra={"hoodie.compact.inline": "false"},
    )
    database = it.table.database

    def go(*messages):
        it.go(*messages)
        return hudi.register(spark, it.table)

    def view(kind):
        return rows(spark.table(f"{database}.people_{kind}"))

    assert go(change_record(1, 1, "old"), change_record(2, 1, "stays")) == f"{database}.people_rt"
    go(change_record(1, 2, "new"))
    assert view("ro") == [(1, "p", "old"), (2, "p", "stays")]
    assert view("rt") == [(1, "p", "new"), (2, "p", "stays")]
    shown = spark.sql(f"SHOW CREATE TABLE {database}.people_ro").first()[0]
    assert "'hoodie.query.as.ro.table' = 'true'" in shown.replace('"', "'")
    go(change_record(1, 3, "gone elsewhere", part="q"))
    assert len(view("ro")) == 3 and len(view("rt")) == 2, (
        "until compaction, one row for each partition"
    )
    hudi.compact(spark, it.table)
    assert view("ro") == view("rt") == [(1, "q", "gone elsewhere"), (2, "p", "stays")]
    assert hudi.properties(it.table)["hoodie.table.version"] == "6"
    hudi.drop(spark, world, it.table)
    assert not spark.catalog.tableExists(f"{database}.people_ro")


def test_an_instant_that_was_archived(lake, world, spark):
    """Hudi takes the first commits off the timeline: it would answer without them, and say
    nothing."""
    it = lake(
        extra={
            "hoodie.keep.min.commits": "2",
            "hoodie.keep.max.commits": "3",
            "hoodie.cleaner.commits.retained": "1",
        }
    )
    for n in range(6):
        it.go(change_record(n, n + 1, f"row {n}"))
        hudi.label(world, it.table, f"v{n}")
    first = hudi.labels(world, it.table).set_index("label").loc["v0", "instant"]
    assert first < hudi.commits(it.table)["instant"].iloc[0], "nothing was archived"
    everything = [(n, "p", f"row {n}") for n in range(6)]
    assert rows(hudi.read(spark, it.table)) == everything
    assert rows(hudi.as_of(spark, world, it.table, "v5")) == everything
    for when in ("v0", first):
        with pytest.raises(LakeError, match="(?s)were archived.*an instant from"):
            hudi.as_of(spark, world, it.table, when)
        with pytest.raises(LakeError, match="were archived"):
            hudi.read_arrow(it.table, as_of=(world, when)).to_pandas()
        with pytest.raises(LakeError, match="were archived"):
            hudi.between(spark, world, it.table, when)
    with pytest.raises(LakeError, match="(?s)first commits of .* were archived.*as_of"):
        hudi.between(spark, world, it.table)
    assert rows(hudi.between(spark, world, it.table, "v4")) == everything[5:]


@pytest.mark.parametrize("kind", KINDS)
def test_an_instant_that_was_cleaned(lake, world, spark, kind):
    it = lake(
        type=kind,
        extra={
            "hoodie.cleaner.policy": "KEEP_LATEST_FILE_VERSIONS",
            "hoodie.cleaner.fileversions.retained": "1",
            **(INLINE_COMPACTION if kind == "mor" else {}),
        },
    )
    for n in range(4):
        it.go(change_record(1, n + 1, f"version {n}"))
        hudi.label(world, it.table, f"v{n}")
    last = [(1, "p", "version 3")]
    assert rows(hudi.as_of(spark, world, it.table, "v3")) == last
    with pytest.raises(LakeError, match="(?s)were cleaned away.*an instant from"):
        hudi.as_of(spark, world, it.table, "v0")
    with pytest.raises(LakeError, match="cleaned away"):
        hudi.between(spark, world, it.table, "v0", "v1")
    for begin in ("", "v0"):  # of the begin nothing is read
        assert rows(hudi.between(spark, world, it.table, begin)) == last
