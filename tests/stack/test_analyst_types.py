"""Analyst types, and JSON messages that carry their schema: values at the limits, versions of a
schema, and messages that anybody may have sent. tests/stack/test_types.py does the same with a
source database."""

import base64
import datetime as dt
import json
import time
from collections import Counter
from decimal import Decimal

import pytest
from lake_help import change_record, new_table, new_topic, produce
from workbench import hudi
from workbench.base.errors import LakeError
from workbench.hudi import decode
from workbench.hudi.decode_json import CarriedSchemas
from workbench.hudi.schemas import MAX_SCHEMAS
from workbench.hudi.tables import Table
from workbench.topic import topics

TIME, CONNECT = "io.debezium.time.", "org.apache.kafka.connect.data."
FIXED = {"__op": "string", "__deleted": "string", "__lsn": "int64"}
TABLE = Table("t", "file:/none", ("id",), "__lsn")
NUMERIC = {
    "type": "struct",
    "name": "io.debezium.data.VariableScaleDecimal",
    "fields": [{"field": "scale", "type": "int32"}, {"field": "value", "type": "bytes"}],
}


def named(kind, name):
    return {"type": kind, "name": name}


def number(text):
    """A numeric without precision, as Debezium sends it."""
    sign, digits, exponent = Decimal(text).as_tuple()
    unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
    data = unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)
    return {"scale": -exponent, "value": base64.b64encode(data).decode()}


def message(fields, key, lsn=1, op="c", **values):
    """A message of JsonConverter; `fields` are {column: Connect's schema}."""
    columns = {"id": {"type": "int32"}, **{name: {"type": kind} for name, kind in FIXED.items()}}
    columns.update({name: {"optional": True, **schema} for name, schema in fields.items()})
    schema = {
        "type": "struct",
        "fields": [{"field": name, **schema} for name, schema in columns.items()],
    }
    record = {k: v for k, v in change_record(key, lsn, op=op).items() if k in columns}
    return json.dumps({"schema": schema, "payload": {**record, **values}}, separators=(",", ":"))


@pytest.fixture
def decoded(spark, world):
    """Decode messages as one batch."""

    def run(*texts, scales=None, schemas=None, in_memory=True):
        schemas = schemas or CarriedSchemas(world, "t", None, scales or {})
        raw = spark.createDataFrame(
            [("k", text, "t", 0, n, None) for n, text in enumerate(texts)],
            "key string, value string, topic string, partition int, offset long, file string",
        )
        found = decode.rows(raw, schemas, TABLE, in_memory).orderBy("offset").collect()
        return [row.asDict(recursive=True) for row in found]

    return run


def utc(*parts):
    return dt.datetime(*parts)


