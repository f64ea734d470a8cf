"""Avro without Spark: records, container files, and the landing of messages in them."""

import datetime as dt
import json
from collections import Counter
from decimal import Decimal

import landing_help
import pytest
from avro_bytes import encode_long, encode_string, read_container, wire_message
from pyspark.sql import types as T
from workbench.base import params
from workbench.base.errors import LakeError
from workbench.hudi import changes, decode_avro
from workbench.landing.formats import AvroContainer, RecordEncoder
from workbench.landing.messages import avro_reader
from workbench.landing.sinks import Sink
from workbench.topic import avro, registry

ROW = {
    "type": "record",
    "name": "Value",
    "namespace": "t",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
        },
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "more", "type": {"type": "map", "values": "double"}},
        {"name": "next", "type": ["null", "Value"]},
    ],
}


def row(id, after=b"\0"):
    price = encode_long(2) + (-150).to_bytes(2, "big", signed=True)
    return (
        encode_long(id)
        + encode_long(1)
        + encode_string("é")
        + encode_long(-1)
        + price
        + encode_long(-2)
        + encode_long(4)
        + encode_string("a")
        + encode_string("b")
        + b"\0"
        + encode_long(1)
        + encode_string("k")
        + b"\0\0\0\0\0\0\xf8\x3f"
        + b"\0"
        + after
    )


def test_a_record_of_every_kind():
    read = avro.create_reader(ROW)
    plain = {
        "id": 7,
        "name": "é",
        "day": dt.date(1969, 12, 31),
        "price": Decimal("-1.50"),
        "tags": ["a", "b"],
        "more": {"k": 1.5},
        "next": None,
    }
    assert read(row(7)) == plain
    assert read(row(8, b"\x02" + row(7))) == {**plain, "id": 8, "next": plain}


def test_a_decimal_of_more_digits_than_its_schema_says_is_not_rounded():
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}
    wide = {
        "type": "record",
        "name": "r",
        "fields": [{"name": "n", "type": ["null", {"type": "array", "items": kind}]}],
    }
    data = b"\2\2" + encode_long(17) + (10**39 - 1).to_bytes(17, "big") + b"\0"
    assert avro.create_reader(wide)(data) == {"n": [Decimal("9" * 37 + ".99")]}
    assert kind["precision"] == 38


def test_a_day_that_python_does_not_have_is_a_number_all_the_same():
    day, data = {"type": "int", "logicalType": "date"}, encode_long(2**31 - 1)
    with pytest.raises(ValueError, match="OverflowError"):
        avro.create_reader(day)(data)
    assert avro.create_reader(day, raw_values=True)(data) == 2**31 - 1


@pytest.mark.parametrize(
    "avsc, data",
    [
        (ROW, row(1)[:-1]),
        (ROW, row(1) + b"\0"),
        (ROW, b""),
        ("string", b"\x06ab"),
        ("string", b"\2\xff"),
        ("bytes", encode_long(-1)),
        ("double", b"1234567"),
        (["null", "int"], encode_long(2)),
        ({"type": "array", "items": "int"}, encode_long(2**60) + b"\0"),
        ({"type": "enum", "name": "e", "symbols": ["x"]}, b"\2"),
        (ROW, b"\x02\x00" * 40),
    ],
)
def test_bytes_that_are_not_exactly_one_record(avsc, data):
    with pytest.raises(ValueError):
        avro.create_reader(avsc)(data)


@pytest.mark.parametrize(
    "avsc", ["varchar", {"type": "record", "name": "r", "fields": [{"name": "a", "type": "b"}]}, 7]
)
def test_what_is_no_schema(avsc):
    with pytest.raises(ValueError):
        avro.create_reader(avsc)


