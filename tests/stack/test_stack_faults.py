"""The stack while services are killed, and beside other instances."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import instance
import psutil
import psycopg
import pytest
from stack_help import ANSWERS, marked, rows_of_one, scratch
from workbench import connect, stack
from workbench.base import params, paths
from workbench.base.errors import StackError, WorkbenchError
from workbench.base.wait import wait_until
from workbench.source import mariadb, postgres
from workbench.spark import session
from workbench.stack import cds, process, services
from workbench.topic import topics

FIRST = []  # the name of the instance that `world` runs in


WATCHED = (
    f"import os, sys; sys.path.append({os.path.dirname(instance.__file__)!r}); import instance; "
    "instance.stop_with_process(os.getpid(), remove=True); "
)


UP = (
    "import sys; from workbench import stack; from workbench.base import params; "
    "stack.up(params.load('local'), sys.argv[1:] or None)"
)


@contextlib.contextmanager
def other_instance(name, base):
    """Run the block in an instance of its own, down and removed after it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WORKBENCH_INSTANCE", name)
        patch.setenv("WORKBENCH_PORT_BASE", str(base))
        stack.down()
        shutil.rmtree(paths.state_dir(), ignore_errors=True)
        instance.stop_with_process(os.getpid(), remove=True)
        try:
            yield params.load("local")
        finally:
            stack.down()
            left = marked()
            shutil.rmtree(paths.state_dir(), ignore_errors=True)
            assert left == [], "down left processes"


@pytest.fixture
def beside(world):
    """World `local` of a second instance, nothing of it running; the jars are there, as `world`
    fetched them."""
    FIRST.append(paths.instance_name())
    with other_instance("test-beside", world.stack.port_base + 40) as other:
        yield other


def leaders():
    """Pids of those that none of ours started."""
    ours = {p.pid: p.ppid() for p in marked()}
    return sorted(pid for pid, parent in ours.items() if parent not in ours)


ASKS = {  # what the next cell of a notebook may do first
    "postgres": lambda world: postgres.query(world, "SELECT 1"),
    "kafka": topics.names,
    "connect": connect.names,
}


# those that take longest are killed in other tests, too (test_faults, test_query)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.drill] if name in ("kafka", "spark") else [])
        for name in ANSWERS
    ],
)
def test_one_killed_is_started_again_by_need(world, name):
    killed, left = process.running_process(name), scratch(name)
    killed.kill()
    wait_until(lambda: process.running_process(name) is None, "it to die", timeout=10)
    assert {s.name: s.state for s in stack.status(world)}[name] in ("died", "port-conflict")
    if name in ASKS:  # a session asks for Spark by itself
        began = time.monotonic()
        with pytest.raises(WorkbenchError, match=f"(?s){name}.*workbench up"):
            ASKS[name](world)
        assert time.monotonic() - began < 20, "it is named in time"
    stack.ensure_running(world, name)
    assert not left & scratch(name)
    assert process.running_process(name).pid != killed.pid and ANSWERS[name](world)


def test_a_killed_postgres_answers_on_no_open_connection(world):
    """The tests' own `kill` waits for the backends: some answered after the postmaster was dead."""
    with contextlib.ExitStack() as closing:
        opened = [
            closing.enter_context(contextlib.closing(postgres.connect(world, database="postgres")))
            for _ in range(40)
        ]
        stack.kill("postgres")
        for c in opened:
            with pytest.raises(psycopg.OperationalError):
                c.execute("SELECT 1")
    stack.ensure_running(world, "postgres")


def test_a_busy_backend_of_a_killed_postgres_is_ended(world):
    """It notices nothing while it computes, and PostgreSQL does not start beside it."""

    def compute():
        with (
            contextlib.suppress(psycopg.OperationalError),
            postgres.connect(world, database="postgres") as c,
        ):
            c.execute(
                "SET application_name = 'busy'; SELECT count(*) FROM generate_series(1, 100000000000)"
            )

    worker = threading.Thread(target=compute, daemon=True)
    worker.start()
    with postgres.connect(world, database="postgres") as c:
        find = (
            "SELECT pid FROM pg_stat_activity WHERE application_name = 'busy' AND state = 'active'"
        )
        backend = wait_until(lambda: c.execute(find).fetchone(), "the query to run")[0]
    process.running_process("postgres").kill()
    wait_until(lambda: process.running_process("postgres") is None, "it to die", timeout=10)
    assert psutil.pid_exists(backend)
    stack.ensure_running(world, "postgres")
    with contextlib.suppress(
        psutil.NoSuchProcess
    ):  # ended, though nobody may have collected its status yet
        assert psutil.Process(backend).status() == psutil.STATUS_ZOMBIE
    assert rows_of_one(world) == 1
    worker.join(10)


