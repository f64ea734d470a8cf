"""Avro without Spark: records, container files, and the task that lands messages in them."""

import datetime as dt
import json
import subprocess
import sys
import traceback
from decimal import Decimal

import pandas
import pytest
from avro_bytes import encode_long, encode_string, read_container
from pyarrow.parquet import ParquetFile
from pyspark import cloudpickle
from pyspark.sql import types as T
from workbench.base import params
from workbench.base.errors import LakeError
from workbench.hudi import changes, decode_avro
from workbench.landing import writing
from workbench.landing.formats import AvroContainer, JsonLines, RecordEncoder
from workbench.landing.messages import UNRESOLVED_SCHEMA, AvroConverter, JsonConverter
from workbench.landing.parquet import Parquet
from workbench.landing.partitioners import FieldPartitioner, NumberPartitioner
from workbench.landing.settings import ConnectorConfig
from workbench.landing.sinks import Sink
from workbench.landing.transforms import parse
from workbench.spark.sessions import innermost_cause
from workbench.topic import avro

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


@pytest.mark.parametrize(
    "avsc, data, value",
    [
        ("long", encode_long(-(2**63)), -(2**63)),
        ("long", encode_long(2**63 - 1), 2**63 - 1),
        ("boolean", b"\1", True),
        ("float", b"\0\0\xc0\x3f", 1.5),
        ({"type": "fixed", "name": "f", "size": 2}, b"ab", b"ab"),
        ({"type": "enum", "name": "e", "symbols": ["x", "y"]}, b"\2", "y"),
        (
            {"type": "long", "logicalType": "timestamp-micros"},
            encode_long(-1),
            dt.datetime(1969, 12, 31, 23, 59, 59, 999999, dt.timezone.utc),
        ),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            encode_long(1500),
            dt.datetime(1970, 1, 1, 0, 0, 1, 500000, dt.timezone.utc),
        ),
        ({"type": "string"}, b"\2x", "x"),
    ],
)
def test_values(avsc, data, value):
    assert avro.create_reader(avsc)(data) == value


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


@pytest.mark.parametrize(
    "items",
    [
        "null",
        {"type": "record", "name": "e", "fields": []},
        {"type": "fixed", "name": "f", "size": 0},
        {"type": "record", "name": "e", "fields": [{"name": "n", "type": "null"}]},
    ],
)
def test_items_that_take_no_bytes_are_refused(items):
    """Seven bytes claim 33 million of them, and to decode them takes minutes."""
    for kind in (
        {"type": "array", "items": items},
        {"type": "map", "values": {"type": "array", "items": items}},
        ["null", {"type": "array", "items": {"type": "array", "items": items}}],
    ):
        avsc = {
            "type": "record",
            "name": "r",
            "fields": [{"name": "x", "type": ["null", "int"]}, {"name": "a", "type": kind}],
        }
        with pytest.raises(ValueError, match="the items of an array are encoded in zero bytes"):
            avro.create_reader(avsc)
        with pytest.raises(
            avro.UnsafeSchema, match="the items of an array are encoded in zero bytes"
        ):
            avro.to_spark(avsc)


def test_names_that_differ_in_case_only_are_refused():
    inner = {
        "type": "record",
        "name": "i",
        "fields": [{"name": n, "type": "int"} for n in ("a", "b", "A")],
    }
    with pytest.raises(avro.UnsafeSchema, match="r.x has A and a, which Spark"):
        avro.to_spark({"type": "record", "name": "r", "fields": [{"name": "x", "type": inner}]})


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


# --- the task
# --------------------------------------------------------------------------------------------------------

OTHER = {**ROW, "doc": "another version"}
TEXTS = {
    "globalId 1": json.dumps(ROW),
    "globalId 2": json.dumps(OTHER),
    "globalId 3": '{"type": "record"}',
    "globalId 4": '"varchar"',
    "globalId 9": "null",
}


COLUMNS = ["topic", "partition", "offset", "keyed", "value", "schema", "body"]


def avro_files(most=10, texts=TEXTS, connect=False, form=None, **more):
    """What lands Avro, by default as container files."""
    sink = Sink(
        "avro",
        "topics",
        most,
        "t",
        is_confluent=True,
        **{"partitioner": NumberPartitioner(), **more},
    )
    return RecordEncoder(
        sink,
        AvroConverter(texts, "not Avro", "schema {} is unknown", connect),
        form or AvroContainer(),
    )


