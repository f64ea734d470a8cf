"""The JDBC source's JSON is understood whole or refused; its statements; types as the connector has
them."""

import base64
import json
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from workbench import connect
from workbench.base import params
from workbench.base.errors import ConnectorError, LakeError
from workbench.landing import polling, sources
from workbench.source.snapshot import Column, PollSummary

PACKAGE_PREFIX = "org.apache.kafka.connect.transforms."


@pytest.fixture(scope="module")
def world():
    return params.load("local")


@pytest.fixture
def good(world):
    """As published, its flaws mended."""
    pg, filled = world.postgres, connect.placeholders(world)
    return {
        "connector.class": sources.JDBC,
        "connection.url": f"jdbc:postgresql://{pg.host}:{pg.port}/pagila",
        "connection.user": filled["database_user"],
        "connection.password": filled["password_reference"],
        "topic.prefix": "pagila.public.",
        "poll.interval.ms": "5000",
        "mode": "timestamp",
        "timestamp.column.name": "last_update",
        "table.whitelist": "address, city, country",
    }


def said(source, table="public.address", last="-infinity", end="2021-08-13 00:00:00"):
    return source.statement(table, last, end).as_string(None)


def test_what_is_published(world, good):
    source = sources.parse(
        {
            **good,
            "numeric.mapping": "best_fit",
            "validate.non.null": "false",
            "tasks.max": "1",
            "name": "jdbc source/01",
        },
        world,
    )
    assert (source.database, sources.topic_name(good, "public.address")) == (
        "pagila",
        "pagila.public.address",
    )
    assert source.tables == ["public.address", "public.city", "public.country"]
    assert sources.parse(
        {**good, "schema.pattern": "s", "table.whitelist": "a,b.c"}, world
    ).tables == ["s.a", "b.c"]
    assert source.settings["batch.max.rows"] == "100"
    assert source.settings["validate.non.null"] == "false"
    assert polling._offsets_path(world, {"name": "jdbc source/01"}).endswith(
        "/polling/jdbc_source_01.json"
    )
    assert polling._offsets_path(world, good).endswith("/polling/pagila.public..json")
    assert said(source) == (
        'SELECT * FROM "public"."address" WHERE "last_update" > \'-infinity\' AND "last_update" < '
        "'2021-08-13 00:00:00' ORDER BY \"last_update\" ASC"
    )


def test_a_query_is_wrapped_so_that_a_condition_can_follow(world, good):
    del good["table.whitelist"]
    query = "SELECT a.*, '{x}' AS \"50%\" FROM address a ORDER BY 1 -- the last"
    source = sources.parse({**good, "query": query}, world)
    assert said(source, "").startswith(
        f"SELECT * FROM ({query}\n) AS query WHERE \"last_update\" > '-infinity' AND"
    )


def test_names_and_values_are_quoted(world, good):
    """What stands in a parameter of a notebook, say, ends up in no other place of a statement than
    it should."""
    odd = 'x" < now(); DROP TABLE "address'
    source = sources.parse({**good, "timestamp.column.name": odd}, world)
    quoted = odd.replace('"', '""')
    assert said(source, last="'; DROP TABLE x; --") == (
        f'SELECT * FROM "public"."address" WHERE "{quoted}" > \'\'\'; DROP TABLE x; --\' AND "{quoted}" < '
        f"'2021-08-13 00:00:00' ORDER BY \"{quoted}\" ASC"
    )


