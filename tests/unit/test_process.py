"""The life cycle of one service, with a small web server as the service."""

import errno
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import instance
import on_aws
import psutil
import pytest
from workbench import stack
from workbench.base import params, paths, pidfiles, secrets, tls
from workbench.base.errors import ServiceLost, StackError
from workbench.base.wait import wait_until
from workbench.stack import (
    addresses,
    artifacts,
    cds,
    databases,
    lifecycle,
    process,
    services,
)
from workbench.stack.process import Service
from workbench.storefront import instances
from worlds import with_settings

WORLD = SimpleNamespace(
    stack=SimpleNamespace(port_base=0)
)  # a service of these tests asks no more of its world
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
if "litters" in how:
    import tempfile; tempfile.mkdtemp()
if "archive" in how:  # as a Java does that was started with this option
    path = next(text.partition("=")[2] for text in sys.argv if "ArchiveClassesAtExit" in text)
    def end(*_):
        with open(path, "wb") as file:
            file.write(bytes.fromhex("a8ab0bf0"))
        sys.exit(0)
    signal.signal(signal.SIGTERM, end)
if "mute" in how:
    signal.pause()
http.server.HTTPServer(("127.0.0.1", port), http.server.SimpleHTTPRequestHandler).serve_forever()
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def server(port, how="plain"):
    return [sys.executable, "-c", SERVER, str(port), how]


def port_of(service):
    return service.ports(WORLD)[0]


