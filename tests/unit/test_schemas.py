"""Connect schema → Avro → Spark, pure functions."""

import pytest
from pyspark.sql import types as t
from workbench.base.errors import LakeError
from workbench.topic.avro import connect_names, full_name, to_spark
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
    assert made == t.StructType(
        [
            t.StructField("n", t.DecimalType(10, 2), False),
            t.StructField("w", t.TimestampType(), True),
        ]
    )


def test_nested_records_arrays_and_maps():
    inner = {"type": "struct", "name": "s.Inner", "fields": [field("x", "int16")], "optional": True}
    schema = struct(
        {**inner, "field": "one"},
        {**inner, "field": "two"},
        {"field": "list", "type": "array", "items": {"type": "string", "optional": True}},
        {"field": "map", "type": "map", "keys": {"type": "string"}, "values": {"type": "double"}},
    )
    avro = to_avro(schema, "s.Value")
    small = t.StructType([t.StructField("x", t.IntegerType(), False)])
    assert to_spark(avro) == t.StructType(
        [
            t.StructField("one", small),
            t.StructField("two", small),
            t.StructField("list", t.ArrayType(t.StringType(), True), False),
            t.StructField("map", t.MapType(t.StringType(), t.DoubleType(), False), False),
        ]
    )


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