@pytest.mark.parametrize(
    "change, says",
    [
        ({"connector.class": "x"}, "connector.class is 'x'.*JdbcSourceConnector"),
        (
            {"timestamp.column.name": "changed,at"},
            "timestamp.column.name is 'changed,at'.*one column",
        ),
        ({"mode": "bulk"}, "mode is 'bulk'.*timestamp"),
        (
            {"catalog.pattern": "public"},
            "catalog.pattern is not supported.*schema.pattern.*published",
        ),
        ({"query": "SELECT 1"}, "query is 'SELECT 1'.*either a query or tables"),
        ({"topic.prefix": "a b"}, "topic.prefix is 'a b'"),
        ({"table.whitelist": None}, "table.whitelist is missing.*either a query or tables"),
        (
            {"table.whitelist": "a.x, b.x"},
            "table.whitelist is 'a.x, b.x'.*do not contain the schema",
        ),
        ({"batch.max.rows": "0"}, "batch.max.rows is '0'.*from 1"),
        ({"timestamp.delay.interval.ms": "-1"}, "delay.interval.ms is '-1'"),
        (
            {"value.converter": "io.confluent.connect.avro.AvroConverter"},
            "value.converter is.*JsonConverter",
        ),
        ({"value.converter.schemas.enable": "false"}, "schemas.enable is 'false'.*true"),
        ({"key.converter.decimal.format": "NUMERIC"}, "key.converter.decimal.format is not sup"),
        (
            {"transforms": "x", "transforms.x.type": f"{PACKAGE_PREFIX}MaskField$Value"},
            "transforms.x.type.*MaskField",
        ),
        ({"connection.user": "admin"}, "connection.user is not that.*cdc_reader"),
        (
            {"connection.url": "jdbc:postgresql://127.0.0.1:1/x"},
            "connection.url is not that.*<database>",
        ),
        ({"connection.url": None}, "connection.url is missing"),
    ],
)
def test_what_is_not_honoured_is_refused_by_name(world, good, change, says):
    config = {key: value for key, value in {**good, **change}.items() if value is not None}
    with pytest.raises(ConnectorError, match="(?s)" + says):
        sources.parse(config, world)


@pytest.mark.parametrize(
    "change",
    [
        {"connection.password": "canary-7"},
        {"connection.url": "jdbc:postgresql://127.0.0.1:1/x?password=canary-7"},
        {"connection.url": "jdbc:postgresql://me:canary-7@{host}/pagila"},
        {"connection.url": "{good}?password=canary-7"},
        {"connection.url": "{good}?sslmode=require&password=canary-7"},
    ],
)
def test_a_password_that_is_written_out_is_refused_and_not_shown(world, good, change):
    change = {key: value.replace("{good}", good["connection.url"]) for key, value in change.items()}
    with pytest.raises(ConnectorError, match=r"connection\.") as e:
        sources.parse({**good, **change}, world)
    assert "canary-7" not in str(e.value)


def test_the_database_of_a_wrong_connection_is_named(world, good):
    with pytest.raises(ConnectorError, match="environment's PostgreSQL"):
        sources.parse({**good, "connection.url": "jdbc:sqlite:books/x"}, world)


def column(kind, precision=None, scale=None, optional=True, mapping="none"):
    return sources.connect_field(Column("n", kind, optional, precision, scale), mapping)


@pytest.mark.parametrize(
    "precision, scale, mapping",
    [(6, 2, "none"), (18, 0, "none"), (20, 2, "best_fit"), (19, 0, "best_fit")],
)
def test_a_numeric_is_a_decimal(precision, scale, mapping):
    field, value = column("numeric", precision, scale, mapping=mapping)
    assert field["type"] == "bytes" and field["optional"] is True and field["field"] == "n"
    assert value.as_string(None) == '"n"::text AS "n"'
    assert field["parameters"] == {"scale": str(scale)}


def test_a_numeric_without_precision_and_what_no_message_can_hold():
    for mapping in ("none", "best_fit"):
        assert column("numeric", mapping=mapping) is None
        assert column("numeric", 5, 2046, mapping=mapping) is None, (
            "a scale of -2, as psycopg has it"
        )
    for precision, scale in ((18, 0), (6, 2)):
        found = column("numeric", precision, scale, mapping="best_fit")
        assert found is None, "the connector makes it a whole number or a double"
    for kind in ("_text", "int4range", "interval", "inet"):
        assert column(kind) is None


def payload(row, *columns):
    schema = {"type": "struct", "fields": [field for field, _ in columns], "optional": False}
    source = SimpleNamespace(transforms={}, has_numbers=False, location="x")
    key, value = polling.encode_row(source, "topic", schema, json.dumps(row))
    assert key is None and json.loads(value)["schema"] == schema
    return json.loads(value)["payload"]


