"""Streaming queries on real parts: odd sales, poison, a schema that changes, services that go, and
a query that is killed. The result is always that of a recount of the topic."""

import os
import random
import re
import signal
import threading
import time

import numpy as np
import pytest
from pyspark.sql.connect.client import ChannelBuilder
from workbench import stack
from workbench.base import files
from workbench.base.errors import LakeError, StackError
from workbench.base.wait import wait_until
from workbench.checks import check
from workbench.query import streams
from workbench.spark import session
from workbench.stack import process
from workbench.topic import registry, topics
from workbench.walkthroughs import ingest, sales

SOURCE = sales.SCRATCH_TOPIC


@pytest.fixture
def till(world):
    """The schemas, and nothing tried yet."""
    stack.ensure_running(world, *sales.walkthrough.steps.services)
    sales.register_schemas(world)
    sales.delete_scratch_queries(session(world), world)
    yield world
    stack.ensure_running(world, *sales.walkthrough.steps.services)
    sales.walkthrough.reset(world)
    left = sales.walkthrough.resources.remaining(world)
    sales.delete_scratch_queries(session(world), world)
    registry.delete(world, *sales.SCHEMAS)
    assert not any(left.values()), left


def result(world, name="restarted"):
    return sales.latest(session(world), world, f"{SOURCE}.{name}")


def finished(world, name="restarted", **how):
    """Run the query until it has read all that is there."""
    query = sales.start_query(session(world), world, name=name, trigger_interval="0 seconds", **how)
    query.processAllAvailable()
    query.stop()
    return query


def agree(world, name="restarted"):
    recount = sales.expected_summary(world, SOURCE)
    recount["sales"] = recount["sales"].astype(np.float32)  # as the schema has it
    check.same_rows(recount, result(world, name), key=["region", "window_start"])
    return recount


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


ENDS = {
    "killed": lambda: stack.kill("spark"),
    "its process alone": lambda: process.running_process("spark").kill(),
    "told to stop": lambda: os.killpg(process.running_process("spark").pid, signal.SIGTERM),
}


@pytest.mark.parametrize(
    "call",
    [
        "processAllAvailable",
        pytest.param("awaitTermination", marks=pytest.mark.drill),
        pytest.param("lastProgress", marks=pytest.mark.drill),
    ],
)
@pytest.mark.parametrize(
    "end", ["killed", *(pytest.param(end, marks=pytest.mark.drill) for end in [*ENDS][1:])]
)
def test_spark_that_ends_under_a_query_is_named_in_time(till, end, call):
    spark = session(till)
    sales.produce(till, 0, 600, topic=SOURCE)
    query = sales.start_query(
        spark, till, name="restarted", max_records=10, trigger_interval="0 seconds"
    )
    check.eventually(
        "a batch is done", lambda: len(streams.progress(query)) > 0, timeout=60, interval=0.05
    )
    began = time.monotonic()
    sales.latest(spark, till, f"{SOURCE}.restarted")
    baseline = (
        time.monotonic() - began
    )  # of a call that is answered: what else runs on the machine counts in it
    ended = []

    def stop():
        ended.append(time.monotonic())
        ENDS[end]()

    def asked():
        value = getattr(query, call)
        if callable(value):
            value()

    threading.Timer(1, stop).start()
    for ask in (
        asked,
        lambda: query.isActive,
        lambda: query.lastProgress,
        lambda: streams.progress(query),
        query.awaitTermination,
        query.processAllAvailable,
        query.stop,
        lambda: sales.latest(spark, till, f"{SOURCE}.restarted"),
        lambda: sales.start_query(spark, till, name="restarted"),
    ):
        with pytest.raises(
            StackError, match="(?s)the service spark (died|does not listen).*workbench up"
        ) as raised:
            while (
                not ended or time.monotonic() - ended[0] < 60
            ):  # a server that ends answers for a moment
                called = time.monotonic()
                ask()
        assert not re.search("java|py4j|grpc|RPC", str(raised.value))
        assert time.monotonic() - max(called, ended[0]) < 10 + 10 * baseline


def test_it_runs_as_a_job(till):
    sales.produce(till, 0, 300)
    said = []
    assert ingest.ingest(till, "60_streaming_sales", progress=said.append) == 0
    assert said == ["streaming_to_kafka: 300 messages"]
    recount = sales.expected_summary(till)
    check.same_rows(recount, sales.latest(session(till), till), key=["region", "window_start"])
    sales.produce(till, 300, 400)
    worker = threading.Thread(
        target=lambda: signal.pthread_kill(threading.main_thread().ident, signal.SIGTERM)
    )
    soon = threading.Timer(15, worker.run)
    soon.start()
    assert ingest.ingest(till, "60_streaming_sales", continuous=True, progress=said.append) == 0, (
        "told to stop"
    )
    assert said[1:] == ["streaming_to_kafka: 100 messages"], "it went on where it was"


def test_a_query_that_has_no_schemas_is_told_of(till):
    registry.delete(till, f"{sales.SALES_TOPIC}-value")
    with pytest.raises(LakeError, match=f"no artifact '{sales.SALES_TOPIC}-value'"):
        sales.start_query(session(till), till, name="restarted")


def test_a_run_whose_kernel_is_gone_ends_with_its_checkpoint(till):
    sales.produce(till, 0, 10, topic=SOURCE)
    query = sales.start_query(session(till), till, name="late", trigger_interval="0 seconds")
    query.processAllAvailable()
    channel = ChannelBuilder(till.spark.url)
    there = (
        type(session(till)).builder.channelBuilder(channel).create()
    )  # another session, as another kernel has it
    streams.delete_checkpoint(there, sales.checkpoint(till, "late"))
    wait_until(lambda: not query.isActive, "the run of the other session to end", timeout=30)
    assert not files.list_files(sales.checkpoint(till, "late"))


def test_a_broker_that_is_killed_loses_and_doubles_nothing(till):
    sales.produce(till, 0, 600, topic=SOURCE)
    query = sales.start_query(
        session(till), till, name="restarted", max_records=100, trigger_interval="0 seconds"
    )
    check.eventually(
        "a batch is done", lambda: len(streams.progress(query)) > 0, timeout=60, interval=0.05
    )
    stack.kill("kafka")
    stack.ensure_running(till, "kafka")
    sales.produce(till, 600, 700, topic=SOURCE)
    finished(till)
    assert agree(till)["orders"].sum() == 2 * 700


@pytest.mark.drill
@pytest.mark.parametrize("kills", [2, 10])
def test_killed_at_random_it_counts_every_sale_once(till, kills):
    chance = random.Random(kills)
    sales.produce(till, topic=SOURCE)
    for _ in range(kills):
        done = (
            topics.offset_span(till, f"{SOURCE}.restarted")
            if f"{SOURCE}.restarted" in topics.names(till)
            else 0
        )
        sales.start_query(
            session(till), till, name="restarted", max_records=50, trigger_interval="0 seconds"
        )
        more = chance.randrange(1, 60)
        check.eventually(
            "the query writes",
            lambda end=done + more: topics.offset_span(till, f"{SOURCE}.restarted") >= end,
            timeout=60,
            interval=0.01,
        )
        stack.kill("spark")
        stack.ensure_running(till, "spark")
    finished(till)
    assert agree(till)["orders"].sum() == 2 * 1_800
