"""The life cycle of one service, with a small web server as the service."""

import copy
import errno
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import on_aws
import psutil
import pytest
from storefront import client
from workbench import stack
from workbench.base import params, paths, pidfiles, secrets, tls
from workbench.base.errors import StackError
from workbench.base.wait import wait_until
from workbench.stack import (
    artifacts,
    cds,
    databases,
    lifecycle,
    process,
    services,
)
from workbench.stack.process import Service
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


class Web(Service):
    """A web server on a free port."""

    name = "web"

    def __init__(self, how):
        self.port, self.how = free_port(), how

    def address(self, world):
        return f"127.0.0.1:{self.port}"

    def command(self, world):
        return server(self.port, self.how)

    def ready(self, world):
        return answers(self.port)


def replace(service, **changes):
    """Return a copy of a service with other attributes or methods."""
    changed = copy.copy(service)
    vars(changed).update(changes)
    return changed


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Create a service `web` with the named behavior; stop everything it started after the test."""
    monkeypatch.setattr(paths, "VAR_DIR", tmp_path)
    (paths.state_dir() / "data").mkdir(parents=True)

    def service(how="plain", timeout=20.0):
        monkeypatch.setattr(process, "START_SECONDS", timeout)
        return Web(how)

    yield service
    monkeypatch.setattr(process, "STOP_SECONDS", 1.0)
    process.stop("web")


@pytest.mark.parametrize(
    "how, kept",
    [("archive", True), ("archive mute", False)],
    ids=["ready", "still starting"],
)
def test_the_archive_of_a_service_that_was_ready_is_kept(make, monkeypatch, tmp_path, how, kept):
    monkeypatch.setattr(cds, "FOLDER", tmp_path / "cds")
    cds.FOLDER.mkdir()
    web = make(how, timeout=2.0)
    archive = process.temp_dir("web") / "web-1.jsa"

    def command(world):
        archive.write_bytes(cds.MAGIC)
        return [*server(port_of(web), how), f"-XX:ArchiveClassesAtExit={archive}"]

    web = replace(web, command=command)
    if kept:
        process.start(web, WORLD)
    else:
        with pytest.raises(StackError, match="waited 2 s"):
            process.start(web, WORLD)
    assert process.stop("web")
    assert [file.name for file in cds.FOLDER.glob("*.jsa")] == (["web-1.jsa"] if kept else [])
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
    assert process.stop("web") and gone(seen.pid)
    assert process.status(web, WORLD).state == "stopped" and not process.stop("web")


def test_temporary_files_go_when_it_stops_and_when_it_is_started_after_a_kill(make):
    web = make("litters")
    process.start(web, WORLD)
    folder = paths.state_dir() / "tmp" / "web"
    (left,) = folder.iterdir()
    process.running_process("web").kill()
    wait_until(lambda: process.running_process("web") is None, "it to die", timeout=10)
    process.start(web, WORLD)
    assert not left.exists() and len(list(folder.iterdir())) == 1
    process.stop("web")
    assert not folder.exists()


def test_a_stranger_on_the_port_is_named_and_left_alone(make):
    web = make()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port_of(web)))
        taken.listen()
        with pytest.raises(
            StackError, match=f"web cannot start: port {port_of(web)} is taken"
        ) as error:  # also if it is not its first port
            process.start(replace(web, ports=lambda w: (free_port(), port_of(web))), WORLD)
        assert error.value.location == f"pid {os.getpid()}: {psutil.Process().name()}"
        assert "then WORKBENCH_PORT_BASE=" in error.value.hint
        seen = process.status(web, WORLD)
        assert seen.state == "port-conflict" and f"pid {os.getpid()}" in seen.detail
        assert not process.stop("web")


def test_a_service_that_dies_shows_its_last_lines_at_once(make):
    web = make("dies", timeout=60)
    with pytest.raises(StackError, match="process of .* ended") as error:
        process.start(web, WORLD)
    assert (
        "| the disk is full" in str(error.value)
        and str(process.log_file("web")) in error.value.hint
    )
    assert process.status(web, WORLD).state == "died"


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
    with pytest.raises(StackError, match="waited 0.5 s for web to respond on port"):
        process.start(web, WORLD)
    assert process.status(web, WORLD).state == "starting"


def test_one_that_ignores_term_is_killed_with_its_children(make, monkeypatch):
    web = make("deaf parent")
    process.start(web, WORLD)
    family = [
        process.running_process("web").pid,
        *(p.pid for p in process.running_process("web").children()),
    ]
    monkeypatch.setattr(process, "STOP_SECONDS", 0.3)
    assert len(family) == 2 and process.stop("web")
    assert all(gone(pid) for pid in family)


def test_stop_asks_with_the_signal_of_the_service(make):
    web = replace(make("deaf"), stop_signal=signal.SIGINT)
    process.start(web, WORLD)
    process.stop("web")
    assert "KeyboardInterrupt" in process.log_file("web").read_text()


@pytest.mark.parametrize(
    "end",
    [lambda web: process.stop("web"), lambda web: process.start(web, WORLD)],
    ids=["stop", "start"],
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
    assert process.stop("web") and process.port_owner(port_of(web)) is None


def test_orphans_are_killed_and_the_end_of_each_is_awaited(make, monkeypatch):
    """An exiting process loses its marker before it frees its ports."""
    web = make()
    process.start(web, WORLD)
    orphan = process.running_process("web")
    found = iter([[orphan]])  # once: then it has lost the marker
    monkeypatch.setattr(process, "_find_orphans", lambda name: next(found, []))
    assert process.kill("web") and gone(orphan.pid)
    assert not process.kill("web")


def test_a_pid_file_whose_number_somebody_else_has_now_is_not_ours(make):
    stranger = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True
    )
    try:
        for stale in ({"pid": stranger.pid, "started_ticks": 1.0}, {"pid": stranger.pid}):
            pidfiles.pid_file("web").unlink(missing_ok=True)
            note(**stale)
            web = make()
            assert process.running_process("web") is None
            assert process.start(web, WORLD) == "started"
            note(**stale)
            process.stop("web")
            assert stranger.poll() is None, "a stranger was signalled"
    finally:
        stranger.kill()
        stranger.wait()


def test_a_changed_clock_does_not_make_our_own_a_stranger(make, monkeypatch):
    web = make()
    process.start(web, WORLD)
    monkeypatch.setattr(psutil.Process, "create_time", lambda p: 0.0)
    assert process.running_process("web") is not None and process.start(web, WORLD) == "reused"


# ---- one that was started for another world or on other ports


def test_status_says_that_it_is_outdated_and_where_it_listens(make):
    web, moved = make(), make()
    process.start(web, WORLD)
    seen = process.status(moved, params.load("local"))
    assert (seen.state, seen.port) == ("outdated", port_of(web)) and "workbench up" in seen.detail


def test_need_and_up_restart_it_and_say_so(make, monkeypatch, capsys):
    web, world, lines = make(), params.load("local"), []
    monkeypatch.setattr(
        services, "SERVICES", {"web": replace(web, settings=lambda w: w.spark.master)}
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


def test_none_is_stopped_that_could_not_start_again(make, monkeypatch):
    first, world, taken = make(), params.load("local"), make()
    monkeypatch.setattr(services, "SERVICES", {"web": first})
    stack.ensure_running(world, "web")
    pid = process.running_process("web").pid
    with socket.create_server(("127.0.0.1", port_of(taken))):
        monkeypatch.setattr(services, "SERVICES", {"web": taken})
        with pytest.raises(StackError, match=f"port {port_of(taken)} is taken"):
            stack.up(world, ["web"])
    assert process.running_process("web").pid == pid and answers(port_of(first))


def test_jars_are_fetched_before_anything_starts(make, monkeypatch):
    """In a fresh clone `make run`, `up` and `lab` come before `make install`."""
    web, fetched = make(), []
    monkeypatch.setattr(
        services, "SERVICES", {"web": replace(web, initialize=lambda w: fetched.append("started"))}
    )
    monkeypatch.setattr(artifacts, "ensure", lambda *more: fetched.append("jars"))
    stack.ensure_running(params.load("local"), "web")
    assert fetched == ["jars", "started"]


class AfterConnect(services.Connect):
    name = "after_connect"
    depends_on = ("connect",)


def test_each_service_stops_before_what_it_needs(monkeypatch):
    batches = []
    monkeypatch.setitem(services.SERVICES, AfterConnect.name, AfterConnect())

    def stop_all(stop, names):
        batches.append(names)
        return [True] * len(names)

    monkeypatch.setattr(lifecycle, "_run_parallel", stop_all)
    assert set(lifecycle._stop(list(services.SERVICES))) == set(services.SERVICES)
    stopped = {name: number for number, names in enumerate(batches) for name in names}
    before = [
        ("after_connect", "connect"),
        ("connect", "kafka"),
        ("connect", "postgres"),
        ("spark", "s3"),
    ]
    for first, second in before:
        assert stopped[first] < stopped[second], batches
    assert list(lifecycle._stop([])) == [] and list(lifecycle._stop(["kafka"])) == ["kafka"]


def test_a_service_comes_with_those_of_its_world_that_it_needs():
    local, s3 = params.load("local"), params.load("s3")
    assert services.with_dependencies(local, ["spark"]) == ["spark"]
    assert services.with_dependencies(s3, ["spark"]) == ["s3", "spark"]
    assert services.with_dependencies(local, ["connect"]) == ["postgres", "kafka", "connect"]
    unmanaged = with_settings(local, kafka={"managed": False})
    assert services.with_dependencies(unmanaged, ["connect"]) == ["postgres", "connect"]


@pytest.fixture
def chain(make, monkeypatch):
    """Register three services of another package, each of which needs the next one."""
    monkeypatch.setattr(services, "SERVICES", dict(services.SERVICES))
    needs = {"shop_page": ("shop_app",), "shop_app": ("shop_store",), "shop_store": ("connect",)}
    services.register(*(replace(make(), name=name, depends_on=of) for name, of in needs.items()))
    return [*needs]


def test_a_registered_service_comes_with_the_chain_of_those_that_it_needs(chain, monkeypatch):
    page, app, store = chain
    local = params.load("local")
    expected = ["postgres", "kafka", "connect", store, app]
    assert services.with_dependencies(local, [page]) == [*expected, page]
    assert services.with_dependencies(local, [app, page, store]) == [*expected, page]
    assert not {*chain} & {*services.DEFAULT_SERVICES}, "they start on demand"
    monkeypatch.setattr(process, "status", lambda service, world: service.name)
    assert not {*chain} & {*lifecycle.status(local)}
    file = pidfiles.pid_file(app)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("{}")
    assert {*chain} & {*lifecycle.status(local)} == {app}, "once it was started"


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


def test_a_service_of_a_package_that_is_not_imported_is_stopped(by_base, monkeypatch):
    stack.ensure_running(params.load("local"), "web")
    monkeypatch.setattr(services, "SERVICES", {})
    assert stack.running() == ["web"]
    assert stack.down() == ["web"] and stack.running() == []


def test_an_instance_keeps_the_port_base_that_it_was_created_with(by_base, monkeypatch):
    """In a second terminal the variable may differ or be unset; services may run or not."""
    stack.ensure_running(params.load("local"), "web")
    first = process.running_process("web").pid
    monkeypatch.setenv("WORKBENCH_PORT_BASE", "31000")
    assert {params.load(name).stack.port_base for name in ("local", "s3")} == {by_base}
    stack.ensure_running(params.load("local"), "web")
    assert process.running_process("web").pid == first, "none of these restarted it"
    assert stack.down() == ["web"] and params.load("local").stack.port_base == by_base
    shutil.rmtree(paths.state_dir())
    assert params.load("local").stack.port_base == 31000


def test_a_world_that_was_loaded_for_other_ports_starts_nothing(by_base, monkeypatch):
    """A kernel loaded it before the instance was created anew, or before another process did so."""
    old = params.load("local")
    monkeypatch.setenv("WORKBENCH_PORT_BASE", str(free_port() - 5))
    new = params.load("local")
    stack.ensure_running(new, "web")
    first = process.running_process("web").pid
    for start in (lambda: stack.ensure_running(old, "web"), lambda: stack.up(old, ["web"])):
        with pytest.raises(StackError, match=f"{new.stack.port_base}, .* with {by_base}") as error:
            start()
        assert "load the world again" in error.value.hint
    assert process.running_process("web").pid == first


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Return a function that collects what a service is started with.

    That is its command, environment and configuration.
    """
    monkeypatch.setattr(paths, "VAR_DIR", tmp_path)
    (tmp_path / "apicurio-registry-app").mkdir()
    (tmp_path / "lib").mkdir()
    for file in ("apicurio-registry-app/a-runner.jar", "a.jar", "lib/modules"):
        (tmp_path / file).touch()
    for name, made in (
        ("jars", lambda s: [tmp_path / "a.jar"]),
        ("java_home", lambda: tmp_path),
        ("package_dir", lambda n: tmp_path / n),
        ("LIB", tmp_path),
    ):
        monkeypatch.setattr(artifacts, name, made)

    def everything(service, world):
        command = service.command(world)
        conf = {str(f): f.read_text() for f in (paths.state_dir() / "conf").glob("*/*")}
        named = {name: text for name, text in conf.items() if name in " ".join(command)}
        return str((command, service.environment(world), named))

    return everything


