"""`workbench ingest` as a job on EMR: started, followed, stopped, failed; and the script that it
begins with."""

import json
import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import on_aws
import pytest
import yaml
from typer.testing import CliRunner
from workbench.base import ROOT, aws, params, wait
from workbench.base.errors import LakeError, ParamsError, StackError
from workbench.cli import main as cli
from workbench.flow import CaptureFlow
from workbench.run import emr_jobs
from workbench.spark import emr
from workbench.tracks import ingest as here

pytestmark = pytest.mark.aws

WORLD = on_aws.world()
APPLICATION = on_aws.PARAMETERS["spark/application"]
ARGUMENTS = ["ingest", "cdc_events", "--world", "aws"]
ARN = f"arn:aws:emr-serverless:{on_aws.REGION}:{on_aws.ACCOUNT}:/applications/{APPLICATION}/jobruns/j1"
BUCKET = "s3://workbench-lake"
LOG = f"{BUCKET}/logs/spark/applications/{APPLICATION}/jobs/j1/SPARK_DRIVER/"


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    monkeypatch.setattr(aws, "parameters", lambda *_: on_aws.PARAMETERS)
    monkeypatch.setattr(wait.time, "sleep", lambda seconds: None)


@pytest.fixture
def s3():
    with on_aws.stubbed_client("s3") as stub:
        yield stub


@pytest.fixture
def serverless():
    with on_aws.stubbed_client("emr-serverless") as stub:
        yield stub


SCRIPT_OBJECT = {"Bucket": "workbench-lake", "Key": "workbench/jobs/ingest.py"}


def expect_start_job_run(s3, serverless, *more, mode="BATCH", minutes=720):
    s3.add_response("head_object", {}, SCRIPT_OBJECT)
    settings = emr.serverless_conf(WORLD)
    assert settings["spark.archives"] == f"{BUCKET}/{emr.ENVIRONMENT_ARCHIVE}#environment"
    arguments = [f"{BUCKET}/workbench", *ARGUMENTS, *more]
    request = yaml.safe_load(f"""
        applicationId: {APPLICATION}
        executionRoleArn: {on_aws.PARAMETERS["spark/role"]}
        mode: {mode}
        name: workbench-ingest-cdc_events
        executionTimeoutMinutes: {minutes}
        tags: {{"workbench:deployment": workbench}}
        jobDriver:
          sparkSubmit:
            entryPoint: {BUCKET}/workbench/jobs/ingest.py
            entryPointArguments: {arguments}
        configurationOverrides:
          applicationConfiguration:
          - classification: spark-defaults
            properties: {json.dumps(settings)}
          monitoringConfiguration:
            s3MonitoringConfiguration: {{logUri: {BUCKET}/logs/spark/}}
        """)
    started = {"applicationId": APPLICATION, "jobRunId": "j1", "arn": ARN}
    serverless.add_response("start_job_run", started, request)


def expect_get_job_run(serverless, *states, details="-"):
    """Without `createdAt`, for example, botocore would refuse the response."""
    for state in states:
        job_run = yaml.safe_load(f"""
            applicationId: {APPLICATION}
            jobRunId: j1
            arn: {ARN}
            createdBy: {on_aws.PARAMETERS["spark/role"]}
            createdAt: 2026-01-01 00:00:00
            updatedAt: 2026-01-01 00:00:00
            executionRole: {on_aws.PARAMETERS["spark/role"]}
            state: {state}
            stateDetails: {json.dumps(details)}
            releaseLabel: emr-7.13.0
            jobDriver: {{sparkSubmit: {{entryPoint: {BUCKET}/x.py}}}}
            """)
        asked = {"applicationId": APPLICATION, "jobRunId": "j1"}
        serverless.add_response("get_job_run", {"jobRun": job_run}, asked)


def run(more=(), **how):
    said = []
    return emr_jobs.run(WORLD, [*ARGUMENTS, *more], progress=said.append, **how), said


def told_once(monkeypatch, number):
    """Send this process a signal when it first sleeps."""
    left = [number]
    monkeypatch.setattr(
        wait.time, "sleep", lambda seconds: os.kill(os.getpid(), left.pop()) if left else None
    )


# --- EMR Serverless
# --------------------------------------------------------------------------------------------------