def answers(port):
    return urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=2).status == 200


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Create a service `web` with the named behavior; stop everything it started after the test."""
    monkeypatch.setattr(paths, "VAR_DIR", tmp_path)
    (paths.state_dir() / "data").mkdir(parents=True)
    made = []

    def service(how="", timeout=20.0):
        port = free_port()
        made.append(
            Service(
                "web",
                lambda w: f"127.0.0.1:{port}",
                lambda w: server(port, how or "plain"),
                lambda w: answers(port),
                timeout=timeout,
            )
        )
        return made[-1]

    yield service
    for s in made:
        process.stop(s, grace_period=1)


@pytest.mark.parametrize(
    "how, kept",
    [("archive", True), ("archive mute", False)],
    ids=["ready", "still starting"],
)
def test_the_archive_of_a_service_that_was_ready_is_kept(make, monkeypatch, tmp_path, how, kept):
    monkeypatch.setattr(cds, "FOLDER", tmp_path / "cds")
    cds.FOLDER.mkdir()
    web = make(how, timeout=2.0)
    option = f"{cds.ARCHIVE_OPTION}{process.temp_dir('web') / 'web-1'}.jsa"
    web = replace(web, command=lambda w: [*server(port_of(web), how), option])
    if kept:
        process.start(web, WORLD)
    else:
        with pytest.raises(StackError, match="waited 2 s"):
            process.start(web, WORLD)
    assert process.stop(web)
    assert [file.name for file in cds.FOLDER.glob("*.jsa")] == (["web-1-4.jsa"] if kept else [])
    assert not process.temp_dir("web").exists()


def note(**changes):
    file = pidfiles.pid_file("web")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(
        json.dumps({**(json.loads(file.read_text()) if file.exists() else {}), **changes})
    )


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
    assert (
        seen.state == "up"
        and seen.pid == process.running_process("web").pid
        and seen.memory_mb > 0
        and seen.seconds < 60
    )
    assert process.start(web, WORLD) == "reused" and process.running_process("web").pid == seen.pid
    assert process.stop(web) and gone(seen.pid)
    assert process.status(web, WORLD).state == "stopped" and not process.stop(web)


def test_temporary_files_go_when_it_stops_and_when_it_is_started_after_a_kill(make):
    web = make("litters")
    process.start(web, WORLD)
    folder = paths.state_dir() / "tmp" / "web"
    (left,) = folder.iterdir()
    process.running_process("web").kill()
    wait_until(lambda: process.running_process("web") is None, "it to die", timeout=10)
    process.start(web, WORLD)
    assert not left.exists() and len(list(folder.iterdir())) == 1
    process.stop(web)
    assert not folder.exists()


def test_what_bears_our_mark_is_found_until_it_ends(make):
    web = make("parent")
    process.start(web, WORLD)
    found = instance.find_service_processes(str(paths.state_dir()))
    assert {p.pid for p, _ in found} >= {process.running_process("web").pid} and len(found) == 2, (
        "its child too"
    )
    assert {mark for _, mark in found} == {f"{paths.state_dir()}:web"}
    process.stop(web)
    assert instance.find_service_processes(str(paths.state_dir())) == []


def test_a_stranger_on_the_port_is_named_and_left_alone(make):
    web = make()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port_of(web)))
        taken.listen()
        with pytest.raises(
            StackError, match=f"web cannot start: port {port_of(web)} is taken"
        ) as error:
            process.start(web, WORLD)
        assert (
            error.value.location.startswith(f"pid {os.getpid()}: ")
            and "python" in error.value.location
        )
        assert "`workbench down`, then WORKBENCH_PORT_BASE=" in error.value.hint
        seen = process.status(web, WORLD)
        assert seen.state == "port-conflict" and f"pid {os.getpid()}" in seen.detail
        assert not process.stop(web)


def test_a_service_that_dies_shows_its_last_lines_at_once(make):
    web = make("dies", timeout=60)
    with pytest.raises(StackError, match="process of .* ended") as error:
        process.start(web, WORLD)
    assert (
        "| the disk is full" in str(error.value)
        and str(process.log_file("web")) in error.value.hint
    )
    assert process.status(web, WORLD).state == "died"


def test_a_restart_keeps_the_log_of_the_one_that_died(make):
    for _ in range(2):
        with pytest.raises(StackError):
            process.start(make("dies"), WORLD)
    assert "disk is full" in process.log_file("web").with_suffix(".log.1").read_text()


def test_what_a_service_prints_that_writes_its_log_itself_is_kept_beside_it(make):
    """The service rotates its log: a file descriptor of ours would point to a removed file."""
    web, log = replace(make("dies"), writes_own_log=True), process.log_file("web")
    for _ in range(2):
        log.parent.mkdir(exist_ok=True)
        with pytest.raises(StackError, match="(?s)process of .* ended.*the disk is full"):
            process.start(web, WORLD)
        assert not log.exists() and "disk is full" in process.stdout_file("web").read_text()
        log.write_text("a line of its own\n")
    assert "disk is full" in process.stdout_file("web").with_suffix(".out.1").read_text(), (
        "of the one before"
    )
    assert "a line of its own" in log.with_suffix(".log.1").read_text()
    shown = process.log_tail("web")
    assert (
        shown.index("a line of its own")
        < shown.index("first line")
        < shown.index("the disk is full")
    )


def test_the_services_that_roll_their_log_print_elsewhere():
    """The others print little."""
    assert {n for n, s in services.SERVICES.items() if not s.writes_own_log} == {
        "mariadb",
        "postgres",
        "s3",
        *STOREFRONT,
    }


def test_one_that_ends_while_it_is_waited_for_is_started_anew(make):
    """A process that was just killed may still exist when the service is needed."""
    web = make()
    process.start(web, WORLD)
    old = process.running_process("web")
    old.suspend()  # it is there and does not answer
    threading.Timer(0.5, old.kill).start()
    assert process.start(web, WORLD) == "started" and process.running_process("web").pid != old.pid


def test_one_that_never_answers_times_out_and_is_starting(make):
    web = make("mute", timeout=0.5)
    with pytest.raises(StackError, match="waited 0.5 s for web to listen on port") as error:
        process.start(web, WORLD)
    assert "refused" in error.value.location
    assert process.status(web, WORLD).state == "starting"


def test_one_that_ignores_term_is_killed_with_its_children(make):
    web = make("deaf parent")
    process.start(web, WORLD)
    family = [
        process.running_process("web").pid,
        *(p.pid for p in process.running_process("web").children()),
    ]
    assert len(family) == 2 and process.stop(web, grace_period=0.3)
    assert all(gone(pid) for pid in family)


def test_stop_asks_with_the_signal_of_the_service(make):
    web = Service(**{**vars(make("deaf")), "stop_signal": signal.SIGINT})
    process.start(web, WORLD)
    process.stop(web, grace_period=20)
    assert "KeyboardInterrupt" in process.log_file("web").read_text()


@pytest.mark.parametrize(
    "end", [process.stop, lambda web: process.start(web, WORLD)], ids=["stop", "start"]
)
def test_what_a_killed_leader_left_is_swept(make, end):
    web = make("parent")
    process.start(web, WORLD)
    leader = process.running_process("web")
    child = leader.children()[0]
    leader.kill()
    wait_until(lambda: process.running_process("web") is None, "the leader to die", timeout=5)
    assert child.is_running() and process.status(web, WORLD).state == "died"
    end(web)
    assert gone(child.pid)


def test_one_whose_starter_was_killed_before_it_noted_the_pid_is_found(make):
    web = make()
    process.start(web, WORLD)
    pid = process.running_process("web").pid
    pidfiles.pid_file("web").unlink()
    assert process.start(web, WORLD) == "started" and gone(pid)
    pidfiles.pid_file("web").unlink()
    assert process.stop(web) and process.port_owner(port_of(web)) is None


def test_one_that_is_ending_and_has_lost_its_mark_is_waited_for(make, monkeypatch):
    """An exiting process drops its environment before it closes its ports."""
    process.start(make(), WORLD)
    seen = process.running_process("web")
    pidfiles.pid_file("web").unlink()
    found = iter([[seen]])
    monkeypatch.setattr(process, "_find_orphans", lambda name: next(found, []))
    slowly = threading.Timer(0.5, os.kill, (seen.pid, signal.SIGKILL))
    monkeypatch.setattr(psutil.Process, "kill", lambda p: slowly.is_alive() or slowly.start())
    assert process.kill_orphans("web") and gone(seen.pid)


def test_instances_with_a_living_service_are_told(make, tmp_path):
    assert pidfiles.running_instances() == set()
    process.start(make(), WORLD)
    (tmp_path / "dead" / "run").mkdir(parents=True)
    (tmp_path / "dead" / "run" / "web.json").write_text('{"pid": 1, "born": -5}')
    assert pidfiles.running_instances() == {paths.instance_name()}


def test_a_pid_file_whose_number_somebody_else_has_now_is_not_ours(make):
    stranger = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True
    )
    try:
        for stale in ({"pid": stranger.pid, "born": 1.0}, {"pid": stranger.pid}):
            pidfiles.pid_file("web").unlink(missing_ok=True)
            note(**stale)
            web = make()
            assert process.running_process("web") is None
            assert process.start(web, WORLD) == "started"
            note(**stale)
            process.stop(web)
            assert stranger.poll() is None, "a stranger was signalled"
    finally:
        stranger.kill()
        stranger.wait()


def test_a_changed_clock_does_not_make_our_own_a_stranger(make, monkeypatch):
    web = make()
    process.start(web, WORLD)
    monkeypatch.setattr(psutil.Process, "create_time", lambda p: 0.0)
    assert process.running_process("web") is not None and process.start(web, WORLD) == "reused"


def test_a_pythonpath_is_not_handed_on(make, monkeypatch):
    """PYTHONPATH may name another pyspark than the pinned one."""
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    monkeypatch.setenv("http_proxy", "http://proxy.example:3128")
    web = make()
    process.start(web, WORLD)
    given = process.running_process("web").environ()
    assert "PYTHONPATH" not in given and "PYTHONPATH" not in services._spark_env(
        params.load("local")
    )
    assert "127.0.0.1" in given["no_proxy"] and given["http_proxy"], (
        "a proxy is for others, never for loopback"
    )


# ---- one that was started for another world or on other ports


def test_another_world_or_port_restarts_it_and_the_same_does_not(make, monkeypatch):
    def how(service):
        said = []
        monkeypatch.setattr(services, "SERVICES", {"web": service})
        lifecycle._start(WORLD, ["web"], said.append)
        return said[0].split()[1]

    web = make()
    assert how(web) == "started"
    first = process.running_process("web").pid
    assert not process.is_outdated(web, WORLD) and process.bound_ports() == {port_of(web)}
    other = replace(web, config_fingerprint=lambda w: "local[2]")
    assert process.is_outdated(other, WORLD)
    assert how(other) == "restarted" and gone(first)
    assert how(other) == "reused"
    moved = make()
    assert process.is_outdated(moved, WORLD) and how(moved) == "restarted"
    assert process.port_owner(port_of(other)) is None and process.bound_ports() == {port_of(moved)}


@pytest.mark.parametrize(
    "restart",
    [lambda world: lifecycle._start(world, ["web"]), lambda world: stack.restart(world, "web")],
    ids=["up", "restart"],
)
def test_one_whose_new_port_is_held_by_a_stranger_is_not_stopped(make, monkeypatch, restart):
    web, world = make(), params.load("local")
    process.start(web, world)
    first = process.running_process("web").pid
    monkeypatch.setattr(lifecycle, "_with_dependencies", lambda world, names: names)
    monkeypatch.setattr(lifecycle, "_require_same_port_base", lambda world: None)
    becomes_free = process._becomes_free  # asked again for five seconds; here for a half
    monkeypatch.setattr(
        process, "_becomes_free", lambda port, timeout: becomes_free(port, timeout / 10)
    )
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setattr(
            services, "SERVICES", {"web": replace(web, address=lambda w: f"127.0.0.1:{port}")}
        )
        with pytest.raises(StackError, match=f"web cannot start: port {port} is taken") as error:
            restart(world)
    assert process.running_process("web").pid == first and "managed: false" in error.value.hint


def test_status_says_that_it_is_outdated_and_where_it_listens(make):
    web, moved = make(), make()
    process.start(web, WORLD)
    seen = process.status(moved, params.load("local"))
    assert (seen.state, seen.port) == ("outdated", port_of(web)) and "workbench up" in seen.detail


def test_a_pid_file_without_a_fingerprint_is_outdated(make):
    web = make()
    process.start(web, WORLD)
    note(told=None)
    assert process.is_outdated(web, WORLD)


def test_every_port_that_it_listens_on_is_looked_at_before_it_starts(make):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        second = taken.getsockname()[1]
        with pytest.raises(StackError, match=f"web cannot start: port {second} is taken"):
            process.start(replace(make(), extra_ports=lambda w: (second,)), WORLD)
    assert process.running_process("web") is None


def test_need_and_up_restart_it_and_say_so(make, monkeypatch, capsys):
    web, world, lines = make(), params.load("local"), []
    monkeypatch.setattr(
        services, "SERVICES", {"web": replace(web, config_fingerprint=lambda w: w.spark.master)}
    )
    stack.ensure_running(world, "web")
    first = process.running_process("web").pid
    stack.ensure_running(world, "web")
    assert process.running_process("web").pid == first and capsys.readouterr().out == ""
    other = with_settings(world, name="cluster", spark={"master": "spark://h:1"})
    stack.ensure_running(other, "web")
    second = process.running_process("web").pid
    assert (
        second != first
        and "web runs with other settings than those of world 'cluster'" in capsys.readouterr().out
    )
    assert (
        stack.up(world, ["web"], progress=lines.append)[0].state == "up"
        and process.running_process("web").pid != second
    )
    assert lines[0].startswith("web") and " restarted " in lines[0]


@pytest.mark.parametrize(
    "verb",
    [
        lambda w: stack.ensure_running(w, "web"),
        lambda w: stack.up(w, ["web"]),
        lambda w: stack.restart(w, "web"),
    ],
    ids=["need", "up", "restart"],
)
def test_jars_are_fetched_before_anything_starts(make, monkeypatch, verb):
    """In a fresh clone `make run`, `up` and `lab` come before `make install`."""
    web, fetched = make(), []
    monkeypatch.setattr(
        services, "SERVICES", {"web": replace(web, initialize=lambda w: fetched.append("started"))}
    )
    monkeypatch.setattr(artifacts, "ensure", lambda *more: fetched.append("jars"))
    verb(params.load("local"))
    assert fetched == ["jars", "started"]


def test_each_service_stops_before_what_it_needs(monkeypatch):
    stopped = []
    monkeypatch.setattr(process, "stop", lambda service: stopped.append(service.name) or True)
    assert set(lifecycle._stop(list(services.SERVICES))) == set(services.SERVICES)
    before = [
        ("connect", "kafka"),
        ("connect", "postgres"),
        ("spark", "s3"),
    ]
    for first, second in before:
        assert stopped.index(first) < stopped.index(second), stopped
    assert list(lifecycle._stop([])) == [] and list(lifecycle._stop(["kafka"])) == ["kafka"]


def test_a_service_comes_with_those_of_its_world_that_it_needs():
    local, s3 = params.load("local"), params.load("s3")
    assert lifecycle._with_dependencies(local, ["spark"]) == ["spark"]
    assert lifecycle._with_dependencies(s3, ["spark"]) == ["s3", "spark"]
    assert lifecycle._with_dependencies(local, ["connect"]) == ["postgres", "kafka", "connect"]


def test_what_a_needed_service_needs_comes_before_it(monkeypatch):
    local, row = params.load("local"), services.SERVICES["kafka"]
    needs = {
        "web": ("app", "postgres"),
        "app": ("store", "elsewhere"),
        "store": ("postgres",),
        "postgres": (),
        "elsewhere": (),
    }
    monkeypatch.setattr(
        services,
        "SERVICES",
        {name: replace(row, name=name, depends_on=of) for name, of in needs.items()},
    )
    monkeypatch.setattr(
        services, "default_services", lambda world: ("web", "app", "store", "postgres")
    )
    assert lifecycle._with_dependencies(local, ["web"]) == ["postgres", "store", "app", "web"]
    assert lifecycle._with_dependencies(local, ["app", "web"]) == [
        "postgres",
        "store",
        "app",
        "web",
    ]
    assert lifecycle._with_dependencies(local, ["elsewhere"]) == ["elsewhere"], (
        "named, it comes, whatever the world has"
    )


@pytest.fixture
def chain(make, monkeypatch):
    """Register three services of another package, each of which needs the next one."""
    monkeypatch.setattr(services, "SERVICES", dict(services.SERVICES))
    monkeypatch.setattr(services, "REGISTERED_SERVICES", [*services.REGISTERED_SERVICES])
    needs = {"shop_page": ("shop_app",), "shop_app": ("shop_store",), "shop_store": ("connect",)}
    services.register(*(replace(make(), name=name, depends_on=of) for name, of in needs.items()))
    return [*needs]


def test_a_registered_service_comes_with_the_chain_of_those_that_it_needs(chain):
    page, app, store = chain
    local = params.load("local")
    assert services.dependencies(page) == {app, store, "connect", "postgres", "kafka"}
    expected = ["postgres", "kafka", "connect", store, app]
    assert lifecycle._with_dependencies(local, [page]) == [*expected, page]
    assert lifecycle._with_dependencies(local, [app, page, store]) == [*expected, page]
    assert not {*chain} & {*services.default_services(local)}, "they start on demand"


def test_a_service_stops_before_what_it_needs_indirectly(chain, monkeypatch):
    """Also if the service between them does not run."""
    stopped = []
    monkeypatch.setattr(process, "stop", lambda service, **_: stopped.append(service.name))
    lifecycle._stop(["kafka", chain[2], chain[0]])
    assert stopped == [chain[0], chain[2], "kafka"]


def test_the_status_has_a_registered_service_once_it_was_started(chain, monkeypatch):
    monkeypatch.setattr(process, "status", lambda service, world: service.name)
    assert not {*chain} & {*lifecycle.status(params.load("local"))}
    file = pidfiles.pid_file(chain[1])
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("{}")
    assert {*chain} & {*lifecycle.status(params.load("local"))} == {chain[1]}


def test_the_stack_knows_no_service_of_another_package():
    """The command line imports the packages that register services."""
    code = """
