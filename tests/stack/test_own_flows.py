"""Own flows in use: tables that join and leave, types, polled tables, interruptions."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import own_help
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from own_flow_help import PORT, execute, forget_all, reset
from workbench import connect, explore, hudi, landing, operate, own
from workbench.base import files as lake_files
from workbench.base import wait_until
from workbench.base.errors import (
    CheckFailed,
    ConnectorError,
    LakeError,
    SourceError,
    WorkbenchError,
)
from workbench.own import comparing, files
from workbench.source import postgres
from workbench.topic import dlq, registry, topics

WIDE = """
    DO $$ BEGIN EXECUTE (SELECT 'CREATE TABLE wide (id int PRIMARY KEY, '
        || string_agg(format('c%s %s', lpad(n::text, 3, '0'), (ARRAY['text', 'int', 'numeric(9, 2)'])[1 + n % 3]), ', ')
        || ')' FROM generate_series(1, 300) n); END $$;
    INSERT INTO wide (id, c001, c150, c300) SELECT n, n, n || ' wide', 'last' FROM generate_series(1, 50) n;
    """


class TestOneFlow:
    """Tests of one flow, in this order; its tables stay captured."""

    @pytest.fixture(autouse=True, scope="class")
    def _captured(self, server):
        reset(server)
        own.capture(server, "bikes", "stations")
        yield
        forget_all(server)

    @pytest.fixture
    def bikes(self, server):
        """The world with the flow."""
        return server

    def test_an_added_column_is_a_difference_until_a_message_has_it(self, bikes, spark, capsys):
        execute(bikes, "ALTER TABLE stations ADD COLUMN ramp int")
        own.compare(bikes, "bikes")
        assert "200 rows in the source, 200 in the lake; no difference" in capsys.readouterr().out
        execute(bikes, "UPDATE stations SET ramp = 3 WHERE station_id = 1")
        own.compare(bikes, "bikes")
        execute(bikes, "ALTER TABLE stations ADD COLUMN open boolean DEFAULT true")
        with pytest.raises(CheckFailed, match="open"):
            own.compare(bikes, "bikes")
        execute(bikes, "UPDATE stations SET docks = docks")
        own.compare(bikes, "bikes")

    def test_a_table_joins_a_running_capture(self, bikes, spark, capsys):
        execute(
            bikes,
            "CREATE TABLE riders (id bigint PRIMARY KEY, name text);"
            "INSERT INTO riders SELECT n, 'Rider ' || n FROM generate_series(1, 3000) n;"
            "CREATE TABLE none_yet (id int PRIMARY KEY, note text);",
        )
        flow = own.load(bikes, "bikes")
        before = topics.offset_span(bikes, flow.topic(bikes))
        path = own.folder("bikes") / "own_bikes.json"
        config = json.loads(path.read_text())
        config["poll.interval.ms"] = "70"  # the user's own edit
        path.write_text(json.dumps(config))

        captured = own.capture(bikes, "bikes", "riders", "none_yet", "stations")
        assert captured["rows"].tolist() == [200, 3000, 0]
        assert connect.deployed(bikes, "own_bikes")["poll.interval.ms"] == "70"
        assert topics.offset_span(bikes, flow.topic(bikes)) == before, (
            "no second snapshot of the others"
        )
        execute(
            bikes,
            "UPDATE riders SET name = upper(name) WHERE id <= 10; DELETE FROM riders WHERE id = 11;"
            "UPDATE stations SET docks = 0 WHERE station_id = 1; INSERT INTO none_yet VALUES (1, 'first')",
        )
        done = own.follow(bikes, "bikes")
        assert {name: (n.upserts, n.deletes) for name, n in done.items()} == {
            "stations": (1, 0),
            "riders": (10, 1),
            "none_yet": (1, 0),
        }
        own.compare(bikes, "bikes")
        text = capsys.readouterr().out
        assert "200 rows in the source, 200 in the lake; no difference" in text
        assert "nothing to change" not in text
        own.capture(bikes, "bikes", "riders")
        assert "nothing to change" in capsys.readouterr().out

    def test_each_table_that_differs_is_shown(self, bikes, spark, capsys):
        """The next test captures them anew."""
        spark.sql("DELETE FROM bikes.riders WHERE id = 2")
        spark.sql("DELETE FROM bikes.none_yet WHERE id = 1")
        capsys.readouterr()
        with pytest.raises(CheckFailed, match="public.riders = lake"):
            own.compare(bikes, "bikes")
        lines = [line for line in capsys.readouterr().out.splitlines() if " = lake" in line]
        assert [line[:1] for line in lines] == ["✔", "✘", "✘"], lines

    def test_what_was_lost_with_a_slot_is_captured_anew(self, bikes, spark):
        """A deleted row is in no snapshot, so only a new lake table is without it."""
        connect.backend(bikes).stop("own_bikes")
        postgres.drop_slot(bikes.source("bikes"), "msk_own_bikes", "bikes")
        execute(bikes, "DELETE FROM riders WHERE id = 12")
        for command in (
            lambda: own.follow(bikes, "bikes"),
            lambda: own.capture(bikes, "bikes", "riders"),
        ):
            with pytest.raises(LakeError, match="(?s)slot msk_own_bikes does not exist.*recapture"):
                command()
        results = operate.recapture(bikes, "bikes", progress=lambda line: None)
        rows = {each.table: each.rows for each in results}
        assert all(each.is_equal for each in results) and rows["riders"] == (2998, 2998), rows
        assert connect.deployed(bikes, "own_bikes")["poll.interval.ms"] == "70"
        execute(bikes, "UPDATE stations SET docks = 1 WHERE station_id = 3")
        assert own.follow(bikes, "bikes")["stations"].upserts == 1

    def test_tables_join_while_transactions_are_open(self, bikes, spark, monkeypatch):
        """A change from before the publication is in no log, and one from before the snapshot has an earlier position."""
        for name in ("before", "during"):
            execute(
                bikes,
                f"CREATE TABLE {name} (id bigint PRIMARY KEY, name text);"
                f"INSERT INTO {name} SELECT n, 'Rider ' || n FROM generate_series(1, 50) n",
            )
        wait_for_messages, produce = topics.wait_for_messages, topics.produce
        wait_for_open_transactions = postgres.wait_for_open_transactions
        with own_help.login(PORT, "bikes") as first, own_help.login(PORT, "bikes") as second:

            def write(user, name):
                user.execute(f"BEGIN; DELETE FROM {name} WHERE id = 7")
                user.execute(f"UPDATE {name} SET name = 'changed' WHERE id = 8")

            def signal(world, topic, messages, **overrides):
                write(second, "during")
                execute(bikes, "UPDATE stations SET docks = 0 WHERE station_id = 1")
                produce(world, topic, messages, **overrides)

            def commit_afterwards(world, topic, n, **options):
                result = wait_for_messages(world, topic, n, **options)
                for user in (first, second):
                    user.execute("COMMIT")
                return result

            def commit_meanwhile(*arguments):
                threading.Timer(3, lambda: first.execute("COMMIT")).start()
                wait_for_open_transactions(*arguments)

            monkeypatch.setattr(topics, "produce", signal)
            monkeypatch.setattr(topics, "wait_for_messages", commit_afterwards)
            monkeypatch.setattr(postgres, "wait_for_open_transactions", commit_meanwhile)
            write(first, "before")
            captured = own.capture(bikes, "bikes", "before", "during")
        assert captured["rows"].tolist()[-2:] == [49, 49]
        own.compare(bikes, "bikes")
        flow = own.load(bikes, "bikes")
        for name in ("before", "during"):
            row = hudi.read(spark, flow.table(bikes, name)).where("id = 8").collect()[0]
            assert row["name"] == "changed", name

    def test_follow_goes_on_until_it_is_interrupted(self, bikes, spark):
        table = own.load(bikes, "bikes").table(bikes, "stations")
        own.follow(bikes, "bikes")  # the changes of earlier tests
        lines, failed = [], []

        def write_then_interrupt():
            try:
                for docks in (51, 52):
                    execute(bikes, f"UPDATE stations SET docks = {docks} WHERE station_id = 3")
                    wait_until(lambda d=docks: docks_of(3) == d, f"{docks} docks in the lake")
            except Exception as e:  # noqa: BLE001 - the main thread reports it
                failed.append(e)
            os.kill(os.getpid(), signal.SIGINT)

        def docks_of(station):
            frame = hudi.read_arrow(table).to_pandas()
            return frame.set_index("station_id")["docks"][station]

        thread = threading.Thread(target=write_then_interrupt)
        handler = signal.getsignal(signal.SIGINT)
        thread.start()
        own.follow(bikes, "bikes", continuous=True, progress=lines.append)
        thread.join()
        assert not failed
        # one line for each round with changes; on a slow machine both arrive in one
        assert sum(int(line.split()[2]) for line in lines) == 2 and len(lines) in (1, 2)
        assert signal.getsignal(signal.SIGINT) == handler
        own.compare(bikes, "bikes")

    def test_a_failed_connector_and_expired_messages_are_reported(self, bikes, spark):
        flow = own.load(bikes, "bikes")
        large = "SELECT string_agg(md5(n::text), '') FROM generate_series(1, 300000) n"  # 9.6 MB, hardly compressible
        execute(bikes, f"UPDATE stations SET name = ({large}) WHERE station_id = 1")
        assert own.follow(bikes, "bikes")["stations"].upserts == 1
        own.compare(bikes, "bikes")

        execute(bikes, "UPDATE stations SET docks = 0 WHERE station_id = 2")
        flow.wait_until_captured(bikes.source("bikes"))
        topic = flow.topic(bikes, "stations")
        admin = AdminClient(topics.settings(bikes))
        [(_, end)] = topics.end_offsets(bikes, topic).items()
        [deleted] = admin.delete_records([TopicPartition(topic, 0, end)]).values()
        deleted.result()
        assert topics.offset_span(bikes, topic) == 0
        with pytest.raises(LakeError, match="expired"):
            own.follow(bikes, "bikes")

        execute(bikes, "UPDATE stations SET name = repeat('x', 20000000) WHERE station_id = 1")
        failed = "(?s)FAILED.*a row is larger than a message may be"
        with pytest.raises(WorkbenchError, match=failed):
            own.follow(bikes, "bikes")
        # the restarted connector may run for a moment: then the expired messages are found first
        with pytest.raises(WorkbenchError, match=f"{failed}|expired unread"):
            own.follow(bikes, "bikes", continuous=True)

    def test_a_flow_whose_json_is_damaged_is_forgotten(self, bikes):
        (own.folder("bikes") / "own_bikes.json").write_text("{")
        for command in (own.follow, own.compare):
            with pytest.raises(ConnectorError, match="(?s)not JSON.*own_bikes.json"):
                command(bikes, "bikes")
        remaining = own.remaining(bikes, "bikes")
        assert "own_bikes" in remaining["connectors"] and remaining["publications"] == ["own_bikes"]
        assert [name.endswith("own_bikes") for name in remaining["replication slots"]] == [True]
        own.forget(bikes, "bikes")
        forget_all(bikes)  # also asserts that nothing is left


def test_a_wide_table_is_captured_in_avro(bikes, spark, capsys):
    execute(bikes, WIDE)
    with pytest.raises(SourceError, match="(?s)wide has 301 columns.*--format avro"):
        own.capture(bikes, "bikes", "wide")
    own.capture(bikes, "bikes", "wide", format="avro")
    execute(bikes, "UPDATE wide SET c300 = 'changed', c001 = NULL WHERE id = 7")
    done = own.follow(bikes, "bikes")["wide"]
    assert (done.upserts, done.deletes) == (1, 0)
    own.compare(bikes, "bikes")
    assert "50 rows in the source, 50 in the lake; no difference" in capsys.readouterr().out


def test_a_table_leaves_its_flow(bikes, spark, capsys, monkeypatch):
    """A table whose capture failed, and one that was dropped: neither keeps the others from being followed."""
    execute(bikes, "CREATE TABLE riders (id int PRIMARY KEY); INSERT INTO riders VALUES (1), (2)")
    own.capture(bikes, "bikes", "stations", "riders", format="avro")  # the later calls keep it
    flow = own.load(bikes, "bikes")
    table, topic = flow.table(bikes, "riders"), flow.topic(bikes, "riders")
    assert spark.catalog.tableExists("bikes.riders")

    def killed(*args, **values):
        raise KeyboardInterrupt

    execute(bikes, "CREATE TABLE visits (id int PRIMARY KEY); INSERT INTO visits VALUES (1)")
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(topics, "create", killed)
        own.capture(bikes, "bikes", "visits")
    execute(bikes, "UPDATE stations SET docks = 6 WHERE station_id = 1")
    assert own.follow(bikes, "bikes")["stations"].upserts == 1
    assert "public.visits is left out" in capsys.readouterr().out
    own.forget(bikes, "bikes", "visits")
    own.compare(bikes, "bikes")

    execute(bikes, "DROP TABLE riders; UPDATE stations SET docks = 7 WHERE station_id = 1")
    assert own.follow(bikes, "bikes")["stations"].upserts == 1
    for function in (
        lambda: own.compare(bikes, "bikes"),
        lambda: own.capture(bikes, "bikes", "stations"),
    ):
        with pytest.raises(
            SourceError, match="(?s)no longer has public.riders.*forget bikes public.riders"
        ):
            function()
    with pytest.raises(LakeError, match="(?s)no table rider.*public.riders"):
        own.forget(bikes, "bikes", "rider")
    own.forget(bikes, "bikes", "public.riders")
    assert [each.name for each in own.declaration("bikes").tables] == ["stations"]
    assert not hudi.exists(table) and not spark.catalog.tableExists("bikes.riders")
    assert topic not in topics.names(bikes)
    assert [a for a in registry.artifacts(bikes)["artifact"] if "riders" in a] == []
    own.capture(bikes, "bikes", "stations")
    assert "nothing to change" in capsys.readouterr().out
    execute(
        bikes,
        "CREATE TABLE riders (id int PRIMARY KEY, n int); INSERT INTO riders VALUES (3, 3);"
        "UPDATE stations SET docks = 8 WHERE station_id = 1",
    )
    own.capture(bikes, "bikes", "riders")
    assert own.follow(bikes, "bikes")["stations"].upserts == 1
    own.compare(bikes, "bikes")


INTERRUPTIONS = [
    (files, "write"),
    (files, "write_connector"),
    (postgres, "create_publication"),
    (topics, "create"),
    (landing, "apply"),
    (connect, "wait_running"),
    (topics, "wait_for_messages"),
    (comparing, "compare_table"),
    (own.OwnFlow, "ingest"),
    (hudi, "register"),
    (hudi, "label"),
]


def test_an_interrupted_capture_continues(bikes, spark, monkeypatch, capsys):
    """Each repetition comes further, until the next interruption."""

    def killed(*args, **values):
        raise KeyboardInterrupt

    for owner, point in INTERRUPTIONS:
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(owner, point, killed)
            own.capture(bikes, "bikes", "stations")
        if point == "apply":
            execute(bikes, "INSERT INTO stations VALUES (500, 'meanwhile', 1, NULL)")
    own.capture(bikes, "bikes", "stations")
    own.compare(bikes, "bikes")
    capsys.readouterr()
    own.capture(bikes, "bikes", "stations")
    assert "nothing to change" in capsys.readouterr().out


KILLED = """
import os, signal, sys
import own_help
from workbench import hudi, landing
from workbench.base import params
from workbench import own

