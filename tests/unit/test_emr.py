"""Spark Connect on EMR Serverless: sessions started, shared, terminated; tokens renewed; clients."""

import datetime as dt
from types import SimpleNamespace

import on_aws
import pytest
from workbench.base import aws, wait
from workbench.base.errors import LakeError, StackError
from workbench.spark import emr, sessions, settings, translate_errors

pytestmark = pytest.mark.aws

APPLICATION, NOW = (
    on_aws.PARAMETERS["spark/application"],
    dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc),
)
WORLD = on_aws.world()
ARN = f"arn:aws:emr-serverless:{on_aws.REGION}:{on_aws.ACCOUNT}:/applications/{APPLICATION}/sessions/s1"
ROLE = on_aws.PARAMETERS["spark/role"]


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    monkeypatch.setattr(aws, "parameters", lambda *_: on_aws.PARAMETERS)
    monkeypatch.setattr(wait.time, "sleep", lambda seconds: None)


@pytest.fixture
def stub():
    with on_aws.stubbed_client("emr-serverless") as stub:
        yield stub


def of(**more):
    return {"applicationId": APPLICATION, **more}


def expect_list_sessions(stub, *found):
    told = [
        of(
            sessionId=number,
            arn=ARN,
            state=state,
            name=name,
            createdBy=ROLE,
            createdAt=NOW,
            updatedAt=NOW,
            executionRoleArn=ROLE,
            stateDetails="-",
            releaseLabel="emr-7.13.0",
        )
        for number, state, name in found
    ]
    stub.add_response("list_sessions", {"sessions": told}, of(states=list(emr.ALIVE_STATES)))


def expect_start_session(stub):
    stub.add_response(
        "start_session",
        of(sessionId="s1", arn=ARN),
        of(
            executionRoleArn=ROLE,
            name=emr.session_name(WORLD),
            idleTimeoutMinutes=emr.IDLE_TIMEOUT_MINUTES,
            tags={"workbench:deployment": "workbench"},
            configurationOverrides={
                "runtimeConfiguration": [
                    {
                        "classification": "spark-defaults",
                        "properties": emr.serverless_conf(WORLD),
                    }
                ]
            },
        ),
    )


def expect_get_session(stub, state, number="s1", details="-"):
    told = of(
        sessionId=number,
        arn=ARN,
        state=state,
        createdBy=ROLE,
        createdAt=NOW,
        updatedAt=NOW,
        executionRoleArn=ROLE,
        stateDetails=details,
        releaseLabel="emr-7.13.0",
    )
    stub.add_response("get_session", {"session": told}, of(sessionId=number))


def expect_session_endpoint(stub, text, minutes=60, number="s1"):
    until = dt.datetime.now(dt.timezone.utc) + dt.timedelta(minutes=minutes)
    stub.add_response(
        "get_session_endpoint",
        of(
            sessionId=number,
            endpoint="https://s1.example.aws",
            authToken=text,
            authTokenExpiresAt=until,
        ),
        of(sessionId=number),
    )


def test_a_session_is_started_and_waited_for(stub):
    said = []
    expect_list_sessions(stub)
    expect_start_session(stub)
    for state in ("SUBMITTED", "STARTING", "STARTED"):
        expect_get_session(stub, state)
    expect_session_endpoint(stub, "t-1")
    channel = emr.open_channel(WORLD, [], said.append)
    assert channel.endpoint == "s1.example.aws:443" and channel.secure and len(said) == 1
    assert (emr.AUTH_HEADER, "t-1") in channel.metadata()
    assert "t-1" not in f"{channel!r} {channel.url} {channel.params}"


def test_a_session_of_the_same_person_is_shared_and_anothers_is_not(stub):
    expect_list_sessions(
        stub,
        ("s9", "STARTED", "workbench-somebody-main"),
        ("s7", "STARTING", emr.session_name(WORLD)),
        ("s8", "IDLE", emr.session_name(WORLD)),
    )
    expect_get_session(stub, "IDLE", "s8")
    expect_session_endpoint(stub, "t-1", number="s8")
    assert emr.open_channel(WORLD, []).session == "s8"


def test_a_token_is_renewed_before_its_hour_ends(stub):
    expect_list_sessions(stub, ("s1", "IDLE", emr.session_name(WORLD)))
    expect_get_session(stub, "IDLE")
    expect_session_endpoint(stub, "t-1", minutes=6)
    channel = emr.open_channel(WORLD, [])
    assert (
        dict(channel.metadata())[emr.AUTH_HEADER]
        == dict(channel.metadata())[emr.AUTH_HEADER]
        == "t-1"
    )
    channel._token_expires_at -= dt.timedelta(minutes=2)
    expect_session_endpoint(stub, "t-2")
    assert dict(channel.metadata())[emr.AUTH_HEADER] == "t-2"


