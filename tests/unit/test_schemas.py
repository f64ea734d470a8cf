"""Connect schema → Avro → Spark, pure functions."""

import json
from collections import Counter

import pytest
from pyspark.sql import types as t
from workbench.base.errors import LakeError
from workbench.hudi import analyst_types, decode_json
from workbench.hudi.decode_avro import LandedSchemas
from workbench.topic.avro import connect_names, for_spark, full_name, to_spark
from workbench.topic.connect_schema import to_avro


def struct(*fields, **more):
    return {"type": "struct", "fields": list(fields), **more}


def field(label, kind, **more):
    return {"field": label, "type": kind, **more}


DATE = field("d", "int32", optional=True, name="io.debezium.time.Date", version=1)


def test_optional_is_a_union_with_null():
    schema = struct(field("a", "int64", optional=True), field("b", "string"), name="x.Value")
    made = to_avro(schema, "s.Value")
    assert (full_name(made), made["connect.name"]) == ("s.Value", "x.Value")
    assert made["fields"] == [
        {"name": "a", "type": ["null", {"type": "long"}]},
        {"name": "b", "type": {"type": "string"}},
    ]


def test_debezium_date_stays_days_and_json_stays_text():
    json = field("j", "string", optional=True, name="io.debezium.data.Json", version=1)
    avro = to_avro(struct(DATE, json), "V")
    assert connect_names(avro) == ["io.debezium.time.Date", "io.debezium.data.Json"]
    assert [f.dataType for f in to_spark(avro)] == [t.IntegerType(), t.StringType()]


def test_connects_own_logical_types():
    amount = field(
        "n",
        "bytes",
        name="org.apache.kafka.connect.data.Decimal",
        parameters={"scale": "2", "connect.decimal.precision": "10"},
    )
    when = field("w", "int64", optional=True, name="org.apache.kafka.connect.data.Timestamp")
    made = to_spark(to_avro(struct(amount, when), "V"))
    assert made == t.StructType().add("n", t.DecimalType(10, 2)).add("w", t.TimestampType())


def test_nested_records_arrays_and_maps():
    inner = {"type": "struct", "name": "s.Inner", "fields": [field("x", "int16")], "optional": True}
    schema = struct(
        {**inner, "field": "one"},
        {**inner, "field": "two"},
        {"field": "list", "type": "array", "items": {"type": "string", "optional": True}},
        {"field": "map", "type": "map", "keys": {"type": "string"}, "values": {"type": "double"}},
    )
    avro = to_avro(schema, "s.Value")
    assert [f.dataType.simpleString() for f in to_spark(avro)] == [
        "struct<x:int>",
        "struct<x:int>",
        "array<string>",
        "map<string,double>",
    ]


@pytest.mark.parametrize(
    "schema",
    [
        struct(field("1a", "string")),
        struct(field("a", "int128")),
        {"type": "struct", "fields": [{"field": "m", "type": "map", "keys": {"type": "int32"}}]},
    ],
)
def test_what_avro_lacks_is_refused(schema):
    with pytest.raises(LakeError):
        to_avro(schema, "V")


