"""Notebooks executed on an EMR cluster: started, waited for, fetched, stopped."""

import datetime as dt

import nbformat
import on_aws
import pytest
import yaml
from workbench.base import aws, files, params, wait
from workbench.base.errors import ParamsError, StackError
from workbench.run import emr_notebook, execute, notebooks, runner

pytestmark = pytest.mark.aws

WORLD = on_aws.world()
(PATH,) = notebooks.find(["13_hudi_ingest"])
NAME = "10_outbox/13_hudi_ingest.ipynb"
CELL = nbformat.v4.new_code_cell(
    "1 + 1",
    execution_count=1,
    outputs=[nbformat.v4.new_output("execute_result", {"text/plain": "2"}, execution_count=1)],
)


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    monkeypatch.setattr(aws, "parameters", lambda *_: on_aws.PARAMETERS)
    monkeypatch.setattr(wait.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(emr_notebook.time, "time", lambda: 1767225600.5)


@pytest.fixture
def emr():
    with on_aws.stubbed_client("emr") as stub:
        yield stub


@pytest.fixture
def left(monkeypatch):
    """What EMR leaves in the bucket: {address: text}."""
    there = {}
    monkeypatch.setattr(files, "read_text", there.get)
    there[f"s3://workbench-lake/runs/1767225600/{NAME}"] = nbformat.writes(
        nbformat.v4.new_notebook(cells=[CELL])
    )
    return there


def expect_start(emr):
    # without the groups EMR makes some of its own in the network, which then cannot be removed
    request = yaml.safe_load(f"""
        NotebookExecutionName: workbench {NAME}
        NotebookParams: '{{"world": "aws"}}'
        NotebookS3Location: {{Bucket: workbench-lake, Key: workbench/notebooks/{NAME}}}
        OutputNotebookS3Location: {{Bucket: workbench-lake, Key: runs/1767225600/{NAME}}}
        ExecutionEngine: {{Id: j-1ABCDEFGHIJKL, Type: EMR, MasterInstanceSecurityGroupId: sg-2}}
        NotebookInstanceSecurityGroupId: sg-3
        ServiceRole: {on_aws.PARAMETERS["emr/notebook_role"]}
        Tags: [{{Key: "workbench:deployment", Value: workbench}}]
        """)
    emr.add_response("start_notebook_execution", {"NotebookExecutionId": "ex-1"}, request)


def expect_describe(emr, *states, reason=""):
    for state in states:
        emr.add_response(
            "describe_notebook_execution",
            {
                "NotebookExecution": {
                    "NotebookExecutionId": "ex-1",
                    "Status": state,
                    "LastStateChangeReason": reason,
                    "StartTime": dt.datetime(2026, 1, 1),
                }
            },
            {"NotebookExecutionId": "ex-1"},
        )


def test_it_is_waited_for_and_fetched(emr, left):
    expect_start(emr)
    expect_describe(emr, "START_PENDING", "RUNNING", "FINISHED")
    done = emr_notebook.execute_notebook(WORLD, PATH, {"world": "aws"})
    assert not done.reason and done.notebook.cells[0].outputs[0].data["text/plain"] == "2"


def test_what_fails_is_told_with_emrs_reason_and_the_cells_that_ran(emr, left):
    expect_start(emr)
    expect_describe(emr, "FAILED", "FAILED", reason="Kernel died")
    done = emr_notebook.execute_notebook(WORLD, PATH, {"world": "aws"})
    assert done.reason == "EMR reports FAILED: Kernel died" and len(done.notebook.cells) == 1


def test_after_its_time_it_is_stopped(emr, left):
    left.clear()
    expect_start(emr)
    expect_describe(emr, "RUNNING", "RUNNING")
    emr.add_response("stop_notebook_execution", {}, {"NotebookExecutionId": "ex-1"})
    done = emr_notebook.execute_notebook(WORLD, PATH, {"world": "aws"}, timeout=0)
    assert "longer than 0 s" in done.reason


def test_where_emr_leaves_nothing_it_is_said(emr, left):
    left.clear()
    expect_start(emr)
    expect_describe(emr, "FINISHED")
    done = emr_notebook.execute_notebook(WORLD, PATH, {"world": "aws"})
    assert done.reason == f"EMR wrote no notebook to s3://workbench-lake/runs/1767225600/{NAME}"


def test_a_run_there_has_its_report_and_exit_code_here(tmp_path, monkeypatch):
    monkeypatch.setenv("WORKBENCH_RUNS", str(tmp_path))
    spark = WORLD.spark.model_copy(update={"kind": "classic"})
    monkeypatch.setattr(params, "load", lambda name: WORLD.model_copy(update={"spark": spark}))
    asked = []

    def notebook(world, path, values, timeout):
        asked.append((path.stem, values))
        book = nbformat.v4.new_notebook(cells=[CELL])
        return execute.ExecutionResult(
            book, reason="EMR says FAILED: x" if "12" in path.stem else ""
        )

    monkeypatch.setattr(emr_notebook, "execute_notebook", notebook)
    result = runner.run(
        ["11_source_database", "12_connectors", "13_hudi_ingest"],
        "aws",
        {"scale": 1},
        progress=False,
        executor="emr-notebook",
    )
    assert [n.status for n in result.notebooks] == [
        "passed",
        "failed",
        "skipped",
    ] and result.exit_code == 1
    assert (
        asked[0] == ("11_source_database", {"world": "aws", "scale": 1}) and result.report.exists()
    )
    with pytest.raises(ParamsError, match="did you mean 'emr-notebook'"):
        runner.run([], "aws", executor="emr_notebook")


def test_a_login_that_expires_meanwhile_is_told_at_once(emr, left):
    expect_start(emr)
    expect_describe(emr, "RUNNING")
    emr.add_client_error("describe_notebook_execution", "ExpiredTokenException", "expired")
    with pytest.raises(StackError, match="credentials have expired"):
        emr_notebook.execute_notebook(WORLD, PATH, {"world": "aws"})


def test_a_cluster_that_has_ended_is_told(emr):
    emr.add_client_error(
        "start_notebook_execution", "InvalidRequestException", "Cluster is in state TERMINATED"
    )
    with pytest.raises(
        StackError, match="(?s)accepts no notebook: .*TERMINATED.*up.sh emr schedule -p Generation"
    ):
        emr_notebook.execute_notebook(WORLD, PATH, {})


def test_a_world_that_is_none_of_aws_is_told_before_a_run_begins(monkeypatch, tmp_path):
    monkeypatch.setenv("WORKBENCH_RUNS", str(tmp_path / "runs"))
    with pytest.raises(StackError, match="(?s)has no deployment on AWS.*--world aws"):
        runner.run(["00_start_here"], "local", executor="emr-notebook", progress=False)
    assert not (tmp_path / "runs").exists()
