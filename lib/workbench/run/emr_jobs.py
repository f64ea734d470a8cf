"""A verb of the workbench as a job on EMR: on EMR Serverless, or as a step of the cluster.

Either starts deploy/jobs/ingest.py, which `workbench aws publish` has put into the bucket, with the
library and all that it needs in one archive. Nodes of the cluster have unpacked that (bootstrap.sh
there); on Serverless Spark does.
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
GRACE_SECONDS = (
    120  # seconds from the word to stop to the end of a job: it finishes a batch meanwhile
)
SUCCESS_STATES, FINAL_STATES = (
    ("SUCCESS", "COMPLETED"),
    ("SUCCESS", "COMPLETED", "FAILED", "CANCELLED", "INTERRUPTED"),
)


@dataclass(frozen=True)
class Job:
    """A job that was started. look: asks for its state, and what AWS says of it. stop: has it
    stopped; how: by what somebody else does that. log: where what it says is kept.
    """

    name: str
    poll: Callable[[], tuple[str, str]]
    cancel: Callable[[], object]
    cancel_command: str
    log_uri: str


def run(
    world: World,
    executor: str,
    arguments: Sequence[str],
    *,
    continuous: bool = False,
    wait: bool = True,
    progress: Callable[[str], None] = print,
) -> int:
    """Run `workbench <arguments>` on EMR and wait for its end. Ctrl-C and TERM stop the job.

    Args:
        on: "emr-serverless" or "emr-step".
        continuous: it ends only when it is stopped; on Serverless it is begun again when it fails
            (mode STREAMING).
        wait: False: return when it is started.
    Returns: the exit code: 0; 130 where it was stopped before it was done.
    Raises: StackError: it failed, with EMR's reason; AWS refuses something; nothing was published.
    """
    job = EXECUTORS[executor](world, list(arguments), continuous)
    progress(f"{job.name} is started; what it says: {job.log_uri} (some minutes late)")
    if not wait:
        progress(f"it is stopped by: {job.cancel_command}")
        return 0
    state, reason = "", ""

    def over() -> bool:
        nonlocal state, reason
        before, (state, reason) = state, job.poll()
        if state != before:
            progress(f"{job.name}: {state}")
        return state in FINAL_STATES

    with stop_on_signal() as told:
        try:
            aws.wait(
                lambda: told.is_set() or over(),
                f"the end of {job.name}",
                timeout=math.inf,
                interval=5,
            )
            if state not in FINAL_STATES:
                progress(f"{job.name} is stopped …")
                job.cancel()
                aws.wait(
                    over,
                    f"the end of {job.name}",
                    timeout=GRACE_SECONDS + 180,
                    interval=5,
                    hint="the console of EMR shows it; it may still cost something",
                )
        except StackError:
            progress(f"{job.name} was left as it was: {state or 'state unknown'}")
            raise
    if told.is_set() and state == "CANCELLED":
        return 0 if continuous else 130
    if state not in SUCCESS_STATES:
        raise StackError(
            f"{job.name} is {state}: {reason or 'no reason told'}",
            location=job.log_uri,
            hint="its stderr there says more; nothing half-written shows, run it again",
        )
    return 0


def _start_serverless(world: World, arguments: list[str], continuous: bool) -> Job:
    application = aws.parameter(world.region, world.stack.deployment, "spark/application")
    role = aws.parameter(world.region, world.stack.deployment, "spark/role")
    _require_published(world)
    logs = f"{world.lake.root}/logs/spark/"

    def call(operation: str, **given: Any) -> dict[str, Any]:
        return aws.call(
            world.region, "emr-serverless", operation, applicationId=application, **given
        )

    number = call(
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

    def look() -> tuple[str, str]:
        found = call("get_job_run", jobRunId=number)["jobRun"]
        return found["state"], found.get("stateDetails", "")

    return Job(
        f"job {number} on EMR Serverless",
        look,
        lambda: call("cancel_job_run", jobRunId=number, shutdownGracePeriodInSeconds=GRACE_SECONDS),
        f"aws emr-serverless cancel-job-run --application-id {application} --job-run-id {number} "
        f"--shutdown-grace-period-in-seconds {GRACE_SECONDS} --region {world.region}",
        f"{logs}applications/{application}/jobs/{number}/SPARK_DRIVER/",
    )


def _start_step(world: World, arguments: list[str], continuous: bool) -> Job:
    cluster = aws.parameter(world.region, world.stack.deployment, "emr/cluster")
    _require_published(world)
    settings = [
        part
        for key, value in emr.spark_conf(world).items()
        for part in ("--conf", f"{key}={value}")
    ]
    script = [f"{world.lake.root}/{JOB_SCRIPT}", f"{world.lake.root}/workbench", *arguments]
    with emr.submitting_to(cluster, "step"):
        number = aws.call(
            world.region,
            "emr",
            "add_job_flow_steps",
            JobFlowId=cluster,
            Steps=[
                {
                    "Name": _job_name(world, arguments),
                    "ActionOnFailure": "CONTINUE",
                    "HadoopJarStep": {
                        "Jar": "command-runner.jar",
                        "Args": ["spark-submit", "--deploy-mode", "client", *settings, *script],
                    },
                }
            ],
        )["StepIds"][0]

    def look() -> tuple[str, str]:
        found = aws.call(world.region, "emr", "describe_step", ClusterId=cluster, StepId=number)[
            "Step"
        ]["Status"]
        told = [
            *found.get("FailureDetails", {}).values(),
            found.get("StateChangeReason", {}).get("Message"),
        ]
        return found["State"], "; ".join(filter(None, told))

    return Job(
        f"step {number} of {cluster}",
        look,
        lambda: aws.call(
            world.region,
            "emr",
            "cancel_steps",
            ClusterId=cluster,
            StepIds=[number],
            StepCancellationOption="SEND_INTERRUPT",
        ),
        f"aws emr cancel-steps --cluster-id {cluster} --step-ids {number} --region {world.region}",
        f"{world.lake.root}/logs/emr/{cluster}/steps/{number}/",
    )


EXECUTORS = {"emr-serverless": _start_serverless, "emr-step": _start_step}


def _job_name(world: World, arguments: list[str]) -> str:
    return re.sub(r"[^A-Za-z0-9./_#-]", "-", f"{world.stack.deployment}-{'-'.join(arguments[:2])}")


def _require_published(world: World) -> None:
    """Raises: StackError: there is nothing to start."""
    with aws.ignore_error_codes(
        "^404$|NotFound|NoSuchKey"
    ):  # `publish` puts it there after the archive
        aws.call(
            world.region,
            "s3",
            "head_object",
            Bucket=parse_s3_uri(world.lake.root)[0],
            Key=JOB_SCRIPT,
        )
        return
    raise StackError(
        "the library is not in the bucket",
        location=f"{world.lake.root}/{JOB_SCRIPT}",
        hint=f"workbench aws publish --world {world.name}",
    )
