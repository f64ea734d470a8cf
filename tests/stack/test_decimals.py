"""Numbers that come as Connect's Decimal, as JsonConverter writes it by default; and reasons that name the column."""
import base64
import json

import pytest
from pyspark.sql import types as T
from workbench.hudi import Table, decode
from workbench.landing import polling
from workbench.topic.connect_schema import DECIMAL

SCHEMA = T.StructType([T.StructField("id", T.IntegerType()), T.StructField("fare", T.DecimalType(8, 2)),
                       T.StructField("big", T.DecimalType(38, 2)), T.StructField("x", T.DoubleType())])
MOST = 10**38 - 1


def of(unscaled):
    size = max(unscaled, ~unscaled).bit_length() // 8 + 1
    return base64.b64encode(unscaled.to_bytes(size, "big", signed=True)).decode()


def decimal(name, scale):
    return {"type": "bytes", "optional": True, "name": DECIMAL, "version": 1, "parameters": {"scale": str(scale)},
            "field": name}


def message(scale=2, **row):
    fields = [{"type": "int32", "field": "id"}, decimal("fare", scale), decimal("big", 2),
              {"type": "double", "field": "x"}]
    return json.dumps({"schema": {"type": "struct", "fields": fields}, "payload": row}, separators=(",", ":"))


@pytest.fixture
def decoded(spark):
    def run(*texts):
        raw = spark.createDataFrame([("k", text, "t", 0, n, None) for n, text in enumerate(texts)],
                                    "key string, text string, topic string, partition int, offset long, file string")
        table = Table("t", "file:/none", ("id",), "id")
        return decode.rows(raw, SCHEMA, table).orderBy("offset").collect()

    return run


def test_a_decimal_has_the_scale_of_the_messages_schema(decoded):
    found = decoded(
        message(fare=of(-1250), big=of(MOST), x=1.5, id=1), message(fare=of(1234), big=of(-MOST), id=2),
        message(fare=12.5, big=of(2**64), id=3), message(scale=3, fare=of(1230), id=4), message(fare="MTIz", id=5),
        message(scale=0, fare=of(7), id=6), message(fare=None, id=7), json.dumps({"id": 8, "fare": 12.5}))
    assert [r.reason for r in found] == [None] * 8
    assert [(str(r.row.fare), str(r.row.big), r.row.x) for r in found] == [
        ("-12.50", "9" * 36 + ".99", 1.5), ("12.34", "-" + "9" * 36 + ".99", None),
        ("12.50", "184467440737095516.16", None), ("1.23", "None", None), ("32241.15", "None", None),
        ("7.00", "None", None), ("None", "None", None), ("12.50", "None", None)]


def test_a_reason_names_column_value_and_type(decoded):
    found = decoded(message(scale=3, fare=of(1234), id=1), message(fare=of(10**9), id=2), message(fare="x!", id=3),
                    message(id="four", fare=of(5)), json.dumps({"id": 5, "fare": "abc"}), message(big=of(10**39), id=6))
    assert [r.reason for r in found] == [
        "column fare is BNI=, which is no decimal(8,2)", "column fare is O5rKAA==, which is no decimal(8,2)",
        "column fare is x!, which is no decimal(8,2)", "column id is four, which is no int",
        "column fare is abc, which is no decimal(8,2)", f"column big is {of(10**39)}, which is no decimal(38,2)"]


def test_a_polled_row_comes_out_as_it_is_in_the_source(decoded):
    fields = [{"type": "int32", "field": "id"}, decimal("fare", 2)]
    rows = [{"id": n, "fare": fare} for n, fare in enumerate(("0.00", "-1.28", "123456.78"))]
    texts = [polling.message(json.dumps(row), "t", {"type": "struct", "fields": fields}, ())[1] for row in rows]
    assert [str(r.row.fare) for r in decoded(*texts)] == ["0.00", "-1.28", "123456.78"]
