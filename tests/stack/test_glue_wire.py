"""Messages as Amazon's serializer frames them, through the real Spark: decoded, ingested, landed.
The Glue registry itself is a dict here, asked by this process only (test_glue_registry.py asks
moto)."""

import zlib
from uuid import UUID

import pytest
from avro_bytes import encode_long, encode_string, record_schema
from confluent_kafka import Producer
from lake_help import new_table, new_topic
from workbench import connect, hudi, landing
from workbench.hudi import changes
from workbench.topic import topics, wire
from workbench.topic.glue_registry import GlueRegistry
from worlds import with_settings

pytestmark = pytest.mark.aws

OLD, NEW, NOBODYS = (f"0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f{n}" for n in "019")
V1 = record_schema("Value", id="int", part="string", __lsn="int")
V2 = record_schema("Value", id="long", extra=["null", "string"], part="string", __lsn="long")
AWS = "com.amazonaws.services.schemaregistry.kafkaconnect.AWSKafkaAvroConverter"


def v1(n):
    return encode_long(n) + encode_string("p") + encode_long(n)


def v2(n, extra):
    return (
        encode_long(n) + encode_long(1) + encode_string(extra) + encode_string("p") + encode_long(n)
    )


def framed(id, body, magic=b"\3\0"):
    return (
        magic + UUID(id).bytes + (zlib.compress(body) if magic == wire.GLUE_ZLIB_PREFIX else body)
    )


MESSAGES = [
    framed(OLD, v1(1)),
    framed(NEW, v2(2, "more")),
    framed(NEW, v2(3, "packed"), wire.GLUE_ZLIB_PREFIX),
    framed(NOBODYS, v1(4)),
    framed(OLD, v1(5)) + b"x",
    b"\0" + bytes(8) + v1(6),
    framed(OLD, v1(7))[:17],
    b"",
    framed(OLD, b""),
    framed(NEW, v2(2**40, "last")),
]
BAD = {
    2: wire.not_avro_reason,
    5: wire.not_avro_reason,
    6: wire.not_avro_reason,
    7: wire.not_avro_reason,
    3: lambda world: wire.unknown_schema_reason(world).format(f"globalId {NOBODYS}"),
    4: lambda _: f"the bytes are not Avro of schema globalId {OLD}",
    8: lambda _: f"the bytes are not Avro of schema globalId {OLD}",
}


@pytest.fixture
def topic(world):
    name = new_topic(world)
    producer = Producer(topics.settings(world))
    for value in MESSAGES:
        producer.produce(name, key="k", value=value)
    assert producer.flush(20) == 0
    yield name
    topics.delete(world, name)


@pytest.fixture
def glue(world, topic, monkeypatch):
    """The world with such a registry; `asked` notes the ids that it was asked for."""
    schemas, asked = {OLD: V1, NEW: V2}, []
    versions = [
        ("workbench-values", f"{topic}-value", None, number, id, None)
        for number, id in (("1", OLD), ("2", NEW))
    ]
    monkeypatch.setattr(
        GlueRegistry,
        "find",
        lambda _, id: asked.append(id) or schemas.get(id),
    )
    monkeypatch.setattr(GlueRegistry, "artifacts", lambda _, of=None: versions)
    other = with_settings(
        world,
        registry={"kind": "glue", "wire": "glue", "url": ""},
        stack={"deployment": "workbench"},
    )
    return other, asked


def test_spark_finds_what_python_finds(spark, glue):
    rows = [(b"k", value, "t", 0, n, None) for n, value in enumerate(MESSAGES)]
    seen = (
        wire.with_wire_columns(spark.createDataFrame(rows, wire.MESSAGE_COLUMNS), glue[0])
        .orderBy("offset")
        .collect()
    )
    for value, row in zip(MESSAGES, seen):
        found = wire.parse_wire_format(glue[0], value)
        assert (row.schema, row.body) == (found and found.schema, found and bytearray(found.body))


@pytest.mark.parametrize("few", [2_000, 0])
def test_a_topic_is_ingested(world, spark, glue, topic, monkeypatch, few):
    monkeypatch.setattr(changes, "SMALL_BATCH_MESSAGES", few)
    other, asked = glue
    table = new_table(world, key=("id",))
    try:
        done = hudi.ingest(spark, other, hudi.Topic(topic, format="avro"), table)
        assert (done.messages, done.upserts, done.dead_letters) == (10, 3, 7)
        assert {r.id: r.extra for r in hudi.read(spark, table).collect()} == {
            1: None,
            2: "more",
            2**40: "last",
        }
        letters = {r.offset: r.reason for r in hudi.dead_letters(spark, other, table).collect()}
        assert letters == {n: reason(other) for n, reason in BAD.items()}
        assert "value.converter.compression" in letters[2]
        assert set(asked) == {OLD, NEW, NOBODYS}
    finally:
        hudi.drop(spark, world, table)


def test_a_topic_is_landed_and_the_files_are_ingested(world, spark, glue, topic):
    other, asked = glue
    config = {
        k: v
        for k, v in connect.config(world, "moma_sink").items()
        if not k.startswith(("key.converter", "value.converter", "topics"))
    }
    config.update(
        {
            "topics": topic,
            "value.converter": AWS,
            "value.converter.registry.name": "workbench-values",
        }
    )
    table = new_table(world, key=("id",))
    try:
        done = landing.run(other, config)
        assert (done.messages, done.records, done.dead_letters) == (10, 3, 7)
        assert asked == [OLD, *sorted([NEW, NOBODYS])], "each once, when it is met"
        letters = {
            each["offset"]: each["reason"].split(": ")[0]
            for each in landing.dead_letters(other, config)
        }
        assert letters == {n: reason(other).split(": ")[0] for n, reason in BAD.items()}
        assert landing.run(other, config).messages == 0
        source = hudi.Landed(f"topics/{topic}", format="avro")
        assert hudi.ingest(spark, other, source, table).upserts == 3
        assert {r.id: r.extra for r in hudi.read(spark, table).collect()} == {
            1: None,
            2: "more",
            2**40: "last",
        }
    finally:
        landing.drop(world, config)
        hudi.drop(spark, world, table)
