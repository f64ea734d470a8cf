"""What can go wrong with a table that remembers: the past stays as it was, nothing is lost or there
twice."""

import dataclasses
import os
from types import SimpleNamespace

import avro_help
import pytest
from lake_help import (
    INLINE_COMPACTION,
    SCHEMA,
    change_record,
    following,
    kill_service_during,
    new_table,
    new_topic,
    produce,
)
from workbench import hudi
from workbench.base import paths, wait
from workbench.base.errors import LakeError, StackError
from workbench.base.wait import wait_until
from workbench.hudi import ingesting
from workbench.query import readcost
from workbench.source import postgres
from workbench.spark import session
from workbench.topic import topics

KINDS = [pytest.param("cow", marks=pytest.mark.drill), "mor"]  # track 50 has both
LOGS_FIRST = [
    pytest.param("cow", marks=pytest.mark.drill),
    "mor",
]  # where "mor" has the harder case
BY_HAND = {"hoodie.compact.inline": "false"}


@pytest.fixture
def lake(world, spark):
    """A maker of a topic and a table, with `go(label, *messages)`: send them, ingest them, label
    the instant."""
    made = []

    def make(kind="mor", **fields):
        topic = new_topic(world)
        table = new_table(world, type=kind, index="GLOBAL_SIMPLE", **{"extra": BY_HAND, **fields})
        made.append((topic, table))

        def go(label, *messages, **knobs):
            produce(world, topic, *messages)
            done = hudi.ingest(
                session(world), world, hudi.Topic(topic), table, schema=SCHEMA, **knobs
            )
            hudi.label(world, table, label)
            return done

        return SimpleNamespace(
            topic=topic,
            table=table,
            go=go,
            at=lambda label: rows(hudi.as_of(session(world), world, table, label)),
            now=lambda: rows(hudi.read(session(world), table)),
        )

    yield make
    for topic, table in made:
        hudi.drop(session(world), world, table)
        topics.delete(world, topic)


def rows(frame):
    return sorted(((r.id, r.part, r.text) for r in frame.collect()), key=str)


def independent(table, **how):
    frame = hudi.read_arrow(table, **how).to_pandas()
    return sorted(zip(frame["id"], frame["part"], frame["text"]), key=str) if len(frame) else []


@pytest.mark.parametrize("kind", LOGS_FIRST)
def test_late_events_change_no_instant(lake, kind):
    it = lake(kind)
    it.go("a", change_record(1, 10, "ten"), change_record(2, 10, "stays"))
    it.go("b", change_record(1, 20, "twenty", part="q", op="u"))
    it.go("late_event", change_record(1, 15, "fifteen", part="r", op="u"))
    it.go("late_delete", change_record(1, 12, op="d"), change_record(2, 9, op="d"))
    now = [(1, "q", "twenty"), (2, "p", "stays")]
    assert it.at("a") == [(1, "p", "ten"), (2, "p", "stays")]
    assert (
        it.at("b")
        == it.at("late_event")
        == it.at("late_delete")
        == it.now()
        == independent(it.table)
        == now
    )


@pytest.mark.parametrize("kind", LOGS_FIRST)
def test_deleted_and_inserted_again(lake, world, spark, kind):
    it = lake(kind)
    it.go("first", change_record(1, 1, "one"), change_record(2, 1))
    it.go("gone", change_record(1, 2, op="d"), ("1", None))
    it.go("again", change_record(1, 3, "back", part="q"))
    it.go(
        "both", change_record(1, 4, op="d"), change_record(1, 5, "back twice", part="r")
    )  # in one commit
    assert [it.at(label) for label in ("first", "gone", "again", "both")] == [
        [(1, "p", "one"), (2, "p", "x")],
        [(2, "p", "x")],
        [(1, "q", "back"), (2, "p", "x")],
        [(1, "r", "back twice"), (2, "p", "x")],
    ]
    for each in hudi.labels(world, it.table).itertuples():
        assert independent(it.table, as_of=(world, each.label)) == it.at(each.label), each.label
    assert rows(hudi.between(spark, world, it.table, "gone", "again")) == [(1, "q", "back")]


@pytest.mark.parametrize("kind", KINDS)
def test_a_null_partition_is_a_place_like_others(lake, spark, kind):
    it = lake(kind)
    it.go("null", change_record(1, 1, "one", part=None), change_record(2, 1, part=None))
    it.go("moved", change_record(1, 2, "one", op="u"), change_record(2, 2, op="d", part=None))
    it.go("back", change_record(1, 3, "one", op="u", part=None))
    assert it.at("null") == [(1, None, "one"), (2, None, "x")]
    assert it.at("moved") == [(1, "p", "one")] and it.at("back") == it.now() == [(1, None, "one")]
    (found,) = hudi.read(spark, it.table).collect()
    assert found["_hoodie_partition_path"] == "part=__HIVE_DEFAULT_PARTITION__"


