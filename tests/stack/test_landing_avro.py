"""Confluent's sink, done by the landing: Avro files on real parts, exactly once, and from the files
into Hudi."""

import io
from types import SimpleNamespace

import avro_bytes
import avro_help
import fastavro
import pytest
from avro_bytes import encode_long, read_container, record_schema, wire_message
from confluent_kafka import Producer
from lake_help import SCHEMA, new_table, new_topic
from workbench import connect, hudi, landing, stack
from workbench.base import paths
from workbench.base.errors import LakeError, StackError
from workbench.topic import topics

NAME = "landing_test"
ARTISTS, ARTWORKS = f"{NAME}.public.artists", f"{NAME}.public.artworks"
SCRIPT = """
    CREATE TABLE artists (artist_id int PRIMARY KEY, name text, nationality text, birth_year int);
    INSERT INTO artists SELECT n, 'Artist ' || n, CASE n % 3 WHEN 0 THEN 'American' WHEN 1 THEN 'Français' END, 1900 + n
      FROM generate_series(1, 25) n;
    CREATE TABLE artworks (artwork_id int PRIMARY KEY, title text, classification text, price numeric(10, 2),
                           acquired date, seen timestamp);
    INSERT INTO artworks SELECT n, 'Work ' || n, 'Print', n * 1.25, DATE '1582-01-01' + n * 1000,
                                TIMESTAMP '2001-02-03 04:05:06.789012' + n * INTERVAL '1 day'
      FROM generate_series(1, 10) n"""


@pytest.fixture(scope="module")
def lab(world):
    with avro_help.museum(world, NAME, SCRIPT) as lab:
        topics.wait_for_messages(lab, ARTWORKS, 10, connector=NAME)
        topics.wait_for_messages(lab, ARTISTS, 25, connector=NAME)
        yield lab


@pytest.fixture
def sink(lab):
    config = {**avro_help.sink_config(lab, NAME), "flush.size": "10"}
    yield config
    landing.drop(lab, config)


@pytest.fixture
def table(world, spark):
    made = []

    def make(**fields):
        made.append(new_table(world, **{"index": "GLOBAL_SIMPLE", **fields}))
        return made[-1]

    yield make
    for each in made:
        hudi.drop(spark, world, each)


def landed(world, topic, folder="topics"):
    root = paths.local_path(world.lake.landing) / folder / topic
    return {
        str(p.relative_to(root)): read_container(p.read_bytes())
        for p in sorted(root.rglob("*"))
        if p.is_file()
    }


# --- written by Debezium
# ---------------------------------------------------------------------------------------------


def test_a_registry_that_is_stopped_stops_the_landing_and_nothing_is_lost(lab, spark, sink):
    stack.stop("apicurio")
    try:
        with pytest.raises(StackError, match="(?s)the schema registry does not answer.*hint:"):
            landing.run(lab, sink)
        assert not landed(lab, ARTISTS) and landing.dead_letters(lab, sink) == []
    finally:
        stack.ensure_running(lab, "apicurio")
    done = landing.run(lab, sink)
    assert done.dead_letters == 0 and done.messages == topics.offset_span(
        lab, ARTISTS
    ) + topics.offset_span(lab, ARTWORKS)


# --- written here, byte by byte
# --------------------------------------------------------------------------------------

V1 = record_schema("Value", id="int", part="string", __lsn="int")
V2 = record_schema("Value", id="long", extra=["null", "string"], part="string", __lsn="long")


def v1(id, lsn, part="p"):
    return encode_long(id) + avro_bytes.encode_string(part) + encode_long(lsn)


def v2(id, lsn, extra):
    return (
        encode_long(id)
        + encode_long(1)
        + avro_bytes.encode_string(extra)
        + avro_bytes.encode_string("p")
        + encode_long(lsn)
    )


@pytest.fixture
def bench(world, spark, table):
    stack.ensure_running(world, "apicurio")
    topic = new_topic(world)
    config = {**connect.config(world, "moma_sink"), "topics": topic, "flush.size": "100"}
    del config["topics.regex"]
    it = table(key=("id",), ordering="__lsn", partition=("part",))

    def send(*values):
        producer = Producer(topics.settings(world))
        for value in values:
            producer.produce(topic, key="k", value=value)
        assert producer.flush(20) == 0

    yield SimpleNamespace(
        topic=topic,
        config=config,
        table=it,
        send=send,
        register=lambda avsc: avro_help.register_schema(world, avsc, f"{topic}-value"),
        land=lambda other=world: landing.run(other, config),
        ingest=lambda **knobs: hudi.ingest(
            spark, world, hudi.Landed(f"topics/{topic}", format="avro"), it, **knobs
        ),
        rows=lambda: {r.id: r for r in hudi.read(spark, it).collect()},
        letters=lambda: {each["offset"]: each for each in landing.dead_letters(world, config)},
        dead=lambda: hudi.dead_letters(spark, world, it).collect(),
    )
    landing.drop(world, config)
    topics.delete(world, topic)


