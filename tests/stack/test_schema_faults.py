"""What goes wrong where schemas change, on the real parts: the connector is down meanwhile, or its
log, its history of schemas, the registry or MariaDB itself is gone. It is said aloud, the way back
works, and the lake is the source."""

import threading

import avro_help
import pymysql
import pytest
import requests
from mariadb_help import assert_lake_equals_source, captured_database
from workbench import connect, hudi, stack
from workbench.base.errors import SourceError, WorkbenchError
from workbench.base.wait import wait_until
from workbench.checks import check
from workbench.source import mariadb, postgres
from workbench.topic import topics

NAME = "schema_faults"


@pytest.fixture(scope="module")
def lab(world):
    with captured_database(
        world, NAME, "CREATE TABLE begin (id int PRIMARY KEY)", "INSERT INTO begin VALUES (1)"
    ) as lab:
        topics.wait_for_messages(world, lab.topic("begin"), 1, connector=NAME)
        yield lab


@pytest.fixture
def follow(lab, spark, request):
    """A table of the test's own: `follow(n)` waits for n messages of it, and its rows in the lake
    are the source's."""
    if connect.failure(lab.world, NAME):  # another test has left it so
        again(lab)
    of = request.node.name.partition("[")[0].removeprefix("test_")[:40]
    lab.execute(
        f"CREATE TABLE {of} (id int PRIMARY KEY, n int NOT NULL)",
        f"INSERT INTO {of} VALUES (1, 1), (2, 1)",
    )
    table = lab.table(of[:20], type="mor")

    def go(messages, what, stale=False):
        try:
            topics.wait_for_messages(lab.world, lab.topic(of), messages, connector=NAME)
        except WorkbenchError:  # Debezium's fault at a start, now and then: what its hint says
            if "DBZ-3096" not in connect.failure(lab.world, NAME):
                raise
            connect.restart(lab.world, NAME)
            topics.wait_for_messages(lab.world, lab.topic(of), messages, connector=NAME)
        done = hudi.ingest(spark, lab.world, hudi.Topic(lab.topic(of), format="avro"), table)
        assert done.dead_letters == 0
        if not stale:
            assert_lake_equals_source(spark, lab, of, table, what)

    go.of, go.lake = of, table
    go(2, "the first rows")
    return go


def state(world, verb, name=NAME):
    """Stop a connector, or let it go on."""
    url = f"{world.connect.url}/connectors/{name}/{verb}"
    requests.put(url, timeout=10, auth=world.connect.auth).raise_for_status()
    if verb == "stop":
        check.eventually(
            "stopped", lambda: connect.status(world, name)["state"] == "STOPPED", timeout=30
        )


def failed(world):
    said = wait_until(lambda: connect.failure(world, NAME), "the task to fail")
    print(said)
    return said


def column(spark, table, name):
    return {row["id"]: row[name] for row in hudi.read(spark, table).collect()}


def test_columns_change_while_the_connector_is_down(lab, world, spark, follow):
    state(world, "stop")
    lab.execute(
        f"INSERT INTO {follow.of} VALUES (3, 3)",
        f"ALTER TABLE {follow.of} ADD COLUMN a varchar(9)",
        f"INSERT INTO {follow.of} VALUES (4, 4, 'four')",
        f"ALTER TABLE {follow.of} DROP COLUMN n, ADD COLUMN b int",
        f"INSERT INTO {follow.of} VALUES (5, 'five', 5)",
    )
    state(world, "resume")
    follow(5, "after two changes that nobody watched")
    assert column(spark, follow.lake, "n") == {1: 1, 2: 1, 3: 3, 4: 4, 5: None}
    assert list(hudi.schema_changes(follow.lake)["change"]) == [
        "added a string; added b int; dropped n int, which stays and is null in new rows"
    ]


def test_columns_change_while_the_connector_of_postgres_is_down(world, spark):
    name = f"{NAME}_pg"
    table = hudi.table(world, name, key=("id",), ordering="__lsn")
    script = "CREATE TABLE t (id int PRIMARY KEY, n int NOT NULL); INSERT INTO t VALUES (1, 1)"
    with avro_help.museum(
        world, name, script, ["t"], **{"table.include.list": "public.t"}
    ) as there:

        def follow(messages):
            topics.wait_for_messages(there, f"{name}.public.t", messages, connector=name)
            hudi.ingest(spark, there, hudi.Topic(f"{name}.public.t", format="avro"), table)

        try:
            follow(1)
            state(there, "stop", name)
            postgres.execute(there, "INSERT INTO t VALUES (2, 2); ALTER TABLE t ADD COLUMN a text")
            postgres.execute(
                there, "INSERT INTO t VALUES (3, 3, 'three'); ALTER TABLE t RENAME n TO \"order\""
            )
            postgres.execute(
                there, "ALTER TABLE t ADD COLUMN b int; INSERT INTO t VALUES (4, 4, 'four', 4)"
            )
            state(there, "resume", name)
            follow(4)
            rows = {
                r["id"]: (r["n"], r["a"], r["order"], r["b"])
                for r in hudi.read(spark, table).collect()
            }
            assert rows == {
                1: (1, None, None, None),
                2: (2, None, None, None),
                3: (3, "three", None, None),
                4: (None, "four", 4, 4),
            }
        finally:
            hudi.drop(spark, world, table)