def test_the_limit_an_empty_text_as_partition_value_reads_as_null(lake):
    """Known and documented in Table: Hudi has one partition for both, and Spark reads the value
    from its name."""
    it = lake("cow")
    it.go("loaded", change_record(1, 1, part=""), change_record(2, 1, part=None))
    assert it.now() == [(1, None, "x"), (2, None, "x")]
    assert independent(it.table) == [(1, "", "x"), (2, None, "x")], "the file has it"


def test_the_limit_of_hudi_rs_a_delete_and_a_move_in_one_commit(lake, spark):
    it = lake("mor")
    it.go("loaded", *[change_record(n, 1) for n in range(4)])
    it.go("both", change_record(1, 2, op="d"), change_record(2, 2, part="q", op="u"))
    assert it.now() == [(0, "p", "x"), (2, "q", "x"), (3, "p", "x")]
    with pytest.raises(
        LakeError, match="(?s)hudi-rs cannot read .*mixes ordering types.*hudi.read"
    ):
        independent(it.table)
    hudi.compact(spark, it.table)
    assert independent(it.table) == it.now()


def test_an_update_that_changes_the_primary_key(world, spark):
    """Debezium tells it as a delete of the old key and an insert of the new one."""
    name = "key_test"
    script = (
        "CREATE TABLE artists (artist_id int PRIMARY KEY, name text, nationality text);"
        "INSERT INTO artists VALUES (1, 'One', 'American'), (2, 'Two', 'German')"
    )
    with avro_help.museum(world, name, script, tables=["artists"]) as lab:
        topic = f"{name}.public.artists"
        made = {
            (kind, deletes): new_table(
                world,
                key=("artist_id",),
                partition=("nationality",),
                type=kind,
                index="GLOBAL_SIMPLE",
                deletes=deletes,
            )
            for kind, deletes in (("cow", "hard"), ("mor", "hard"), ("mor", "soft"))
        }
        try:
            topics.wait_for_messages(lab, topic, 2, connector=name)
            for step, count in (("before", 2), ("after", 5)):
                if step == "after":
                    postgres.execute(
                        lab,
                        "UPDATE artists SET artist_id = 7, nationality = 'French' WHERE artist_id = 1",
                    )
                topics.wait_for_messages(lab, topic, count, connector=name)
                for table in made.values():
                    done = hudi.ingest(spark, lab, hudi.Topic(topic, format="avro"), table)
                    hudi.label(world, table, step)
                    if step == "after":
                        assert (done.upserts, done.deletes, done.tombstones) == (1, 1, 1)
            for (kind, deletes), table in made.items():

                def seen(label, of=table):
                    then = hudi.as_of(spark, world, of, label)
                    return sorted((r.artist_id, r.name, r["__op"]) for r in then.collect())

                assert seen("before") == [(1, "One", "r"), (2, "Two", "r")], kind
                soft = [(1, None, "d")] if deletes == "soft" else []
                assert seen("after") == [*soft, (2, "Two", "r"), (7, "One", "c")], (kind, deletes)
        finally:
            for table in made.values():
                hudi.drop(spark, world, table)


# --- Spark dies
# ------------------------------------------------------------------------------------------------------


def pending(table, action, done):
    """Instants of an action that were begun and are not done."""
    names = set(os.listdir(paths.local_path(table.base) / ".hoodie"))
    begun = {n.split(".")[0] for n in names if n.endswith(f".{action}.inflight")}
    return begun - {n.split(".")[0] for n in names if n.endswith(f".{done}")}


def data_files(table):
    return set(readcost.data_files(table)["file"])


MANY = 1_000


def everywhere(it, world):
    """The rows as Spark's real-time view and hudi-rs have them; the same, and each key once."""
    now = it.now()
    assert now == independent(it.table) and len(now) == len({r[0] for r in now}) == MANY
    return {r[2] for r in now}


@pytest.mark.drill
def test_spark_killed_while_it_writes_a_log(lake, world, spark):
    it = lake()
    parts = [
        f"p{n % 20}" for n in range(MANY)
    ]  # a log in each: when the first is there, most are still to come
    it.go("loaded", *[change_record(n, 1, "one", part=p) for n, p in enumerate(parts)])
    produce(
        world, it.topic, *[change_record(n, 2, "two", part=p, op="u") for n, p in enumerate(parts)]
    )
    before = data_files(it.table)
    raised = kill_service_during(
        lambda: hudi.ingest(session(world), world, hudi.Topic(it.topic), it.table, schema=SCHEMA),
        lambda: data_files(it.table) - before,
        "a log is there, its commit is not",
    )
    assert pending(it.table, "deltacommit", "deltacommit"), (
        "it was committed before the kill: nothing is tested"
    )
    assert raised and isinstance(raised[0], StackError) and "the service spark" in str(raised[0]), (
        raised
    )
    assert everywhere(it, world) == {"one"} and it.at("loaded") == it.now(), "nothing of it shows"
    done = it.go("after")
    assert (done.messages, done.upserts) == (MANY, MANY) and everywhere(it, world) == {"two"}
    assert {r[2] for r in it.at("loaded")} == {"one"} and not pending(
        it.table, "deltacommit", "deltacommit"
    )


