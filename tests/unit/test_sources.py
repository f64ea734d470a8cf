"""Quoting names, and failing connections, without a server."""

import contextlib
import inspect
import re
import socketserver
import struct
import threading

import psycopg
import pytest
from workbench.base import params
from workbench.base.errors import SourceError, StackError
from workbench.base.paths import ROOT
from workbench.source import mariadb, postgres
from worlds import with_settings


@pytest.mark.parametrize(
    "name, expected",
    [
        ("orders", '"orders"'),
        ("datalake.orders", '"datalake"."orders"'),
        ('x"; DROP TABLE orders; --', '"x""; DROP TABLE orders; --"'),
    ],
)
def test_identifier(name, expected):
    assert postgres.identifier(name).as_string(None) == expected


@pytest.mark.parametrize("name", ["", ".", "a.", "a.b.c", "a\0b"])
def test_not_an_identifier(name):
    with pytest.raises(SourceError):
        postgres.identifier(name)


def test_unreachable_server(monkeypatch):
    monkeypatch.setenv("WORKBENCH_PORT_BASE", "1999")  # nobody listens there
    monkeypatch.setenv("WORKBENCH_SECRET_POSTGRES_ADMIN", "canary-1f7a")
    with pytest.raises(StackError, match="(?s)the service postgres is stopped.*workbench up") as e:
        postgres.connect(params.load("local"))
    assert "canary" not in str(e.value)


def test_a_permission_that_is_missing_is_no_wrong_address_or_password(monkeypatch):
    def deny(**options):
        raise psycopg.OperationalError('permission denied for database "d"')

    monkeypatch.setattr(psycopg, "connect", deny)
    monkeypatch.setenv("WORKBENCH_SECRET_POSTGRES_ADMIN", "x")
    with pytest.raises(SourceError, match="permission denied") as e:
        postgres.connect(with_settings(params.load("local"), postgres={"managed": False}))
    assert e.value.hint == ""


def test_each_engine_has_the_functions_that_a_flow_calls_and_the_docs_name():
    calls = (
        re.findall(r"\bdb\.(\w+)", path.read_text(encoding="utf-8"))
        for path in (ROOT / "lib/workbench").rglob("*.py")
    )
    text = (ROOT / "docs/extending.md").read_text(encoding="utf-8")
    sentence = re.search(r"with its functions (.*?), and the same parameters", text, re.S)[1]
    assert set(re.findall(r"`(\w+)`", sentence)) == set().union(*calls)
    for name in set().union(*calls):
        first, second = (inspect.signature(getattr(e, name)) for e in (mariadb, postgres))
        assert [*first.parameters] == [*second.parameters], name


def test_unknown_role():
    with pytest.raises(SourceError, match="admin or replication"):
        postgres.connect(params.load("local"), role="root")


class CleartextPostgres(socketserver.BaseRequestHandler):
    """Asks for the password as plain text (PostgreSQL's protocol 3.0); keeps what comes."""

    def handle(self):
        while True:
            size, code = struct.unpack("!ii", self.request.recv(8))
            if code in (80877103, 80877104):  # TLS or GSSAPI
                self.request.sendall(b"N")
                continue
            self.request.recv(size - 8)
            break
        self.request.sendall(b"R" + struct.pack("!ii", 8, 3))
        self.server.received += self.request.recv(1000)


class CleartextMariadb(socketserver.BaseRequestHandler):
    """Switches to the plugin of its server (the protocol of MySQL); keeps what comes."""

    def handle(self):
        plugin = self.server.plugin
        salt = b"12345678"
        greeting = b"\x0a10.11\0" + struct.pack("<I", 1) + salt + b"\0"
        greeting += struct.pack("<HBHH", 0xF7FF, 45, 2, 0x001F | 0x0008) + bytes([21]) + bytes(10)
        greeting += b"123456789012\0" + b"mysql_native_password\0"
        self._send(0, greeting)
        self.request.recv(1000)
        self._send(2, b"\xfe" + plugin + b"\0" + b"\x04Password: ")
        with contextlib.suppress(OSError):
            self.server.received += self.request.recv(1000)

    def _send(self, number, payload):
        self.request.sendall(struct.pack("<I", len(payload))[:3] + bytes([number]) + payload)


@pytest.mark.parametrize(
    "handler, plugin, says",
    [
        (CleartextPostgres, b"", "require_auth|!password"),
        (CleartextMariadb, b"mysql_clear_password", "as plain text: set ssl: verify-full"),
        (CleartextMariadb, b"dialog", "as plain text: set ssl: verify-full"),
    ],
)
def test_no_server_gets_a_password_as_plain_text(monkeypatch, handler, plugin, says):
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler)
    server.received, server.plugin = b"", plugin
    threading.Thread(target=server.serve_forever, daemon=True).start()
    engine = postgres if handler is CleartextPostgres else mariadb
    section = "postgres" if engine is postgres else "mysql"
    monkeypatch.setenv(f"WORKBENCH_SECRET_{section.upper()}_ADMIN", "canary-1f7a")
    address = {"managed": False, "host": "127.0.0.1", "port": server.server_address[1]}
    with pytest.raises(SourceError, match=says):
        engine.connect(with_settings(params.load("local"), **{section: address}))
    server.shutdown()
    server.server_close()
    assert b"canary" not in server.received
