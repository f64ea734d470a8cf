"""Commands of own flows that are interrupted at each of their steps: `follow` refuses, or the lake equals the source."""

import contextlib
import itertools

import own_help
import pytest
from killing import Killed, kill_before
from workbench import hudi, landing, operate, own
from workbench.base.errors import LakeError, WorkbenchError
from workbench.own import files
from workbench.source import mariadb, postgres
from workbench.topic import groups, registry, topics

DATABASE, FLOW = "interruptions_test", "orders"
# timestamp(3): a polled time has milliseconds
SCHEMA = """
    CREATE TABLE orders (id int PRIMARY KEY, note text, updated timestamp(3) NOT NULL DEFAULT now());
    INSERT INTO orders (id, note) SELECT n, 'order' FROM generate_series(1, 100) n;
    CREATE TABLE visits (id int, day int, note text, updated timestamp(3) NOT NULL DEFAULT now(), PRIMARY KEY (id, day))
        PARTITION BY RANGE (day);
    CREATE TABLE visits_1 PARTITION OF visits FOR VALUES FROM (1) TO (5);
    CREATE TABLE visits_2 PARTITION OF visits FOR VALUES FROM (5) TO (9);
    INSERT INTO visits (id, day, note) SELECT n, 1 + n % 8, 'visit' FROM generate_series(1, 100) n
    """
MARIADB_SCHEMA = """
    CREATE TABLE orders (id int PRIMARY KEY, note text, updated timestamp NOT NULL DEFAULT now());
    INSERT INTO orders (id, note) SELECT seq, 'order' FROM seq_1_to_100;
    CREATE TABLE visits (id int PRIMARY KEY, note text, updated timestamp NOT NULL DEFAULT now());
    INSERT INTO visits (id, note) SELECT seq, 'visit' FROM seq_1_to_100
    """
OPTIONS = {"json": {}, "avro": {"format": "avro"}, "polled": {"poll": "updated"}, "mariadb": {}}
# What the commands change; they are interrupted before each of these calls.
CHANGES = [
    (files, "write_declaration"),
    (files, "write_connector"),
    (files, "write_storage"),
    (mariadb, "grant_replication"),
    (postgres, "create_publication"),
    (postgres, "drop_publication"),
    (postgres, "drop_slot"),
    (topics, "create"),
    (topics, "delete"),
    (topics, "produce"),
    (groups, "delete"),
    (landing, "apply"),
    (landing, "delete"),
    (landing, "run_once"),
    (landing, "reset_offsets"),
    (registry, "delete"),
    (hudi, "ingest"),
    (hudi, "register"),
    (hudi, "label"),
    (hudi, "drop"),
]


class Orders:
    """Two tables of a kind of source, and the flow of them."""

    def __init__(self, world, kind):
        self.world, self.kind = world, kind

    def execute(self, statements):
        for statement in statements.split(";"):
            if self.kind == "mariadb":
                mariadb.execute(self.world, statement, database=DATABASE)
            else:
                postgres.execute(self.world.source("bikes"), statement)

    def change(self, number):
        """Delete an order and update a visit; polling sees no deletes, so update the order there."""
        deleted = f"DELETE FROM orders WHERE id = {number}"
        updated = f"UPDATE orders SET note = 'changed', updated = now() WHERE id = {number}"
        self.execute(updated if self.kind == "polled" else deleted)
        self.execute(f"UPDATE visits SET note = '{number}', updated = now() WHERE id = 1")

    def capture(self, *tables):
        options = OPTIONS[self.kind]
        return own.capture(
            self.world, "bikes", *tables, flow=FLOW, progress=lambda line: None, **options
        )

    def follow(self):
        return own.follow(self.world, FLOW, progress=lambda line: None)

    def recapture(self):
        own.recapture(self.world, FLOW)

    def forget(self, *tables):
        own.forget(self.world, FLOW, *tables)

    def compare(self):
        own.compare(self.world, FLOW)


