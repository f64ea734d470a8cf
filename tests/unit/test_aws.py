"""Errors of AWS translated for people: message, location and hint; parameters and secrets."""

import json

import on_aws
import pytest
from botocore.exceptions import EndpointConnectionError
from workbench.base import aws, params, secrets
from workbench.base.errors import ParamsError, StackError

pytestmark = pytest.mark.aws

REGION = on_aws.REGION


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "none")


@pytest.mark.parametrize(
    "code, said, what, step",
    [
        ("ExpiredTokenException", "The security token is expired", "have expired", "aws sso login"),
        (
            "UnrecognizedClientException",
            "The token is invalid",
            "does not know these credentials",
            "aws configure",
        ),
        (
            "AccessDeniedException",
            "User: arn:aws:iam::1:user/x is not authorized to perform: athena:GetWorkGroup on "
            "resource: arn:aws:athena:x:1:workgroup/w because no policy allows it",
            "athena:GetWorkGroup is not allowed on arn:aws:athena:x:1:workgroup/w",
            "arn:aws:iam::1:user/x",
        ),
        (
            "PermanentRedirect",
            "must be addressed using the specified endpoint",
            "another region",
            "region",
        ),
        ("InvalidRequestException", "WorkGroup x is not found", "WorkGroup x is not found", ""),
    ],
)
def test_a_refusal_is_told(code, said, what, step):
    with on_aws.stubbed_client("athena") as stub:
        stub.add_client_error("get_work_group", code, said)
        with pytest.raises(StackError) as e:
            aws.call(REGION, "athena", "get_work_group", WorkGroup="w")
    assert what in e.value.message and said.split()[-1] in str(e.value)
    assert step in str(e.value) and "athena.get_work_group" in e.value.location
    assert aws.error_code(e.value) == code


def test_an_error_that_is_expected_is_none_and_no_other_is():
    with on_aws.stubbed_client("athena") as stub:
        for code in ("InvalidRequestException", "AccessDenied"):
            stub.add_client_error("get_work_group", code, "no")
        with aws.ignore_error_codes("^InvalidRequest"):
            aws.call(REGION, "athena", "get_work_group", WorkGroup="w")
            pytest.fail("it went on after the error")
        with (
            pytest.raises(StackError, match="AWS denies the call"),
            aws.ignore_error_codes("^InvalidRequest"),
        ):
            aws.call(REGION, "athena", "get_work_group", WorkGroup="w")
    with pytest.raises(StackError, match="of our own"), aws.ignore_error_codes("."):
        raise StackError("of our own")


def test_a_region_that_is_none_is_told():
    with pytest.raises(StackError, match="(?s)no such region.*ap-southeast-2"):
        aws.call("ap southeast 2", "ssm", "get_parameter", Name="x")


def test_what_cannot_be_reached_names_region_and_network(monkeypatch):
    def nowhere(*args, **kwargs):
        raise EndpointConnectionError(endpoint_url="https://ssm.ap-southeast-9.x/")

    monkeypatch.setattr(
        aws.client("ap-southeast-9", "ssm"), "get_parameter", nowhere, raising=False
    )
    with pytest.raises(StackError, match="(?s)cannot be reached.*ap-southeast-9.*region"):
        aws.call("ap-southeast-9", "ssm", "get_parameter", Name="x")


def test_throttling_is_tried_again_with_a_bound(monkeypatch, answering):
    """A real client against a server that throttles for ever, its back-off not waited out."""
    waited, refusal = (
        [],
        (429, json.dumps({"__type": "TooManyRequestsException", "message": "slow down"})),
    )
    server = answering({"/v1/connectors": refusal})
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    monkeypatch.setattr("time.sleep", waited.append)
    with pytest.raises(StackError, match=f"throttled all {aws.MAX_ATTEMPTS} attempts"):
        aws.call(REGION, "kafkaconnect", "list_connectors")
    assert len(server.asked) == aws.MAX_ATTEMPTS and len(waited) == aws.MAX_ATTEMPTS - 1


def test_parameters_are_those_of_the_deployment(account):
    for name in ("/workbench/lake/bucket", "/workbench/a", "/workbench2/lake/bucket"):
        account("ssm").put_parameter(Name=name, Value=f"value of {name}", Type="String")
    assert aws.parameters(REGION, "workbench") == {
        "lake/bucket": "value of /workbench/lake/bucket",
        "a": "value of /workbench/a",
    }
    assert aws.parameter(REGION, "workbench", "a") == "value of /workbench/a"
    with pytest.raises(
        StackError,
        match="(?s)no parameter 'lake/buket'.*did you mean 'lake/bucket'.*deploy/up.sh",
    ):
        aws.parameter(REGION, "workbench", "lake/buket")


def test_a_secret_is_read_when_it_is_needed_and_never_shown(account, monkeypatch):
    account("secretsmanager").create_secret(
        Name="workbench/postgres.admin",
        SecretString=json.dumps({"username": "x", "password": "geheim"}),
    )
    secret = secrets.Secret("postgres.admin", REGION, "workbench")
    assert secret.reveal() == "geheim" and "geheim" not in f"{secret!r} {secret}"
    assert "geheim" in secrets.revealed(), "a run masks it"
    account("secretsmanager").delete_secret(
        SecretId="workbench/postgres.admin", ForceDeleteWithoutRecovery=True
    )
    assert secret.reveal() == "geheim", "it is read once, not for each connection"
    monkeypatch.setenv("WORKBENCH_SECRET_POSTGRES_ADMIN", "mine")
    assert secret.reveal() == "mine", "what the environment says goes before it"
    account("secretsmanager").create_secret(Name="workbench/odd", SecretString="no json")
    with pytest.raises(StackError, match="an unexpected format") as e:
        secrets.Secret("odd", REGION, "workbench").reveal()
    assert "no json" not in str(e.value)


def test_a_world_takes_its_values_from_the_deployment(monkeypatch):
    monkeypatch.setattr(
        aws,
        "parameters",
        lambda region, deployment: {
            k: v for k, v in on_aws.PARAMETERS.items() if k != "lake/bucket"
        },
    )
    with pytest.raises(
        ParamsError, match="(?s)'workbench' has no parameter 'lake/bucket'.*deploy/up.sh"
    ):
        params.load("aws")
    assert on_aws.world().lake.tables == "s3://workbench-lake/hudi"
    assert on_aws.world().postgres.port == 5432


def test_a_job_on_emr_takes_the_spark_that_is_there(monkeypatch):
    monkeypatch.setenv("WORKBENCH_SPARK", "classic")
    assert (on_aws.world().spark.kind, on_aws.world().spark.master) == ("classic", "")
    assert params.load("local").spark.kind == "connect", "an embedded world has its own"


def test_a_login_helps_after_a_call_without_one(account, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    for _ in range(2):
        with pytest.raises(StackError, match="aws sso login"):
            aws.call(on_aws.REGION, "sts", "get_caller_identity")
    with monkeypatch.context() as patch, pytest.raises(StackError, match="credentials.*nobody"):
        patch.setenv("AWS_PROFILE", "nobody")
        aws.call(on_aws.REGION, "sts", "get_caller_identity")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "none")
    assert aws.call(on_aws.REGION, "sts", "get_caller_identity")["Account"]
