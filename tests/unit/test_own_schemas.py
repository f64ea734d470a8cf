"""The drill of random schemas can fail: it makes what it says, and sees what is wrong."""

import datetime as dt
from decimal import Decimal

import own_schemas
import pytest
from own_schemas import KINDS, NULL_IN_MESSAGES, Column, Schema
from own_schemas_mariadb import MariaSchema


@pytest.mark.parametrize("schema", [Schema, MariaSchema])
def test_a_seed_is_one_schema(schema):
    one, other = schema(7), schema(7)
    assert one.ddl == other.ddl != schema(8).ddl
    changes = [one.transaction(0.1) for _ in range(50)]
    assert changes == [other.transaction(0.1) for _ in range(50)]
    assert len({text.split()[0] for statements in changes for text in statements}) >= 3


def test_a_required_numeric_has_no_value_that_debezium_sends_as_null():
    schemas, seen = [Schema(seed) for seed in range(600)], set()
    for column in (c for s in schemas for c in s.columns if c.kind.rule in ("loose", "decimal")):
        values = {column.extra.removeprefix("DEFAULT ")}
        values.update(schemas[0].value(column, hostile=1) for _ in range(20))
        if column.required:
            assert not values & NULL_IN_MESSAGES, column
        seen |= values
    assert seen >= NULL_IN_MESSAGES


def test_most_tables_have_an_identity_that_the_check_accepts():
    ends = [Schema(seed).ddl[-1] for seed in range(600)]
    full = sum(ddl.endswith("REPLICA IDENTITY FULL") for ddl in ends)
    assert 250 < full < 400
    assert sum(ddl.endswith("REPLICA IDENTITY NOTHING") for ddl in ends) < 40


def test_a_difference_is_seen():
    schema = Schema(1)
    schema.columns = [Column("Id", KINDS["integer"], True, True), Column("v", KINDS["text"])]
    truth = [{"Id": 1, "v": "a"}, {"Id": 2, "v": None}]
    lake = [{"id": 1, "v": "a"}, {"id": 2, "v": None}]
    assert own_schemas.differences(schema, truth, lake) == []
    for wrong in (
        lake[:1],
        [*lake, lake[0]],
        [*lake, {"id": 3, "v": "a"}],
        [lake[0], {"id": 2, "v": ""}],
        [lake[0], {"id": 2, "v": "null"}],
        [{"id": True, "v": "a"}, lake[1]],
    ):
        assert len(own_schemas.differences(schema, truth, wrong)) >= 1, wrong


@pytest.mark.parametrize(
    "kind, text, value",
    [
        ("real", "0.1", 0.10000000149011612),
        ("double precision", "-0", -0.0),
        ("numeric", "12.50", Decimal("12.5000000000")),
        ("numeric(10,2)", "NaN", None),
        ("timestamptz", "2001-02-03 02:05:06+00", dt.datetime(2001, 2, 3, 2, 5, 6)),
        ("date", "0001-01-01", dt.date(1, 1, 1)),
        ("bytea", "\\x00ff", bytearray(b"\0\xff")),
        ("text[]", '["a", null, ""]', ["a", None, ""]),
        ("vector(3)", "[1,2.5,3]", [1.0, 2.5, 3.0]),
        ("point", "(1.5,-2)", {"x": 1.5, "y": -2.0}),
    ],
)
def test_a_value_of_the_source_is_that_of_the_lake(kind, text, value):
    column = Column("c", KINDS[kind])
    assert own_schemas.wanted(column, text) == own_schemas.canonical(value)


@pytest.mark.parametrize(
    "kind, text, refused",
    [
        ("date", "infinity", True),
        ("date", "1582-10-04", False),
        ("date", "1582-10-10", True),
        ("timestamp", "1582-10-24 00:00:00", True),
        ("timestamp[]", '["2001-02-03 00:00:00", "infinity"]', True),
        ("numeric", "0.12345678901", True),
        ("numeric", "1e27", False),
        ("numeric", "NaN", False),
        ("text", "infinity", False),
        ("date", None, False),
    ],
)
def test_what_is_a_dead_letter(kind, text, refused):
    assert own_schemas.is_refused(Column("c", KINDS[kind]), text) == refused
