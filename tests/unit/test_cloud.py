"""The stacks of a deployment: priced, created, updated, removed.

moto simulates CloudFormation, S3 and SSM; botocore's Stubber answers the rest.
"""

import contextlib
import json

import boto3
import on_aws
import pytest
from typer.testing import CliRunner
from workbench.base import aws, wait
from workbench.base.errors import StackError
from workbench.cli import aws as aws_commands
from workbench.deployment import cloud

pytestmark = pytest.mark.aws

ON = cloud.Deployment(on_aws.REGION, "workbench")
NETWORK = """
Parameters:
  Deployment: {Type: String, Default: workbench}
  Size: {Type: String, Default: small}
Conditions:
  Large: !Equals [!Ref Size, large]
  Other: !Not [!Equals [!Ref Size, small]]
Resources:
  Box: {Type: "AWS::SSM::Parameter", Properties: {Type: String, Name: !Sub "/${Deployment}/size", Value: !Ref Size}}
  Second: {Type: "AWS::SQS::Queue", Condition: Large, Properties: {QueueName: !Sub "${Deployment}-q"}}
  Third: {Type: "AWS::SNS::Topic", Condition: Other, Properties: {TopicName: !Sub "${Deployment}-t"}}
Outputs:
  Size: {Value: !Ref Size, Export: {Name: !Sub "${Deployment}-Size"}}
"""
LAKE = """
Parameters:
  Deployment: {Type: String, Default: workbench}
  Named: {Type: String, Description: a name for the bucket}
Resources:
  Bucket: {Type: "AWS::S3::Bucket", Properties: {BucketName: !Ref Named}}
  Note:
    Type: AWS::SSM::Parameter
    Properties:
      {Type: String, Name: !Sub "/${Deployment}/lake/bucket", Value: small,
       Description: {"Fn::ImportValue": !Sub "${Deployment}-Size"}}
"""
PRICES = """
date: 2026-11-23
region: ap-southeast-2
prices:
  AWS::SSM::Parameter:
    - {by: Value, prices: {small: 0.5, large: 2}, times: '`2`'}
  AWS::SQS::Queue: 0.25
  AWS::SNS::Topic: 0.25
  AWS::S3::Bucket: 0
"""
GIVEN = {"Named": "workbench-lake"}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    for name, text in (("1-network", NETWORK), ("2-lake", LAKE), ("prices", PRICES)):
        (tmp_path / f"{name}.yaml").write_text(text)
    monkeypatch.setattr(cloud, "TEMPLATE_DIR", tmp_path)
    monkeypatch.setattr(wait.time, "sleep", lambda seconds: None)
    return tmp_path


def aws_client(service):
    return boto3.client(service, region_name=on_aws.REGION)


def stacks():
    return {
        one["StackName"]: one["StackStatus"]
        for one in aws_client("cloudformation").describe_stacks()["Stacks"]
    }


CONNECTOR = f"arn:aws:kafkaconnect:{ON.region}:1:connector/"


def expect_list_connectors(connect, connectors):
    """Stub the connectors with the deployment's prefix.

    Args: connectors: {name: deployment by tag}, "" for one that is being deleted.
    """
    there = [
        {"connectorName": name, "connectorArn": CONNECTOR + name, "connectorState": "RUNNING"}
        for name in connectors
    ]
    connect.add_response(
        "list_connectors", {"connectors": there}, {"connectorNamePrefix": "workbench-"}
    )
    for name, deployment in connectors.items():
        if deployment:
            connect.add_response(
                "list_tags_for_resource",
                {"tags": {"workbench:deployment": deployment}},
                {"resourceArn": CONNECTOR + name},
            )
        else:
            connect.add_client_error("list_tags_for_resource", "NotFoundException", "gone")


