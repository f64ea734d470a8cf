"""Connectors on MSK Connect, its answers by botocore's Stubber: requests and answers are judged by the API's model."""
import time

import on_aws
import pytest
from on_aws import ANY
from workbench import connect
from workbench.base import aws, wait
from workbench.base.errors import ConnectorError, StackError

ARN = f"arn:aws:kafkaconnect:{on_aws.REGION}:{on_aws.ACCOUNT}"
ROLE = f"arn:aws:iam::{on_aws.ACCOUNT}:role/workbench-connect-outbox_source"
WORLD = on_aws.world()
CONFIG = connect.config(WORLD, "outbox_source")


@pytest.fixture(autouse=True)
def deployed(monkeypatch):
    monkeypatch.setattr(aws, "parameters", lambda *_: {**on_aws.PARAMETERS, "connect/role/outbox_source": ROLE})
    monkeypatch.setattr(wait.time, "sleep", lambda seconds: None)


@pytest.fixture
def msk():
    with on_aws.stubbed("kafkaconnect") as stub:
        yield stub


def plugin(name="debezium-postgres", state="ACTIVE"):
    return {"name": f"workbench-{name}", "customPluginState": state, "latestRevision": {"revision": 3},
            "customPluginArn": f"{ARN}:custom-plugin/workbench-{name}/1"}


def arn(name):
    return f"{ARN}:connector/workbench-{name}/1"


def has_plugins(msk, *plugins):
    custom = {"customPlugins": list(plugins or [plugin()])}
    msk.add_response("list_custom_plugins", custom, {"namePrefix": "workbench-"})


def has(msk, *names):
    connectors = [{"connectorName": f"workbench-{name}", "connectorArn": arn(name)} for name in names]
    msk.add_response("list_connectors", {"connectors": connectors}, {"connectorNamePrefix": "workbench-"})


def tells(msk, name, state, **more):
    """One look at a connector: which there are, and this one's description."""
    has(msk, name)
    said = {"connectorArn": arn(name), "connectorName": f"workbench-{name}", "connectorState": state,
            "currentVersion": "K1", "connectorConfiguration": CONFIG, **more}
    msk.add_response("describe_connector", said, {"connectorArn": arn(name)})


def tagged(msk, name, deployment="workbench"):
    msk.add_response("list_tags_for_resource", {"tags": {"workbench:deployment": deployment}},
                     {"resourceArn": arn(name)})


def test_plugins_are_those_that_are_active_and_of_use(msk):
    has_plugins(msk, plugin(), plugin("confluent-s3", "CREATING"), plugin("mine"), plugin("lenses-s3"))
    assert [(p["class"].rsplit(".", 1)[-1], p["type"], p["version"]) for p in connect.plugins(WORLD)] == [
        ("PostgresConnector", "source", "3"), ("S3SinkConnector", "sink", "3")]


def created(msk, **changed):
    worker = on_aws.PARAMETERS["connect/worker_configuration"]
    msk.add_response("describe_worker_configuration", {"workerConfigurationArn": worker, "latestRevision": {
        "revision": 2}}, {"workerConfigurationArn": worker})
    has_plugins(msk)
    msk.add_response("create_connector", {"connectorArn": arn("outbox_source")}, {
        "connectorName": "workbench-outbox_source", "connectorConfiguration": CONFIG, "kafkaConnectVersion": "3.7.x",
        "capacity": {"provisionedCapacity": {"mcuCount": 1, "workerCount": 1}},
        "kafkaCluster": {"apacheKafkaCluster": {
            "bootstrapServers": "b-1.example:9098,b-2.example:9098",
            "vpc": {"subnets": ["subnet-1", "subnet-2"], "securityGroups": ["sg-1"]}}},
        "kafkaClusterClientAuthentication": {"authenticationType": "IAM"},
        "kafkaClusterEncryptionInTransit": {"encryptionType": "TLS"},
        "logDelivery": {"workerLogDelivery": {"cloudWatchLogs": {"enabled": True, "logGroup": "/workbench/connect"}}},
        "plugins": [{"customPlugin": {"customPluginArn": plugin()["customPluginArn"], "revision": 3}}],
        "serviceExecutionRoleArn": ROLE, "tags": {"workbench:deployment": "workbench"},
        "workerConfiguration": {"workerConfigurationArn": worker, "revision": 2}, **changed})