def optimised(world, table):
    found = (
        session(world)
        .read.format("hudi")
        .option("hoodie.datasource.query.type", "read_optimized")
        .load(table.base)
    )
    return sorted(((r.id, r.part, r.text) for r in found.collect()), key=str)


@pytest.mark.drill
def test_spark_killed_while_it_compacts(lake, world, spark):
    it = lake()
    it.go("loaded", *[change_record(n, 1, "one", part="pq"[n % 2]) for n in range(MANY)])
    it.go("updated", *[change_record(n, 2, "two", part="pq"[n % 2], op="u") for n in range(MANY)])
    hudi.compact(session(world), it.table, "schedule")
    before = data_files(it.table)
    raised = kill_service_during(
        lambda: hudi.compact(session(world), it.table, "run"),
        lambda: data_files(it.table) - before,
        "a new base file is there, the commit is not",
    )
    assert raised and pending(it.table, "compaction", "commit")
    assert everywhere(it, world) == {"two"} and {r[2] for r in it.at("loaded")} == {"one"}
    assert {r[2] for r in optimised(world, it.table)} == {"one"}, "half a compaction shows nowhere"
    # changes go on before it is mended, and are not lost by it
    it.go(
        "third",
        *[change_record(n, 3, "three", part="pq"[n % 2], op="u") for n in range(0, MANY, 2)],
    )
    assert {r[2] for r in it.now()} == {"two", "three"} and len(it.now()) == MANY
    with pytest.raises(LakeError, match="(?s)is pending: hudi-rs does not see.*hudi.compact"):
        independent(it.table)  # it would say "two" everywhere
    hudi.compact(session(world), it.table, "run")
    assert not pending(it.table, "compaction", "commit") and everywhere(it, world) == {
        "two",
        "three",
    }
    assert {r[2] for r in optimised(world, it.table)} == {"two"} and len(
        optimised(world, it.table)
    ) == MANY
    assert {r[2] for r in it.at("updated")} == {"two"} and {r[2] for r in it.at("loaded")} == {
        "one"
    }
    hudi.compact(session(world), it.table)
    assert optimised(world, it.table) == it.now() and len(it.now()) == MANY


@pytest.mark.parametrize(
    "extra",
    [{}, *[pytest.param(each, marks=pytest.mark.drill) for each in (BY_HAND, INLINE_COMPACTION)]],
)
def test_a_compaction_beside_an_ingest_that_goes_on(lake, world, spark, monkeypatch, extra):
    """Two writers: the table is whole, and neither is refused."""
    it, load, held = lake(extra=extra), ingesting.write_batch, []

    def noting(*args, **knobs):
        held.append(
            wait.lock_owner_pid(paths.local_path(it.table.base) / ".hoodie" / ".writing.lock")
        )
        return load(*args, **knobs)

    monkeypatch.setattr(ingesting, "write_batch", noting)
    count = 300
    it.go("loaded", *[change_record(n, 1, "one") for n in range(count)])
    source = hudi.Topic(it.topic)
    with following(session(world), world, source, it.table, SCHEMA) as stream:
        for lsn in range(2, 6):
            changed = [change_record(n, lsn, str(lsn), op="u") for n in range(count)]
            produce(world, it.topic, *changed)
            hudi.compact(session(world), it.table)
        wait_until(
            lambda: stream.counts().messages == 4 * count,
            "the ingest",
            failure_reason=stream.failure,
            timeout=120,
        )
    assert held[0] == "" and set(held[1:]) == {str(os.getpid())}, (
        "a plan must wait for every commit but the first"
    )
    it.go("after", change_record(count, 1, "new"))
    hudi.compact(session(world), it.table)
    now = it.now()
    assert now == independent(it.table) == optimised(world, it.table)
    assert now == sorted([*((n, "p", "5") for n in range(count)), (count, "p", "new")], key=str)
    assert {r[2] for r in it.at("loaded")} == {"one"}


def test_a_batch_is_committed_though_the_compaction_after_it_fails(lake, world):
    it = lake(extra=INLINE_COMPACTION)
    it.go("loaded", change_record(1, 1, "one"))
    produce(world, it.topic, change_record(1, 2, "two", op="u"))
    strategy = {"hoodie.compaction.strategy": "no.such.Strategy"}
    failing = dataclasses.replace(it.table, extra={**INLINE_COMPACTION, **strategy})
    with pytest.raises(LakeError, match="(?s)a batch is committed.*no row is lost"):
        hudi.ingest(session(world), world, hudi.Topic(it.topic), failing, schema=SCHEMA)
    assert it.now() == [(1, "p", "two")]
    assert it.go("mended", change_record(1, 3, "three", op="u")).messages == 1
    assert it.now() == [(1, "p", "three")]
