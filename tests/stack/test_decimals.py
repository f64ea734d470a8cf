"""Numbers that come as Connect's Decimal, at any depth of a message; and reasons that name column, value
and type."""

import base64
import json
import re
from decimal import Decimal
from types import SimpleNamespace

import pytest
from pyspark.sql import types as T
from workbench.hudi import Table, decode
from workbench.hudi.decode_json import PublishedSchema
from workbench.landing import polling
from workbench.topic.connect_schema import DECIMAL

SCHEMA = T.StructType(
    [
        T.StructField("id", T.IntegerType()),
        T.StructField("fare", T.DecimalType(8, 2)),
        T.StructField("big", T.DecimalType(38, 2)),
        T.StructField("x", T.DoubleType()),
    ]
)


def dumps(value):
    """Return JSON with all digits of its Decimals."""
    text = json.dumps(value, separators=(",", ":"), default=lambda number: f"#{number}#")
    return re.sub(r'"#(.*?)#"', r"\1", text)


def of(unscaled):
    """Return a number as JsonConverter writes it by default."""
    size = max(unscaled, ~unscaled).bit_length() // 8 + 1
    return base64.b64encode(unscaled.to_bytes(size, "big", signed=True)).decode()


def decimal(name, scale):
    return {
        "type": "bytes",
        "optional": True,
        "name": DECIMAL,
        "version": 1,
        "parameters": {"scale": str(scale)},
        "field": name,
    }


def message(scale=2, **row):
    fields = [
        {"type": "int32", "field": "id"},
        decimal("fare", scale),
        decimal("big", 2),
        {"type": "double", "field": "x"},
    ]
    return dumps({"schema": {"type": "struct", "fields": fields}, "payload": row})


@pytest.fixture
def decoded(spark):
    def run(*texts, schema=SCHEMA):
        raw = spark.createDataFrame(
            [("k", text, "t", 0, n, None) for n, text in enumerate(texts)],
            "key string, value string, topic string, partition int, offset long, file string",
        )
        table = Table("t", "file:/none", ("id",), "id")
        return (
            decode.rows(raw, PublishedSchema(None, "t", None, schema), table)
            .orderBy("offset")
            .collect()
        )

    return run


def test_a_decimal_has_all_its_digits(decoded):
    most = "9" * 36 + ".99"
    found = decoded(
        message(fare=Decimal("-12.50"), big=Decimal(most), x=1.5, id=1),
        message(fare=Decimal("12.34"), big=Decimal("-" + most), id=2),
        message(fare=Decimal("12.5"), big=Decimal(2**64), id=3),
        message(fare=None, id=4),
        dumps({"id": 5, "fare": Decimal("12.5")}),
    )
    assert [r.reason for r in found] == [None] * 5
    assert [(str(r.row.fare), str(r.row.big), r.row.x) for r in found] == [
        ("-12.50", most, 1.5),
        ("12.34", "-" + most, None),
        ("12.50", "18446744073709551616.00", None),
        ("None", "None", None),
        ("12.50", "None", None),
    ]


def test_a_decimal_as_base64_is_a_dead_letter_that_names_the_setting(decoded):
    """Also a text of digits only, which Spark would read as the number."""
    found = decoded(
        message(fare=of(-1250), id=1),
        message(fare="1234", id=2),
        message(big="12345678", fare=Decimal("1.00"), id=3),
    )
    says = "a Decimal is BASE64: set value.converter.decimal.format=NUMERIC in the connector's JSON"
    assert [r.reason for r in found] == [says] * 3
    found = decoded(
        deep(id=1, price={"net": "1234", "x": "NaN", "currency": "EUR"}),
        deep(id=2, rates=[None, "1234"]),
        deep(id=3, by={"a": None, "b": "1234"}),
        deep(id=4, lines=[{"sum": None, "parts": [None, "1234"]}]),
        schema=DEEP,
    )
    assert [r.reason for r in found] == [says] * 4


def test_texts_beside_a_decimal_are_no_decimals(decoded):
    """A key of a map, a field of another record and a column with such a name; an envelope with blanks."""
    schema = T.StructType(
        [
            T.StructField("id", T.IntegerType()),
            T.StructField("name", T.DecimalType(8, 2)),
            T.StructField("map", T.MapType(T.StringType(), T.StringType())),
            T.StructField("more", T.StructType([T.StructField("name", T.StringType())])),
        ]
    )
    fields = {"type": "struct", "fields": [{"type": "int32", "field": "id"}, decimal("name", 2)]}
    row = {"id": 1, "name": Decimal("12.50"), "map": {"name": "1234"}, "more": {"name": "5678"}}
    found = decoded(
        dumps({"schema": fields, "payload": row}),
        dumps({"schema": fields, "payload": row}).replace('{"schema":', '{ "schema" : '),
        dumps({"schema": fields, "payload": {**row, "name": "1234"}}),
        schema=schema,
    )
    assert [r.outcome for r in found] == ["upsert", "upsert", "dead"]
    assert [str(r.row.name) for r in found[:2]] == ["12.50", "12.50"]


def test_a_reason_names_column_value_and_type(decoded):
    found = decoded(
        message(fare=Decimal(10**9), id=1),
        message(id="four", fare=5),
        dumps({"id": 5, "fare": "abc"}),
        message(big=Decimal(10**39), id=6),
    )
    assert [r.reason for r in found] == [
        "column fare is 1000000000, which is no decimal(8,2)",
        "column id is four, which is no int",
        "column fare is abc, which is no decimal(8,2)",
        f"column big is {10**39}, which is no decimal(38,2)",
    ]