@pytest.fixture
def orders(world, request):
    """Both tables in a new database; afterwards there is no flow."""
    with contextlib.ExitStack() as opened:
        if request.param == "mariadb":
            opened.enter_context(own_help.mariadb_server(world))
            at = opened.enter_context(own_help.mariadb_database(world, DATABASE))
        else:
            at = opened.enter_context(own_help.stack_database(world, DATABASE))
        made = Orders(at, request.param)
        made.execute(MARIADB_SCHEMA if request.param == "mariadb" else SCHEMA)
        yield made


def is_interrupted(monkeypatch, number, command):
    """Run a command until it is about to make its change of this number; return whether it got there."""
    with monkeypatch.context() as patched:
        kill_before(patched, number, CHANGES)
        try:
            command()
        except Killed:
            return True
    return False


def require_refused_or_equal(orders, command):
    """After an interruption `follow` and `capture` name the command, or the lake equals the source."""
    try:
        orders.follow()
    except LakeError as e:
        refused = f"`workbench {command}` is not complete.*`workbench {command} --world local`"
        for call in (lambda: orders.capture("orders"), orders.compare):
            with pytest.raises(LakeError, match=f"(?s){refused}"):
                call()
        assert f"`workbench {command}` is not complete" in str(e)
        [seen] = operate.Watcher(orders.world, FLOW).observe()
        assert "command_interrupted" in {each.kind for each in seen.problems}, seen.problems
    else:
        orders.compare()


# each step of each kind is interrupted in the drill, else some steps of the commands that remove something
EACH_STEP = [pytest.param(kind, 1, marks=pytest.mark.drill) for kind in OPTIONS]


@pytest.mark.parametrize("orders, stride", EACH_STEP, indirect=["orders"])
def test_a_capture_that_is_interrupted_is_followed_or_continued(orders, spark, monkeypatch, stride):
    for number in itertools.count(1, stride):
        if not is_interrupted(monkeypatch, number, lambda: orders.capture("orders", "visits")):
            break
        orders.change(number)
        with contextlib.suppress(WorkbenchError):
            orders.follow()
        if own.names(orders.world):
            orders.compare()  # the tables whose capture is complete
    assert number > 8  # MariaDB has no publication
    orders.compare()


@pytest.mark.parametrize("orders, stride", [*EACH_STEP, ("json", 16)], indirect=["orders"])
def test_a_recapture_that_is_interrupted_is_refused_until_it_is_repeated(
    orders, spark, monkeypatch, stride
):
    orders.capture("orders", "visits")
    for number in itertools.count(1, stride):
        orders.change(number)
        if not is_interrupted(monkeypatch, number, orders.recapture):
            break
        require_refused_or_equal(orders, f"recapture {FLOW}")
    assert number > max(15, stride)  # several steps were interrupted
    orders.change(99)
    done = orders.follow()["orders"]
    assert (done.upserts, done.deletes) == ((1, 0) if orders.kind == "polled" else (0, 1))
    orders.compare()


@pytest.mark.parametrize("orders, stride", [*EACH_STEP, ("json", 6)], indirect=["orders"])
def test_a_forget_that_is_interrupted_is_refused_until_it_is_repeated(
    orders, spark, monkeypatch, stride
):
    orders.capture("orders", "visits")
    for number in itertools.count(1, stride):
        orders.change(number)
        if not is_interrupted(monkeypatch, number, lambda: orders.forget("visits")):
            break
        require_refused_or_equal(orders, f"forget {FLOW} {source_name(orders, 'visits')}")
    left = [each.source for each in own.declaration(FLOW).tables]
    assert left == [source_name(orders, "orders")]
    orders.compare()
    for number in itertools.count(1, stride):
        orders.change(50 + number)
        if not is_interrupted(monkeypatch, number, orders.forget):
            break
        require_refused_or_equal(orders, f"forget {FLOW}")
    assert own.names(orders.world) == []
    assert [t for t in topics.names(orders.world) if t.startswith(f"own_{FLOW}")] == []


def source_name(orders, table):
    """Return the name of a table as the flow has it."""
    return f"{DATABASE if orders.kind == 'mariadb' else 'public'}.{table}"
