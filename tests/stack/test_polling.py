"""Polling on real PostgreSQL and Kafka: modes, types, what it sees and what it does not, and
faults."""

import base64
import contextlib
import datetime
import json
import os
import random
import subprocess
import sys
import time
import uuid
from pathlib import Path

import kafka_connect_java
import pytest
from lake_help import kill_service_during
from workbench import connect, landing, stack
from workbench.base import files, paths
from workbench.base.errors import LakeError, SourceError, WorkbenchError
from workbench.landing.sources import JDBC
from workbench.source import postgres
from workbench.topic import topics

PACKAGE_PREFIX = "org.apache.kafka.connect.transforms."

DATABASE = "polled"


class Lab:
    """Tables of one test, their topics, and connectors on them."""

    def __init__(self, world):
        self.world, self.prefix, self.configs = world, f"p{uuid.uuid4().hex[:8]}_", []

    def sql(self, *statements):
        for statement in statements:
            postgres.execute(self.world, statement.replace("$", self.prefix), database=DATABASE)

    def table(self, columns, name="t"):
        reader = self.world.postgres.replication_user
        self.sql(f"CREATE TABLE ${name} ({columns})", f"GRANT SELECT ON ${name} TO {reader}")

    def config(self, **settings):
        pg, filled = self.world.postgres, connect.placeholders(self.world)
        config = {
            "name": f"{self.prefix}{len(self.configs)}",
            "connector.class": JDBC,
            "connection.url": f"jdbc:postgresql://{pg.host}:{pg.port}/{DATABASE}",
            "connection.user": filled["database_user"],
            "connection.password": filled["password_reference"],
            "topic.prefix": f"{self.prefix}{len(self.configs)}.",
            "mode": "timestamp",
            "timestamp.column.name": "at",
            "table.whitelist": f"{self.prefix}t",
            **{
                key.replace("_", "."): value.replace("$", self.prefix)
                for key, value in settings.items()
            },
        }
        if "query" in config:
            del config["table.whitelist"]
        self.configs.append(config)
        return config

    def poll(self, config):
        """Poll once, and return the payloads of what came."""
        topic = self.topic(config)
        before = topics.end_offsets(self.world, topic) if topic in topics.names(self.world) else {}
        done = landing.poll(self.world, config)
        came = [
            json.loads(value)["payload"]
            for value in topics.read(self.world, topic, start_offsets=before)["value"]
        ]
        assert done.messages == {topic: len(came)} and topics.end_offsets(
            self.world, topic
        ).keys() == {0}
        return came

    def topic(self, config):
        return config["topic.prefix"] + ("" if "query" in config else f"{self.prefix}t")

    def offsets(self, config):
        """Behind which the next poll begins."""
        return json.loads(
            files.read_text(f"{self.world.lake.checkpoints}/polling/{config['name']}.json") or "{}"
        )

    def ids(self, config):
        return [row["id"] for row in self.poll(config)]


@pytest.fixture(scope="module")
def database(world):
    postgres.create_database(world, DATABASE)
    postgres.execute(world, "CREATE TABLE canary (id int)", database=DATABASE)
    postgres.grant_replication(world, ["public.canary"], DATABASE)
    yield world
    postgres.execute(world, f"DROP DATABASE {DATABASE} WITH (FORCE)", database="postgres")


@pytest.fixture
def lab(database):
    made = Lab(database)
    yield made
    for config in made.configs:
        landing.reset_offsets(database, config)
    topics.delete(database, *[made.topic(config) for config in made.configs])
    for name in postgres.query(
        database,
        "SELECT tablename FROM pg_tables WHERE tablename LIKE %s",
        [f"{made.prefix}%"],
        DATABASE,
    )["tablename"]:
        made.sql(f"DROP TABLE {name}")


ROWS = "id int NOT NULL, text text, at timestamp NOT NULL DEFAULT now()"
LATER = "UPDATE $t SET text = '{}', at = now() WHERE id = {}"