def test_a_polled_row_comes_out_as_it_is_in_the_source(decoded):
    fields = [{"type": "int32", "field": "id"}, decimal("fare", 2)]
    rows = [{"id": n, "fare": fare} for n, fare in enumerate(("0.00", "-1.28", "123456.78"))]
    schema = {"type": "struct", "fields": fields}
    source = SimpleNamespace(transforms={}, has_numbers=True)
    texts = [polling.encode_row(source, "t", schema, json.dumps(row))[1] for row in rows]
    assert [str(r.row.fare) for r in decoded(*texts)] == ["0.00", "-1.28", "123456.78"]


DEEP = T.StructType(
    [
        T.StructField("id", T.IntegerType()),
        T.StructField(
            "price",
            T.StructType(
                [
                    T.StructField("net", T.DecimalType(8, 2)),
                    T.StructField("x", T.DoubleType()),
                    T.StructField("currency", T.StringType()),
                ]
            ),
        ),
        T.StructField("rates", T.ArrayType(T.DecimalType(8, 2))),
        T.StructField(
            "lines",
            T.ArrayType(
                T.StructType(
                    [
                        T.StructField("sum", T.DecimalType(8, 2)),
                        T.StructField("parts", T.ArrayType(T.DecimalType(6, 3))),
                    ]
                )
            ),
        ),
        T.StructField("by", T.MapType(T.StringType(), T.DecimalType(8, 2))),
        T.StructField("tags", T.ArrayType(T.IntegerType())),
    ]
)


def deep(scale=2, **row):
    """A message of a reader of that schema, with Connect's schema of it."""

    def struct(*fields, **more):
        return {"type": "struct", "fields": list(fields), **more}

    def unnamed(field):
        return {key: value for key, value in field.items() if key != "field"}

    of_parts = {"type": "array", "items": unnamed(decimal("", 3)), "field": "parts"}
    fields = [
        {"type": "int32", "field": "id"},
        struct(
            decimal("net", scale),
            {"type": "double", "field": "x"},
            {"type": "string", "field": "currency"},
            field="price",
        ),
        {"type": "array", "items": unnamed(decimal("", scale)), "field": "rates"},
        {"type": "array", "items": struct(decimal("sum", scale), of_parts), "field": "lines"},
        {
            "type": "map",
            "keys": {"type": "string"},
            "values": unnamed(decimal("", scale)),
            "field": "by",
        },
        {"type": "array", "items": {"type": "int32"}, "field": "tags"},
    ]
    return dumps({"schema": struct(*fields), "payload": row})


def test_a_decimal_within_structs_lists_and_maps(decoded):
    full = deep(
        id=1,
        price={"net": -12.50, "x": 1.5, "currency": "EUR"},
        rates=[0.01, None, 999999.99],
        lines=[{"sum": 12.34, "parts": [0.001, 0.002]}, {"sum": None, "parts": None}],
        by={"a": 0.07, "b": None},
        tags=[1, None],
    )
    not_a_number = deep(id=4, price={"net": 0.01, "x": "NaN", "currency": '"NaN"'}, rates=[0.02])
    found = decoded(
        full,
        deep(id=2),
        deep(id=3, price=None, rates=None, lines=[]),
        not_a_number,
        schema=DEEP,
    )
    assert [r.reason for r in found] == [None] * 4
    rows = [json.loads(json.dumps(r.row.asDict(recursive=True), default=str)) for r in found]
    lines = [{"sum": "12.34", "parts": ["0.001", "0.002"]}]
    price = {"net": "-12.50", "x": 1.5, "currency": "EUR"}
    assert rows[0] == {
        "id": 1,
        "price": price,
        "rates": ["0.01", None, "999999.99"],
        "by": {"a": "0.07", "b": None},
        "lines": [*lines, {"sum": None, "parts": None}],
        "tags": [1, None],
    }
    assert str(rows[3]["price"]) == "{'net': '0.01', 'x': nan, 'currency': '\"NaN\"'}"
    assert rows[3]["rates"] == ["0.02"]
    nothing = dict.fromkeys(DEEP.fieldNames())
    assert rows[1] == {**nothing, "id": 2} and rows[2] == {**nothing, "id": 3, "lines": []}


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (
            {"price": {"net": 10**9, "x": 1, "currency": "EUR"}},
            "a value within price or lines does not have its type",
        ),
        (
            {"price": {"net": 1, "x": "y"}},
            "a value within price or lines does not have its type",
        ),
        (
            {"price": "free"},
            "column price is free, which is no struct<net:decimal(8,2),x:double,currency:string>",
        ),
        ({"rates": [1, 10**9]}, "column rates is [1,1000000000], which is no array<decimal(8,2)>"),
        (
            {"rates": [1], "by": {"a": 10**9}},
            'column by is {"a":1000000000}, which is no map<string,decimal(8,2)>',
        ),
        (
            {"rates": [1], "lines": [{"sum": 1, "parts": [10**6]}]},
            "a value within price or lines does not have its type",
        ),
        ({"rates": [1], "tags": [1, "x"]}, 'column tags is [1,"x"], which is no array<int>'),
        ({"tags": "x"}, "column tags is x, which is no array<int>"),
    ],
)
def test_a_reason_names_a_value_within_a_column(decoded, row, reason):
    assert [r.reason for r in decoded(deep(id=1, **row), schema=DEEP)] == [reason]