@contextlib.contextmanager
def nothing_runs(connectors=(), sessions=()):
    """Stub what `down` asks MSK Connect and EMR Serverless.

    These are the existing connectors and sessions, and their end.
    """
    with (
        on_aws.stubbed_client("kafkaconnect") as connect,
        on_aws.stubbed_client("emr-serverless") as emr,
    ):
        expect_list_connectors(connect, dict.fromkeys(connectors, "workbench"))
        for name in connectors:
            connect.add_response("delete_connector", {}, {"connectorArn": CONNECTOR + name})
        expect_list_connectors(connect, {})
        of = {"applicationId": "00f1r4c2hs0mq01p"}
        application = {
            "id": of["applicationId"],
            "name": "workbench",
            "state": "STARTED",
            "type": "Spark",
            "arn": f"arn:aws:emr-serverless:{ON.region}:1:/applications/00f1r4c2hs0mq01p",
            "releaseLabel": "emr-7.13.0",
            "createdAt": 0,
            "updatedAt": 0,
        }
        emr.add_response(
            "list_applications", {"applications": [application] if sessions else []}, {}
        )
        if sessions:
            role = "arn:aws:iam::123456789012:role/x"
            told = [
                {
                    **of,
                    "sessionId": number,
                    "state": "IDLE",
                    "createdAt": 0,
                    "updatedAt": 0,
                    "stateDetails": "-",
                    "arn": application["arn"] + f"/sessions/{number}",
                    "executionRoleArn": role,
                    "createdBy": role,
                    "releaseLabel": "emr-7.13.0",
                }
                for number in sessions
            ]
            emr.add_response("list_sessions", {"sessions": told}, {**of, "states": on_aws.ANY})
            emr.add_response("list_job_runs", {"jobRuns": []}, {**of, "states": on_aws.ANY})
            for number in sessions:
                emr.add_response(
                    "terminate_session", {**of, "sessionId": number}, {**of, "sessionId": number}
                )
            for rest in ([{**one, "state": "TERMINATING"} for one in told], []):
                emr.add_response("list_sessions", {"sessions": rest}, {**of, "states": on_aws.ANY})
                emr.add_response("list_job_runs", {"jobRuns": []}, {**of, "states": on_aws.ANY})
            emr.add_response("stop_application", {}, of)
            for state in ("STOPPING", "STOPPED"):
                emr.add_response(
                    "get_application",
                    {
                        "application": {
                            **{k: v for k, v in application.items() if k != "id"},
                            **of,
                            "state": state,
                        }
                    },
                    of,
                )
        yield


def test_what_it_costs_follows_the_parameters():
    rows, day = cloud.hourly_cost()
    assert (
        rows == [("network", "Box", 1.0), ("lake", "Note", 1.0)]
        and day == "2026-11-23, ap-southeast-2"
    )
    assert cloud.hourly_cost({"Size": "large"}, ["network"])[0] == [
        ("network", "Box", 4.0),
        ("network", "Second", 0.25),
        ("network", "Third", 0.25),
    ]


def test_a_price_that_is_not_listed_is_an_error(folder):
    with pytest.raises(StackError, match="(?s)no price of 'huge'.*network: Box"):
        cloud.hourly_cost({"Size": "huge"})
    (folder / "prices.yaml").write_text(PRICES.replace("AWS::S3::Bucket", "AWS::S3::Other"))
    with pytest.raises(StackError, match="(?s)no price of AWS::S3::Bucket.*lake: Bucket"):
        cloud.hourly_cost()


def test_nothing_is_made_where_the_person_says_no(account):
    done = CliRunner().invoke(aws_commands.app, ["up", "-p", "Named=workbench-lake"], input="n\n")
    assert done.exit_code == 1 and "2.0000 USD an hour" in done.output and not stacks()


def test_stacks_are_made_in_order_and_a_second_time_left_alone(account):
    said, done = [], []
    cloud.up(
        ON, GIVEN, progress=said.append, after_create={"lake": lambda: done.append("published")}
    )
    assert stacks() == {"workbench-network": "CREATE_COMPLETE", "workbench-lake": "CREATE_COMPLETE"}
    assert [line.split()[0] for line in said] == [
        "workbench-network",
        "workbench-lake",
    ] and done == ["published"]
    assert aws.parameters(ON.region, ON.name) == {"size": "small", "lake/bucket": "small"}
    cloud.up(ON, {"Size": "large"}, ["network"], progress=said.append)
    assert "was updated" in said[-1] and aws.parameter(ON.region, ON.name, "size") == "large"