# --- modes
# -----------------------------------------------------------------------------------------------------------


def test_by_timestamp_an_update_comes_again_and_what_happens_between_two_polls_does_not(lab):
    lab.table(ROWS)
    lab.sql(
        "INSERT INTO $t SELECT n, 'first' FROM generate_series(1, 250) n"
    )  # of one time, more than a batch
    config = lab.config()
    assert sorted(lab.ids(config)) == list(range(1, 251)), "no cut among rows of one time"
    assert lab.ids(config) == []
    lab.sql(LATER.format("between", 7), LATER.format("last", 7), "DELETE FROM $t WHERE id = 8")
    assert [(row["id"], row["text"]) for row in lab.poll(config)] == [(7, "last")], (
        "two updates are one, a delete none"
    )
    lab.sql("INSERT INTO $t (id) VALUES (300)", LATER.format("x", 9))
    assert lab.ids(config) == [300, 9], "in the order of their times"
    landing.reset_offsets(lab.world, config)
    assert len(lab.ids(config)) == 250


def test_a_row_that_gets_the_last_polled_time_is_lost(lab):
    lab.table(ROWS)
    moment = datetime.datetime(2021, 8, 9, 14, 10, 29, 126001)
    lab.sql(f"INSERT INTO $t VALUES (1, '', '{moment}'), (2, '', '{moment}')")
    config = lab.config()
    assert sorted(lab.ids(config)) == [1, 2]
    lab.sql(f"INSERT INTO $t VALUES (3, '', '{moment}')")
    assert lab.ids(config) == [], "the published condition: later than the last"
    lab.sql(f"UPDATE $t SET at = '{moment + datetime.timedelta(microseconds=1)}' WHERE id = 1")
    assert lab.ids(config) == [1], "kept to the microsecond, which a message does not have"


def test_of_two_times_a_query_takes_the_first(lab):
    lab.table(f"{ROWS}, changed timestamptz")
    lab.sql(
        "INSERT INTO $t VALUES (1, '', '2020-01-01', '2021-06-01 00:00+00'), (2, '', '2021-01-01', NULL)"
    )
    config = lab.config(query="SELECT id, COALESCE(changed, at) AS at FROM $t")
    assert lab.ids(config) == [2, 1]
    lab.sql("UPDATE $t SET changed = '2021-06-01 00:00:00.000001+00' WHERE id = 2")
    assert lab.ids(config) == [2]


def test_a_query_and_the_published_transforms(lab):
    lab.table(ROWS)
    lab.table("id int PRIMARY KEY, city text NOT NULL", "city")
    lab.sql("INSERT INTO $city VALUES (5, 'Tete')", "INSERT INTO $t VALUES (100, '50%')")
    named = {
        "transforms.key.type": f"{PACKAGE_PREFIX}ValueToKey",
        "transforms.key.fields": "id",
        "transforms.topic.type": f"{PACKAGE_PREFIX}InsertField$Value",
        "transforms.topic.topic.field": "in",
    }
    config = lab.config(
        query="SELECT t.id, text, city, at FROM $t t JOIN $city ON true WHERE text LIKE '%\\%' -- all",
        transforms="key,topic",
        numeric_mapping="best_fit",
    )
    config.update(named)
    [row] = lab.poll(config)
    assert (
        row.items()
        >= {"id": 100, "text": "50%", "city": "Tete", "in": config["topic.prefix"]}.items()
    )
    [(key, value)] = topics.read(lab.world, lab.topic(config))[["key", "value"]].to_numpy()
    assert json.loads(key)["payload"] == {"id": 100}
    schema = json.loads(value)["schema"]
    assert "name" not in schema and [f["field"] for f in schema["fields"]] == [
        "id",
        "text",
        "city",
        "at",
        "in",
    ]
    assert {f["optional"] for f in schema["fields"]} == {True}


