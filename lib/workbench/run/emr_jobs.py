"""Run a command of the workbench as a job on EMR Serverless, or as a step of an EMR cluster.

The job runs deploy/jobs/ingest.py. `workbench aws publish` uploads this script to the bucket, and an
archive of the library with its packages. bootstrap.sh unpacks the archive on the nodes of a cluster;
on EMR Serverless Spark unpacks it.
"""

import math
import re
from dataclasses import dataclass
from typing import Any, Callable, Sequence

from ..base import StackError, World, aws
from ..base.paths import parse_s3_uri
from ..base.wait import stop_on_signal
from ..spark import emr

JOB_SCRIPT = "workbench/jobs/ingest.py"
GRACE_SECONDS = 120  # between cancellation and kill, for the end of the current batch
SUCCESS_STATES = ("SUCCESS", "COMPLETED")
FINAL_STATES = (*SUCCESS_STATES, "FAILED", "CANCELLED", "INTERRUPTED")


@dataclass
class Job:
    """A started job.

    Attributes:
        name: name of the job, for messages.
        poll: returns (state, AWS's reason for the state).
        cancel: requests the end of the job.
        cancel_command: the command of the AWS CLI that cancels the job.
        log_uri: folder of the logs.
        state: the state at the last poll.
        reason: the reason at the last poll.
    """

    name: str
    poll: Callable[[], tuple[str, str]]
    cancel: Callable[[], object]
    cancel_command: str
    log_uri: str
    state: str = ""
    reason: str = ""

    def is_over(self, progress: Callable[[str], None]) -> bool:
        """Poll the job, report a change of its state, and return whether it has ended."""
        previous = self.state
        self.state, self.reason = self.poll()
        if self.state != previous:
            progress(f"{self.name}: {self.state}")
        return self.state in FINAL_STATES


def run(
    world: World,
    executor: str,
    arguments: Sequence[str],
    *,
    continuous: bool = False,
    wait: bool = True,
    progress: Callable[[str], None] = print,
) -> int:
    """Run `workbench <arguments>` on EMR, and wait for its end. Ctrl-C and SIGTERM cancel the job.

    Args:
        world: the world.
        executor: "emr-serverless" or "emr-step".
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
    job = EXECUTORS[executor](world, list(arguments), continuous)
    progress(f"{job.name} is started; its log: {job.log_uri} (delayed by some minutes)")
    if not wait:
        progress(f"command to stop it: {job.cancel_command}")
        return 0
    end = f"the end of {job.name}"
    with stop_on_signal() as stop_event:
        try:
            aws.wait(
                lambda: stop_event.is_set() or job.is_over(progress),
                end,
                timeout=math.inf,
                interval=5,
            )
            if job.state not in FINAL_STATES:
                progress(f"{job.name} is stopped …")
                job.cancel()
                aws.wait(
                    lambda: job.is_over(progress),
                    end,
                    timeout=GRACE_SECONDS + 180,
                    interval=5,
                    hint="see the console of EMR: the job may still cost money",
                )
        except StackError:
            progress(f"{job.name} was left in state {job.state or 'unknown'}")
            raise
    if stop_event.is_set() and job.state == "CANCELLED":
        return 0 if continuous else 130
    if job.state not in SUCCESS_STATES:
        raise StackError(
            f"{job.name} is {job.state}: {job.reason or 'EMR reports no reason'}",
            location=job.log_uri,
            hint="the stderr in this folder has the details; no partial result is visible, so run the job again",
        )
    return 0


def _start_serverless(world: World, arguments: list[str], continuous: bool) -> Job:
    application = aws.parameter(world.region, world.stack.deployment, "spark/application")
    role = aws.parameter(world.region, world.stack.deployment, "spark/role")
    _require_published(world)
    logs = f"{world.lake.root}/logs/spark/"

    def call_application(operation: str, **params: Any) -> dict[str, Any]:
        return aws.call(
            world.region, "emr-serverless", operation, applicationId=application, **params
        )

    run_id = call_application(
        "start_job_run",
        executionRoleArn=role,
        name=_job_name(world, arguments),
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
            "monitoringConfiguration": {"s3MonitoringConfiguration": {"logUri": logs}},
        },
    )["jobRunId"]

    def poll() -> tuple[str, str]:
        job_run = call_application("get_job_run", jobRunId=run_id)["jobRun"]
        return job_run["state"], job_run.get("stateDetails", "")

    def cancel() -> object:
        return call_application(
            "cancel_job_run", jobRunId=run_id, shutdownGracePeriodInSeconds=GRACE_SECONDS
        )

    return Job(
        f"job {run_id} on EMR Serverless",
        poll,
        cancel,
        f"aws emr-serverless cancel-job-run --application-id {application} --job-run-id {run_id} "
        f"--shutdown-grace-period-in-seconds {GRACE_SECONDS} --region {world.region}",
        f"{logs}applications/{application}/jobs/{run_id}/SPARK_DRIVER/",
    )


def _start_step(world: World, arguments: list[str], continuous: bool) -> Job:
    cluster = aws.parameter(world.region, world.stack.deployment, "emr/cluster")
    _require_published(world)
    command = ["spark-submit", "--deploy-mode", "client"]
    for key, value in emr.spark_conf(world).items():
        command += ["--conf", f"{key}={value}"]
    command += [f"{world.lake.root}/{JOB_SCRIPT}", f"{world.lake.root}/workbench", *arguments]
    step = {
        "Name": _job_name(world, arguments),
        "ActionOnFailure": "CONTINUE",
        "HadoopJarStep": {"Jar": "command-runner.jar", "Args": command},
    }

    def call(operation: str, **params: Any) -> dict[str, Any]:
        return aws.call(world.region, "emr", operation, **params)

    with emr.submitting_to(cluster, "step"):
        response = call("add_job_flow_steps", JobFlowId=cluster, Steps=[step])
    step_id = response["StepIds"][0]

    def poll() -> tuple[str, str]:
        status = call("describe_step", ClusterId=cluster, StepId=step_id)["Step"]["Status"]
        reasons = list(status.get("FailureDetails", {}).values())
        reasons.append(status.get("StateChangeReason", {}).get("Message"))
        return status["State"], "; ".join(filter(None, reasons))

    def cancel() -> object:
        return call(
            "cancel_steps",
            ClusterId=cluster,
            StepIds=[step_id],
            StepCancellationOption="SEND_INTERRUPT",
        )

    return Job(
        f"step {step_id} of {cluster}",
        poll,
        cancel,
        f"aws emr cancel-steps --cluster-id {cluster} --step-ids {step_id} --region {world.region}",
        f"{world.lake.root}/logs/emr/{cluster}/steps/{step_id}/",
    )


EXECUTORS = {"emr-serverless": _start_serverless, "emr-step": _start_step}


def _job_name(world: World, arguments: list[str]) -> str:
    name = "-".join([world.stack.deployment, *arguments[:2]])
    return re.sub(r"[^A-Za-z0-9./_#-]", "-", name)


def _require_published(world: World) -> None:
    """Raise StackError if the job script, which is uploaded last, is not in the bucket."""
    bucket = parse_s3_uri(world.lake.root)[0]
    with aws.ignore_error_codes("^404$|NotFound|NoSuchKey"):
        aws.call(world.region, "s3", "head_object", Bucket=bucket, Key=JOB_SCRIPT)
        return
    raise StackError(
        "the library is not in the bucket",
        location=f"{world.lake.root}/{JOB_SCRIPT}",
        hint=f"workbench aws publish --world {world.name}",
    )
