"""A partitioned source table: its changes arrive under its own name, and the lake equals it."""

import pytest
from workbench import connect, hudi, stack
from workbench.base.errors import ConnectorError, SourceError
from workbench.flow.capture import Capture
from workbench.flow.flow import CaptureFlow
from workbench.source import postgres
from workbench.topic import topics

DATABASE = "partitions_lab"
TABLE = "public.sales"
SCHEMA = """
    CREATE TABLE sales (id int, region text, amount numeric(8, 2), PRIMARY KEY (id, region)) PARTITION BY LIST (region);
    CREATE TABLE sales_north PARTITION OF sales FOR VALUES IN ('north');
    CREATE TABLE sales_south PARTITION OF sales FOR VALUES IN ('south') PARTITION BY RANGE (id);
    CREATE TABLE sales_south_1 PARTITION OF sales_south FOR VALUES FROM (0) TO (100);
    CREATE TABLE sales_south_2 PARTITION OF sales_south FOR VALUES FROM (100) TO (1000);
    INSERT INTO sales SELECT n, CASE n % 2 WHEN 0 THEN 'north' ELSE 'south' END, n FROM generate_series(1, 200) n"""


def config(world, name=""):
    own = {
        "topic.prefix": "partitions",
        "slot.name": postgres.slot_prefix(world) + "partitions",
        "publication.name": "partitions",
        "database.dbname": DATABASE,
        "table.include.list": TABLE,
    }
    return {**connect.config(world, "moma_source"), **own}


# ids are unique over all partitions: so a row that moves to another partition is the same row of
# the lake
FLOW = CaptureFlow(
    (
        Capture(
            TABLE,
            "id",
            "partitions_source",
            format="avro",
            lake=(
                {
                    "name": "partitioned_sales",
                    "ordering": "__lsn",
                    "partition": ("region",),
                    "index": "GLOBAL_SIMPLE",
                },
            ),
        ),
    ),
    database=DATABASE,
    config=config,
)


def source(world, statements):
    return postgres.execute(world, statements, database=DATABASE)


@pytest.fixture
def lab(world):
    """The partitioned table in a database of its own, published; nothing captures it yet."""
    stack.ensure_running(world, "connect", "spark", "apicurio")
    postgres.create_database(world, DATABASE)
    source(world, SCHEMA)
    postgres.create_publication(world, "partitions", [TABLE], DATABASE)
    postgres.grant_replication(world, [TABLE], DATABASE)
    yield world
    connect.delete(world, "partitions_source")
    for slot in postgres.slots(world, DATABASE)["slot_name"]:
        postgres.drop_slot(world, slot, DATABASE)
    postgres.execute(world, f"DROP DATABASE {DATABASE} WITH (FORCE)", database="postgres")
    topics.delete(world, *(topic for topic in topics.names(world) if "partitions" in topic))


@pytest.fixture
def captured(lab, spark):
    FLOW.deploy(lab)
    yield lab
    for table in FLOW.tables(lab):
        hudi.drop(spark, lab, table)


def equal(spark, world):
    """What is new in the source is brought into the lake, and both are compared row by row."""
    done = FLOW.sync(spark, world)["partitioned_sales"]
    FLOW.compare(spark, world)
    return done


