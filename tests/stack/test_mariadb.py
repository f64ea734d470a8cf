"""MariaDB as a source: the service, what is read of it and how, who may do what, and its changes as
Avro messages."""

import datetime as dt
import threading
from decimal import Decimal

import pandas
import pymysql
import pytest
from workbench import connect, stack, tracks
from workbench.base import files, secrets
from workbench.base.errors import ConnectorError, SourceError
from workbench.base.wait import wait_until
from workbench.display import draw
from workbench.flow.capture import Capture
from workbench.flow.flow import CaptureFlow
from workbench.flow.resources import Owns
from workbench.source import mariadb, sql_file
from workbench.stack import process
from workbench.topic import registry, topics
from workbench.tracks.track import Track, is_done

MOVIES, TOPIC, HISTORY = "sampledatabase.movies", "db1.sampledatabase.movies", "dbhistory.demo1"
CREATE = "CREATE TABLE {} (movie_id int NOT NULL PRIMARY KEY, title varchar(100) NOT NULL, release_year int NOT NULL)"
TABLE = mariadb.identifier(MOVIES).as_string(None)


@pytest.fixture(scope="module")
def lab(world):
    """The world with MariaDB and the registry."""
    stack.ensure_running(world, "mariadb", "apicurio")
    yield world
    for name in ("mariadb", "apicurio"):
        stack.stop(name)


@pytest.fixture
def database(lab):
    """A maker of databases, which are gone afterwards."""
    made = []

    def make(name):
        mariadb.create_database(lab, name)
        mariadb.create_database(lab, name)  # one that is there stays
        made.append(name)
        return name

    yield make
    for name in made:
        mariadb.execute(lab, mariadb.format_sql("DROP DATABASE {}", name))


@pytest.fixture
def movies(lab, database):
    """The connector of the walkthrough, RUNNING before its table is there; nothing is left of
    it."""
    database("sampledatabase")
    mariadb.grant_replication(lab, [MOVIES])
    config = connect.config(lab, "movies_source")
    connect.apply(lab, "movies_source", config)
    connect.wait_running(lab, "movies_source")
    yield config
    connect.delete(lab, "movies_source")
    topics.delete(lab, *(t for t in topics.names(lab) if "db1" in t or t == HISTORY))
    registry.delete(lab, *(a for a in registry.names(lab) if "db1" in a))


def records(world):
    return [
        registry.inspect_message(world, value)["record"]
        for value in topics.read(world, TOPIC)["value"].dropna()
    ]


def fields(schema):
    return [(f["name"], f["type"]) for f in schema["fields"]]


# --- the service
# -----------------------------------------------------------------------------------------------------


def test_it_starts_when_asked_with_secrets_of_its_own(lab):
    stack.stop("mariadb")
    assert "mariadb" not in stack.running()
    with pytest.raises(
        SourceError,
        match=r"(?s)cannot connect to MariaDB.*stack.ensure_running\(world, \"mariadb\"\)",
    ) as error:
        mariadb.query(lab, "SELECT 1")
    assert not [v for v in secrets.read().values() if v in str(error.value)]
    (
        secrets.secrets_dir() / "mysql.replication"
    ).unlink()  # as in an instance that was made before there was MariaDB
    stack.ensure_running(lab, "mariadb")
    assert len(secrets.read()["mysql.replication"]) >= 24
    assert {s.name: s.state for s in stack.status(lab)}["mariadb"] == "up"
    users = mariadb.query(lab, "SELECT user, host FROM mysql.user ORDER BY user")
    assert (
        {"mariadb.sys", lab.mysql.admin_user}
        <= set(users["User"])
        <= {"mariadb.sys", lab.mysql.admin_user, lab.mysql.replication_user}
    ), "no root, nobody without a name"
    for user, password in (
        ("root", ""),
        ("", ""),
        (lab.mysql.admin_user, ""),
        (lab.mysql.admin_user, "guess"),
    ):
        with pytest.raises(pymysql.Error):
            pymysql.connect(host="127.0.0.1", port=lab.mysql.port, user=user, password=password)


