"""Types of MariaDB on their way through the log, Avro and the ingest into a Hudi table: exact, or
refused with a reason (docs/types.md)."""

import datetime as dt
from decimal import Decimal

import pytest
from test_mariadb import LENIENT, ROW, TYPES, ZERO
from workbench import connect, hudi, stack
from workbench.source import mariadb
from workbench.topic import registry, topics

NAME, TOPIC = "types_source", "types_lab.types_lab.t"


@pytest.fixture
def lab(world):
    """A table of these types, captured before its rows came."""
    stack.ensure_running(world, "mariadb", "apicurio")
    mariadb.create_database(world, "types_lab")
    mariadb.execute(world, f"CREATE TABLE t ({TYPES})", database="types_lab")
    mariadb.grant_replication(world, ["types_lab.t"])
    connect.apply(
        world,
        NAME,
        {
            **connect.config(world, "movies_positions"),
            "database.server.id": "77",
            "topic.prefix": "types_lab",
            "schema.history.internal.kafka.topic": "dbhistory.types_lab",
            "table.include.list": "types_lab.t",
        },
    )
    connect.wait_running(world, NAME)
    yield world
    connect.delete(world, NAME)
    topics.delete(world, *(t for t in topics.names(world) if "types_lab" in t))
    registry.delete(world, *(a for a in registry.names(world) if "types_lab" in a))
    mariadb.execute(world, "DROP DATABASE types_lab")
    for name in ("mariadb", "apicurio"):
        stack.stop(name)


def test_what_each_type_is_in_the_lake(lab, spark):
    for row, how in ((ROW, ""), (ZERO, LENIENT)):
        insert = f"{how} INSERT INTO t VALUES ({', '.join(['%s'] * len(row))})"
        mariadb.execute(lab, insert, row, "types_lab")
    topics.wait_for_messages(lab, TOPIC, 2, connector=NAME)
    one, zero = ingest(lab, spark, "published")
    analyst, _ = ingest(lab, spark, "analyst")
    source = (
        mariadb.query(lab, "SELECT * FROM t WHERE id = 1", database="types_lab").iloc[0].to_dict()
    )
    otherwise = {  # what docs/types.md says of them
        "ratio": 1.100000023841858,  # the float that 1.1 is
        "zoned": "2024-02-29T10:00:00.000Z",
        "span": -108_000_000_000,
        "bits": bytearray(source["bits"]),
        "raw": bytearray(source["raw"]),
    }
    assert {name: one[name] for name in source} == {**source, **otherwise}
    assert (
        type(one["large"]) is Decimal
        and type(one["price"]) is Decimal
        and type(one["at"]) is dt.datetime
    )
    assert {name for name in source if zero[name] is not None} == {"id"}, "a day of zeros is null"
    otherwise |= {"zoned": dt.datetime(2024, 2, 29, 10), "span": "-30:00:00.000000"}
    assert {name: analyst[name] for name in source} == {**source, **otherwise}


def ingest(world, spark, types):
    """The two rows in a new table."""
    ordering = "__source_file,__source_pos,__source_row"
    table = hudi.table(world, f"types_lab_{types}", key=("id",), ordering=ordering)
    try:
        topic = hudi.Topic(TOPIC, format="avro", types=types)
        assert hudi.ingest(spark, world, topic, table).upserts == 2
        return [r.asDict(True) for r in hudi.read(spark, table).orderBy("id").collect()]
    finally:
        hudi.drop(spark, world, table)
