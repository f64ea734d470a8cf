"""World `aws` without AWS: its parameters made up, its clients answered by botocore's Stubber,
which judges each request and each answer by the service's own model. (Services that moto knows:
`moto.mock_aws`.)"""

import contextlib
from unittest import mock

from botocore.stub import ANY, Stubber  # noqa: F401
from workbench.base import aws, params, paths

REGION, ACCOUNT = "ap-southeast-2", "111222333444"
EMBEDDED_ONLY = {
    "movies_file_sink"
}  # connectors whose plugin comes with Kafka, and not with MSK Connect
PARAMETERS = {
    "postgres/host": "db.example",
    "postgres/port": "5432",
    "mysql/host": "my.example",
    "mysql/port": "3306",
    "kafka/bootstrap": "b-1.example:9098,b-2.example:9098",
    "kafka/cluster": f"arn:aws:kafka:{REGION}:{ACCOUNT}:cluster/workbench/1b2c3d4e-5f60-7081-92a3-b4c5d6e7f809-2",
    "connect/subnets": "subnet-1,subnet-2",
    "connect/security_groups": "sg-1",
    "connect/log_group": "/workbench/connect",
    "connect/worker_configuration": (
        f"arn:aws:kafkaconnect:{REGION}:{ACCOUNT}:worker-configuration/workbench/"
        "0a1b2c3d-4e5f-6071-8293-a4b5c6d7-2"
    ),
    "lake/bucket": "workbench-lake",
    "spark/application": "00f1r4c2hs0mq01p",
    "spark/role": f"arn:aws:iam::{ACCOUNT}:role/workbench-spark",
    "emr/cluster": "j-1ABCDEFGHIJKL",
    "emr/cluster_group": "sg-2",
    "emr/notebook_group": "sg-3",
    "emr/notebook_role": f"arn:aws:iam::{ACCOUNT}:role/workbench-notebook",
    **{
        f"connect/role/{file.stem}": f"arn:aws:iam::{ACCOUNT}:role/workbench-connect-{file.stem}"
        for file in (paths.ROOT / "params/connectors").glob("*.json")
        if file.stem not in {"pagila_source_envelope", *EMBEDDED_ONLY}
    },  # the one is deployed as pagila_source
}


def world(name="aws", **more):
    """The world, its parameters PARAMETERS and `more`."""
    with mock.patch.object(aws, "parameters", lambda region, deployment: {**PARAMETERS, **more}):
        return params.load(name)


@contextlib.contextmanager
def stubbed_client(service, region=REGION):
    """The Stubber of a service's client; in the end each answer that was added must have been asked
    for."""
    environment = {"AWS_ACCESS_KEY_ID": "none", "AWS_SECRET_ACCESS_KEY": "none"}
    with mock.patch.dict("os.environ", environment), Stubber(aws.client(region, service)) as stub:
        yield stub
        stub.assert_no_pending_responses()


def sleep_once(waited):
    """A sleep that sleeps not, notes in `waited` how long it should, and bears to be called
    once."""

    def sleep(seconds):
        waited.append(seconds)
        assert len(waited) == 1, "it is waited for what should be told at once"

    return sleep