OTHER = {
    "embedded": False,
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


STOREFRONT = {row.name for row in client.INSTANCES}  # they read the params file by themselves


@pytest.mark.parametrize("name", sorted(STOREFRONT))
def test_a_service_of_the_storefront_is_started_anew_where_kafka_or_its_store_is_another(name):
    service, world = services.SERVICES[name], params.load("local")
    for other in variants(world):
        now = service.fingerprint(other) != service.fingerprint(world)
        host = [
            (w.kafka, w.postgres.host, w.postgres.port, w.stack.port_base) for w in (world, other)
        ]
        assert now == (host[0] != host[1]), other


@pytest.mark.parametrize("name", sorted({*services.SERVICES} - STOREFRONT))
def test_the_fingerprint_differs_when_what_it_is_started_with_differs(written, name):
    """`settings` and `command` agree, for every value of a params file."""
    service, world = services.SERVICES[name], params.load("s3" if name == "s3" else "local")
    tls.ensure()
    before = written(service, world), service.fingerprint(world)
    changed = 0
    for other in variants(world):
        now = written(service, other), service.fingerprint(other)
        assert (now[0] == before[0]) == (now[1] == before[1]), other
        changed += now[0] != before[0]
    assert changed


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
    databases.Postgres().initialize(params.load("local"))
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


def test_a_failed_initialization_reports_only_stderr(tmp_path, monkeypatch):
    """The progress on stdout is longer than the end of the output that an error has."""
    monkeypatch.setattr(paths, "VAR_DIR", tmp_path)
    monkeypatch.setattr(databases, "as_nobody", lambda command: command)
    noise = "creating subdirectories ... ok\n" * 40
    script = f"echo 'the cause' >&2; echo '{noise}'; exit 1"
    with pytest.raises(StackError, match="sh failed") as error:
        databases._init_data_dir("db", "MARK", lambda folder: ["sh", "-c", script], "")
    assert error.value.location == "the cause"


def test_root_whose_initialization_fails_is_told_the_capabilities(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "VAR_DIR", tmp_path)
    monkeypatch.setattr(databases.os, "geteuid", lambda: 0)
    monkeypatch.setattr(databases.os, "chown", lambda *arguments: None)
    monkeypatch.setattr(databases, "as_nobody", lambda command: command)
    monkeypatch.setattr(databases, "_traversal_capability", lambda: "dac_override")
    with pytest.raises(StackError, match="false failed") as error:
        databases._init_data_dir("db", "MARK", lambda folder: ["false"], "")
    assert "--cap-add=DAC_OVERRIDE --cap-add=SETPCAP" in error.value.hint


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


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"pid": "x", "started_ticks": 1}', '{"pid": 1, "started_ticks": null}'],
)
def test_a_damaged_pid_file_is_no_process(make, text):
    web = make()
    note()
    pidfiles.pid_file("web").write_text(text)
    assert process.running_process("web") is None and process.start(web, WORLD) == "started"