@pytest.mark.drill
def test_changes_of_a_partitioned_table_arrive_under_its_name(spark, captured):
    equal(spark, captured)
    source(captured, "UPDATE sales SET amount = amount + 1 WHERE id <= 50")
    source(captured, "DELETE FROM sales WHERE id BETWEEN 51 AND 55")
    source(captured, "INSERT INTO sales SELECT n, 'south', n FROM generate_series(201, 207) n")
    done = equal(spark, captured)
    assert (done.upserts, done.deletes) == (50 + 7, 5)
    assert {t for t in topics.names(captured) if "partitions" in t} == {
        "partitions.public.sales",
        "__debezium-heartbeat.partitions",
        "partitions.message",
    }

    # moves between partitions: the key of the message changes with it, the row of the lake does not
    source(
        captured,
        "UPDATE sales SET region = CASE region WHEN 'north' THEN 'south' ELSE 'north' END WHERE id < 20",
    )
    source(
        captured,
        "UPDATE sales SET id = id + 100 WHERE region = 'south' AND id BETWEEN 90 AND 99 AND id % 2 = 0",
    )
    source(
        captured,
        """
        BEGIN; UPDATE sales SET region = 'south' WHERE id = 60;
        UPDATE sales SET region = 'north', amount = 6 WHERE id = 60; DELETE FROM sales WHERE id = 62;
        INSERT INTO sales VALUES (62, 'south', 7); COMMIT""",
    )
    equal(spark, captured)

    # a partition that comes empty is captured from then on; nothing has to be done for it
    source(captured, "CREATE TABLE sales_west PARTITION OF sales FOR VALUES IN ('west')")
    source(
        captured,
        "INSERT INTO sales VALUES (301, 'west', 1); UPDATE sales SET region = 'west' WHERE id = 61",
    )
    equal(spark, captured)


@pytest.mark.drill
def test_rows_of_attached_and_detached_partitions_come_and_go_without_events(spark, captured):
    """As docs/limits.md says; and what helps."""
    equal(spark, captured)
    source(
        captured,
        """
        CREATE TABLE sales_east (LIKE sales INCLUDING ALL); INSERT INTO sales_east VALUES (401, 'east', 1);
        ALTER TABLE sales ATTACH PARTITION sales_east FOR VALUES IN ('east')""",
    )
    with pytest.raises(AssertionError, match="id=401"):
        equal(spark, captured)
    source(captured, "UPDATE sales SET id = id WHERE region = 'east'")  # each row once more
    equal(spark, captured)
    source(captured, "UPDATE sales SET amount = 2 WHERE id = 401")
    equal(spark, captured)

    source(
        captured, "ALTER TABLE sales DETACH PARTITION sales_east; UPDATE sales_east SET amount = 3"
    )
    with pytest.raises(AssertionError, match="id=401"):
        equal(spark, captured)
    source(
        captured,
        "ALTER TABLE sales ATTACH PARTITION sales_east FOR VALUES IN ('east'); "
        "DELETE FROM sales WHERE region = 'east'; ALTER TABLE sales DETACH PARTITION sales_east",
    )
    equal(spark, captured)  # deleted first, then detached

    source(captured, "TRUNCATE sales_north")
    with pytest.raises(AssertionError, match="id=10: not in source"):
        equal(spark, captured)
    assert connect.failure(captured, "partitions_source") is None


def test_a_publication_that_publishes_partitions_is_named(lab):
    source(lab, "ALTER PUBLICATION partitions SET (publish_via_partition_root = false)")
    with pytest.raises(
        ConnectorError,
        match=r"(?s)publication partitions publishes the changes of public.sales under "
        r".*ALTER PUBLICATION partitions SET \(publish_via_partition_root = true",
    ):
        connect.apply(lab, "partitions_source", config(lab))
    assert "partitions_source" not in connect.names(lab)
    assert TABLE not in postgres.publications(lab, DATABASE)["table"].tolist(), "as watch sees it"
    postgres.create_publication(
        lab, "partitions", [TABLE], DATABASE
    )  # an existing one is corrected
    assert postgres.publications(lab, DATABASE)["table"].tolist() == [TABLE]


def test_a_partition_without_replica_identity_is_refused(lab):
    source(
        lab,
        """
        CREATE TABLE keyless (id int, part int) PARTITION BY LIST (part);
        CREATE TABLE keyless_1 PARTITION OF keyless FOR VALUES IN (1); ALTER TABLE keyless REPLICA IDENTITY FULL""",
    )
    with pytest.raises(
        SourceError, match="public.keyless_1 has neither primary key nor replica identity"
    ):
        postgres.create_publication(lab, "keyless", ["public.keyless"], DATABASE)
    source(lab, "ALTER TABLE keyless_1 REPLICA IDENTITY FULL")
    postgres.create_publication(lab, "keyless", ["public.keyless"], DATABASE)
    source(lab, "INSERT INTO keyless VALUES (1, 1); UPDATE keyless SET id = 2")
