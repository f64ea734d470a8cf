"""The schedules in deploy/, each read as its scheduler reads it. (EventBridge: test_deploy.py.)"""

import configparser
import re
import runpy
import shlex
import sys
import types
from unittest import mock

import jinja2
import nbformat
import pytest
from typer.main import get_command
from workbench.base.paths import ROOT
from workbench.cli import main as cli
from workbench.run import notebooks

pytestmark = pytest.mark.aws

DEPLOY = ROOT / "deploy"
PAGE = (DEPLOY / "schedules.md").read_text(encoding="utf-8")


class Operator(types.SimpleNamespace):
    """A PapermillOperator: a task knows its successors."""

    def __init__(self, *, task_id, input_nb, output_nb, parameters, **kernel):
        super().__init__(
            task_id=task_id, input_nb=input_nb, output_nb=output_nb, parameters=parameters
        )
        self.kernel, self.after = kernel, []
        TASKS.append(self)

    def __rshift__(self, other):
        self.after.append(other)
        return other


TASKS = []


@pytest.fixture
def dag(monkeypatch):
    """The arguments of the DAG, its tasks, and the function that logs a failure."""
    TASKS.clear()
    make_dag = mock.MagicMock()
    name = "airflow.providers.papermill.operators.papermill"
    for number in range(1, 4):
        monkeypatch.setitem(sys.modules, name.rsplit(".", number)[0], types.ModuleType("stub"))
    monkeypatch.setitem(sys.modules, "airflow", types.SimpleNamespace(DAG=make_dag))
    monkeypatch.setitem(sys.modules, name, types.SimpleNamespace(PapermillOperator=Operator))
    monkeypatch.setenv("WORKBENCH_ROOT", str(ROOT))
    monkeypatch.setenv("WORKBENCH_AIRFLOW_RUNS", "s3://lake/runs/airflow")
    monkeypatch.setenv("WORKBENCH_TRACK", "50_time_travel")
    log_failure = runpy.run_path(str(DEPLOY / "airflow_dag.py"))["log_failure"]
    given = make_dag.call_args.kwargs
    return types.SimpleNamespace(tasks=TASKS, given=given, log_failure=log_failure)


def test_airflow_runs_the_notebooks_of_a_track_one_after_another(dag):
    assert [t.input_nb for t in dag.tasks] == list(map(str, notebooks.find(["50_time_travel"])))
    assert [t.after for t in dag.tasks] == [[t] for t in dag.tasks[1:]] + [[]]
    kernel = {"kernel_name": "python3", "language_name": "python"}
    assert all(t.kernel == kernel for t in dag.tasks)


def test_what_airflow_fills_in_is_known_and_declared_by_the_notebooks(dag):
    known = {"params": dag.given["params"], "ts_nodash": "20261123T020000"}
    fill = jinja2.Environment(undefined=jinja2.StrictUndefined).from_string
    first = dag.tasks[0]
    assert (
        fill(first.output_nb).render(known)
        == "s3://lake/runs/airflow/20261123T020000/50_time_travel/51_source_database.ipynb"
    )
    for task in dag.tasks:
        given = {k: fill(v).render(known) for k, v in task.parameters.items()}
        declared = notebooks.declared_parameters(
            nbformat.read(task.input_nb, as_version=4), task.task_id
        )
        assert given == {"world": "aws"} and set(given) <= set(declared)


def test_airflow_tells_a_failure_and_never_runs_two_at_once(dag, caplog):
    assert (dag.given["max_active_runs"], dag.given["catchup"]) == (1, False)
    assert dag.given["default_args"]["on_failure_callback"] is dag.log_failure
    dag.log_failure(
        {
            "task_instance": types.SimpleNamespace(
                task_id="11", task=types.SimpleNamespace(output_nb="s3://x")
            )
        }
    )
    assert "notebook 11 failed" in caplog.text and "s3://x" in caplog.text


def unit(name):
    read = configparser.ConfigParser(interpolation=None, strict=True)
    read.optionxform = str
    read.read_string((DEPLOY / name).read_text(encoding="utf-8"))
    return read


def parsed(words):
    """Parse the command of a schedule; exit if the command line does not accept it."""
    assert words[0].endswith(".venv/bin/workbench") and words[1] == "run"
    command = get_command(cli.app).commands["run"]
    with command.make_context("run", words[2:]) as context:
        return context.params


def test_systemd_starts_a_run_as_a_person_would(tmp_path):
    service, timer = unit("workbench.service"), unit("workbench.timer")
    given = parsed(shlex.split(service["Service"]["ExecStart"]))
    assert (
        notebooks.find(given["targets"]) and (ROOT / "params" / f"{given['world']}.yaml").is_file()
    )
    assert service["Service"]["Type"] == "oneshot" and service["Service"]["User"] not in (
        "",
        "root",
    )
    assert re.fullmatch(r"\*-\*-\* \d\d:\d\d:\d\d", timer["Timer"]["OnCalendar"])
    assert timer["Install"]["WantedBy"] == "timers.target"
    told = service["Unit"]["OnFailure"]
    assert (DEPLOY / told).is_file() and "workbench.service" in unit(told)["Service"]["ExecStart"]


def test_cron_starts_the_same_run():
    text = (DEPLOY / "workbench.cron").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line[0] != "#" and "=" not in line.split()[0]]
    minute, hour, *any_day, user, command = lines[0].split(None, 6)
    assert (
        len(lines) == 1 and 0 <= int(minute) < 60 and 0 <= int(hour) < 24 and any_day == ["*"] * 3
    )
    assert user == unit("workbench.service")["Service"]["User"]
    assert "%" not in command, "cron ends a line there"
    run = re.search(r"\.venv/bin/workbench run [^&|]*", command)[0]
    assert parsed(shlex.split(run)) == parsed(
        shlex.split(unit("workbench.service")["Service"]["ExecStart"])
    )


def test_the_page_describes_each_of_them():
    for name in (
        "airflow_dag.py",
        "workbench.timer",
        "workbench.service",
        "workbench.cron",
        "8-schedule.yaml",
    ):
        assert name in PAGE, f"schedules.md says nothing of {name}"
        assert (DEPLOY / name).is_file()
    for way in ("EventBridge", "Airflow", "One machine"):
        part = re.search(rf"^## {way}.*?(?=^## |\Z)", PAGE, re.M | re.S)[0]
        for said in ("Parameters", "Report", "Exit code", "Failure"):
            assert f"**{said}**" in part, f"{way}: {said} is not said"
