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
from ..base.paths import bucket_and_key
from ..base.wait import told_to_stop
from ..spark import emr

SCRIPT = "workbench/jobs/ingest.py"
GRACE = 120  # seconds from the word to stop to the end of a job: it finishes a batch meanwhile
DONE, OVER = (
    ("SUCCESS", "COMPLETED"),
    ("SUCCESS", "COMPLETED", "FAILED", "CANCELLED", "INTERRUPTED"),
)


@dataclass(frozen=True)
class Job:
    """A job that was started. look: asks for its state, and what AWS says of it. stop: has it
    stopped; how: by what somebody else does that. log: where what it says is kept.
    """

    name: str
    look: Callable[[], tuple[str, str]]
    stop: Callable[[], object]
    how: str
    log: str


def run(
    world: World,
    on: str,
    arguments: Sequence[str],
    *,
    continuous: bool = False,
    wait: bool = True,
    say: Callable[[str], None] = print,
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
    job = PLACES[on](world, list(arguments), continuous)
    say(f"{job.name} is started; what it says: {job.log} (some minutes late)")
    if not wait:
        say(f"it is stopped by: {job.how}")
        return 0
    state, reason = "", ""

    def over() -> bool:
        nonlocal state, reason
        before, (state, reason) = state, job.look()
        if state != before:
            say(f"{job.name}: {state}")
        return state in OVER

    with told_to_stop() as told:
        try:
            aws.wait(
                lambda: told.is_set() or over(), f"the end of {job.name}", timeout=math.inf, every=5
            )
            if state not in OVER:
                say(f"{job.name} is stopped …")
                job.stop()
                aws.wait(
                    over,
                    f"the end of {job.name}",
                    timeout=GRACE + 180,
                    every=5,
                    next_step="the console of EMR shows it; it may still cost something",
                )
        except StackError:
            say(f"{job.name} was left as it was: {state or 'state unknown'}")
            raise
    if told.is_set() and state == "CANCELLED":
        return 0 if continuous else 130
    if state not in DONE:
        raise StackError(
            f"{job.name} is {state}: {reason or 'no reason told'}",
            where=job.log,
            next_step="its stderr there says more; nothing half-written shows, run it again",
        )
    return 0


def _serverless(world: World, arguments: list[str], continuous: bool) -> Job:
    application = aws.parameter(world.region, world.stack.deployment, "spark/application")
    role = aws.parameter(world.region, world.stack.deployment, "spark/role")
    _published(world)
    logs = f"{world.lake.root}/logs/spark/"

    def call(operation: str, **given: Any) -> dict[str, Any]:
        return aws.call(
            world.region, "emr-serverless", operation, applicationId=application, **given
        )

    number = call(
        "start_job_run",
        executionRoleArn=role,
        name=_name(world, arguments),
        mode="STREAMING" if continuous else "BATCH",
        executionTimeoutMinutes=0 if continuous else 720,
        tags={aws.TAG: world.stack.deployment},
        jobDriver={
            "sparkSubmit": {
                "entryPoint": f"{world.lake.root}/{SCRIPT}",
                "entryPointArguments": [f"{world.lake.root}/workbench", *arguments],
            }
        },
        configurationOverrides={
            "applicationConfiguration": [
                {"classification": "spark-defaults", "properties": emr.serverless_settings(world)}
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
        lambda: call("cancel_job_run", jobRunId=number, shutdownGracePeriodInSeconds=GRACE),
        f"aws emr-serverless cancel-job-run --application-id {application} --job-run-id {number} "
        f"--shutdown-grace-period-in-seconds {GRACE} --region {world.region}",
        f"{logs}applications/{application}/jobs/{number}/SPARK_DRIVER/",
    )


def _step(world: World, arguments: list[str], continuous: bool) -> Job:
    cluster = aws.parameter(world.region, world.stack.deployment, "emr/cluster")
    _published(world)
    settings = [
        part for key, value in emr.settings(world).items() for part in ("--conf", f"{key}={value}")
    ]
    script = [f"{world.lake.root}/{SCRIPT}", f"{world.lake.root}/workbench", *arguments]
    with emr.taken(cluster, "step"):
        number = aws.call(
            world.region,
            "emr",
            "add_job_flow_steps",
            JobFlowId=cluster,
            Steps=[
                {
                    "Name": _name(world, arguments),
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


PLACES = {"emr-serverless": _serverless, "emr-step": _step}


def _name(world: World, arguments: list[str]) -> str:
    return re.sub(r"[^A-Za-z0-9./_#-]", "-", f"{world.stack.deployment}-{'-'.join(arguments[:2])}")


def _published(world: World) -> None:
    """Raises: StackError: there is nothing to start."""
    with aws.suppress("^404$|NotFound|NoSuchKey"):  # `publish` puts it there after the archive
        aws.call(
            world.region, "s3", "head_object", Bucket=bucket_and_key(world.lake.root)[0], Key=SCRIPT
        )
        return
    raise StackError(
        "the library is not in the bucket",
        where=f"{world.lake.root}/{SCRIPT}",
        next_step=f"workbench aws publish --world {world.name}",
    )
