"""The messages of own flows: nulls beside defaults, unchanged large values, settings of database and role."""

import json

import own_help
import pytest
from own_flow_help import PORT, execute
from workbench import connect, hudi, operate, own, stack
from workbench.base import wait_until
from workbench.base.errors import LakeError, SourceError, WorkbenchError
from workbench.own import files


@pytest.fixture
def bikes(server):
    """The same without tables; afterwards nothing of a flow is left."""
    execute(server, "DROP SCHEMA IF EXISTS public CASCADE; CREATE SCHEMA public")
    yield server
    for name in own.names(server):
        own.forget(server, name)


def lake_rows(spark, world, name, columns="*"):
    """Return the rows of a lake table as Spark reads them: {id: the values}."""
    table = own.load(world, "bikes").table(world, name)
    rows = hudi.read(spark, table).selectExpr("id", columns).collect()
    return {row[0]: tuple(row[1:]) for row in rows}


DEFAULTS = """
    CREATE TYPE mood AS ENUM ('glad', 'sad');
    CREATE TABLE d (id int PRIMARY KEY, a int DEFAULT 5, b text DEFAULT 'x', c timestamptz DEFAULT now(),
        e boolean DEFAULT true, f numeric(6, 2) DEFAULT 1.5, g date DEFAULT '2020-01-01', h text[] DEFAULT '{a}',
        i jsonb DEFAULT '{}', j uuid DEFAULT gen_random_uuid(), k mood DEFAULT 'sad', l bytea DEFAULT '\\x00',
        m float8 DEFAULT 'NaN', n interval DEFAULT '1 day', o numeric DEFAULT 7, p int[] DEFAULT '{1}');
    INSERT INTO d SELECT 1;
    INSERT INTO d SELECT n, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
        FROM generate_series(2, 3) n;
    """


def test_a_null_arrives_beside_a_default(bikes, spark):
    """In the snapshot, in changes, and in a column that is added later."""
    execute(bikes, DEFAULTS)
    execute(
        bikes,
        "CREATE TABLE later (id int PRIMARY KEY, a int DEFAULT 5, b text DEFAULT 'x'); "
        "INSERT INTO later SELECT 1; INSERT INTO later VALUES (2, NULL, NULL), (3, NULL, NULL)",
    )
    own.capture(bikes, "bikes", "d", "later")
    execute(
        bikes,
        "UPDATE d SET b = 'changed' WHERE id = 3; INSERT INTO d VALUES (4, NULL, NULL), (5, 1, 'x');"
        "UPDATE later SET b = 'changed' WHERE id = 3; INSERT INTO later VALUES (4, NULL, NULL);"
        "ALTER TABLE later ADD COLUMN q int DEFAULT 9; UPDATE later SET a = a, q = NULL WHERE id < 3;"
        "UPDATE later SET a = a WHERE id > 2; INSERT INTO later VALUES (6)",
    )
    own.follow(bikes, "bikes")
    own.compare(bikes, "bikes")
    rows = lake_rows(spark, bikes, "later", "struct(a, b, q) AS v")
    assert {id: tuple(v) for id, (v,) in rows.items()} == {
        1: (5, "x", None),
        2: (None, None, None),
        3: (None, "changed", 9),
        4: (None, None, 9),
        6: (5, "x", 9),
    }


def test_avro_is_refused_where_a_null_would_be_a_default(bikes):
    """Also if the default comes later: such messages are dead letters."""
    execute(bikes, DEFAULTS)
    execute(bikes, "CREATE TABLE v (id int PRIMARY KEY, a int); INSERT INTO v VALUES (1, NULL)")
    with pytest.raises(SourceError, match="(?s)a null of a, b, c, .*--format json"):
        own.capture(bikes, "bikes", "d", format="avro")
    assert own.names(bikes) == []

    own.capture(bikes, "bikes", "v", format="avro")
    execute(bikes, "ALTER TABLE v ALTER a SET DEFAULT 5; INSERT INTO v VALUES (2, NULL)")
    execute(bikes, "ALTER TABLE v ADD b text DEFAULT 'x'; INSERT INTO v VALUES (3, NULL, NULL)")
    with pytest.raises(LakeError, match="(?s)cannot tell a null of a.*--format json"):
        own.follow(bikes, "bikes")
    with pytest.raises(WorkbenchError, match="a null of a"):
        own.compare(bikes, "bikes")


