"""The double of AWS that the dry run asks (tests/help/aws_double.py): what the library makes of its
MSK Connect, with a Kafka Connect behind it that only remembers; and when its Athena answers."""

import threading

import aws_double
import on_aws
import pytest
from workbench import connect
from workbench.base import aws, wait

pytestmark = pytest.mark.aws

WORLD, NAME = on_aws.world(), "movies_source"


@pytest.fixture
def behind(monkeypatch):
    monkeypatch.setattr(aws, "parameters", lambda *_: on_aws.PARAMETERS)
    monkeypatch.setattr(wait.time, "sleep", lambda seconds: None)
    rest = aws_double.Remembers()
    double = aws_double.Double(
        "http://127.0.0.1:9",
        aws_double.msk_connect(
            rest, on_aws.REGION, on_aws.ACCOUNT, aws_double.EMBEDDED, ["workbench-debezium-mysql"]
        ),
    )
    for name, value in (
        ("ENDPOINT_URL", double.url),
        ("ACCESS_KEY_ID", "none"),
        ("SECRET_ACCESS_KEY", "none"),
    ):
        monkeypatch.setenv(f"AWS_{name}", value)
    yield rest
    double.close()


def test_mysql_there_is_mariadb_here(behind):
    config = connect.config(WORLD, NAME)
    connect.apply(WORLD, NAME, config)
    sent = behind.configs[f"workbench-{NAME}"]
    assert {key: value for key, value in sent.items() if config.get(key) != value} == {
        "name": f"workbench-{NAME}",
        "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
        "database.password": "${directory:/secrets:mysql.replication}",
    }
    connect.delete(WORLD, NAME)
    assert behind.configs == {} and connect.names(WORLD) == []


def test_a_task_that_fails_later_is_of_a_connector_that_runs_and_is_restarted(behind, monkeypatch):
    connect.apply(WORLD, NAME, connect.config(WORLD, NAME))
    assert (
        connect.status(WORLD, NAME)["state"] == "RUNNING" and connect.failure(WORLD, NAME) is None
    )
    behind.tasks[f"workbench-{NAME}"] = "FAILED"
    WORLD.state.get("healthy connectors", dict).clear()
    seen = connect.status(WORLD, NAME)
    assert (seen["state"], seen["tasks"][0]["state"]) == ("RUNNING", "FAILED")
    assert "it broke" in connect.failure(WORLD, NAME)
    connect.restart(WORLD, NAME)
    assert connect.status(WORLD, NAME)["tasks"][0]["state"] == "RUNNING"


def test_one_that_never_came_to_run_is_failed(behind):
    config = connect.config(WORLD, NAME)
    connect.apply(WORLD, NAME, config)
    connect.delete(WORLD, NAME)  # and with it that it ran
    behind.first = "FAILED"
    assert connect.apply(WORLD, NAME, config)["state"] == "FAILED"


def test_athena_answers_while_a_statement_runs():
    goes_on = threading.Event()
    answers = aws_double.athena(lambda text: None if goes_on.wait(60) else 1 / 0, "a-bucket")
    asked = answers["athena", "StartQueryExecution"]({"QueryString": "CREATE TABLE t AS SELECT 1"})

    def state():
        return answers["athena", "GetQueryExecution"](asked)["QueryExecution"]["Status"]["State"]

    assert state() == "RUNNING"
    goes_on.set()
    assert (
        wait.wait_until(lambda: state() != "RUNNING" and state(), "the statement", timeout=10)
        == "SUCCEEDED"
    )
