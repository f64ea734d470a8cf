"""Connectors on MSK Connect, which is a double in memory: botocore's models check each request."""

import datetime as dt

import botocore.session
import on_aws
import pandas as pd
import pytest
import yaml
from botocore.exceptions import ClientError
from botocore.validate import ParamValidator
from workbench import connect
from workbench.base import aws, wait
from workbench.base.errors import ConnectorError, StackError
from workbench.connect import msk as side
from workbench.connect import validation
from worlds import with_settings

pytestmark = pytest.mark.aws

ARN = f"arn:aws:kafkaconnect:{on_aws.REGION}:{on_aws.ACCOUNT}"
WORKER = on_aws.PARAMETERS["connect/worker_configuration"]
NAME = "outbox_source"
WORLD = on_aws.world()
CONFIG = connect.config(WORLD, NAME)
OTHER = {**CONFIG, "poll.interval.ms": "60"}
MOMA = connect.config(WORLD, "moma_source", slot_prefix="x")
MODELS = botocore.session.get_session()
NOW = dt.datetime.now(dt.timezone.utc)


def error(code, message="no", status=400):
    """Return the error of AWS as boto3 raises it."""
    response = {
        "Error": {"Code": code, "Message": message},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    return ClientError(response, "x")


THROTTLED = error("TooManyRequestsException", "Rate exceeded", 429)
EXPIRED = error("ExpiredTokenException", "The security token included in the request is expired")


class Msk:
    """MSK Connect, and CloudWatch's metric of failed tasks.

    Attributes:
        connectors: {name: description}. `states` of one are its next states; None: it is gone.
        plugins: custom plugins, {name: state}.
        operation: the next states of an operation.
        failed_tasks: values of the metric, the newest first.
        changes: (operation, parameters) of all calls that change something.
        errors: {operation: errors of its next calls; None is no error}; `errors_after_change` replaces
            them after the first change.
    """

    models = {}  # of services

    def __init__(self):
        self.connectors, self.changes, self.requests = {}, [], []
        self.errors, self.errors_after_change = {}, {}
        self.plugins = {"workbench-debezium-postgres": "ACTIVE"}
        self.operation, self.error_info, self.failed_tasks = ["UPDATE_COMPLETE"], {}, []

    def add(self, name, *states, deployment="workbench", config=CONFIG, **more):
        self.connectors[f"workbench-{name}"] = {
            "connectorArn": f"{ARN}:connector/workbench-{name}/1",
            "states": list(states or ["RUNNING"]),
            "connectorConfiguration": config,
            "currentVersion": "K1",
            "tags": {aws.DEPLOYMENT_TAG: deployment},
            **more,
        }

    def call(self, region, service, operation, /, **params):
        if service not in self.models:
            self.models[service] = MODELS.get_service_model(service)
        name = "".join(word.title() for word in operation.split("_"))
        shape = self.models[service].operation_model(name).input_shape
        report = ParamValidator().validate(params, shape).generate_report()
        assert not report, report
        self.requests.append(operation)
        if self.errors.get(operation):
            raised = self.errors[operation].pop(0)
            if raised:
                with aws.translate_errors(operation):
                    raise raised
        if operation.split("_")[0] not in ("list", "describe", "get"):
            self.changes.append((operation, params))
            self.errors = self.errors_after_change
        return getattr(self, operation)(**params)

    def paginate(self, region, service, operation, key, /, **params):
        return self.call(region, service, operation, **params)[key]

    def _of(self, arn):
        for name, connector in self.connectors.items():
            if connector["connectorArn"] == arn:
                return name, connector
        with aws.translate_errors("x"):
            raise error("NotFoundException")

    def list_custom_plugins(self, namePrefix):
        plugins = [
            {
                "name": name,
                "customPluginState": state,
                "latestRevision": {"revision": 3},
                "customPluginArn": f"{ARN}:custom-plugin/{name}/1",
            }
            for name, state in self.plugins.items()
        ]
        return {"customPlugins": plugins}

    def list_connectors(self, connectorNamePrefix):
        gone = [name for name, each in self.connectors.items() if each["states"][0] is None]
        for name in gone:
            del self.connectors[name]
        found = [
            {"connectorName": name, "connectorArn": each["connectorArn"]}
            for name, each in self.connectors.items()
            if name.startswith(connectorNamePrefix)
        ]
        return {"connectors": found}

    def list_tags_for_resource(self, resourceArn):
        return {"tags": self._of(resourceArn)[1]["tags"]}

    def describe_connector(self, connectorArn):
        name, connector = self._of(connectorArn)
        states = connector["states"]
        state = states.pop(0) if len(states) > 1 else states[0]
        return {**connector, "connectorName": name, "connectorState": state}

    def describe_worker_configuration(self, workerConfigurationArn):
        return {"latestRevision": {"revision": 2}}

    def create_connector(self, connectorName, connectorConfiguration, **more):
        if connectorName in self.connectors:
            with aws.translate_errors("kafkaconnect.create_connector"):
                raise error("ConflictException", f"there is a connector {connectorName}")
        name = connectorName.partition("-")[2]
        self.add(name, "CREATING", config=connectorConfiguration)
        return {"connectorArn": "x"}

    def delete_connector(self, connectorArn):
        self._of(connectorArn)[1]["states"] = ["DELETING", None]
        return {}

    def update_connector(self, connectorArn, currentVersion, connectorConfiguration):
        assert currentVersion == "K1"
        if "ROLLBACK_COMPLETE" not in self.operation:
            self._of(connectorArn)[1]["connectorConfiguration"] = connectorConfiguration
        return {"connectorOperationArn": "1"}

    def resume_connector(self, connectorArn):
        self._of(connectorArn)[1]["states"] = ["RUNNING"]
        return {"connectorOperationArn": "1"}

    def restart_connector(self, connectorArn, onlyFailedTasks):
        assert onlyFailedTasks
        return {"connectorOperationArn": "1"}

    def describe_connector_operation(self, connectorOperationArn):
        states = self.operation
        state = states.pop(0) if len(states) > 1 else states[0]
        return {"connectorOperationState": state, "errorInfo": self.error_info}

    def get_metric_statistics(self, **params):
        dimension = {"Name": "ConnectorName", "Value": f"workbench-{NAME}"}
        assert params["MetricName"] == "ErroredTaskCount" and params["Dimensions"] == [dimension]
        points = [
            {"Timestamp": NOW - dt.timedelta(minutes=age), "Maximum": value}
            for age, value in enumerate(self.failed_tasks)
        ]
        return {"Datapoints": points}


@pytest.fixture(autouse=True)
def msk(monkeypatch):
    msk = Msk()
    for name in ("call", "paginate"):
        monkeypatch.setattr(aws, name, getattr(msk, name))
    monkeypatch.setattr(aws, "parameters", lambda *_: on_aws.PARAMETERS)
    monkeypatch.setattr(
        validation.postgres,
        "tables_published_by_partition",
        lambda *_: pd.DataFrame({"publication": [], "table": []}),
    )
    yield msk
    WORLD.state.get(side.HEALTHY_UNTIL, dict).clear()


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """The seconds that have passed; sleeping takes no time."""
    clock = [0.0]
    monkeypatch.setattr(wait.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(wait.time, "sleep", lambda s: clock.__setitem__(0, clock[0] + s))
    return clock


def test_plugins_are_those_that_are_active_and_of_use(msk):
    msk.plugins |= {
        "workbench-confluent-s3": "CREATING",
        "workbench-mine": "ACTIVE",
        "workbench-lenses-s3": "ACTIVE",
    }
    assert [
        (p["class"].rsplit(".", 1)[-1], p["type"], p["version"]) for p in connect.plugins(WORLD)
    ] == [("PostgresConnector", "source", "3"), ("S3SinkConnector", "sink", "3")]


def test_a_connector_that_is_deleted_meanwhile_is_named(msk):
    msk.add(NAME, *["RUNNING"] * 4, None)
    with pytest.raises(ConnectorError, match="there is no connector 'outbox_source' any more"):
        connect.restart(WORLD, NAME)


def test_connectors_of_another_deployment_are_not_ours(msk):
    """`workbench-b-x` is x of a deployment workbench-b, for all that the name says."""
    msk.add("b-x", deployment="workbench-b")
    msk.add(NAME)
    assert connect.names(WORLD) == [NAME] and connect.deployed(WORLD, "b-x") == {}
    connect.delete(WORLD, "b-x")
    msk.add(NAME, deployment="another")
    with pytest.raises(StackError, match="there is a connector workbench-outbox_source"):
        connect.apply(WORLD, NAME, OTHER)
    assert [operation for operation, _ in msk.changes] == ["create_connector"]
    assert msk.connectors["workbench-outbox_source"]["connectorConfiguration"] == CONFIG


@pytest.mark.parametrize("protocol, said", [("SASL_SSL", ("IAM", "TLS")), ("SSL", ("NONE", "TLS"))])
def test_apply_creates_what_is_not_there(msk, protocol, said):
    """Without tasks.max, as in the published JDBC sources: MSK Connect takes no connector without it."""
    world = with_settings(WORLD, kafka={"security_protocol": protocol})
    given = {key: value for key, value in CONFIG.items() if key != "tasks.max"}
    made = connect.apply(world, NAME, {**given, "name": NAME})
    assert (made["name"], made["type"], made["state"]) == (NAME, "source", "UNASSIGNED")
    assert made["tasks"] == []
    ((_, request),) = msk.changes
    assert request.pop("connectorConfiguration") == CONFIG
    role = on_aws.PARAMETERS[f"connect/role/{NAME}"]
    assert request == yaml.safe_load(f"""
        connectorName: workbench-outbox_source
        kafkaConnectVersion: 3.7.x
        capacity: {{provisionedCapacity: {{mcuCount: 1, workerCount: 1}}}}
        kafkaCluster:
          apacheKafkaCluster:
            bootstrapServers: b-1.example:9098,b-2.example:9098
            vpc: {{subnets: [subnet-1, subnet-2], securityGroups: [sg-1]}}
        kafkaClusterClientAuthentication: {{authenticationType: {said[0]}}}
        kafkaClusterEncryptionInTransit: {{encryptionType: {said[1]}}}
        logDelivery:
          workerLogDelivery: {{cloudWatchLogs: {{enabled: true, logGroup: /workbench/connect}}}}
        plugins:
        - customPlugin:
            customPluginArn: {ARN}:custom-plugin/workbench-debezium-postgres/1
            revision: 3
        serviceExecutionRoleArn: {role}
        tags: {{"workbench:deployment": workbench}}
        workerConfiguration: {{workerConfigurationArn: {WORKER}, revision: 2}}
        """)


def test_the_same_again_changes_nothing(msk):
    msk.add(NAME)
    states = connect.apply(WORLD, NAME, CONFIG)
    assert [states["state"], *(t["state"] for t in states["tasks"])] == ["RUNNING", "RUNNING"]
    assert msk.changes == []


def test_another_configuration_updates_what_is_there_once_it_is_at_rest(msk):
    msk.add(NAME, "UPDATING", "UPDATING", "UPDATING", "RUNNING")
    msk.operation = ["UPDATE_IN_PROGRESS", "UPDATE_COMPLETE"]
    assert connect.apply(WORLD, NAME, OTHER)["state"] == "RUNNING"
    assert [operation for operation, _ in msk.changes] == ["update_connector"]
    assert connect.deployed(WORLD, NAME) == OTHER and len(msk.operation) == 1


def test_an_update_that_aws_undoes_is_told_with_the_reason(msk):
    """MSK Connect goes back to the former configuration, and the connector is RUNNING as if nothing
    had been."""
    msk.add(NAME)
    msk.operation = ["ROLLBACK_IN_PROGRESS", "ROLLBACK_COMPLETE"]
    msk.error_info = {"code": "X", "message": "not well"}
    with pytest.raises(
        ConnectorError,
        match="(?s)connector is unchanged: X not well.*ROLLBACK_COMP.*logs tail /workbench/connect",
    ):
        connect.apply(WORLD, NAME, OTHER)


@pytest.mark.parametrize(
    "state, after, changes",
    [
        ("PAUSED", "RUNNING", ["resume_connector"]),
        ("FAILED", "UNASSIGNED", ["delete_connector", "create_connector"]),
    ],
)
def test_a_paused_one_runs_again_and_a_failed_one_is_made_anew(msk, state, after, changes):
    msk.add(NAME, state)
    assert connect.apply(WORLD, NAME, CONFIG)["state"] == after
    assert [operation for operation, _ in msk.changes] == changes


def test_nothing_is_deleted_for_one_that_cannot_be_created(msk, monkeypatch):
    parameters = {**on_aws.PARAMETERS}
    del parameters[f"connect/role/{NAME}"]
    monkeypatch.setattr(aws, "parameters", lambda *_: parameters)
    msk.add(NAME, "FAILED")
    message = "(?s)has no parameter 'connect/role/outbox_source'.*nothing was deployed.*5-connect.y"
    with pytest.raises(ConnectorError, match=message):
        connect.apply(WORLD, NAME, CONFIG)
    assert msk.changes == []


def test_a_connector_without_a_plugin_is_refused_before_anything_is_created(msk):
    config = {**CONFIG, "connector.class": "io.debezium.connector.mysql.MySqlConnector"}
    with pytest.raises(ConnectorError, match="(?s)no plugin.*plugins/<plugin>.zip"):
        connect.apply(WORLD, NAME, config)
    assert msk.changes == []


def test_every_connector_of_ours_passes_if_its_plugin_is_there(msk):
    msk.plugins = dict.fromkeys((f"workbench-{name}" for name in side.CUSTOM_PLUGINS), "ACTIVE")
    for name in {file.stem for file in connect.CONNECTORS_DIR.glob("*.json")}:
        if name not in on_aws.EMBEDDED_ONLY:
            connect.validate(WORLD, connect.config(WORLD, name), name)
    for name in on_aws.EMBEDDED_ONLY:
        with pytest.raises(ConnectorError, match="(?s)no plugin.*it is part of Kafka"):
            connect.validate(WORLD, connect.config(WORLD, name), name)


def test_a_failed_one_is_told_with_the_description_of_aws_and_the_place_of_its_log(msk):
    description = {"code": "UnknownError", "message": "no such subnet"}
    msk.add(NAME, "FAILED", stateDescription=description)
    told = "it is FAILED: UnknownError: no such subnet .*`aws logs tail /workbench/connect"
    with pytest.raises(ConnectorError, match=f"gave up waiting.*{told}"):
        connect.wait_running(WORLD, NAME)
    with pytest.raises(ConnectorError, match="(?s)does not restart a failed.*connect.apply"):
        connect.restart(WORLD, NAME)
    msk.add(NAME, "FAILED")
    assert "FAILED: no reason given (read its log" in connect.failure(WORLD, NAME)


@pytest.mark.parametrize(
    "values, state", [([], "RUNNING"), ([0.0, 1.0], "RUNNING"), ([1.0, 0.0], "FAILED")]
)
def test_a_task_that_failed_in_a_connector_that_runs_is_told_by_the_metric(msk, values, state):
    msk.add(NAME)
    msk.failed_tasks = values
    seen = connect.status(WORLD, NAME)
    assert (seen["state"], [task["state"] for task in seen["tasks"]]) == ("RUNNING", [state])
    assert ("read its log" in seen["tasks"][0]["error"]) == (state == "FAILED")
    assert not seen["error"]


def test_apply_starts_a_failed_task_again_and_old_news_of_it_is_not_believed(msk):
    """As the likely causes of a failure say: mend it, then apply again."""
    msk.add(NAME)
    msk.failed_tasks = [1.0]
    connect.apply(WORLD, NAME, CONFIG)
    assert [operation for operation, _ in msk.changes] == ["restart_connector"]
    assert connect.failure(WORLD, NAME) is None, "CloudWatch is late"


def test_who_asks_in_a_loop_asks_aws_now_and_then(msk, clock):
    """topics.wait_for_messages asks five times in a second; MSK Connect would throttle that."""
    msk.add(NAME)
    for _ in range(50):
        assert connect.failure(WORLD, NAME) is None
        clock[0] += 0.2
    assert msk.requests.count("describe_connector") == 2
    clock[0] += 60
    msk.add(NAME, "FAILED", "RUNNING")  # what is wrong is asked again
    assert connect.failure(WORLD, NAME)
    assert connect.failure(WORLD, NAME) is None


def test_wait_running_waits_for_creation_and_steadiness(msk, clock):
    """However long an answer takes: a task that has begun a moment ago may fail the next. Each wait looks twice."""
    msk.add(NAME, "CREATING", "CREATING", "RUNNING", "RUNNING", "UPDATING", "UPDATING", "RUNNING")
    msk.errors = {"list_connectors": [*[None] * 8, THROTTLED]}  # the look after the next RUNNING
    assert connect.wait_running(WORLD, NAME)["state"] == "RUNNING"
    assert clock[0] == 6 * side.POLL_INTERVAL


@pytest.mark.parametrize(
    "verb, look",
    [
        (lambda: connect.apply(WORLD, "moma_source", MOMA), "list_connectors"),
        (lambda: connect.apply(WORLD, NAME, OTHER), "describe_connector_operation"),
        (lambda: connect.delete(WORLD, NAME), "list_connectors"),
    ],
    ids=["create", "update", "delete"],
)
def test_a_login_that_expires_while_something_is_waited_for_is_told_at_once(msk, clock, verb, look):
    """A look that is throttled is tried again."""
    msk.add(NAME)
    msk.errors_after_change = {look: [THROTTLED, EXPIRED]}
    with pytest.raises(StackError, match="credentials have expired"):
        verb()
    assert clock[0] == side.POLL_INTERVAL and len(msk.changes) == 1


def test_that_aws_gives_no_answer_is_no_failure_of_a_connector(msk):
    """Who waits for something else asks this in between (topics.wait_for_messages)."""
    msk.add(NAME, "FAILED")
    msk.errors = {"list_connectors": [THROTTLED, None, error("AccessDeniedException")]}
    assert connect.failure(WORLD, NAME) is None
    assert "FAILED" in connect.failure(WORLD, NAME), "it was not taken for well"
    with pytest.raises(StackError, match="AWS denies the call"):
        connect.failure(WORLD, NAME)


def test_delete_waits_until_it_is_gone_and_one_that_is_not_there_is_fine(msk):
    msk.add(NAME, "CREATING", "CREATING", "RUNNING")
    connect.delete(WORLD, NAME)
    assert msk.connectors == {}
    connect.delete(WORLD, NAME)
    assert [operation for operation, _ in msk.changes] == ["delete_connector"]


def test_there_is_no_such_connector(msk):
    msk.add(NAME)
    for verb in (connect.status, connect.restart):
        with pytest.raises(
            ConnectorError, match="(?s)no connector 'outbox_sorce'.*did you mean 'outbox_source'"
        ):
            verb(WORLD, "outbox_sorce")
    msk.errors = {"list_tags_for_resource": [error("NotFoundException")]}
    gone = "there is no connector 'outbox_source'"
    assert connect.failure(WORLD, NAME) == gone, "it goes while it is asked for"