SETTINGS = {
    "bytea_output": "escape",
    "extra_float_digits": "0",
    '"IntervalStyle"': "sql_standard",
    '"DateStyle"': "SQL, DMY",
    '"TimeZone"': "Asia/Kolkata",
    "default_transaction_read_only": "on",
    "default_transaction_isolation": "serializable",
    "statement_timeout": "1s",
    "lock_timeout": "1s",
    "idle_session_timeout": "2s",
    "idle_in_transaction_session_timeout": "1s",
    "quote_all_identifiers": "on",
    "xmlbinary": "hex",
    "standard_conforming_strings": "off",
}
STYLED = """
    CREATE TABLE styled (id int PRIMARY KEY, n int, a bytea, b float8, c real, d interval, e daterange, f tstzrange, g timestamptz,
        h date, i bytea[], j float8[], k text, l timestamptz[], m timetz, o jsonb, p "Mood");
    INSERT INTO styled SELECT n, 1, '\\x005c27ff', 1.0::float8 / 3, 1.0::real / 3, '1 day 02:03:04.5', '[2020-01-02,2020-03-04)',
        '[2020-01-02 03:04:05+00,2020-03-04 00:00+00)', '2020-01-02 03:04:05.678901+00', '2020-01-02', ARRAY['\\x5c00'::bytea],
        ARRAY[0.1::float8 + 0.2], 'a\\b''ü€', ARRAY['2020-01-02 03:04:05+00'::timestamptz], '03:04:05+02',
        jsonb_build_object('at', '2020-01-02'::timestamptz), 'glad' FROM generate_series(1, 4) n;
    ALTER TABLE styled REPLICA IDENTITY FULL;
    """


def test_settings_of_database_and_role_change_no_value(bikes, spark):
    """The sessions of snapshot, log and comparison set what they need."""
    execute(bikes, "CREATE TYPE \"Mood\" AS ENUM ('glad')")
    execute(bikes, STYLED)
    scopes = ("DATABASE bikes", f"ROLE {own_help.USER}")
    for number, (name, value) in enumerate(SETTINGS.items()):
        execute(bikes, f"ALTER {scopes[number % 2]} SET {name} = '{value}'")
    try:
        with own_help.login(PORT, "bikes") as users_own:
            [shown] = users_own.execute("SHOW bytea_output").fetchone()
            assert shown == "escape"
        own.capture(bikes, "bikes", "styled")
        execute(bikes, "UPDATE styled SET n = 2 WHERE id > 2")
        own.follow(bikes, "bikes")
        own.compare(bikes, "bikes")
        expected = ("005c27ff", 1 / 3, 93784.5, "[2020-01-02,2020-03-04)", 0.1 + 0.2, "a\\b'ü€")
        columns = "struct(lower(hex(a)), b, double(d), e, j[0], k) AS v"
        rows = lake_rows(spark, bikes, "styled", columns)
        assert {id: tuple(v) for id, (v,) in rows.items()} == dict.fromkeys(range(1, 5), expected)
        [reconciled] = operate.reconcile(bikes, "bikes")
        assert reconciled.is_equal
    finally:
        for scope in scopes:
            execute(bikes, f"ALTER {scope} RESET ALL")


LARGE = "(SELECT {} FROM generate_series(1, 3000) n)"
KEYS = {
    "bigint": "7",
    "text": "'it''s'",
    "uuid": "'12345678-1234-1234-1234-123456789abc'",
    "timestamptz": "'2020-01-02 03:04:05.678901+00'",
    "numeric": "1.5",
    "mood": "'sad'",
    "inet": "'10.0.0.1'",
}
READ = {  # what is read from the table
    "text": "string_agg(md5(n::text), '')",
    "bytea": "decode(string_agg(md5(n::text), ''), 'hex')",
    "jsonb": "jsonb_agg(md5(n::text))",
    "text[]": "array_agg(md5(n::text))",
    "int[]": "array_agg(n)",
    "date[]": "array_agg(DATE '2000-01-01' + n)",
    "json": "to_json(string_agg(md5(n::text), ''))",
    "bigint[]": "array_agg(n::bigint)",
    "bytea[]": "array_agg(decode(md5(n::text), 'hex'))",
}
LOGGED = {  # what needs the old row in the log
    "boolean[]": "array_agg(n % 3 = 0)",
    "smallint[]": "array_agg(n::smallint)",
    "float8[]": "array_agg(n / 7.0)",
    "numeric(10, 2)[]": "array_agg(n / 8.0)",
    "uuid[]": "array_agg(md5(n::text)::uuid)",
    "timestamptz[]": "array_agg(TIMESTAMPTZ '2000-01-01 00:00+00' + n * INTERVAL '1 s')",
    "mood[]": "array_agg((ARRAY['glad', 'sad'])[1 + n % 2]::mood)",
    "bit varying": "('1' || string_agg((n * 7919)::bit(32)::text, ''))::varbit",
}