def test_a_query_with_an_outer_join_may_have_nulls_anywhere(lab):
    lab.table(ROWS)
    lab.table("id int NOT NULL, city text NOT NULL", "city")
    lab.sql("INSERT INTO $t VALUES (1)")
    [row] = lab.poll(lab.config(query="SELECT t.id, at, city FROM $t t LEFT JOIN $city USING (id)"))
    assert (row["id"], row["city"]) == (1, None)


# --- types
# -----------------------------------------------------------------------------------------------------------


def test_types_are_the_connectors_and_the_bytes_those_of_its_converter(lab):
    lab.sql("CREATE TYPE $mood AS ENUM ('sad', 'glad')", "CREATE DOMAIN $year AS int")
    columns = {
        "a int2": (5, 5),
        "b int4": (-7, -7),
        "c int8": (2**62, 2**62),
        "d real": (0.1, 0.1),
        "e float8": (1.5, 1.5),
        "f bool": (True, True),
        "g char(4)": ("ab", "ab  "),
        "h varchar(9)": ('é"\n', 'é"\n'),
        "i date": ("0044-03-15 BC", -735160),
        "j time": ("12:34:56.789987", 45296789),
        "k timestamp": ("2021-08-13 00:43:38.508999", 1628815418508),
        "l timestamptz": ("2021-08-13 02:43:38.508+02", 1628815418508),
        "m bytea": (b"\x01" * 90, None),
        "n json": ('{"a":  1.0}', '{"a":  1.0}'),
        "o uuid": ("00000000-0000-0000-0000-00000000000a",) * 2,
        "p $mood": ("glad", "glad"),
        "q $year": (2006, 2006),
        "r numeric(6,2)": ("-12.5", "+x4="),
        "s numeric(4)": (1234, "BNI="),
        "t timestamp": ("infinity", 9223372036825200000),
        "u oid": (4294967295, 4294967295),
    }
    lab.table(", ".join(["id int PRIMARY KEY, at timestamp NOT NULL DEFAULT now()", *columns]))
    marks = ", ".join("%s" for _ in columns)
    given = [value for value, _ in columns.values()]
    postgres.execute(
        lab.world, f"INSERT INTO {lab.prefix}t VALUES (1, DEFAULT, {marks})", given, DATABASE
    )
    lab.sql("INSERT INTO $t (id) VALUES (2)")
    config = lab.config()
    full, empty = lab.poll(config)
    assert full.pop("at") <= empty.pop("at")
    expected = {name.split()[0]: value for name, (_, value) in columns.items()}
    assert full == {**expected, "id": 1, "m": base64.b64encode(b"\x01" * 90).decode()}
    assert empty == {**dict.fromkeys(expected), "id": 2}
    with kafka_connect_java.kafka_connect_jvm() as jvm:
        converter = kafka_connect_java.json_converter(jvm, False)
        for value in topics.read(lab.world, lab.topic(config))["value"]:
            read = converter.toConnectData("topic", value.encode())
            assert (
                bytes(converter.fromConnectData("topic", read.schema(), read.value())).decode()
                == value
            )
    named = {f["field"]: f for f in json.loads(value)["schema"]["fields"]}
    types = [named[n]["type"] for n in "abcdefg"]
    assert types == ["int16", "int32", "int64", "float", "double", "boolean", "string"]
    logical = [named[n]["name"].rsplit(".", 1)[1] for n in "ijklr"]
    assert logical == ["Date", "Time", "Timestamp", "Timestamp", "Decimal"]
    with pytest.raises(
        SourceError, match=r"(?s)not supported: r \(numeric\).*numeric.mapping=best_fit"
    ):
        lab.poll(lab.config(numeric_mapping="best_fit"))
    lab.sql("DROP TABLE $t", "DROP TYPE $mood", "DROP DOMAIN $year")