def test_what_is_as_it_should_be_is_left_alone(account, monkeypatch):
    cloud.up(ON, GIVEN, progress=lambda text: None)
    with on_aws.stubbed_client("cloudformation") as stub:
        tags = [{"Key": "workbench:deployment", "Value": "workbench"}]
        owner = aws.call(ON.region, "sts", "get_caller_identity")["Arn"]
        told = {
            "Stacks": [
                {
                    "StackName": "workbench-network",
                    "StackStatus": "CREATE_COMPLETE",
                    "CreationTime": 0,
                    "Tags": [*tags, {"Key": "workbench:owner", "Value": owner}],
                }
            ]
        }
        for _ in range(2):
            stub.add_response("describe_stacks", told)
        stub.add_client_error("update_stack", "ValidationError", "No updates are to be performed.")
        said = []
        cloud.up(ON, {}, ["network"], progress=said.append)
    assert said[-1].endswith("is up to date")


def test_parameters_that_were_given_once_stay(account):
    cloud.up(ON, {**GIVEN, "Size": "large"}, progress=lambda text: None)
    cloud.up(ON, {}, progress=lambda text: None)
    assert aws.parameter(ON.region, ON.name, "size") == "large", (
        "and the bucket's name need not be told again"
    )
    assert cloud.current_parameters(cloud.describe_stacks(ON))["lake"] == {
        "Named": "workbench-lake",
        "Deployment": "workbench",
    }
    done = CliRunner().invoke(aws_commands.app, ["up", "network"], input="n\n")
    assert (
        "4.5000 USD an hour" in done.output
        and "5.5000 USD" in CliRunner().invoke(aws_commands.app, ["status"]).output
    )


def test_a_login_that_expires_meanwhile_is_told_at_once_and_a_throttled_look_is_tried_again(
    monkeypatch,
):
    looks = []
    with on_aws.stubbed_client("cloudformation") as stub:
        stub.add_client_error("describe_stacks", "Throttling", "Rate exceeded")
        stub.add_client_error(
            "describe_stacks", "ExpiredToken", "The security token included is expired"
        )
        monkeypatch.setattr(wait.time, "sleep", looks.append)
        with pytest.raises(StackError, match="credentials have expired"):
            cloud._wait_until_stable(ON, "network")
    assert len(looks) == 1


def test_anothers_deployment_is_not_removed(account):
    cloud.up(ON, {}, ["network"], progress=lambda text: None)
    aws_client("cloudformation").update_stack(
        StackName="workbench-network",
        TemplateBody=NETWORK,
        Tags=[
            {"Key": "workbench:deployment", "Value": "workbench"},
            {"Key": "workbench:owner", "Value": "somebody"},
        ],
    )
    with pytest.raises(StackError, match="(?s)not yours; nothing was changed.*made by somebody"):
        cloud.down(ON)
    assert list(stacks()) == ["workbench-network"]
    with nothing_runs():
        cloud.down(ON, take_ownership=True, progress=lambda text: None)
    assert not stacks()


def test_what_has_ended_is_not_left_though_its_tag_is_still_listed(account):
    ec2, tags = aws_client("ec2"), [{"Key": "workbench:deployment", "Value": "workbench"}]
    image = ec2.register_image(Name="empty")["ImageId"]
    (made,) = ec2.run_instances(
        ImageId=image,
        MinCount=1,
        MaxCount=1,
        InstanceType="t3.nano",
        TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
    )["Instances"]
    assert [arn.partition("/")[2] for arn in cloud.remaining_resources(ON)] == [made["InstanceId"]]
    ec2.terminate_instances(InstanceIds=[made["InstanceId"]])
    assert cloud.remaining_resources(ON) == []