def test_its_log_says_of_each_row_what_it_was_and_is(lab):
    wanted = {
        "binlog_format": "ROW",
        "binlog_row_image": "FULL",
        "binlog_row_metadata": "FULL",
        "log_bin": "ON",
        "time_zone": "+00:00",
        "character_set_server": "utf8mb4",
        "socket": "",
        "bind_address": "127.0.0.1",
        "binlog_expire_logs_seconds": "604800",
        "slave_connections_needed_for_purge": "0",
    }
    found = dict(mariadb.query(lab, "SHOW VARIABLES").itertuples(index=False, name=None))
    assert {name: found[name] for name in wanted} == wanted


def test_killed_in_the_midst_of_writing_it_comes_back_with_its_rows_and_the_connector_goes_on(
    lab, movies
):
    mariadb.execute(lab, CREATE.format(TABLE))
    written = []

    def write():
        try:
            with mariadb.session(lab) as c:
                for n in range(1, 100_000):
                    c.execute(
                        f"INSERT INTO {TABLE} VALUES (%s, %s, %s)", [n, f"film {n}", 1900 + n % 100]
                    )
                    written.append(n)
        except SourceError:
            pass

    writer = threading.Thread(target=write)
    writer.start()
    topics.wait_for_messages(lab, TOPIC, 20, connector="movies_source")
    process.running_process("mariadb").kill()
    writer.join(20)
    assert len(written) >= 20
    stack.ensure_running(lab, "mariadb")
    there = set(mariadb.query(lab, f"SELECT movie_id FROM {TABLE}")["movie_id"])
    assert set(written) <= there <= {*written, len(written) + 1}, (
        "the last may be there without an answer"
    )
    mariadb.execute(lab, f"INSERT INTO {TABLE} VALUES (100000, 'after', 2000)")
    topics.wait_for_messages(lab, TOPIC, len(there) + 1, timeout=60, connector="movies_source")
    seen = records(lab)
    assert {r["movie_id"] for r in seen} == there | {100000} and {r["__op"] for r in seen} == {"c"}


# --- reading
# ---------------------------------------------------------------------------------------------------------

TYPES = """
    id int PRIMARY KEY, tiny tinyint, small smallint unsigned, medium mediumint, large bigint unsigned, flag bit(1),
    bits bit(10), price decimal(38,10), ratio float, exact double, day date, at datetime(6), zoned timestamp(3) NULL,
    span time, born year, mood enum('happy', 'sad'), several set('a', 'b', 'c'), doc json, text_ varchar(40),
    raw varbinary(10)"""
ROW = [
    1,
    -128,
    65535,
    -8388608,
    2**64 - 1,
    b"\1",
    b"\2\1",
    Decimal("1234567890123456789012345678.0123456789"),
    1.1,
    1e300,
    dt.date(2024, 2, 29),
    dt.datetime(2024, 2, 29, 23, 59, 59, 999999),
    dt.datetime(2024, 2, 29, 12, 0, tzinfo=dt.timezone(dt.timedelta(hours=2))),
    dt.timedelta(hours=-30),
    2155,
    "happy",
    "a,c",
    '{"a": [1, null], "ü": "\\\\"}',
    "🎬 'quoted' \\ \"%s\" %",
    b"\0\xff'\\",
]
LENIENT = "SET STATEMENT sql_mode = 'ANSI_QUOTES' FOR"  # as older data came in
ZERO = [2, *[None] * 9, "0000-00-00", "0000-00-00 00:00:00", *[None] * 8]


