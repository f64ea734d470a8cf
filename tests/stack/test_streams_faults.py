"""Streaming queries whose Spark, kernel or broker is killed: no sale is lost or counted twice."""

import os
import random
import re
import signal
import threading
import time

import pytest
from pyspark.sql.connect.client import ChannelBuilder
from streams_help import SOURCE, agree, finished
from workbench import stack
from workbench.base import files
from workbench.base.errors import LakeError, StackError
from workbench.base.wait import wait_until
from workbench.checks import check
from workbench.query.streams import delete_checkpoint
from workbench.spark import session
from workbench.stack import process
from workbench.topic import registry, topics
from workbench.tracks import ingest, sales, streams

ENDS = {
    "killed": lambda: stack.kill("spark"),
    "its process alone": lambda: process.running_process("spark").kill(),
    "told to stop": lambda: os.killpg(process.running_process("spark").pid, signal.SIGTERM),
}


@pytest.mark.parametrize(
    "end", ["killed", *(pytest.param(end, marks=pytest.mark.drill) for end in [*ENDS][1:])]
)
def test_spark_that_ends_under_a_query_is_named_in_time(till, end):
    """By the job that waits for the query, and by each call after it."""
    spark = session(till)
    sales.produce(till, 0, 600, topic=sales.SALES_TOPIC)
    ended = []

    def stop():
        ended.append(time.monotonic())
        ENDS[end]()

    threading.Timer(8, stop).start()
    for ask in (
        lambda: ingest.ingest(till, "60_streaming_sales", continuous=True),
        lambda: sales.latest(spark, till),
        lambda: sales.start_query(spark, till, name="restarted"),
    ):
        with pytest.raises(
            StackError, match="(?s)the service spark (died|does not listen).*workbench up"
        ) as raised:
            while (
                not ended or time.monotonic() - ended[0] < 60
            ):  # a server that ends answers for a moment
                ask()
        assert not re.search("java|py4j|grpc|RPC", str(raised.value))
        assert time.monotonic() - ended[0] < 40


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
    delete_checkpoint(there, sales.checkpoint(till, "late"))
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