from workbench.stack import services
print(sorted(services.SERVICES), sorted(services.REGISTERED_SERVICES))
from workbench.cli import main
print(sorted(services.REGISTERED_SERVICES))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    alone, with_commands = done.stdout.splitlines()
    assert "orders" not in alone and alone.endswith(" []")
    assert with_commands == str(sorted(STOREFRONT))


@pytest.fixture
def by_base(make, monkeypatch):
    """Let the service `web` listen at the fifth port of a port base; return the base."""
    base = free_port() - 5
    monkeypatch.setattr(
        services,
        "SERVICES",
        {
            "web": replace(
                make(),
                address=lambda w: f"127.0.0.1:{w.stack.port_base + 5}",
                command=lambda w: server(w.stack.port_base + 5),
                ready=lambda w: answers(w.stack.port_base + 5),
            )
        },
    )
    monkeypatch.setenv("WORKBENCH_PORT_BASE", str(base))
    return base


VERBS = (
    lambda w: stack.ensure_running(w, "web"),
    lambda w: stack.up(w, ["web"]),
    lambda w: stack.restart(w, "web"),
    stack.status,
)


def test_a_service_of_a_package_that_is_not_imported_is_stopped(by_base, monkeypatch):
    stack.ensure_running(params.load("local"), "web")
    monkeypatch.setattr(services, "SERVICES", {})
    assert stack.running() == ["web"]
    assert stack.down() == ["web"] and stack.running() == []


