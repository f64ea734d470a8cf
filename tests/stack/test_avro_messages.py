"""Avro messages that are written here byte by byte: what is not valid is a dead letter, and new schemas are taken up."""

import base64
import datetime as dt
import time
from types import SimpleNamespace

import avro_help
import pytest
from avro_bytes import encode_long, encode_string, record_schema, wire_message
from confluent_kafka import Producer
from lake_help import following, new_topic
from pyspark.sql import types as T
from workbench import hudi, stack
from workbench.base.errors import LakeError
from workbench.base.wait import wait_until
from workbench.topic import topics

V1 = record_schema("Value", id="int", part="string", __lsn="int")


V2 = record_schema("Value", id="long", extra=["null", "string"], part="string", __lsn="long")


def v1(id, lsn, part="p"):
    return encode_long(id) + encode_string(part) + encode_long(lsn)


def v2(id, lsn, extra, part="p"):
    return (
        encode_long(id)
        + encode_long(1)
        + encode_string(extra)
        + encode_string(part)
        + encode_long(lsn)
    )


@pytest.fixture
def bench(world, spark, table):
    """A topic, a table, `register(schema)` → its ids, `send(value or (value, key) …)`, `go()`."""
    stack.ensure_running(world, "apicurio")
    topic = new_topic(world)
    it = table()

    def register(avsc, name=f"{topic}-value"):
        return avro_help.register_schema(world, avsc, name)

    def send(*messages):
        producer = Producer(topics.settings(world))
        for m in messages:
            value, key = m if isinstance(m, tuple) else (m, "k")
            producer.produce(topic, key=key, value=value)
        assert producer.flush(20) == 0

    def go(other=world, run=hudi.ingest, **knobs):
        return run(spark, other, hudi.Topic(topic, format="avro"), it, **knobs)

    yield SimpleNamespace(
        topic=topic,
        table=it,
        register=register,
        send=send,
        go=go,
        rows=lambda: {r.id: r for r in hudi.read(spark, it).collect()},
        letters=lambda: {r.offset: r for r in hudi.dead_letters(spark, world, it).collect()},
    )
    topics.delete(world, topic)


def test_what_is_not_avro_of_a_known_schema_is_a_dead_letter(bench, path):
    ids = bench.register(V1)
    other = bench.register(
        record_schema("Other", id="string", part="string", __lsn="int")
    )  # a Value would be another version
    plain = bench.register("string")
    ids = bench.register({**V1, "doc": "the newest"})
    good = wire_message(ids.glob, v1(1, 1))
    bench.send(
        good,
        wire_message(4711, v1(2, 1)),
        good + b"x",
        good[:-1],
        b"",
        b"\1" + good[1:],
        good[:8],
        b'{"id": 1}',
        wire_message(2**63 + 5, b""),
        wire_message(other.glob, encode_string("a") + encode_string("p") + encode_long(1)),
        wire_message(plain.glob, encode_string("x")),
        (None, "k"),
        (None, None),
        wire_message(ids.glob, b"\xff" * 12),
        wire_message(ids.glob, b""),
    )
    done = bench.go()
    assert done.messages == 15 == done.upserts + done.tombstones + done.dead_letters
    assert (done.upserts, done.tombstones, done.dead_letters) == (1, 1, 13)
    letters = bench.letters()
    wire = "not Avro in wire format apicurio_legacy8: 00, 8 bytes of schema id"
    not_there = "schema globalId {} is not in the registry (registry.wire is apicurio_legacy8)"
    bytes_of = f"the bytes are not Avro of schema globalId {ids.glob}"
    assert {o: r.reason for o, r in letters.items()} == {
        1: not_there.format(4711),
        2: bytes_of,
        3: bytes_of,
        4: wire,
        5: wire,
        6: wire,
        7: wire,
        8: not_there.format(2**63 + 5),
        9: f"schema globalId {other.glob} cannot be read: its record is t.Other, and the topic's is t.Value",
        10: f"schema globalId {plain.glob} cannot be read: the schema is not that of a record (string)",
        12: "no value and no key",
        13: bytes_of,
        14: bytes_of,
    }
    assert (
        base64.b64decode(letters[2].text) == good + b"x"
        and letters[4].text == ""
        and letters[12].text is None
    )
    assert {(r.topic, r.partition) for r in letters.values()} == {(bench.topic, 0)}
    assert bench.go() == hudi.Ingested() and list(bench.rows()) == [1]


def test_a_topic_of_garbage_becomes_dead_letters_in_time(bench):
    """20,000 messages of as many schemas that the registry lacks: a request for each takes a minute, and a
    query with a condition for each hours."""
    ids = bench.register(V1)
    bench.send(wire_message(ids.glob, v1(1, 1)))
    bench.send(*[wire_message(10_000 + n, v1(2, 1)) for n in range(20_000)])
    newest = bench.register(V2)
    bench.send(wire_message(newest.glob, v2(3, 3, "more")))
    begun = time.monotonic()
    done = bench.go()
    assert time.monotonic() - begun < 60
    assert (done.upserts, done.dead_letters) == (2, 20_000) and set(bench.rows()) == {1, 3}
    letters = bench.letters()
    assert letters[5].reason.startswith("schema globalId 10004 is not in the registry")
    assert len({letter.reason for letter in letters.values()}) == 20_000


