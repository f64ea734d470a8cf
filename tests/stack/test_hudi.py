"""Changes into Hudi tables on real Kafka and Spark: order, replays, poison, counts."""

import dataclasses
import json
import time

import pytest
from confluent_kafka import Producer
from lake_help import (
    SCHEMA,
    change_record,
    following,
    new_table,
    new_topic,
    produce,
    table_content,
)
from pyspark.sql import types as T
from workbench import hudi
from workbench.base import files, paths
from workbench.base.errors import LakeError
from workbench.base.wait import wait_until
from workbench.hudi.tables import table_lock
from workbench.query import readcost
from workbench.topic import topics


def test_a_table_of_another_type_is_refused(lake, world, spark):
    it = lake()
    it.go(change_record(1, 1))
    stored, other = it.table, dataclasses.replace(it.table, type="mor")
    for action in (
        lambda: hudi.ingest(spark, world, hudi.Topic(it.topic), other, schema=SCHEMA),
        lambda: hudi.register(spark, other),
        lambda: hudi.compact(spark, other),
    ):
        with pytest.raises(LakeError, match='(?s)is COPY_ON_WRITE, not MERGE_ON_READ.*type="cow"'):
            action()
    assert table_content(spark, stored) == [(1, "p", "x", 1)]


def test_a_batch_of_taken_back_messages_only(lake, world, spark):
    it = lake()
    it.go(change_record(1, 1))
    producer = Producer(topics.settings(world, **{"transactional.id": it.topic}))
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(it.topic, key="2", value=json.dumps(change_record(2, 2)), partition=0)
    assert producer.flush(20) == 0
    producer.abort_transaction(20)
    for _ in range(2):
        assert it.go().messages == 0 and it.rows() == [(1, "p", "x", 1)]
    assert it.go(change_record(3, 3)).upserts == 1 and len(it.rows()) == 2


def test_a_second_run_makes_no_commit_and_a_replay_changes_nothing(lake, world, spark):
    it = lake()
    it.go(
        change_record(1, 1),
        change_record(2, 1),
        change_record(1, 2, "new"),
        change_record(2, 3, op="d"),
        change_record(3, 1, part="q"),
        ("k", "{no"),
    )
    before, done = it.rows(), len(hudi.commits(it.table))
    assert it.go() == hudi.Ingested() and len(hudi.commits(it.table)) == done
    again = it.go(replay=True)
    assert again.messages == 6 and len(hudi.commits(it.table)) == done + 1
    assert it.rows() == before == [(1, "p", "new", 2), (3, "q", "x", 1)]
    assert len(it.dead()) == 1 and it.go() == hudi.Ingested()


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_small_whole_number_is_an_int_of_hudi_in_each_ingest(lake, world, spark, kind):
    it = lake(type=kind)
    schema = T.StructType(
        [
            *SCHEMA,
            T.StructField("o", T.ShortType()),
            T.StructField("t", T.ByteType()),
            T.StructField("l", T.ArrayType(T.ShortType())),
        ]
    )
    for key in (1, 2):
        produce(
            world,
            it.topic,
            {**change_record(key, key), "o": 300 * key, "t": -key, "l": [key, None]},
        )
        assert hudi.ingest(spark, world, hudi.Topic(it.topic), it.table, schema=schema).upserts == 1
    read = hudi.read(spark, it.table)
    assert sorted((r.id, r.o, r.t, r.l) for r in read.collect()) == [
        (1, 300, -1, [1, None]),
        (2, 600, -2, [2, None]),
    ]
    assert [read.schema[name].dataType.simpleString() for name in "otl"] == [
        "int",
        "int",
        "array<int>",
    ]
    assert "o int to" not in str(hudi.schema_changes(it.table))


