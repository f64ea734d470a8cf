"""Connectors on MSK Connect: botocore's Stubber checks requests and responses by the API's model."""

import contextlib
import datetime as dt
import time
from unittest import mock

import on_aws
import pandas as pd
import pytest
from botocore.exceptions import EndpointConnectionError
from on_aws import ANY, sleep_once
from workbench import connect
from workbench.base import aws, wait
from workbench.base.errors import ConnectorError, StackError
from workbench.connect import msk as side
from workbench.connect import operations, validation
from workbench.landing import models
from worlds import with_settings

pytestmark = pytest.mark.aws

ARN = f"arn:aws:kafkaconnect:{on_aws.REGION}:{on_aws.ACCOUNT}"
ROLE = f"arn:aws:iam::{on_aws.ACCOUNT}:role/workbench-connect-outbox_source"
NAME, GROUP = "outbox_source", "/workbench/connect"
WORLD = on_aws.world()
CONFIG = connect.config(WORLD, NAME)
OTHER = {**CONFIG, "poll.interval.ms": "60"}
SPLIT = pd.DataFrame(
    {"publication": [CONFIG["publication.name"]], "table": [CONFIG["table.include.list"]]}
)


@pytest.fixture(autouse=True)
def deployed(monkeypatch):
    monkeypatch.setattr(aws, "parameters", lambda *_: on_aws.PARAMETERS)
    monkeypatch.setattr(wait.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(side.MskConnect, "failed_task_count", lambda *_: 0)
    monkeypatch.setattr(
        validation.postgres, "tables_published_by_partition", lambda *_: SPLIT.head(0)
    )
    yield
    WORLD.state.close()  # it knows which connectors are healthy


@pytest.fixture
def msk():
    with on_aws.stubbed_client("kafkaconnect") as stub:
        yield stub


def plugin(name="debezium-postgres", state="ACTIVE"):
    return {
        "name": f"workbench-{name}",
        "customPluginState": state,
        "latestRevision": {"revision": 3},
        "customPluginArn": f"{ARN}:custom-plugin/workbench-{name}/1",
    }


def arn(name):
    return f"{ARN}:connector/workbench-{name}/1"


def expect_plugins(msk, *plugins):
    custom = {"customPlugins": list(plugins or [plugin()])}
    msk.add_response("list_custom_plugins", custom, {"namePrefix": "workbench-"})


def expect_list(msk, *names, asked=""):
    connectors = [
        {"connectorName": f"workbench-{name}", "connectorArn": arn(name)} for name in names
    ]
    msk.add_response(
        "list_connectors", {"connectors": connectors}, {"connectorNamePrefix": f"workbench-{asked}"}
    )


def expect_tags(msk, name=NAME, deployment="workbench"):
    msk.add_response(
        "list_tags_for_resource",
        {"tags": {aws.DEPLOYMENT_TAG: deployment}},
        {"resourceArn": arn(name)},
    )


def expect_owned_connectors(msk, *names):
    """Which connectors there are, and that they are ours."""
    expect_list(msk, *names)
    for name in names:
        expect_tags(msk, name)


def expect_describe(msk, *states, name=NAME, **more):
    """Looks at a connector: that it is there, that it is ours, what it is."""
    for state in states:
        expect_list(msk, *([name] if state else []), asked=name)
        if state:
            expect_tags(msk, name)
            log = {"workerLogDelivery": {"cloudWatchLogs": {"enabled": True, "logGroup": GROUP}}}
            msk.add_response(
                "describe_connector",
                {
                    "connectorArn": arn(name),
                    "connectorName": f"workbench-{name}",
                    "connectorState": state,
                    "currentVersion": "K1",
                    "connectorConfiguration": CONFIG,
                    "logDelivery": log,
                    **more,
                },
                {"connectorArn": arn(name)},
            )


def expect_operation(msk, operation, *states, asked=None, **error):
    """Something that is done to the connector, and how it goes on."""
    number = f"{ARN}:connector-operation/1"
    msk.add_response(
        operation, {"connectorOperationArn": number}, {"connectorArn": arn(NAME), **(asked or {})}
    )
    for state in states:
        msk.add_response(
            "describe_connector_operation",
            {"connectorOperationState": state, **error},
            {"connectorOperationArn": number},
        )


@contextlib.contextmanager
def logs(*lines, stream="workbench-outbox_source-0a1b", times=1):
    """CloudWatch's answer to who asks for the errors in the connectors' log: of these lines, the
    newest first."""
    events = [
        {"message": line, "logStreamName": of}
        for of, line in [
            one if isinstance(one, tuple) else (stream, one) for one in reversed(lines)
        ]
    ]
    with on_aws.stubbed_client("logs") as told:
        for _ in range(times):
            told.add_response(
                "filter_log_events",
                {"events": events},
                {
                    "logGroupName": GROUP,
                    "startFromHead": False,
                    "startTime": ANY,
                    "filterPattern": ANY,
                },
            )
        yield


def test_the_classes_are_those_that_landing_knows_and_our_configurations_have():
    ours = (NAME, "moma_sink", "movies_source")
    assert {cls for cls, _ in side.CUSTOM_PLUGINS.values()} == {
        *models.SINKS,
        *models.SOURCES,
        *(connect.config(WORLD, name)["connector.class"] for name in ours),
    }


def test_plugins_are_those_that_are_active_and_of_use(msk):
    expect_plugins(
        msk, plugin(), plugin("confluent-s3", "CREATING"), plugin("mine"), plugin("lenses-s3")
    )
    assert [
        (p["class"].rsplit(".", 1)[-1], p["type"], p["version"]) for p in connect.plugins(WORLD)
    ] == [("PostgresConnector", "source", "3"), ("S3SinkConnector", "sink", "3")]


def test_names_are_those_of_this_deployment(msk):
    """`workbench-b-x` is x of a deployment workbench-b, for all that this one knows."""
    expect_list(msk, "b-x", NAME)
    expect_tags(msk, "b-x", "workbench-b")
    expect_tags(msk)
    assert connect.names(WORLD) == [NAME]


# --- apply
# -----------------------------------------------------------------------------------------------------------


def judged(msk, *there):
    """What apply asks before it does anything: the plugins, and what there is."""
    expect_plugins(msk)
    expect_owned_connectors(msk, *there)
    for name in there:
        expect_describe(msk, "RUNNING", name=name)


def prepared(msk):
    worker = on_aws.PARAMETERS["connect/worker_configuration"]
    expect_plugins(msk)
    msk.add_response(
        "describe_worker_configuration",
        {"workerConfigurationArn": worker, "latestRevision": {"revision": 2}},
        {"workerConfigurationArn": worker},
    )


def expected_create_request(msk, config=CONFIG, authentication="IAM", encryption="TLS"):
    msk.add_response(
        "create_connector",
        {"connectorArn": arn(NAME)},
        {
            "connectorName": "workbench-outbox_source",
            "connectorConfiguration": config,
            "kafkaConnectVersion": "3.7.x",
            "capacity": {"provisionedCapacity": {"mcuCount": 1, "workerCount": 1}},
            "kafkaCluster": {
                "apacheKafkaCluster": {
                    "bootstrapServers": "b-1.example:9098,b-2.example:9098",
                    "vpc": {"subnets": ["subnet-1", "subnet-2"], "securityGroups": ["sg-1"]},
                }
            },
            "kafkaClusterClientAuthentication": {"authenticationType": authentication},
            "kafkaClusterEncryptionInTransit": {"encryptionType": encryption},
            "logDelivery": {
                "workerLogDelivery": {"cloudWatchLogs": {"enabled": True, "logGroup": GROUP}}
            },
            "plugins": [
                {"customPlugin": {"customPluginArn": plugin()["customPluginArn"], "revision": 3}}
            ],
            "serviceExecutionRoleArn": ROLE,
            "tags": {"workbench:deployment": "workbench"},
            "workerConfiguration": {
                "workerConfigurationArn": on_aws.PARAMETERS["connect/worker_configuration"],
                "revision": 2,
            },
        },
    )


@pytest.mark.parametrize("protocol, said", [("SASL_SSL", ("IAM", "TLS")), ("SSL", ("NONE", "TLS"))])
def test_apply_creates_what_is_not_there(msk, protocol, said):
    judged(msk)
    expect_describe(msk, None)
    prepared(msk)
    expect_describe(msk, None)
    expected_create_request(msk, CONFIG, *said)
    expect_owned_connectors(msk, NAME)
    expect_describe(msk, "CREATING")
    made = connect.apply(
        with_settings(WORLD, kafka={"security_protocol": protocol}), NAME, {**CONFIG, "name": NAME}
    )
    assert (made["name"], made["type"], made["state"], made["tasks"]) == (
        NAME,
        "source",
        "UNASSIGNED",
        [],
    )


def test_a_publication_that_publishes_partitions_is_refused(msk, monkeypatch):
    monkeypatch.setattr(validation.postgres, "tables_published_by_partition", lambda *_: SPLIT)
    judged(msk)
    with pytest.raises(
        ConnectorError, match="changes of datalake.cdc_events under the names of the partitions"
    ):
        connect.apply(WORLD, NAME, CONFIG)


def test_tasks_max_is_said_aloud_where_it_is_not_given(msk):
    """As the published JDBC sources have it: MSK Connect takes no connector without it."""
    judged(msk)
    expect_describe(msk, None)
    prepared(msk)
    expect_describe(msk, None)
    expected_create_request(msk)
    expect_owned_connectors(msk, NAME)
    expect_describe(msk, "CREATING")
    connect.apply(WORLD, NAME, {k: v for k, v in CONFIG.items() if k != "tasks.max"})


def test_the_same_again_changes_nothing(msk):
    judged(msk, NAME)
    expect_describe(msk, "RUNNING", "RUNNING", "RUNNING")
    states = connect.apply(WORLD, NAME, CONFIG)
    assert [states["state"], *(t["state"] for t in states["tasks"])] == ["RUNNING", "RUNNING"]


def test_another_configuration_updates_what_is_there_once_it_is_at_rest(msk):
    judged(msk, NAME)
    expect_describe(msk, "UPDATING", "UPDATING", "RUNNING", "RUNNING")
    expect_describe(msk, "RUNNING")
    expect_operation(
        msk,
        "update_connector",
        "UPDATE_IN_PROGRESS",
        "UPDATE_COMPLETE",
        asked={"currentVersion": "K1", "connectorConfiguration": OTHER},
    )
    expect_describe(msk, "RUNNING", connectorConfiguration=OTHER)
    assert connect.apply(WORLD, NAME, OTHER)["state"] == "RUNNING"


def test_an_update_that_aws_undoes_is_told_with_the_reason(msk):
    """MSK Connect goes back to the former configuration, and the connector is RUNNING as if nothing
    had been."""
    judged(msk, NAME)
    expect_describe(msk, "RUNNING", "RUNNING")
    expect_operation(
        msk,
        "update_connector",
        "ROLLBACK_IN_PROGRESS",
        "ROLLBACK_COMPLETE",
        asked={"currentVersion": "K1", "connectorConfiguration": OTHER},
        errorInfo={"code": "X", "message": "not well"},
    )
    with (
        logs('[Worker-1] [2026-11-23 08:00:00,1] ERROR publication "p" does not exist (x:1)'),
        pytest.raises(
            ConnectorError,
            match='(?s)connector is unchanged: X not well … ERROR publication "p".*ROLLBACK_COMP'
            ".*postgres.create_publication",
        ),
    ):
        connect.apply(WORLD, NAME, OTHER)


def test_a_paused_one_runs_again(msk):
    judged(msk, NAME)
    expect_describe(msk, "PAUSED", "PAUSED")
    expect_operation(msk, "resume_connector", "RESUME_COMPLETE")
    expect_describe(msk, "RUNNING", "RUNNING")
    assert connect.apply(WORLD, NAME, CONFIG)["state"] == "RUNNING"


def test_a_failed_one_is_made_anew(msk):
    judged(msk, NAME)
    expect_describe(msk, "FAILED")
    prepared(msk)
    expect_describe(msk, "FAILED")
    msk.add_response("delete_connector", {}, {"connectorArn": arn(NAME)})
    expect_describe(msk, "DELETING", None)
    expected_create_request(msk)
    expect_owned_connectors(msk, NAME)
    expect_describe(msk, "CREATING")
    assert connect.apply(WORLD, NAME, CONFIG)["state"] == "UNASSIGNED"


def test_nothing_is_deleted_for_one_that_cannot_be_created(msk, monkeypatch):
    monkeypatch.setattr(
        aws,
        "parameters",
        lambda *_: {
            name: value
            for name, value in on_aws.PARAMETERS.items()
            if name != f"connect/role/{NAME}"
        },
    )
    judged(msk, NAME)
    expect_describe(msk, "FAILED")
    with pytest.raises(
        ConnectorError,
        match=(
            "(?s)has no parameter 'connect/role/outbox_source'.*nothing was deployed.*5-connect.yaml has one"
        ),
    ):
        connect.apply(WORLD, NAME, CONFIG)


@pytest.mark.parametrize(
    "verb",
    [
        lambda: connect.apply(WORLD, NAME, connect.config(WORLD, "moma_source", slot_prefix="x")),
        lambda: connect.status(WORLD, NAME),
        lambda: connect.failure(WORLD, NAME),
        lambda: connect.restart(WORLD, NAME),
        lambda: connect.wait_running(WORLD, NAME),
        lambda: connect.delete(WORLD, NAME),
    ],
)
def test_somebody_elses_of_the_same_name_is_left_alone_and_nothing_is_waited_for(
    msk, verb, monkeypatch
):
    monkeypatch.setattr(operations, "validate", lambda *_: None)
    monkeypatch.setattr(side.MskConnect, "names", lambda self: [])
    for _ in range(2):  # wait_running looks twice
        expect_list(msk, NAME, asked=NAME)
        expect_tags(msk, NAME, "another")
    with pytest.raises(
        ConnectorError,
        match="(?s)belongs to another deployment; nothing was changed.*stack.deployment",
    ):
        verb()
    msk._queue.clear()


@pytest.mark.parametrize(
    "change, says",
    [
        ({"schema.include": "datalake"}, "did you mean 'schema.include.list'"),
        ({"transforms.unwrap.drop.tombstones": "false"}, "delete.tombstone.handling.mode"),
        ({"tasks.max": ""}, "MSK Connect requires"),
        (
            {"topic.prefix": "${topic_prefix}"},
            r"topic.prefix: the placeholder is not filled: \$\{topic_prefix\}",
        ),
        ({"database.password": "geheim"}, "secret as plain text"),
        ({"errors.tolerance": "all"}, "a source would silently lose"),
        (
            {"connector.class": "io.debezium.connector.mysql.MySqlConnector"},
            "(?s)no plugin.*plugins/<plugin>.zip",
        ),
        (
            {"connector.class": "io.confluent.connect.jdbc.JdbcSourceConnector"},
            "(?s)no plugin.*landing.poll",
        ),
    ],
)
def test_what_can_be_judged_is_judged_before_anything_is_created(msk, change, says):
    expect_plugins(msk)
    with pytest.raises(ConnectorError, match=says) as e:
        connect.apply(WORLD, NAME, {**CONFIG, **change})
    assert "geheim" not in str(e.value)


@pytest.mark.parametrize(
    "name",
    sorted({file.stem for file in connect.CONNECTORS_DIR.glob("*.json")} - on_aws.EMBEDDED_ONLY),
)
def test_every_connector_of_ours_passes(msk, name):
    expect_plugins(msk, *map(plugin, side.CUSTOM_PLUGINS))
    connect.validate(WORLD, connect.config(WORLD, name), name)


@pytest.mark.parametrize("name", sorted(on_aws.EMBEDDED_ONLY))
def test_one_whose_plugin_comes_with_kafka_is_refused_and_told_why(msk, name):
    expect_plugins(msk, *map(plugin, side.CUSTOM_PLUGINS))
    with pytest.raises(
        ConnectorError,
        match="(?s)no plugin.*it is part of Kafka.*MSK Connect has neither",
    ):
        connect.validate(WORLD, connect.config(WORLD, name), name)


def test_a_slot_that_another_connector_reads_is_refused(msk):
    judged(msk, "other")
    with pytest.raises(ConnectorError, match="connector 'other' reads its replication slot"):
        connect.apply(WORLD, NAME, CONFIG)


# --- what is seen
# ----------------------------------------------------------------------------------------------------

TRACE = (
    "[Worker-05e6] [2026-11-23 08:00:00,150] INFO Exception is a word (x:1)",
    "[Worker-05e6] [2026-11-23 08:00:01,150] ERROR [workbench-outbox_source|task-0] Task threw an exception",
    "[Worker-05e6] org.apache.kafka.connect.errors.ConnectException: Could not start",
    '[Worker-05e6] Caused by: org.postgresql.util.PSQLException: ERROR: publication "p" does not exist',
)


@pytest.mark.parametrize(
    "lines",
    [
        TRACE,
        [line for line in TRACE[:1] + ("\n".join(TRACE[1:]).replace("[Worker-05e6] ", ""),)],
        [*TRACE, ("workbench-outbox_source_envelope-1", "[Worker-7] ERROR of the other one")],
        [("a", line) for line in TRACE]
        + [("b", "ERROR [workbench-moma_source|task-0] of another one")],
    ],
    ids=["a line each", "one event", "another stream", "streams named otherwise"],
)
def test_a_failed_one_is_told_with_the_reason_from_its_log(msk, lines):
    expect_describe(
        msk, "FAILED", stateDescription={"code": "UnknownError", "message": "see the log"}
    )
    with logs(*lines):
        said = connect.failure(WORLD, NAME)
    assert "it is FAILED: ERROR" in said and 'publication "p" does not exist' in said
    assert (
        "postgres.create_publication" in said
        and "other one" not in said
        and "another one" not in said
    )


def test_where_the_log_is_silent_mskconnect_has_the_word(msk):
    expect_describe(
        msk, "FAILED", stateDescription={"code": "InvalidInput.X", "message": "no such subnet"}
    )
    with logs(("of-another", "ERROR x")):
        assert "InvalidInput.X: no such subnet" in connect.failure(WORLD, NAME)


def test_a_log_that_must_not_be_read_is_no_end_of_the_status(msk):
    expect_describe(msk, "FAILED")
    with on_aws.stubbed_client("logs") as log:
        log.add_client_error(
            "filter_log_events",
            "AccessDeniedException",
            "User: x is not authorized to perform: "
            "logs:FilterLogEvents on resource: arn:aws:logs:y",
        )
        assert connect.status(WORLD, NAME)["error"] == (
            "its log cannot be read: logs:FilterLogEvents is not allowed on arn:aws:logs:y"
        )


@pytest.mark.parametrize(
    "heard, states",
    [([], ["RUNNING"]), ([(1, 1.0), (2, 0.0)], ["RUNNING"]), ([(2, 1.0), (1, 0.0)], ["FAILED"])],
)
def test_a_task_that_failed_in_a_connector_that_runs_is_told_by_the_metric(
    msk, monkeypatch, heard, states
):
    monkeypatch.undo()
    made = dt.datetime.now(dt.timezone.utc) - dt.timedelta(days=1)
    expect_describe(msk, "RUNNING", creationTime=made)
    failed = "FAILED" in states
    with on_aws.stubbed_client("cloudwatch") as cloudwatch, logs(*TRACE, times=int(failed)):
        points = [{"Timestamp": made + dt.timedelta(minutes=m), "Maximum": v} for m, v in heard]
        cloudwatch.add_response(
            "get_metric_statistics",
            {"Datapoints": points},
            {
                "Namespace": "AWS/KafkaConnect",
                "MetricName": "ErroredTaskCount",
                "Period": 60,
                "Statistics": ["Maximum"],
                "Dimensions": [{"Name": "ConnectorName", "Value": "workbench-outbox_source"}],
                "StartTime": ANY,
                "EndTime": ANY,
            },
        )
        seen = connect.status(WORLD, NAME)
    assert (seen["state"], [t["state"] for t in seen["tasks"]]) == ("RUNNING", states)
    assert ("does not exist" in seen["tasks"][0]["error"]) == failed and not seen["error"]


def test_who_asks_in_a_loop_asks_aws_now_and_then(msk, monkeypatch):
    """topics.wait_for_messages asks five times in a second; MSK Connect would throttle that."""
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    expect_describe(msk, "RUNNING", "RUNNING")
    for _ in range(50):
        assert connect.failure(WORLD, NAME) is None
        clock[0] += 0.2
    assert not msk._queue
    clock[0] += 60
    expect_describe(msk, "FAILED", "RUNNING")  # what is wrong is asked again
    with logs():
        assert connect.failure(WORLD, NAME)
    assert connect.failure(WORLD, NAME) is None


def test_wait_running_waits_for_creation_and_steadiness(msk, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(
        wait.time, "sleep", lambda seconds: clock.__setitem__(0, clock[0] + seconds)
    )
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    expect_describe(msk, "CREATING", "CREATING")  # asked a second time, whether it has failed
    expect_describe(msk, "RUNNING", "RUNNING", "RUNNING")
    assert connect.wait_running(WORLD, NAME)["state"] == "RUNNING"


def test_wait_running_ends_at_once_with_the_reason(msk):
    expect_describe(msk, "FAILED", "FAILED")
    with (
        logs(*TRACE, times=2),
        pytest.raises(
            ConnectorError,
            match='(?s)gave up waiting.*FAILED: ERROR.*publication "p" does not exist',
        ),
    ):
        connect.wait_running(WORLD, NAME)


def expect_create(msk):
    """What `apply` does until the new connector is waited for."""
    judged(msk)
    expect_describe(msk, None)
    prepared(msk)
    expect_describe(msk, None)
    expected_create_request(msk)


def expect_delete(msk):
    expect_describe(msk, "RUNNING")
    msk.add_response("delete_connector", {}, {"connectorArn": arn(NAME)})


def expect_restart(msk):
    expect_describe(msk, "RUNNING", "RUNNING")
    expect_operation(msk, "restart_connector", asked={"onlyFailedTasks": True})


def nothing(msk):
    pass


@pytest.mark.parametrize(
    "before, verb, look",
    [
        (expect_create, lambda: connect.apply(WORLD, NAME, CONFIG), "list_connectors"),
        (expect_delete, lambda: connect.delete(WORLD, NAME), "list_connectors"),
        (
            lambda msk: expect_describe(msk, "UPDATING"),
            lambda: connect.delete(WORLD, NAME),
            "list_connectors",
        ),
        (expect_restart, lambda: connect.restart(WORLD, NAME), "describe_connector_operation"),
        (nothing, lambda: connect.wait_running(WORLD, NAME), "list_connectors"),
    ],
    ids=["apply", "delete", "at rest", "operate", "wait_running"],
)
def test_a_login_that_expires_while_something_is_waited_for_is_told_at_once(
    msk, monkeypatch, before, verb, look
):
    """A look that is throttled, or finds no network, is tried again."""
    waited = []
    monkeypatch.setattr(wait.time, "sleep", sleep_once(waited))
    before(msk)
    for _ in range(2 if before is nothing else 1):  # wait_running asks whether it has failed, too
        msk.add_client_error(
            look, "TooManyRequestsException", "Rate exceeded", http_status_code=429
        )
    msk.add_client_error(
        look, "ExpiredTokenException", "The security token included in the request is expired"
    )
    with pytest.raises(StackError, match="credentials have expired"):
        verb()
    assert len(waited) == 1 and not msk._queue


def test_that_aws_gives_no_answer_is_no_failure_of_a_connector(msk, monkeypatch):
    """Who waits for something else asks this in between (topics.wait_for_messages)."""
    msk.add_client_error(
        "list_connectors", "TooManyRequestsException", "Rate exceeded", http_status_code=429
    )
    assert connect.failure(WORLD, NAME) is None
    away = EndpointConnectionError(endpoint_url="https://kafkaconnect.example")
    with monkeypatch.context() as patched:
        patched.setattr(msk.client, "get_paginator", mock.Mock(side_effect=away))
        assert connect.failure(WORLD, NAME) is None
    expect_describe(
        msk, "FAILED", stateDescription={"code": "X", "message": "no"}
    )  # it was not taken for well
    with logs():
        assert "FAILED" in connect.failure(WORLD, NAME)
    msk.add_client_error(
        "list_connectors", "AccessDeniedException", "User: x is not authorized to perform: y"
    )
    with pytest.raises(StackError, match="is not allowed"):
        connect.failure(WORLD, NAME)


def test_delete_waits_until_it_is_gone_and_one_that_is_not_there_is_fine(msk):
    expect_describe(msk, "CREATING", "RUNNING", "RUNNING")
    msk.add_response("delete_connector", {}, {"connectorArn": arn(NAME)})
    expect_describe(msk, "DELETING", None)
    connect.delete(WORLD, NAME)
    expect_describe(msk, None)
    connect.delete(WORLD, NAME)


def test_restart_starts_what_has_failed_and_old_news_of_it_is_not_believed(msk):
    expect_describe(msk, "RUNNING", "RUNNING")
    expect_operation(
        msk,
        "restart_connector",
        "RESTART_IN_PROGRESS",
        "RESTART_COMPLETE",
        asked={"onlyFailedTasks": True},
    )
    connect.restart(WORLD, NAME)
    assert connect.failure(WORLD, NAME) is None  # without a look


def test_apply_starts_a_failed_task_again(msk, monkeypatch):
    """As the likely causes of a failure say: mend it, then apply again."""
    monkeypatch.setattr(
        side.MskConnect, "failed_task_count", lambda *_, told=[1, 1]: told.pop() if told else 0
    )
    monkeypatch.setattr(side.MskConnect, "failure_reason", lambda *_: "the publication is missing")
    judged(msk, NAME)
    expect_describe(msk, "RUNNING", "RUNNING", "RUNNING", "RUNNING")
    expect_operation(msk, "restart_connector", "RESTART_COMPLETE", asked={"onlyFailedTasks": True})
    expect_describe(msk, "RUNNING")
    assert connect.apply(WORLD, NAME, CONFIG)["tasks"][0]["state"] == "RUNNING"


def test_one_that_failed_as_a_whole_is_not_restarted_and_what_to_do_is_said(msk):
    expect_describe(msk, "FAILED", stateDescription={"code": "X", "message": "no"})
    with (
        logs(),
        pytest.raises(
            ConnectorError, match="(?s)does not restart a failed connector: X: no.*connect.apply"
        ),
    ):
        connect.restart(WORLD, NAME)


def test_there_is_no_such_connector(msk):
    expect_list(msk, asked="outbox_sorce")
    expect_owned_connectors(msk, NAME)
    with pytest.raises(
        ConnectorError, match="(?s)no connector 'outbox_sorce'.*did you mean 'outbox_source'"
    ):
        connect.status(WORLD, "outbox_sorce")


def test_one_that_goes_while_it_is_asked_for_is_not_there(msk):
    expect_list(msk, NAME, asked=NAME)
    msk.add_client_error("list_tags_for_resource", "NotFoundException", "gone")
    assert connect.failure(WORLD, NAME) == "there is no connector 'outbox_source'"


def test_a_missing_permission_names_action_and_resource(msk):
    msk.add_client_error(
        "list_connectors",
        "AccessDeniedException",
        "User: arn:aws:iam::1:role/x is not authorized to "
        "perform: kafkaconnect:ListConnectors on resource: arn:aws:kafkaconnect:x:1:/v1/connectors",
    )
    with pytest.raises(
        StackError, match="kafkaconnect:ListConnectors is not allowed on arn:aws:kafkaconnect:x"
    ):
        connect.names(WORLD)


def test_throttling_ends_after_some_tries_and_is_told(msk):
    msk.add_client_error(
        "list_connectors", "TooManyRequestsException", "Rate exceeded", http_status_code=429
    )
    with pytest.raises(
        StackError,
        match=f"(?s)throttled all {aws.MAX_ATTEMPTS} attempts.*wait some",
    ):
        connect.status(WORLD, NAME)
    assert (
        aws.client(on_aws.REGION, "kafkaconnect").meta.config.retries["total_max_attempts"]
        == aws.MAX_ATTEMPTS
    )