@pytest.mark.parametrize(
    "columns, says",
    [
        (
            "special_features text[], span int4range, during interval, price numeric",
            r"special_features \(_text\), span \(int4range\), during \(interval\), price \(numeric\).*a query",
        ),
        ("when_ timestamp", r"there is no column at.*valid: id, when_"),
        ("at timestamp", r"at may be null.*never be polled.*validate.non.null=false"),
    ],
)
def test_a_table_that_cannot_be_polled_is_refused_by_name(lab, columns, says):
    lab.table(f"id int, {columns}")
    with pytest.raises(SourceError, match="(?s)" + says):
        lab.poll(lab.config())


# --- what no poll sees
# -----------------------------------------------------------------------------------------------


def test_a_row_committed_late_is_lost_and_a_delay_that_is_long_enough_saves_it(lab):
    lab.table(ROWS)
    naive, patient = lab.config(), lab.config(timestamp_delay_interval_ms="3000")
    with postgres.connect(lab.world, DATABASE) as slow:
        with slow.transaction():
            slow.execute(
                f"INSERT INTO {lab.prefix}t VALUES (1)"
            )  # its time is that of the transaction's start
            lab.sql("INSERT INTO $t VALUES (2)")
            assert lab.ids(patient) == [] and lab.ids(naive) == [2]
    assert lab.ids(naive) == [], "lost for ever: its time is before the last that was seen"
    lab.sql("SELECT pg_sleep(3.1)")
    assert sorted(lab.ids(patient)) == [1, 2]
    assert (
        postgres.query(lab.world, f"SELECT count(*) FROM {lab.prefix}t", database=DATABASE)[
            "count"
        ][0]
        == 2
    )


def test_a_clock_behind_loses_rows_and_one_ahead_holds_them_back(lab):
    """The times of an application, whose clock is not that of the database."""
    lab.table(ROWS)
    lab.sql("INSERT INTO $t VALUES (1)")
    config = lab.config()
    assert lab.ids(config) == [1]
    lab.sql(
        "INSERT INTO $t VALUES (2, 'behind', now() - interval '5 minutes')",
        "INSERT INTO $t VALUES (3, 'ahead', now() + interval '2 seconds')",
        "INSERT INTO $t VALUES (4)",
    )
    assert lab.ids(config) == [4]
    lab.sql("SELECT pg_sleep(2.1)")
    assert lab.ids(config) == [3]


def test_rows_without_a_time_are_counted_and_never_come(lab):
    lab.table("id int, at timestamp, number int")
    lab.sql("INSERT INTO $t VALUES (1, '2020-01-01', 1), (2, NULL, 2), (3, '2020-01-01', NULL)")
    config = lab.config(validate_non_null="false")
    assert sorted(lab.ids(config)) == [1, 3]
    done = landing.poll(lab.world, config)
    assert done.null_key_rows == {lab.topic(config): 1} and "1 more are never polled" in repr(done)


# --- faults
# ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "query, says",
    [
        ("SELECT 1 AS id) AS q; DROP TABLE $t; SELECT * FROM (SELECT 1 AS id", "multiple commands"),
        ("SELECT id, at FROM $t WHERE setval('$s', 5) > 0", "(?i)read-only|permission denied"),
    ],
)
def test_a_query_that_would_do_more_than_ask_is_refused(lab, query, says):
    lab.table(ROWS)
    lab.sql("CREATE SEQUENCE $s", "GRANT ALL ON SEQUENCE $s TO PUBLIC", "INSERT INTO $t VALUES (1)")
    with pytest.raises(SourceError, match=says):
        lab.poll(lab.config(query=query))
    assert (
        postgres.query(lab.world, f"SELECT last_value FROM {lab.prefix}s", database=DATABASE)[
            "last_value"
        ][0]
        == 1
    )
    lab.sql("DROP SEQUENCE $s")