@pytest.mark.parametrize("kind, before", [("cow", 1), ("cow", 0), ("mor", 1), ("mor", 0)])
def test_a_batch_that_ended_between_writing_and_commit_is_done_again(
    lake, world, spark, kind, before
):
    # of a "mor" table an insert into a small file would draw the update along, into a base file
    it = lake(type=kind, extra={"hoodie.parquet.small.file.limit": "0"} if kind == "mor" else {})
    for _ in range(before):  # without it, it is the first load that ended
        it.go(change_record(1, 1))
    update = [change_record(1, 2, "new", op="u")] * before  # of a "mor" table it goes into a log
    it.go(*update, change_record(2, 1), ("k", "{broken"))
    timeline = paths.local_path(it.table.base) / ".hoodie"
    last = hudi.commits(it.table)["instant"].iloc[-1]
    for f in timeline.glob(
        f"*{last}.*commit*"
    ):  # rows and dead letters are on disk, the commit is not
        if not f.name.endswith(("requested", "requested.crc", "inflight", "inflight.crc")):
            f.unlink()
    written = readcost.data_files(it.table).query(
        "kind == 'log' or instant == @last"
    )  # the only log is of this batch
    assert len(written) == (2 if kind == "mor" and before else 1), (
        "of the update a log, or the file of both"
    )
    for file in written.itertuples():  # by the markers that it had is rolled back
        marker = timeline / ".temp" / last / file.partition / file.file
        marker.parent.mkdir(parents=True, exist_ok=True)
        did = "APPEND" if file.kind == "log" else "MERGE" if before and kind == "cow" else "CREATE"
        marker.with_name(f"{marker.name}.marker.{did}").touch()
    assert len(hudi.commits(it.table)) == before
    if before:
        assert it.rows() == [(1, "p", "x", 1)], "nothing of it shows"
    again = it.go(change_record(3, 1))
    assert (again.messages, again.dead_letters) == (3 + before, 1)
    assert it.rows() == [(1, "p", "new", 2)] * before + [(2, "p", "x", 1), (3, "p", "x", 1)]
    assert len(it.dead()) == 1
    assert hudi.read_arrow(it.table).num_rows == 2 + before
    assert not list(timeline.parent.rglob(f"*_{last}.parquet"))


def test_a_run_ends_although_messages_keep_arriving(lake, world, spark):
    it = lake()
    produce(world, it.topic, change_record(1, 1), change_record(2, 1), change_record(3, 1))
    batches = []

    def another_message():
        batches.append(None)
        produce(world, it.topic, change_record(3 + len(batches), 1))
        return len(batches) == 9

    job = hudi.IngestJob(spark, world, hudi.Topic(it.topic), it.table, SCHEMA, batch=2)
    assert job.run(another_message).messages == 3, "of two batches, which two more messages follow"
    assert job.run().messages == 2


def test_a_batch_that_fails_is_done_again_and_a_replay_that_fails_keeps_the_dead_letters(
    lake, world, spark
):
    it = lake()
    produce(world, it.topic, change_record(1, 1), ("k", "{broken"), ("k", "{broken"))
    bad = dataclasses.replace(
        it.table, extra={"hoodie.datasource.write.keygenerator.class": "no.such.Class"}
    )
    for replay in (False, True):
        with pytest.raises(LakeError, match="(?s)a batch was not written.*location:.*hint:"):
            hudi.ingest(spark, world, hudi.Topic(it.topic), bad, schema=SCHEMA, replay=replay)
        done = it.go()
        assert (done == hudi.Ingested()) == replay and len(it.dead()) == 2
    assert it.rows() == [(1, "p", "x", 1)]
    assert it.go(replay=True, batch=2).batches == 2 and len(it.dead()) == 2


@pytest.mark.parametrize("message", [("k", "{broken"), ("k", None)])
def test_a_new_table_and_nothing_to_write_ends(lake, world, spark, message):
    it = lake()
    done = it.go(message)
    assert (done.batches, done.messages) == (1, 1)
    assert it.go() == hudi.Ingested()
    assert len(it.dead()) == done.dead_letters == (message[1] is not None)
    assert it.go(change_record(1, 1), message).messages == 2 and it.rows() == [(1, "p", "x", 1)]
    assert it.go(message).messages == 1 and it.go() == hudi.Ingested()
    assert len(it.dead()) == 3 * done.dead_letters


@pytest.mark.parametrize(
    "kind, fields",
    [("cow", {"partition": ()}), ("mor", {"partition": ()}), ("mor", {"index": "GLOBAL_SIMPLE"})],
)
def test_the_limit_a_late_event_after_a_delete_that_was_committed(lake, kind, fields):
    """Known and documented in Table: nothing remembers the delete's ordering value in a table of
    this type."""
    it = lake(type=kind, **fields)
    it.go(change_record(1, 10), change_record(2, 10))
    it.go(change_record(1, 20, op="d"))
    assert it.rows() == [(2, "p", "x", 10)]
    it.go(change_record(1, 15, "late"))
    assert it.rows() == (
        [(2, "p", "x", 10)]
        if (kind, it.table.index) == ("mor", "SIMPLE")
        else [(1, "p", "late", 15), (2, "p", "x", 10)]
    )


