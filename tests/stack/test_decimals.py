"""Numbers that come as Connect's Decimal, as JsonConverter writes it by default, at any depth of a
message; and reasons that name column, value and type."""

import base64
import json

import pytest
from pyspark.sql import types as T
from workbench.hudi import Table, decode
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
MOST = 10**38 - 1


def of(unscaled):
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
    return json.dumps(
        {"schema": {"type": "struct", "fields": fields}, "payload": row}, separators=(",", ":")
    )


@pytest.fixture
def decoded(spark):
    def run(*texts, schema=SCHEMA):
        raw = spark.createDataFrame(
            [("k", text, "t", 0, n, None) for n, text in enumerate(texts)],
            "key string, text string, topic string, partition int, offset long, file string",
        )
        table = Table("t", "file:/none", ("id",), "id")
        return decode.rows(raw, schema, table).orderBy("offset").collect()

    return run


def test_a_decimal_has_the_scale_of_the_messages_schema(decoded):
    found = decoded(
        message(fare=of(-1250), big=of(MOST), x=1.5, id=1),
        message(fare=of(1234), big=of(-MOST), id=2),
        message(fare=12.5, big=of(2**64), id=3),
        message(scale=3, fare=of(1230), id=4),
        message(fare="MTIz", id=5),
        message(scale=0, fare=of(7), id=6),
        message(fare=None, id=7),
        json.dumps({"id": 8, "fare": 12.5}),
    )
    assert [r.reason for r in found] == [None] * 8
    assert [(str(r.row.fare), str(r.row.big), r.row.x) for r in found] == [
        ("-12.50", "9" * 36 + ".99", 1.5),
        ("12.34", "-" + "9" * 36 + ".99", None),
        ("12.50", "184467440737095516.16", None),
        ("1.23", "None", None),
        ("32241.15", "None", None),
        ("7.00", "None", None),
        ("None", "None", None),
        ("12.50", "None", None),
    ]


def test_a_reason_names_column_value_and_type(decoded):
    found = decoded(
        message(scale=3, fare=of(1234), id=1),
        message(fare=of(10**9), id=2),
        message(fare="x!", id=3),
        message(id="four", fare=of(5)),
        json.dumps({"id": 5, "fare": "abc"}),
        message(big=of(10**39), id=6),
        message(big=of(10**38), id=7),  # 16 bytes hold more than 38 digits
        message(big=of(-(2**127)), id=8),
    )
    assert [r.reason for r in found] == [
        "column fare is BNI=, which is no decimal(8,2)",
        "column fare is O5rKAA==, which is no decimal(8,2)",
        "column fare is x!, which is no decimal(8,2)",
        "column id is four, which is no int",
        "column fare is abc, which is no decimal(8,2)",
        f"column big is {of(10**39)}, which is no decimal(38,2)",
        f"column big is {of(10**38)}, which is no decimal(38,2)",
        f"column big is {of(-(2**127))}, which is no decimal(38,2)",
    ]


def test_a_polled_row_comes_out_as_it_is_in_the_source(decoded):
    fields = [{"type": "int32", "field": "id"}, decimal("fare", 2)]
    rows = [{"id": n, "fare": fare} for n, fare in enumerate(("0.00", "-1.28", "123456.78"))]
    texts = [
        polling.encode_row(json.dumps(row), "t", {"type": "struct", "fields": fields}, ())[1]
        for row in rows
    ]
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
    return json.dumps({"schema": struct(*fields), "payload": row}, separators=(",", ":"))


def test_a_decimal_within_structs_lists_and_maps(decoded):
    base64_ = deep(
        id=1,
        price={"net": of(-1250), "x": 1.5, "currency": "EUR"},
        rates=[of(1), None, of(-MOST % 10**8)],
        lines=[{"sum": of(1234), "parts": [of(1), of(2)]}, {"sum": None, "parts": None}],
        by={"a": of(7), "b": None},
        tags=[1, None],
    )
    numeric = deep(
        id=2,
        price={"net": -12.50, "x": 1.5, "currency": "EUR"},
        rates=[0.01, None],
        by={"a": 0.07},
        lines=[{"sum": 12.34, "parts": [0.001, 0.002]}],
        tags=[],
    )
    not_a_number = deep(id=5, price={"net": of(1), "x": "NaN", "currency": '"NaN"'}, rates=[of(2)])
    found = decoded(
        base64_,
        numeric,
        deep(id=3),
        deep(id=4, price=None, rates=None, lines=[]),
        not_a_number,
        schema=DEEP,
    )
    assert [r.reason for r in found] == [None] * 5
    rows = [json.loads(json.dumps(r.row.asDict(recursive=True), default=str)) for r in found]
    lines = [{"sum": "12.34", "parts": ["0.001", "0.002"]}]
    price = {"net": "-12.50", "x": 1.5, "currency": "EUR"}
    assert rows[0] == {
        "id": 1,
        "price": price,
        "rates": ["0.01", None, "0.01"],
        "by": {"a": "0.07", "b": None},
        "lines": [*lines, {"sum": None, "parts": None}],
        "tags": [1, None],
    }
    assert rows[1] == {
        "id": 2,
        "price": price,
        "rates": ["0.01", None],
        "by": {"a": "0.07"},
        "lines": lines,
        "tags": [],
    }
    assert str(rows[4]["price"]) == "{'net': '0.01', 'x': nan, 'currency': '\"NaN\"'}" and rows[4][
        "rates"
    ] == ["0.02"]
    nothing = dict.fromkeys(DEEP.fieldNames())
    assert rows[2] == {**nothing, "id": 3} and rows[3] == {**nothing, "id": 4, "lines": []}


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (
            {"price": {"net": of(10**9), "x": 1, "currency": "EUR"}},
            f"column price.net is {of(10**9)}, which is no decimal(8,2)",
        ),
        ({"price": {"net": of(1), "x": "y"}}, "column price.x is y, which is no double"),
        (
            {"price": "free"},
            "column price is free, which is no struct<net:decimal(8,2),x:double,currency:string>",
        ),
        (
            {"rates": [of(1), of(10**9)]},
            f'column rates is ["{of(1)}","{of(10**9)}"], which is no array<decimal(8,2)>',
        ),
        (
            {"rates": [of(1)], "by": {"a": "x!"}},
            'column by is {"a":"x!"}, which is no map<string,decimal(8,2)>',
        ),
        (
            {"rates": [of(1)], "lines": [{"sum": of(1), "parts": [of(10**6)]}]},
            f'column lines is [{{"sum":"{of(1)}","parts":["{of(10**6)}"]}}], '
            "which is no array<struct<sum:decimal(8,2),parts:array<decimal(6,3)>>>",
        ),
        ({"rates": [of(1)], "tags": [1, "x"]}, 'column tags is [1,"x"], which is no array<int>'),
        ({"tags": "x"}, "column tags is x, which is no array<int>"),
    ],
)
def test_a_reason_names_a_value_within_a_column(decoded, row, reason):
    assert [r.reason for r in decoded(deep(id=1, **row), schema=DEEP)] == [reason]