def reordered(msk, *names):
    """Of the responses queued, in which order they are asked for. (Stubber hands them out as they were added.)"""
    queue = list(msk._queue)
    msk._queue.clear()
    for name in names:
        found = next(one for one in queue if one["operation_name"] == name)
        queue.remove(found)
        msk._queue.append(found)
    assert not queue


def test_apply_creates_what_is_not_there(msk):
    has_plugins(msk)
    has(msk)
    created(msk)
    reordered(msk, "ListCustomPlugins", "ListConnectors", "ListCustomPlugins", "DescribeWorkerConfiguration",
              "CreateConnector")
    tells(msk, "outbox_source", "CREATING")
    made = connect.apply(WORLD, "outbox_source", CONFIG)
    assert (made["name"], made["type"], made["state"], made["tasks"]) == ("outbox_source", "source", "UNASSIGNED", [])


def test_the_same_again_changes_nothing(msk):
    has_plugins(msk)
    has(msk, "outbox_source")
    tells(msk, "outbox_source", "RUNNING")
    tagged(msk, "outbox_source")
    tells(msk, "outbox_source", "RUNNING")
    states = connect.apply(WORLD, "outbox_source", CONFIG)
    assert [states["state"], *(t["state"] for t in states["tasks"])] == ["RUNNING", "RUNNING"]


def test_another_configuration_updates_what_is_there_once_it_is_at_rest(msk):
    has_plugins(msk)
    has(msk, "outbox_source")
    tells(msk, "outbox_source", "RUNNING", connectorConfiguration={**CONFIG, "tasks.max": "2"})
    tagged(msk, "outbox_source")
    tells(msk, "outbox_source", "UPDATING")
    tells(msk, "outbox_source", "RUNNING")
    tells(msk, "outbox_source", "RUNNING", currentVersion="K2")
    msk.add_response("update_connector", {}, {"connectorArn": arn("outbox_source"), "currentVersion": "K2",
                                              "connectorConfiguration": CONFIG})
    tells(msk, "outbox_source", "UPDATING")
    assert connect.apply(WORLD, "outbox_source", CONFIG)["state"] == "UNASSIGNED"


def test_somebody_elses_of_the_same_name_is_left_alone(msk):
    has_plugins(msk)
    has(msk, "outbox_source")
    tells(msk, "outbox_source", "RUNNING")
    tagged(msk, "outbox_source", "another")
    with pytest.raises(ConnectorError, match="(?s)not of this deployment; nothing was changed.*stack.deployment"):
        connect.apply(WORLD, "outbox_source", CONFIG)


@pytest.mark.parametrize("change, says", [
    ({"schema.include": "datalake"}, "did you mean 'schema.include.list'"),
    ({"transforms.unwrap.drop.tombstones": "false"}, "delete.tombstone.handling.mode"),
    ({"tasks.max": ""}, "MSK Connect demands"),
    ({"database.password": "geheim"}, "secret as plain text"),
    ({"connector.class": "io.debezium.connector.mysql.MySqlConnector"}, "no plugin"),
])
def test_what_can_be_judged_is_judged_before_anything_is_created(msk, change, says):
    has_plugins(msk)
    with pytest.raises(ConnectorError, match=says) as e:
        connect.apply(WORLD, "outbox_source", {**CONFIG, **change})
    assert "geheim" not in str(e.value)


def test_every_connector_of_ours_passes(msk):
    for name in ("outbox_source", "outbox_source_envelope", "moma_source", "moma_source_envelope", "pagila_source",
                 "pagila_source_envelope", "pagila_polled_log"):
        has_plugins(msk)
        connect.validate(WORLD, connect.config(WORLD, name), name)


def test_a_slot_that_another_connector_reads_is_refused(msk):
    has_plugins(msk)
    has(msk, "other")
    tells(msk, "other", "RUNNING")
    with pytest.raises(ConnectorError, match="connector 'other' reads its replication slot"):
        connect.apply(WORLD, "outbox_source", CONFIG)