def test_landed_files_are_read_in_the_order_of_their_offsets(lake, world, spark):
    it = lake()
    folder = paths.local_path(world.lake.landing) / it.topic / "part=p"
    folder.mkdir(parents=True)
    for offset, row in (
        (9, change_record(1, 20, op="d")),
        (10, change_record(1, 30, "back")),
        (2, change_record(1, 10)),
    ):
        (folder / f"{it.topic}-0-{offset:020d}.json").write_text(
            json.dumps(row)
        )  # the oldest file is written last
    (folder / "_temporary").mkdir()
    for name in (".x.json", "_x.json", "x.json.tmp", "_temporary/x.json"):
        (folder / name).write_text("{half")
    it2 = hudi.ingest(spark, world, hudi.Landed(it.topic), it.table, schema=SCHEMA, batch=2)
    assert (it2.batches, it2.upserts, it2.deletes, it2.dead_letters) == (2, 2, 1, 0)
    assert it.rows() == [(1, "p", "back", 30)]


def test_poison_goes_to_the_dead_letters_and_counts_close(lake, world, spark):
    it = lake()
    envelope = {"schema": {"type": "struct"}, "payload": change_record(4, 1, "wrapped")}
    done = it.go(
        change_record(1, 1),
        (None, json.dumps(change_record(2, 1, "no key"))),
        change_record(3, 1, part=None),
        ("4", json.dumps(envelope)),
        ("1", None),
        (None, None),
        ("x", "{broken"),
        ("x", '{"id": 9, "__lsn": 1} trailing'),
        ("x", "[]"),
        ("x", ""),
        ("x", json.dumps({**change_record(5, 1), "id": "five"})),
        ("x", json.dumps({**change_record(5, 1), "id": None})),
        ("x", json.dumps({**change_record(5, 1), "__lsn": None})),
        ("1", '{"schema":null,"payload":null}'),
        {"id": 2, "part": None, "text": None, "__op": "d", "__deleted": "true", "__lsn": 2},
    )
    assert done.messages == 15 == done.upserts + done.deletes + done.tombstones + done.dead_letters
    assert (done.upserts, done.deletes, done.tombstones, done.dead_letters) == (4, 1, 2, 8)
    assert {(r.id, r.text) for r in hudi.read(spark, it.table).collect()} == {
        (1, "x"),
        (3, "x"),
        (4, "wrapped"),
    }
    letters = {r.offset: r for r in it.dead()}
    assert {o: r.reason.split(",")[0] for o, r in letters.items()} == {
        5: "no value and no key",
        6: "malformed JSON",
        7: "malformed JSON",
        8: "the message is []",
        9: "malformed JSON",
        10: "column id is five",
        11: "record key id is null",
        12: "ordering field __lsn is null",
    }
    assert letters[6].text == "{broken" and {r.topic for r in letters.values()} == {it.topic}
    it.go()
    assert len(it.dead()) == 8


def test_many_batches_and_hudi_rs_reads_what_spark_reads(lake):
    it = lake(partition=("part", "id"))
    done = it.go(*[change_record(i, 1, f"Genève {i}", part="pq"[i % 2]) for i in range(6)], batch=3)
    assert (done.batches, done.upserts, len(it.rows())) == (2, 6, 6)
    frame = hudi.read_arrow(it.table).to_pandas()
    assert sorted(zip(frame["id"], frame["part"], frame["text"], frame["__lsn"])) == it.rows()
    timeline = hudi.commits(it.table)
    assert list(timeline["inserted"]) == [3, 3] and (timeline["bytes"] > 0).all()


def test_a_topic_without_messages(lake, world, spark):
    it = lake()
    assert it.go() == hudi.Ingested() and not hudi.exists(it.table)
    with it.go(run=following) as stream:
        produce(world, it.topic, change_record(1, 1))
        wait_until(lambda: stream.counts().upserts == 1, "the first row", timeout=60)


def test_a_topic_that_is_not_there(world, spark):
    with pytest.raises(LakeError, match="(?s)there is no topic 'no_such_topic'.*connect.status"):
        hudi.ingest(spark, world, hudi.Topic("no_such_topic"), new_table(world), schema=SCHEMA)