@pytest.mark.drill  # test_query kills Spark, too
def test_the_java_of_spark_killed_takes_its_python_along(world):
    java = next(
        p for p in process.running_process("spark").children(recursive=True) if "java" in p.name()
    )
    java.kill()
    wait_until(lambda: process.running_process("spark") is None, "the server to notice", timeout=20)
    stack.ensure_running(world, "spark")
    assert ANSWERS["spark"](world)


def test_a_spark_that_does_not_answer_is_not_up(world):
    stack.ensure_running(world, "spark")
    spark = services.get_service("spark")
    leader = process.running_process("spark")
    frozen = [leader, *leader.children(recursive=True)]
    try:
        for each in frozen:
            each.suspend()  # the kernel still accepts connections to its port
        assert process.status(spark, world).state == "starting"
    finally:
        for each in frozen:
            each.resume()
    assert process.status(spark, world).state == "up"


def test_a_log_does_not_grow_beyond_its_size(world):
    """Stack traces of a batch that fails again and again; here of a query whose message is long."""
    spark, log = session(world), process.log_file("spark")
    older = log.with_suffix(".log.1")
    before = older.stat().st_mtime if older.exists() else 0

    def fails():
        with pytest.raises(Exception):  # noqa: B017,PT011 - too long a message is told as another error
            spark.sql(
                "SELECT raise_error(concat(repeat('x', 1000000), id)) FROM range(1)"
            ).collect()
        return older.exists() and older.stat().st_mtime > before

    for _ in range(2):  # beyond it twice
        wait_until(fails, "the log to be rolled", timeout=60, interval=0)
        before = older.stat().st_mtime
    assert older.stat().st_size + log.stat().st_size < 3 * services.LOG_SIZE
    assert process.log_tail("spark") and ANSWERS["spark"](world)
    assert sorted(p.name for p in log.parent.glob("spark.log*")) == ["spark.log", "spark.log.1"]
    into = {os.readlink(f"/proc/{process.running_process('spark').pid}/fd/{n}") for n in (1, 2)}
    assert into == {str(process.stdout_file("spark").resolve())}, (
        "Java's last words go into no file that was rolled away"
    )


def test_a_java_takes_its_classes_from_the_archive_of_its_first_stop(beside):
    names = ["apicurio", "connect", "kafka", "spark"]
    for marker in cds.FOLDER.glob("*.failed"):
        marker.unlink()  # another test has killed a service before it could write its archive
    for _ in "first", "second":
        stack.ensure_running(beside, *names)
        mapped = {name: mapped_files(name) for name in names}
        stack.down()
    for name, files in mapped.items():
        archives = cds.FOLDER.glob(f"{name}-*.jsa")
        assert files & {str(path.resolve()) for path in archives}, (
            f"{name} starts without its archive"
        )


def mapped_files(name):
    """Return the files that the processes of a service have mapped into their memory."""
    leader = process.running_process(name)
    files = set()
    for each in (leader, *leader.children(recursive=True)):
        with contextlib.suppress(psutil.Error):  # it has just ended
            files |= {mapping.path for mapping in each.memory_maps()}
    return files


def test_two_instances_side_by_side_and_down_leaves_the_other_alone(world, beside):
    stack.ensure_running(beside, "postgres", "mariadb")
    with postgres.connect(beside, database="postgres") as c:
        assert (
            c.execute("SHOW port").fetchone()[0]
            == str(beside.postgres.port)
            != str(world.postgres.port)
        )
    assert (
        mariadb.query(beside, "SELECT @@port").iloc[0, 0] == beside.mysql.port != world.mysql.port
    )
    assert stack.running() == ["postgres", "mariadb"] and len(marked()) > 2
    assert sorted(stack.down()) == ["mariadb", "postgres"] and marked() == []
    with (
        pytest.MonkeyPatch.context() as patch
    ):  # back to the first, whose passwords lie in its own folder
        patch.setenv("WORKBENCH_INSTANCE", FIRST[-1])
        assert rows_of_one(world) == 1


