"""Execute one notebook on an EMR cluster with EMR's StartNotebookExecution (without EMR Studio)."""

import json
import time
from pathlib import Path
from typing import Any

import nbformat

from ..base import StackError, World, aws, files, paths
from . import notebooks
from .execute import ExecutionResult

START_TEMPLATE = Path(__file__).with_name("start_notebook_execution.yaml")
FINAL_STATES = {"FINISHED", "FAILED", "STOPPED"}


def execute_notebook(
    world: World, path: Path, values: dict[str, Any], timeout: float = 600
) -> ExecutionResult:
    """Execute a notebook that `deploy/publish.sh` has uploaded to the bucket.

    Args:
        world: the world.
        path: the notebook.
        values: {parameter: value}, injected below the parameters cell.
        timeout: seconds for the whole notebook.

    Returns:
        The result, like that of `execute.execute_notebook`, but without the last cell.

    Raises:
        StackError: AWS rejects the request, or there is no running cluster.
    """
    bucket, name = paths.parse_s3_uri(world.lake.root)[0], notebooks.name(path)
    output = f"runs/{int(time.time())}/{name}"
    execution = _start_execution(world, bucket, name, output, values)
    result = ExecutionResult(nbformat.read(path, as_version=4))
    try:
        final = aws.wait(
            lambda: _final_execution(world, execution),
            f"{name} on the cluster",
            timeout=timeout,
            interval=5,
        )
        if final["Status"] != "FINISHED":
            reason = final.get("LastStateChangeReason") or "no reason"
            result.reason = f"EMR reports {final['Status']}: {reason}"
    except KeyboardInterrupt:
        result.interrupted, result.reason = True, "stopped by the user"
    except StackError as e:
        if e.__cause__:  # AWS rejected the request: the state of the notebook is not known
            raise
        result.reason = f"the notebook took longer than {timeout:g} s and was ended: {e}"
    if result.reason and not _final_execution(world, execution):
        aws.call(world.region, "emr", "stop_notebook_execution", NotebookExecutionId=execution)
    text = files.read_text(f"s3://{bucket}/{output}")
    if text:
        result.notebook = nbformat.reads(text, as_version=4)
    elif not result.reason:
        result.reason = f"EMR wrote no notebook to s3://{bucket}/{output}"
    return result


def find_cluster(world: World) -> list[str]:
    """Return the ids of a deployment's cluster, of the role of its notebooks, and of both security groups.

    Raises:
        StackError: the world has no deployment, or this has no cluster.
    """
    names = "emr/cluster", "emr/notebook_role", "emr/cluster_group", "emr/notebook_group"
    return [aws.parameter(world.region, world.stack.deployment, name) for name in names]


def _start_execution(
    world: World, bucket: str, name: str, output: str, values: dict[str, Any]
) -> str:
    """Start the execution of a published notebook; return its id."""
    cluster, role, cluster_group, notebook_group = find_cluster(world)
    request = aws.fill(
        START_TEMPLATE,
        deployment=world.stack.deployment,
        tag=aws.DEPLOYMENT_TAG,
        name=name,
        bucket=bucket,
        output=output,
        values=json.dumps(json.dumps(values)),
        cluster=cluster,
        cluster_group=cluster_group,
        notebook_group=notebook_group,
        role=role,
    )
    try:
        execution = aws.call(world.region, "emr", "start_notebook_execution", **request)
    except StackError as e:
        if aws.error_code(e) not in ("ValidationException", "InvalidRequestException"):
            raise
        raise StackError(
            f"the cluster accepts no notebook: {e.message}",
            location=cluster,
            hint="an idle cluster terminates; create another one: "
            "`deploy/up.sh emr schedule -p Generation=<one more than last time>`",
        ) from e
    return str(execution["NotebookExecutionId"])


def _final_execution(world: World, execution_id: str) -> dict[str, Any]:
    """Return EMR's description of an execution that has ended, {} if it has not ended."""
    execution = aws.call(
        world.region, "emr", "describe_notebook_execution", NotebookExecutionId=execution_id
    )["NotebookExecution"]
    return execution if execution["Status"] in FINAL_STATES else {}
