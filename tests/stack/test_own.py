"""Tables of the user's own databases: captured, followed, compared and forgotten."""

import os

import own_help
import pytest
from workbench import connect, hudi, trace, walkthroughs
from workbench.source import postgres
from workbench.topic import registry, topics
from workbench.walkthroughs import own

PORT = int(os.environ["WORKBENCH_PORT_BASE"]) + 150
SCHEMA = """
    CREATE TABLE stations (station_id int PRIMARY KEY, name text NOT NULL, docks smallint, opened date);
    INSERT INTO stations SELECT n, 'Station ' || n, n % 30, DATE '2020-01-01' + n FROM generate_series(1, 200) n;
    """


@pytest.fixture(scope="module")
def server(world):
    """The world with the source `bikes`."""
    with own_help.postgres_server(world, PORT) as changed:
        yield changed


def execute(world, statements):
    return postgres.execute(world.source("bikes"), statements)


@pytest.fixture
def bikes(server):
    """The same with new tables; afterwards nothing of a flow is left."""
    execute(server, "DROP SCHEMA IF EXISTS public CASCADE; CREATE SCHEMA public")
    execute(server, SCHEMA)
    yield server
    for name in own.names(server):
        own.forget(server, name)
    left = [t for t in topics.names(server) if t.startswith(("own_", "__debezium-heartbeat.own_"))]
    assert left == []
    assert [n for n in connect.names(server) if n.startswith("own_")] == []
    at = server.source("bikes")
    assert list(postgres.all_slots(at)["slot_name"]) == []
    assert list(postgres.publications(at)["publication"]) == []
    assert not [a for a in registry.artifacts(server)["artifact"] if a.startswith("own_")]
    assert not own.folder("bikes").exists()


def test_a_table_is_captured_followed_compared_and_forgotten(bikes, spark, capsys):
    captured = own.capture(bikes, "bikes", "stations")
    assert captured[["table", "rows"]].values.tolist() == [["public.stations", 200]]
    assert captured["changed_types"][0] == {}
    text = capsys.readouterr().out
    assert "public.stations: 200 rows" in text
    flow = own.load(bikes, "bikes").flow
    table = flow.table(bikes, "stations")
    assert hudi.read(spark, table).count() == 200 and spark.table("bikes.stations").count() == 200
    assert list(hudi.labels(bikes, table)["label"]) == ["captured"]

    before = topics.offset_span(bikes, flow.topic(bikes)), len(hudi.commits(table))
    own.capture(bikes, "bikes", "stations")
    assert "nothing to change" in capsys.readouterr().out
    assert (topics.offset_span(bikes, flow.topic(bikes)), len(hudi.commits(table))) == before

    execute(
        bikes,
        "UPDATE stations SET docks = 99 WHERE station_id = 7; DELETE FROM stations WHERE station_id = 8;"
        "INSERT INTO stations VALUES (201, 'New', 1, NULL)",
    )
    done = own.follow(bikes, "bikes")["stations"]
    assert (done.upserts, done.deletes) == (2, 1)
    own.compare(bikes, "bikes")
    assert "200 rows × 4 columns, no value differs" in capsys.readouterr().out
    history = trace.row(bikes, walkthroughs.traced_table(bikes, "bikes/stations"), 7)
    assert list(history.changes["op"]) == ["snapshot", "update"]

    remaining = own.remaining(bikes, "bikes")
    assert remaining["publications"] == ["own_bikes"] and "own_bikes" in remaining["connectors"]
    own.forget(bikes, "bikes")
    assert own.names(bikes) == []
    rows = postgres.query(bikes.source("bikes"), "SELECT count(*) AS n FROM stations")
    assert rows["n"][0] == 200, "the user's rows stay"