def test_a_job_is_started_and_followed_to_its_end(s3, serverless):
    expect_start_job_run(s3, serverless)
    expect_get_job_run(serverless, "SUBMITTED", "RUNNING")
    serverless.add_client_error("get_job_run", "ThrottlingException", "Rate exceeded")
    expect_get_job_run(serverless, "RUNNING", "SUCCESS")
    code, said = run()
    assert code == 0 and LOG in said[0]
    assert [line.rpartition(": ")[2] for line in said[1:]] == ["SUBMITTED", "RUNNING", "SUCCESS"]


def test_a_job_gets_any_text_as_an_argument(s3, serverless):
    expect_start_job_run(s3, serverless, "--note", "🎬 {a}: b")
    expect_get_job_run(serverless, "SUCCESS")
    assert run(["--note", "🎬 {a}: b"])[0] == 0


def test_one_that_fails_is_told_with_emrs_reason_and_its_log(s3, serverless):
    expect_start_job_run(s3, serverless)
    expect_get_job_run(
        serverless,
        "SCHEDULED",
        "FAILED",
        details="Job failed. ExitCode: 1. Last few exceptions: no topic",
    )
    with pytest.raises(StackError, match=f"(?s)j1 .*is FAILED: .*ExitCode: 1.*no topic.*{LOG}"):
        run()


@pytest.mark.parametrize(
    "continuous, number, code", [(True, signal.SIGTERM, 0), (False, signal.SIGINT, 130)]
)
def test_one_that_is_told_to_end_is_cancelled(
    s3, serverless, monkeypatch, continuous, number, code
):
    """The end of a continuous one is no failure; another one has not done its work."""
    more = ["--continuous"] if continuous else []
    how = {"mode": "STREAMING", "minutes": 0} if continuous else {}
    expect_start_job_run(s3, serverless, *more, **how)
    expect_get_job_run(serverless, "RUNNING")
    ids = {"applicationId": APPLICATION, "jobRunId": "j1"}
    request = {**ids, "shutdownGracePeriodInSeconds": emr_jobs.GRACE_SECONDS}
    serverless.add_response("cancel_job_run", ids, request)
    expect_get_job_run(serverless, "CANCELLING", "CANCELLED")
    told_once(monkeypatch, number)
    before = signal.getsignal(number)
    ended, said = run(more, continuous=continuous)
    assert ended == code and "is stopped" in " ".join(said)
    assert signal.getsignal(number) is before


def test_one_that_somebody_else_stops_has_failed(s3, serverless):
    expect_start_job_run(s3, serverless)
    expect_get_job_run(serverless, "RUNNING", "CANCELLED", details="cancelled by admin")
    with pytest.raises(StackError, match="is CANCELLED: cancelled by admin"):
        run()


def test_what_aws_refuses_meanwhile_is_told_and_the_job_left(s3, serverless):
    expect_start_job_run(s3, serverless)
    expect_get_job_run(serverless, "RUNNING")
    serverless.add_client_error("get_job_run", "ExpiredTokenException", "expired")
    said = []
    with pytest.raises(StackError, match="credentials have expired"):
        emr_jobs.run(WORLD, ARGUMENTS, progress=said.append)
    assert "j1 on EMR Serverless was left in state RUNNING; to end it: " in said[-1]
    assert f"cancel-job-run --application-id {APPLICATION} --job-run-id j1 --region" in said[-1]


@pytest.mark.parametrize(
    "code, status, message",
    [
        ("404", 404, "(?s)not in the bucket.*deploy/publish.sh --world aws"),
        ("403", 403, "s3.head_object"),
    ],
)
def test_nothing_is_started_before_it_is_published(s3, code, status, message):
    s3.add_client_error("head_object", code, http_status_code=status, expected_params=SCRIPT_OBJECT)
    with pytest.raises(StackError, match=message):
        run()


def test_a_world_without_a_deployment_has_no_emr():
    with pytest.raises(StackError, match="(?s)this world has no deployment on AWS.*--world aws"):
        emr_jobs.run(params.load("local"), ARGUMENTS)


# --- the script that it begins with
# ----------------------------------------------------------------------------------

SCRIPT = ROOT / "deploy" / "jobs" / "ingest.py"


