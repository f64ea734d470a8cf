"""Run a command of the workbench as a job on EMR Serverless.

The job runs deploy/jobs/ingest.py. `deploy/publish.sh` uploads this script to the bucket, and an
archive of the library with its packages, which Spark unpacks.
"""

import json
import math
import re
from functools import partial
from pathlib import Path
from typing import Any, Callable, Sequence

from ..base import StackError, World, aws
from ..base.paths import parse_s3_uri
from ..base.wait import stop_on_signal
from ..spark import emr

START_TEMPLATE = Path(__file__).with_name("start_job_run.yaml")
JOB_SCRIPT = "workbench/jobs/ingest.py"
GRACE_SECONDS = 120  # between cancellation and kill, for the end of the current batch
FINAL_STATES = ("SUCCESS", "FAILED", "CANCELLED")


def run(
    world: World,
    arguments: Sequence[str],
    *,
    continuous: bool = False,
    progress: Callable[[str], None] = print,
) -> int:
    """Run `workbench <arguments>` on EMR, and wait for its end. Ctrl-C and SIGTERM cancel the job.

    Args:
        world: the world.
        arguments: the arguments of the command.
        continuous: whether the job runs until it is cancelled; EMR Serverless restarts it after a
            failure (mode STREAMING).
        progress: called with each line for the user.

    Returns:
        The exit code: 0, or 130 if the job was canceled before its end.

    Raises:
        StackError: the job failed, AWS rejected a request, or nothing was published.
    """
    application, job_id = world.spark.url, _start(world, arguments, continuous)
    call = partial(aws.call, world.region, "emr-serverless")
    ids = {"applicationId": application, "jobRunId": job_id}
    name = f"job {job_id} on EMR Serverless"
    log = f"{_log_folder(world)}applications/{application}/jobs/{job_id}/SPARK_DRIVER/"
    progress(f"{name} is started; its log: {log} (delayed by some minutes)")
    job: dict[str, Any] = {"state": "unknown"}

    def is_over() -> bool:
        previous_state = job["state"]
        job.update(call("get_job_run", **ids)["jobRun"])
        if job["state"] != previous_state:
            progress(f"{name}: {job['state']}")
        return job["state"] in FINAL_STATES

    wait = partial(aws.wait, description=name, timeout=math.inf, interval=5)
    with stop_on_signal() as stop_event:
        try:
            wait(lambda: stop_event.is_set() or is_over())
            if job["state"] not in FINAL_STATES:
                progress(f"{name} is stopped …")
                grace = {"shutdownGracePeriodInSeconds": GRACE_SECONDS}
                call("cancel_job_run", **ids, **grace)
                wait(is_over)
        except StackError:
            progress(
                f"{name} was left in state {job['state']}; to end it: aws emr-serverless cancel-job-run "
                f"--application-id {application} --job-run-id {job_id} --region {world.region}"
            )
            raise
    if stop_event.is_set() and job["state"] == "CANCELLED":
        return 0 if continuous else 130
    if job["state"] != "SUCCESS":
        raise StackError(
            f"{name} is {job['state']}: {job.get('stateDetails') or 'EMR reports no reason'}",
            location=log,
            hint="the stderr in this folder has the details; no partial result is visible, so run the job again",
        )
    return 0


def _start(world: World, arguments: Sequence[str], continuous: bool) -> str:
    """Start a job, and return its id.

    Raises:
        StackError: the job script, which is uploaded last, is not in the bucket; or AWS rejects the job.
    """
    deployment, root = world.stack.deployment, world.lake.root
    role = aws.parameter(world.region, deployment, "spark/role")
    script = f"{root}/{JOB_SCRIPT}"
    try:
        aws.call(world.region, "s3", "head_object", Bucket=parse_s3_uri(root)[0], Key=JOB_SCRIPT)
    except StackError as e:
        if aws.error_code(e) != "404":
            raise
        raise StackError(
            "the library is not in the bucket",
            location=script,
            hint=f"deploy/publish.sh --world {world.name}",
        ) from None
    request = aws.fill(
        START_TEMPLATE,
        world=world,
        tag=aws.DEPLOYMENT_TAG,
        role=role,
        script=script,
        name=re.sub(r"[^A-Za-z0-9./_#-]", "-", "-".join([deployment, *arguments[:2]])),
        mode="STREAMING" if continuous else "BATCH",
        minutes=0 if continuous else 720,
        settings=json.dumps(emr.serverless_conf(world)),
        log_folder=_log_folder(world),
    )
    # not in the template: in YAML, JSON's form of an emoji is an error
    request["jobDriver"]["sparkSubmit"]["entryPointArguments"] = [f"{root}/workbench", *arguments]
    job_run = aws.call(world.region, "emr-serverless", "start_job_run", **request)
    return str(job_run["jobRunId"])


def _log_folder(world: World) -> str:
    return f"{world.lake.root}/logs/spark/"
