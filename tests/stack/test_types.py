"""What becomes of PostgreSQL's types on the way to the lake; lists, structs and decimals in both kinds of table.
"""
import json
from decimal import Decimal

import numpy as np
import pytest
from lake_help import change, new_table, new_topic, send
from workbench import check, hudi, topics

# name: (type in Spark, values of the first three rows; the fourth has none)
LISTS = {
    "texts": ("array<string>", ["a", None, ""], [None], []),
    "ints": ("array<int>", [1, None, 3], [None], []),
    "matrix": ("array<array<int>>", [[1, None], None, []], [None], []),
    "pairs": ("array<struct<a: int, b: array<string>>>",
              [{"a": 1, "b": [None, "x"]}, None, {"a": None, "b": None}], [None], []),
    "one": ("struct<x: array<double>, y: int>", {"x": [1.5, None], "y": None}, {"x": [None], "y": 1},
            {"x": [], "y": 2}),
    "named": ("map<string, array<int>>", {"k": [1, None], "n": None}, {"k": [None]}, {}),
}
DECIMALS = {
    "small": ("decimal(5,2)", Decimal("-0.01"), Decimal("999.99"), Decimal("0.00")),
    "middle": ("decimal(18,3)", Decimal("-1.001"), Decimal("123456789012345.678"), None),
    "large": ("decimal(38,10)", Decimal("1234567890123456789012345678.0123456789"), Decimal("-1E-10"), None),
    "inside": ("struct<d: decimal(5,2), e: decimal(38,0)>", {"d": Decimal("1.50"), "e": Decimal(10**37)},
               {"d": None, "e": None}, {"d": Decimal("0.01"), "e": None}),
    "priced": ("map<string, decimal(10,2)>", {"k": Decimal("1.50"), "n": None}, {"k": Decimal("-1.00")}, {}),
}
BOTH = {**LISTS, **DECIMALS, "prices": ("array<decimal(10,2)>", [Decimal("1.50"), None], [None], [])}


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("shapes", [LISTS, DECIMALS, BOTH], ids=["lists", "decimals", "both"])
def test_every_shape_is_written_merged_and_compacted(world, spark, kind, shapes):
    """The first load is written by Hudi's writer of rows, what is merged or compacted by its writer of records; one
    has to be able to read, and to write again, what the other wrote. hudi-rs reads the files of both."""
    topic, table = new_topic(world), new_table(world, type=kind)
    types = ", ".join(f"{name} {values[0]}" for name, values in shapes.items())
    schema = spark.createDataFrame(
        [], f"id int, part string, __op string, __deleted string, __lsn long, {types}").schema

    def ingest(lsn, keys, op="c"):
        rows = {key: {**change(key, lsn, op=op), **{name: (*values[1:], None)[(key + lsn) % 4]
                                                    for name, values in shapes.items()}} for key in keys}
        send(world, topic, *((str(key), as_json(row)) for key, row in rows.items()))
        done = hudi.ingest(spark, world, hudi.Topic(topic), table, schema=schema)
        assert (done.dead_letters, done.messages) == (0, len(rows))
        return rows

    def same(lake, what):
        seen = {row["id"]: {name: plain(row[name], shapes[name][0]) for name in shapes}
                for row in lake.to_dict("records")}
        check.equal(f"{kind}, {what}", seen, {key: {name: row[name] for name in shapes} for key, row in truth.items()})

    try:
        truth = ingest(1, range(8))
        same(hudi.read(spark, table).toPandas(), "first load")
        for lsn in (2, 3):
            ingest(lsn, [lsn], op="d")
            truth = {**{key: row for key, row in truth.items() if key != lsn}, **ingest(lsn, (0, lsn + 2, lsn + 10))}
            if kind == "mor" and lsn == 2:
                same(hudi.read(spark, table).toPandas(), "base files and logs")
                hudi.compact(spark, table)
        same(hudi.read(spark, table).toPandas(), "the end")
        if kind == "mor":
            hudi.compact(spark, table)
        same(hudi.read_independent(table), "the end, hudi-rs")
    finally:
        hudi.drop(spark, world, table)
        topics.delete(world, topic)


def as_json(row):
    """JSON with decimals as numbers, each digit of them."""
    found = []
    text = json.dumps(row, default=lambda d: found.append(d) or f"@{len(found) - 1}@")
    for n, d in enumerate(found):
        text = text.replace(f'"@{n}@"', f"{d:f}")
    return text


def plain(value, kind=""):
    """Rows, maps and arrays of any reader as plain Python."""
    if value is None or isinstance(value, (str, Decimal)):
        return value
    if hasattr(value, "asDict"):
        value = value.asDict()
    if kind.startswith("map"):
        value = dict(value)  # hudi-rs gives a list of pairs
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    return [plain(v) for v in value] if isinstance(value, (list, np.ndarray)) else value
