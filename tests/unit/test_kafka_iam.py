"""How we prove to MSK who we are; no AWS and no broker is asked."""

import base64
import contextlib
import json
import shlex
import stat
import time
from types import SimpleNamespace
from urllib.parse import parse_qs, urlsplit

import on_aws
import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import NewTopic
from workbench.base import params
from workbench.base.errors import StackError
from workbench.topic import kafka_iam, topics

pytestmark = pytest.mark.aws


@pytest.fixture
def aws_config(monkeypatch, tmp_path):
    """No credentials but those that a test names: a function of the config file's text."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    yield (tmp_path / "config").write_text


@pytest.fixture
def signed_in(aws_config, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "session")


def test_a_token_is_a_signed_url_of_the_region(signed_in):
    world = on_aws.world().model_copy(update={"region": "eu-north-1"})
    text, ends = kafka_iam.token(world)
    url = urlsplit(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode())
    assert url.hostname == "kafka.eu-north-1.amazonaws.com"
    said = {k: v[0] for k, v in parse_qs(url.query).items()}
    assert said["Action"] == "kafka-cluster:Connect" and said["X-Amz-Security-Token"] == "session"
    assert said["X-Amz-Credential"].startswith("AKIDEXAMPLE/")
    assert said["X-Amz-Credential"].endswith("/eu-north-1/kafka-cluster/aws4_request")
    assert said["X-Amz-Expires"] == "900" and 800 < ends - time.time() < 901, "seconds since 1970"
    assert "secret" not in url.query


def test_settings_of_both_clients(signed_in):
    world = on_aws.world()
    said = topics.settings(world, **{"group.id": "g"})
    token, ends = said.pop("oauth_cb")(None)
    assert len(token) > 100 and ends > time.time()
    assert said == {
        "bootstrap.servers": "b-1.example:9098,b-2.example:9098",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "log_level": 0,
        "group.id": "g",
    }
    spark = topics.spark_options(world)
    assert {k: v for k, v in spark.items() if "sasl" in k or "security" in k} == {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "AWS_MSK_IAM",
        "kafka.sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
        "kafka.sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
    }
    local = topics.settings(params.load("local"))
    assert not {"oauth_cb", "sasl.mechanism"} & set(local)
    assert not any("sasl" in key for key in topics.spark_options(params.load("local")))


def test_without_credentials_no_client_is_made(aws_config):
    begun = time.monotonic()
    for ask in (
        topics.names,
        lambda w: topics.watermark_offsets(w, "t"),
        lambda w: topics.create(w, "t"),
        topics.settings,
    ):
        with pytest.raises(
            StackError,
            match="(?s)there are no AWS credentials.*kafka-cluster:Connect in ap-.*sign in",
        ):
            ask(on_aws.world())
    assert time.monotonic() - begun < 5, (
        "the client itself says after ten seconds that it has no token"
    )


def test_credentials_that_have_expired_and_are_not_renewed(aws_config, tmp_path, monkeypatch):
    said = {
        "Version": 1,
        "AccessKeyId": "A",
        "SecretAccessKey": "s",
        "SessionToken": "t",
        "Expiration": "2020-01-01T00:00:00Z",
    }
    program = tmp_path / "program"
    # a #! line cannot name a Python whose path has a space
    program.write_text(f"#!/bin/sh\necho {shlex.quote(json.dumps(said))}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    aws_config(f"[profile old]\ncredential_process = {program}\n")
    monkeypatch.setenv("AWS_PROFILE", "old")
    with pytest.raises(
        StackError, match="(?s)AWS credentials have expired.*kafka-cluster:Connect.*sign in"
    ):
        topics.names(on_aws.world())
    program.write_text("#!/bin/sh\necho no >&2; exit 1\n")
    with pytest.raises(StackError, match="(?s)there are no AWS credentials: .*old|custom-process"):
        topics.names(on_aws.world())


def test_a_profile_that_is_not_there(aws_config, monkeypatch):
    monkeypatch.setenv("AWS_PROFILE", "nobodys")
    with pytest.raises(StackError, match="(?s)there are no AWS credentials: .*nobodys"):
        topics.settings(on_aws.world())


def test_credentials_that_end_while_a_client_is_at_work(signed_in, monkeypatch):
    """The client gets no other token and tells nobody: what it is asked for then does not come."""
    world, real, made = on_aws.world(**{"kafka/bootstrap": "127.0.0.1:1"}), kafka_iam.token, []

    def token(world):
        made.append(world)
        if len(made) > 2:
            raise StackError("the AWS credentials have expired")
        return real(world)

    monkeypatch.setattr(kafka_iam, "token", token)
    monkeypatch.setattr(topics, "TIMEOUT_SECONDS", 0.2)
    with pytest.raises(StackError, match="credentials have expired"):
        list(topics.consume(world, "t", {0: 0}, {0: 1}))
    made.clear()
    with pytest.raises(StackError, match="credentials have expired"):
        topics.names(world)


def test_a_broker_that_takes_no_token_is_told_after_a_while(signed_in, monkeypatch):
    monkeypatch.setattr(topics, "TIMEOUT_SECONDS", 1)
    world = on_aws.world(**{"kafka/bootstrap": "127.0.0.1:1"})
    with pytest.raises(
        StackError, match="(?s)Kafka does not answer.*127.0.0.1:1.*get-caller-identity.*Connect"
    ):
        topics.names(world)


def test_the_client_asks_for_its_token_by_itself(signed_in, monkeypatch):
    asked, real = [], kafka_iam.token
    monkeypatch.setattr(kafka_iam, "token", lambda world: asked.append(world.region) or real(world))
    Consumer(topics.settings(on_aws.world(), **{"group.id": "g"})).close()
    assert asked == [on_aws.REGION, on_aws.REGION], "before there is a client, and by the client"


def test_a_topics_replicas_are_the_brokers_default(monkeypatch):
    made = []
    monkeypatch.setattr(topics, "names", lambda *_: {one.topic for one in made})

    class Admin:
        def __init__(self, _):
            pass

        def create_topics(self, new, request_timeout):
            made.extend(new)
            return {one.topic: type("Done", (), {"result": lambda *_: None}) for one in new}

    monkeypatch.setattr(topics, "AdminClient", Admin)
    topics.create(params.load("local"), "t")
    assert isinstance(made[0], NewTopic) and (
        made[0].num_partitions,
        made[0].replication_factor,
    ) == (1, -1)


def test_topics_of_msk_itself_are_not_listed(monkeypatch):
    existing = [
        "__amazon_msk_canary",
        "__amazon_msk_connect_status_x",
        "__consumer_offsets",
        "__debezium-heartbeat.m",
        "t",
    ]
    listed = SimpleNamespace(topics=dict.fromkeys(existing))
    consumer = SimpleNamespace(list_topics=lambda timeout: listed)
    monkeypatch.setattr(topics, "borrow_consumer", lambda _: contextlib.nullcontext(consumer))
    assert topics.names(params.load("local")) == ["__debezium-heartbeat.m", "t"]
