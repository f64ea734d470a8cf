"""An incremental snapshot and a commit that stands in the log of PostgreSQL, but is not visible yet."""

import contextlib
import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from workbench import stack
from workbench.base.paths import ROOT
from workbench.base.wait import wait_until
from workbench.source import postgres
from workbench.topic import registry, topics
from workbench.walkthroughs import operations

GUARD = ROOT / "data" / "operations" / "wait_for_writers.sql"
DATABASE = operations.DATABASE


@pytest.fixture
def payments(world):
    """A captured table, in a database whose commits wait for no other server."""
    stack.ensure_running(world, *operations.walkthrough.steps.services)
    postgres.create_database(world, DATABASE)
    setting = f"ALTER DATABASE {DATABASE} SET synchronous_commit"
    postgres.execute(world, f"{setting} = local", database="postgres")
    operations.start(world, 0.01)
    yield operations.flow.topic(world)
    operations.walkthrough.reset(world)
    postgres.execute(world, f"{setting} TO DEFAULT", database="postgres")


def waits(world, condition, what):
    query = f"SELECT EXISTS (SELECT FROM {condition}) AS found"
    wait_until(
        lambda: bool(postgres.query(world, query, database=DATABASE).loc[0, "found"]),
        what,
        timeout=30,
        interval=0.1,
    )


def set_server(world, statement):
    postgres.execute(world, statement, database=DATABASE)
    postgres.execute(world, "SELECT pg_reload_conf()", database=DATABASE)


def update_and_wait_for_another_server(world):
    with postgres.session(world, DATABASE) as connection:
        connection.execute("SET synchronous_commit = on")
        connection.execute("UPDATE payments SET amount = 4711 WHERE id = 1")


@contextlib.contextmanager
def a_commit_that_is_not_visible(world, topic):
    """Its change is in the topic while the block runs, and visible to queries when the block ends.

    It waits for the confirmation of a server that does not exist.
    """
    end = sum(topics.end_offsets(world, topic).values())
    with ThreadPoolExecutor(1) as pool:
        set_server(world, "ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        try:
            update = pool.submit(update_and_wait_for_another_server, world)
            waits(world, "pg_stat_activity WHERE wait_event = 'SyncRep'", "the commit to wait")
            topics.wait_for_messages(world, topic, end + 1, connector=operations.CONNECTOR)
            yield
        finally:
            set_server(world, "ALTER SYSTEM RESET synchronous_standby_names")
        update.result(timeout=30)


def records(world, topic):
    values = topics.read(world, topic)["value"].dropna()
    return [registry.inspect_message(world, value)["record"] for value in values]


def wait_until_read(world):
    def read():
        states = records(world, operations.NOTIFICATIONS)
        return any(r["id"] == "backfill" and r["type"] == "COMPLETED" for r in states)

    wait_until(read, "the backfill to be complete", timeout=60, interval=0.2)


@pytest.mark.parametrize("guarded", [True, False])
def test_a_backfill_waits_for_commits_that_are_not_visible(world, payments, guarded):
    """Without the trigger the stale row of the chunk follows its change in the topic: an error of
    Debezium 3.5.0. If it is corrected there, notebook 85 needs no trigger."""
    if guarded:
        postgres.execute(world, GUARD.read_text(encoding="utf-8"), database=DATABASE)
    data = json.dumps({"data-collections": ["public.payments"], "type": "incremental"})
    with a_commit_that_is_not_visible(world, payments):
        postgres.execute(
            world,
            "INSERT INTO debezium_signal VALUES ('backfill', 'execute-snapshot', %s)",
            [data],
            DATABASE,
        )
        if guarded:
            waits(
                world, "pg_locks WHERE NOT granted AND mode = 'ShareLock'", "the watermark to wait"
            )
        else:
            wait_until_read(world)
    wait_until_read(world)
    change, chunk = [record for record in records(world, payments) if record["id"] == 1][-2:]
    assert (change["__op"], float(change["amount"]), chunk["__op"]) == ("u", 4711, "r")
    assert (chunk["amount"] == change["amount"]) is guarded
