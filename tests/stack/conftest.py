"""Fixtures of several files of this folder."""

from types import SimpleNamespace

import own_help
import pytest
from lake_help import (
    SCHEMA,
    new_table,
    new_topic,
    produce,
    table_content,
)
from own_flow_help import PORT, forget_all, reset
from workbench import hudi, stack, tracks
from workbench.hudi import changes
from workbench.spark import session
from workbench.topic import registry, topics
from workbench.tracks import sales, storefront


@pytest.fixture
def lake(world, spark):
    """A topic and a table of their own, with `go(*messages)`: send and ingest them."""
    made = []

    def make(**fields):
        topic, table = new_topic(world), new_table(world, **fields)
        made.append((topic, table))

        def go(*messages, run=hudi.ingest, **knobs):
            produce(world, topic, *messages)
            return run(spark, world, hudi.Topic(topic), table, schema=SCHEMA, **knobs)

        return SimpleNamespace(
            topic=topic,
            table=table,
            go=go,
            rows=lambda: table_content(spark, table),
            dead=lambda: hudi.dead_letters(spark, world, table).collect(),
        )

    yield make
    for topic, table in made:
        hudi.drop(spark, world, table)
        topics.delete(world, topic)


@pytest.fixture(scope="module")
def server(world):
    """The world with the source `bikes`."""
    with own_help.postgres_server(world, PORT) as changed:
        yield changed


@pytest.fixture
def bikes(server):
    """The same with new tables; afterwards nothing of a flow is left."""
    reset(server)
    yield server
    forget_all(server)


@pytest.fixture(scope="module")
def shop(world):
    storefront.restart_clean(world)
    yield world
    stack.ensure_running(world, *storefront.TRACK.services)
    tracks.reset(world, storefront.TRACK)
    left = storefront.TRACK.resources.remaining(world)
    assert not any(left.values()), left


@pytest.fixture
def outbox(shop):
    """From the first test with this fixture on, connectors publish the events."""
    storefront.enable_outbox_connectors(shop)
    storefront.start(shop)
    storefront.wait_until_consistent(shop)
    return shop


@pytest.fixture
def till(world):
    """The schemas, and nothing tried yet."""
    stack.ensure_running(world, *sales.TRACK.services)
    sales.register_schemas(world)
    sales.delete_scratch_queries(session(world), world)
    yield world
    stack.ensure_running(world, *sales.TRACK.services)
    tracks.reset(world, sales.TRACK)
    left = sales.TRACK.resources.remaining(world)
    sales.delete_scratch_queries(session(world), world)
    registry.delete(world, *sales.SCHEMAS)
    assert not any(left.values()), left


@pytest.fixture
def table(world, spark):
    """A maker of tables that are dropped afterwards."""
    made = []

    def make(**fields):
        made.append(new_table(world, **fields))
        return made[-1]

    yield make
    for each in made:
        hudi.drop(spark, world, each)


@pytest.fixture(params=["few", "many"])
def path(request, monkeypatch):
    """Both ways of the reader: by this process, by Spark."""
    monkeypatch.setattr(changes, "SMALL_BATCH_MESSAGES", 2_000 if request.param == "few" else 0)
    return request.param