MICROS = 1_000_000
LAST = 253_402_300_799
FIRST = -12_218_428_800  # 1582-10-25
ACCEPTED = [
    (named("int32", TIME + "Date"), -719_162, dt.date(1, 1, 1)),
    (named("int32", TIME + "Date"), 2_932_896, dt.date(9999, 12, 31)),
    (named("int32", TIME + "Date"), -141_417, dt.date(1582, 10, 25)),
    (named("int32", TIME + "Date"), -141_438, dt.date(1582, 10, 4)),
    (named("int32", CONNECT + "Date"), 11_356, dt.date(2001, 2, 3)),
    (named("int64", TIME + "MicroTimestamp"), FIRST * MICROS, utc(1582, 10, 25)),
    (
        named("int64", TIME + "MicroTimestamp"),
        LAST * MICROS + 999_999,
        utc(9999, 12, 31, 23, 59, 59, 999_999),
    ),
    (named("int64", TIME + "Timestamp"), FIRST * 1000, utc(1582, 10, 25)),
    (named("int64", CONNECT + "Timestamp"), -1, utc(1969, 12, 31, 23, 59, 59, 999_000)),
    (named("int64", TIME + "NanoTimestamp"), -1, utc(1969, 12, 31, 23, 59, 59, 999_999)),
    (named("int64", TIME + "NanoTimestamp"), 2**63 - 1, utc(2262, 4, 11, 23, 47, 16, 854_775)),
    (
        named("string", TIME + "ZonedTimestamp"),
        "2001-02-03T02:05:06.789012Z",
        utc(2001, 2, 3, 2, 5, 6, 789_012),
    ),
    (
        named("string", TIME + "ZonedTimestamp"),
        "2001-02-03T02:05:06+02:00",
        utc(2001, 2, 3, 0, 5, 6),
    ),
    (named("int64", TIME + "MicroTime"), 86_400 * MICROS, "24:00:00.000000"),
    (named("int64", TIME + "MicroTime"), 0, "00:00:00.000000"),
    # MariaDB's: negative, and of more than a day
    (named("int64", TIME + "MicroTime"), -(838 * 3600 * MICROS + 1), "-838:00:00.000001"),
    (named("int32", TIME + "Time"), 36_000_007, "10:00:00.007000"),
    (named("int32", CONNECT + "Time"), 1, "00:00:00.001000"),
    (named("int64", TIME + "NanoTime"), 86_399_999_999_999, "23:59:59.999999"),
    (named("int64", TIME + "MicroDuration"), -(2**63), Decimal("-9223372036854.775808")),
    (NUMERIC, number("9" * 28 + "." + "9" * 10), Decimal("9" * 28 + "." + "9" * 10)),
    (NUMERIC, number("-" + "9" * 28 + "." + "9" * 10), Decimal("-" + "9" * 28 + "." + "9" * 10)),
    (NUMERIC, number("0.12345678900"), Decimal("0.1234567890")),
    (named("string", "io.debezium.data.Json"), '{"a": 1}', '{"a": 1}'),
    (
        {**named("bytes", CONNECT + "Decimal"), "parameters": {"scale": "2"}},
        -12.34,
        Decimal("-12.34"),
    ),
]
REFUSED = [
    (named("int32", TIME + "Date"), -719_163, "is not a date from"),
    (named("int32", TIME + "Date"), 2_932_897, "is not a date from"),
    (named("int32", TIME + "Date"), -141_437, "except 1582-10-05"),
    (named("int32", TIME + "Date"), -141_418, "to 1582-10-24"),
    (named("int64", TIME + "MicroTimestamp"), FIRST * MICROS - 1, "is not a time from"),
    (named("int64", TIME + "MicroTimestamp"), (LAST + 1) * MICROS, "is not a time from"),
    (named("int64", TIME + "Timestamp"), FIRST * 1000 - 1, "is not a time from"),
    (named("int64", TIME + "Timestamp"), 9223372036825200, "is not a time from"),
    (named("int64", TIME + "Timestamp"), -(2**63), "is not a time from"),
    (named("string", TIME + "ZonedTimestamp"), "infinity", "is not a time from"),
    (named("string", TIME + "ZonedTimestamp"), "-0043-03-15T00:00:00.000000Z", "is not a time"),
    (named("string", TIME + "ZonedTimestamp"), "1582-10-24T23:59:59.999999Z", "is not a time"),
    (named("string", TIME + "ZonedTimestamp"), "+10000-01-01T00:00:00Z", "is not a time from"),
    (NUMERIC, number("1" + "0" * 28), "at most 28 digits before the decimal point and 10 after"),
    (NUMERIC, number("0.12345678901"), "and 10 after it"),
    (NUMERIC, number("1" + "0" * 60), "and 10 after it"),
]


def test_values_at_the_limits(decoded):
    fields = {f"a{n}": schema for n, (schema, *_) in enumerate(ACCEPTED)}
    values = {f"a{n}": sent for n, (_, sent, _) in enumerate(ACCEPTED)}
    lists = {
        name: {"type": "array", "items": {**schema, "optional": True}}
        for name, schema in fields.items()
    }
    (one,) = decoded(message(fields, 1, **values))
    (many,) = decoded(message(lists, 1, **{name: [v, None] for name, v in values.items()}))
    wanted = {f"a{n}": value for n, (_, _, value) in enumerate(ACCEPTED)}
    assert (one["outcome"], one["reason"]) == (many["outcome"], many["reason"]) == ("upsert", None)
    assert {name: one["row"][name] for name in fields} == wanted
    assert {name: many["row"][name] for name in fields} == {
        name: [value, None] for name, value in wanted.items()
    }
    (none,) = decoded(message(lists, 1))
    assert none["outcome"] == "upsert" and not any(none["row"][name] for name in fields)


def test_what_a_column_cannot_hold_is_a_dead_letter_with_its_reason(decoded):
    fields, messages = {}, []
    for n, (schema, _, _) in enumerate(REFUSED):
        fields[f"one{n}"] = schema
        fields[f"many{n}"] = {"type": "array", "items": {**schema, "optional": True}}
    for n, (_, sent, _) in enumerate(REFUSED):
        messages += [
            message(fields, 1, **{f"one{n}": sent}),
            message(fields, 1, lsn=2, op="d", __deleted="true", **{f"one{n}": sent}),
            message(fields, 1, **{f"many{n}": [None, sent, None]}),
        ]
    found = decoded(*messages)
    for n, (_, sent, reason) in enumerate(REFUSED):
        alone, deleted, listed = found[3 * n : 3 * n + 3]
        outcomes = [row["outcome"] for row in (alone, deleted, listed)]
        assert outcomes == ["dead", "delete", "dead"], sent
        for row, column in ((alone, f"one{n}"), (listed, f"many{n}")):
            assert row["reason"].startswith(f'{{"{column}":') and reason in row["reason"], row


