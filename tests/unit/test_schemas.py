"""Avro → Connect schema → Spark, pure functions; and the schema of the rows of several versions."""

import json
from collections import Counter

import pytest
from workbench.base.errors import LakeError
from workbench.hudi import analyst_types, decode_json, schemas
from workbench.hudi.decode_avro import LandedSchemas
from workbench.topic import avro
from workbench.topic.connect_schema import DATE, DECIMAL, TIMESTAMP, from_avro, to_spark


def struct(*fields, **more):
    return {"type": "struct", "fields": list(fields), **more}


def field(label, kind, **more):
    return {"field": label, "type": kind, **more}


def types(schema, **options):
    return {f.name: f.dataType.simpleString() for f in to_spark(schema, **options)}


def test_types_of_connect():
    """Records, lists and maps at any depth; a date is a number in JSON, and a Json stays a text."""
    inner = {"type": "struct", "name": "s.Inner", "fields": [field("x", "int16")]}
    parameters = {"scale": "2", "connect.decimal.precision": "10"}
    schema = struct(
        field("d", "int32", optional=True, name="io.debezium.time.Date"),
        field("j", "string", name="io.debezium.data.Json"),
        field("n", "bytes", name=DECIMAL, parameters=parameters),
        field("w", "int64", name=TIMESTAMP),
        {**inner, "field": "one"},
        field("list", "array", items=inner),
        field("map", "map", keys={"type": "string"}, values={"type": "double"}),
    )
    rest = {
        "j": "string",
        "n": "decimal(10,2)",
        "one": "struct<x:int>",
        "list": "array<struct<x:int>>",
        "map": "map<string,double>",
    }
    assert types(schema) == {"d": "date", "w": "timestamp", **rest}
    assert types(schema, as_numbers=True) == {"d": "int", "w": "bigint", **rest}
    assert [f.nullable for f in to_spark(schema)][:2] == [True, False]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string"},
        struct(field("1a", "string")),
        struct(field("a" * 60 + "-", "string")),
        struct(field("a", "int128")),
        struct(field("a", "map", keys={"type": "int32"}, values={"type": "int32"})),
        struct(field("a", "bytes", name=DECIMAL, parameters={"scale": "45"})),
        struct(field("a", "int32"), field("A", "int32")),
    ],
)
def test_what_spark_or_avro_lacks_is_refused(schema):
    with pytest.raises(LakeError):
        to_spark(schema)


@pytest.mark.parametrize("kind", [["null", "int", "string"], "Nowhere", ["null", "R"]])
def test_what_connect_lacks_is_refused(kind):
    with pytest.raises(LakeError, match="a"):
        avro.to_spark({"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]})


def test_spark_reads_avro_as_the_types_that_are_expected():
    """For each type: the logical type that is left for Spark, and the types in both cases."""
    fields = {
        "day": {"type": "int", "logicalType": "date"},
        "day_named": {"type": "int", "connect.name": DATE, "logicalType": "date"},
        "debezium": {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"},
        "own": {"type": "long", "connect.name": "x", "logicalType": "timestamp-micros"},
        "clock": {"type": "long", "logicalType": "time-micros"},
        "local": {"type": "long", "logicalType": "local-timestamp-micros"},
        "amount": {"type": "bytes", "logicalType": "decimal", "precision": 60},
        "raw": {"type": "fixed", "name": "F", "size": 2},
    }
    record = {
        "type": "record",
        "name": "R",
        "fields": [{"name": name, "type": kind} for name, kind in fields.items()],
    }
    left = [f["type"].get("logicalType") for f in avro.for_spark(record)["fields"]]
    assert left == ["date", "date", *["timestamp-micros"] * 2, None, None, "decimal", None]
    schema = from_avro(record)
    whole = ["bigint", "bigint", "decimal(38,0)", "binary"]
    assert [*types(schema).values()] == ["date", "date", "timestamp", "timestamp", *whole]
    left = [f["type"].get("logicalType") for f in avro.for_spark(record, True)["fields"]]
    assert left == [*[None] * 6, "decimal", None]
    numbers = ["int", "int", "bigint", "bigint"]
    assert [*types(schema, as_numbers=True).values()] == [*numbers, *whole]
    names = [f.get("name") for f in schema["fields"]][:4]
    assert names == [DATE, DATE, *["io.debezium.time.MicroTimestamp"] * 2]


def test_a_type_that_is_defined_once_and_then_referred_to():
    number = {"type": "record", "name": "n.Number", "fields": [], "connect.name": "n.Number"}
    fields = [
        {"name": "a", "type": ["null", number]},
        {"name": "b", "type": {"type": "map", "values": ["null", "n.Number"]}},
    ]
    first, second = from_avro({"type": "record", "name": "R", "fields": fields})["fields"]
    assert first["name"] == second["values"]["name"] == "n.Number"


def test_each_analyst_type_says_what_it_holds():
    for name, rule in analyst_types.TYPES.items():
        assert rule.keys() == {"type", "value", "values"}, name


# --- the schema of the rows


def landed(*names):
    fields = [{"name": name, "type": "int"} for name in names]
    return json.dumps({"type": "record", "name": "Value", "fields": fields})


@pytest.mark.parametrize(
    "kind",
    [
        {"type": "bytes", "logicalType": "decimal"},
        {"type": "bytes", "connect.name": DECIMAL},
        {"type": "string", "connect.type": "struct"},
        {"type": "string", "connect.type": "map"},
    ],
)
def test_avro_that_is_written_by_hand_is_refused(kind):
    with pytest.raises(LakeError, match="not a"):
        avro.to_spark({"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]})


@pytest.mark.parametrize("wrong", [{"name": {}}, {"name": []}, {"type": []}, {"type": "array"}])
def test_a_carried_schema_that_is_written_by_hand_is_refused(wrong):
    with pytest.raises(LakeError):
        to_spark(struct({**field("a", "int32"), **wrong}), as_numbers=True)


def test_schemas_that_no_column_holds_change_nothing():
    """The next batch begins with the schema of the last good one."""
    known = LandedSchemas(None, "t")
    known.resolve(Counter([landed("id", "a")]))
    before = known.latest, known.row_schema
    with pytest.raises(LakeError, match="Value.a was int and becomes string"):
        known.resolve(
            Counter([landed("id", "a").replace('"a", "type": "int"', '"a", "type": "string"')])
        )
    assert (known.latest, known.row_schema) == before and len(known.resolved) == 1


def test_a_schema_that_messages_carry_is_read_once(monkeypatch):
    read, to_spark = [], schemas.connect_schema.to_spark

    def count(schema, as_numbers):
        read.append(schema)
        return to_spark(schema, as_numbers)

    monkeypatch.setattr(schemas.connect_schema, "to_spark", count)
    known = decode_json.CarriedSchemas(None, "t")
    ids = [json.dumps(struct(field("id", "int32"))), json.dumps(struct(field("a", "string")))]
    for _ in range(2):
        assert known.resolve(Counter(ids)) == ids
    assert len(read) == 2
