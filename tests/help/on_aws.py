"""World `aws` without AWS: invented parameters, and clients with botocore's Stubber.

The Stubber validates each request and each response with the service's model. (For services that
moto supports: `moto.mock_aws`.)
"""

import contextlib
import re
from unittest import mock

import botocore.session
from botocore import xform_name
from botocore.stub import ANY, Stubber  # noqa: F401
from workbench.base import aws, params, paths

REGION, ACCOUNT = "ap-southeast-2", "111222333444"
EMBEDDED_ONLY = {
    "movies_file_sink"
}  # connectors whose plugin is part of Kafka, but not of MSK Connect
# {service of boto3: its name in IAM} of the services that the library calls
SERVICES = {
    **{name: name for name in ("athena", "cloudwatch", "emr-serverless", "glue", "kafkaconnect")},
    **{name: name for name in ("s3", "secretsmanager", "sns", "ssm", "sts")},
    "emr": "elasticmapreduce",
}
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
    """Return the world with PARAMETERS and further ones."""
    with mock.patch.object(aws, "parameters", lambda region, deployment: {**PARAMETERS, **more}):
        return params.load(name)


def operations(sources):
    """Return the operations that modules name: a set of (service, operation) for each name.

    It has several if the module names several services with such an operation.
    """
    session = botocore.session.get_session()
    known = {
        service: {*map(xform_name, session.get_service_model(service).operation_names)}
        for service in SERVICES
    }
    found = set()
    for text in sources:
        words = {*re.findall(r'"([\w-]+)"', text)}
        services = words & known.keys()
        named = {
            frozenset((service, word) for service in services if word in known[service])
            for word in words
        }
        found |= named - {frozenset()}
    return found


@contextlib.contextmanager
def stubbed_client(service, region=REGION):
    """Yield the Stubber of a service's client; at the end all added responses must be used."""
    environment = {"AWS_ACCESS_KEY_ID": "none", "AWS_SECRET_ACCESS_KEY": "none"}
    with mock.patch.dict("os.environ", environment), Stubber(aws.client(region, service)) as stub:
        yield stub
        stub.assert_no_pending_responses()


def sleep_once(waited):
    """Return a `sleep` that only records its seconds in `waited`, and may be called once."""

    def sleep(seconds):
        waited.append(seconds)
        assert len(waited) == 1, "the second wait; the error should have been raised at once"

    return sleep
