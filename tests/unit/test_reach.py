"""The stack in a world on AWS: services are probed, and nothing is started."""

import contextlib
import datetime as dt
import socket

import on_aws
import pytest
from workbench import stack
from workbench.base import params
from workbench.base.errors import StackError
from workbench.stack import lifecycle, remote
from worlds import activated, with_settings

pytestmark = pytest.mark.aws

NOW, VALUES = dt.datetime(2026, 1, 1), "workbench-values"
ANSWERS = {
    "kafkaconnect": ("list_connectors", {"connectors": []}, {"maxResults": 1}),
    "glue": ("get_registry", {"RegistryName": VALUES}, {"RegistryId": {"RegistryName": VALUES}}),
    "emr-serverless": (
        "get_application",
        {
            "application": {
                "applicationId": on_aws.PARAMETERS["spark/application"],
                "name": "workbench",
                "state": "STARTED",
                "arn": f"arn:aws:emr-serverless:{on_aws.REGION}:{on_aws.ACCOUNT}:/applications/00f1r4c2hs0mq01p",
                "type": "Spark",
                "releaseLabel": "emr-7.13.0",
                "createdAt": NOW,
                "updatedAt": NOW,
            }
        },
        {"applicationId": on_aws.PARAMETERS["spark/application"]},
    ),
    "s3": ("head_bucket", {"BucketRegion": on_aws.REGION}, {"Bucket": "workbench-lake"}),
    "athena": ("get_work_group", {"WorkGroup": {"Name": "workbench"}}, {"WorkGroup": "workbench"}),
}


@pytest.fixture
def near():
    """World aws with database and brokers on a socket of this test."""
    with socket.socket() as there:
        there.bind(("127.0.0.1", 0))
        there.listen()
        port = there.getsockname()[1]
        world = with_settings(
            on_aws.world(),
            postgres={"host": "127.0.0.1", "port": port},
            kafka={"bootstrap": f"127.0.0.1:{port},b-2.example:9098"},
        )
        with activated(world):
            yield world


@pytest.fixture
def answering(near):
    """AWS's services, each of which answers once."""
    with contextlib.ExitStack() as held:
        stubs = {service: held.enter_context(on_aws.stubbed_client(service)) for service in ANSWERS}
        for service, (operation, answer, given) in ANSWERS.items():
            stubs[service].add_response(operation, answer, given)
        yield stubs


def test_all_of_a_deployment_is_looked_at(near, answering):
    found = stack.up(near)
    assert {s.name: s.state for s in found} == dict.fromkeys(
        ("postgres", "kafka", "connect", "spark", "apicurio", "lake", "query"), "up"
    )


def test_what_cannot_be_reached_is_named_with_the_reason(near):
    with on_aws.stubbed_client("kafkaconnect") as stub:
        stub.add_client_error(
            "list_connectors",
            "AccessDeniedException",
            "User: arn:aws:iam::1:user/x is not "
            "authorized to perform: kafkaconnect:ListConnectors on resource: *",
        )
        with pytest.raises(
            StackError, match="(?s)connect cannot be reached.*ListConnectors is not allowed"
        ):
            stack.ensure_running(near, "postgres", "connect")


def test_a_bucket_of_another_region_is_told(near):
    with on_aws.stubbed_client("s3") as stub:
        stub.add_response(
            "head_bucket", {"BucketRegion": "us-east-1"}, {"Bucket": "workbench-lake"}
        )
        seen = remote.probe(near, "lake")
    assert seen.state == "unreachable" and "is in us-east-1" in seen.detail


def test_a_database_that_is_not_there_is_a_matter_of_the_network(near):
    far = with_settings(near, postgres={"port": 1})
    with pytest.raises(StackError, match="(?s)postgres cannot be reached.*network path"):
        stack.ensure_running(far, "postgres")


@pytest.mark.parametrize(
    "kind, master, state",
    [
        ("classic", "yarn", "up"),
        ("classic", "", "up"),
        ("classic", "spark://127.0.0.1:1", "unreachable"),
    ],
)
def test_a_spark_of_this_process_needs_no_address(near, kind, master, state):
    assert (
        remote.probe(with_settings(near, spark={"kind": kind, "master": master}), "spark").state
        == state
    )


def test_a_registry_and_a_mysql_that_the_user_runs_are_checked_and_shown():
    world = with_settings(
        params.load("local"),
        registry={"managed": False, "url": "https://127.0.0.1:1"},
        mysql={"managed": False, "port": 1},
    )
    with pytest.raises(StackError, match="apicurio, mariadb cannot be reached"):
        stack.up(world)
    states = {each.name: each.state for each in stack.status(world)}
    assert states["apicurio"] == states["mariadb"] == "unreachable"


def test_a_service_of_a_source_is_started_with_the_user_of_the_stack(monkeypatch):
    world = params.load("local")
    started = []
    monkeypatch.setattr(lifecycle, "_start", lambda world, *_: started.append(world))
    monkeypatch.setattr(lifecycle.artifacts, "ensure", lambda *names: None)
    stack.up(world.source("bikeshare"), ["postgres"])
    assert started == [world] and started[0].postgres.database == world.postgres.database
