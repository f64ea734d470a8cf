"""The findings of the doctor about slots and publications, without a server."""

import pandas as pd
import pytest
from workbench.base import params
from workbench.base.errors import SourceError
from workbench.source import capture_health, postgres

WORLD = params.load("local")
COLUMNS = ["slot_name", "database", "active", "wal_status", "bytes_behind"]


@pytest.fixture
def server(monkeypatch):
    """A maker of a server with these slots and publications of partitions."""

    def make(*slots, split=()):
        monkeypatch.setattr(postgres, "all_slots", lambda _: pd.DataFrame(slots, columns=COLUMNS))
        monkeypatch.setattr(postgres, "databases", lambda _: ["template0", "one"])

        def split_roots(_, database):
            if database == "template0":
                raise SourceError("not accepting connections")
            return pd.DataFrame(split, columns=["publication", "table"])

        monkeypatch.setattr(postgres, "tables_published_by_partition", split_roots)
        return capture_health.examine(WORLD)

    return make


def test_all_is_well(server):
    assert [(f.detail, f.level) for f in server()] == [
        ("0, each retains at most 0.0 MiB of log", "ok")
    ]
    (found,) = server(
        ("a", "one", True, "reserved", 3 << 20), ("b", "one", False, "reserved", 255 << 20)
    )
    assert (found.detail, found.level) == ("2, each retains at most 255.0 MiB of log", "ok")


@pytest.mark.parametrize(
    "active, status, says",
    [
        (True, "extended", "heartbeat.action.query"),
        (False, "extended", r"drop_slot\(world, 'b', 'one'\)"),
        (False, "lost", "needs a new snapshot"),
    ],
)
def test_a_slot_that_retains_much_is_named_with_what_to_do(server, active, status, says):
    (found,) = server(
        ("a", "one", True, "reserved", 0),
        ("b", "one", active, status, 0 if status == "lost" else 256 << 20),
    )
    assert found.subject == "replication slot b (database one)" and found.level == "warning"
    assert pd.Series([found.remedy]).str.contains(says).all(), found.remedy


def test_a_publication_of_partitions_is_named_once(server):
    found = [
        f for f in server(split=[("p", "public.a"), ("p", "public.b")]) if f.level == "warning"
    ]
    assert [f.subject for f in found] == [
        "publication p (database one)"
    ] and "public.a, public.b" in found[0].detail


def test_the_statement_that_mends_a_publication_quotes_its_name(server):
    (found,) = [
        f for f in server(split=[('p"; DROP TABLE t; --', "public.a")]) if f.level == "warning"
    ]
    assert 'ALTER PUBLICATION "p""; DROP TABLE t; --" SET (' in found.remedy


def test_a_server_that_runs_and_does_not_answer_is_named_and_one_that_is_stopped_is_no_finding(
    monkeypatch,
):
    def refused(_):
        raise SourceError("cannot connect to PostgreSQL")

    monkeypatch.setattr(postgres, "all_slots", refused)
    assert capture_health.examine(WORLD) == [] == capture_health.describe_slots(WORLD)
    monkeypatch.setattr(capture_health.stack, "running", lambda: ["postgres"])
    (found,) = capture_health.examine(WORLD)
    assert (found.detail, found.level) == (
        "cannot be read: cannot connect to PostgreSQL",
        "warning",
    )
    assert capture_health.describe_slots(WORLD) == [
        "replication slots cannot be read: cannot connect to PostgreSQL"
    ]