def test_a_running_instance_keeps_its_ports(by_base, monkeypatch):
    """In a second terminal the variable may differ or be unset."""
    stack.ensure_running(params.load("local"), "web")
    first = process.running_process("web").pid
    monkeypatch.setenv("WORKBENCH_PORT_BASE", "31000")
    for verb in VERBS:
        with pytest.raises(
            StackError, match=f"runs with port base {by_base}, and WORKBENCH_PORT_BASE is 31000"
        ) as error:
            verb(params.load("local"))
        assert "unset WORKBENCH_PORT_BASE" in error.value.hint
    monkeypatch.delenv("WORKBENCH_PORT_BASE")
    assert params.load("local").stack.port_base == by_base
    stack.ensure_running(params.load("local"), "web")
    assert process.running_process("web").pid == first, "none of these restarted it"
    assert stack.down() == ["web"] and params.load("local").stack.port_base == 21400
    monkeypatch.setenv("WORKBENCH_PORT_BASE", "31000")
    assert params.load("local").stack.port_base == 31000


def test_a_kernel_that_loaded_its_world_before_the_instance_moved_is_refused(by_base, monkeypatch):
    earlier = params.load("local")
    monkeypatch.setenv("WORKBENCH_PORT_BASE", str(free_port() - 5))
    now = params.load("local")
    stack.ensure_running(now, "web")
    first = process.running_process("web").pid
    monkeypatch.delenv("WORKBENCH_PORT_BASE")
    for verb in VERBS:
        with pytest.raises(
            StackError,
            match=f"runs with port base {now.stack.port_base}, and this world was loaded "
            f"with {by_base}",
        ) as error:
            verb(earlier)
        assert "load the world again" in error.value.hint and "unset" not in error.value.hint
    assert process.running_process("web").pid == first


