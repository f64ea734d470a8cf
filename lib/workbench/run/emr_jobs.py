"""Run a command of the workbench as a job on EMR Serverless.

The job runs deploy/jobs/ingest.py. `deploy/publish.sh` uploads this script to the bucket, and an
archive of the library with its packages, which Spark unpacks.
"""

import math
import re
from typing import Any, Callable, Sequence

from ..base import StackError, World, aws
from ..base.paths import parse_s3_uri
from ..base.wait import stop_on_signal
from ..spark import emr

JOB_SCRIPT = "workbench/jobs/ingest.py"
GRACE_SECONDS = 120  # between cancellation and kill, for the end of the current batch
FINAL_STATES = ("SUCCESS", "FAILED", "CANCELLED")


class _Job:
    """A started job.

    Args:
        world: the world.
        application: id of the application of EMR Serverless.
        run_id: id of the job.
    """

    def __init__(self, world: World, application: str, run_id: str):
        """Describe a started job."""
        self.world = world
        self.ids = {"applicationId": application, "jobRunId": run_id}
        self.name = f"job {run_id} on EMR Serverless"
        self.log_uri = f"{_log_folder(world)}applications/{application}/jobs/{run_id}/SPARK_DRIVER/"
        self.cancel_command = (
            f"aws emr-serverless cancel-job-run --application-id {application} "
            f"--job-run-id {run_id} --shutdown-grace-period-in-seconds {GRACE_SECONDS} "
            f"--region {world.region}"
        )
        self.state = "unknown"
        self.reason = ""

    def cancel(self) -> None:
        """Request the end of the job after the current batch."""
        grace = {"shutdownGracePeriodInSeconds": GRACE_SECONDS}
        _call(self.world, "cancel_job_run", **self.ids, **grace)

    def is_over(self, progress: Callable[[str], None]) -> bool:
        """Ask for the state of the job, report a change, and return whether the job has ended."""
        job_run = _call(self.world, "get_job_run", **self.ids)["jobRun"]
        if job_run["state"] != self.state:
            progress(f"{self.name}: {job_run['state']}")
        self.state = job_run["state"]
        self.reason = job_run.get("stateDetails", "")
        return self.state in FINAL_STATES


def run(
    world: World,
    arguments: Sequence[str],
    *,
    continuous: bool = False,
    wait: bool = True,
    progress: Callable[[str], None] = print,
) -> int:
    """Run `workbench <arguments>` on EMR, and wait for its end. Ctrl-C and SIGTERM cancel the job.

    Args:
        world: the world.
        arguments: the arguments of the command.
        continuous: whether the job runs until it is cancelled; EMR Serverless restarts it after a
            failure (mode STREAMING).
        wait: whether to wait for the end; False returns after the start.
        progress: called with each line for the user.

    Returns:
        The exit code: 0, or 130 if the job was canceled before its end.

    Raises:
        StackError: the job failed, AWS rejected a request, or nothing was published.
    """
    job = _start(world, list(arguments), continuous)
    progress(f"{job.name} is started; its log: {job.log_uri} (delayed by some minutes)")
    if not wait:
        progress(f"command to stop it: {job.cancel_command}")
        return 0
    with stop_on_signal() as stop_event:
        try:
            aws.wait(
                lambda: stop_event.is_set() or job.is_over(progress),
                job.name,
                timeout=math.inf,
                interval=5,
            )
            if job.state not in FINAL_STATES:
                progress(f"{job.name} is stopped …")
                job.cancel()
                aws.wait(lambda: job.is_over(progress), job.name, timeout=math.inf, interval=5)
        except StackError:
            progress(f"{job.name} was left in state {job.state}")
            raise
    if stop_event.is_set() and job.state == "CANCELLED":
        return 0 if continuous else 130
    if job.state != "SUCCESS":
        raise StackError(
            f"{job.name} is {job.state}: {job.reason or 'EMR reports no reason'}",
            location=job.log_uri,
            hint="the stderr in this folder has the details; no partial result is visible, so run the job again",
        )
    return 0


def _start(world: World, arguments: list[str], continuous: bool) -> _Job:
    application = aws.parameter(world.region, world.stack.deployment, "spark/application")
    role = aws.parameter(world.region, world.stack.deployment, "spark/role")
    _require_published(world)
    name = "-".join([world.stack.deployment, *arguments[:2]])
    job_run = _call(
        world,
        "start_job_run",
        applicationId=application,
        executionRoleArn=role,
        name=re.sub(r"[^A-Za-z0-9./_#-]", "-", name),
        mode="STREAMING" if continuous else "BATCH",
        executionTimeoutMinutes=0 if continuous else 720,
        tags={aws.DEPLOYMENT_TAG: world.stack.deployment},
        jobDriver={
            "sparkSubmit": {
                "entryPoint": f"{world.lake.root}/{JOB_SCRIPT}",
                "entryPointArguments": [f"{world.lake.root}/workbench", *arguments],
            }
        },
        configurationOverrides={
            "applicationConfiguration": [
                {"classification": "spark-defaults", "properties": emr.serverless_conf(world)}
            ],
            "monitoringConfiguration": {
                "s3MonitoringConfiguration": {"logUri": _log_folder(world)}
            },
        },
    )
    return _Job(world, application, job_run["jobRunId"])


def _call(world: World, operation: str, **params: Any) -> dict[str, Any]:
    return aws.call(world.region, "emr-serverless", operation, **params)


def _log_folder(world: World) -> str:
    return f"{world.lake.root}/logs/spark/"


def _require_published(world: World) -> None:
    """Raise StackError if the job script, which is uploaded last, is not in the bucket."""
    bucket = parse_s3_uri(world.lake.root)[0]
    with aws.ignore_error_codes("^404$|NotFound|NoSuchKey"):
        aws.call(world.region, "s3", "head_object", Bucket=bucket, Key=JOB_SCRIPT)
        return
    raise StackError(
        "the library is not in the bucket",
        location=f"{world.lake.root}/{JOB_SCRIPT}",
        hint=f"deploy/publish.sh --world {world.name}",
    )