def test_a_service_gets_no_secret_of_ours_and_its_mark(make, monkeypatch):
    monkeypatch.setenv("WORKBENCH_SECRET_POSTGRES_ADMIN", "canary")
    for name in ("JAVA_TOOL_OPTIONS", "SPARK_REMOTE", "PGDATA", "PYTHONPATH"):
        monkeypatch.setenv(name, "canary")
    monkeypatch.setenv("http_proxy", "http://proxy.example:3128")
    web = make()
    process.start(web, WORLD)
    environment = process.running_process("web").environ()
    assert (
        "canary" not in str(environment)
        and environment[process.SERVICE_ID_ENV] == f"{paths.state_dir()}:web"
    )
    assert "127.0.0.1" in environment["no_proxy"] and environment["http_proxy"], (
        "a proxy is for others, never for loopback"
    )


def test_a_service_that_is_lost_is_told_with_its_state(make, monkeypatch):
    web = make()
    address = f"http://127.0.0.1:{port_of(web)}"
    local, aws = params.load("local"), on_aws.world()
    monkeypatch.setattr(services, "SERVICES", {"web": web})
    assert stack.service_down_error(local, "web", "10.0.0.1:80") is None, "none of ours"
    assert stack.service_down_error(aws, "web", address) is None, "nor what a tunnel leads to"
    assert "the service web is stopped" in str(stack.service_down_error(local, "web"))
    process.start(web, WORLD)
    assert stack.service_down_error(local, "web", address) is None
    leader = process.running_process("web")
    leader.kill()
    wait_until(lambda: not pidfiles.is_alive(leader), "its end")
    said = str(stack.service_down_error(local, "web", address))
    assert "the service web died" in said and "web.log" in said and "workbench up" in said
    process.stop("web")
    mute = make("mute", timeout=1)
    with pytest.raises(StackError):
        process.start(mute, WORLD)
    assert "does not listen" in str(stack.service_down_error(local, "web", address))
    threading.Timer(0.1, process.running_process("web").kill).start()  # it ends after its ports
    assert "the service web died" in str(stack.service_down_error(local, "web", address))


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
    world, connect = params.load("local"), services.SERVICES["connect"]
    monkeypatch.setattr(paths, "VAR_DIR", tmp_path)
    tls.ensure()

    def seen():
        command = connect.command(world)  # writes the worker's configuration
        conf = next(
            Path(part) for part in command if part.endswith("connect.properties")
        ).read_text()
        names = {link.name for link in connect.prepare_plugin_path().iterdir()}
        return "hybrid_warn" in conf, names, connect.fingerprint(world)

    without = seen()
    assert without[:2] == (False, {"converter", "debezium", "filestream"})
    (tmp_path / "plugins" / "jdbc").mkdir(parents=True)
    (tmp_path / "plugins" / "notes.txt").touch()
    with_it = seen()
    assert with_it[:2] == (True, {*without[1], "own-jdbc"}) and with_it[2] != without[2]
    (tmp_path / "plugins" / "jdbc").rmdir()
    assert seen() == without, "and it goes again"


def test_connect_comes_with_the_services_on_demand_that_this_instance_has_run(make, monkeypatch):
    """Without them the tasks of a deployed connector would fail after a restart."""
    world, started = params.load("local"), []
    monkeypatch.setattr(
        process, "start", lambda service, world: started.append(service.name) or "started"
    )
    for needed in ("mariadb", "apicurio"):
        started.clear()
        process.data_dir(needed)
        lifecycle._start(world, ["connect"])
        assert sorted(started) == sorted(["connect", "kafka", "postgres", needed])
        shutil.rmtree(paths.state_dir() / "data" / needed)
        lifecycle._start(world, ["kafka"])
        assert started.pop() == "kafka" and needed in started


def test_a_pid_file_that_may_not_be_read_is_not_one_that_is_absent(tmp_path, monkeypatch):
    """Else services of another user (after one `sudo make`) would be listed as stopped."""

    def refused(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied")

    assert pidfiles.read("none") == {}
    monkeypatch.setattr(Path, "read_text", refused)
    with pytest.raises(PermissionError):
        pidfiles.read("kafka")
