"""One notebook, executed on an EMR cluster without anybody's Studio open (EMR's
StartNotebookExecution).
"""

import json
import time
from pathlib import Path
from typing import Any

import nbformat

from ..base import StackError, World, aws, files, paths
from ..spark import emr
from . import notebooks
from .execute import ExecutionResult

# of a deployment's parameters: `workbench aws up emr studio`
REQUIRED_PARAMETERS = (
    "emr/cluster",
    "emr/notebook_role",
    "emr/cluster_group",
    "emr/notebook_group",
)
FINAL_STATES = {"FINISHED", "FAILED", "STOPPED"}


def execute_notebook(
    world: World, path: Path, values: dict[str, Any], timeout: float = 600
) -> ExecutionResult:
    """Execute a notebook that `workbench aws publish` has put into the bucket; as
    `execute.execute_notebook`, but that nothing is told of its cells meanwhile.

    Raises: StackError: AWS refuses to start it, or there is no cluster, or it has ended.
    """
    cluster, role, cluster_group, notebook_group = (
        aws.parameter(world.region, world.stack.deployment, name) for name in REQUIRED_PARAMETERS
    )
    bucket, name = paths.parse_s3_uri(world.lake.root)[0], notebooks.name(path)
    output = f"runs/{int(time.time())}/{name}"
    with emr.submitting_to(cluster, "notebook"):
        started = aws.call(
            world.region,
            "emr",
            "start_notebook_execution",
            NotebookExecutionName=f"{world.stack.deployment} {name}",
            NotebookS3Location={"Bucket": bucket, "Key": f"workbench/notebooks/{name}"},
            OutputNotebookS3Location={"Bucket": bucket, "Key": output},
            NotebookParams=json.dumps(values),
            # given, for EMR else takes default groups: the studio's role makes none, and no
            # template would remove them
            ExecutionEngine={
                "Id": cluster,
                "Type": "EMR",
                "MasterInstanceSecurityGroupId": cluster_group,
            },
            NotebookInstanceSecurityGroupId=notebook_group,
            ServiceRole=role,
            Tags=[{"Key": aws.DEPLOYMENT_TAG, "Value": world.stack.deployment}],
        )["NotebookExecutionId"]
    done = ExecutionResult(nbformat.read(path, as_version=4))
    try:
        last = aws.wait(
            lambda: _final_execution(world, started),
            f"{name} on the cluster",
            timeout=timeout,
            interval=5,
        )
        if last["Status"] != "FINISHED":
            done.reason = (
                f"EMR says {last['Status']}: {last.get('LastStateChangeReason') or 'no reason'}"
            )
    except KeyboardInterrupt:
        done.interrupted, done.reason = True, "stopped by the user"
    except StackError as e:
        if e.__cause__:  # AWS has refused the question: what became of the notebook is not known
            raise
        done.reason = f"the notebook took longer than {timeout:g} s and was ended: {e}"
    if done.reason and not _final_execution(world, started):
        aws.call(world.region, "emr", "stop_notebook_execution", NotebookExecutionId=started)
    text = files.read_text(f"s3://{bucket}/{output}")
    if text:
        done.notebook = nbformat.reads(text, as_version=4)
    elif not done.reason:
        done.reason = f"EMR has left no notebook at s3://{bucket}/{output}"
    return done


def _final_execution(world: World, execution: str) -> dict[str, Any]:
    """What EMR says of an execution that is over, {} of one that is not."""
    found = aws.call(
        world.region, "emr", "describe_notebook_execution", NotebookExecutionId=execution
    )
    return (
        found["NotebookExecution"] if found["NotebookExecution"]["Status"] in FINAL_STATES else {}
    )