def test_a_file_comes_apart_as_it_was_put_together():
    read = avro.create_reader(ROW, raw_values=True)
    records = [read(row(n)) for n in range(3000)]
    data = avro.encode_container(ROW, records, b"s" * 16, more="x")
    found = read_container(data)
    assert len(found.records) == 3000 and found.meta["more"] == "x"
    assert json.loads(found.schema)["fields"][2] == ROW["fields"][2]
    assert data.count(b"s" * 16) > 2, "several blocks"
    last = found.records[-1]
    assert (last["id"], last["day"], last["price"]) == (
        2999,
        dt.date(1969, 12, 31),
        Decimal("-1.50"),
    )
    assert row(2999)[:10] in data and data == avro.encode_container(
        ROW, records, b"s" * 16, more="x"
    )
    for cut in (3, 10, len(data) // 2, len(data) - 1):
        with pytest.raises(ValueError):
            avro.container_schema(data[:cut])
    with pytest.raises(ValueError, match="sync marker"):
        avro.container_schema(data[:-1] + b"x")
    with pytest.raises(ValueError, match="avro.schema"):
        avro.container_schema(b"Obj\x01" + b"\0" + b"s" * 16)


# --- what the landing writes
# ------------------------------------------------------------------------------------------------

OTHER = {**ROW, "doc": "another version"}
SCHEMAS = {1: ROW, 2: OTHER, 3: {"type": "record"}, 4: "varchar"}


@pytest.fixture
def land(tmp_path, monkeypatch):
    """Land messages as container files of two records; see landing_help."""
    requested = landing_help.register(monkeypatch, SCHEMAS)
    sink = Sink("avro", "topics", 2, "t", partition_fields=None, is_confluent=True)
    world = params.load("local")

    def land(*messages):
        encoder = RecordEncoder(sink, avro_reader(world, False, ["globalId 2"]), AvroContainer())
        return landing_help.write_files(encoder, tmp_path, messages)

    land.requested = requested
    land.files = lambda: {
        str(p.relative_to(tmp_path)): read_container(p.read_bytes())
        for p in sorted(tmp_path.rglob("*"))
        if p.is_file()
    }
    return land


def message(offset, id=1, body=None):
    value = wire_message(id, row(offset) if body is None else body)
    return landing_help.message(offset, value, topic="m.artists")


def test_a_file_holds_one_schema_and_no_more_than_the_flush_size(land):
    messages = [
        message(0),
        message(1),
        message(2),
        message(3, id=2),
        landing_help.message(4, None, topic="m.artists"),
        message(5),
        message(7),
    ]
    counts, _ = land(*messages)
    assert counts == {"messages": 7, "records": 6, "tombstones": 1, "dead_letters": 0}
    found = land.files()
    assert {
        n: ([r["id"] for r in f.records], f.meta["workbench.schema"]) for n, f in found.items()
    } == {
        "m.artists/partition=0/m.artists+0+0000000000.avro": ([0, 1], "globalId 1"),
        "m.artists/partition=0/m.artists+0+0000000002.avro": ([2], "globalId 1"),
        "m.artists/partition=0/m.artists+0+0000000003.avro": ([3], "globalId 2"),
        "m.artists/partition=0/m.artists+0+0000000005.avro": ([5, 7], "globalId 1"),
    }
    land(*messages)
    assert land.files() == found


def test_poison_goes_to_the_dead_letters(land):
    counts, letters = land(
        message(0),
        message(1, body=row(1)[:-1]),
        message(2, id=9),
        message(3, id=3),
        message(4, id=4),
        landing_help.message(5, b"{}", topic="m.artists"),
        landing_help.message(6, None, key=None, topic="m.artists"),
        message(7),
    )
    assert (counts["records"], counts["dead_letters"], len(land.files())) == (2, 6, 1)
    reasons = {offset: letter["reason"] for offset, letter in letters.items()}
    wire = "apicurio_legacy8"
    assert reasons[2] == f"schema globalId 9 is not in the registry (registry.wire is {wire})"
    assert reasons[5] == f"not Avro in wire format {wire}: 00, 8 bytes of schema id"
    assert reasons[1].startswith("the bytes are not Avro of schema globalId 1: ")
    assert reasons[6] == "no value and no key"
    assert all(reasons[n].startswith(f"schema globalId {n} cannot be read") for n in (3, 4))


def test_ids_that_the_registry_does_not_have_do_not_hold_the_landing_up(land, monkeypatch):
    """A topic of garbage may have any number of them, and each request takes milliseconds."""
    monkeypatch.setattr(registry, "MAX_UNKNOWN_SCHEMAS", 5)
    garbage = [message(n, id=1000 + n) for n in range(1, 20)]
    _, letters = land(message(0), *garbage, message(20), message(21, id=2))
    assert land.requested == [1, *range(1001, 1006), 2], "one of the topic's own is requested"
    assert [*letters] == [*range(1, 20)], "those of a schema that was found before are landed"
    assert letters[5]["reason"].startswith("schema globalId 1005 is not in the registry")
    assert letters[6]["reason"] == (
        "schema globalId 1006 was not requested: the registry has none of 5 others"
    )


def test_landed_avro_is_sorted_by_schema_and_broken_files_are_named(tmp_path):
    good = avro.encode_container(ROW, [avro.create_reader(ROW, raw_values=True)(row(1))], b"s" * 16)
    for name, data in (
        ("a", good),
        ("b", good[:-3]),
        ("c", avro.encode_container(OTHER, [], b"s" * 16)),
        ("d", b""),
        ("e", good),
    ):
        (tmp_path / name).write_bytes(data)
    whole, broken = decode_avro.group_by_schema([f"file:{tmp_path}/{n}" for n in "abcde"])
    assert sorted(map(len, whole.values())) == [1, 2]
    assert {a[-1]: why for a, why in broken.items()} == {
        "b": "not a whole Avro file: ValueError: expected sync marker not found",
        "d": "not a whole Avro file: ValueError: cannot read header - is it an avro file?",
    }


# --- the source
# ------------------------------------------------------------------------------------------------------


def test_ids_that_the_registry_does_not_have_do_not_hold_the_ingest_up(monkeypatch):
    """A hundred of them are requested, and all versions of the topic's own schema."""
    empty = {"type": "record", "name": "v", "fields": []}
    asked = []
    artifact = {f"globalId {n}": str(n) for n in (1, 900)}
    monkeypatch.setattr(
        decode_avro.registry,
        "find",
        lambda world, id: asked.append(id) or (empty if id in ("1", "900") else None),
    )
    monkeypatch.setattr(decode_avro.registry, "latest", lambda *_: empty)
    monkeypatch.setattr(decode_avro.registry, "versions_by_schema_id", lambda *_: artifact)
    known = decode_avro.AvroSchemas(params.load("local"), "t")
    ids = [f"globalId {n}" for n in range(1, 1000)]
    assert known.resolve(Counter(ids)) == ["globalId 1", "globalId 900"]
    assert len(asked) == 101 and known.columns == T.StructType()


def test_the_format_and_the_order_of_landed_files():
    with pytest.raises(LakeError, match="did you mean 'avro'"):
        changes.Landed("x", format="arvo")
    for one in ("topics/t/partition=0", "topics/t/partition=12/"):
        with pytest.raises(LakeError, match="(?s)folder of one partition.*name the topic's folder"):
            changes.Landed(one)
    assert changes.Landed("topics/partition=x").name == "topics/partition=x"
    names = ["t+0+0000000010.avro", "t+0+0000000002.avro", "t+1+0000000001.avro"]
    assert sorted(names, key=changes.parse_landed_file) == [
        names[1],
        names[0],
        names[2],
    ]


def test_landed_files_that_hold_no_records_ask_no_registry(monkeypatch):
    """The table stays as it is, and what is in the files becomes dead letters."""
    monkeypatch.setattr(
        decode_avro.registry, "latest", lambda *_: pytest.fail("the registry is asked")
    )
    table = T.StructType([T.StructField("id", T.IntegerType())])
    known = decode_avro.LandedSchemas(params.load("local"), "t", table)
    assert known.resolve(Counter(['"string"'])) == ['"string"']
    assert known.columns == table and known.resolved['"string"'].error
    with pytest.raises(LakeError, match="no message has a schema that can be read"):
        decode_avro.LandedSchemas(params.load("local"), "t").resolve(Counter(['"string"']))


def test_a_record_that_may_be_null_is_no_other_record():
    record = {"type": "record", "name": "v", "fields": [{"name": "id", "type": "int"}]}
    known = decode_avro.AvroSchemas(params.load("local"), "t")
    nullable, plain = known.read(["null", record]), known.read(record)
    assert known.rejection(nullable, plain) == "" == known.rejection(nullable, nullable)
