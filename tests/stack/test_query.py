"""The published walkthrough's query in Athena's dialect on a Hudi table, by its catalog name."""

import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from lake_help import SCHEMA, change_record, new_table, new_topic, produce
from workbench import connect, hudi, landing, query, stack
from workbench.base.errors import LakeError, StackError
from workbench.spark import session
from workbench.topic import topics
from workbench.tracks import outbox

Q2 = """
WITH dataset AS (
  SELECT id, transform(CAST(json_parse(text) AS ARRAY(MAP(VARCHAR, VARCHAR))),
                       x -> CAST(ROW(CAST(x['discount'] AS DECIMAL(6,2)), CAST(x['quantity'] AS DECIMAL(6,2)),
                                     CAST(x['unit_price'] AS DECIMAL(6,2)))
                            AS ROW(discount DECIMAL(6,2), quantity DECIMAL(6,2), unit_price DECIMAL(6,2)))) AS items
  FROM {table})
SELECT id, item.discount, item.quantity, item.unit_price,
       CAST(item.quantity * item.unit_price * (1 - item.discount) AS DECIMAL(10,2)) AS revenue
FROM dataset CROSS JOIN UNNEST(items) AS t(item) WHERE id = :id ORDER BY revenue
"""


def test_the_order_items_of_the_walkthrough(world, spark):
    topic, table = new_topic(world), new_table(world)
    items = [(19, 10), (12, 30), (18, 2)]
    text = json.dumps([{"discount": 0.150000006, "quantity": q, "unit_price": p} for p, q in items])
    try:
        produce(world, topic, change_record(11075, 1, text), change_record(11077, 1, None))
        hudi.ingest(spark, world, hudi.Topic(topic), table, schema=SCHEMA)
        ask = Q2.format(table=hudi.register(spark, table))
        rows = query.sql(spark, ask, id=11075)
        assert [tuple(map(str, r)) for r in rows.itertuples(index=False)] == [
            ("11075", "0.15", "2.00", "18.00", "30.60"),
            ("11075", "0.15", "10.00", "19.00", "161.50"),
            ("11075", "0.15", "30.00", "12.00", "306.00"),
        ]
        assert query.sql(
            spark, ask, id=11077
        ).empty  # items are null: the cross join leaves the order out
        produce(
            world, topic, change_record(11077, 2, text)
        )  # a commit by another way than the catalog is seen at once
        hudi.ingest(spark, world, hudi.Topic(topic), table, schema=SCHEMA)
        assert len(query.sql(spark, ask, id=11077)) == 3
        with pytest.raises(LakeError, match="(?s)the query failed.*nosuch"):
            query.sql(spark, f"SELECT nosuch FROM {table.database}.{table.name}")
    finally:
        hudi.drop(spark, world, table)
        topics.delete(world, topic)


def side_by_side(*calls):
    """What each of these calls raises, within 20 s: they wait for their time limits at the same time."""
    began = time.monotonic()
    with ThreadPoolExecutor(len(calls)) as pool:
        begun = [pool.submit(call) for call in calls]
        raised = [done.exception() or AssertionError(f"gave {done.result()}") for done in begun]
    assert time.monotonic() - began < 20
    return raised


def test_spark_killed_between_two_queries(world, spark):
    topic, table, kept = new_topic(world), new_table(world), new_table(world, type="mor")
    produce(world, topic, change_record(1, 1), change_record(2, 1))
    hudi.ingest(spark, world, hudi.Topic(topic), kept, schema=SCHEMA)
    view = hudi.register(spark, kept)
    assert query.sql(spark, "SELECT 1 AS a")["a"].tolist() == [1]
    stack.kill("spark")
    for error in side_by_side(
        lambda: query.sql(spark, "SELECT 1 AS a"),
        lambda: hudi.ingest(spark, world, hudi.Topic(topic), table, schema=SCHEMA),
    ):
        with pytest.raises(
            StackError, match="(?s)the service spark died.*spark.log.*workbench up.*set-up cell"
        ):
            raise error
    assert query.sql(world, "SELECT 2 AS a")["a"].tolist() == [2]  # by the world it mends itself
    again = session(
        world
    )  # the set-up cell: starts Spark where it is not up, and gives a session that works
    assert query.sql(again, "SELECT 1 AS a")["a"].tolist() == [1]
    assert hudi.ingest(again, world, hudi.Topic(topic), table, schema=SCHEMA).upserts == 2
    hudi.drop(again, world, table)
    assert again.conf.get("hoodie.write.table.version") == "6"
    # the catalog has outlived Spark: both views of the table go by their names
    for name in (view, view.replace("_rt", "_ro")):
        assert query.sql(again, f"SELECT count(*) AS n FROM {name}")["n"].tolist() == [2]
    hudi.drop(again, world, kept)
    topics.delete(world, topic)


def test_kafka_that_is_gone_is_named_whoever_asks(world, spark):
    spark = session(world)
    topic, table = new_topic(world), new_table(world)
    produce(world, topic, change_record(1, 1))
    assert hudi.ingest(spark, world, hudi.Topic(topic), table, schema=SCHEMA).upserts == 1
    stack.kill("kafka")
    for error in side_by_side(
        lambda: topics.offset_span(world, topic),
        lambda: topics.delete(world, topic),
        lambda: hudi.ingest(spark, world, hudi.Topic(topic), table, schema=SCHEMA),
        lambda: landing.run(world, connect.config(world, outbox.SINK)),
    ):
        with pytest.raises(StackError, match="(?s)the service kafka died.*kafka.log.*workbench up"):
            raise error
    stack.ensure_running(world, "kafka", "connect")
    assert hudi.ingest(spark, world, hudi.Topic(topic), table, schema=SCHEMA) == hudi.Ingested()
    hudi.drop(spark, world, table)
    topics.delete(world, topic)
