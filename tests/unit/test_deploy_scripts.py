"""deploy/up.sh, publish.sh and down.sh with the AWS CLI, against moto's server.

What moto does not simulate answers from a file: no connectors, no applications. Each call in the
scripts and guides is compared with botocore's models.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import boto3
import botocore.session
import moto.server
import on_aws
import pytest
import requests
from botocore import xform_name
from workbench.base import ROOT

pytestmark = pytest.mark.aws

DEPLOY = ROOT / "deploy"
SCRIPTS = sorted(DEPLOY.glob("*.sh"))
PROGRAMS = Path(sys.executable).parent  # the AWS CLI and shellcheck are packages of requirements.in
NETWORK = """
Parameters:
  Deployment: {Type: String, Default: workbench}
  Size: {Type: String, Default: small, AllowedValues: [small, large]}
Conditions:
  Large: !Equals [!Ref Size, large]
Resources:
  Box: {Type: "AWS::SSM::Parameter", Properties: {Type: String, Name: !Sub "/${Deployment}/size", Value: !Ref Size}}
  Second: {Type: "AWS::SQS::Queue", Condition: Large, Properties: {QueueName: !Sub "${Deployment}-q"}}
Outputs:
  Size: {Value: !Ref Size, Export: {Name: !Sub "${Deployment}-Size"}}
"""
LAKE = """
Parameters:
  Deployment: {Type: String, Default: workbench}
Resources:
  Bucket: {Type: "AWS::S3::Bucket", Properties: {BucketName: !Sub "${Deployment}-lake"}}
  Note:
    Type: AWS::SSM::Parameter
    Properties:
      {Type: String, Name: !Sub "/${Deployment}/lake/bucket", Value: !Ref Bucket}
"""
MSK = """
Parameters:
  Deployment: {Type: String, Default: workbench}
Resources:
  Note:
    Type: AWS::SSM::Parameter
    Properties: {Type: String, Name: !Sub "/${Deployment}/kafka/cluster", Value: "arn:aws:kafka:x"}
"""
PACK = """
import os, pathlib, sys
for name in ("workbench/params/aws.yaml", "plugins/a.zip"):
    file = pathlib.Path(sys.argv[1], name)
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("content")
        os.utime(file, (1e9, 1e9))  # S3 has whole seconds: a file of the same second would count as newer