def test_schemas_that_alternate_come_out_as_the_newest(bench, world):
    old, new = bench.register(V1), bench.register(V2)
    bench.send(
        wire_message(old.glob, v1(1, 1)),
        wire_message(new.glob, v2(2**40, 2, "more")),
        wire_message(old.glob, v1(3, 1, "q")),
    )
    assert bench.land().objects == 3
    done = bench.ingest()
    assert (done.upserts, done.batches, done.dead_letters) == (3, 1, 0)
    assert {i: (r.extra, r.part, r["__lsn"]) for i, r in bench.rows().items()} == {
        1: (None, "p", 1),
        2**40: ("more", "p", 2),
        3: (None, "q", 1),
    }


def test_files_that_cannot_be_read_are_dead_letters(bench, world):
    other = bench.register(
        record_schema("Other", id="string", part="string", __lsn="int")
    )  # a Value would be another version
    plain, ids = bench.register("string"), bench.register(V1)
    bench.send(
        wire_message(ids.glob, v1(1, 1)),
        wire_message(
            other.glob, avro_bytes.encode_string("a") + avro_bytes.encode_string("p") + b"\2"
        ),
        wire_message(plain.glob, avro_bytes.encode_string("x")),
        wire_message(ids.glob, v1(5, 1)),
    )
    assert bench.land().objects == 4
    bench.register({**V1, "doc": "the newest"})
    folder = paths.local_path(world.lake.landing) / "topics" / bench.topic / "partition=0"
    last = folder / f"{bench.topic}+0+{3:010d}.avro"
    last.write_bytes(last.read_bytes()[:-5])
    (folder / "notes.txt").write_text("not Avro")
    done = bench.ingest()
    assert (done.messages, done.upserts, done.dead_letters) == (5, 1, 4) and set(bench.rows()) == {
        1
    }
    letters = {r.file.rpartition("/")[2]: (r.reason, r.text) for r in bench.dead()}
    assert letters == {
        f"{bench.topic}+0+{1:010d}.avro": (
            "schema t.Other cannot be read: its record is t.Other, and the topic's is t.Value",
            '{"id":"a","part":"p","__lsn":1}',
        ),
        f"{bench.topic}+0+{2:010d}.avro": (
            "schema string cannot be read: the schema is not that of a record (string)",
            None,
        ),
        last.name: ("not a whole Avro file: ValueError: expected sync marker not found", None),
        "notes.txt": (
            "not a whole Avro file: ValueError: cannot read header - is it an avro file?",
            None,
        ),
    }
    assert bench.ingest() == hudi.Ingested()


@pytest.mark.parametrize(
    "registered", [None, record_schema("Misleading", id="string", part="string", __lsn="int")]
)
def test_files_of_another_tool_are_read_by_the_schema_in_them(bench, world, registered):
    """As Confluent's sink lays them out; the registry knows nothing of them, or another schema by
    the folder's name."""
    if registered:
        bench.register(registered)
    kinds = [
        record_schema("ConnectDefault", id="int", part="string", __lsn="int"),
        record_schema(
            "ConnectDefault", id="int", part="string", title=["null", "string"], __lsn="long"
        ),
    ]
    folder = paths.local_path(world.lake.landing) / "topics" / bench.topic / "partition=0"
    folder.mkdir(parents=True)
    for first, kind in ((0, kinds[0]), (3, kinds[1]), (6, kinds[1])):
        rows = [
            {"id": n, "part": "p", "__lsn": n, "title": f"Work {n}"}
            for n in range(first, first + 3)
        ]
        out = io.BytesIO()
        fastavro.writer(out, kind, rows, codec="deflate")
        (folder / f"{bench.topic}+0+{first:010d}.avro").write_bytes(out.getvalue())
    done = bench.ingest()
    assert (done.upserts, done.dead_letters) == (9, 0)
    assert {i: r.title for i, r in bench.rows().items()} == {
        n: f"Work {n}" if n >= 3 else None for n in range(9)
    }


@pytest.mark.parametrize(
    "format, ending", [("json", "snappy.parquet"), ("avro", "parquet"), ("json", "avro")]
)
def test_files_of_another_format_are_refused(bench, world, spark, format, ending):
    folder = paths.local_path(world.lake.landing) / "topics" / bench.topic / "partition=0"
    folder.mkdir(parents=True)
    (folder / f"{bench.topic}+0+{0:010d}.{ending}").write_bytes(b"PAR1")
    source = hudi.Landed(f"topics/{bench.topic}", format=format)
    with pytest.raises(LakeError, match=f"1 landed files are not {format}"):
        hudi.ingest(spark, world, source, bench.table, schema=SCHEMA if format == "json" else None)
    assert not hudi.exists(bench.table)
