"""Quoting names, and failing connections, without a server."""

import pytest
from workbench.base import params
from workbench.base.errors import SourceError, StackError
from workbench.source import postgres


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


def test_unknown_role():
    with pytest.raises(SourceError, match="admin or replication"):
        postgres.connect(params.load("local"), role="root")
