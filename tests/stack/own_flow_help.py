"""Helpers of test_own.py, test_own_flows.py and test_own_messages.py."""

import os

from workbench import connect, own, stack
from workbench.source import postgres
from workbench.topic import groups, registry, topics

PORT = int(os.environ["WORKBENCH_PORT_BASE"]) + 150


SCHEMA = """
    CREATE TABLE stations (station_id int PRIMARY KEY, name text NOT NULL, docks smallint, opened date);
    INSERT INTO stations SELECT n, 'Station ' || n, n % 30, DATE '2020-01-01' + n FROM generate_series(1, 200) n;
    """


def execute(world, statements):
    return postgres.execute(world.source("bikes"), statements)


def reset(server):
    execute(server, "DROP SCHEMA IF EXISTS public CASCADE; CREATE SCHEMA public")
    execute(server, SCHEMA)


def forget_all(server):
    for name in own.names(server):
        own.forget(server, name)
    left = [t for t in topics.names(server) if t.startswith(("own_", "__debezium-heartbeat.own_"))]
    assert left == []
    assert [g for g in groups.names(server) if g.startswith(("own_", "kafka-signal"))] == []
    assert [n for n in connect.names(server) if n.startswith("own_")] == []
    at = server.source("bikes")
    assert list(postgres.all_slots(at)["slot_name"]) == []
    assert list(postgres.publications(at)["publication"]) == []
    if "apicurio" in stack.running():
        assert not [a for a in registry.artifacts(server)["artifact"] if a.startswith("own_")]
    assert not own.folder("bikes").exists()
