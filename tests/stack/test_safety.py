"""Nothing listens outside this machine, and no secret stands anywhere but in its own file."""

import contextlib
import socket
import socketserver
import ssl
import stat
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import instance
import psutil
import pytest
import requests
import web_page
from workbench import connect, stack
from workbench.base import paths, secrets, tls
from workbench.base.wait import wait_until
from workbench.source import mariadb, postgres
from workbench.spark import session
from workbench.stack import process, services

LOOPBACK = {"127.0.0.1", "::1", "::ffff:127.0.0.1"}


def family():
    """Every process of this instance's services, with all they started."""
    found = {}
    for name in stack.running():
        leader = process.running_process(name)
        found.update({p.pid: p for p in [leader, *leader.children(recursive=True)]})
    found.update({p.pid: p for p, _ in instance.find_service_processes(f"{paths.state_dir()}:")})
    return list(found.values())


@pytest.fixture(scope="module")
def busy(world):
    """The stack with everything of it at work: the registry, connectors with passwords, a Python
    worker in Spark."""
    stack.ensure_running(world, *services.ON_DEMAND_SERVICES)
    mariadb.create_database(world, "sampledatabase")
    mariadb.grant_replication(world, ["sampledatabase.movies"])
    connect.apply(world, "movies_source", connect.config(world, "movies_source"))
    connect.wait_running(world, "movies_source")
    postgres.execute(
        world, "CREATE TABLE IF NOT EXISTS canary (n int PRIMARY KEY)", database="postgres"
    )
    config = {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "tasks.max": "1",
        "plugin.name": "pgoutput",
        "topic.prefix": "canary",
        "database.hostname": world.postgres.host,
        "database.port": str(world.postgres.port),
        "database.dbname": "postgres",
        "slot.name": "canary",
        "database.user": world.postgres.admin_user,
        "table.include.list": "public.canary",
        "database.password": f"${{directory:{secrets.secrets_dir()}:postgres.admin}}",
    }
    url = f"{world.connect.url}/connectors/canary"
    requests.put(
        url + "/config", json=config, timeout=60, auth=world.connect.auth
    ).raise_for_status()
    running = '"state":"RUNNING"'
    wait_until(
        lambda: (
            requests.get(url + "/status", timeout=5, auth=world.connect.auth).text.count(running)
            == 2
        ),
        "the connector to run",
    )
    spark = session(world)
    same = spark.range(4).mapInPandas(lambda frames: frames, "id long")
    assert same.count() == 4
    yield world
    connect.delete(world, "movies_source")
    requests.delete(url, timeout=30, auth=world.connect.auth)
    with postgres.connect(world, database="postgres") as c:
        active = "SELECT 1 FROM pg_replication_slots WHERE active AND slot_name = 'canary'"
        wait_until(lambda: not c.execute(active).fetchone(), "the slot to rest")
        c.execute("SELECT pg_drop_replication_slot('canary')")
        c.execute("DROP TABLE canary")
    for name in services.ON_DEMAND_SERVICES:
        stack.stop(name)


@pytest.fixture
def passwords(busy):
    found = secrets.read()
    assert set(found) >= set(services.SECRETS) and all(len(v) >= 24 for v in found.values())
    return found


def listeners(p):
    """The listening sockets of one process as (address, port)."""
    return [
        (c.laddr.ip, c.laddr.port)
        for c in p.net_connections("inet")
        if c.status == psutil.CONN_LISTEN
    ]


def test_every_listener_is_on_loopback(busy):
    found = {}
    for p in family():
        with contextlib.suppress(psutil.NoSuchProcess):
            found.update({pair: p for pair in listeners(p)})
    ports = {port for _, port in found}
    assert {s.port for s in stack.status(busy)} <= ports, "the look missed a service"
    outside = {
        f"{ip}:{port}": " ".join(p.cmdline())[:100]
        for (ip, port), p in found.items()
        if ip not in LOOPBACK
    }
    assert outside == {}


def test_a_listener_outside_would_be_seen():
    """The look itself: a socket on every interface is found and is not loopback."""
    with socket.socket() as s:
        s.bind(("", 0))
        s.listen()
        found = dict((port, ip) for ip, port in listeners(psutil.Process()))
        assert found[s.getsockname()[1]] not in LOOPBACK


def test_no_secret_in_argv_or_environment(passwords):
    seen = 0
    for p in family():
        with contextlib.suppress(psutil.NoSuchProcess):
            text = "\0".join(p.cmdline()) + Path(f"/proc/{p.pid}/environ").read_bytes().decode(
                errors="replace"
            )
            seen += bool(text)
            assert not [n for n, v in passwords.items() if v in text], p
    assert seen >= 5


def files_below(folder):
    return [p for p in folder.rglob("*") if p.is_file() and not p.is_symlink()]