def test_killed_after_sending_and_before_it_is_noted(lab, monkeypatch):
    lab.table(ROWS)
    lab.sql("INSERT INTO $t VALUES (1), (2)")
    config = lab.config()
    with monkeypatch.context() as m:
        m.setattr(files, "write_text", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            lab.poll(config)
    lab.sql("INSERT INTO $t VALUES (3)")
    assert sorted(lab.ids(config)) == [1, 2, 3]
    rows = topics.read(lab.world, lab.topic(config))["value"]
    assert sorted(json.loads(row)["payload"]["id"] for row in rows) == [1, 1, 2, 2, 3], (
        "at least once"
    )


POLLER = """
import json, sys
from workbench import landing
from workbench.base import params
world, config = params.load("local"), json.load(open(sys.argv[1]))
print("ready", flush=True)
while True:
    landing.poll(world, config)
"""


@pytest.mark.drill
def test_the_poller_killed_at_twenty_random_moments(lab, tmp_path):
    """Nothing is lost, whatever it was doing."""
    lab.table(ROWS)
    config, seed = lab.config(), random.randrange(10**6)
    (tmp_path / "c.json").write_text(json.dumps(config))
    moments = random.Random(seed)
    for kill in range(20):
        poller = subprocess.Popen(
            [sys.executable, "-c", POLLER, tmp_path / "c.json"], stdout=subprocess.PIPE
        )
        assert poller.stdout.readline() == b"ready\n"
        for n in range(5):
            lab.sql(f"INSERT INTO $t VALUES ({kill * 5 + n})")
            time.sleep(moments.random() * 0.6)
        poller.kill()
        poller.wait()
    assert lab.offsets(config), "some polls were done"
    landing.poll(lab.world, config)
    came = [
        json.loads(value)["payload"]["id"]
        for value in topics.read(lab.world, lab.topic(config))["value"]
    ]
    assert set(came) == set(range(100)), f"seed {seed}"
    print(f"{len(came) - 100} of 100 rows came twice")


@pytest.mark.drill
def test_the_database_killed_while_it_is_polled(lab):
    lab.table(ROWS)
    lab.sql("INSERT INTO $t SELECT n FROM generate_series(1, 1000) n")
    config = lab.config(
        query="SELECT id, at, pg_sleep(0.002)::text AS slow FROM $t", batch_max_rows="10"
    )
    reading = "SELECT 1 FROM pg_stat_activity WHERE query LIKE 'FETCH FORWARD%'"
    [raised] = kill_service_during(
        lambda: landing.poll(lab.world, config),
        lambda: len(postgres.query(lab.world, reading, database=DATABASE)),
        "the poll to read",
        "postgres",
    )
    stack.ensure_running(lab.world, "postgres")
    assert isinstance(raised, WorkbenchError) and lab.offsets(config) == {}
    lab.poll(config)
    came = topics.read(lab.world, config["topic.prefix"])["value"]
    assert {json.loads(value)["payload"]["id"] for value in came} == set(range(1, 1001))


def test_two_polls_of_one_connector_exclude_each_other(lab):
    lab.table(ROWS)
    config = lab.config()
    with files.exclusive_lock(
        f"{lab.world.lake.checkpoints}/polling/{config['name']}.json", "poll", ""
    ):
        for verb in (lambda: lab.poll(config), lambda: landing.reset_offsets(lab.world, config)):
            with pytest.raises(LakeError, match="another poll of .* is running"):
                verb()
    assert lab.poll(config) == []


def test_the_password_stands_in_its_files_only(lab):
    lab.table(ROWS)
    lab.sql("INSERT INTO $t VALUES (1)")
    assert lab.ids(lab.config()) == [1]
    password = lab.world.postgres.replication_password.reveal().encode()
    holding = set()
    for folder, _, names in os.walk(
        paths.state_dir()
    ):  # which passes over what Kafka deletes meanwhile
        for file in (Path(folder, name) for name in names):
            with contextlib.suppress(FileNotFoundError):
                if (
                    file.is_file()
                    and file.stat().st_size < 50 << 20
                    and password in file.read_bytes()
                ):
                    holding.add(str(file.relative_to(paths.state_dir())))
    assert holding == {"secrets/postgres.replication"}