@pytest.mark.parametrize("state, gone", [("TERMINATED", True), ("TERMINATING", False)])
def test_a_cluster_has_ended_when_emr_says_so(state, gone):
    arn = f"arn:aws:elasticmapreduce:{ON.region}:1:cluster/j-1"
    with on_aws.stubbed_client("emr") as emr:
        told = {"Cluster": {"Id": "j-1", "Name": "workbench", "Status": {"State": state}}}
        emr.add_response("describe_cluster", told, {"ClusterId": "j-1"})
        assert cloud._is_terminated(ON, arn) == gone
    with on_aws.stubbed_client("ec2") as ec2:
        ec2.add_client_error("describe_instances", "InvalidInstanceID.NotFound", "none")
        assert cloud._is_terminated(ON, f"arn:aws:ec2:{ON.region}:1:instance/i-1")
        for state, gone in (("deleted", True), ("deleting", False)):
            ec2.add_response(
                "describe_nat_gateways",
                {"NatGateways": [{"State": state}]},
                {"NatGatewayIds": ["nat-1"]},
            )
            assert cloud._is_terminated(ON, f"arn:aws:ec2:{ON.region}:1:natgateway/nat-1") == gone
    assert not cloud._is_terminated(ON, "arn:aws:s3:::forgotten")


@pytest.mark.parametrize(
    "given, only, says",
    [({"Naned": "x"}, (), "did you mean 'Named'"), (GIVEN, ["netwrk"], "did you mean 'network'")],
)
def test_parameters_and_names_are_judged_before_anything_is_made(account, given, only, says):
    with pytest.raises(StackError, match=says):
        cloud.up(ON, given, only)
    assert not stacks()


def test_anothers_stack_of_the_same_name_is_left_alone(account):
    aws_client("cloudformation").create_stack(
        StackName="workbench-lake",
        TemplateBody=NETWORK,
        Tags=[
            {"Key": "workbench:deployment", "Value": "workbench"},
            {"Key": "workbench:owner", "Value": "somebody"},
        ],
    )
    with pytest.raises(
        StackError, match="(?s)'workbench-lake' is not yours; nothing was changed.*made by somebody"
    ):
        cloud.up(ON, GIVEN)
    assert list(stacks()) == ["workbench-lake"]


def test_a_stack_that_fails_is_told_with_the_first_reason_and_its_husk_removed(account):
    calls = []
    with on_aws.stubbed_client("cloudformation") as stub:

        def tells(status):
            stub.add_response(
                "describe_stacks",
                {
                    "Stacks": [
                        {
                            "StackName": "workbench-network",
                            "StackStatus": status,
                            "CreationTime": 0,
                            "Tags": calls,
                        }
                    ]
                },
            )

        owner = aws.call(ON.region, "sts", "get_caller_identity")["Arn"]
        calls += [
            {"Key": "workbench:deployment", "Value": "workbench"},
            {"Key": "workbench:owner", "Value": owner},
        ]
        tells("ROLLBACK_COMPLETE")  # looked at for its parameters, and its owner
        tells("ROLLBACK_COMPLETE")  # a husk
        stub.add_response("delete_stack", {}, {"StackName": "workbench-network"})
        stub.add_client_error(
            "describe_stacks", "ValidationError", "Stack with id workbench-network does not exist"
        )
        stub.add_response("create_stack", {"StackId": "x"})
        tells("CREATE_IN_PROGRESS")
        tells("ROLLBACK_COMPLETE")
        event = {
            "StackId": "x",
            "EventId": "1",
            "StackName": "n",
            "Timestamp": 0,
            "LogicalResourceId": "n",
        }
        stub.add_response(
            "describe_stack_events",
            {
                "StackEvents": [
                    {
                        **event,
                        "LogicalResourceId": "Other",
                        "ResourceStatus": "CREATE_FAILED",
                        "ResourceStatusReason": "Resource creation cancelled",
                    },
                    {
                        **event,
                        "LogicalResourceId": "Box",
                        "ResourceStatus": "CREATE_FAILED",
                        "ResourceStatusReason": "limit of parameters exceeded",
                    },
                ],
                "NextToken": "2",
            },
        )
        stub.add_response(
            "describe_stack_events",
            {
                "StackEvents": [
                    {**event, "ResourceStatus": "CREATE_IN_PROGRESS"},
                    {
                        **event,
                        "LogicalResourceId": "Old",
                        "ResourceStatus": "CREATE_FAILED",
                        "ResourceStatusReason": "of the attempt before",
                    },
                ]
            },
        )
        with pytest.raises(StackError, match="was not created: Box: limit of parameters exceeded"):
            cloud.up(ON, {}, ["network"])