def holding(folder, values):
    """Files below `folder` in which one of the texts stands."""
    needles = [v.encode() for v in values]
    found = []
    for path in files_below(folder):
        with contextlib.suppress(FileNotFoundError):
            content = path.read_bytes()
            found += [str(path.relative_to(folder))] if any(n in content for n in needles) else []
    return found


def test_only_the_files_of_secrets_hold_them(passwords):
    """Logs, configurations, pid files and the services' data: Connect's own topic, the database,
    the checkpoints."""
    found = set(holding(paths.state_dir(), passwords.values()))
    assert found == {f"secrets/{n}" for n in (*services.SECRETS, ".users", ".aws")}
    modes = {stat.S_IMODE(file.stat().st_mode) for file in secrets.secrets_dir().iterdir()}
    assert modes == {0o600}, [oct(mode) for mode in modes]
    assert (
        len(files_below(paths.state_dir() / "log")) >= 5
        and len(files_below(paths.state_dir() / "conf")) >= 3
    )


def test_a_planted_secret_would_be_found(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "x.log").write_text("password=canary-value\n")
    assert holding(tmp_path, ["canary-value"]) == ["deep/x.log"]


def test_connect_shows_references_only(busy, passwords):
    base = f"{busy.connect.url}/connectors"
    for url in (
        base,
        f"{base}?expand=info&expand=status",
        f"{base}/canary/config",
        f"{base}/canary/tasks",
    ):
        text = requests.get(url, timeout=10, auth=busy.connect.auth).text
        assert "canary" in text and not [n for n, v in passwords.items() if v in text], url
    config = requests.get(f"{base}/canary/config", timeout=10, auth=busy.connect.auth).json()
    assert config["database.password"].startswith("${directory:")


def test_a_connector_cannot_read_other_files(busy):
    """The worker resolves references to the folder of secrets only, so a config cannot copy out a
    person's files."""
    config = {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "name": "thief",
        "topic.prefix": "${directory:/etc:os-release}",
        "database.hostname": "127.0.0.1",
    }
    url = f"{busy.connect.url}/connector-plugins/PostgresConnector/config/validate"
    answer = requests.put(url, json=config, timeout=60, auth=busy.connect.auth).text
    id = next(
        line for line in Path("/etc/os-release").read_text().splitlines() if line[:3] == "ID="
    )
    assert id.partition("=")[2].strip('"').lower() not in answer.lower()
    assert "/etc:os-release" in answer  # left as it was, or named as refused


def test_postgres_lets_nobody_in_without_the_password(busy):
    import psycopg

    p = busy.postgres
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(
            host=p.host, port=p.port, user=p.admin_user, password="guess", dbname="postgres"
        )


def test_a_web_page_of_another_name_gets_nothing_from_any_listener(busy, passwords):
    """DNS rebinding: its name resolves to 127.0.0.1, so the browser lets it send and read what it
    likes. Other worlds and services: test_listeners.py."""
    spoken, faults = web_page.check_listeners(
        family(), [*passwords.values(), "movies_source"], web_page.PAGES[:1]
    )
    assert spoken[services.split_host_port(busy.connect.url)[1]] == "HTTP"
    assert spoken[services.split_host_port(busy.registry.url)[1]] == "HTTPS"
    assert faults == {}
    assert connect.status(busy, "canary")["state"] == "RUNNING"


def test_a_page_that_is_let_in_and_a_listener_that_nobody_knows_would_be_seen():
    """The look itself."""
    with ThreadingHTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = server.server_address[1]
        assert web_page.detect_protocol(psutil.Process(), port) == "HTTP"
        assert ("GET", "/", 0, 200) in {
            fault[:4] for fault in web_page.find_accepted_requests(port, pages=web_page.PAGES[:1])
        }
        server.shutdown()
    # it closes each connection without a word: a listener that says nothing takes the time of each look
    mute = socketserver.ThreadingTCPServer(("127.0.0.1", 0), socketserver.BaseRequestHandler)
    with mute:
        threading.Thread(target=mute.serve_forever, daemon=True).start()
        with pytest.raises(AssertionError, match="unknown protocol at port"):
            web_page.detect_protocol(psutil.Process(), mute.server_address[1])
        mute.shutdown()


def test_a_browser_would_not_trust_the_registry(busy):
    with pytest.raises(requests.exceptions.SSLError):
        requests.get(busy.registry.url, timeout=10)
    context = ssl.create_default_context(cafile=tls.verify(busy.registry.url))
    for name, refused in (
        ("127.0.0.1", False),
        ("page.example", True),
    ):  # the certificate is for no other name
        with socket.create_connection(services.split_host_port(busy.registry.url), timeout=10) as s:
            with (
                pytest.raises(ssl.SSLCertVerificationError) if refused else contextlib.nullcontext()
            ):
                context.wrap_socket(s, server_hostname=name).close()
