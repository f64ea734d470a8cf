"""The JDBC source's JSON is understood whole or refused; its statements; types as the connector has them."""
import base64
import json

import pytest
from workbench import connect
from workbench.base import params
from workbench.base.errors import ConnectorError
from workbench.landing import polling, sources
from workbench.landing.transforms import PACKAGE


@pytest.fixture(scope="module")
def world():
    return params.load("local")


@pytest.fixture
def good(world):
    """As published, its flaws mended."""
    pg, filled = world.postgres, connect.placeholders(world)
    return {
        "connector.class": sources.JDBC, "connection.url": f"jdbc:postgresql://{pg.host}:{pg.port}/pagila",
        "connection.user": filled["database_user"], "connection.password": filled["password_reference"],
        "topic.prefix": "pagila.public.", "poll.interval.ms": "5000", "mode": "timestamp",
        "timestamp.column.name": "last_update", "table.whitelist": "address, city, country"}


def said(source, table="public.address", begin=None, end="2021-08-13 00:00:00"):
    first = {"timestamp": "-infinity", "incrementing": "-1"}
    begin = begin or {key: first[key] for key in source.keys}
    return source.statement(table, begin, end).as_string(None)


def test_what_is_published(world, good):
    source = sources.parse({**good, "numeric.mapping": "best_fit", "validate.non.null": "false", "tasks.max": "1",
                            "name": "jdbc source/01"}, world)
    assert (source.database, source.topic) == ("pagila", "pagila.public.")
    assert source.tables == ["public.address", "public.city", "public.country"]
    assert sources.parse({**good, "schema.pattern": "s", "table.whitelist": "a,b.c"}, world).tables == ["s.a", "b.c"]
    assert (source.place, source.rows, source.not_null, source.delay) == ("jdbc_source_01", 100, False, 0)
    assert sources.parse(good, world).place == "pagila.public."
    assert said(source) == ('SELECT * FROM "public"."address" WHERE "last_update" > \'-infinity\' AND "last_update" < '
                            '\'2021-08-13 00:00:00\' ORDER BY "last_update" ASC')


@pytest.mark.parametrize("change, says", [
    ({"mode": "bulk", "timestamp.column.name": None}, 'SELECT * FROM "public"."address"'),
    ({"mode": "incrementing", "timestamp.column.name": None, "incrementing.column.name": "Id"},
     'SELECT * FROM "public"."address" WHERE "Id" > \'-1\' ORDER BY "Id" ASC'),
    ({"mode": "timestamp+incrementing", "timestamp.column.name": "a, b", "incrementing.column.name": "id"},
     'SELECT * FROM "public"."address" WHERE COALESCE("a","b") < \'2021-08-13 00:00:00\' AND ((COALESCE("a","b") = '
     '\'-infinity\' AND "id" > \'-1\') OR COALESCE("a","b") > \'-infinity\') ORDER BY COALESCE("a","b"),"id" ASC'),
])
def test_the_statements_of_the_modes(world, good, change, says):
    config = {key: value for key, value in {**good, **change}.items() if value is not None}
    assert said(sources.parse(config, world)) == says


def test_a_query_is_wrapped_so_that_a_condition_can_follow(world, good):
    del good["table.whitelist"]
    query = "SELECT a.*, '{x}' AS \"50%\" FROM address a ORDER BY 1 -- the last"
    source = sources.parse({**good, "query": query}, world)
    assert said(source, "").startswith(f"SELECT * FROM ({query}\n) AS query WHERE \"last_update\" > '-infinity' AND")


def test_names_and_values_are_quoted(world, good):
    """What stands in a parameter of a notebook, say, ends up in no other place of a statement than it should."""
    odd = 'x" < now(); DROP TABLE "address'
    source = sources.parse({**good, "timestamp.column.name": odd}, world)
    quoted = odd.replace('"', '""')
    assert said(source, begin={"timestamp": "'; DROP TABLE x; --"}) == (
        f'SELECT * FROM "public"."address" WHERE "{quoted}" > \'\'\'; DROP TABLE x; --\' AND "{quoted}" < '
        f'\'2021-08-13 00:00:00\' ORDER BY "{quoted}" ASC')


@pytest.mark.parametrize("given, begins", [(None, "-infinity"), ("-1", "now"), ("0", "1970-01-01 00:00:00"),
                                           ("1628815418508", "2021-08-13 00:43:38.508000")])
def test_where_the_first_poll_begins(world, good, given, begins):
    assert sources.parse({**good, **({"timestamp.initial": given} if given else {})}, world).initial == begins