def create_large(server, name, keys, kinds, column="id"):
    """Create a table with one row whose columns are large, and stored outside of it as they are.

    Args:
        server: the world.
        name: name of the table.
        keys: {type of a key column: its value in SQL}.
        kinds: {type of a large column: its value in SQL}.
        column: name of the first key column.
    """
    columns = ", ".join(f"c{i} {kind}" for i, kind in enumerate(kinds))
    values = ", ".join(LARGE.format(value) for value in kinds.values())
    names = [f'"{column}{i or ""}"' for i in range(len(keys))]
    key_columns = ", ".join(f"{each} {kind}" for each, kind in zip(names, keys))
    execute(
        server,
        f"CREATE TABLE {name} ({key_columns}, n int, {columns}, PRIMARY KEY ({', '.join(names)})); "
        + "".join(
            f"ALTER TABLE {name} ALTER c{i} SET STORAGE EXTERNAL; " for i in range(len(kinds))
        )
        + f"INSERT INTO {name} SELECT {', '.join(keys.values())}, 1, {values}",
    )


def test_a_large_value_that_an_update_does_not_change_arrives(bikes):
    """It is read from the table, by a key of one column or of each type, or the check demands that the log has it."""
    execute(bikes, "CREATE TYPE mood AS ENUM ('glad', 'sad')")
    number, text = {"bigint": KEYS["bigint"]}, {"text": READ["text"]}
    create_large(bikes, "logged", number, LOGGED)
    create_large(bikes, "dated", {"date": "'2020-01-02'"}, text)
    create_large(bikes, "quoted", number, {"int[]": READ["int[]"]}, column="Id")
    for name in ("logged", "dated", "quoted"):
        message = f"(?s)a large value .* c0 .*ALTER TABLE public.{name} REPLICA IDENTITY FULL"
        with pytest.raises(SourceError, match=message):
            own.capture(bikes, "bikes", name)
        execute(bikes, f"ALTER TABLE {name} REPLICA IDENTITY FULL")
    create_large(bikes, "read", number, READ)
    create_large(bikes, "keyed", KEYS, text)
    names = ["logged", "dated", "quoted", "read", "keyed"]
    own.capture(bikes, "bikes", *names)
    execute(bikes, "; ".join(f"UPDATE {name} SET n = 2" for name in names))
    done = own.follow(bikes, "bikes")
    assert {done[name].upserts for name in names} == {1}
    own.compare(bikes, "bikes")


def test_what_a_connector_needs_runs_with_it(bikes):
    """The schema registry starts with Connect; `follow` restarts a connector that failed without it."""
    execute(bikes, "CREATE TABLE v (id int PRIMARY KEY); INSERT INTO v VALUES (1)")
    own.capture(bikes, "bikes", "v", format="avro")
    path = files.connector_path("bikes")
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "value.converter.apicurio.registry.retry-count": "0"}))
    own.capture(bikes, "bikes", "v")

    stack.stop("connect", "apicurio")
    stack.up(bikes, ["connect"])
    assert "apicurio" in stack.running()

    stack.stop("apicurio")
    execute(bikes, "ALTER TABLE v ADD a int; INSERT INTO v VALUES (2, 2)")
    wait_until(lambda: connect.failure(bikes, "own_bikes"), "the connector to fail", timeout=90)
    assert own.follow(bikes, "bikes")["v"].upserts == 1
    own.compare(bikes, "bikes")


def test_the_encoding_of_a_database(server, spark):
    """Any that PostgreSQL converts; SQL_ASCII has no meaning and is refused."""
    names = {"LATIN1": "latin", "SQL_ASCII": "unknown"}
    for encoding, name in names.items():
        statement = f"CREATE DATABASE {name} ENCODING {encoding} TEMPLATE template0 LOCALE 'C'"
        with own_help.login(PORT, "postgres") as users_own:
            users_own.execute(statement)
        at = own_help.with_source(server, port=PORT, database=name)
        execute(
            at, "CREATE TABLE v (id int PRIMARY KEY, a text); INSERT INTO v VALUES (1, 'caf\u00e9')"
        )
        if name == "latin":
            own.capture(at, "bikes", "v")
            execute(at, "INSERT INTO v VALUES (2, 'm\u00fcde')")
            own.follow(at, "bikes")
            assert lake_rows(spark, at, "v", "a") == {1: ("caf\u00e9",), 2: ("m\u00fcde",)}
            own.forget(at, "bikes")
        else:
            with pytest.raises(SourceError, match="encoding: a text that is not UTF-8"):
                own.capture(at, "bikes", "v")