def test_it_takes_the_worlds_that_were_published_and_the_library_of_the_archive(tmp_path):
    (tmp_path / "bucket/params").mkdir(parents=True)
    (tmp_path / "bucket/data/schemas").mkdir(parents=True)
    (tmp_path / "bucket/params/aws.yaml").write_text("name: aws")
    (tmp_path / "bucket/data/schemas/a.avsc").write_text("{}")
    (tmp_path / "environment/workbench/cli").mkdir(parents=True)
    (tmp_path / "environment/workbench/__init__.py").write_text("")
    (tmp_path / "environment/workbench/cli/__init__.py").write_text("")
    (tmp_path / "environment/workbench/cli/main.py").write_text("""import os
root = os.environ["WORKBENCH_ROOT"]  # set before the library is imported
def main(arguments):
    print(arguments, os.environ["WORKBENCH_SPARK"], os.environ["WORKBENCH_LOG"], os.listdir(f"{root}/params"), os.listdir(f"{root}/data/schemas"))
    raise SystemExit(7)
""")
    done = subprocess.run(
        [sys.executable, str(SCRIPT), (tmp_path / "bucket").as_uri(), *ARGUMENTS],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert (
        done.stdout == f"{ARGUMENTS} classic info ['aws.yaml'] ['a.avsc']\n"
        and done.returncode == 7
    )


# --- here
# ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def ingested(monkeypatch):
    """What a flow was asked to ingest; its answers, one a round, are in `then`."""
    asked, then = [], []

    def follow(self, spark, world, *into, kind, stop):
        asked.append(([t.name for t in into], kind))
        yield then.pop(0)(stop) if then else {}
        while not stop.is_set():
            yield then.pop(0)(stop)

    monkeypatch.setattr(here, "session", lambda world: None)
    monkeypatch.setattr(CaptureFlow, "follow", follow)
    return SimpleNamespace(asked=asked, then=then)


def test_a_table_or_a_walkthrough_is_ingested_once(ingested):
    assert here.ingest(WORLD, "cdc_events", "landed") == here.ingest(WORLD, "50_time_travel") == 0
    assert ingested.asked[0] == (["cdc_events"], "landed") and len(ingested.asked[1][0]) == 4
    with pytest.raises(
        LakeError,
        match="(?s)query_based_cdc.*has no Hudi table to ingest into.*10_outbox/cdc_events",
    ):
        here.ingest(WORLD, "20_query_based_cdc")


def test_a_continuous_one_goes_on_until_it_is_told(ingested):
    told = []

    def tell(stop):
        os.kill(os.getpid(), signal.SIGTERM)
        told.append(stop.is_set())
        return {"cdc_events": SimpleNamespace(messages=3)}

    ingested.then += [lambda stop: {"cdc_events": SimpleNamespace(messages=0)}, tell]
    said = []
    assert here.ingest(WORLD, "cdc_events", continuous=True, progress=said.append) == 0
    assert told == [True] and len(ingested.asked) == 1 and len(said) == 1, (
        "what had nothing new is not told"
    )


def test_one_that_is_stopped_before_its_end_says_so(ingested):
    ingested.then.append(lambda stop: os.kill(os.getpid(), signal.SIGINT) or {})
    assert here.ingest(WORLD, "cdc_events") == 130


def test_a_second_ctrl_c_is_one():
    before = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a job in a shell's background ignores it
    try:
        with pytest.raises(KeyboardInterrupt), wait.stop_on_signal() as told:
            signal.raise_signal(signal.SIGINT)
            assert told.is_set()
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


# --- the verb
# --------------------------------------------------------------------------------------------------------


def call(*arguments):
    return CliRunner().invoke(cli.app, ["ingest", *arguments])


def test_the_verb_goes_where_it_is_told(monkeypatch):
    went = []
    monkeypatch.setattr(params, "load", lambda name: WORLD)
    monkeypatch.setattr(here, "ingest", lambda world, *given: went.append(given[:3]) or 130)
    monkeypatch.setattr(
        emr_jobs, "run", lambda world, arguments, **how: went.append((arguments, how)) or 0
    )
    assert call("cdc_events").exit_code == 130 and went == [("cdc_events", "", False)]
    assert (
        call(
            "cdc_events",
            "--world",
            "aws",
            "--on",
            "emr-serverless",
            "--source",
            "topic",
            "--continuous",
        ).exit_code
        == 0
    )
    arguments, how = went[1]
    assert arguments == [*ARGUMENTS, "--source", "topic", "--continuous"]
    assert how["continuous"]


@pytest.mark.parametrize(
    "arguments, kind, said",
    [
        (["cdc_event"], LakeError, "did you mean 'cdc_events'"),
        (["cdc_events", "--on", "emr"], ParamsError, "emr-serverless"),
        (["cdc_events", "--source", "files"], ParamsError, "landed"),
    ],
)
def test_what_is_misspelt_is_told_before_anything_starts(arguments, kind, said):
    error = call(*arguments).exception
    assert isinstance(error, kind) and said in str(error)