@pytest.mark.parametrize("change, says", [
    ({"connector.class": "x"}, "connector.class is 'x'.*JdbcSourceConnector"),
    ({"timestamp.column.nam": "x"}, "does not honour timestamp.column.nam.*did you mean 'timestamp.column.name'"),
    ({"table.blacklist": "x"}, "does not honour table.blacklist"),
    ({"predicates": "x"}, "does not honour predicates"),
    ({"mode": None}, "mode is missing.*timestamp"), ({"mode": "timestamps"}, "mode is 'timestamps'.*did you mean"),
    ({"timestamp.column.name": None}, "timestamp.column.name is missing.*a column"),
    ({"mode": "incrementing", "timestamp.column.name": None}, "incrementing.column.name is missing"),
    ({"incrementing.column.name": "address_id"},
     "incrementing.column.name is 'address_id'.*mode timestamp does not look at it.*published.*remove it"),
    ({"mode": "timestamp+incrementing", "incrementing.column.name": "a,b"}, "incrementing.column.name is 'a,b'"),
    ({"catalog.pattern": "public"}, "catalog.pattern is 'public'.*pagila.*published.*schema.pattern"),
    ({"query": "SELECT 1"}, "query is 'SELECT 1'.*either a query or tables"),
    ({"topic.prefix": None}, "topic.prefix is missing"), ({"topic.prefix": "a b"}, "topic.prefix is 'a b'"),
    ({"table.whitelist": None}, "table.whitelist is missing.*either a query or tables"),
    ({"table.whitelist": "a.x, b.x"}, "table.whitelist is 'a.x, b.x'.*without the schema"),
    ({"numeric.mapping": "best"}, "numeric.mapping is 'best'.*best_fit"),
    ({"validate.non.null": "no"}, "validate.non.null is 'no'"),
    ({"batch.max.rows": "0"}, "batch.max.rows is '0'.*from 1"),
    ({"timestamp.delay.interval.ms": "-1"}, "delay.interval.ms is '-1'"),
    ({"timestamp.initial": "-2"}, "initial is '-2'.*from -1"),
    ({"value.converter": "io.confluent.connect.avro.AvroConverter"}, "value.converter is.*JsonConverter"),
    ({"value.converter.schemas.enable": "false"}, "schemas.enable is 'false'.*true"),
    ({"db.timezone": "Europe/Berlin"}, "db.timezone is 'Europe/Berlin'.*UTC"),
    ({"transforms": "x", "transforms.x.type": f"{PACKAGE}MaskField$Value"}, "transforms.x.type.*MaskField"),
    ({"connection.user": "admin"}, "connection.user is not that.*cdc_reader"),
    ({"connection.url": "jdbc:postgresql://127.0.0.1:1/x"}, "connection.url is not that.*<database>"),
    ({"connection.url": None}, "connection.url is not that"),
])
def test_what_is_not_honoured_is_refused_by_name(world, good, change, says):
    config = {key: value for key, value in {**good, **change}.items() if value is not None}
    with pytest.raises(ConnectorError, match="(?s)" + says):
        sources.parse(config, world)


@pytest.mark.parametrize("change", [
    {"connection.password": "canary-7"}, {"connection.url": "jdbc:postgresql://127.0.0.1:1/x?password=canary-7"},
    {"connection.url": "jdbc:postgresql://me:canary-7@{host}/pagila"},
    {"connection.url": "{good}?password=canary-7"}])
def test_a_password_that_is_written_out_is_refused_and_not_shown(world, good, change):
    change = {key: value.replace("{good}", good["connection.url"]) for key, value in change.items()}
    with pytest.raises(ConnectorError, match=r"connection\.") as e:
        sources.parse({**good, **change}, world)
    assert "canary-7" not in str(e.value)


def numeric(precision, scale):
    return (precision << 16 | scale & 0x7FF) + 4


@pytest.mark.parametrize("precision, scale, mapping, type_", [
    (6, 2, "none", "bytes"), (6, 2, "precision_only", "bytes"), (6, 2, "best_fit", "double"),
    (20, 2, "best_fit", "bytes"), (20, 2, "best_fit_eager_double", "double"),
    (18, 0, "none", "bytes"), (18, 0, "precision_only", "int64"), (9, 0, "best_fit", "int32"),
    (4, 0, "best_fit", "int16"), (2, 0, "best_fit_eager_double", "int8"), (19, 0, "best_fit", "bytes"),
    (5, -2, "best_fit", "int32"), (5, -2, "precision_only", "bytes")])
def test_numbers_by_their_mapping(precision, scale, mapping, type_):
    field, value = sources.column("n", "numeric", numeric(precision, scale), True, mapping)
    assert field["type"] == type_ and field["optional"] is True and field["field"] == "n"
    assert value == {"bytes": "{}::text", "double": "{}::float8"}.get(type_, "{}::int8")
    assert field.get("parameters") == ({"scale": str(scale)} if type_ == "bytes" else None)


def test_a_numeric_without_precision_and_what_no_message_can_hold():
    assert sources.column("n", "numeric", -1, True, "none")[0]["parameters"] == {"scale": "127"}
    assert sources.column("n", "numeric", -1, True, "best_fit") is None
    for kind in ("_text", "int4range", "interval", "inet"):
        assert sources.column("x", kind, -1, True, "none") is None


@pytest.mark.parametrize("text, scale, unscaled", [
    ("0.00", 2, 0), ("1.27", 2, 127), ("1.28", 2, 128), ("-1.28", 2, -128), ("-1.29", 2, -129), ("-0.01", 2, -1),
    ("5", 2, 500), ("1200", -2, 12), ("3.5", 127, 35 * 10**126), ("12345678901234567890.5", 1, 123456789012345678905)])
def test_a_decimal_is_its_unscaled_number_as_java_writes_it(text, scale, unscaled):
    field, _ = sources.column("n", "numeric", numeric(40, scale) if scale < 127 else -1, True, "none")
    found = polling.payload(json.dumps({"n": text}), {"fields": [field]})["n"]
    raw = base64.b64decode(found)
    assert int.from_bytes(raw, "big", signed=True) == unscaled
    assert len(raw) == 1 or int.from_bytes(raw[1:], "big", signed=True) != unscaled, "no byte more than it takes"


@pytest.mark.parametrize("value, says", [("NaN", "NaN.*scale 2"), ("-Infinity", "-Inf"), (None, "null.*outer join")])
def test_a_number_that_no_decimal_holds_is_named(value, says):
    field, _ = sources.column("n", "numeric", numeric(6, 2), False, "none")
    with pytest.raises(ValueError, match="n is " + says):
        polling.payload(json.dumps({"n": value}), {"fields": [field]})


def test_what_a_poll_did_is_told():
    done = polling.Polled({"a": 603, "b": 2}, {}, {"a": 0, "b": 1})
    assert repr(done) == ("polled 605 messages: a 603, b 2; 1 more are never polled, for what polling goes by is null "
                          "in them (b)")
