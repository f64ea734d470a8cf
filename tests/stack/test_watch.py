"""`workbench watch`: each fault changes the signal that names it, and the recovery removes it."""

import datetime as dt
import shutil

import pytest
from typer.testing import CliRunner
from workbench import operate, stack, tracks
from workbench.base import files, paths
from workbench.base.wait import wait_until
from workbench.cli import main
from workbench.connect import rest
from workbench.hudi import timeline
from workbench.hudi.tables import table_state_dir
from workbench.source import postgres
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
    assert watcher.observe()[0].unread["payments"] > 0
    operations.flow.sync(spark, world)
    (seen,) = watcher.observe()
    assert (seen.level, seen.problems) == ("green", [])
    assert seen.unread == {"payments": 0}
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


def test_a_table_that_is_not_published(world, watched, watcher):
    statement = f"ALTER PUBLICATION {operations.flow.publication} DROP TABLE payments"
    postgres.execute(world, statement, database=operations.DATABASE)
    operations.change_payments(world, 20, seed=4)
    wait_for(watcher, "not_published")
    done = CliRunner().invoke(main.app, ["recapture", FLOW, "--yes"])
    assert done.exit_code == 0 and "no difference" in done.output, done
    wait_for(operate.Watcher(watched, FLOW), "not_published", gone=True)


def test_a_topic_that_was_made_anew(world, watcher):
    rest.KafkaConnect(world).stop(operations.CONNECTOR)
    topic = operations.flow.topic(world)
    topics.delete(world, topic)
    topics.create(world, topic)
    wait_for(watcher, "topic_ahead")
    operations.start(world, 0.1)


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