@pytest.fixture
def land(tmp_path):
    def go(*messages, most=2):
        frame = pandas.DataFrame(list(messages), columns=COLUMNS, dtype=object)
        task = writing.landing_task(
            avro_files(most), f"file:{tmp_path}/out", f"file:{tmp_path}/dead"
        )
        (counts,) = task(iter([frame[:3], frame[3:]]))
        return counts.iloc[0].to_dict()

    go.files = lambda: {
        str(p.relative_to(tmp_path / "out")): read_container(p.read_bytes())
        for p in sorted((tmp_path / "out").rglob("*"))
        if p.is_file()
    }
    go.letters = lambda: {
        d["offset"]: d["reason"]
        for f in (tmp_path / "dead").glob("*")
        for d in map(json.loads, f.read_text().splitlines())
    }
    return go


def message(offset, id=1, body=None, topic="m.artists"):
    body = row(offset) if body is None else body
    return topic, 0, offset, True, b"\0" + body, f"globalId {id}", body


def test_a_file_holds_one_schema_and_no_more_than_the_flush_size(land):
    messages = [
        message(0),
        message(1),
        message(2),
        message(3, id=2),
        ("m.artists", 0, 4, True, None, None, None),
        message(5),
        message(6, topic="m.artworks"),
        message(7),
    ]
    done = land(*messages)
    assert done | {"bytes": 0} == {
        "messages": 8,
        "records": 7,
        "tombstones": 1,
        "dead_letters": 0,
        "objects": 5,
        "bytes": 0,
    }
    found = land.files()
    assert {
        n: ([r["id"] for r in f.records], f.meta["workbench.schema"]) for n, f in found.items()
    } == {
        "m.artists/partition=0/m.artists+0+0000000000.avro": ([0, 1], "globalId 1"),
        "m.artists/partition=0/m.artists+0+0000000002.avro": ([2], "globalId 1"),
        "m.artists/partition=0/m.artists+0+0000000003.avro": ([3], "globalId 2"),
        "m.artists/partition=0/m.artists+0+0000000005.avro": ([5, 7], "globalId 1"),
        "m.artworks/partition=0/m.artworks+0+0000000006.avro": ([6], "globalId 1"),
    }
    land(*messages)
    assert land.files() == found


def test_poison_goes_to_the_dead_letters(land):
    done = land(
        message(0),
        message(1, body=row(1)[:-1]),
        message(2, id=9),
        message(3, id=3),
        message(4, id=4),
        ("m.artists", 0, 5, True, b"{}", None, None),
        ("m.artists", 0, 6, False, None, None, None),
        message(7),
    )
    assert (done["records"], done["dead_letters"], done["objects"]) == (2, 6, 1)
    letters = land.letters()
    assert letters[2] == "schema globalId 9 is unknown" and letters[5] == "not Avro"
    assert letters[1].startswith("the bytes are not Avro of schema globalId 1: ")
    assert letters[6] == "no value and no key"
    assert all(letters[n].startswith(f"schema globalId {n} cannot be read") for n in (3, 4))


def test_schemas_that_nobody_has_asked_for_end_the_batch_before_anything_of_it_is_written(land):
    with pytest.raises(ConnectionError, match=f"{UNRESOLVED_SCHEMA} globalId 7, globalId 8;$"):
        land(message(0), message(1, id=8), message(2, id=7))
    assert not land.files() and not land.letters()
    with pytest.raises(ConnectionError) as error:
        avro_files().converter.require_schemas([f"globalId {n}" for n in range(10, 1010)])
    assert str(error.value).count("globalId") == 100, "an error has to travel"


WORKER = """
import pickle, sys
sys.modules.update(workbench=None, pydantic=None)  # a worker elsewhere does not have them
task, frame = pickle.load(sys.stdin.buffer)
(counts,) = task(iter([frame]))
print(counts.iloc[0].to_dict())
"""


def test_the_task_travels_without_this_package(tmp_path):
    task = writing.landing_task(avro_files(), f"file:{tmp_path}/out", f"file:{tmp_path}/dead")
    frame = pandas.DataFrame(
        [message(0), message(1), message(2, id=9)], columns=COLUMNS, dtype=object
    )
    done = subprocess.run(
        [sys.executable, "-c", WORKER], input=cloudpickle.dumps((task, frame)), capture_output=True
    )
    assert b"'records': 2" in done.stdout and b"'dead_letters': 1" in done.stdout, (
        done.stderr.decode()
    )
    (file,) = (tmp_path / "out").rglob("*.avro")
    assert [r["id"] for r in read_container(file.read_bytes()).records] == [0, 1]