def kill(*args, **values):
    os.kill(os.getpid(), signal.SIGKILL)

world = own_help.with_source(params.load("local"), port=int(sys.argv[1]), database="bikes")
owner, name = {"apply": (landing, "apply"), "register": (hudi, "register")}[sys.argv[2]]
setattr(owner, name, kill)
own.capture(world, "bikes", "stations")
"""


@pytest.mark.drill  # the same with Ctrl-C is above
def test_a_killed_capture_continues(bikes, spark):
    """A process that is killed before the connector exists, and one after the first commit of the table."""
    for point in ("apply", "register"):
        done = subprocess.run(
            [sys.executable, "-c", KILLED, str(PORT), point],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == -signal.SIGKILL, done.stderr
    table = own.load(bikes, "bikes").table(bikes)
    assert hudi.exists(table) and list(hudi.labels(bikes, table)["label"]) == []
    own.capture(bikes, "bikes", "stations")
    assert len(hudi.commits(table)) == 1, "no message was ingested twice"
    execute(bikes, "UPDATE stations SET docks = 6 WHERE station_id = 1")
    assert own.follow(bikes, "bikes")["stations"].upserts == 1
    own.compare(bikes, "bikes")


def test_a_table_that_is_dropped_during_its_capture_is_named(bikes, spark, monkeypatch):
    execute(bikes, "CREATE TABLE riders (id int PRIMARY KEY); INSERT INTO riders VALUES (1)")
    apply = landing.apply

    def drop_and_apply(*args):
        execute(bikes, "DROP TABLE riders")
        return apply(*args)

    with (
        monkeypatch.context() as patched,
        pytest.raises(
            SourceError, match="(?s)no longer has public.riders.*forget bikes public.riders"
        ),
    ):
        patched.setattr(landing, "apply", drop_and_apply)
        own.capture(bikes, "bikes", "stations", "riders")
    execute(bikes, "UPDATE stations SET docks = 6 WHERE station_id = 1")
    assert own.follow(bikes, "bikes")["stations"].upserts == 201
    own.forget(bikes, "bikes", "public.riders")
    own.capture(bikes, "bikes", "stations")
    own.compare(bikes, "bikes")


TYPES = """
    CREATE TYPE mood AS ENUM ('glad', 'sad');
    CREATE DOMAIN positive AS int CHECK (VALUE > 0);
    CREATE TABLE types (id bigint PRIMARY KEY, flag boolean, price numeric, amount numeric(10, 2), share real,
        mass double precision, code char(3), name varchar(20), note text, data bytea, born date, opens time, zoned timetz,
        ends timestamp, seen timestamptz, lasts interval, tags text[], numbers int[], body jsonb, raw json,
        uid uuid, feels mood, size positive, place point, address inet, span int4range, cost money, changed timestamptz);
    INSERT INTO types SELECT n, n % 2 = 0, n / 7.0::numeric(20, 6), n / 4.0, n / 8.0, n * 1.5, 'a' || n % 9, 'name ' || n,
        NULLIF('note ' || n % 5, 'note 0'), decode(lpad(to_hex(n), 8, '0'), 'hex'), DATE '2001-01-01' + n,
        TIME '08:00' + n * INTERVAL '1 s',
        TIMETZ '08:00:00+02' + n * INTERVAL '1.5 s', TIMESTAMP '2001-02-03 04:05:06.789' + n * INTERVAL '1 h',
        TIMESTAMPTZ '2001-02-03 04:05:06.789012+02' + n * INTERVAL '1 h', n * INTERVAL '1 day 2 s',
        ARRAY['a', n::text], ARRAY[n, n + 1], jsonb_build_object('n', n, 'list', ARRAY[1, 2]), '{"a":  1}',
        md5(n::text)::uuid, (ARRAY['glad', 'sad'])[1 + n % 2]::mood, n, point(n, -n), ('10.0.0.' || n % 250)::inet,
        int4range(n, n + 5), n::money, now()
    FROM generate_series(1, 120) n;
    UPDATE types SET note = (SELECT string_agg(md5(n::text), '') FROM generate_series(1, 1000) n) WHERE id <= 3;
    """


@pytest.mark.drill  # test_reconcile has all types in JSON
@pytest.mark.parametrize("format", ["json", "avro"])
def test_all_types_are_captured_as_analyst_types(bikes, spark, format):
    """Also a large value that an update does not change, which the log leaves out."""
    execute(bikes, TYPES)
    captured = own.capture(bikes, "bikes", "types", format=format)
    changed = captured["changed_types"][0]
    assert changed["price"] == "numeric → decimal(38,20)"
    assert changed["lasts"] == "interval → decimal(19,6)" and "note" not in changed
    execute(
        bikes,
        "UPDATE types SET flag = NOT flag, seen = now(), body = '[]' WHERE id <= 20; DELETE FROM types WHERE id = 30",
    )
    done = own.follow(bikes, "bikes")["types"]
    assert (done.upserts, done.deletes, done.dead_letters) == (20, 1, 0)
    own.compare(bikes, "bikes")
    long = hudi.read(spark, own.load(bikes, "bikes").table(bikes)).where("id = 2")
    assert long.selectExpr("length(note)").collect()[0][0] == 32_000


def test_columns_with_other_values_in_raw_types_are_not_compared(bikes, spark, capsys):
    execute(bikes, TYPES)
    own.capture(bikes, "bikes", "types", raw=True, format="json")
    text = " ".join(capsys.readouterr().out.split())
    names = re.findall("; without ([^;]+);", text)[0].split(", ")
    assert names == sorted(names) and {"opens", "seen", "lasts", "place", "price"} <= {*names}
    assert f"row by row, without {', '.join(names)}" in text
    execute(bikes, "UPDATE types SET name = 'x', seen = now() WHERE id <= 20")
    assert own.follow(bikes, "bikes")["types"].upserts == 20
    own.compare(bikes, "bikes")


class TestDeadLetters:
    """Tests of one flow, in this order, with changes of row 1 that cannot be ingested."""

    @pytest.fixture(autouse=True, scope="class")
    def captured(self, server):
        reset(server)
        execute(server, "CREATE TABLE prices (id int PRIMARY KEY, price numeric)")
        execute(server, "INSERT INTO prices VALUES (1, 1.5)")
        yield own.capture(server, "bikes", "prices")
        forget_all(server)

    @pytest.fixture
    def bikes(self, server):
        """The world with the flow; afterwards there are no dead letters."""
        yield server
        lake_files.remove(dlq.folder_uri(server, "bikes/prices"))

    def make_a_dead_letter(self, bikes):
        """Follow a change that cannot be ingested."""
        execute(bikes, "UPDATE prices SET price = 1e30 WHERE id = 1")
        with pytest.raises(LakeError, match="price"):
            own.follow(bikes, "bikes")

    def test_a_number_with_too_many_digits_needs_scales_and_a_new_lake_table(
        self, bikes, spark, captured
    ):
        assert captured["changed_types"][0] == {"price": "numeric → decimal(38,10)"}
        execute(bikes, "INSERT INTO prices VALUES (2, 0.123456789012)")
        with pytest.raises(LakeError, match="price"):
            own.follow(bikes, "bikes")
        assert own.follow(bikes, "bikes")["prices"].messages == 0
        with pytest.raises(CheckFailed, match="2 .*(missing|different)"):
            own.compare(bikes, "bikes")
        execute(bikes, "UPDATE prices SET price = 0.5 WHERE id = 2")
        assert own.follow(bikes, "bikes")["prices"].upserts == 1
        own.compare(bikes, "bikes")

        execute(bikes, "INSERT INTO prices VALUES (3, 0.123456789012)")
        with pytest.raises(LakeError, match="(?s)price.*workbench dlq show bikes/prices"):
            own.follow(bikes, "bikes")
        path = own.folder("bikes") / "flow.yaml"
        path.write_text(path.read_text().replace("scales: {}", "scales: {price: 12}"))
        hudi.drop(spark, bikes, explore.find(bikes, "bikes/prices"))
        again = own.capture(bikes, "bikes", "prices")
        assert again["changed_types"][0] == {"price": "numeric → decimal(38,12)"}
        own.follow(bikes, "bikes")
        own.compare(bikes, "bikes")

    def test_watch_lists_dead_letters_of_a_follow_that_was_killed_before_its_error(
        self, bikes, spark
    ):
        self.make_a_dead_letter(bikes)
        flow = own.load(bikes, "bikes")
        at = bikes.source("bikes")
        topic = flow.topic(at, "prices")
        sent = topics.offset_span(bikes, topic)
        execute(bikes, "UPDATE prices SET price = 2e30 WHERE id = 1")
        topics.wait_for_messages(bikes, topic, sent + 1)
        table = flow.table(at, "prices")
        assert hudi.ingest(spark, at, flow.source(at, "prices"), table).dead_letters == 1
        assert own.follow(bikes, "bikes")["prices"].messages == 0
        [observation] = operate.Watcher(bikes, "bikes").observe()
        assert observation.dead_letters == {"prices": 2}
        assert "dead_letters" in {each.kind for each in observation.problems}
        lake_files.remove(hudi.dead_letters_path(at, table))
        [observation] = operate.Watcher(bikes, "bikes").observe()
        assert observation.dead_letters == {"prices": 0}

    def test_what_a_comparison_cannot_see_is_no_success_while_there_are_dead_letters(
        self, bikes, spark, monkeypatch
    ):
        self.make_a_dead_letter(bikes)
        monkeypatch.setattr(comparing, "MAX_COMPARED_ROWS", 0)  # the numbers of rows are equal
        for _ in range(2):
            with pytest.raises(LakeError, match="could not be decoded: 1 of prices, .*price"):
                own.compare(bikes, "bikes")
        execute(bikes, "UPDATE prices SET price = 2.5 WHERE id = 1")
        own.follow(bikes, "bikes")
        lake_files.remove(dlq.folder_uri(bikes, "bikes/prices"))
        own.compare(bikes, "bikes")

    def test_a_dead_letter_whose_message_has_expired_stops_no_flow(self, bikes, spark):
        """The last of this flow: its topic is without the messages that a new lake table needs."""
        self.make_a_dead_letter(bikes)
        topic = "own_bikes.public.prices"
        with AdminClient(topics.settings(bikes)) as admin:
            end = TopicPartition(topic, 0, topics.end_offsets(bikes, topic)[0])
            admin.delete_records([end])[end].result()
        execute(bikes, "UPDATE prices SET price = 2.5 WHERE id = 1")
        assert own.follow(bikes, "bikes")["prices"].upserts == 1
        own.compare(bikes, "bikes")
        [listed] = dlq.summary(bikes).query("origin == @topic").itertuples()
        assert listed.dead_letters == 1


def test_a_capture_with_dead_letters_is_no_success_until_its_rows_are_correct(bikes, spark):
    execute(bikes, "CREATE TABLE prices (id int PRIMARY KEY, price numeric)")
    execute(bikes, "INSERT INTO prices VALUES (1, 1.5), (2, 1e30)")
    with pytest.raises(LakeError, match="price"):
        own.capture(bikes, "bikes", "prices")
    with pytest.raises(CheckFailed, match="2 .*(missing|different)"):
        own.capture(bikes, "bikes", "prices")
    execute(bikes, "UPDATE prices SET price = 2.5 WHERE id = 2")
    own.capture(bikes, "bikes", "prices")
    own.compare(bikes, "bikes")


def seeded_changes(source, polls=2, changes=250):
    """Yield 500 changes of `prices` between two polls: the statements, and the keys; `source` follows them."""
    choice, clock = random.Random(91), 0
    for _ in range(polls):
        statements, touched = [], set()
        for _ in range(changes):
            clock += 1
            at = f"TIMESTAMP '2024-02-01' + INTERVAL '{clock} s'"
            key = choice.choice([*source, max(source) + 1])
            if key not in source:
                statements.append(
                    f"INSERT INTO prices (id, price, updated) VALUES ({key}, {clock}, {at})"
                )
                source[key] = clock
            elif choice.random() < 0.2:
                statements.append(f"DELETE FROM prices WHERE id = {key}")
                del source[key]
            else:
                statements.append(
                    f"UPDATE prices SET price = {clock}, updated = {at} WHERE id = {key}"
                )
                source[key] = clock
            touched.add(key)
        yield "; ".join(statements), touched


def test_tables_are_polled(bikes, spark, capsys, monkeypatch):
    execute(
        bikes,
        "CREATE TABLE prices (id int PRIMARY KEY, price numeric(8, 2), updated timestamp NOT NULL);"
        "INSERT INTO prices SELECT n, n / 4.0, TIMESTAMP '2024-01-01' FROM generate_series(1, 100) n",
    )
    with pytest.raises(LakeError, match="has no column updated"):
        own.capture(bikes, "bikes", "stations", poll="updated")
    captured = own.capture(bikes, "bikes", "prices", poll="updated")
    assert "polling sees no deletes" in capsys.readouterr().out
    assert captured["rows"].tolist() == [100]
    assert list(postgres.publications(bikes.source("bikes"))["publication"]) == [], "no log is read"
    own.capture(bikes, "bikes", "prices", poll="updated")
    assert "nothing to change" in capsys.readouterr().out
    execute(bikes, "UPDATE prices SET price = 0, updated = '2024-01-02' WHERE id <= 7")
    done = own.follow(bikes, "bikes")["prices"]
    assert (done.upserts, done.deletes) == (7, 0)
    own.compare(bikes, "bikes")
    source = {n: (0 if n <= 7 else n / 4) for n in range(1, 101)}
    lake, states, messages = dict(source), 0, 0
    for statements, touched in seeded_changes(source):
        execute(bikes, statements)
        done = own.follow(bikes, "bikes")["prices"]
        assert (done.upserts, done.deletes) == (len(touched & source.keys()), 0)
        states, messages = states + statements.count("updated"), messages + done.upserts
        lake.update({n: source[n] for n in touched & source.keys()})
    assert messages < states, "only the last state before each poll is seen"
    rows = hudi.read(spark, own.load(bikes, "bikes").table(bikes)).collect()
    assert {row["id"]: float(row["price"]) for row in rows} == lake
    deleted = lake.keys() - source.keys()
    assert deleted
    with pytest.raises(CheckFailed, match=f"{len(source)} rows"):
        own.compare(bikes, "bikes")
    for most in (comparing.MAX_COMPARED_ROWS, 10):  # row by row, and by the numbers of rows
        monkeypatch.setattr(comparing, "MAX_COMPARED_ROWS", most)
        execute(bikes, "VACUUM FULL prices")
        own.follow(bikes, "bikes")
        assert "prices: the source has stored it anew" in capsys.readouterr().out
    execute(bikes, "DELETE FROM prices WHERE id > 0")
    with pytest.raises(CheckFailed):
        own.compare(bikes, "bikes")
