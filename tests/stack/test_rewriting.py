"""A column that gets a type as which no reader of Hudi sees older files: its table is rewritten, in
one commit. Every reader has the same values before and after, and instants before can still be
read."""

import json
from decimal import Decimal

import lake_help
import pytest
from lake_help import new_table, new_topic
from pyspark.sql import types as T
from workbench import hudi, query
from workbench.base.errors import LakeError
from workbench.hudi import ingesting, loading
from workbench.topic import topics

BIG = {
    "10,2": Decimal("99999999.99"),
    "12,4": Decimal("99999999.9999"),
    "14,2": Decimal("999999999999.99"),
    "26,8": Decimal("999999999999999999.12345678"),
}
LAYOUTS = {  # the fields of the table, and which types the decimal gets one after the other
    "plain": ({"partition": ()}, ["12,4", "26,8"]),
    "partition and ordering": (
        {"partition": ("price",), "ordering": "price", "index": "GLOBAL_SIMPLE"},
        ["14,2", "26,8"],
    ),
    "bucket": ({"partition": (), "index": "BUCKET"}, ["26,8"]),
}


def schema(price, counts="array<int>"):
    kinds = {"array<int>": T.ArrayType(T.IntegerType()), "array<bigint>": T.ArrayType(T.LongType())}
    return T.StructType(
        [
            T.StructField(name, kind)
            for name, kind in {
                "id": T.IntegerType(),
                "part": T.StringType(),
                "price": T.DecimalType(*map(int, price.split(","))),
                "inside": T.StructType(
                    [T.StructField("d", T.DecimalType(*map(int, price.split(","))))]
                ),
                "counts": kinds[counts],
                "__op": T.StringType(),
                "__deleted": T.StringType(),
                "__lsn": T.LongType(),
            }.items()
        ]
    )


@pytest.fixture
def lab(world, spark):
    """`new(**fields)`: a table with its topic; `send`, `go` and `rows` of it."""
    made = []

    class Lab:
        def __init__(self, **fields):
            self.table, self.topic = new_table(world, **fields), new_topic(world)
            made.append(self)

        def send(self, *keys, lsn, price, op="c"):
            def text(key):
                row = {
                    "id": key,
                    "part": "ab"[key % 2],
                    "price": "@",
                    "inside": {"d": "@"},
                    "counts": [key, None],
                    "__op": op,
                    "__deleted": str(op == "d").lower(),
                    "__lsn": lsn,
                }
                return json.dumps(row).replace(
                    '"@"', f"{price:f}"
                )  # a number, with each of its digits

            lake_help.produce(world, self.topic, *((str(key), text(key)) for key in keys))

        def go(self, *types, **more):
            done = hudi.ingest(
                spark, world, hudi.Topic(self.topic), self.table, schema=schema(*types), **more
            )
            assert done.dead_letters == 0, hudi.dead_letters(spark, world, self.table).collect()
            return done

        def rows(self, frame=None):
            found = (hudi.read(spark, self.table) if frame is None else frame).collect()
            return {
                r["id"]: (r["price"], r["inside"] and r["inside"]["d"], tuple(r["counts"]))
                for r in found
            }

        def independent(self):
            found = hudi.read_arrow(self.table).to_pandas().to_dict("records")
            return {
                r["id"]: (
                    r["price"],
                    r["inside"] and r["inside"]["d"],
                    tuple(None if n is None or n != n else int(n) for n in r["counts"]),
                )
                for r in found
            }

    yield Lab
    for each in made:
        hudi.drop(spark, world, each.table)
        topics.delete(world, each.topic)


def row(key, price):
    return (price, price, (key, None))


LONG = [
    ("cow", "partition and ordering"),
    ("cow", "plain"),
    ("mor", "plain"),
    ("cow", "bucket"),
    ("mor", "bucket"),
]


