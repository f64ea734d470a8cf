"""`workbench watch`: each fault changes the signal that names it, and the recovery removes it."""

import datetime as dt
import shutil

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from lake_help import kill_service_during
from typer.testing import CliRunner
from workbench import connect, operate, stack, tracks
from workbench.base import files, paths
from workbench.base.wait import wait_until
from workbench.cli import main
from workbench.connect import rest
from workbench.hudi import timeline
from workbench.hudi.tables import table_state_dir
from workbench.source import postgres
from workbench.spark import session
from workbench.topic import topics
from workbench.tracks import operations

FLOW = "80_operations"


@pytest.fixture(scope="module")
def pipeline(world, spark):
    stack.ensure_running(world, *operations.TRACK.services)
    yield operations.start(world, 0.1)
    tracks.reset(world, operations.TRACK)


@pytest.fixture
def watched(world):
    """The world, with limits that a busy machine does not exceed."""
    patient = {"freshness_s": (600, 900), "unread_s": (600, 900), "disk_free_mib": (2, 1)}
    return world.model_copy(update={"watch": world.watch.model_copy(update=patient)})


@pytest.fixture
def watcher(watched, pipeline):
    """A watcher that has seen the pipeline without a problem."""
    watcher = operate.Watcher(watched, FLOW)
    wait_until(lambda: not problems(watcher) & ALARMS, "a pipeline without alarms", timeout=60)
    return watcher


ALARMS = {
    "connector",
    "slot",
    "topic",
    "schema",
    "ingest",
    "clock",
    "source",
    "dead letters",
    "disk",
}


def problems(watcher):
    """Return the signals that have a problem."""
    return {each.signal for observed in watcher.observe() for each in observed.problems}


def wait_for(watcher, kind, *, gone=False):
    watcher.wait_for(kind, gone=gone, timeout=90 if gone else 30)


def test_a_healthy_flow_is_green_and_its_figures_are_those_of_the_flow(world, spark, watcher):
    operations.change_payments(world, 30)
    operations.flow.wait_until_captured(world)
    assert sum(watcher.observe()[0].unread["payments"].values()) > 0
    operations.flow.sync(spark, world)
    (seen,) = watcher.observe()
    assert (seen.level, seen.problems) == ("green", ())
    assert seen.unread == {"payments": {0: 0}}
    assert seen.states == {operations.CONNECTOR: "RUNNING"}
    assert 0 < seen.freshness["p50"] <= seen.freshness["p95"]
    assert seen.freshness["to_topic"] > 0 and seen.freshness["to_lake"] > 0
    assert seen.commits_per_hour >= 6 * 2 and seen.files >= 2  # one in each bucket


def test_a_comparison_that_cannot_be_read(world, watcher, pipeline):
    operate.reconcile(world, FLOW)
    path = f"{table_state_dir(world, pipeline)}/reconciliation.json"
    files.write_text(path, "{")
    damaged = watcher.wait_for("not_observed", timeout=10)
    assert path in damaged.text and "the next comparison" in damaged.step
    operate.reconcile(world, FLOW)
    assert not problems(watcher)


@pytest.mark.drill  # a fault of notebook 84
def test_a_connect_that_was_killed(world, watcher):
    stack.kill("connect")
    wait_for(watcher, "connect_down")
    stack.ensure_running(world, "connect")
    wait_for(watcher, "connect_down", gone=True)


@pytest.mark.drill  # a fault of notebook 84
def test_a_slot_that_was_dropped(world, watcher):
    operations.change_payments(world, 20, seed=2)
    operations.flow.wait_until_captured(world)
    watcher.observe()  # messages that wait, and whose topic the repair removes
    rest.KafkaConnect(world).stop(operations.CONNECTOR)
    slot = operations.flow.config(world, operations.CONNECTOR)["slot.name"]
    postgres.drop_slot(world, slot, operations.DATABASE)
    wait_for(watcher, "slot_missing")
    operations.change_payments(world, 20, seed=3)  # they are lost
    rows = operations.flow.count(world)
    (result,) = operate.recapture(world, FLOW)
    assert result.is_equal and result.rows == (rows, rows), result
    wait_for(watcher, "slot_missing", gone=True)
    (payments,) = [lake for _, lake in watcher._readers[FLOW].tables]
    assert not payments.waiting, "a message of the topic that was removed is waited for"


