"""Incremental snapshots, and commits that stand in the log of PostgreSQL but are not visible yet."""

import contextlib
import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pandas as pd
import pytest
from workbench import stack, tracks
from workbench.base.paths import ROOT
from workbench.base.wait import wait_until
from workbench.source import postgres
from workbench.topic import registry, topics
from workbench.tracks import operations

GUARD = ROOT / "data" / "operations" / "wait_for_writers.sql"
DATABASE = operations.DATABASE
ROUNDS = int(os.environ.get("BACKFILLS", "20"))


@pytest.fixture(scope="module")
def payments(world):
    """The topic of a captured table, in a database whose commits wait for no other server."""
    stack.ensure_running(world, *operations.TRACK.services)
    postgres.create_database(world, DATABASE)
    setting = f"ALTER DATABASE {DATABASE} SET synchronous_commit"
    postgres.execute(world, f"{setting} = local", database="postgres")
    try:
        operations.start(world, 0.1)
        yield operations.flow.topic(world)
        tracks.reset(world, operations.TRACK)
    finally:
        postgres.execute(world, f"{setting} TO DEFAULT", database="postgres")


def wait_for(world, condition, what):
    query = f"SELECT {condition} AS reached"
    wait_until(
        lambda: bool(postgres.query(world, query, database=DATABASE).loc[0, "reached"]),
        what,
        timeout=60,
        interval=0.05,
    )


def wait_for_commits(world, count):
    waiting = "pg_stat_activity WHERE wait_event = 'SyncRep' AND datname = current_database()"
    wait_for(world, f"(SELECT count(*) = {count} FROM {waiting})", "the commits to wait")


def set_server(world, statement):
    postgres.execute(world, statement, database=DATABASE)
    postgres.execute(world, "SELECT pg_reload_conf()", database=DATABASE)


def commit(world, statement, stop):
    """Commit until `stop` is set, with the confirmation of another server."""
    with postgres.session(world, DATABASE) as connection:
        connection.execute("SET synchronous_commit = on")
        while not stop.is_set():
            connection.execute(statement)


@contextlib.contextmanager
def a_commit_that_is_not_visible(world, topic, amount):
    """Its change is in the topic while the block runs, and visible to queries when the block ends.

    It waits for the confirmation of a server that does not exist.
    """
    stop, end = threading.Event(), sum(topics.end_offsets(world, topic).values())
    update = f"UPDATE payments SET amount = {amount} WHERE id = 1"
    with ThreadPoolExecutor(2) as pool:
        try:
            set_server(world, "ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
            # the server applies the setting a moment later, and then this commit waits
            pool.submit(commit, world, "UPDATE heartbeat SET at = now()", stop)
            wait_for_commits(world, 1)
            pool.submit(commit, world, update, stop)
            wait_for_commits(world, 2)
            topics.wait_for_messages(world, topic, end + 1, connector=operations.CONNECTOR)
            yield
        finally:
            stop.set()
            set_server(world, "ALTER SYSTEM RESET synchronous_standby_names")


def records(world, topic, first=0):
    decode = registry.Decoder(world)
    values = topics.read(world, topic, start_offsets={0: first})["value"].dropna()
    binary = (value.encode() if isinstance(value, str) else value for value in values)
    return [decode(value)[0] for value in binary]


def start_backfill(world, name):
    data = {"data-collections": ["public.payments"], "type": "incremental"}
    postgres.execute(
        world,
        "INSERT INTO debezium_signal VALUES (%s, 'execute-snapshot', %s)",
        [name, json.dumps(data)],
        DATABASE,
    )


def wait_until_read(world, name):
    def result():
        found = {
            record["type"]: record["additional_data"]
            for record in records(world, operations.NOTIFICATIONS)
            if record["id"] == name
        }
        return "COMPLETED" in found and found["TABLE_SCAN_COMPLETED"]["status"]

    wait_until(result, "the backfill to be complete", timeout=60, interval=0.2)
    assert result() == "SUCCEEDED"


@pytest.mark.parametrize("guarded, amount", [(False, 4711), (True, 4712)])
def test_a_chunk_and_a_commit_that_is_not_visible(world, payments, guarded, amount):
    """With the trigger the chunk waits for it. Without it, a stale row follows the change in the
    topic: an error of Debezium 3.5.0. If it is corrected there, notebook 85 needs no trigger.
    The trigger stays, so the test without it is the first."""
    name = f"backfill of {amount}"
    if guarded:
        postgres.execute(world, GUARD.read_text(encoding="utf-8"), database=DATABASE)
    lock = "pg_locks WHERE relation = 'payments'::regclass AND mode = 'ShareLock' AND NOT granted"
    with a_commit_that_is_not_visible(world, payments, amount):
        start_backfill(world, name)
        if guarded:
            wait_for(world, f"EXISTS (SELECT FROM {lock})", "the watermark to wait")
        else:
            wait_until_read(world, name)
    wait_until_read(world, name)
    change, chunk = [record for record in records(world, payments) if record["id"] == 1][-2:]
    assert (change["__op"], float(change["amount"]), chunk["__op"]) == ("u", amount, "r")
    assert (chunk["amount"] == change["amount"]) is guarded


def update_at_random(world, seed, stop):
    random = Random(seed)
    with postgres.session(world, DATABASE) as connection:
        while not stop.is_set():
            key = [random.randrange(1, operations.ROWS + 1)]
            connection.execute("UPDATE payments SET amount = amount + 1 WHERE id = %s", key)


@pytest.mark.drill
@pytest.mark.parametrize("guarded", [True, False])
def test_backfills_under_load(world, payments, guarded):
    """The number of stale rows without the trigger is measured (docs/limits.md), not required."""
    operations.start(world, 1)
    if guarded:
        postgres.execute(world, GUARD.read_text(encoding="utf-8"), database=DATABASE)
    stale = []
    for number in range(ROUNDS):
        stop, end = threading.Event(), topics.end_offsets(world, payments)[0]
        with ThreadPoolExecutor(8) as pool:
            writers = [pool.submit(update_at_random, world, 8 * number + n, stop) for n in range(8)]
            try:
                start_backfill(world, f"backfill {number}")
                wait_until_read(world, f"backfill {number}")
            finally:
                stop.set()
            for writer in writers:
                writer.result()
        operations.flow.wait_until_captured(world)
        newest = pd.DataFrame(records(world, payments, end)).groupby("id")["amount"].last()
        source = operations.flow.rows(world).set_index("id")["amount"]
        stale += list(source.index[source.astype(str) != newest.reindex(source.index).astype(str)])
    print(f"{len(stale)} stale rows in {ROUNDS} backfills, {guarded=}")
    assert stale == [] or not guarded
