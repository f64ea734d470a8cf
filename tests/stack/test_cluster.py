"""World `cluster`: a Spark standalone master and two workers, and the same sessions on them."""

import contextlib
import json
import os
import sys
from pathlib import Path

import instance
import psutil
import pytest
import requests
from workbench import stack
from workbench.base import paths, tls
from workbench.base.wait import wait_until
from workbench.run import runner
from workbench.spark import session
from workbench.stack import process

pytestmark = pytest.mark.drill  # workers of their own, which one machine does not need

SPARK = ["spark_master", "spark_worker_1", "spark_worker_2", "spark"]


@pytest.fixture(scope="module")
def cluster():
    """The Spark part of world `cluster` in an instance of its own."""
    with instance.world_of_its_own("cluster", 80, SPARK) as world:
        yield world


@pytest.fixture(scope="module")
def spark(cluster):
    opened = session(cluster)
    yield opened
    opened.stop()


def masters_page(world):
    url = f"https://127.0.0.1:{world.stack.port_base + 13}/json/"
    return requests.get(url, timeout=5, verify=tls.verify(url)).json()


def executors():
    """Pids of the executors' Javas below our two workers."""
    found = set()
    for name in ("spark_worker_1", "spark_worker_2"):
        for p in process.running_process(name).children(recursive=True):
            with contextlib.suppress(psutil.Error):  # it has just ended
                if "CoarseGrainedExecutorBackend" in " ".join(p.cmdline()):
                    found.add(p.pid)
    return found


def test_two_workers_and_one_application(cluster, spark):
    wait_until(
        lambda: len(executors()) == 2, "both executors", timeout=60
    )  # they come after the session
    page = masters_page(cluster)
    assert page["status"] == "ALIVE" and page["aliveworkers"] == 2 and page["cores"] == 2
    assert [a["name"] for a in page["activeapps"]] == ["workbench"] and len(executors()) == 2
    assert {s.name for s in stack.status(cluster) if s.state == "up"} == set(SPARK)


def test_python_workers_run_on_the_executors(cluster, spark):
    def ancestors(frames):
        import sys
        import threading

        import psutil

        threading.Event().wait(2)  # long enough that one of the executors does not do both
        for frame in frames:
            line = [p.pid for p in psutil.Process().parents()]
            yield frame.assign(
                pid=os.getpid(), line=" ".join(map(str, line)), python=sys.executable
            )

    wait_until(
        lambda: masters_page(cluster)["coresused"] == 2 and len(executors()) == 2,
        "both executors",
        timeout=60,
    )
    seen = (
        spark.range(0, 2, 1, 2)
        .mapInPandas(ancestors, "id long, pid long, line string, python string")
        .toPandas()
    )
    driver = {p.pid for p in process.running_process("spark").children(recursive=True)}
    ran_in = {int(pid) for line in seen["line"] for pid in line.split()} & executors()
    assert len(ran_in) == 2, "one partition on each worker"
    assert not set(seen["pid"]) & driver
    assert set(seen["python"]) == {str(paths.service_path(Path(sys.executable)))}


@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_hudi_writes_and_reads_on_the_executors(cluster, spark, kind):
    """With deletes: executors read them from log blocks, which fails where Hudi and Avro have two
    class loaders."""
    address = f"{cluster.lake.tables}/on_cluster_{kind.lower()}"
    options = {
        "hoodie.table.name": "on_cluster",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.precombine.field": "v",
        "hoodie.datasource.write.partitionpath.field": "p",
        "hoodie.datasource.write.table.type": kind,
        "hoodie.metadata.enable": "false",
        "hoodie.write.table.version": "6",
        "hoodie.write.auto.upgrade": "false",
    }

    def write(frame, operation):
        frame.write.format("hudi").options(**options).option(
            "hoodie.datasource.write.operation", operation
        ).mode("append").save(address)

    write(spark.range(100).selectExpr("id", "id % 2 AS p", "id * 2 AS v"), "bulk_insert")
    write(spark.range(10).selectExpr("id", "id % 2 AS p", "1000 + id AS v"), "upsert")
    write(spark.range(10, 15).selectExpr("id", "id % 2 AS p", "1000 + id AS v"), "delete")
    rows = spark.read.format("hudi").load(address).toPandas().set_index("id")
    assert (
        len(rows) == 95
        and rows.loc[3, "v"] == 1003
        and rows.loc[20, "v"] == 40
        and 12 not in rows.index
    )
    # a driver of a cluster runs no task itself: who had the cores did the work
    assert masters_page(cluster)["coresused"] == 2
    assert list(paths.local_path(address).rglob("*.parquet"))


def test_a_killed_worker_comes_back(cluster, spark):
    process.running_process("spark_worker_1").kill()
    stack.ensure_running(cluster, "spark_worker_1")
    assert masters_page(cluster)["aliveworkers"] == 2
    assert spark.range(1000).selectExpr("sum(id)").first()[0] == 499500


def test_everything_listens_on_loopback(cluster, spark):
    seen = set()
    for name in SPARK:
        leader = process.running_process(name)
        for p in [leader, *leader.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                seen |= {
                    c.laddr.ip for c in p.net_connections("inet") if c.status == psutil.CONN_LISTEN
                }
    assert seen and seen <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}


def test_down_leaves_nothing(cluster, spark):
    spark.stop()
    everything = {
        p.pid
        for n in SPARK
        for p in [process.running_process(n), *process.running_process(n).children(recursive=True)]
    }
    assert len(everything) >= 7
    assert set(stack.down()) == set(SPARK)
    alive = [
        pid
        for pid in everything
        if psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie"
    ]
    assert alive == [] and stack.running() == []


@pytest.mark.parametrize("track", ["10_outbox", "50_time_travel"])
def test_a_walkthrough_on_the_cluster(cluster, tmp_path, monkeypatch, track):
    """Last, on the instance that the test before took down: the notebooks start what they need,
    workers included."""
    monkeypatch.setenv("WORKBENCH_RUNS", str(tmp_path / "runs"))
    result = runner.run([track], "cluster", progress=False)
    assert result.status == "passed", [
        (n["path"], n["error"]) for n in result.notebooks if n["status"] != "passed"
    ]
    record = json.loads((result.folder / "run.json").read_text(encoding="utf-8"))
    checks = [c for n in record["notebooks"] for c in n["checks"]]
    assert record["world"] == "cluster" and len(checks) > 50 and all(c["ok"] for c in checks)
    page = masters_page(cluster)
    assert page["status"] == "ALIVE" and page["aliveworkers"] == 2
    assert [a["name"] for a in page["activeapps"]] == ["workbench"] and len(executors()) == 2