def test_a_table_that_is_not_published(world, watched, watcher):
    statement = f"ALTER PUBLICATION {operations.flow.publication} DROP TABLE payments"
    postgres.execute(world, statement, database=operations.DATABASE)
    operations.change_payments(world, 20, seed=4)
    wait_for(watcher, "not_published")
    done = CliRunner().invoke(main.app, ["recapture", FLOW, "--yes"])
    assert done.exit_code == 0 and "no difference" in done.output, done
    wait_for(operate.Watcher(watched, FLOW), "not_published", gone=True)


@pytest.mark.drill  # a fault of notebook 84
def test_offsets_that_were_lost(world, spark, watcher):
    cluster = rest.KafkaConnect(world)
    cluster.stop(operations.CONNECTOR)  # it commits its offsets
    wait_until(lambda: connect.offset(world, operations.CONNECTOR), "an offset")
    watcher.observe()
    path = f"/connectors/{operations.CONNECTOR}"
    wait_until(lambda: cluster.call("DELETE", f"{path}/offsets"), "the offsets to be deleted")
    wait_for(watcher, "offsets_lost")
    cluster.call("PUT", f"{path}/resume")
    wait_for(watcher, "offsets_lost", gone=True)
    operations.flow.sync(spark, world)
    operations.flow.compare(spark, world)


@pytest.mark.drill  # a fault of notebook 84
def test_messages_that_were_removed_before_they_were_ingested(world, watcher):
    operations.change_payments(world, 20)
    topic = operations.flow.topic(world)
    operations.flow.wait_until_captured(world)
    (end,) = topics.end_offsets(world, topic).values()
    with AdminClient(topics.settings(world)) as admin:
        admin.delete_records([TopicPartition(topic, 0, end - 1)])[
            TopicPartition(topic, 0, end - 1)
        ].result()
    wait_for(watcher, "topic_truncated")
    operations.start(world, 0.1)


def test_a_topic_that_was_made_anew(world, watcher):
    rest.KafkaConnect(world).stop(operations.CONNECTOR)
    topic = operations.flow.topic(world)
    topics.delete(world, topic)
    topics.create(world, topic)
    wait_for(watcher, "topic_ahead")
    operations.start(world, 0.1)


@pytest.mark.drill  # a fault of notebook 84
def test_a_registry_that_is_down(world, watcher):
    stack.stop("apicurio")
    wait_for(watcher, "registry_down")
    stack.ensure_running(world, "apicurio")
    wait_for(watcher, "registry_down", gone=True)


@pytest.mark.drill  # a fault of notebook 84
def test_everything_that_is_delivered_twice(world, spark, watcher):
    operations.change_payments(world, 20)
    operations.flow.sync(spark, world)
    watcher.observe()
    messages = topics.read_all(world, operations.flow.topic(world))
    again = [(m.key(), m.value()) for m in messages]
    topics.produce(world, operations.flow.topic(world), again)
    wait_for(watcher, "delivered_again")
    operations.flow.sync(spark, world)
    operations.flow.compare(spark, world)


def test_a_clock_that_was_set_back(watcher, pipeline):
    """The last commit is of an hour later, as if the clock had been ahead."""
    last = timeline.completed_actions(pipeline)[-1]
    later = timeline.parse_instant(last.instant) + dt.timedelta(hours=1)
    source = paths.local_path(last.uri)
    target = source.with_name(f"{later:%Y%m%d%H%M%S}000.{last.action}")
    shutil.copy(source, target)
    wait_for(watcher, "clock_back")
    target.unlink()
    wait_for(watcher, "clock_back", gone=True)


@pytest.mark.drill  # a fault of notebook 84
def test_an_ingest_that_was_killed_in_a_commit(world, spark, watcher, pipeline):
    operations.change_payments(world, 200)
    operations.flow.wait_until_captured(world)
    raised = kill_service_during(
        lambda: operations.flow.ingest(spark, world),
        lambda: operate.pending(pipeline),
        "a commit is in flight",
    )
    assert raised, "the ingest had ended before Spark was killed"
    wait_for(watcher, "ingest_interrupted")
    stack.ensure_running(world, "spark")
    operations.flow.sync(session(world), world)
    wait_for(watcher, "ingest_interrupted", gone=True)
    operations.flow.compare(session(world), world)