def test_a_frame_has_the_types_that_the_lake_gives(lab, database):
    name = database("types_lab")
    mariadb.execute(lab, f"CREATE TABLE t ({TYPES})", database=name)
    assert (
        mariadb.execute(lab, f"INSERT INTO t VALUES ({', '.join(['%s'] * len(ROW))})", ROW, name)
        == 1
    )
    one = mariadb.query(lab, "SELECT * FROM t", database=name)
    assert {c: str(t) for c, t in one.dtypes.items() if str(t) != "object"} == {
        **dict.fromkeys(("id", "tiny", "small", "medium", "born"), "int64"),
        "flag": "bool",
        "ratio": "float64",
        "exact": "float64",
        "at": "datetime64[ns]",
        "zoned": "datetime64[ns, UTC]",
    }
    seen = one.iloc[0].tolist()
    wanted = [*ROW]
    wanted[5], wanted[6] = True, b"\1\2"  # the lowest bits first
    wanted[11], wanted[12] = (
        pandas.Timestamp(ROW[11]),
        pandas.Timestamp("2024-02-29 10:00", tz="UTC"),
    )
    assert seen == wanted and type(seen[4]) is int and isinstance(seen[7], Decimal)
    insert = f"INSERT INTO t VALUES ({', '.join(['%s'] * len(ZERO))})"
    with pytest.raises(
        SourceError, match="(?s)rejected the statement: Incorrect date value: '0000-00-00'.*day"
    ):
        mariadb.execute(lab, insert, ZERO, name)
    mariadb.execute(lab, f"{LENIENT} {insert}", ZERO, name)
    two = mariadb.query(lab, "SELECT * FROM t ORDER BY id", database=name)
    assert [str(two[c].dtype) for c in ("id", "tiny", "flag", "at")] == [
        "int64",
        "Int64",
        "boolean",
        "object",
    ]
    assert two.loc[1, "day"] == "0000-00-00" and two.loc[1, "at"] == "0000-00-00 00:00:00.000000"
    assert two.loc[0, "day"] == dt.date(2024, 2, 29) and pandas.isna(two.loc[1, "tiny"])
    assert (
        str(
            mariadb.query(lab, "SELECT count(*) AS n, 1 = 1 AS yes FROM t", database=name)[
                "n"
            ].dtype
        )
        == "int64"
    )
    assert mariadb.query(lab, "SELECT * FROM t WHERE false", database=name).empty


