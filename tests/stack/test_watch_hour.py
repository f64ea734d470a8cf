"""An hour of `workbench watch` under 20 to 200 changes a second, with the ten faults of notebook 84 at random times.

Every alarm and every silence is compared with what was injected. WATCH_MINUTES sets another duration. The picture
is written beside the log of the test.
"""

import datetime as dt
import os
import random
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import matplotlib.pyplot as plt
import pandas as pd
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from workbench import connect, hudi, operate, stack, tracks
from workbench.base import paths
from workbench.base.wait import wait_until
from workbench.hudi import timeline
from workbench.source import postgres
from workbench.spark import session
from workbench.topic import topics
from workbench.tracks import operations

pytestmark = pytest.mark.drill
FLOW, NAMED_S, RECOVERED_S = "80_operations", 10, 60
MINUTES = float(os.environ.get("WATCH_MINUTES", "60"))
flow, connector = operations.flow, operations.CONNECTOR
# what a fault brings with it, beside its own kind
FOLLOWS = {
    # Connect publishes the changes since its last committed offset again, and for a moment of its start has no connector
    "connect_down": {
        "slot_inactive",
        "no_records",
        "connector_stopped",
        "connector_missing",
        "delivered_again",
    },
    "slot_missing": {"connector_stopped", "no_records"},
    "offsets_lost": {"connector_stopped", "slot_inactive", "no_records"},
    "registry_down": {"connector_failed", "no_records", "slot_stalled"},
}
# they follow from a pause of the ingest or of the connector, which most recoveries are
ALWAYS = {"stale", "unread_old", "schema_new", "not_observed"}
# the recovery removes and makes anew: topic, slot, connector and its offsets
CAPTURED_ANEW = {"slot_missing", "offsets_lost", "topic_truncated", "differs"}
WHILE_CAPTURED = {
    "topic_missing",
    "slot_missing",
    "slot_inactive",
    "connector_missing",
    "connector_stopped",
    "offsets_lost",
}
LOAD = {("stale", "amber"), ("unread_old", "amber")}  # a slow machine has them; they are true


class Drill:
    """The pipeline under load: an ingest that goes on after errors, and a watcher that looks every two seconds."""

    def __init__(self, world):
        self.world, self.gate, self.stop = world, threading.RLock(), threading.Event()
        self.watcher, self.seen, self.faults = operate.Watcher(world, FLOW), [], []
        self.errors = []

    @property
    def payments(self):
        return flow.table(self.world)

    def ingest(self):
        while not self.stop.wait(0.5):
            with self.gate:
                try:
                    # one batch: under this load it would go on without end
                    flow.ingest(session(self.world), self.world, stop=lambda: True)
                except Exception as e:  # noqa: BLE001 - each fault has its own
                    self.errors.append((time.monotonic(), str(e)))

    def write(self):
        """Change payments, at a rate that changes every ten seconds."""
        chance = random.Random(3)
        while not self.stop.is_set():
            rate, seed = chance.choice((20, 100, 200)), chance.randrange(10**6)
            operations.change_payments(self.world, 10 * rate, seed, per_second=rate, stop=self.stop)

    def watch(self):
        while not self.stop.wait(2):
            begun = time.monotonic()
            seen = {p.kind: p.level for each in self.watcher.observe() for p in each.problems}
            self.seen.append((begun, seen))

    def wait(self, kind, gone=False):
        def is_over():
            return (
                bool(self.seen) and self.seen[-1][0] > begun and (kind in self.seen[-1][1]) != gone
            )

        begun = time.monotonic()
        wait_until(is_over, f"{kind} to be {'gone' if gone else 'seen'}", timeout=180)
        return time.monotonic() - begun

    def capture_anew(self):
        hudi.drop(session(self.world), self.world, self.payments)
        tracks.recapture(self.world, operations.TRACK)

    @contextmanager
    def fault(self, kind):
        """Break in the block's first half, which ends with `named`; recover in the second half."""
        begun = time.monotonic()
        yield
        recovered = self.wait(kind, gone=True)
        with self.gate:
            (result,) = operate.reconcile(self.world, FLOW)
        self.faults[-1].update(
            begun=begun, end=time.monotonic(), recovered=recovered, equal=result.is_equal
        )

    def named(self, kind):
        self.faults.append({"kind": kind, "named": self.wait(kind)})
        print(self.faults[-1], flush=True)


def connect_down(drill):
    stack.kill("connect")
    drill.named("connect_down")
    stack.ensure_running(drill.world, "connect")
    connect.wait_running(drill.world, connector)


def ingest_interrupted(drill):
    with drill.gate, ThreadPoolExecutor(1) as pool:
        flow.wait_until_captured(drill.world)
        job = pool.submit(flow.ingest, session(drill.world), drill.world)
        wait_until(lambda: operate.pending(drill.payments), "a commit in flight", interval=0)
        stack.kill("spark")
        job.exception()
        drill.named("ingest_interrupted")
        stack.ensure_running(drill.world, "spark")


def slot_missing(drill):
    slot = flow.config(drill.world, connector)["slot.name"]
    with drill.gate:
        connect.backend(drill.world).stop(connector)
        flow.db.drop_slot(drill.world, slot, operations.DATABASE)
        drill.named("slot_missing")
        drill.capture_anew()


def offsets_lost(drill):
    cluster, path = connect.backend(drill.world), f"/connectors/{connector}"
    with drill.gate:
        cluster.stop(connector)
        wait_until(lambda: connect.offset(drill.world, connector), "an offset")
        count = len(drill.seen)
        wait_until(lambda: len(drill.seen) > count + 1, "an observation with the offset")
        cluster.call("DELETE", f"{path}/offsets")
        drill.named("offsets_lost")
        drill.capture_anew()