UNAVAILABLE = "__debezium_unavailable_value"
LIST = {"type": "array"}


@pytest.mark.parametrize(
    "schema, sent, other",
    [
        ({"type": "string"}, UNAVAILABLE, "x"),
        ({"type": "bytes"}, base64.b64encode(UNAVAILABLE.encode()).decode(), "eA=="),
        ({**LIST, "items": {"type": "string", "optional": True}}, [UNAVAILABLE], ["x"]),
        *[
            ({**LIST, "items": {**kind, "optional": True}}, [*UNAVAILABLE.encode()], [95])
            for kind in ({"type": "int32"}, {"type": "int64"}, named("int32", TIME + "Date"))
        ],
    ],
)
def test_a_large_value_that_was_not_read_is_a_dead_letter(decoded, schema, sent, other):
    """Also in a list, as Debezium's connector fills it."""
    dead, kept = decoded(message({"x": schema}, 1, x=sent), message({"x": schema}, 2, x=other))
    assert (dead["outcome"], kept["outcome"]) == ("dead", "upsert")
    assert "the large value of x is not in the log" in dead["reason"]


def test_the_scale_of_a_column(decoded):
    sent = {"a": number("1.234"), "b": number("1.2340")}
    fields = dict.fromkeys(sent, NUMERIC)
    (row,) = decoded(message(fields, 1, **sent), scales={"a": 3})
    assert row["row"]["a"] == Decimal("1.234") and row["row"]["a"].as_tuple().exponent == -3
    assert row["row"]["b"].as_tuple().exponent == -10
    (row,) = decoded(message(fields, 1, **sent), scales={"a": 2})
    assert "36 digits before the decimal point and 2 after" in row["reason"]


@pytest.mark.parametrize("in_memory", [True, False])
def test_each_message_is_read_with_its_own_schema(decoded, in_memory):
    """A column of milliseconds becomes one of microseconds, then one with a zone: all are times. A
    new column is added; a dropped one stays."""
    found = decoded(
        message(
            {"at": named("int64", TIME + "Timestamp"), "old": {"type": "string"}},
            1,
            at=1000,
            old="x",
        ),
        message({"at": named("int64", TIME + "MicroTimestamp")}, 2, at=1000),
        None,
        message(
            {"at": named("string", TIME + "ZonedTimestamp"), "new": {"type": "int16"}},
            3,
            at="1970-01-01T00:00:02Z",
            new=7,
        ),
        in_memory=in_memory,
    )
    assert [row["outcome"] for row in found] == ["upsert", "upsert", "tombstone", "upsert"]
    rows = [row["row"] for row in found if row["row"]]
    assert [row["at"] for row in rows] == [
        utc(1970, 1, 1, 0, 0, 1),
        utc(1970, 1, 1, 0, 0, 0, 1000),
        utc(1970, 1, 1, 0, 0, 2),
    ]
    assert [(row["old"], row["new"]) for row in rows] == [("x", None), (None, None), (None, 7)]


def test_messages_that_anybody_may_have_sent(decoded):
    good = message({"x": {"type": "int32"}}, 1, x=1)
    schema = '{"schema":%s,"payload":{"id":2,"__lsn":1,"x":5}}'
    found = decoded(
        good,
        '{"id":2,"__lsn":1,"x":5}',
        schema % '{"type":"struct"}',
        schema % '{"type":"struct","fields":[{"field":"id","type":"int128"}]}',
        schema % '{"type":"struct","fields":7}',
        schema % '{"type":"string"}',
        schema % ('{"type":"array","items":' * 3000 + "{}" + "}" * 3000),
        schema % '{"type":"struct","fields":[}',
        schema % '{"type":"struct","fields":[{"field":"1 x","type":"int32"}]}',
        '{"schema":{"type":"struct"',
        '{"schema":null,"payload":null}',
        "no JSON",
        None,
    )
    outcomes = ["upsert", *["dead"] * 9, "tombstone", "dead", "tombstone"]
    assert [row["outcome"] for row in found] == outcomes
    reasons = {row["reason"].partition(":")[0] for row in found if row["outcome"] == "dead"}
    assert reasons == {"schema of the message cannot be read", "malformed JSON"}