@pytest.mark.parametrize(
    "column, value",
    [
        ("tiny", 128),
        ("small", -1),
        ("large", 2**64),
        ("price", Decimal("1E28")),
        ("day", "2024-02-30"),
        ("mood", "so so"),
        ("several", "d"),
        ("text_", "x" * 41),
        ("doc", "{"),
        ("bits", b"\xff\xff\xff"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_and_not_cut(lab, database, column, value):
    name = database("types_lab")
    mariadb.execute(lab, f"CREATE TABLE t ({TYPES})", database=name)
    with pytest.raises(
        SourceError, match=f"(?s)MariaDB rejected the statement: .*{column}.*database {name}"
    ):
        mariadb.execute(lab, f"INSERT INTO t (id, {column}) VALUES (1, %s)", [value], name)


def test_names_are_quoted_and_values_are_bound(lab, database):
    name = database('odd"; DROP DATABASE mysql; --')
    table, column = mariadb.format_sql("{}", (name, 'or"der')), "sel`ect"
    mariadb.execute(
        lab, mariadb.format_sql("CREATE TABLE {} ({} varchar(50))", (name, 'or"der'), column)
    )
    evil = "x'); DROP TABLE t; -- \\' \\"
    mariadb.execute(lab, mariadb.format_sql("INSERT INTO {} VALUES (%s)", (name, 'or"der')), [evil])
    found = mariadb.query(
        lab,
        mariadb.format_sql("SELECT {} FROM {} WHERE {} = %s", column, (name, 'or"der'), column),
        [evil],
    )
    assert found.loc[0, column] == evil and table.as_string(None).count('""') == 2
    assert (
        mariadb.execute(
            lab, mariadb.format_sql("UPDATE {} SET {} = %s", (name, 'or"der'), column), [evil]
        )
        == 0
    )
    assert mariadb.query(lab, r"SELECT 'a\n' AS x").loc[0, "x"] == r"a\n", "as PostgreSQL reads it"


def test_the_catalog_has_the_tables_for_a_picture_with_keys_and_references(lab, database):
    name, catalog_sql = database("test_entities"), sql_file("catalog/mariadb_tables")
    for statement in (
        "CREATE TABLE author (id int PRIMARY KEY, mentor int, name text, FOREIGN KEY (mentor) REFERENCES author (id))",
        "CREATE TABLE book (id int PRIMARY KEY, title text)",
    ):
        mariadb.execute(lab, statement, database=name)
    alone = mariadb.query(lab, catalog_sql, database=name)
    assert alone["table"].tolist() == ["author", "book"] and alone["lane"].tolist() == [0, 1]
    written = """CREATE TABLE written (author int, book int, PRIMARY KEY (author, book),
        FOREIGN KEY (author) REFERENCES author (id), FOREIGN KEY (book) REFERENCES book (id))"""
    mariadb.execute(lab, written, database=name)
    catalog = mariadb.query(lab, catalog_sql, database=name)
    assert catalog.drop(columns="y").to_numpy().tolist() == [
        ["written", 0, "written\n◆→ author\n◆→ book", "author\nbook"],
        ["author", 1, "author\n◆ id\n→ mentor\n· name", ""],
        ["book", 1, "book\n◆ id\n· title", ""],
    ]
    assert catalog["y"].round(1).tolist() == [4.3, 5.3, 9.6]
    assert draw.entities(catalog, "Books").axes


def test_a_statement_without_rows_a_broken_one_and_a_role_that_is_none(lab):
    with pytest.raises(SourceError, match="mariadb.execute"):
        mariadb.query(lab, "SET @a = 1")
    with pytest.raises(SourceError, match="error in your SQL syntax"):
        mariadb.execute(lab, "SELEC 1")
    with pytest.raises(SourceError, match="error in your SQL syntax"):
        mariadb.execute(lab, "SET @a = 1; SET @b = 2")
    with pytest.raises(SourceError, match="admin or replication"):
        mariadb.connect(lab, role="root")
    with pytest.raises(SourceError, match="name of a database"):
        mariadb.create_database(lab)


def test_positions_are_in_the_order_of_the_log(lab, database):
    name = database("log_lab")
    places = [mariadb.log_position(lab)]
    mariadb.execute(lab, "CREATE TABLE t (n int)", database=name)
    places.append(mariadb.log_position(lab))
    mariadb.execute(lab, "FLUSH BINARY LOGS")
    places.append(mariadb.log_position(lab))
    assert (
        places[0].startswith("mariadb-bin.0")
        and sorted(places, key=mariadb.position_to_int) == places
    )
    assert mariadb.position_to_int("mariadb-bin.1000000:4") > mariadb.position_to_int(
        "mariadb-bin.999999:4294967295"
    )


# --- who may do what
# -------------------------------------------------------------------------------------------------


def test_the_user_of_connectors_reads_the_databases_it_is_given_and_changes_nothing(lab, database):
    mine, like, other = database("own_data"), database("ownXdata"), database("other")
    for name in (mine, like, other):
        mariadb.execute(lab, "CREATE TABLE t (n int)", database=name)
    user = lab.mysql.replication_user
    mariadb.grant_replication(lab, [f"{mine}.t", f"{mine}.not_there_yet"])
    mariadb.execute(lab, f"GRANT ALL ON own_data.* TO {user}@'%'")  # too much, by somebody's hand
    mariadb.grant_replication(lab, ["t"], mine)
    grants = set(mariadb.query(lab, f"SHOW GRANTS FOR {user}@'%'").iloc[:, 0])
    assert any(
        g.startswith("GRANT RELOAD, REPLICATION SLAVE, BINLOG MONITOR ON *.*") for g in grants
    ), grants
    assert 'GRANT SELECT, LOCK TABLES ON "own\\_data".* TO "cdc_reader"@"%"' in grants

    def may(statement, name=None):
        with mariadb.session(lab, name, role="replication") as c:
            return c.execute(statement).fetchall()

    assert may("SELECT * FROM t", mine) == () and may("SHOW MASTER STATUS")
    for statement in (
        "INSERT INTO own_data.t VALUES (1)",
        "DELETE FROM own_data.t",
        "DROP TABLE own_data.t",
        "CREATE TABLE own_data.u (n int)",
        "SELECT * FROM other.t",
        'SELECT * FROM "ownXdata".t',
        "SELECT * FROM mysql.global_priv",
        "CREATE USER x",
        "SET GLOBAL binlog_format = 'MIXED'",
        "PURGE BINARY LOGS TO 'mariadb-bin.000001'",
        "SHUTDOWN",
    ):
        with pytest.raises(SourceError, match="denied"):
            may(statement)
    assert set(mariadb.databases(lab)) >= {mine, like, other}


@pytest.mark.parametrize("tables", ["own_data.t", [], ["t"]])
def test_rights_are_given_for_databases_that_are_named(lab, tables):
    with pytest.raises(SourceError, match="a list such as"):
        mariadb.grant_replication(lab, tables)


# --- its changes
# -----------------------------------------------------------------------------------------------------


def test_a_table_that_comes_after_the_connector_and_gets_a_column(lab, movies):
    assert movies["connector.class"].endswith(".MariaDbConnector") and TOPIC not in topics.names(
        lab
    )
    mariadb.execute(lab, CREATE.format(TABLE))
    mariadb.execute(lab, f"INSERT INTO {TABLE} VALUES (1, 'Eins', 1931), (2, 'Zwei 🎬', 1984)")
    topics.wait_for_messages(lab, TOPIC, 2, connector="movies_source")
    said, text = (
        ["null", "string"],
        [("movie_id", "int"), ("title", "string"), ("release_year", "int")],
    )
    added = [("__deleted", said), ("__op", said), ("__source_ts_ms", ["null", "long"])]
    first = registry.latest(lab, f"{TOPIC}-value")
    assert (first["name"], first["namespace"], first["connect.name"]) == (
        "Value",
        TOPIC,
        f"{TOPIC}.Value",
    )
    assert (
        fields(first) == text + added
        and [f.get("default", "-") for f in first["fields"]] == ["-"] * 3 + [None] * 3
    )
    assert fields(registry.latest(lab, f"{TOPIC}-key")) == [("movie_id", "int")]
    seen = records(lab)
    assert [(r["movie_id"], r["title"], r["__op"], r["__deleted"]) for r in seen] == [
        (1, "Eins", "c", "false"),
        (2, "Zwei 🎬", "c", "false"),
    ] and all(r["__source_ts_ms"] > 0 for r in seen)

    mariadb.execute(lab, f"ALTER TABLE {TABLE} ADD COLUMN COUNTRY varchar(50) NOT NULL")
    mariadb.execute(lab, f"INSERT INTO {TABLE} VALUES (3, 'Drei', 2001, 'CH')")
    topics.wait_for_messages(lab, TOPIC, 3, connector="movies_source")
    assert fields(registry.latest(lab, f"{TOPIC}-value")) == [*text, ("COUNTRY", "string"), *added]
    versions = registry.artifacts(lab).groupby("artifact").size()
    assert versions[f"{TOPIC}-value"] == 2 and versions[f"{TOPIC}-key"] == 1
    assert records(lab)[-1]["COUNTRY"] == "CH"

    assert mariadb.execute(lab, f"UPDATE {TABLE} SET title = 'Zwo' WHERE movie_id = 2") == 1
    mariadb.execute(lab, f"DELETE FROM {TABLE} WHERE movie_id = 1")
    topics.wait_for_messages(lab, TOPIC, 6, connector="movies_source")
    assert [(r["movie_id"], r["__op"], r["__deleted"]) for r in records(lab)[3:]] == [
        (2, "u", "false"),
        (1, "d", "true"),
    ], "and a tombstone"
    assert len(topics.names(lab)) == len(
        {*topics.names(lab), TOPIC, HISTORY, "__debezium-heartbeat.db1"}
    )


def test_a_log_that_is_gone_is_told_with_the_way_to_a_new_snapshot(lab, movies):
    mariadb.execute(lab, CREATE.format(TABLE))
    mariadb.execute(lab, f"INSERT INTO {TABLE} VALUES (1, 'Eins', 1931)")
    topics.wait_for_messages(lab, TOPIC, 1, connector="movies_source")
    wait_until(lambda: offsets(lab), "the connector's offset to be kept")
    connect.rest.KafkaConnect(lab).stop("movies_source")
    mariadb.execute(lab, f"INSERT INTO {TABLE} VALUES (2, 'Zwei', 1984)")
    mariadb.execute(lab, "FLUSH BINARY LOGS")

    def purged():  # while somebody reads it, it stays
        mariadb.execute(
            lab, f"PURGE BINARY LOGS TO '{mariadb.log_position(lab).partition(':')[0]}'"
        )
        return len(mariadb.query(lab, "SHOW BINARY LOGS")) == 1

    wait_until(purged, "the log to be purged")
    connect.rest.KafkaConnect(lab).call("PUT", "/connectors/movies_source/resume")
    with pytest.raises(
        ConnectorError, match=r"(?s)connect.delete\(world, name\) deletes the offset"
    ):
        wait_until(
            lambda: False,
            "it to fail",
            timeout=60,
            error=ConnectorError,
            failure_reason=lambda: connect.failure(lab, "movies_source"),
        )
    connect.delete(lab, "movies_source")
    connect.apply(lab, "movies_source", movies)
    topics.wait_for_messages(lab, TOPIC, 3, connector="movies_source")
    assert [(r["movie_id"], r["__op"]) for r in records(lab)] == [(1, "c"), (1, "r"), (2, "r")]


def offsets(world):
    return connect.rest.KafkaConnect(world).call("GET", "/connectors/movies_source/offsets")[
        "offsets"
    ]


def test_the_offset_follows_the_log_while_others_write_and_the_log_is_bounded(
    lab, movies, database
):
    """So that a restart begins in a part of the log that is still there. The server retains nothing
    for a reader."""
    mariadb.execute(lab, CREATE.format(TABLE))
    mariadb.execute(lab, f"INSERT INTO {TABLE} VALUES (1, 'Eins', 1931)")
    connect.apply(lab, "movies_source", {**movies, "heartbeat.interval.ms": "500"})
    topics.wait_for_messages(lab, TOPIC, 1, connector="movies_source")
    others = database("others")
    mariadb.execute(lab, "CREATE TABLE t (id int PRIMARY KEY, x text)", database=others)
    for n in range(20):
        mariadb.execute(lab, "INSERT INTO t VALUES (%s, repeat('x', 60000))", [n], others)
    end = mariadb.query(lab, "SHOW BINLOG STATUS").iloc[0]

    def followed():
        at = offsets(lab)[0]["offset"]
        return (at["file"], at["pos"]) >= (
            end["File"],
            end["Position"] - 1_000,
        )  # the last transaction's own beginning

    wait_until(followed, "the committed offset to follow the log", timeout=30)
    assert topics.offset_span(lab, TOPIC) == 1
    assert mariadb.query(lab, "SELECT @@max_binlog_total_size AS n")["n"][0] == 2 << 30


def test_a_history_that_is_gone_and_a_password_that_is_wrong_are_told(lab, movies):
    mariadb.execute(lab, CREATE.format(TABLE))
    mariadb.execute(lab, f"INSERT INTO {TABLE} VALUES (1, 'Eins', 1931)")
    topics.wait_for_messages(lab, TOPIC, 1, connector="movies_source")
    wait_until(lambda: offsets(lab), "the connector's offset to be kept")
    connect.rest.KafkaConnect(lab).stop("movies_source")
    topics.delete(lab, HISTORY)
    connect.rest.KafkaConnect(lab).call("PUT", "/connectors/movies_source/resume")
    with pytest.raises(
        ConnectorError, match=r"(?s)history topic is missing.*connect.delete\(world, name\)"
    ):
        wait_until(
            lambda: False,
            "it to fail",
            timeout=60,
            error=ConnectorError,
            failure_reason=lambda: connect.failure(lab, "movies_source"),
        )
    wrong = {
        **movies,
        "database.user": lab.mysql.admin_user,  # with the other one's password
    }
    with pytest.raises(
        ConnectorError, match="(?s)movies_other.*likely: .*mariadb.grant_replication"
    ):
        connect.apply(lab, "movies_other", wrong)


def test_the_form_for_aurora_is_judged_by_mysqls_own_plugin(lab, movies):
    """As far as that goes without a MySQL: all keys are known, and it gets as far as the server."""
    form = {**movies, "connector.class": "io.debezium.connector.mysql.MySqlConnector"}
    answer = connect.rest.KafkaConnect(lab).call(
        "PUT",
        f"/connector-plugins/{form['connector.class']}/config/validate",
        {"name": "aurora", **form},
    )
    known = {c["definition"]["name"] for c in answer["configs"] if c.get("definition")}
    assert connect.configs.unknown_keys(form, known) == {}
    refused = {
        c["value"]["name"]: c["value"]["errors"] for c in answer["configs"] if c["value"]["errors"]
    }
    assert set(refused) <= {"database.hostname"}, refused


def test_a_track_on_mariadb_has_the_verbs_of_the_others(lab):
    flow = CaptureFlow(
        (Capture(MOVIES, "movie_id", "movies_source", format="avro"),),
        database="sampledatabase",
        db=mariadb,
    )
    made = Track("70_movies", ("71_database", "72_connectors"), flow, Owns(source_tables=(MOVIES,)))
    assert not is_done(lab, made, "71_database")
    tracks.reset(lab, made)
    mariadb.create_database(lab, flow.database)
    assert is_done(lab, made, "71_database") and not any(made.resources.remaining(lab).values())
    assert not is_done(lab, made, "72_connectors")
    mariadb.grant_replication(lab, [MOVIES])
    mariadb.execute(lab, CREATE.format(TABLE))
    mariadb.execute(lab, f"INSERT INTO {TABLE} VALUES (1, 'Eins', 1931), (2, 'Zwei', 1984)")
    assert flow.deploy(lab) == {TOPIC: 2} and is_done(lab, made, "72_connectors")
    flow.change(lab, "movies", 2, title="Zwo 🎬", release_year=1985)
    flow.delete(lab, "movies", 1)
    with pytest.raises(SourceError, match="no row of movies was changed"):
        flow.change(lab, "movies", 2, title="Zwo 🎬")  # as it is already
    assert flow.rows(lab).values.tolist() == [[2, "Zwo 🎬", 1985]] and flow.count(lab) == 1
    assert flow.rows(lab, condition="title = %s", values=["Zwo"]).empty
    assert [(r["movie_id"], r["__op"]) for r in records(lab)] == [
        (1, "r"),
        (2, "r"),
        (2, "u"),
        (1, "d"),
    ]
    connect.rest.KafkaConnect(lab).stop("movies_source")
    connect.rest.KafkaConnect(lab).call("PUT", "/connectors/movies_source/resume")
    connect.wait_running(
        lab, "movies_source"
    )  # it has read its schema history, as a consumer group
    replayed = f"{lab.lake.checkpoints}/replayed/{TOPIC}"
    files.write_text(f"{replayed}/an id/0-0.json", "[[0, 0]]")
    left = {what: names for what, names in made.resources.remaining(lab).items() if names}
    assert left == {
        "connectors": ["movies_source"],
        "tables in the source": [MOVIES],
        "files": [replayed],
        "consumer groups": ["db1-schemahistory"],
        "topics": ["__debezium-heartbeat.db1", TOPIC, HISTORY],
        "schemas in the registry": [
            f"{t}-{side}" for t in ("__debezium-heartbeat.db1", TOPIC) for side in ("key", "value")
        ],
    }
    tracks.reset(lab, made, since="72_connectors")
    assert is_done(lab, made, "71_database") and not any(made.resources.remaining(lab).values())
    mariadb.execute(lab, "DROP DATABASE sampledatabase")