def topic_truncated(drill):
    topic = flow.topic(drill.world)
    with drill.gate:
        time.sleep(1)  # a hundred changes
        part = TopicPartition(topic, 0, topics.end_offsets(drill.world, topic)[0] - 1)
        with AdminClient(topics.settings(drill.world)) as admin:
            admin.delete_records([part])[part].result()
        drill.named("topic_truncated")
        drill.capture_anew()


def registry_down(drill):
    stack.stop("apicurio")
    drill.named("registry_down")
    stack.ensure_running(drill.world, "apicurio")
    connect.restart(drill.world, connector)  # a task that needed a schema meanwhile has failed
    connect.wait_running(drill.world, connector)


def disk_full(drill):
    free = shutil.disk_usage(paths.local_path(drill.world.lake.root)).free / 2**20
    limits = drill.world.watch.model_copy(update={"disk_free_mib": (free * 2, free * 1.5)})
    whole = drill.watcher
    drill.watcher = operate.Watcher(drill.world.model_copy(update={"watch": limits}), FLOW)
    drill.named("disk_full")
    drill.watcher = whole


def clock_back(drill):
    with drill.gate:
        last = timeline.completed_actions(drill.payments)[-1]
        later = dt.datetime.now(dt.timezone.utc) + dt.timedelta(hours=1)
        source = paths.local_path(last.uri)
        ahead = source.with_name(f"{later:%Y%m%d%H%M%S}000.{last.action}")
        shutil.copy(source, ahead)
        drill.named("clock_back")
        ahead.unlink()


def delivered_again(drill):
    topic = flow.topic(drill.world)
    messages = topics.read_all(drill.world, topic)[-500:]
    topics.produce(drill.world, topic, [(each.key(), each.value()) for each in messages])
    drill.named("delivered_again")


def differs(drill):
    def publish(actions):
        statement = f"ALTER PUBLICATION {flow.publication} SET (publish = '{actions}')"
        postgres.execute(drill.world, statement, database=operations.DATABASE)

    with drill.gate:
        publish("insert, update")
        postgres.execute(
            drill.world,
            "DELETE FROM payments WHERE id BETWEEN 11 AND 500",
            database=operations.DATABASE,
        )
        publish("insert, update, delete")
        operate.reconcile(drill.world, FLOW)
        drill.named("differs")
        drill.capture_anew()


FAULTS = (
    connect_down,
    ingest_interrupted,
    slot_missing,
    offsets_lost,
    topic_truncated,
    registry_down,
    disk_full,
    clock_back,
    delivered_again,
    differs,
)


def test_each_alarm_and_each_silence(world, tmp_path):
    stack.ensure_running(world, *operations.TRACK.services)
    operations.start(world, 0.1)
    drill, chance = Drill(world), random.Random(7)
    begin = time.monotonic()
    with ThreadPoolExecutor(3) as pool:
        threads = [pool.submit(work) for work in (drill.write, drill.ingest, drill.watch)]
        try:
            for number, fault in enumerate(chance.sample(FAULTS, len(FAULTS)), 1):
                share = MINUTES * 60 * (number - chance.random()) / len(FAULTS)
                time.sleep(max(15.0, begin + share - time.monotonic()))
                with drill.fault(fault.__name__):
                    fault(drill)
            time.sleep(max(15.0, begin + MINUTES * 60 - time.monotonic()))
        finally:
            drill.stop.set()
        for thread in threads:
            thread.result()
    faults = pd.DataFrame(drill.faults)
    picture = draw(drill, begin, tmp_path)
    print(faults.drop(columns=["begun", "end"]).round(1), picture, sep="\n")
    unexpected = [
        (round(at - begin), kind, level)
        for at, seen in drill.seen
        for kind, level in seen.items()
        if kind not in allowed(drill, at)
    ]
    slow = [each for each in unexpected if each[1:] in LOAD]
    print(f"{len(drill.seen)} observations; warnings of a slow machine: {slow}")
    assert slow == unexpected, sorted({*unexpected} - {*slow})
    assert faults["equal"].all() and (faults["named"] <= NAMED_S).all(), faults
    assert (faults["recovered"] <= RECOVERED_S).all(), faults


def allowed(drill, at):
    """Return the kinds that are right at a time: those of the faults that have begun and whose traces last."""
    kinds = set()
    for each in drill.faults:
        if each["begun"] <= at <= each["end"] + 30:
            kinds |= {each["kind"], *FOLLOWS.get(each["kind"], ()), *ALWAYS}
            kinds |= WHILE_CAPTURED if each["kind"] in CAPTURED_ANEW else set()
    return kinds


def draw(drill, begin, folder):
    """Draw the faults (bars) and what each observation named (dots, in the color of its level); return the path."""
    kinds = [each["kind"] for each in drill.faults]
    kinds += sorted({kind for _, seen in drill.seen for kind in seen} - {*kinds})
    figure, axes = plt.subplots(figsize=(11, 0.35 * len(kinds) + 1.2), layout="constrained")
    for each in drill.faults:
        lane, start = kinds.index(each["kind"]), (each["begun"] - begin) / 60
        axes.barh(lane, (each["end"] - begin) / 60 - start, left=start, color="lightgray")
    for at, seen in drill.seen:
        for kind, level in seen.items():
            color = {"amber": "C1", "red": "C3"}[level]
            axes.plot((at - begin) / 60, kinds.index(kind), ".", color=color, markersize=3)
    title = (
        "Faults until their recovery (bars), and what each observation named (amber and red dots)"
    )
    axes.set(xlabel="minute", title=title)
    axes.set_yticks(range(len(kinds)), kinds)
    axes.invert_yaxis()
    path = folder / "watch_hour.png"
    figure.savefig(path, dpi=110)
    return path