def test_one_that_fails_is_told_with_its_reason(stub):
    expect_list_sessions(stub)
    expect_start_session(stub)
    expect_get_session(stub, "FAILED", details="no capacity in subnet-1")
    stub.add_client_error("terminate_session", "ValidationException", "it has failed")
    with pytest.raises(StackError, match="state FAILED: no capacity in subnet-1"):
        emr.open_channel(WORLD, [], lambda text: None)


def test_a_session_whose_start_is_interrupted_is_ended(stub, monkeypatch):
    """Else it would cost money until its idle timeout."""
    expect_list_sessions(stub)
    expect_start_session(stub)
    stub.add_response("terminate_session", of(sessionId="s1"), of(sessionId="s1"))

    def interrupted(world, session_id):
        raise KeyboardInterrupt

    monkeypatch.setattr(emr, "_wait_until_ready", interrupted)
    with pytest.raises(KeyboardInterrupt):
        emr.open_channel(WORLD, [], lambda text: None)
    stub.assert_no_pending_responses()


def test_stop_ends_all_of_ours_also_where_one_is_gone_meanwhile(stub):
    expect_list_sessions(
        stub,
        ("s1", "IDLE", emr.session_name(WORLD)),
        ("s2", "BUSY", emr.session_name(WORLD)),
        ("s3", "BUSY", "another"),
    )
    stub.add_response("terminate_session", of(sessionId="s1"), of(sessionId="s1"))
    stub.add_client_error(
        "terminate_session", "ResourceNotFoundException", "gone", expected_params=of(sessionId="s2")
    )
    assert emr.terminate_sessions(WORLD) == 2


def test_an_error_of_a_session_that_is_over_says_so(stub, monkeypatch):
    monkeypatch.setattr(sessions, "unreachable_reason", lambda spark: "")

    class Spark:
        client = SimpleNamespace(
            _builder=SimpleNamespace(
                endpoint="e:443",
                end_reason=lambda: emr.Channel.end_reason(
                    SimpleNamespace(world=WORLD, session="s1")
                ),
            )
        )

    for state, kind in (("TERMINATED", StackError), ("IDLE", LakeError)):
        expect_get_session(stub, state, details="Session idle timeout")
        with pytest.raises(kind), translate_errors(Spark(), "it failed", "here", "do it again"):
            raise RuntimeError("HTTP 403")


@pytest.mark.parametrize(
    "version, right", [("3.5.6-amzn-1", True), ("3.5.7", True), ("4.0.1", False)]
)
def test_a_client_of_another_version_is_refused(version, right):
    class Spark:
        client = SimpleNamespace(
            _retry_policy={},
            _execute_and_fetch=None,
            _builder=SimpleNamespace(endpoint="e:443"),
            config=lambda operation: None,
        )
        conf = SimpleNamespace(set=lambda key, value: None)

    Spark.version = version
    if right:
        sessions._configure(Spark(), WORLD)
    else:
        with pytest.raises(
            StackError,
            match=r'(?s)is not compatible with Spark 4.0.1.*pip install "pyspark==4.0.\*"',
        ):
            sessions._configure(Spark(), WORLD)


def test_spark_is_started_with_what_hudi_needs():
    assert {
        "spark.serializer",
        "spark.kryo.registrator",
        "spark.sql.extensions",
        "spark.sql.catalog.spark_catalog",
    } <= settings.load_conf("hudi").keys()
    assert "spark.driver.host" not in emr.serverless_conf(WORLD) and "AWSGlueDataCatalog" in str(
        emr.serverless_conf(WORLD)
    )


def test_a_session_has_the_python_packages_that_a_job_has():
    """Spark's workers have neither pandas nor pyarrow of their own."""
    given = emr.serverless_conf(WORLD)
    assert given["spark.archives"] == "s3://workbench-lake/workbench/environment.tar.gz#environment"
    assert given["spark.executorEnv.PYTHONPATH"] == "./environment"
    # the Python that the archive was made for: the image has more than one
    assert {value for key, value in given.items() if "PYSPARK" in key} == {"/usr/bin/python3.9"}
    assert given.items() >= settings.load_conf("hudi").items()
