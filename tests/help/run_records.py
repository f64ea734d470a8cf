"""Records of runs without notebooks, and the command `workbench runs`."""

import datetime as dt
import json

from typer.testing import CliRunner
from workbench.base import paths
from workbench.cli.main import app

NOTEBOOK = {"path": "10_outbox/11_a.ipynb", "title": "A", "promise": "It is tried."}


def runs_folder(tmp_path, monkeypatch):
    """A folder for the runs of a test."""
    monkeypatch.setattr(paths, "VAR_DIR", tmp_path / "var")
    monkeypatch.setenv("WORKBENCH_RUNS", str(tmp_path / "runs"))
    return tmp_path / "runs"


def record(runs, name, status="passed", hours_ago=0, **values):
    """Write the record of a run."""
    started = dt.datetime.now().astimezone() - dt.timedelta(hours=hours_ago)
    content = {
        "status": status,
        "instance": "main",
        "world": name.rpartition("-")[2],
        "describe": "",
        "targets": [],
        "parameters": {},
        "started": started.isoformat(timespec="seconds"),
        "commit": None,
        "versions": {},
        "world_values": [],
        "notebooks": [{**NOTEBOOK, "status": status, "seconds": 3.2}],
        **values,
    }
    folder = runs / name
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


def workbench(*arguments):
    return CliRunner().invoke(app, ["runs", *map(str, arguments)])