def test_two_ingests_into_one_table(lake, world):
    it = lake()
    with it.go(change_record(1, 1), run=following) as stream:
        wait_until(lambda: stream.counts().upserts == 1, "the first batch", timeout=60)
        with table_lock(world, it.table):  # one that waits for messages does not hold it
            pass
        assert it.go().messages == 0
        produce(world, it.topic, change_record(2, 1))
        wait_until(lambda: stream.counts().upserts == 2, "the second batch", timeout=60)
    assert it.go() == hudi.Ingested()


def test_landed_lines_that_are_broken(world, spark, lake):
    it = lake()
    folder = paths.local_path(world.lake.landing) / it.topic / "part=p"
    folder.mkdir(parents=True)
    (folder / "t-0-0.json").write_text(
        json.dumps(change_record(1, 1)) + '\n{"id": 2, "par\n\n' + json.dumps(change_record(3, 1))
    )
    done = hudi.ingest(spark, world, hudi.Landed(it.topic), it.table, schema=SCHEMA)
    assert (done.messages, done.upserts, done.dead_letters) == (3, 2, 1)
    (letter,) = it.dead()
    assert (
        letter.reason == "malformed JSON"
        and letter.file.endswith("/part=p/t-0-0.json")
        and "par" in letter.text
    )
    # another source has a progress of its own
    assert it.go(change_record(1, 2, "from the topic")).upserts == 1
    assert it.rows()[0] == (1, "p", "from the topic", 2)


def test_landed_files_of_a_topic_made_anew_are_not_taken_for_those_read(world, spark, lake):
    from workbench.landing.job import progress_path

    def identify(topic_id):
        files.write_text(
            progress_path(world, it.topic), json.dumps({"topic_id": topic_id, "offsets": {}})
        )

    it = lake()
    file = paths.local_path(world.lake.landing) / it.topic / "t-0-0.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(change_record(1, 1)))
    identify("one")

    def go(**knobs):
        return hudi.ingest(spark, world, hudi.Landed(it.topic), it.table, schema=SCHEMA, **knobs)

    assert go().upserts == 1
    file.write_text(json.dumps(change_record(1, 2, "by the same name")))
    identify("another")
    with pytest.raises(
        LakeError, match="(?s)files are of another topic.*another.*id one.*start clean"
    ):
        go()
    assert go(replay=True).upserts == 1 and it.rows() == [(1, "p", "by the same name", 2)]
    assert go() == hudi.Ingested()


def test_continuous_stops_between_batches(lake, spark):
    it = lake()
    with it.go(change_record(1, 1), run=following) as stream:
        wait_until(lambda: stream.counts().upserts == 1, "the first batch", timeout=60)
        time.sleep(1)  # it waits for a message
        begun = time.monotonic()
    assert stream.counts().upserts == 1
    assert time.monotonic() - begun < 0.3
    assert it.go(change_record(2, 1)).messages == 1
    assert [r[0] for r in it.rows()] == [1, 2]


def test_a_stream_that_waits_notices_that_the_topic_was_made_anew(lake, world):
    it = lake()
    with pytest.raises(LakeError, match="(was deleted and recreated|there is no topic)"):
        with it.go(change_record(1, 1), run=following) as stream:
            wait_until(lambda: stream.counts().upserts == 1, "the first batch", timeout=60)
            topics.delete(world, it.topic)
            new_topic(world, it.topic)
            produce(world, it.topic, change_record(2, 1), change_record(3, 1))
            wait_until(stream.failure, "the ingest to end", timeout=20)
    assert [r[0] for r in it.rows()] == [1]


def test_a_batch_that_fails_says_why(lake, world, spark):
    """Not only the outermost error, "Failed to upsert for commit time …"."""
    it = lake()
    it.go(change_record(1, 1))
    for file in paths.local_path(it.table.base).rglob("*.parquet"):
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
        file.write_bytes(b"these are no columns")
    with pytest.raises(LakeError, match="a batch was not written: .*is not a Parquet file"):
        it.go(change_record(1, 2))
    assert spark.conf.get("spark.sql.pyspark.jvmStacktrace.enabled") == "false"
    with pytest.raises(Exception) as e:
        spark.sql("SELECT nosuch")
    assert "JVM stacktrace" not in str(e.value)