@pytest.mark.parametrize(
    ("kind", "layout"),
    [
        ("mor", "partition and ordering"),
        *(pytest.param(*case, marks=pytest.mark.drill) for case in LONG),
    ],
)
def test_a_decimal_gains_digits(world, spark, lab, kind, layout):
    fields, types = LAYOUTS[layout]
    if kind == "mor" and fields.get("ordering") == "price":
        fields = {**fields, "ordering": "__lsn"}  # a decimal cannot order deletes there
    it = lab(type=kind, **fields)
    small, less = Decimal("1.25"), Decimal("1.10")
    it.send(1, 2, 3, 4, lsn=1, price=less)
    it.go("10,2")
    it.send(2, 3, lsn=2, price=small)
    it.go("10,2")
    it.send(4, lsn=2, price=small, op="d")
    it.go("10,2")
    first = {1: row(1, less), 2: row(2, small), 3: row(3, small)}
    assert it.rows() == it.independent() == first
    entry = hudi.register(spark, it.table)
    hudi.label(world, it.table, "before")
    now = dict(first)
    for n, price in enumerate(types):
        it.send(2, 10 + n, lsn=10 + n, price=BIG[price])
        assert it.go(price).upserts == 2
        now |= {2: row(2, BIG[price]), 10 + n: row(10 + n, BIG[price])}
        assert it.rows() == it.independent() == now, price
        assert dict(hudi.read(spark, it.table).dtypes)["price"] == f"decimal({price})"
        shown = query.sql(spark, f"SELECT id, price FROM {entry}")
        assert dict(zip(shown["id"], shown["price"])) == {k: v[0] for k, v in now.items()}
        assert it.rows(hudi.as_of(spark, world, it.table, "before")) == first
    it.send(1, lsn=20, price=BIG["26,8"], op="d")
    it.go("26,8")
    del now[1]
    if kind == "mor":
        hudi.compact(spark, it.table)
    assert it.rows() == it.independent() == now
    assert it.rows(hudi.as_of(spark, world, it.table, "before")) == first
    said = hudi.schema_changes(it.table)["change"].tolist()
    assert said[0].startswith(f"widened price decimal(10,2) to decimal({types[0]})")


def test_numbers_inside_a_list_become_wider(lab, spark):
    it = lab()
    it.send(1, 2, lsn=1, price=Decimal(1))
    it.go("10,2")
    it.send(2, lsn=2, price=Decimal(2))
    it.go("10,2", "array<bigint>")
    assert it.rows() == it.independent() == {1: row(1, 1), 2: row(2, 2)}
    assert dict(hudi.read(spark, it.table).dtypes)["counts"] == "array<bigint>"


@pytest.mark.parametrize(
    "step", ["the rewriting", pytest.param("the batch after it", marks=pytest.mark.drill)]
)
def test_a_rewriting_that_is_interrupted_leaves_a_whole_table(lab, spark, monkeypatch, step):
    it = lab(type="mor")
    it.send(1, 2, lsn=1, price=Decimal(1))
    it.go("10,2")
    it.send(2, lsn=2, price=Decimal(2))
    it.go("10,2")
    hudi.compact(spark, it.table, "schedule")
    entry = hudi.register(spark, it.table)
    it.send(2, 3, lsn=3, price=Decimal(3))

    def broken(*_, **__):
        raise OSError("interrupted")

    with monkeypatch.context() as patched:
        if step == "the rewriting":
            patched.setattr(loading, "finish_rewrite", broken)  # it has committed, and nothing else
        else:
            patched.setattr(ingesting, "write_batch", broken)
        with pytest.raises((OSError, LakeError)):
            it.go("12,4")
    assert it.rows() == {1: row(1, 1), 2: row(2, 2)}
    assert hudi.commits(it.table)["operation"].iloc[-1] == "INSERT_OVERWRITE_TABLE"
    assert it.go("12,4").upserts == 2
    assert it.rows() == it.independent() == {1: row(1, 1), 2: row(2, 3), 3: row(3, 3)}
    assert dict(spark.table(entry).dtypes)["price"] == "decimal(12,4)"
    assert it.rows(spark.table(entry)) == it.rows()