@pytest.mark.drill  # minutes: no archive of classes fits another path
def test_neither_a_space_in_the_path_nor_what_a_terminal_brings_along_is_a_hindrance(
    beside, tmp_path
):
    """A checkout with a space in its path; a proxy (here a dead one) in every spelling; libpq's
    variables."""
    if paths.SAFE_ROOT != paths.ROOT:
        pytest.skip(
            "this checkout has such a path itself, where all tests go by; its interpreter is not below another"
        )
    root = tmp_path / "x y"
    (root / "var").mkdir(parents=True)
    for name in ("params", "var/lib"):
        (root / name).symlink_to(paths.ROOT / name)
    proxies = {
        name: "http://127.0.0.1:9"
        for p in ("http", "https", "all", "grpc")
        for name in (f"{p}_proxy", f"{p}_proxy".upper())
    }
    others = {
        "PGSSLMODE": "require",
        "PGSERVICE": "cloud",
        "PGOPTIONS": "-c no_such=1",
        "PGHOSTADDR": "192.0.2.1",
    }
    plain = {k: v for k, v in os.environ.items() if k.lower() != "no_proxy"}
    work = (
        WATCHED
        + UP
        + """
from workbench import connect
from workbench.base import paths
from workbench.source import postgres
from workbench.spark import session
world = params.load("local")
assert connect.names(world) == [] and postgres.query(world, "SELECT 1 AS n", database="postgres").n[0] == 1
spark = session(world)
assert spark.range(3).mapInPandas(lambda frames: frames, "id long").count() == 3
spark.sql("CREATE TABLE kept (id bigint, name string) USING hudi TBLPROPERTIES (primaryKey = 'id')")
spark.sql("INSERT INTO kept VALUES (1, 'one')")
assert spark.table("kept").count() == 1 and (paths.state_dir() / "lake/hudi/kept").is_dir()
stack.down()
"""
    )
    subprocess.run(
        [sys.executable, "-c", work, *ANSWERS, *services.ON_DEMAND_SERVICES],
        check=True,
        timeout=300,  # other paths have other archives of classes, which the stop writes
        env={**plain, **proxies, **others, "WORKBENCH_ROOT": str(root)},
    )


def test_a_killed_up_can_be_run_again(beside):
    # at moments spread over the first start: before, during and after initdb, with and without pid
    # files
    names = ["postgres", "kafka", "mariadb"]
    for moment in (0.5, 0.9, 1.3, 2.5):
        first = subprocess.Popen([sys.executable, "-c", UP, *names], start_new_session=True)
        with contextlib.suppress(subprocess.TimeoutExpired):
            first.wait(moment)
        with contextlib.suppress(ProcessLookupError):  # it was done sooner
            os.killpg(first.pid, signal.SIGKILL)
        first.wait()
    found = stack.up(beside, names)
    assert [s.state for s in found] == ["up"] * 3 and rows_of_one(beside) == 1
    assert mariadb.query(beside, "SELECT 1").iloc[0, 0] == 1
    assert leaders() == sorted(s.pid for s in found), "one of each, and no stray"


def test_two_up_at_once_start_each_service_once(beside):
    both = [subprocess.Popen([sys.executable, "-c", UP, "postgres"]) for _ in range(2)]
    assert [p.wait(120) for p in both] == [0, 0]
    assert leaders() == [process.running_process("postgres").pid]


def test_a_port_held_by_a_stranger_stops_that_service_only(beside):
    import socket

    with socket.socket() as taken:
        # as every server does: connections of the Kafka that stood here a moment ago may still be
        # in TIME_WAIT
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", params.split_host_port(beside.kafka.bootstrap)[1]))
        taken.listen()
        with pytest.raises(
            StackError, match=f"kafka cannot start: port {beside.stack.port_base + 1} is taken"
        ):
            stack.up(beside, ["postgres", "kafka"])
    assert stack.running() == ["postgres"]
    stack.ensure_running(beside, "kafka")
