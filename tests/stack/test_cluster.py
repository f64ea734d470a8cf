"""World `cluster`: Spark with two executors in processes of their own, and the same sessions on them."""

import contextlib
import json
import sys
from pathlib import Path

import instance
import psutil
import pytest
import web_page
from workbench import stack
from workbench.base import paths
from workbench.base.wait import wait_until
from workbench.run import runner
from workbench.spark import session
from workbench.stack import process

pytestmark = pytest.mark.drill  # executors of their own, which one machine does not need


@pytest.fixture(scope="module")
def cluster():
    """The Spark part of world `cluster` in an instance of its own."""
    with instance.world_of_its_own("cluster", 80, ["spark"]) as world:
        yield world


@pytest.fixture(scope="module")
def spark(cluster):
    opened = session(cluster)
    yield opened
    opened.stop()


def children():
    """The processes of Spark, without their leader."""
    return process.running_process("spark").children(recursive=True)


def executors():
    """Pids of the executors' Javas."""
    found = set()
    for p in children():
        with contextlib.suppress(psutil.Error):  # it has just ended
            if "CoarseGrainedExecutorBackend" in " ".join(p.cmdline()):
                found.add(p.pid)
    return found


def wait_for_executors():
    """Wait for both executors: they come after the session."""
    wait_until(lambda: len(executors()) == 2, "both executors", timeout=60)


def parts_of_a_query(spark):
    """Run a query of two partitions with Python code, and return a row for each with what it ran in."""

    def ancestors(frames):
        import sys
        import threading

        import psutil

        threading.Event().wait(2)  # long enough that one of the executors does not do both
        for frame in frames:
            line = [p.pid for p in psutil.Process().parents()]
            yield frame.assign(line=" ".join(map(str, line)), python=sys.executable)

    plan = spark.range(0, 2, 1, 2).mapInPandas(ancestors, "id long, line string, python string")
    return plan.toPandas()


def test_python_workers_run_on_two_executors(cluster, spark):
    wait_for_executors()

    def ran_on_two():
        seen = parts_of_a_query(spark)
        pids = {int(pid) for line in seen["line"] for pid in line.split()}
        return [seen] if len(pids & executors()) == 2 else None

    # an executor that has just started may have no task of the first query
    (seen,) = wait_until(ran_on_two, "a query with a partition on each executor", timeout=60)
    assert set(seen["python"]) == {str(paths.service_path(Path(sys.executable)))}
    assert {s.name for s in stack.status(cluster) if s.state == "up"} == {"spark"}
    written = list((paths.state_dir() / "data" / "spark_home" / "work").glob("*/*/stderr"))
    assert len(written) == 2, "the logs of the executors are in the instance"


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
    assert list(paths.local_path(address).rglob("*.parquet"))


def test_a_killed_executor_comes_back(cluster, spark):
    wait_for_executors()
    killed = executors().pop()
    psutil.Process(killed).kill()
    assert spark.range(1000).selectExpr("sum(id)").first()[0] == 499500
    wait_until(lambda: len(executors() - {killed}) == 2, "another executor", timeout=60)


def test_everything_listens_on_loopback_and_no_page_answers(cluster, spark):
    """Neither a page of another name nor this machine gets anything from the pages of Spark."""
    wait_for_executors()
    processes = [process.running_process("spark"), *children()]
    seen = set()
    for p in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            seen |= {
                c.laddr.ip for c in p.net_connections("inet") if c.status == psutil.CONN_LISTEN
            }
    assert seen and seen <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
    spoken, faults = web_page.check_listeners(
        processes, pages=[*web_page.PAGES, {"Host": "127.0.0.1"}]
    )
    pages = [port for port, protocol in spoken.items() if protocol == "HTTP"]
    assert len(pages) == 3, "of the master and of each worker"
    assert faults == {}


def test_down_leaves_nothing(cluster, spark):
    spark.stop()
    everything = [process.running_process("spark"), *children()]
    assert len(everything) >= 4
    assert set(stack.down()) == {"spark"}
    alive = [p for p in everything if p.is_running() and p.status() != "zombie"]
    assert alive == [] and stack.running() == []


@pytest.mark.parametrize("track", ["10_outbox", "50_time_travel"])
def test_a_walkthrough_on_the_cluster(cluster, tmp_path, monkeypatch, track):
    """Last, on the instance that the test before took down: the notebooks start what they need."""
    monkeypatch.setenv("WORKBENCH_RUNS", str(tmp_path / "runs"))
    result = runner.run([track], "cluster", progress=False)
    assert result.status == "passed", [
        (n.path, n.error) for n in result.notebooks if n.status != "passed"
    ]
    record = json.loads((result.folder / "run.json").read_text(encoding="utf-8"))
    checks = [c for n in record["notebooks"] for c in n["checks"]]
    assert record["world"] == "cluster" and len(checks) > 50 and all(c["ok"] for c in checks)
    assert len(executors()) == 2