def test_the_task_of_lines_travels_without_this_package(tmp_path):
    form = RecordEncoder(
        Sink("json", "f", 10, "t", ("t",), FieldPartitioner(("c",))),
        JsonConverter(has_envelope=True),
        JsonLines(),
    )
    task = writing.landing_task(form, f"file:{tmp_path}/out", f"file:{tmp_path}/dead")
    frame = pandas.DataFrame(
        [("t", 0, 0, True, b'{"c": 1}'), ("t", 0, 1, True, b"{")], dtype=object
    )
    done = subprocess.run(
        [sys.executable, "-c", WORKER], input=cloudpickle.dumps((task, frame)), capture_output=True
    )
    assert b"'records': 1" in done.stdout and b"'dead_letters': 1" in done.stdout, (
        done.stderr.decode()
    )
    assert (tmp_path / "out" / "c=1" / "t-0-00000000000000000000.json").read_text() == '{"c": 1}\n'


def test_the_task_of_parquet_travels_without_this_package(tmp_path):
    flat = {
        **ROW,
        "fields": ROW["fields"][:-2],
    }  # Parquet holds no map here: 12 bytes, and the null after it
    chain = parse(
        ConnectorConfig(
            {
                "transforms": "a",
                "transforms.a.type": "org.apache.kafka.connect.transforms.InsertField$Value",
                "transforms.a.static.field": "new",
                "transforms.a.static.value": "x",
            },
            "here",
        )
    )
    texts = {"globalId 1": json.dumps(flat)}
    form = avro_files(texts=texts, connect=True, form=Parquet("zstd"), transforms=chain)
    task = writing.landing_task(form, f"file:{tmp_path}/out", f"file:{tmp_path}/dead")
    frame = pandas.DataFrame(
        [message(0, body=row(0)[:-13]), message(1, body=row(1)[:-13])],
        columns=COLUMNS,
        dtype=object,
    )
    done = subprocess.run(
        [sys.executable, "-c", WORKER], input=cloudpickle.dumps((task, frame)), capture_output=True
    )
    assert b"'records': 2" in done.stdout, done.stderr.decode()
    (file,) = (tmp_path / "out/m.artists").rglob("*.zstd.parquet")
    assert [(r["id"], r["new"]) for r in ParquetFile(file).read().to_pylist()] == [
        (0, "x"),
        (1, "x"),
    ]


def test_a_worker_without_fastavro_says_where_and_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "fastavro", None)  # importing it is an error
    task = writing.landing_task(avro_files(), f"file:{tmp_path}/out", f"file:{tmp_path}/dead")
    with pytest.raises(ModuleNotFoundError) as e:
        next(task(iter([pandas.DataFrame([message(0)], columns=COLUMNS, dtype=object)])))
    raised = "".join(traceback.format_exception(e.type, e.value, e.tb))
    seen = innermost_cause(
        "Job aborted due to stage failure\nCaused by: org.apache.spark.api.python.PythonException: "
        f"{raised}\n\tat org.apache.spark.api.python.BasePythonRunner.read(PythonRunner.scala:1)"
    )
    assert seen == f"ModuleNotFoundError: {e.value}"[:400], "what a person is told"
    assert (
        "requires fastavro" in seen and "install it on every machine with Spark executors" in seen
    )
    assert sys.executable in str(e.value)
    assert not list(tmp_path.iterdir()), "nothing was written before"


# --- the source
# ------------------------------------------------------------------------------------------------------


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


def test_the_source_of_landed_avro():
    it = changes.Landed("topics/moma.public.artists/partition=0/", format="avro")
    assert (it.topic, it.folder) == ("moma.public.artists", "topics/moma.public.artists")
    with pytest.raises(LakeError, match="did you mean 'avro'"):
        changes.Landed("x", format="arvo")
    names = ["t+0+0000000010.avro", "t+0+0000000002.avro", "t+1+0000000001.avro"]
    assert sorted(names, key=lambda n: changes.reading_order(n, 0)) == [
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
    known = decode_avro.SchemaResolver(params.load("local"), "t", None, table)
    known.reader_schema = known.table_schema
    assert known.resolve(['"string"'], None, use_registry=False) == {'"string"': "string"}
    assert known.reader_schema == table and known.rejected == {}