@pytest.mark.parametrize(
    "text, scale, unscaled",
    [
        ("0.00", 2, 0),
        ("1.27", 2, 127),
        ("1.28", 2, 128),
        ("-1.28", 2, -128),
        ("-1.29", 2, -129),
        ("-0.01", 2, -1),
        ("5.00", 2, 500),
        ("1234", 0, 1234),
        ("12345678901234567890.5", 1, 123456789012345678905),
    ],
)
def test_a_decimal_is_its_unscaled_number_as_java_writes_it(text, scale, unscaled):
    raw = base64.b64decode(payload({"n": text}, column("numeric", 40, scale))["n"])
    assert int.from_bytes(raw, "big", signed=True) == unscaled
    assert len(raw) == 1 or int.from_bytes(raw[1:], "big", signed=True) != unscaled, (
        "no byte more than it takes"
    )


def test_a_decimal_is_a_number_of_all_its_digits_where_the_format_is_numeric(world, good):
    """As JsonConverter writes it with decimal.format=NUMERIC; the key keeps its own format."""
    source = sources.parse(
        {
            **good,
            "value.converter.decimal.format": "NUMERIC",
            "transforms": "key,one",
            "transforms.key.type": f"{PACKAGE_PREFIX}ValueToKey",
            "transforms.key.fields": "n",
            "transforms.one.type": f"{PACKAGE_PREFIX}ExtractField$Key",
            "transforms.one.field": "n",
        },
        world,
    )
    columns = [column("numeric", 40, 21), column("text")]
    columns[1][0]["field"] = "t"
    schema = {"type": "struct", "fields": [field for field, _ in columns]}
    number = "-12345678901234567.890123456789012345600"
    row = {"n": number, "t": '\\u00001.5 " "\\u00007"'}
    key, value = polling.encode_row(source, "topic", schema, json.dumps(row))
    assert (
        f'"payload":{{"n":{number},"t":' in value and json.loads(value)["payload"]["t"] == row["t"]
    )
    assert isinstance(json.loads(key)["payload"], str)


@pytest.mark.parametrize("value", ["NaN", "-Infinity"])
def test_a_number_that_no_decimal_holds_is_named(value):
    with pytest.raises(LakeError, match=f"n is {value}, which a Decimal cannot hold"):
        payload({"n": value}, column("numeric", 6, 2))


def test_only_a_row_that_no_message_holds_is_told_as_one(world, good, monkeypatch):
    """An error of the sending, or of the database's cursor, says what it is."""
    schema = {"fields": [{"field": "n", "name": "org.apache.kafka.connect.data.Decimal"}]}
    values = polling.sql.SQL("n")
    snapshot = SimpleNamespace(
        open_snapshot=lambda *_: nullcontext(),
        read_time=lambda *_: "now",
        summarize=lambda *_, **__: PollSummary(1, "now", 0),
        json_rows=lambda *_: ['{"n": "NaN"}'],
    )
    for name, given in {
        "_poll_lock": lambda *_: nullcontext(),
        "_describe_columns": lambda *_: (schema, values),
    }.items():
        monkeypatch.setattr(polling, name, given)
    monkeypatch.setattr(polling, "snapshot", snapshot)
    monkeypatch.setattr(polling.files, "read_text", lambda _: None)
    monkeypatch.setattr(polling.topics, "create", lambda *_: None)
    monkeypatch.setattr(polling.topics, "produce", lambda world, topic, messages: list(messages))
    with pytest.raises(LakeError, match="(?s)public.address was not polled: n is NaN.*poll again"):
        polling.poll(world, good)

    def refuses(world, topic, messages):
        raise ValueError("the client's own")

    monkeypatch.setattr(polling.topics, "produce", refuses)
    with pytest.raises(ValueError, match="^the client's own$"):
        polling.poll(world, good)


def test_what_a_poll_did_is_told():
    done = polling.Polled({"a": 603, "b": 2}, {}, {"a": 0, "b": 1})
    assert repr(done) == (
        "polled 605 messages: a 603, b 2; 1 more are never polled, because their timestamp "
        "is null (b)"
    )
