"""The findings of the doctor about replication slots, without a server."""

import pandas as pd
import pytest
from workbench.base import params
from workbench.base.errors import SourceError
from workbench.source import capture_health, postgres

WORLD = params.load("local")
COLUMNS = ["slot_name", "database", "active", "wal_status", "bytes_behind"]


@pytest.mark.parametrize(
    "active, status, mib, detail, says",
    [
        (True, "reserved", 255, "active, the server retains 255.0 MiB of log for it", ""),
        (False, "reserved", 0, "inactive, the server retains 0.0 MiB of log for it", ""),
        (True, "extended", 256, "active, the server retains 256.0 MiB", "heartbeat.action.query"),
        (False, "extended", 300, "inactive, the server", "drop_slot(world, 'b', 'one')"),
        (False, "lost", 0, "has removed log", "needs a new snapshot"),
    ],
)
def test_a_slot_that_retains_much_is_a_warning_with_what_to_do(
    monkeypatch, active, status, mib, detail, says
):
    slots = pd.DataFrame([("b", "one", active, status, mib << 20)], columns=COLUMNS)
    monkeypatch.setattr(postgres, "all_slots", lambda _: slots)
    [finding] = capture_health.examine(WORLD)
    assert finding.subject == "replication slot b (database one)" and detail in finding.detail
    assert finding.level == ("warning" if says else "ok") and says in finding.remedy


def test_a_server_that_runs_and_does_not_answer_is_named_and_one_that_is_stopped_is_no_finding(
    monkeypatch,
):
    def refused(_):
        raise SourceError("cannot connect to PostgreSQL")

    monkeypatch.setattr(postgres, "all_slots", refused)
    assert capture_health.examine(WORLD) == []
    monkeypatch.setattr(capture_health.stack, "running", lambda: ["postgres"])
    [finding] = capture_health.examine(WORLD)
    assert finding.detail == "cannot be read: cannot connect to PostgreSQL"
    assert finding.level == "warning"
