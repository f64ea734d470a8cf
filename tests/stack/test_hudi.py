"""Changes into Hudi tables on real Kafka and Spark: order, replays, poison, counts."""

import contextlib
import dataclasses
import json
import time
from types import SimpleNamespace

import pytest
from confluent_kafka import Producer
from lake_help import (
    INLINE_COMPACTION,
    SCHEMA,
    TRACKED_SCHEMA,
    change_record,
    new_table,
    new_topic,
    produce,
    table_content,
)
from pyspark.errors import AnalysisException
from pyspark.sql import types as T
from workbench import hudi
from workbench.base import files, paths
from workbench.base.errors import LakeError
from workbench.hudi import ddl, decode, ingesting, rewriting, timeline
from workbench.query import readcost
from workbench.topic import topics


@pytest.fixture
def lake(world, spark):
    """A topic and a table of their own, with `go(*messages)`: send and ingest them."""
    made = []

    def make(**fields):
        topic, table = new_topic(world), new_table(world, **fields)
        made.append((topic, table))

        def go(*messages, run=hudi.ingest, **knobs):
            produce(world, topic, *messages)
            schema = TRACKED_SCHEMA if table.index == "BUCKET" else SCHEMA
            return run(spark, world, hudi.Topic(topic), table, schema=schema, **knobs)

        return SimpleNamespace(
            topic=topic, table=table, go=go, rows=lambda: table_content(spark, table)
        )

    yield make
    for topic, table in made:
        hudi.drop(spark, world, table)
        topics.delete(world, topic)


@pytest.mark.parametrize(
    "kind, index", [("cow", "SIMPLE"), ("mor", "SIMPLE"), ("cow", "BUCKET"), ("mor", "BUCKET")]
)
def test_the_greater_ordering_value_wins_whenever_it_comes(lake, world, spark, kind, index):
    it = lake(type=kind, index=index)
    first = it.go(
        change_record(1, 10),
        change_record(2, 10),
        change_record(3, 10),
        change_record(1, 12, "late in the same batch"),
        change_record(1, 11),
    )
    assert (first.messages, first.upserts, first.deletes) == (5, 5, 0)
    assert it.rows() == [
        (1, "p", "late in the same batch", 12),
        (2, "p", "x", 10),
        (3, "p", "x", 10),
    ]
    it.go(change_record(1, 5, "older"), change_record(2, 9, op="d"), change_record(3, 20, op="d"))
    assert it.rows() == [
        (1, "p", "late in the same batch", 12),
        (2, "p", "x", 10),
    ]  # late delete lost, real one won
    it.go(change_record(3, 30, "again"))
    assert it.rows()[-1] == (3, "p", "again", 30)
    assert hudi.properties(it.table)["hoodie.table.version"] == "6"
    if index == "BUCKET":
        more = dataclasses.replace(it.table, buckets=5)
        with pytest.raises(
            LakeError, match='(?s)with index="BUCKET", buckets=2, not "BUCKET", buckets=5'
        ):
            hudi.ingest(spark, world, hudi.Topic(it.topic), more, schema=TRACKED_SCHEMA)


ORDERS = [  # of a type, an earlier and a later value in JSON
    (T.LongType(), 9, 10),
    (T.IntegerType(), 9, 10),
    (T.DoubleType(), 1.5, 2.5),
    (T.FloatType(), 1.5, 2.5),
    (T.StringType(), "a", "b"),
    (T.BooleanType(), False, True),
    (T.DateType(), "2024-01-01", "2024-01-02"),
    (T.TimestampType(), "2024-01-01T00:00:00Z", "2024-01-02T00:00:00Z"),
    (T.DecimalType(10, 2), 1.1, 1.25),
    (T.DecimalType(30, 0), 9, 10),
]


