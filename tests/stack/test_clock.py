"""One clock, whatever the machine's time zone is: a Spark of its own, started in one zone and then
in another."""

import datetime as dt
import json
import os
import shutil

import instance
import pytest
from lake_help import SCHEMA, change_record, new_table, table_content
from workbench import hudi, stack
from workbench.base import params, paths
from workbench.hudi import timeline
from workbench.spark import session
from workbench.stack import artifacts


@pytest.fixture
def alone():
    """World `local` in an instance of its own, nothing started."""
    artifacts.install()
    base = int(os.environ["WORKBENCH_PORT_BASE"]) + 120
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WORKBENCH_INSTANCE", "test-clock")
        patch.setenv("WORKBENCH_PORT_BASE", str(base))
        stack.down()
        shutil.rmtree(paths.state_dir(), ignore_errors=True)
        instance.stop_with_process(os.getpid(), remove=True)
        yield params.load("local")
        stack.down()
        shutil.rmtree(paths.state_dir(), ignore_errors=True)


@pytest.mark.drill  # two starts of Spark; tests/unit hold the settings
def test_commits_of_two_time_zones_are_in_order(alone, monkeypatch):
    """The first zone is ahead of UTC, the second behind: in local time the second commit would sort
    before the first.

    One table is made as before (LOCAL); it has to go on."""
    landed = paths.local_path(alone.lake.landing) / "clock"
    landed.mkdir(parents=True)
    tables = [
        new_table(alone, type="mor"),
        new_table(alone, extra={"hoodie.table.timeline.timezone": "LOCAL"}),
    ]
    began = dt.datetime.now(dt.timezone.utc)
    for number, zone in enumerate(("Asia/Kathmandu", "America/St_Johns")):
        monkeypatch.setenv("TZ", zone)
        stack.down()
        spark = session(alone)
        (landed / f"t-0-{number}.json").write_text(json.dumps(change_record(number, number)) + "\n")
        for table in tables:
            assert (
                hudi.ingest(spark, alone, hudi.Landed("clock"), table, schema=SCHEMA).upserts == 1
            )
            assert len(table_content(spark, table)) == number + 1
            hudi.label(alone, table, f"m{number}")
    for table in tables:
        done = [timeline.parse_instant(c.instant) for c in timeline.completed_actions(table)]
        assert (
            done == sorted(done) and began < done[0] and done[-1] < dt.datetime.now(dt.timezone.utc)
        )
        assert [hudi.as_of(spark, alone, table, label).count() for label in ("m0", "m1")] == [1, 2]
    assert [hudi.properties(t)["hoodie.table.timeline.timezone"] for t in tables] == [
        "UTC",
        "LOCAL",
    ]
    moment = (
        spark.sql("SELECT date_format(TIMESTAMP '2026-07-01 12:00:00 UTC', 'HH:mm') AS t")
        .collect()[0]
        .t
    )
    assert moment == "12:00"
    spark.stop()