def test_a_message_that_would_harm_is_a_dead_letter(bench, path):
    """Names that are one to Spark, a stranger with the key's fields."""
    twice = bench.register(
        record_schema("Value", id="int", part="string", __lsn="int", n="int", N="int")
    )
    other = bench.register(
        record_schema("Stranger", id="int", part="string", __lsn="int"), f"{bench.topic}-stranger"
    )
    ids = bench.register({**V1, "doc": "the newest"})
    bench.send(
        wire_message(ids.glob, v1(1, 1)),
        wire_message(twice.glob, v1(3, 1) + b"\2\4"),
        wire_message(other.glob, v1(5, 1)),
        wire_message(ids.glob, v1(6, 1)),
    )
    begun = time.monotonic()
    done = bench.go()
    assert (done.upserts, done.dead_letters) == (2, 2) and time.monotonic() - begun < 60
    assert {o: r.reason.partition("cannot be read: ")[2] for o, r in bench.letters().items()} == {
        1: "t.Value has N and n, which Spark and Athena take for one (t.Value)",
        2: "its record is t.Stranger, and the topic's is t.Value",
    }
    assert set(bench.rows()) == {1, 6}


def test_a_newest_schema_of_names_that_are_one_stops_the_ingest(bench):
    """The table stays as it is."""
    ids = bench.register(V1)
    bench.send(wire_message(ids.glob, v1(1, 1)))
    assert bench.go().upserts == 1
    more = {"n": "int", "N": "int"}
    bad = bench.register(record_schema("Value", id="int", part="string", __lsn="int", **more))
    bench.send(wire_message(bad.glob, v1(2, 1) + b"\0\0"), wire_message(ids.glob, v1(3, 1)))
    with pytest.raises(LakeError, match="Spark and Athena take for one"):
        bench.go()
    assert set(bench.rows()) == {1} and len(bench.rows()[1].asDict()) == 6 + 3, "beside Hudi's"


def test_an_id_that_becomes_known_is_taken_in_by_a_replay(bench):
    ids = bench.register(V1)
    bench.send(wire_message(ids.glob, v1(1, 1)), wire_message(ids.glob + 1, v2(2, 1, "later")))
    assert bench.go().dead_letters == 1
    assert bench.register(V2).glob == ids.glob + 1
    done = bench.go(replay=True)
    assert (
        (done.upserts, done.dead_letters) == (2, 0)
        and not bench.letters()
        and set(bench.rows()) == {1, 2}
    )


@pytest.mark.parametrize("mode", ["EXCEPTION", "CORRECTED"])
def test_a_row_that_hudi_cannot_write_is_not_lost_without_a_word(bench, spark, mode):
    """Hudi's writer of rows leaves out what Spark refuses, here a day of another calendar, and
    commits the others."""
    day = {"type": "int", "logicalType": "date"}
    ids = bench.register(record_schema("Value", id="int", part="string", __lsn="int", day=day))
    bench.send(
        *[
            wire_message(ids.glob, v1(n, 1) + encode_long(days))
            for n, days in ((1, -719162), (2, 0))
        ]
    )
    key = "spark.sql.parquet.datetimeRebaseModeInWrite"
    was = spark.conf.get(key)
    spark.conf.set(key, mode)
    try:
        if mode == "EXCEPTION":
            with pytest.raises(LakeError, match="(?s)commit without 1 of its rows.*replay=True"):
                bench.go()
            spark.conf.set(key, was)
            with pytest.raises(LakeError, match="commit without 1 of its rows"):
                bench.go()  # nothing is new, and the row still lacks
            assert bench.go(replay=True).upserts == 2
        else:
            assert was == mode and bench.go().upserts == 2
        assert {i: r.day for i, r in bench.rows().items()} == {
            1: dt.date(1, 1, 1),
            2: dt.date(1970, 1, 1),
        }
    finally:
        spark.conf.set(key, was)


def test_a_reader_schema_for_avro_is_refused(bench):
    with pytest.raises(LakeError, match="(?s)a reader schema serves JSON.*format='avro'"):
        bench.go(schema=T.StructType())


def test_a_continuous_ingest_takes_a_new_schema_up(bench):
    old = bench.register(V1)
    bench.send(wire_message(old.glob, v1(1, 1)))
    with bench.go(run=following) as stream:
        wait_until(
            lambda: stream.counts().upserts == 1,
            "the first batch",
            timeout=60,
            failure_reason=stream.failure,
        )
        new = bench.register(V2)
        bench.send(wire_message(new.glob, v2(2, 2, "more")), wire_message(old.glob, v1(3, 3)))
        wait_until(
            lambda: stream.counts().messages == 3,
            "the other two",
            timeout=60,
            failure_reason=stream.failure,
        )
    assert stream.counts().upserts == 3
    assert {i: r.extra for i, r in bench.rows().items()} == {1: None, 2: "more", 3: None}


def test_a_topic_without_a_schema_and_a_table_without_a_field(bench, table, spark, world):
    bench.send(b"x")
    with pytest.raises(LakeError, match=f"no artifact '{bench.topic}-value'"):
        bench.go()
    bench.register(record_schema("Value", id="int"))
    with pytest.raises(LakeError, match="the reader schema has no field '__lsn'"):
        bench.go()
    assert not hudi.exists(bench.table)