@pytest.mark.parametrize("kind", ["mor", pytest.param("cow", marks=pytest.mark.drill)])
def test_a_delete_that_comes_late_loses_whatever_the_ordering_field_is(lake, world, spark, kind):
    """Also in a compaction. A Merge-on-Read table refuses the types that Hudi cannot order deletes
    by."""
    for ordering, early, late in ORDERS:
        it = lake(type=kind, partition=(), ordering="o")
        schema = T.StructType(
            [
                T.StructField("id", T.IntegerType()),
                T.StructField("o", ordering),
                T.StructField("__op", T.StringType()),
            ]
        )

        def go(*changes, it=it, schema=schema):
            produce(world, it.topic, *({"id": key, "o": o, "__op": op} for key, o, op in changes))
            hudi.ingest(spark, world, hudi.Topic(it.topic), it.table, schema=schema)
            return sorted(row.id for row in hudi.read(spark, it.table).collect())

        if kind == "mor" and isinstance(ordering, (T.DateType, T.DecimalType)):
            with pytest.raises(
                LakeError, match='(?s)ordering field o of .* Merge-on-Read.*type="cow"'
            ):
                go((1, early, "c"))
            continue
        assert go((1, late, "c"), (2, late, "c"), (3, early, "c")) == [1, 2, 3]
        assert go((1, early, "d"), (2, late, "d"), (3, late, "u")) == [1, 3], ordering
        if kind == "mor":
            hudi.compact(spark, it.table)
            assert [row.id for row in hudi.read(spark, it.table).orderBy("id").collect()] == [
                1,
                3,
            ], ordering


@pytest.mark.parametrize("index", ["SIMPLE", "GLOBAL_SIMPLE", "BUCKET"])
def test_a_delete_that_comes_late_loses_in_a_compaction_by_a_commit(lake, index):
    it = lake(type="mor", index=index, extra=INLINE_COMPACTION)
    it.go(change_record(1, 20), change_record(2, 20))
    it.go(change_record(1, 15, op="d"), change_record(2, 25, op="d"))
    it.go(change_record(3, 30))
    assert it.rows() == [(1, "p", "x", 20), (3, "p", "x", 30)]
    assert timeline.completed_actions(it.table, "commit")  # of a compaction


def test_a_large_table_as_it_is_chosen(lake, spark):
    it = lake(rows=100_000)
    assert (it.table.type, it.table.index) == ("mor", "BUCKET")
    it.go(change_record(1, 20), change_record(2, 20))
    it.go(change_record(1, 15, op="d"), change_record(2, 25, op="d"))
    for n in range(3, 8):
        it.go(change_record(n, 30))
    assert timeline.completed_actions(it.table, "commit"), "no compaction after five commits"
    rows = [(1, "p", "x", 20), *((n, "p", "x", 30) for n in range(3, 8))]
    assert it.rows() == rows
    entry = hudi.register(spark, it.table)
    assert entry.endswith("_rt") and spark.table(entry).count() == len(rows)


