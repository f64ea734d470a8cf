"""Streaming queries on real parts: odd sales, poison, a schema that changes, services that go, and
a query that is killed. The result is always that of a recount of the topic."""

import numpy as np
import pytest
from streams_help import SOURCE, agree, finished, result
from workbench import stack
from workbench.base.errors import StackError
from workbench.base.wait import wait_until
from workbench.checks import check
from workbench.query import streams
from workbench.spark import session
from workbench.topic import registry, topics
from workbench.tracks import sales


def sent(world, *changes, key=True, id=None):
    """Send sales that differ from the first one."""
    encode = registry.encoder(world, id or registry.latest_id(world, f"{sales.SALES_TOPIC}-value"))
    first, at = sales.read_sales()[0], int(sales.event_time(0).timestamp() * 1000)
    rows = [({**first, **change}, change.get("ms", at)) for change in changes]
    topics.create(world, SOURCE)
    topics.produce(
        world, SOURCE, [(b"k" if key else None, encode(row), {"timestamp": ms}) for row, ms in rows]
    )


def test_odd_sales_are_counted_and_what_is_none_is_set_aside(till):
    late = int(sales.event_time(0).timestamp() * 1000) - 3 * 24 * 3_600_000
    sales.produce(till, 0, 100, topic=SOURCE)
    sent(till, {"amount": -3.99}, {"amount": 99_999.99}, {"country": "Atlantis"}, {"ms": late})
    sent(till, {"amount": 0.01}, key=False)
    topics.produce(till, SOURCE, [(b"k", b"no Avro"), (b"k", b"\0" * 9 + b"\xff"), (b"k", None)])
    query = finished(till, mode="complete")
    recount = agree(till)
    assert recount["orders"].sum() == 2 * 105
    assert streams.progress(query)["dropped_groups"].sum() == 0, "complete drops none"
    there = streams.messages(
        session(till), till, SOURCE, schema_topic=sales.SALES_TOPIC, stream=False
    )
    aside = there.where("reason IS NOT NULL")
    assert [row.offset for row in aside.orderBy("offset").collect()] == [105, 106, 107]


def test_late_records_count_once_for_each_group_that_is_dropped(till):
    sales.produce(till, 0, 100, topic=SOURCE)
    finished(till, mode="update")
    recount = agree(till)
    late = int(sales.event_time(0).timestamp() * 1000) - 3 * 24 * 3_600_000
    sent(till, *[{"ms": late}] * 50)
    told = streams.progress(finished(till, mode="update"))
    assert told["rows"].sum() == 50 and told["dropped_groups"].sum() == 2, (
        "one region, two windows, one partition"
    )
    check.same_rows(
        recount.assign(sales=recount["sales"].astype(np.float32)),
        result(till),
        key=["region", "window_start"],
    )


def test_the_next_version_of_the_schema_ends_a_query_that_does_not_know_it_and_a_restart_reads_it(
    till,
):
    sales.produce(till, 0, 50, topic=SOURCE)
    query = sales.start_query(session(till), till, name="restarted", trigger_interval="0 seconds")
    kept = session(till).conf.get("spark.sql.streaming.numRecentProgressUpdates")
    assert int(kept or 0) <= 10_000, "a job of months keeps them in memory"
    query.processAllAvailable()
    schema = sales.SCHEMAS[f"{sales.SALES_TOPIC}-value"]
    more = {"name": "till", "type": ["null", "string"], "default": None}
    registry.register(
        till, f"{sales.SALES_TOPIC}-value", {**schema, "fields": [*schema["fields"], more]}
    )
    sent(till, {"till": "7"}, {"till": None})
    failure = wait_until(lambda: str(query.exception() or ""), "the query to end", timeout=60)
    assert "start the query again; it continues from here" in failure
    finished(till)
    assert agree(till)["orders"].sum() == 2 * 52


def test_without_a_registry_a_query_goes_on_and_none_is_started(till):
    sales.produce(till, 0, 50, topic=SOURCE)
    query = sales.start_query(session(till), till, name="restarted", trigger_interval="0 seconds")
    query.processAllAvailable()
    encoded = registry.encoder(till, registry.latest_id(till, f"{sales.SALES_TOPIC}-value"))(
        sales.read_sales()[50]
    )
    stack.kill("apicurio")
    at = int(sales.event_time(50).timestamp() * 1000)
    topics.produce(till, SOURCE, [(b"k", encoded, {"timestamp": at})])
    query.processAllAvailable()
    assert streams.progress(query)["rows"].sum() == 51
    query.stop()
    with pytest.raises(StackError, match="schema registry does not answer"):
        sales.start_query(session(till), till, name="restarted")
    stack.ensure_running(till, "apicurio")
    sales.register_schemas(till)  # it holds all in memory
    finished(till)


def test_a_checkpoint_of_another_query_is_refused(till):
    sales.produce(till, 0, 10, topic=SOURCE)
    finished(till)
    before = topics.offset_span(till, f"{SOURCE}.restarted")
    there = streams.messages(session(till), till, SOURCE, schema_topic=sales.SALES_TOPIC)
    other = (
        there.groupBy("partition").count().selectExpr("string(count) AS value")
    )  # it remembers something else
    query = (
        other.writeStream.format("kafka")
        .outputMode("complete")
        .trigger(processingTime="0 seconds")
        .options(
            **topics.spark_options(till),
            topic=f"{SOURCE}.restarted",
            checkpointLocation=sales.checkpoint(till, "restarted"),
        )
        .start()
    )
    sales.produce(till, 10, 20, topic=SOURCE)
    failure = wait_until(lambda: str(query.exception() or ""), "the query to end", timeout=60)
    assert "state" in failure.lower(), failure
    assert topics.offset_span(till, f"{SOURCE}.restarted") == before
