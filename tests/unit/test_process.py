"""The state machine of one service, with a tiny web server as the service."""
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request

import psutil
import pytest
from workbench import params, process
from workbench.errors import StackError
from workbench.process import Service
from workbench.wait import wait_until

WORLD = object()  # a service of these tests asks nothing of its world
SERVER = """
import http.server, signal, subprocess, sys
port, how = int(sys.argv[1]), sys.argv[2]
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job has it ignored
if "deaf" in how:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if "parent" in how:
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
if "dies" in how:
    print("first line"); print("the disk is full"); sys.exit(3)
if "mute" in how:
    signal.pause()
http.server.HTTPServer(("127.0.0.1", port), http.server.SimpleHTTPRequestHandler).serve_forever()
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Make a service `web` that behaves as named; everything it started is gone after the test."""
    monkeypatch.setattr(params, "VAR", tmp_path)
    (params.state_dir() / "data").mkdir(parents=True)
    made = []

    def service(how="", timeout=20.0):
        port = free_port()

        def ready(world):
            return urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=2).status == 200

        made.append(Service("web", lambda w: port, lambda w: [sys.executable, "-c", SERVER, str(port), how or "plain"],
                            ready, timeout=timeout))
        return made[-1]

    yield service
    for s in made:
        process.stop(s, patience=1)


def note(**changes):
    file = process._pid_file("web")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({**(json.loads(file.read_text()) if file.exists() else {}), **changes}))


def gone(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_starts_once_then_is_reused_then_stops(make):
    web = make()
    assert process.status(web, WORLD).state == "stopped"
    assert process.start(web, WORLD) == "started"
    seen = process.status(web, WORLD)
    assert seen.state == "up" and seen.pid == process.own("web").pid and seen.memory_mb > 0 and seen.seconds < 60
    assert process.start(web, WORLD) == "reused" and process.own("web").pid == seen.pid
    assert process.stop(web) and gone(seen.pid)
    assert process.status(web, WORLD).state == "stopped" and not process.stop(web)


def test_a_stranger_on_the_port_is_named_and_left_alone(make):
    web = make()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", web.port(WORLD)))
        taken.listen()
        with pytest.raises(StackError, match=f"web cannot start: port {web.port(WORLD)} is taken") as error:
            process.start(web, WORLD)
        assert error.value.where.startswith(f"pid {os.getpid()}: ") and "pytest" in error.value.where
        assert "WORKBENCH_PORT_BASE" in error.value.next_step
        seen = process.status(web, WORLD)
        assert seen.state == "stranger" and f"pid {os.getpid()}" in seen.detail
        assert not process.stop(web)


def test_a_service_that_dies_shows_its_last_lines_at_once(make):
    web = make("dies", timeout=60)
    with pytest.raises(StackError, match="its process ended") as error:
        process.start(web, WORLD)
    assert "| the disk is full" in str(error.value) and str(process.log_file("web")) in error.value.next_step
    assert process.status(web, WORLD).state == "died"


def test_a_restart_keeps_the_log_of_the_one_that_died(make):
    for _ in range(2):
        with pytest.raises(StackError):
            process.start(make("dies"), WORLD)
    assert "disk is full" in process.log_file("web").with_suffix(".log.1").read_text()


def test_one_that_never_answers_times_out_and_is_starting(make):
    web = make("mute", timeout=0.5)
    with pytest.raises(StackError, match="waited 0.5 s for web to answer on port") as error:
        process.start(web, WORLD)
    assert "refused" in error.value.where
    assert process.status(web, WORLD).state == "starting"


def test_one_that_ignores_term_is_killed_with_its_children(make):
    web = make("deaf parent")
    process.start(web, WORLD)
    family = [process.own("web").pid, *(p.pid for p in process.own("web").children())]
    assert len(family) == 2 and process.stop(web, patience=0.3)
    assert all(gone(pid) for pid in family)


def test_stop_asks_with_the_signal_of_the_service(make):
    web = Service(**{**vars(make("deaf")), "stop_signal": signal.SIGINT})
    process.start(web, WORLD)
    process.stop(web, patience=20)
    assert "KeyboardInterrupt" in process.tail("web", 50)


@pytest.mark.parametrize("end", [process.stop, lambda web: process.start(web, WORLD)], ids=["stop", "start"])
def test_what_a_killed_leader_left_is_swept(make, end):
    web = make("parent")
    process.start(web, WORLD)
    leader = process.own("web")
    child = leader.children()[0]
    leader.kill()
    wait_until(lambda: process.own("web") is None, "the leader to die", timeout=5)
    assert child.is_running() and process.status(web, WORLD).state == "died"
    end(web)
    assert gone(child.pid)


def test_one_whose_starter_was_killed_before_it_noted_the_pid_is_found(make):
    web = make()
    process.start(web, WORLD)
    pid = process.own("web").pid
    process._pid_file("web").unlink()
    assert process.start(web, WORLD) == "started" and gone(pid)
    process._pid_file("web").unlink()
    assert process.stop(web) and process.holder(web.port(WORLD)) is None


def test_a_pid_file_whose_number_somebody_else_has_now_is_not_ours(make):
    stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    try:
        for stale in ({"pid": stranger.pid, "born": 1.0}, {"pid": stranger.pid}):
            process._pid_file("web").unlink(missing_ok=True)
            note(**stale)
            web = make()
            assert process.own("web") is None
            assert process.start(web, WORLD) == "started"
            note(**stale)
            process.stop(web)
            assert stranger.poll() is None, "a stranger was signalled"
    finally:
        stranger.kill()
        stranger.wait()


def test_a_changed_clock_does_not_make_our_own_a_stranger(make):
    web = make()
    process.start(web, WORLD)
    note(started=0.0)
    assert process.own("web") is not None and process.start(web, WORLD) == "reused"


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"pid": "x", "born": 1}', '{"pid": 1, "born": null}'])
def test_a_damaged_pid_file_is_no_process(make, text):
    web = make()
    note()
    process._pid_file("web").write_text(text)
    assert process.own("web") is None and process.start(web, WORLD) == "started"


def test_a_service_gets_no_secret_of_ours_and_its_mark(make, monkeypatch):
    monkeypatch.setenv("WORKBENCH_SECRET_POSTGRES_ADMIN", "canary")
    for name in ("JAVA_TOOL_OPTIONS", "SPARK_REMOTE", "PGDATA"):
        monkeypatch.setenv(name, "canary")
    web = make()
    process.start(web, WORLD)
    environment = process.own("web").environ()
    assert "canary" not in str(environment) and environment[process.MARK] == f"{params.state_dir()}:web"


def test_nobody_holds_a_free_port():
    assert process.holder(free_port()) is None