"""
# The AWS CLI, but: a call is recorded; one with a file of its name is answered by it; the call that
# STOP_AT names is the last, that of FAIL_AT fails. Where nothing changes, moto answers with an error, CloudFormation with an
# empty change set.
CLI = """#!/usr/bin/env bash
exec 3>&1
echo "$*" >> "$CALLS"
if [ "$STOP_AT" ] && [[ "$*" == $STOP_AT ]]; then kill -INT $PPID; sleep 1; exit 130; fi
if [ "$FAIL_AT" ] && [[ "$*" == $FAIL_AT ]]; then exit 255; fi
answer=$ANSWERS/$1.$2
if [ -f "$answer" ]; then cat "$answer"; exit; fi
error=$($REAL_AWS "$@" 2>&1 >&3) && code=0 || code=$?
[ -z "$error" ] || echo "$error" >&2
[[ $error == *"No updates are to be performed"* ]] || exit $code
"""
ANSWERS = {
    "kafkaconnect.list-connectors": "",
    "emr-serverless.list-applications": "",
    "emr.list-clusters": "",
    "freetier.get-account-plan-state": "PAID",
    "service-quotas.get-service-quota": "32.0",
    "kafka.get-bootstrap-brokers": "b-1:9098,b-2:9098",
    "ec2.describe-instance-type-offerings": "a-zone",
}


@pytest.fixture(scope="module")
def server():
    os.environ["MOTO_EC2_LOAD_DEFAULT_AMIS"] = "false"
    running = moto.server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    yield f"http://{host}:{port}"
    running.stop()


@pytest.fixture(scope="module")
def command(tmp_path_factory):
    """A command that does what `aws` does, without the second of its start."""
    helper = ROOT / "tests/help/aws_cli_server.py"
    address = tmp_path_factory.mktemp("aws") / "socket"
    with subprocess.Popen([sys.executable, helper, address], stdout=subprocess.PIPE) as served:
        served.stdout.readline()
        yield f"{sys.executable} -S -E {helper} {address} call"
        served.kill()


class Site:
    """A checkout with three small templates, and an account of moto."""

    def __init__(self, folder, server, command):
        self.folder, self.deploy, self.answers = folder, folder / "deploy", folder / "answers"
        self.calls = folder / "calls"
        for each in (self.deploy, self.answers, folder / "params", folder / "bin"):
            each.mkdir()
        for script in SCRIPTS:
            shutil.copy(script, self.deploy)
        for name, text in {"1-network": NETWORK, "2-lake": LAKE, "4-msk": MSK}.items():
            (self.deploy / f"{name}.yaml").write_text(text)
        (self.deploy / "pack.py").write_text(PACK)
        shutil.copy(ROOT / "params/aws.yaml", folder / "params")
        (folder / "bin/aws").write_text(CLI)
        (folder / "bin/aws").chmod(0o755)
        for name, text in ANSWERS.items():
            (self.answers / name).write_text(text)
        self.environment = {
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "HOME": str(folder),
            "PYTHON": sys.executable,
            "AWS_ENDPOINT_URL": server,
            "AWS_ACCESS_KEY_ID": "none",
            "AWS_SECRET_ACCESS_KEY": "none",
            "REAL_AWS": command,
            "CALLS": str(self.calls),
            "ANSWERS": str(self.answers),
            "STOP_AT": "",
            "FAIL_AT": "",
            "POLL_SECONDS": "0",
            "ATTEMPTS": "2",
        }
        self.server = server

    def run(self, script, *arguments, code=0, **environment):
        self.calls.write_text("")
        done = subprocess.run(
            ["bash", self.deploy / script, *arguments],
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            timeout=300,
        )
        output = done.stdout + done.stderr
        assert (done.returncode == 0) == (code == 0), output
        return output

    def client(self, service):
        return boto3.client(
            service,
            region_name=on_aws.REGION,
            endpoint_url=self.server,
            aws_access_key_id="none",
            aws_secret_access_key="none",
        )

    def create(self):
        """Create the stacks of the caller at once, without up.sh."""
        owner = self.client("sts").get_caller_identity()["Arn"]
        tags = {"workbench:deployment": "workbench", "workbench:owner": owner}
        for name, text in {"network": NETWORK, "lake": LAKE, "msk": MSK}.items():
            self.client("cloudformation").create_stack(
                StackName=f"workbench-{name}",
                TemplateBody=text,
                Tags=[{"Key": key, "Value": value} for key, value in tags.items()],
            )

    def stacks(self):
        found = self.client("cloudformation").describe_stacks()["Stacks"]
        return {each["StackName"]: each["StackStatus"] for each in found}

    def parameter(self, name):
        found = self.client("ssm").get_parameter(Name=f"/workbench/{name}")
        return found["Parameter"]["Value"]

    def changes(self):
        """The calls that change something."""
        verbs = r"deploy|delete-|create-|put-|stop-|terminate-|cancel-|add-|sync|rm |continue-"
        lines = self.calls.read_text().splitlines()
        return [line for line in lines if re.match(rf"[\w-]+ (?:{verbs})", line)]


@pytest.fixture
def site(tmp_path, server, command):
    requests.post(f"{server}/moto-api/reset", timeout=10)
    return Site(tmp_path, server, command)


ALL = {f"workbench-{name}": "CREATE_COMPLETE" for name in ("network", "lake", "msk")}


def keys(site):
    listed = site.client("s3").list_objects_v2(Bucket="workbench-lake")
    return {each["Key"] for each in listed.get("Contents", [])}


def test_a_deployment_is_created_left_alone_updated_and_removed(site):
    said = site.run("up.sh", "--yes")
    assert site.stacks() == ALL
    order = [line.split()[3] for line in site.changes() if line.startswith("cloudformation deploy")]
    assert order == ["workbench-network", "workbench-lake", "workbench-msk"]
    assert keys(site) == {"workbench/params/aws.yaml", "plugins/a.zip"}
    assert site.parameter("kafka/bootstrap") == "b-1:9098,b-2:9098"

    site.run("up.sh", "--yes")  # nothing has changed
    assert site.stacks() == ALL

    site.run("up.sh", "network", "-p", "Size=large", "--yes")
    assert site.parameter("size") == "large"
    site.run("up.sh", "network", "--yes")
    assert site.parameter("size") == "large", "a value that is not given stays"

    said = site.run("down.sh", "--yes")
    assert site.stacks() == {} and "nothing is left of deployment workbench" in said
    removed = re.findall(r"^workbench-(\w+) is removed$", said, re.M)
    assert removed == ["msk", "lake", "network"]
    site.run("down.sh", "--yes")  # there is nothing, and that is fine


def test_a_dry_run_changes_nothing(site):
    said = site.run("up.sh", "--dry-run")
    assert site.changes() == [] and said.count("+ aws cloudformation deploy") == 3
    site.run("up.sh", code=1)  # nobody says yes
    assert site.changes() == []
    site.create()
    said = site.run("down.sh", "--dry-run")
    assert site.changes() == [] and site.stacks() == ALL
    assert said.count("+ aws cloudformation delete-stack") == 3


def test_a_run_that_is_interrupted_at_any_stack_is_continued(site):
    for stack in ("network", "lake", "msk"):
        at = f"cloudformation deploy --stack-name workbench-{stack} *"
        site.run("up.sh", "--yes", code=1, STOP_AT=at)
        assert f"workbench-{stack}" not in site.stacks()
    site.run("up.sh", "--yes")
    assert site.stacks() == ALL
    for stack in ("msk", "lake", "network"):
        at = f"cloudformation delete-stack --stack-name workbench-{stack}"
        site.run("down.sh", "--yes", code=1, STOP_AT=at)
        assert f"workbench-{stack}" in site.stacks()
    site.run("down.sh", "--yes")
    assert site.stacks() == {}


def somebodys(site, owner, deployment="workbench"):
    tags = [
        {"Key": "workbench:deployment", "Value": deployment},
        {"Key": "workbench:owner", "Value": owner},
    ]
    site.client("cloudformation").create_stack(
        StackName="workbench-msk", TemplateBody=MSK, Tags=tags
    )


def test_a_stack_of_somebody_else_is_left_alone(site):
    somebodys(site, "arn:aws:iam::123456789012:user/somebody")
    for script in ("up.sh", "down.sh"):
        said = site.run(script, "--yes", code=1)
        assert "workbench-msk is not yours; nothing was changed" in said and "somebody" in said
        assert site.changes() == [] and list(site.stacks()) == ["workbench-msk"]
    site.run("down.sh", "--yes", "--take-ownership")
    assert site.stacks() == {}


def test_another_session_of_the_same_role_is_the_same_owner(site):
    """A profile with a role has a new session name in each process."""
    role = "arn:aws:sts::123456789012:assumed-role/Admin"
    (site.answers / "sts.get-caller-identity").write_text(f"{role}/botocore-session-2")
    somebodys(site, f"{role}/botocore-session-1")
    site.run("down.sh", "--yes")
    assert site.stacks() == {}


@pytest.mark.parametrize(
    "answers, arguments, says",
    [
        ({"sts.get-caller-identity": "arn:aws:iam::1:root"}, (), "root user"),
        ({"service-quotas.get-service-quota": "5.0"}, (), "5.0 vCPUs, 14 are needed"),
        ({"ec2.describe-instance-type-offerings": ""}, (), "lacks MSK or m5.xlarge"),
        ({}, ("-p", "Sise=large"), "no template has a parameter Sise"),
        ({}, ("netwrk",), "no template netwrk; there are: network lake msk"),
        ({}, ("--world", "local"), "params/local.yaml"),
        ({}, ("--word", "aws"), "no option --word"),
    ],
)
def test_what_would_fail_later_is_said_before_anything_is_changed(site, answers, arguments, says):
    (site.deploy / "6-emr.yaml").write_text(MSK)
    for name, text in answers.items():
        (site.answers / name).write_text(text)
    assert says in site.run("up.sh", *arguments, "--yes", code=1)
    assert site.changes() == []


STATES = {
    "ROLLBACK_COMPLETE": "delete-stack",
    "ROLLBACK_FAILED": "delete-stack",
    "DELETE_FAILED": "delete-stack",
    "REVIEW_IN_PROGRESS": "delete-stack",
    "UPDATE_ROLLBACK_FAILED": "continue-update-rollback",
    "UPDATE_ROLLBACK_COMPLETE": "",
}


@pytest.mark.parametrize("state", STATES)
def test_every_state_after_a_failure_has_an_exit(site, state):
    caller = "arn:aws:iam::1:user/me"
    (site.answers / "sts.get-caller-identity").write_text(caller)
    line = f"workbench-network\t{state}\tworkbench\t{caller}\n"
    (site.answers / "cloudformation.describe-stacks").write_text(line)
    said = site.run("up.sh", "network", "--dry-run")
    repair = STATES[state]
    assert (f"+ aws cloudformation {repair} --stack-name workbench-network" in said) == bool(repair)
    assert "+ aws cloudformation deploy --stack-name workbench-network" in said


def test_a_failure_is_told_with_its_first_reason(site):
    events = [
        ("workbench-network", "ROLLBACK_IN_PROGRESS", "The following resource(s) failed"),
        ("Other", "CREATE_FAILED", "Resource creation cancelled"),
        ("Box", "CREATE_FAILED", "limit of parameters exceeded"),
        ("workbench-network", "CREATE_IN_PROGRESS", "User Initiated"),
        ("Old", "CREATE_FAILED", "of the attempt before"),
    ]
    text = "".join("\t".join(event) + "\n" for event in events)
    (site.answers / "cloudformation.describe-stack-events").write_text(text)
    said = site.run("up.sh", "network", "--yes", code=1, FAIL_AT="cloudformation deploy *")
    assert "workbench-network failed: Box: limit of parameters exceeded" in said


def test_a_workspace_stops_the_removal_before_anything_is_deleted(site):
    site.create()
    site.client("s3").put_object(Bucket="workbench-lake", Key="studio/e-1/a.ipynb", Body=b"{}")
    said = site.run("down.sh", "--yes", code=1)
    assert "studio/e-1/" in said and "--workspaces-deleted" in said
    assert site.changes() == [] and site.stacks() == ALL
    site.run("publish.sh")
    assert "studio/e-1/a.ipynb" in keys(site), "publishing leaves it"
    site.run("down.sh", "--yes", "--workspaces-deleted")
    assert site.stacks() == {}


def test_what_is_left_is_named(site):
    sqs = site.client("sqs")
    sqs.create_queue(QueueName="forgotten", tags={"workbench:deployment": "workbench"})
    site.client("logs").create_log_group(logGroupName="/workbench/untagged")
    site.client("logs").create_log_group(logGroupName="/workbench-b/another")
    said = site.run("down.sh", "--yes", code=1)
    assert "forgotten" in said and "/workbench/untagged" in said and "another" not in said


def test_connectors_sessions_and_jobs_end_and_another_deployments_stay(site):
    """`workbench-b-x` is connector x of deployment workbench-b."""
    arn = "arn:aws:kafkaconnect:ap-southeast-2:1:connector/workbench-"
    for name, text in {
        "kafkaconnect.list-connectors": f"{arn}x\t{arn}b-x",
        "emr-serverless.list-applications": "00f1",
        "emr-serverless.list-sessions": "s-1",
        "emr-serverless.list-job-runs": "j-1",
    }.items():
        (site.answers / name).write_text(text)
    tags = site.answers / "kafkaconnect.list-tags-for-resource"
    tags.write_text("workbench-b")
    said = site.run("down.sh", "--dry-run")
    assert "delete-connector" not in said
    tags.write_text("workbench")
    said = site.run("down.sh", "--dry-run")
    for change in f"""
        kafkaconnect delete-connector --connector-arn {arn}x
        emr-serverless terminate-session --application-id 00f1 --session-id s-1
        emr-serverless cancel-job-run --application-id 00f1 --job-run-id j-1
        emr-serverless stop-application --application-id 00f1
    """.strip().splitlines():
        assert re.search(re.escape(f"+ aws {change.strip()}") + r"\s", said)


def test_publishing_twice_uploads_nothing_and_a_removed_file_goes(site):
    site.create()
    assert site.run("publish.sh").count("upload: ") == 2
    assert "upload" not in site.run("publish.sh")
    site.client("s3").put_object(Bucket="workbench-lake", Key="workbench/old.py", Body=b"x")
    site.client("s3").put_object(Bucket="workbench-lake", Key="plugins/own.zip", Body=b"x")
    assert "delete: s3://workbench-lake/workbench/old.py" in site.run("publish.sh")
    assert keys(site) == {"workbench/params/aws.yaml", "plugins/a.zip", "plugins/own.zip"}


# ---- the scripts as texts


def test_shellcheck_finds_nothing():
    done = subprocess.run(
        [PROGRAMS / "shellcheck", "-x", *SCRIPTS], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stdout


def test_the_scripts_are_strict_and_short():
    texts = {path.name: path.read_text(encoding="utf-8") for path in SCRIPTS}
    assert all("\nset -euo pipefail\n" in texts[name] for name in texts.keys() - {"common.sh"})
    code = [
        line
        for text in texts.values()
        for line in text.splitlines()
        if line.strip() and not line.strip().startswith("#")
    ]
    assert len(code) <= 300


SESSION = botocore.session.get_session()
# Commands of the AWS CLI that are no operations of the API
OWN_COMMANDS = {
    "cloudformation deploy",
    "cloudformation wait",
    "s3 sync",
    "s3 rm",
    "s3 ls",
    "s3 cp",
}
OWN_OPTIONS = {"query", "output", "region", "filter"}
SERVICES = {"emr": "emr", "s3api": "s3", "emr-serverless": "emr-serverless"}


def calls():
    """(file, service, operation, options) of each call of the AWS CLI in scripts and guides."""
    for path in [*SCRIPTS, DEPLOY / "README.md", DEPLOY / "schedules.md"]:
        text = re.sub(r"\\\n\s*", " ", path.read_text(encoding="utf-8"))
        text = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
        for found in re.finditer(
            r"(?<![\w/-])(?<!--world )aws ([a-z][a-z0-9-]+) ([a-z0-9-]+)([^\n`]*)", text
        ):
            rest = re.split(r" \|\| | && |;|\$\(aws", found[3])[0]
            yield path.name, found[1], found[2], tuple(re.findall(r"(?<=\s)--([a-z0-9-]+)", rest))


@pytest.mark.parametrize("file, service, operation, options", sorted(set(calls())))
def test_a_call_of_the_cli_is_one_that_aws_takes(file, service, operation, options):
    if f"{service} {operation}" in OWN_COMMANDS:
        return
    model = SESSION.get_service_model(SERVICES.get(service, service))
    operations = {xform_name(name, "-"): name for name in model.operation_names}
    members = model.operation_model(operations[operation]).input_shape.members
    known = {xform_name(name, "-") for name in members} | OWN_OPTIONS | EXTRA.get(operation, set())
    assert set(options) <= known


EXTRA = {  # options that the CLI adds to an operation
    "list-clusters": {"active"},
}