def test_after_msk_the_brokers_are_among_the_parameters(account, folder):
    (folder / "4-msk.yaml").write_text(
        NETWORK.replace("-Size", "-Other").replace("/size", "/kafka/cluster")
    )
    with on_aws.stubbed_client("kafka") as kafka:
        told = {"BootstrapBrokerStringSaslIam": "b-1:9098"}
        kafka.add_response("get_bootstrap_brokers", told, {"ClusterArn": "small"})
        cloud.up(ON, {}, ["msk"], progress=lambda text: None)
    assert aws.parameter(ON.region, ON.name, "kafka/bootstrap") == "b-1:9098"


@pytest.mark.parametrize("there", [True, False])
def test_msk_connects_own_role_is_made_where_the_account_has_none(account, folder, there):
    """Else the first CreateConnector creates it, and a notebook may not create roles."""
    (folder / "5-connect.yaml").write_text(NETWORK.replace("-Size", "-Other"))
    role = {
        "Path": "/aws-service-role/kafkaconnect.amazonaws.com/",
        "RoleName": "AWSServiceRoleForKafkaConnect",
        "RoleId": "A" * 16,
        "Arn": f"arn:aws:iam::{on_aws.ACCOUNT}:role/x/AWSServiceRoleForKafkaConnect",
        "CreateDate": 0,
    }
    said, named = [], {"RoleName": "AWSServiceRoleForKafkaConnect"}
    with on_aws.stubbed_client("iam") as iam:
        if there:
            iam.add_response("get_role", {"Role": role}, named)
        else:
            iam.add_client_error(
                "get_role", "NoSuchEntity", "cannot be found", expected_params=named
            )
            iam.add_response(
                "create_service_linked_role",
                {"Role": role},
                {"AWSServiceName": "kafkaconnect.amazonaws.com"},
            )
        cloud.up(ON, {}, ["connect"], progress=said.append)
    assert any("AWSServiceRoleForKafkaConnect" in text for text in said) != there


def filled():
    cloud.up(ON, GIVEN, progress=lambda text: None)
    s3 = aws_client("s3")
    s3.put_bucket_versioning(Bucket="workbench-lake", VersioningConfiguration={"Status": "Enabled"})
    for n in range(3):
        s3.put_object(Bucket="workbench-lake", Key="a", Body=b"x" * n)
    s3.delete_object(Bucket="workbench-lake", Key="a")
    aws_client("ssm").put_parameter(Name="/workbench/kafka/bootstrap", Value="b", Type="String")


def test_down_removes_all_of_it_in_reverse_order(account):
    filled()
    said, released = [], []
    with nothing_runs(["workbench-outbox_source"], ["s1"]):
        cloud.down(ON, lambda: released.append(list(stacks())), progress=said.append)
    assert (
        not stacks()
        and not aws.parameters(ON.region, ON.name)
        and not aws_client("s3").list_buckets()["Buckets"]
    )
    assert released == [["workbench-network", "workbench-lake"]], "while the databases are there"
    assert said == [
        "connectors: 1 ended",
        "sessions and jobs of Spark: 1 ended",
        "bucket workbench-lake: 4 objects removed",
        "workbench-lake           was removed",
        "workbench-network        was removed",
    ]
    with nothing_runs():
        cloud.down(ON, progress=said.append)  # there is nothing, and that is fine