@pytest.mark.parametrize("is_readable", [True, False])
def test_messages_of_very_many_schemas_are_dead_letters(decoded, is_readable):
    """Of a hundred schemas the messages are rows; those of all others are dead letters, in one small query."""
    kind = "int32" if is_readable else "int128"
    strange = [message({f"x{n % 9}": {"type": kind, "doc": n}}, n) for n in range(1_500)]
    good = message({"x": {"type": "int32"}}, 1_501, x=1)
    begun = time.monotonic()
    found = decoded(*strange, good, good)
    outcomes = Counter(row["outcome"] for row in found)
    rows = MAX_SCHEMAS + 1 if is_readable else 2
    assert outcomes == {"upsert": rows, "dead": 1_502 - rows}
    assert [row["outcome"] for row in found[-2:]] == ["upsert"] * 2
    reasons = {row["reason"] for row in found if row["reason"]}
    assert len(reasons) == 1 and "not one of the 100 most frequent" in reasons.pop()
    assert time.monotonic() - begun < 60


def test_messages_without_schema_are_an_error_for_a_new_table(decoded):
    with pytest.raises(LakeError, match=r"(?s)no message has a schema.*schemas\.enable=true"):
        decoded('{"id":2,"__lsn":1}')


def test_a_table_follows_the_schemas_of_its_messages(world, spark):
    """Over several batches, with large ones by Spark's Kafka reader; nothing is in data/schemas."""
    topic, table = new_topic(world), new_table(world, partition=(), type="cow")
    at = {"at": named("int64", TIME + "MicroTimestamp")}
    more = {**at, "price": NUMERIC}
    source = hudi.Topic(topic, types="analyst", scales={"price": 2})
    try:
        produce(world, topic, *((str(n), message(at, n, at=n)) for n in range(3)))
        assert hudi.ingest(spark, world, source, table).upserts == 3
        produce(
            world,
            topic,
            *(
                (str(n), message(more, n, lsn=2, at=n, price=number("1.50")))
                for n in range(2, 2500)
            ),
        )
        assert hudi.ingest(spark, world, source, table).upserts == 2498
        types = dict(hudi.read(spark, table).dtypes)
        assert (types["at"], types["price"]) == ("timestamp", "decimal(38,2)")
        changes = [row["change"] for row in hudi.schema_changes(table).to_dict("records")]
        assert changes == ["added price decimal(38,2)"], changes
        rows = hudi.read(spark, table).orderBy("id").select("price").limit(4).collect()
        assert [row["price"] for row in rows] == [None, None, Decimal("1.50"), Decimal("1.50")]
        produce(world, topic, ("1", None))
        assert hudi.ingest(spark, world, source, table).tombstones == 1
        with pytest.raises(LakeError, match="its column cannot follow"):
            produce(world, topic, ("1", message(more, 1, lsn=3, price=number("1.50"))))
            hudi.ingest(spark, world, hudi.Topic(topic, types="analyst"), table)
    finally:
        hudi.drop(spark, world, table)
        topics.delete(world, topic)


def test_a_batch_whose_analysis_takes_many_rounds(world, spark):
    """By default Spark gives up after a hundred: it did at a table with nested numbers, when the reason of
    a dead letter was added to the query."""
    topic = new_topic(world)
    table = new_table(
        world, key=("n",), partition=(), type="cow", ordering="__op,__lsn", encodes_key=True
    )
    decimal = {**named("bytes", CONNECT + "Decimal"), "parameters": {"scale": "2"}}
    fields = {"n": NUMERIC, "list": {"type": "array", "items": {**decimal, "optional": True}}}
    more = {**fields, "added": named("int32", TIME + "Date")}
    source = hudi.Topic(topic, types="analyst")
    try:
        produce(world, topic, ("1", message(fields, 1, n=number("1.5"), list=[2.5, None])))
        assert hudi.ingest(spark, world, source, table).upserts == 1
        bad = message(more, 3, n=number("3.5"), list=[True, None], added=7)
        good = message(fields, 2, n=number("2.5"), list=[2.5, None])
        produce(world, topic, ("2", good), ("3", bad))
        done = hudi.ingest(spark, world, source, table)
        assert (done.upserts, done.dead_letters) == (1, 1)
        (letter,) = hudi.dead_letters(spark, world, table).collect()
        assert letter.reason == "column list is [true,null], which is no array<decimal(38,2)>"
    finally:
        hudi.drop(spark, world, table)
        topics.delete(world, topic)