def test_a_connector_without_a_role_is_not_created(msk, monkeypatch):
    monkeypatch.setattr(aws, "parameters", lambda *_: on_aws.PARAMETERS)
    has_plugins(msk)
    has(msk)
    with pytest.raises(ConnectorError, match="(?s)nothing was deployed.*/workbench/connect/role/outbox_source"):
        connect.apply(WORLD, "outbox_source", CONFIG)


TRACE = """[worker] ERROR Task threw an uncaught exception (org.apache.kafka.connect.runtime.WorkerTask)
org.apache.kafka.connect.errors.ConnectException: Could not start
Caused by: org.postgresql.util.PSQLException: ERROR: publication "cdc_publication" does not exist"""


def logged(*messages):
    """CloudWatch's answer to who asks for the errors of a connector."""
    logs = on_aws.stubbed("logs")
    stub = logs.__enter__()
    stub.add_response("filter_log_events", {"events": [{"message": m, "timestamp": 1} for m in messages]},
                      {"logGroupName": "/workbench/connect", "logStreamNamePrefix": "workbench-outbox_source",
                       "startTime": ANY, "filterPattern": ANY})
    return logs


def test_a_failed_one_is_told_with_the_reason_from_its_log(msk):
    tells(msk, "outbox_source", "FAILED", stateDescription={"code": "UnknownError", "message": "see the log"})
    logs = logged("INFO all is well", TRACE)
    said = connect.failure(WORLD, "outbox_source")
    assert 'publication "cdc_publication" does not exist' in said and "postgres.create_publication" in said
    logs.__exit__(None, None, None)


def test_where_the_log_is_silent_mskconnect_has_the_word(msk):
    tells(msk, "outbox_source", "FAILED", stateDescription={"code": "InvalidInput.X", "message": "no such subnet"})
    logs = logged()
    assert "InvalidInput.X: no such subnet" in connect.failure(WORLD, "outbox_source")
    logs.__exit__(None, None, None)


def test_wait_running_waits_for_creation_and_steadiness(msk, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(wait.time, "sleep", lambda seconds: clock.__setitem__(0, clock[0] + seconds))
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    for state in ("CREATING", "RUNNING"):
        tells(msk, "outbox_source", state)
        tells(msk, "outbox_source", state)  # asked a second time, whether it has failed
    tells(msk, "outbox_source", "RUNNING")
    assert connect.wait_running(WORLD, "outbox_source")["state"] == "RUNNING"


def test_delete_waits_until_it_is_gone_and_one_that_is_not_there_is_fine(msk):
    tells(msk, "outbox_source", "RUNNING")
    tagged(msk, "outbox_source")
    tells(msk, "outbox_source", "RUNNING")
    msk.add_response("delete_connector", {}, {"connectorArn": arn("outbox_source")})
    has(msk, "outbox_source")
    has(msk)
    connect.delete(WORLD, "outbox_source")
    has(msk)
    connect.delete(WORLD, "outbox_source")


def test_restart_starts_what_has_failed(msk):
    tells(msk, "outbox_source", "RUNNING")
    has(msk, "outbox_source")
    msk.add_response("restart_connector", {}, {"connectorArn": arn("outbox_source"), "onlyFailedTasks": True})
    connect.restart(WORLD, "outbox_source")


def test_there_is_no_such_connector(msk):
    has(msk, "outbox_source")
    has(msk, "outbox_source")
    with pytest.raises(ConnectorError, match="(?s)no connector 'outbox_sorce'.*did you mean 'outbox_source'"):
        connect.status(WORLD, "outbox_sorce")


def test_a_missing_permission_names_action_and_resource(msk):
    msk.add_client_error("list_connectors", "AccessDeniedException", "User: arn:aws:iam::1:role/x is not authorized to "
                         "perform: kafkaconnect:ListConnectors on resource: arn:aws:kafkaconnect:x:1:/v1/connectors")
    with pytest.raises(StackError, match="kafkaconnect:ListConnectors is not allowed on arn:aws:kafkaconnect:x"):
        connect.names(WORLD)