def test_a_table_of_another_type_is_refused(lake, world, spark):
    it = lake()
    it.go(change_record(1, 1))
    stored, other = it.table, dataclasses.replace(it.table, type="mor")
    rows = hudi.read(spark, stored)
    for action in (
        lambda: hudi.ingest(spark, world, hudi.Topic(it.topic), other, schema=SCHEMA),
        lambda: hudi.register(spark, other),
        lambda: hudi.compact(spark, other),
        lambda: rewriting.rewrite(spark, other, rows, rows.schema, {}),
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
    assert hudi.dead_letters(spark, world, it.table).count() == 1 and it.go() == hudi.Ingested()


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
    assert hudi.dead_letters(spark, world, it.table).count() == 1
    assert len(hudi.read_independent(it.table)) == 2 + before
    assert not list(timeline.parent.rglob(f"*_{last}.parquet"))


def test_a_topic_made_anew_is_not_taken_for_the_old_one(lake, world, spark):
    it = lake()
    it.go(change_record(1, 1), change_record(2, 1))
    topics.delete(world, it.topic)
    new_topic(world, it.topic)
    for _ in range(3):  # shorter than the old one, as long, longer
        with pytest.raises(LakeError, match="(?s)was deleted and recreated.*replay=True"):
            it.go(change_record(3, 1))
    assert it.go(replay=True).messages == 3 and [r[0] for r in it.rows()] == [1, 2, 3]
    assert it.go(change_record(4, 1)).messages == 1


def test_a_replay_that_fails_keeps_the_dead_letters(lake, world, spark):
    it = lake()
    it.go(change_record(1, 1), ("k", "{broken"), ("k", "{broken"))
    bad = dataclasses.replace(
        it.table, extra={"hoodie.datasource.write.keygenerator.class": "no.such.Class"}
    )
    with pytest.raises(LakeError, match="a batch was not written"):
        hudi.ingest(spark, world, hudi.Topic(it.topic), bad, schema=SCHEMA, replay=True)
    assert hudi.dead_letters(spark, world, it.table).count() >= 2
    assert it.go() == hudi.Ingested()
    assert hudi.dead_letters(spark, world, it.table).count() == 2  # those of the try went
    assert it.go(replay=True, batch=2).batches == 2
    assert hudi.dead_letters(spark, world, it.table).count() == 2


def test_a_replay_that_ends_half_way_keeps_the_dead_letters(lake, world, spark):
    it = lake()
    it.go(change_record(1, 1), change_record(2, 1), ("k", "{broken"))
    job = ingesting.IngestJob(
        spark, world, hudi.Topic(it.topic), it.table, SCHEMA, batch=2, replay=True
    )
    looks = []
    job.run(lambda more: looks.append(more) or True)
    assert looks == [True]
    assert [r["offset"] for r in hudi.dead_letters(spark, world, it.table).collect()] == [2], (
        "not read again yet"
    )
    assert it.go(batch=2).messages == 1
    assert hudi.dead_letters(spark, world, it.table).count() == 1


@pytest.mark.parametrize("message", [("k", "{broken"), ("k", None)])
def test_a_new_table_and_nothing_to_write_ends(lake, world, spark, message):
    it = lake()
    done = it.go(message)
    assert (done.batches, done.messages) == (1, 1)
    assert it.go() == hudi.Ingested()
    assert (
        hudi.dead_letters(spark, world, it.table).count()
        == done.dead_letters
        == (message[1] is not None)
    )
    assert it.go(change_record(1, 1), message).messages == 2 and it.rows() == [(1, "p", "x", 1)]
    assert it.go(message).messages == 1 and it.go() == hudi.Ingested()
    assert hudi.dead_letters(spark, world, it.table).count() == 3 * done.dead_letters


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_the_limit_a_late_event_after_a_delete_that_was_committed(lake, kind):
    """Known and documented in Table: nothing remembers the delete's ordering value in a table of
    this type."""
    it = lake(type=kind)
    it.go(change_record(1, 10), change_record(2, 10))
    it.go(change_record(1, 20, op="d"))
    assert it.rows() == [(2, "p", "x", 10)]
    it.go(change_record(1, 15, "late"))
    assert it.rows() == (
        [(1, "p", "late", 15), (2, "p", "x", 10)] if kind == "cow" else [(2, "p", "x", 10)]
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
        (
            "7",
            json.dumps(
                {"id": 7, "part": None, "text": None, "__op": "d", "__deleted": "true", "__lsn": 2}
            ),
        ),
    )
    assert done.messages == 15 == done.upserts + done.deletes + done.tombstones + done.dead_letters
    assert (done.upserts, done.tombstones, done.dead_letters) == (4, 2, 9)
    assert {(r.id, r.text) for r in hudi.read(spark, it.table).collect()} == {
        (1, "x"),
        (2, "no key"),
        (3, "x"),
        (4, "wrapped"),
    }
    letters = {r.offset: r for r in hudi.dead_letters(spark, world, it.table).collect()}
    assert {o: r.reason.split(",")[0] for o, r in letters.items()} == {
        5: "no value and no key",
        6: "malformed JSON",
        7: "malformed JSON",
        8: "the message is []",
        9: "malformed JSON",
        10: "column id is five",
        11: "record key id is null",
        12: "ordering field __lsn is null",
        14: "the delete holds its key only",
    }
    assert letters[6].text == "{broken" and {r.topic for r in letters.values()} == {it.topic}
    it.go()
    assert hudi.dead_letters(spark, world, it.table).count() == 9


def test_a_null_partition_can_be_written_and_deleted(lake, spark):
    it = lake()
    it.go(change_record(1, 1, part=None), change_record(2, 1, part="a/b"))
    assert {(r.id, r.part) for r in hudi.read(spark, it.table).collect()} == {(1, None), (2, "a/b")}
    it.go(change_record(1, 2, part=None, op="d"))
    assert {(r.id, r.part) for r in hudi.read(spark, it.table).collect()} == {(2, "a/b")}


def test_many_batches_and_hudi_rs_reads_what_spark_reads(lake, world, spark):
    it = lake(partition=("part", "id"))
    done = it.go(*[change_record(i, 1, f"Genève {i}", part="pq"[i % 2]) for i in range(6)], batch=3)
    assert done.batches == 2 and done.upserts == 6
    frame = hudi.read_independent(it.table)
    assert sorted(zip(frame["id"], frame["part"], frame["text"], frame["__lsn"])) == it.rows()
    timeline = hudi.commits(it.table)
    assert list(timeline["inserted"]) == [3, 3] and (timeline["bytes"] > 0).all()
    assert (
        hudi.read(spark, it.table).count() == 6
        and hudi.dead_letters(spark, world, it.table).count() == 0
    )


def test_the_catalog_finds_it_and_start_clean_removes_it(lake, world, spark):
    it = lake()
    it.go(change_record(1, 1), ("x", "{broken"))
    name = hudi.register(spark, it.table)
    assert hudi.register(spark, it.table) == name and spark.table(name).count() == 1
    for again in (True, False):  # a view that somebody has put there instead
        spark.sql(f"DROP TABLE {name}")
        spark.sql(f"CREATE VIEW {name} AS SELECT 1 AS id UNION ALL SELECT 2")
        if again:
            assert hudi.register(spark, it.table) == name and spark.table(name).count() == 1
    hudi.drop(spark, world, it.table)
    assert not spark.catalog.tableExists(name) and not files.list_dir(it.table.base)
    assert hudi.dead_letters(spark, world, it.table).count() == 0
    assert it.go().upserts == 1  # from the beginning again


def test_where_athena_asks_the_catalog_has_new_partitions_and_columns(
    lake, world, spark, monkeypatch
):
    """Spark finds them in the table; Athena knows those of the catalog only. Here that is Hive's,
    on EMR it is Glue."""

    def known(name):
        rows = spark.sql(f"DESCRIBE {name}").collect()
        there = []
        for part in "pqr":
            with contextlib.suppress(
                AnalysisException
            ):  # Hudi's SHOW PARTITIONS looks into the table
                spark.sql(f"DESCRIBE TABLE EXTENDED {name} PARTITION (part = '{part}')").collect()
                there.append(part)
        return there, "more" in {row["col_name"] for row in rows}

    it = lake(type="mor")
    it.go(change_record(1, 1))
    hudi.register(spark, it.table)
    names = hudi.catalog_names(it.table)
    it.go(change_record(2, 2, part="q"))
    assert [known(name)[0] for name in names] == [[]] * len(names), "told to nobody who asks Spark"
    monkeypatch.setattr(ddl, "query_engine", lambda spark: "athena")
    it.go(change_record(3, 3, part="r"))
    assert [known(name) for name in names] == [(["p", "q", "r"], False)] * len(names)
    asked = []
    monkeypatch.setattr(ddl, "register", lambda *given: asked.append(given))
    it.go(change_record(4, 4, part="r"))
    assert not asked, "nothing is new to the catalog"
    monkeypatch.undo()
    monkeypatch.setattr(ddl, "query_engine", lambda spark: "athena")
    wider = T.StructType([*SCHEMA.fields, T.StructField("more", T.StringType())])
    it.go(
        {**change_record(5, 5, part="r"), "more": "x"},
        run=lambda *given, schema: hudi.ingest(*given, schema=wider),
    )
    assert [known(name) for name in names] == [(["p", "q", "r"], True)] * len(names)


@pytest.mark.parametrize("kind, entry", [("cow", "things"), ("mor", "things_rt")])
def test_what_sql_put_into_the_catalog_goes_with_the_table(lake, world, spark, kind, entry):
    it = lake(type=kind, database="sql_left", catalog="things")
    it.go(change_record(1, 1))
    hudi.register(spark, it.table)
    try:
        spark.sql(f"UPDATE sql_left.{entry} SET text = 'by hand'")
        names = {row["tableName"] for row in spark.sql("SHOW TABLES IN sql_left").collect()}
        assert it.table.name in names, (
            "Hudi's SQL leaves the catalog alone now: all_entries is not needed any more"
        )
        hudi.drop(spark, world, it.table)
        assert spark.sql("SHOW TABLES IN sql_left").collect() == []
    finally:
        spark.sql("DROP DATABASE IF EXISTS sql_left CASCADE")


def test_a_batch_that_fails_stops_the_run_and_the_next_one_does_it_again(lake, world, spark):
    it = lake()
    produce(world, it.topic, change_record(1, 1))
    bad = dataclasses.replace(
        it.table, extra={"hoodie.datasource.write.keygenerator.class": "no.such.Class"}
    )
    with pytest.raises(LakeError, match="(?s)a batch was not written.*location:.*hint:"):
        hudi.ingest(spark, world, hudi.Topic(it.topic), bad, schema=SCHEMA)
    assert it.go().upserts == 1 and it.rows() == [(1, "p", "x", 1)]


def test_a_topic_that_is_not_there(world, spark):
    with pytest.raises(LakeError, match="(?s)there is no topic 'no_such_topic'.*connect.status"):
        hudi.ingest(spark, world, hudi.Topic("no_such_topic"), new_table(world), schema=SCHEMA)


@pytest.mark.parametrize("few", [2_000, 0])
def test_few_messages_and_many_are_read_alike(lake, world, spark, monkeypatch, few):
    """Few are fetched by this process, many by Spark: not UTF-8, tombstones, envelopes, no key at
    all."""
    from workbench.hudi import changes

    monkeypatch.setattr(changes, "SMALL_BATCH_MESSAGES", few)
    it = lake()
    schema = {"type": "struct", "name": "with é in it"}
    row = change_record(4, 1, 'Genève},"payload":')
    wrapped = json.dumps(
        {"schema": schema, "payload": row}, ensure_ascii=False, separators=(",", ":")
    )  # as Connect
    other = json.dumps({"schema": {}, "payload": change_record(5, 1, "another schema")})
    cut_short = wrapped[:-2]
    done = it.go(
        change_record(1, 1),
        ("w", wrapped),
        ("o", other),
        ("t", None),
        ("c", cut_short),
        ("b", b'{"id": 6, "text": "\xff\xfe"}'),
        (None, None),
        ("w", wrapped.replace("4", "7")),
    )
    assert (done.messages, done.upserts, done.tombstones, done.dead_letters) == (8, 4, 1, 3)
    assert it.rows() == [
        (1, "p", "x", 1),
        (4, "p", row["text"], 1),
        (5, "p", "another schema", 1),
        (7, "p", row["text"], 1),
    ]
    letters = {
        r.offset: (r.reason, r.text) for r in hudi.dead_letters(spark, world, it.table).collect()
    }
    assert letters == {
        4: ("malformed JSON", cut_short),
        6: ("no value and no key", None),
        5: ("not UTF-8, the text is its base64", "eyJpZCI6IDYsICJ0ZXh0IjogIv/+In0="),
    }


@pytest.mark.parametrize(
    "kind, index, large, files_of_a_partition",
    [
        ("cow", "SIMPLE", 1, 2),
        pytest.param("cow", "SIMPLE", 101, 1, marks=pytest.mark.drill),
        ("mor", "GLOBAL_SIMPLE", 1, 2),
        pytest.param("cow", "BUCKET", 1, 2, marks=pytest.mark.drill),
    ],
)
def test_a_large_first_load_and_a_small_one_hold_the_same(
    lake, monkeypatch, kind, index, large, files_of_a_partition
):
    """A large one is written by the tasks that have read it, a file each in a partition; a bucket
    has its own file."""
    from workbench.hudi import changes, loading

    monkeypatch.setattr(loading, "LARGE_LOAD_ROWS", large)
    monkeypatch.setattr(changes, "SMALL_BATCH_MESSAGES", 0)  # read by Spark, in two tasks
    it = lake(type=kind, index=index)
    done = it.go(*[change_record(n, 1, part="pq"[n % 2]) for n in range(100)])
    assert done.upserts == 100 and it.rows() == [(n, "pq"[n % 2], "x", 1) for n in range(100)]
    base = [f for f in files.list_dir(it.table.base, recursive=True) if f.path.endswith(".parquet")]
    assert len(base) == 2 * files_of_a_partition
    it.go(
        change_record(1, 2, "new", part="q"), change_record(2, 3, op="d", part="p")
    )  # found where the load has put them
    assert (
        it.rows()[:3] == [(0, "p", "x", 1), (1, "q", "new", 2), (3, "q", "x", 1)]
        and len(it.rows()) == 99
    )


@pytest.mark.parametrize("index, moved", [("SIMPLE", [(1, "p", "x", 1)]), ("GLOBAL_SIMPLE", [])])
def test_a_first_load_of_several_versions_writes_the_newest(lake, index, moved):
    """Once for each key, or for each partition that it was in where the index looks into one
    only."""
    it = lake(index=index)
    done = it.go(
        change_record(1, 1),
        change_record(1, 2, part="q"),
        change_record(2, 1),
        change_record(2, 2, op="d"),
        change_record(3, 3, "new"),
        change_record(3, 2, "older"),
        change_record(4, 2, op="d"),
        change_record(4, 3, "again"),
    )
    assert (done.upserts, done.deletes) == (6, 2)
    assert it.rows() == [*moved, (1, "q", "x", 2), (3, "p", "new", 3), (4, "p", "again", 3)]
    assert list(hudi.commits(it.table)["operation"]) == ["BULK_INSERT"]


def test_large_messages_make_smaller_batches(lake, monkeypatch):
    from workbench.hudi import changes

    monkeypatch.setattr(changes, "SMALL_BATCH_BYTES", 1_000)
    done = lake().go(*[change_record(n, 1, "x" * 600) for n in range(5)])
    assert (done.messages, done.batches) == (5, 3)


def test_two_ingests_into_one_table(lake, world):
    it = lake()
    stream = it.go(change_record(1, 1), run=hudi.stream)
    from workbench.base.wait import wait_until

    wait_until(lambda: stream.counts().upserts == 1, "the first batch", timeout=60)
    with pytest.raises(
        LakeError, match=r"(?s)another ingest into .* is running.*process \d+ holds"
    ):
        it.go(change_record(2, 1))
    with pytest.raises(LakeError, match="another ingest into .* is running"):
        hudi.drop(None, world, it.table)
    wait_until(lambda: stream.counts().upserts == 2, "the second batch", timeout=60)
    stream.stop()
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
    (letter,) = hudi.dead_letters(spark, world, it.table).collect()
    assert (
        letter.reason == "malformed JSON"
        and letter.file.endswith("/part=p/t-0-0.json")
        and "par" in letter.text
    )
    # another source has a progress of its own
    assert it.go(change_record(1, 2, "from the topic")).upserts == 1
    assert it.rows()[0] == (1, "p", "from the topic", 2)


def test_landed_files_of_a_topic_made_anew_are_not_taken_for_those_read(world, spark, lake):
    from workbench.landing.job import topic_id_path

    it = lake()
    file = paths.local_path(world.lake.landing) / it.topic / "t-0-0.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(change_record(1, 1)))
    files.write_text(topic_id_path(world, it.topic), "one")

    def go(**knobs):
        return hudi.ingest(spark, world, hudi.Landed(it.topic), it.table, schema=SCHEMA, **knobs)

    assert go().upserts == 1
    file.write_text(json.dumps(change_record(1, 2, "by the same name")))
    files.write_text(topic_id_path(world, it.topic), "another")
    with pytest.raises(
        LakeError, match="(?s)files are of another topic.*another.*id one.*start clean"
    ):
        go()
    assert go(replay=True).upserts == 1 and it.rows() == [(1, "p", "by the same name", 2)]
    assert go() == hudi.Ingested()


def test_continuous_stops_between_batches(lake, spark):
    it = lake()
    stream = it.go(change_record(1, 1), run=hudi.stream)
    from workbench.base.wait import wait_until

    wait_until(lambda: stream.counts().upserts == 1, "the first batch", timeout=60)
    time.sleep(0.5)  # it waits for a message
    begun = time.monotonic()
    assert stream.stop().upserts == 1
    assert time.monotonic() - begun < 0.3
    assert it.go(change_record(2, 1)).messages == 1
    assert [r[0] for r in it.rows()] == [1, 2]


def test_a_stream_that_waits_notices_that_the_topic_was_made_anew(lake, world):
    it = lake()
    stream = it.go(change_record(1, 1), run=hudi.stream)
    from workbench.base.wait import wait_until

    wait_until(lambda: stream.counts().upserts == 1, "the first batch", timeout=60)
    topics.delete(world, it.topic)
    new_topic(world, it.topic)
    produce(world, it.topic, change_record(2, 1), change_record(3, 1))
    wait_until(stream.failure, "the stream to end", timeout=20)
    with pytest.raises(LakeError, match="(was deleted and recreated|there is no topic)"):
        stream.stop()
    assert [r[0] for r in it.rows()] == [1]


def test_the_query_of_a_small_batch_has_the_outcomes_of_the_whole_one(spark, world, lake):
    """And the dead letters of a small batch name the value."""
    it = lake()
    texts = [
        json.dumps(change_record(1, 1)),
        json.dumps({**change_record(2, 1), "id": "two"}),
        json.dumps({**change_record(3, 1), "text": [3]}),
        json.dumps({"schema": None, "payload": change_record(4, 1, op="d")}),
        json.dumps({**change_record(5, 1), "__lsn": None}),
        json.dumps({"id": 6, "__op": "d", "__lsn": 1}),
        "{broken",
        "[]",
        None,
    ]
    raw = spark.createDataFrame(
        [("k", text, "t", 0, n, None) for n, text in enumerate(texts)],
        "key string, text string, topic string, partition int, offset long, file string",
    )
    small = decode.rows(raw, SCHEMA, it.table, has_decimals=False, explain=False)
    whole = decode.rows(raw, SCHEMA, it.table)
    columns = ["offset", "outcome", "row", "text"]
    assert small.select(columns).collect() == whole.select(columns).collect()
    assert {row.outcome for row in whole.collect()} == {"upsert", "delete", "tombstone", "dead"}
    it.go(*[("k", text) for text in texts])
    letters = hudi.dead_letters(spark, world, it.table).collect()
    assert {r.offset: r.reason for r in letters} == {
        r.offset: r.reason for r in whole.collect() if r.outcome == "dead"
    }
    assert "column id is two, which is no int" in {r.reason for r in letters}


def test_why_data_skipping_stays_off(world, spark):
    """Hudi 1.0 with column statistics answers wrong after an upsert: `like 'm%'` finds 0 rows of
    many."""
    table = new_table(world, partition=())
    options = {
        **table.options(),
        "hoodie.metadata.enable": "true",
        "hoodie.metadata.index.column.stats.enable": "true",
    }
    for prefix in ("a", "m"):
        frame = spark.range(1000).selectExpr(
            "cast(id as int) id",
            f"concat('{prefix}', id) text",
            f"{int(prefix == 'm')}L as __lsn",
            "'p' part",
        )
        frame.write.format("hudi").options(**options).mode("append").save(table.base)
    try:

        def like(skipping):
            rows = (
                spark.read.format("hudi")
                .option("hoodie.metadata.enable", "true")
                .option("hoodie.enable.data.skipping", skipping)
                .load(table.base)
            )
            return rows.where("text like 'm%'").count()

        assert like("false") == 1000
        assert hudi.read(spark, table).where("text like 'm%'").count() == 1000
        assert like("true") < 1000, (
            "this Hudi answers right with data skipping: it may be switched on again"
        )
    finally:
        hudi.drop(spark, world, table)


def test_a_table_that_was_written_otherwise_takes_changes_in(lake, spark):
    it = lake()
    rows = spark.createDataFrame(
        [(1, "p", "x", "c", "false", 1), (2, "p", "x", "c", "false", 1)], SCHEMA
    )
    rows.write.format("hudi").options(**it.table.options()).mode("append").save(it.table.base)
    with pytest.raises(
        LakeError, match="(?s)none of its commits says how far .* was read.*replay=True"
    ):
        it.go(change_record(1, 2, "new"), change_record(2, 2, op="d"))
    assert it.go(replay=True).messages == 2 and it.go() == hudi.Ingested()
    assert it.rows() == [(1, "p", "new", 2)]


def test_progress_that_others_have_archived_is_not_started_over_in_silence(lake, world, spark):
    it = lake(
        extra={
            "hoodie.keep.min.commits": "2",
            "hoodie.keep.max.commits": "3",
            "hoodie.cleaner.commits.retained": "1",
        }
    )
    it.go(change_record(1, 5), ("k", "{broken"))
    other = spark.createDataFrame(
        [(9, "p", "by another", "c", "false", 1, False)],
        f"{SCHEMA.simpleString()[7:-1]}, _hoodie_is_deleted: boolean",
    )
    for _ in range(5):
        other.write.format("hudi").options(**it.table.options()).mode("append").save(it.table.base)
    done = list(hudi.commits(it.table)["instant"])

    def letters():
        return hudi.dead_letters(spark, world, it.table).count()

    with pytest.raises(
        LakeError, match="(?s)none of its commits says how far .* was read.*replay=True.*hudi.drop"
    ):
        it.go(change_record(1, 6, "new"))
    assert list(hudi.commits(it.table)["instant"]) == done and letters() == 1
    bad = dataclasses.replace(
        it.table, extra={"hoodie.datasource.write.keygenerator.class": "no.such.Class"}
    )
    with pytest.raises(LakeError, match="a batch was not written"):
        hudi.ingest(spark, world, hudi.Topic(it.topic), bad, schema=SCHEMA, replay=True)
    assert letters() >= 1
    assert it.go(replay=True).messages == 3 and letters() == 1
    assert it.rows() == [(1, "p", "new", 6), (9, "p", "by another", 1)]
    assert it.go(change_record(2, 1)).messages == 1 and letters() == 1
    with pytest.raises(
        LakeError, match="none of its commits says how far .* was read"
    ):  # of another source neither
        hudi.ingest(spark, world, hudi.Landed("elsewhere"), it.table, schema=SCHEMA)


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