@pytest.mark.parametrize(
    "kind",
    [
        ["null", "int", "string"],
        {"type": "fixed", "size": 2},
        "Nowhere",
        {"type": "long", "logicalType": "time-micros"},
        {"type": "bytes", "logicalType": "decimal", "precision": 60},
        ["null", "R"],
    ],
)
def test_what_spark_lacks_is_refused(kind):
    with pytest.raises(LakeError, match="a"):
        to_spark({"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]})


def test_logical_types_of_avro():
    kinds = {"date": "int", "timestamp-millis": "long", "timestamp-micros": "long"}
    fields = [
        {"name": f"c{i}", "type": {"type": k, "logicalType": m}}
        for i, (m, k) in enumerate(kinds.items())
    ]
    made = to_spark({"type": "record", "name": "R", "fields": fields})
    assert [f.dataType for f in made] == [t.DateType(), t.TimestampType(), t.TimestampType()]


def test_dates_and_times_stay_numbers_for_analyst_types():
    kinds = {"date": "int", "timestamp-micros": "long"}
    fields = [{"name": kind, "type": {"type": kind}} for kind in ("int", "long")]
    for logical, kind in kinds.items():
        avsc = {"type": kind, "logicalType": logical}
        fields += [
            {"name": f"{kind}_plain", "type": avsc},
            {"name": f"{kind}_named", "type": ["null", {**avsc, "connect.name": "x"}]},
        ]
    amount = {"type": "bytes", "logicalType": "decimal", "precision": 60, "connect.name": "y"}
    fields.append({"name": "amount", "type": amount})
    record = {"type": "record", "name": "R", "fields": fields}
    as_numbers = {f.name: f.dataType for f in to_spark(for_spark(record, as_numbers=True))}
    assert as_numbers == {
        "int": t.IntegerType(),
        "long": t.LongType(),
        "int_plain": t.DateType(),  # no type of Connect: Spark reads it
        "int_named": t.IntegerType(),
        "long_plain": t.TimestampType(),
        "long_named": t.LongType(),
        "amount": t.DecimalType(38, 0),
    }
    assert to_spark(for_spark(record))["int_named"].dataType == t.DateType()


def test_names_of_connects_types():
    """Also of a type that is defined once and then referred to, and of a list's elements."""
    number = {"type": "record", "name": "n.Number", "fields": [], "connect.name": "n.Number"}
    fields = [
        {"name": "a", "type": ["null", number]},
        {"name": "b", "type": "n.Number"},
        {"name": "c", "type": ["null", {"type": "array", "items": ["null", "n.Number"]}]},
        {"name": "d", "type": ["null", "long"]},
        {"name": "e", "type": {"type": "map", "values": "n.Number"}},
    ]
    names = connect_names({"type": "record", "name": "R", "fields": fields})
    assert names == ["n.Number", "n.Number", "n.Number", "", ""]


def test_a_name_that_looks_like_many_names_is_refused_at_once():
    with pytest.raises(LakeError, match="no such name"):
        to_avro(struct(field("a" * 60 + "-", "string")))


def test_each_analyst_type_says_what_it_holds():
    for name, rule in analyst_types.TYPES.items():
        assert rule.keys() == {"type", "value", "values"}, name


# --- the schema of the rows


def landed(*names):
    fields = [{"name": name, "type": "int"} for name in names]
    return json.dumps({"type": "record", "name": "Value", "fields": fields})


def test_a_schema_of_very_many_columns_is_left_out():
    """Also the newest one; the others are taken in."""
    table = t.StructType([t.StructField("id", t.IntegerType())])
    known = LandedSchemas(None, "t", None, table)
    wide = landed("id", *(f"f{n}" for n in range(201)))
    known.resolve(Counter([wide, landed("id", "a")]))
    assert known.too_wide[wide] == 201 and known.row_schema.names == ["id", "a"]
    assert known.latest_schema.names == ["id", "a"]
    known.resolve(Counter([wide, landed("id", "a"), landed("id", "b")]))
    assert known.row_schema.names == ["id", "a", "b"]


def test_schemas_that_no_column_holds_change_nothing():
    """The next batch begins with the schema of the last good one."""
    known = LandedSchemas(None, "t")
    known.resolve(Counter([landed("id", "a")]))
    before = known.latest_schema, known.row_schema
    with pytest.raises(LakeError, match="Value.a was int and becomes string"):
        known.resolve(
            Counter([landed("id", "a").replace('"a", "type": "int"', '"a", "type": "string"')])
        )
    assert (known.latest_schema, known.row_schema) == before and len(known.resolved) == 1


def test_a_schema_that_messages_carry_is_read_once(monkeypatch):
    read = []
    monkeypatch.setattr(decode_json, "to_avro", lambda schema: read.append(1) or to_avro(schema))
    known = decode_json.CarriedSchemas(None, "t", as_numbers=True)
    ids = [json.dumps(struct(field("id", "int32"))), json.dumps(struct(field("a", "string")))]
    for _ in range(2):
        assert known.resolve(Counter(ids)) == ids
    assert len(read) == 2