def test_a_required_column_and_a_reserved_word(lab, spark, follow):
    lab.execute(
        f"ALTER TABLE {follow.of} ADD COLUMN country varchar(9) NOT NULL",
        f"INSERT INTO {follow.of} VALUES (3, 3, 'DE')",
    )
    follow(3, "", stale=True)
    assert column(spark, follow.lake, "country") == {1: None, 2: None, 3: "DE"}, (
        "no event tells of the older rows"
    )
    lab.execute(
        f"ALTER TABLE {follow.of} RENAME COLUMN n TO `order`",
        f"UPDATE {follow.of} SET `order` = id * 10",
    )
    follow(6, "all rows were written again")
    assert [said.partition(";")[0] for said in hudi.schema_changes(follow.lake)["change"]] == [
        "added country string",
        "added order int",
    ]


def test_the_log_is_purged(lab, world, spark, follow):
    state(world, "stop")
    lab.execute(
        f"ALTER TABLE {follow.of} ADD COLUMN a int",
        f"INSERT INTO {follow.of} VALUES (3, 3, 3)",
        "FLUSH BINARY LOGS",
    )
    newest = mariadb.log_position(world).partition(":")[0]

    def purged():  # a file stays as long as a connection that has read it is there
        lab.execute(f"PURGE BINARY LOGS TO '{newest}'")
        return list(lab.query("SHOW BINARY LOGS")["Log_name"]) == [newest]

    check.eventually("the older logs are gone", purged, timeout=30)
    lab.execute(f"INSERT INTO {follow.of} VALUES (4, 4, 4)")
    state(world, "resume")
    said = failed(world)
    assert (
        "purged" in said
        and "takes a new snapshot" in said
        and topics.offset_span(world, lab.topic(follow.of)) == 2
    )
    again(lab)
    follow(2 + 4, "after a new snapshot")


def test_a_column_in_capitals_is_moved_behind_another(lab, world, spark, follow):
    """What Debezium's connector does not follow (docs/limits.md); where it does, this limit may
    go."""
    lab.execute(
        f"ALTER TABLE {follow.of} ADD COLUMN COUNTRY varchar(9) FIRST",
        f"ALTER TABLE {follow.of} MODIFY COUNTRY varchar(9) AFTER n",
        f"INSERT INTO {follow.of} VALUES (3, 3, 'DE')",
    )
    said = failed(world)
    assert "field name duplication COUNTRY" in said and "takes a new snapshot" in said
    again(lab)
    follow(2 + 3, "after a new snapshot")
    state(world, "stop")  # what it knows of the table it reads again from its history
    state(world, "resume")
    lab.execute(f"INSERT INTO {follow.of} VALUES (4, 4, 'FR')")
    follow(2 + 4, "started once more")


def again(lab):
    """What the message says."""
    connect.delete(lab.world, NAME)
    connect.apply(lab.world, NAME, lab.config)


def test_the_history_of_schemas_is_lost(lab, world, spark, follow):
    state(world, "stop")
    topics.delete(world, lab.config["schema.history.internal.kafka.topic"])
    lab.execute(
        f"ALTER TABLE {follow.of} ADD COLUMN a int", f"INSERT INTO {follow.of} VALUES (3, 3, 3)"
    )
    state(world, "resume")
    said = failed(world)
    assert (
        "history" in said
        and "takes a new snapshot" in said
        and topics.offset_span(world, lab.topic(follow.of)) == 2
    )
    again(lab)
    follow(2 + 3, "after a new snapshot")


def test_the_registry_is_gone_when_a_column_comes(lab, world, spark, follow):
    stack.stop("apicurio")
    try:
        lab.execute(
            f"ALTER TABLE {follow.of} ADD COLUMN a int", f"INSERT INTO {follow.of} VALUES (3, 3, 3)"
        )
        assert "likely: the registry cannot be reached" in failed(world)
    finally:
        stack.ensure_running(world, "apicurio")
    connect.restart(world, NAME)
    follow(3, "the registry is back")


def test_the_registry_is_not_there_when_the_connector_starts(lab, world, spark, follow):
    stack.stop("apicurio")
    try:
        again(lab)
        failed(world)
    finally:
        stack.ensure_running(world, "apicurio")
    connect.restart(world, NAME)
    follow(2 + 2, "the registry is there")


@pytest.mark.drill  # test_mariadb kills it while it writes, too
def test_mariadb_is_killed_while_it_writes(lab, world, spark, follow):
    written, ended = [], []

    def write():
        try:
            with mariadb.session(world, NAME) as c:
                for n in range(10, 10**6, 2):
                    c.execute(f"INSERT INTO {follow.of} (id, n) VALUES ({n}, 0), ({n + 1}, 0)")
                    written.append(n)
                    if n == 40:
                        c.execute(f"ALTER TABLE {follow.of} ADD COLUMN a int")
        except (SourceError, pymysql.Error, OSError) as e:
            ended.append(e)

    writer = threading.Thread(target=write)
    writer.start()
    check.eventually("it writes", lambda: len(written) > 50, timeout=30, interval=0.01)
    stack.kill("mariadb")
    writer.join(30)
    assert ended
    stack.ensure_running(world, "mariadb")
    lab.execute(f"INSERT INTO {follow.of} VALUES (3, 3, 3)")
    rows = lab.query(f"SELECT count(*) AS n FROM {follow.of}")["n"][0]
    assert rows >= 3 + 2 * len(written), "a commit that it has confirmed is lost"
    follow(int(rows), "killed and back")