def test_what_a_kernel_started_after_a_down_is_found_and_what_died_does_not_rule(
    by_base, monkeypatch
):
    world = params.load("local")
    monkeypatch.delenv("WORKBENCH_PORT_BASE")
    stack.ensure_running(world, "web")
    assert params.load("local").stack.port_base == by_base
    leader = process.running_process("web")
    leader.kill()
    wait_until(lambda: not pidfiles.is_alive(leader), "its end")
    assert params.load("local").stack.port_base == 21400, "as after a reboot: no service lives"


def test_a_service_that_a_world_does_not_have_is_no_hindrance(make, monkeypatch):
    """The S3 endpoint runs; the local world has no port for it, and the same port base."""
    base = free_port() - 6
    monkeypatch.setenv("WORKBENCH_PORT_BASE", str(base))
    monkeypatch.setattr(
        services,
        "SERVICES",
        {
            "web": replace(
                make(),
                address=lambda w: w.lake.endpoint,
                command=lambda w: server(base + 6),
                ready=lambda w: answers(base + 6),
            )
        },
    )
    stack.ensure_running(params.load("s3"), "web")
    lifecycle._require_same_port_base(params.load("local"))


@pytest.mark.parametrize("damaged", ["x", None, True])
def test_a_port_base_that_cannot_be_read_from_a_pid_file_is_none(by_base, monkeypatch, damaged):
    stack.ensure_running(params.load("local"), "web")
    note(base=damaged)
    monkeypatch.delenv("WORKBENCH_PORT_BASE")
    assert params.load("local").stack.port_base == 21400


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Return a function that collects what a service is started with.

    That is its command, environment and configuration.
    """
    monkeypatch.setattr(paths, "VAR_DIR", tmp_path)
    (tmp_path / "apicurio-registry-app").mkdir()
    (tmp_path / "apicurio-registry-app" / "a-runner.jar").touch()
    for name, made in (
        ("jars", lambda s: [tmp_path / "a.jar"]),
        ("java_home", lambda: tmp_path),
        ("package_dir", lambda n: tmp_path / n),
        ("LIB", tmp_path),
    ):
        monkeypatch.setattr(artifacts, name, made)

    def everything(service, world):
        command = service.command(world)
        conf = {f.name: f.read_text() for f in (paths.state_dir() / "conf").glob("*")}
        named = {name: text for name, text in conf.items() if name in " ".join(command)}
        return str((command, service.env(world), named))

    return everything


OTHER = {
    "embedded": False,
    "java_compiler": "full",
    "wire": "apicurio",
}  # those with a choice


def variants(value):
    """Yield copies of a world (or part of one) with one value changed."""
    for name, now in value:
        if isinstance(now, params.ConfigModel):
            yield from (value.model_copy(update={name: v}) for v in variants(now))
        elif isinstance(now, (int, str)) and name not in ("name", "description"):
            changed = OTHER.get(name, now + 1 if isinstance(now, int) else now + "0")
            yield value.model_copy(update={name: changed})


STOREFRONT = {row.name for row in instances.SERVICES}  # they read the params file by themselves


@pytest.mark.parametrize("name", sorted(STOREFRONT))
def test_a_service_of_the_storefront_is_started_anew_where_kafka_or_its_store_is_another(name):
    service, world = services.SERVICES[name], params.load("local")
    for other in variants(world):
        now = process._start_fingerprint(service, other) != process._start_fingerprint(
            service, world
        )
        host = [
            (w.kafka, w.postgres.host, w.postgres.port, w.stack.port_base) for w in (world, other)
        ]
        assert now == (host[0] != host[1]), other


@pytest.mark.parametrize("name", sorted({*services.SERVICES} - STOREFRONT))
def test_the_fingerprint_differs_when_what_it_is_started_with_differs(written, name):
    """`config_fingerprint` and `command` agree, for every value of a params file."""
    service, world = services.SERVICES[name], params.load("s3" if name == "s3" else "local")
    tls.ensure()
    before = written(service, world), process._start_fingerprint(service, world)
    changed = 0
    for other in variants(world):
        now = written(service, other), process._start_fingerprint(service, other)
        assert (now[0] == before[0]) == (now[1] == before[1]), other
        changed += now[0] != before[0]
    assert changed


def test_only_spark_restarts_between_local_and_cluster_and_nothing_is_written(written, tmp_path):
    local, cluster = params.load("local"), params.load("cluster")
    same = {
        n
        for n in services.default_services(local)
        if process._start_fingerprint(services.SERVICES[n], local)
        == process._start_fingerprint(services.SERVICES[n], cluster)
    }
    assert same == {"postgres", "kafka", "connect"} and not paths.state_dir().exists()


# ---- Kafka's storage


def formatted(folder):
    """Return the content of a formatted storage: its properties, and the first metadata."""
    lines = (folder / "meta.properties").read_text().splitlines()
    properties = dict(line.split("=", 1) for line in lines if "=" in line)
    return properties, (folder / "bootstrap.checkpoint").read_bytes()


def test_kafkas_storage_is_formatted_once_and_then_copied_with_an_id_of_its_own(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(paths, "VAR_DIR", tmp_path / "var")
    template = tmp_path / "templates" / "kafka"
    monkeypatch.setattr(services, "_kafka_template", lambda: template)
    commands, run = [], process.run_command
    monkeypatch.setattr(
        services, "run_command", lambda command, *a: (commands.append(command), run(command, *a))
    )
    world, ids = params.load("local"), set()

    def initialize(instance):
        monkeypatch.setenv("WORKBENCH_INSTANCE", instance)
        services._initialize_kafka(world)
        properties, metadata = formatted(process.data_dir("kafka"))
        ids.add(properties.pop("directory.id"))
        return properties, metadata

    first = initialize("one")
    assert [path.name for path in template.parent.iterdir()] == ["kafka"]
    for number in range(8):
        second = initialize(f"two{number}")
        assert second == first
    assert len(commands) == 1 and len(ids) == 9
    assert all(re.fullmatch(r"[\w-]{22}", text) and text[0] != "-" for text in ids)
    initialize("one")  # formatted already: nothing changes
    assert len(ids) == 9
    (template / "bootstrap.checkpoint").write_bytes(b"")  # as after a crash of the machine
    initialize("three")
    assert len(commands) == 2
    initialize("four")  # the damaged template was replaced
    assert len(commands) == 2
    monkeypatch.setattr(services.shutil, "copyfile", refuse)
    (template / "bootstrap.checkpoint").unlink()
    initialize("five")
    assert len(commands) == 3 and [path.name for path in template.parent.iterdir()] == ["kafka"]


def refuse(*_):
    raise OSError(28, "No space left on device")


# ---- PostgreSQL of root, below a folder that only root may enter


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives up rights")
def test_postgres_of_root_runs_below_a_closed_folder_and_writes_in_its_own_only(
    tmp_path, monkeypatch
):
    installed = databases.postgres_bin().parents[1]
    for folder in (installed, *installed.parent.glob(f"{installed.name}.libs")):
        shutil.copytree(folder, tmp_path / "closed" / folder.name)
    (tmp_path / "closed").chmod(0o700)
    monkeypatch.setattr(paths, "VAR_DIR", tmp_path / "closed" / "var")
    monkeypatch.setattr(artifacts, "package_dir", lambda name: tmp_path / "closed" / installed.name)
    secrets.ensure(services.SECRETS)
    databases.initialize_postgres(params.load("local"))
    mine, inside = tmp_path / "closed" / "mine", process.data_dir("postgres") / "inside"
    mine.write_text("mine")
    ask = databases.as_nobody(
        [
            str(databases.postgres_bin() / "postgres"),
            "--single",
            "-D",
            str(process.data_dir("postgres")),
            "postgres",
        ]
    )
    asked = f"COPY (SELECT 'overwritten') TO '{mine}'\nCOPY (SELECT 'its own') TO '{inside}'\n"
    done = subprocess.run(ask, input=asked, capture_output=True, text=True, cwd="/")
    if databases._traversal_capability() == "dac_read_search":  # a container may lack it
        assert (
            mine.read_text() == "mine"
            and f'could not open file "{mine}" for writing' in done.stderr
        ), done.stderr
    assert inside.read_text() == "its own\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives up rights")
def test_an_initdb_that_fails_tells_root_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "VAR_DIR", tmp_path)
    monkeypatch.setattr(databases, "_traversal_capability", lambda: "no_such_right")
    secrets.ensure(services.SECRETS)
    with pytest.raises(StackError, match="initdb failed") as error:
        databases.initialize_postgres(params.load("local"))
    assert "no_such_right" in error.value.location and "ordinary user" in error.value.hint
    assert "--cap-add=NO_SUCH_RIGHT --cap-add=SETPCAP" in error.value.hint


@pytest.mark.parametrize("noise", ["creating subdirectories ... ok\n" * 40, ""])
def test_a_failed_initialization_reports_only_stderr(tmp_path, monkeypatch, noise):
    """The progress on stdout is longer than the end of the output that an error has."""
    monkeypatch.setattr(paths, "VAR_DIR", tmp_path)
    monkeypatch.setattr(databases, "as_nobody", lambda command: command)
    script = f"echo 'the cause' >&2; echo '{noise}'; exit 1"
    with pytest.raises(StackError, match="sh failed") as error:
        databases._init_data_dir("db", "MARK", lambda folder: ["sh", "-c", script], "")
    assert error.value.location == "the cause"
    with pytest.raises(StackError, match="it failed") as error:
        process.run_command(["sh", "-c", script], "it failed")
    assert error.value.location.endswith("the cause"), "stderr comes last"


def test_root_without_setpriv_is_told_so(tmp_path, monkeypatch):
    """Also on a system without /proc, where the capabilities cannot be read."""
    monkeypatch.setattr(paths, "VAR_DIR", tmp_path)
    monkeypatch.setattr(databases.os, "geteuid", lambda: 0)
    monkeypatch.setattr(databases.os, "chown", lambda *arguments: None)
    monkeypatch.setattr(databases.shutil, "which", lambda name: None)
    monkeypatch.setattr(databases, "_traversal_capability", lambda: open("/no/such/file"))
    with pytest.raises(StackError, match="setpriv is not installed"):
        databases._init_data_dir("db", "MARK", lambda folder: ["true"], "")


# ---- worlds whose services are not ours


def test_the_source_database_of_such_a_world_can_be_reached(monkeypatch):
    with socket.socket() as there:
        there.bind(("127.0.0.1", 0))
        there.listen()
        aws = on_aws.world()
        near = with_settings(aws, postgres={"host": "127.0.0.1", "port": there.getsockname()[1]})
        stack.ensure_running(near, "postgres")
    with pytest.raises(StackError, match="(?s)postgres cannot be reached.*network path"):
        stack.ensure_running(near, "postgres")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"pid": "x", "born": 1}', '{"pid": 1, "born": null}']
)
def test_a_damaged_pid_file_is_no_process(make, text):
    web = make()
    note()
    pidfiles.pid_file("web").write_text(text)
    assert process.running_process("web") is None and process.start(web, WORLD) == "started"


def test_a_service_gets_no_secret_of_ours_and_its_mark(make, monkeypatch):
    monkeypatch.setenv("WORKBENCH_SECRET_POSTGRES_ADMIN", "canary")
    for name in ("JAVA_TOOL_OPTIONS", "SPARK_REMOTE", "PGDATA"):
        monkeypatch.setenv(name, "canary")
    web = make()
    process.start(web, WORLD)
    environment = process.running_process("web").environ()
    assert (
        "canary" not in str(environment)
        and environment[process.SERVICE_ID_ENV] == f"{paths.state_dir()}:web"
    )


def test_a_service_that_is_lost_is_told_with_its_state(make):
    web = make()
    address = f"http://127.0.0.1:{port_of(web)}"
    local, aws = params.load("local"), on_aws.world()
    assert stack.service_down_error(local, "web", "10.0.0.1:80") is None, "none of ours"
    assert stack.service_down_error(aws, "web", address) is None, "nor what a tunnel leads to"
    assert "the service web is stopped" in str(stack.service_down_error(local, "web", address))
    process.start(web, WORLD)
    assert stack.service_down_error(local, "web", address) is None
    leader = process.running_process("web")
    leader.kill()
    wait_until(lambda: not pidfiles.is_alive(leader), "its end")
    said = str(stack.service_down_error(local, "web", address))
    assert "the service web died" in said and "web.log" in said and "workbench up" in said
    process.stop(web)
    mute = make("mute", timeout=1)
    with pytest.raises(StackError):
        process.start(mute, WORLD)
    assert "does not listen" in str(stack.service_down_error(local, "web", address))
    threading.Timer(0.1, process.running_process("web").kill).start()  # it ends after its ports
    assert "the service web died" in str(stack.service_down_error(local, "web", address))


def test_a_blocking_call_ends_when_its_service_is_killed(make, monkeypatch):
    web, world, forever = make(), params.load("local"), threading.Event()
    monkeypatch.setattr(services, "SERVICES", {"web": web})
    monkeypatch.setattr(lifecycle, "RESTART_GRACE_SECONDS", 0.5)
    process.start(web, world)
    assert stack.run_watched(world, lambda wanted: 5, "web") == 5
    with pytest.raises(KeyError):
        stack.run_watched(world, lambda wanted: {}["x"], "web")
    threading.Timer(0.3, process.running_process("web").kill).start()
    with pytest.raises(ServiceLost, match="the service web died"):
        stack.run_watched(world, lambda wanted: forever.wait(30), "web")
    forever.set()
    look = stack.watch(world, "web")
    look()  # it may be a restart
    process.start(web, world)
    wait_until(
        lambda: look() is None and process.running_process("web"), "the grace period", timeout=5
    )
    elsewhere = with_settings(world, stack={"embedded": False})
    process.stop(web)
    assert (
        stack.run_watched(elsewhere, lambda wanted: 5, "web") == 5
        and stack.watch(elsewhere, "web")() is None
    )


def test_nobody_holds_a_free_port():
    assert process.port_owner(free_port()) is None


def test_the_holder_of_a_port_is_named_without_its_arguments():
    script = "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", script, "--password=hidden"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as listener:
        held = process.port_owner(int(listener.stdout.readline()))
        listener.stdin.close()
    assert held.startswith(f"pid {listener.pid}: python") and "hidden" not in held


def test_a_plugin_in_its_folder_is_found_looked_into_and_starts_connect_anew(tmp_path, monkeypatch):
    world = params.load("local")
    monkeypatch.setattr(paths, "VAR_DIR", tmp_path)
    tls.ensure()

    def seen():
        command = services._connect_command(world)  # writes the worker's configuration
        conf = next(
            Path(part) for part in command if part.endswith("connect.properties")
        ).read_text()
        names = {link.name for link in services._prepare_plugin_path().iterdir()}
        return (
            "hybrid_warn" in conf,
            names,
            process._start_fingerprint(services.SERVICES["connect"], world),
        )

    without = seen()
    assert without[:2] == (False, {"converter", "debezium"})
    (tmp_path / "plugins" / "jdbc").mkdir(parents=True)
    (tmp_path / "plugins" / "notes.txt").touch()
    with_it = seen()
    assert with_it[:2] == (True, {"converter", "debezium", "own-jdbc"}) and with_it[2] != without[2]
    (tmp_path / "plugins" / "jdbc").rmdir()
    assert seen() == without, "and it goes again"
    monkeypatch.setattr(lifecycle, "ensure_running", lambda *names: None)
    stack.load_plugins(
        world, "filestream"
    )  # what reads and writes any file is loaded where a notebook asks for it
    loaded = seen()
    assert (
        loaded[:2] == (False, {"converter", "debezium", "filestream"}) and loaded[2] != without[2]
    )
    stack.unload_plugins(world, "filestream")
    assert seen() == without
    stack.load_plugins(with_settings(world, stack={"embedded": False}), "filestream")
    assert seen() == without, "another's Connect is left alone"


FILE_SINK = {"connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector"}


@pytest.fixture
def running_connect(tmp_path, monkeypatch):
    """A world whose Connect runs: its connectors, and the calls that were made."""
    monkeypatch.setattr(paths, "VAR_DIR", tmp_path)
    there = SimpleNamespace(
        world=params.load("local"),
        done=[],
        flag=services.plugin_marker("filestream"),
        connectors={"outbox_source": {"connector.class": "io.debezium.P"}},
    )
    monkeypatch.setattr(process, "running_process", lambda name: name == "connect" or None)
    monkeypatch.setattr(
        process, "is_outdated", lambda service, world: service.name == "connect" and there.outdated
    )
    monkeypatch.setattr(addresses, "connect_configs", lambda world: there.connectors, raising=False)
    monkeypatch.setattr(addresses, "update_connectors", lambda world, say: None)
    monkeypatch.setattr(
        lifecycle, "ensure_running", lambda world, name: there.done.append(f"need {name}")
    )
    monkeypatch.setattr(process, "require_free_ports", lambda *_: None)
    monkeypatch.setattr(
        process,
        "start",
        lambda service, world: (
            there.done.append(f"start {service.name}{' with filestream' * there.flag.exists()}")
            or "started"
        ),
    )
    monkeypatch.setattr(process, "stop", lambda service: there.done.append(f"stop {service.name}"))
    there.outdated = False
    there.flag.parent.mkdir(parents=True)
    return there


def test_connect_is_restarted_only_where_it_has_loaded_the_plugin(running_connect):
    """A reset once restarted a Connect with other settings, below the connectors of all others."""
    running_connect.outdated = True
    stack.unload_plugins(running_connect.world, "filestream")
    assert running_connect.done == []
    running_connect.flag.touch()
    stack.unload_plugins(running_connect.world, "filestream")
    assert running_connect.done == ["need connect"] and not running_connect.flag.exists()


@pytest.mark.parametrize("kind", [FILE_SINK["connector.class"], "FileStreamSource"])
def test_a_plugin_of_which_a_connector_is_deployed_stays_loaded(running_connect, kind):
    running_connect.flag.touch()
    running_connect.outdated = True
    running_connect.connectors["of_somebody"] = {"connector.class": kind}
    stack.unload_plugins(running_connect.world, "filestream")
    assert running_connect.done == [] and running_connect.flag.exists()


def test_another_worlds_connect_keeps_the_plugins_of_this_machine(running_connect):
    running_connect.flag.touch()
    stack.unload_plugins(
        with_settings(running_connect.world, stack={"embedded": False}), "filestream"
    )
    assert running_connect.done == [] and running_connect.flag.exists()


@pytest.mark.parametrize("is_wanted", [False, True])
def test_connect_starts_with_the_plugin_of_a_deployed_connector(running_connect, is_wanted):
    """A connector of an older version has no marker file: it failed for lack of its class."""
    lifecycle._start(running_connect.world, ["connect"])
    assert running_connect.done == ["start connect"] and not running_connect.flag.exists()
    running_connect.done.clear()
    if is_wanted:
        running_connect.flag.touch()
    running_connect.connectors["movies_file_sink"] = FILE_SINK
    lifecycle._start(running_connect.world, ["connect"])
    assert running_connect.flag.exists()
    again = ["start connect", "stop connect", "start connect with filestream"]
    assert running_connect.done == (["start connect with filestream"] if is_wanted else again)


def test_a_pid_file_that_may_not_be_read_is_not_one_that_is_absent(tmp_path, monkeypatch):
    """Else services of another user (after one `sudo make`) would be listed as stopped."""

    def refused(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied")

    assert pidfiles.read(tmp_path / "none.json")["pid"] == -1
    monkeypatch.setattr(Path, "read_text", refused)
    with pytest.raises(PermissionError):
        pidfiles.read(tmp_path / "kafka.json")