def test_connectors_of_another_deployment_whose_name_begins_so_stay():
    """`workbench-b-x` is connector x of deployment workbench-b in the same region."""
    ours, theirs = (
        {"workbench-x": "workbench", "workbench-y": "workbench"},
        {"workbench-b-x": "workbench-b"},
    )
    with on_aws.stubbed_client("kafkaconnect") as connect:
        expect_list_connectors(connect, {**theirs, **ours})
        for name in ours:
            connect.add_response("delete_connector", {}, {"connectorArn": CONNECTOR + name})
        expect_list_connectors(connect, {**theirs, "workbench-x": "", "workbench-y": "workbench"})
        expect_list_connectors(connect, theirs)
        assert cloud._delete_connectors(ON) == 2


def test_down_that_was_interrupted_goes_on(account, monkeypatch):
    filled()
    delete, once = cloud._delete_stack, []

    def interrupted(on, name):
        if not once:
            once.append(name)
            raise KeyboardInterrupt
        delete(on, name)

    monkeypatch.setattr(cloud, "_delete_stack", interrupted)
    with nothing_runs(), pytest.raises(KeyboardInterrupt):
        cloud.down(ON, progress=lambda text: None)
    assert len(stacks()) == 2
    with nothing_runs():
        cloud.down(ON, progress=lambda text: None)
    assert not stacks()


def test_what_is_left_makes_down_fail_with_its_name(account, monkeypatch):
    filled()
    aws_client("s3").create_bucket(
        Bucket="forgotten", CreateBucketConfiguration={"LocationConstraint": ON.region}
    )
    aws_client("s3").put_bucket_tagging(
        Bucket="forgotten",
        Tagging={"TagSet": [{"Key": "workbench:deployment", "Value": "workbench"}]},
    )
    clock = iter(range(0, 10**6, 100))
    monkeypatch.setattr(wait.time, "monotonic", lambda: next(clock))
    with (
        nothing_runs(),
        pytest.raises(StackError, match="(?s)1 resources remain: arn:aws:s3:::forgotten"),
    ):
        cloud.down(ON, progress=lambda text: None)


def test_status_tells_each_stack(account):
    def told():
        done = CliRunner().invoke(aws_commands.app, ["status"])
        assert done.exit_code == 0, done.exception
        return [
            line.split(None, 1)
            for line in done.output.splitlines()
            if line.startswith("workbench-")
        ]

    assert told() == [["workbench-network", "does not exist"], ["workbench-lake", "does not exist"]]
    cloud.up(ON, {}, ["network"], progress=lambda text: None)
    assert told() == [
        ["workbench-network", "CREATE_COMPLETE"],
        ["workbench-lake", "does not exist"],
    ]


def test_the_verbs_of_the_command_line(account, monkeypatch):
    run = CliRunner().invoke
    done = run(aws_commands.app, ["up", "network", "--yes", "-p", "Size=large"])
    assert (
        done.exit_code == 0
        and "4.5000 USD an hour" in done.output
        and "workbench-network" in stacks()
    )
    assert "CREATE_COMPLETE" in run(aws_commands.app, ["status"]).output
    with nothing_runs():
        done = run(aws_commands.app, ["down", "--yes"])
    assert done.exit_code == 0 and "nothing is left" in done.output, done.output + str(
        done.exception
    )
    assert "slots and publications were not looked for" in done.output
    assert run(aws_commands.app, ["cost"]).exit_code == 0
    assert run(aws_commands.app, ["cost", "-p", "Size"]).exit_code == 2
    assert "has no deployment on AWS" in str(
        run(aws_commands.app, ["status", "--world", "local"]).exception
    )


def test_json_and_short_forms_are_the_same(folder):
    (folder / "1-network.yaml").write_text(
        json.dumps({"Resources": {"A": {"Fn::GetAtt": ["B", "Arn"]}}})
    )
    assert cloud.load_templates(["network"])["network"]["Resources"]["A"] == {
        "Fn::GetAtt": ["B", "Arn"]
    }
