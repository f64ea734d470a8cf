"""The history of runs, on records without notebooks."""

import datetime as dt
import json
import os
import shutil

import pytest
from run_records import NOTEBOOK, record, runs_folder, workbench
from workbench.base import paths, wait
from workbench.run import history

runs = pytest.fixture(runs_folder)


def test_the_newest_run_is_first_and_a_filter_leaves_the_others_out(runs):
    record(runs, "20260101-030000-local", "failed")
    record(runs, "20260102-030000-aws")
    record(runs, "20260103-030000-local")
    (runs / "notes").mkdir()
    listed = [line.split()[:2] for line in workbench().stdout.splitlines()]
    assert listed == [
        ["20260103-030000-local", "passed:"],
        ["20260102-030000-aws", "passed:"],
        ["20260101-030000-local", "failed:"],
    ]
    assert workbench("--world", "aws").stdout.startswith("20260102-030000-aws")
    assert len(workbench("--world", "aws").stdout.splitlines()) == 1
    assert "10_outbox/11_a.ipynb, in 3 s" in workbench("--notebook", "11_a").stdout
    assert len(workbench("--limit", 2).stdout.splitlines()) == 2
    assert workbench("--notebook", "12_b").stdout == "there are no such runs\n"


def statuses():
    return [each.status for each in history.records()]


def test_a_run_whose_process_is_gone_is_lost(runs):
    """Also if another run of the instance is active, and if an older version wrote the record."""
    record(runs, "20260101-030000-local", "running", pid=str(os.getpid()))
    record(runs, "20260102-030000-local", "running", pid="4194304")
    record(runs, "20260103-030000-local", "running")
    assert statuses() == ["lost", "lost", "lost"]
    lock = paths.VAR_DIR / "instances/main/run.lock"
    lock.parent.mkdir(parents=True)
    with wait.file_lock(lock, lambda pid: AssertionError(pid)):
        assert statuses() == ["lost", "lost", "running"]
        assert "lost: 10_outbox/11_a.ipynb" in workbench("--notebook", "11_a").stdout


@pytest.mark.parametrize("content", [None, "", '{"status": ', "[1]", '{"status": "passed"}'])
def test_a_damaged_record_has_a_line_and_hides_no_other(runs, content):
    record(runs, "20260101-030000-local")
    damaged = runs / "20260102-030000-local"
    damaged.mkdir()
    if content is not None:
        (damaged / "run.json").write_text(content, encoding="utf-8")
    assert statuses() == ["damaged", "passed"]
    first, second = workbench().stdout.splitlines()
    assert first.startswith("20260102-030000-local  no record of a run")
    assert second.startswith("20260101-030000-local  passed")
    assert workbench("--max-age", "1h", "--notebook", "11_a").exit_code == 0


@pytest.mark.parametrize(
    ("status", "hours_ago", "young"),
    [("passed", 25, True), ("passed", 27, False), ("failed", 1, False), ("running", 1, False)],
)
def test_only_a_young_run_that_passed_is_one(runs, status, hours_ago, young):
    record(runs, "20260101-030000-local", status, hours_ago)
    assert (workbench("--max-age", "26h", "--notebook", "11_a").exit_code == 0) == young
    assert workbench("--max-age", "26h", "--notebook", "11_a", "--world", "aws").exit_code == 1
    assert workbench("--max-age", "26h", "--notebook", "12_b").exit_code == 1


@pytest.mark.parametrize(
    "arguments", [("26", "--notebook", "11_a"), ("", "--notebook", "11_a"), ("-1h",), ("26h",)]
)
def test_an_age_that_is_none_is_wrong_usage(runs, arguments):
    assert workbench("--max-age", *arguments).exit_code == 2


@pytest.mark.parametrize("started", ["yesterday", "2026-01-02T03:00:00"])
def test_a_record_without_an_instant_is_damaged(runs, started):
    record(runs, "20260101-030000-local")
    damaged = record(runs, "20260102-030000-local") / "run.json"
    damaged.write_text(json.dumps({**json.loads(damaged.read_text()), "started": started}))
    assert workbench().stdout.startswith("20260102-030000-local  no record of a run")
    assert workbench("--max-age", "1h", "--notebook", "11_a").exit_code == 0


def test_only_folders_are_runs(runs):
    runs.mkdir(exist_ok=True)
    (runs / "20260101-030000-local.zip").touch()
    assert workbench().stdout == "there are no such runs\n"


def test_a_thousand_runs_are_listed_within_a_second(runs):
    notebooks = [{**NOTEBOOK, "checks": [{"ok": True, "what": "x" * 80}] * 100}] * 4
    first = record(runs, "20260101-000000-local", notebooks=notebooks) / "run.json"
    for number in range(1, 1000):
        folder = runs / f"20260101-{number:06}-local"
        folder.mkdir()
        shutil.copy(first, folder)
    start = dt.datetime.now()
    assert len(workbench().stdout.splitlines()) == 50
    assert (dt.datetime.now() - start).total_seconds() < 1
