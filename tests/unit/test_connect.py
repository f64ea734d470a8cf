"""Connector configurations and validation that need no Connect."""

import importlib
import json
import re
import socket
from unittest import mock

import on_aws
import pandas as pd
import pytest
from workbench import connect
from workbench.base import params, paths, secrets
from workbench.base.errors import ConnectorError, ServiceLost, StackError
from workbench.connect import configs, rest, validation
from workbench.connect.rest import KafkaConnect
from worlds import with_settings

WORLD = params.load("local")


@pytest.mark.parametrize(
    "file", sorted(connect.CONNECTORS_DIR.glob("*.json")), ids=lambda f: f.stem
)
def test_every_placeholder_is_filled_and_passwords_are_references(file):
    filled = connect.config(WORLD, file.stem)
    references = (WORLD.connect.password_reference, WORLD.mysql.password_reference)
    left = {key for key, value in filled.items() if "${" in value and value not in references}
    assert left == set() and configs.plaintext_secret_keys(filled) == []
    password = filled.get("database.password")
    assert password is None or password.startswith("${directory:")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(configs, "CONNECTORS_DIR", tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "text, name, values, nearest",
    [
        ("{}", "y", {}, "x"),
        ('{"topic.prefix": "${topic_prefx}"}', "x", {}, "topic_prefix"),
        ('{"a": "${bucket}"}', "x", {"buket": "b"}, "bucket"),
    ],
)
def test_an_unknown_file_placeholder_or_value_names_the_nearest(
    folder, text, name, values, nearest
):
    (folder / "x.json").write_text(text)
    (folder / "xy.json").write_text(text)
    with pytest.raises(ConnectorError, match=f"did you mean '{nearest}"):
        connect.config(WORLD, name, **values)


@pytest.mark.parametrize("text", ["{", "[]", '{"tasks.max": 1}', '{"a": "not UTF-8: \xe9"}'])
def test_not_a_flat_object_of_texts(folder, text):
    (folder / "x.json").write_text(text, encoding="latin-1")
    with pytest.raises(ConnectorError, match="x.json"):
        connect.config(WORLD, "x")


def test_a_key_given_twice_is_named(folder):
    (folder / "x.json").write_text('{"tasks.max": "1", "topics": "a", "tasks.max": "2"}')
    with pytest.raises(ConnectorError, match="'tasks.max' occurs twice") as error:
        connect.config(WORLD, "x")
    assert "x.json" in error.value.location


def test_values_are_filled_in_one_pass(folder):
    (folder / "x.json").write_text(json.dumps({"a": "${bucket}/${file:/f:k}"}))
    assert connect.config(WORLD, "x", bucket="${region}")["a"] == "${region}/${file:/f:k}"


def _with(**changes):
    return with_settings(WORLD, connect=changes)


def test_a_file_of_a_sink_is_on_this_machine_also_where_the_lake_is_not():
    lake = params.load("local").lake.landing
    assert (
        f"file:{connect.config(params.load('local'), 'movies_file_sink')['file']}"
        == f"{lake}/movies.txt"
    )
    assert (
        connect.config(params.load("s3"), "movies_file_sink")["file"]
        == f"{paths.state_dir()}/movies.txt"
    )


def test_absent_connect_is_named():
    with pytest.raises(StackError, match="(?s)the service connect is stopped.*workbench up"):
        connect.plugins(_with(url="http://127.0.0.1:1"))


class FakePlugin:
    """A Connect with one plugin, which knows some keys."""

    def __init__(self):
        self.errors, self.sent = {}, []

    def __call__(self, method, path, body=None, **_):
        if path == "/connector-plugins":
            return [{"class": "io.x.PostgresConnector", "type": "source", "version": "1"}]
        self.sent.append(path)
        known = (
            "connector.class name schema.include.list topic.prefix database.password "
            "transforms.unwrap.delete.tombstone.handling.mode"
        ).split()
        return {
            "configs": [
                {"definition": {"name": k}, "value": {"name": k, "errors": self.errors.get(k, [])}}
                for k in known
            ]
        }


@pytest.fixture
def fake(monkeypatch):
    fake = FakePlugin()
    monkeypatch.setattr(KafkaConnect, "call", staticmethod(fake))
    return fake


GOOD = {"connector.class": "io.x.PostgresConnector", "topic.prefix": "p"}


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("schema.include", "did you mean 'schema.include.list'"),
        ("database.server.name", "did you mean 'topic.prefix'"),
        ("value.converter.apicurio.registry.autoregister", "would ignore it"),
        (
            "transforms.unwrap.drop.tombstones",
            "did you mean 'transforms.unwrap.delete.tombstone.handling.mode'",
        ),
    ],
)
def test_a_key_nobody_knows_is_refused(fake, key, says):
    fake.errors = {"topic.prefix": ["is bad"]}
    with pytest.raises(ConnectorError, match="rejected for 2 keys; nothing was deployed") as e:
        connect.apply(WORLD, "one", {**GOOD, key: "x"})
    assert key in str(e.value) and says in str(e.value) and "topic.prefix: is bad" in str(e.value)
    assert all(path.endswith("/config/validate") for path in fake.sent)


def test_keys_by_pattern_pass(fake):
    apicurio = {k: v for k, v in connect.config(WORLD, "moma_source").items() if "apic" in k}
    others = {"snapshot.select.statement.overrides.a.b": "SELECT 1", "producer.override.acks": "1"}
    glue = {
        k: v for k, v in connect.config(on_aws.world(), "moma_sink").items() if "converter" in k
    }
    known = {k: v for k, v in glue.items() if not k.endswith(".converter")}
    assert known and "apicurio" not in str(glue)
    connect.validate(WORLD, {**GOOD, **others, **apicurio, **known})


FOLDER = "${directory:/x/secrets:"  # of the instance; a test has one of its own
MISPLACED = """\
database.user: ${directory:/x/secrets:postgres.admin}
database.user: x${directory:/x/secrets:mine}
heartbeat.action.query: SELECT '${directory:/x/secrets:mine}'
topic.prefix: ${env:HOME}
database.hostname: ${file:/etc/passwd}
connection.url: jdbc:postgresql://h/d?password=${directory:/x/secrets:mine}
database.password: ${directory:/x/secrets:postgres.admin}
database.password: ${directory:/x/secrets:mine}
connection.password: ${secretsmanager:workbench/mine:password}
database.ssl.truststore.password: ${directory:/x/secrets:connect.admin}
value.converter.basic.auth.user.info: ${directory:/x/secrets:mysql.admin}
database.ssl.keystore.password: ${directory:/x/secrets:mysql.replication}
secret: ${directory:/root/.ssh:id_rsa}
database.ssl.truststore.password: ${directory:/s:trust}
database.ssl.truststore.password: ${directory:/x/secrets:.users}
database.ssl.truststore.password: ${directory:/x/secrets/../secrets:my.truststore}
database.ssl.truststore.password: ${file:/s/my.truststore:x}
"""


@pytest.mark.parametrize("line", MISPLACED.splitlines())
def test_a_reference_to_a_secret_is_for_passwords_and_for_the_own_one(fake, line):
    key, _, value = line.partition(": ")
    with pytest.raises(ConnectorError, match=f"'{key}' refers to a secret that is not for this"):
        connect.validate(WORLD, {**GOOD, key: in_own_folder(value)})
    assert fake.sent == []


def in_own_folder(value):
    return value.replace("/x/secrets", str(secrets.secrets_dir()))


def test_references_that_are_for_their_keys():
    own, mysql = WORLD.connect.password_reference, WORLD.mysql.password_reference
    for config in (
        {"database.password": own, "database.ssl.truststore.password": FOLDER + "my.truststore}"},
        {"producer.override.sasl.jaas.config": f'X required password="{FOLDER}my.kafka}}";'},
        {
            "connector.class": "io.debezium.connector.mysql.MySqlConnector",
            "database.password": mysql,
        },
    ):
        filled = {key: in_own_folder(value) for key, value in config.items()}
        validation.reject_exposed_secrets(WORLD, "x", filled)


def test_a_source_that_would_lose_what_it_cannot_send_is_refused_and_a_sink_is_not(fake):
    with pytest.raises(
        ConnectorError, match="(?s)a source would silently lose.*errors.tolerance: all.*none"
    ):
        connect.validate(WORLD, {**GOOD, "errors.tolerance": "all"})
    assert fake.sent == []
    for passes in ({"errors.tolerance": "none"}, {"errors.tolerance": "all", "topics": "t"}):
        with pytest.raises(
            ConnectorError, match="would ignore it"
        ):  # the next question: which keys the plugin has
            connect.validate(WORLD, {**GOOD, **passes})


REF = "${directory:/var/x/secrets:db.pw}"
JAAS = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password='


SECRETS = """\
database.password: canary-7
database.password: ${canary-7
database.password: ${x}canary-7
database.password: ${file:a:b}canary-7
mongodb.connection.string: mongodb://u:canary-7@h:27017/db
mongodb.connection.string: mongodb://u:REFcanary-7@h
mongodb.connection.string: mongodb://u:p/canary-7@h/db
mongodb.connection.string: mongodb://u:77@h/db
connection.url: jdbc:postgresql://h/db?user=u&password=canary-7
connection.url: jdbc:sqlserver://h;user=u;Password = canary-7;encrypt=true
connection.url: jdbc:mysql://h/db?trustCertificateKeyStorePassword=canary-7
producer.override.sasl.jaas.config: JAAS username="u" password="canary-7";
producer.override.sasl.jaas.config: JAAS username="REF" password="canary-7";
producer.override.sasl.jaas.config: JAAS username="u" password='canary-7';
producer.override.sasl.jaas.config: JAAS username="REF" password = "canary-7";
producer.override.sasl.jaas.config: x required clientId=REF clientSecret="canary-7";
driver.options: {"user": "u", "password": "canary-7"}
driver.options: host=h password=canary-7
connection.url: http://h/a?access_token=canary-7
driver.options: SELECT dblink('postgresql://u:canary-7@h')
query: SELECT * FROM dblink('host=h password=canary-7', 'SELECT 1')
query: SELECT * FROM dblink('host=h password=''canary-7''', 'SELECT 1')
query: SELECT * FROM t WHERE password = 'canary-7'
value.converter.basic.auth.user.info: u:canary-7
ssl.keystore.key: canary-7
connection.token: canary-7
x.api.key: canary-7
x.private_key: canary-7
http.headers: Authorization: Bearer canary-7
http.headers: Authorization: Basic canary-7
ssl.chain: -----BEGIN ENCRYPTED PRIVATE KEY-----canary-7
"""
NO_SECRETS = """\
mongodb://u:REF@h
mongodb://REF:REF@h
mongodb://h:27017,h2:27017/db
http://h:80/a@b
jdbc:postgresql://h/db?user=u&password=REF&ssl=true
JAAS username="u" password="REF";
SELECT token, password FROM t
public.users.password:id
REF

?password=
SELECT * FROM t WHERE token_id = 5
topic.regex=^secrets=.*$
^secrets=.*$
passwordFile=/a
value.after.token == 5
jdbc:sqlserver://h:1433;user=u@server
http://[::1]:80/a@b
mongodb://h:1,h2:2/?a=b@c
{"url":"http://h","mail":"a@b"}
{"url":"http://h:80","mail":"a@b"}
Authorization: Bearer REF
Authorization: Basic REF
-----BEGIN CERTIFICATE-----x
select * from t join u using (token) where u.password is not null
"""


def lines(text):
    login = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    reference = "${directory:/var/x/secrets:db.pw}"
    return text.replace("JAAS", login).replace("REF", reference).splitlines()


@pytest.mark.parametrize("line", lines(SECRETS))
def test_a_secret_inside_a_value_is_refused_and_never_sent(fake, line):
    key, _, value = line.partition(": ")
    with pytest.raises(ConnectorError, match="contains a secret as plain text") as e:
        connect.validate(WORLD, {**GOOD, key: value})
    assert key in str(e.value) and "canary-7" not in str(e.value) and fake.sent == []


@pytest.mark.parametrize("value", lines(NO_SECRETS))
def test_references_inside_a_value_and_what_is_no_secret_pass(value):
    assert configs.plaintext_secret_keys({"connection.url": value}) == []


def test_trace_is_cut_to_first_line_and_cause():
    trace = "a.B: stopped\n\tat x\nCaused by: c.D\nCaused by: e.F: Publication autocreation is disabled\n\tat z"
    line = validation.summarize_stacktrace(trace)
    assert line == "a.B: stopped … Caused by: e.F: Publication autocreation is disabled"
    statement = "ALTER TABLE t\n  ADD c varchar(9) COMPRESSED"
    trace = (
        "a.B: stopped\nCaused by: io.debezium.text.ParsingException: DDL statement couldn't be parsed. "
        f"Please open a GitHub issue with the statement '{statement}'\nno viable alternative\n\tat x\n"
        "Caused by: org.antlr.v4.runtime.NoViableAltException\n\tat z"
    )
    line = validation.summarize_stacktrace(trace)
    assert line == f"Debezium cannot parse the statement {statement}"


@pytest.mark.parametrize(
    "line, cause",
    [
        ("e.F: Publication autocreation is disabled", "postgres.create_publication"),
        ("Debezium cannot parse the statement ALTER", "workbench recapture"),
        (
            "Error processing row in d.t, internal schema size 2, but row size 3, restart connector",
            "UNIQUE index on a long column",
        ),
        (
            'java.lang.NullPointerException: Cannot invoke "java.sql.Array.getArray()" because the return '
            'value of "java.sql.ResultSet.getArray(String)" is null',
            "a domain over an enum",
        ),
        (
            "java.util.concurrent.RejectedExecutionException: Task io.debezium.storage.kafka.history."
            "KafkaSchemaHistory$$Lambda$2075/0x7f@7a rejected from java.util.concurrent.ThreadPoolExecutor",
            "connect.restart",
        ),
    ],
)
def test_likely_causes(line, cause):
    assert cause in validation.likely_causes(line)


@pytest.mark.parametrize(
    "class_name, says",
    [
        ("io.confluent.connect.s3.S3SinkConnector", "landing.run"),
        ("io.confluent.connect.jdbc.JdbcSourceConnector", "landing.poll"),
        ("io.x.PostgresConector", "var/plugins"),
    ],
)
def test_what_to_do_about_a_plugin_that_is_not_there(fake, class_name, says):
    with pytest.raises(ConnectorError, match=f"has no plugin '{class_name}'") as e:
        connect.apply(WORLD, "one", {"connector.class": class_name})
    assert says in e.value.hint and fake.sent == []
    assert ("did you mean" in str(e.value)) == class_name.startswith("io.x")
    for module in re.findall(r"workbench\.(\w+)", e.value.hint):
        importlib.import_module(f"workbench.{module}")


@pytest.mark.parametrize(
    "code, error, says",
    [
        (400, ConnectorError, "Connect responds with status 400: no such key"),
        (404, ConnectorError, "Connect responds with status 404: no such key"),
        (500, StackError, "the service kafka died"),
    ],
)
def test_only_a_connect_that_has_no_proper_answer_is_told_as_lost(
    answering, monkeypatch, code, error, says
):
    """A healthy refusal stays what it is, even when Kafka has died in that moment."""
    died = StackError("the service kafka died")
    monkeypatch.setattr(rest.stack, "service_down_error", lambda *args: died)
    served = answering({"/connectors/x": (code, '{"message": "no such key"}')})
    with pytest.raises(error, match=says):
        KafkaConnect(_with(url=served.url, user="")).call("GET", "/connectors/x")


def test_the_state_of_a_connector_is_not_told_without_kafka(answering):
    """Connect goes on answering what it last read in Kafka: a wait for another state took its whole
    time."""
    state = {"state": "RUNNING", "worker_id": "w"}
    body = json.dumps(
        {"name": "x", "type": "source", "connector": state, "tasks": [{"id": 0, **state}]}
    )
    served = answering({"/connectors/x/status": (200, body)})
    with pytest.raises(ServiceLost, match="the service kafka is stopped"):
        connect.failure(_with(url=served.url, user=""), "x")


def test_a_connect_that_is_busy_without_kafka_is_told_at_once(answering):
    """It responds with 503 as long as Kafka is away; a request was once repeated for a minute."""
    served = answering({"/connectors/x/config": (503, "Kafka is away")})
    with pytest.raises(ServiceLost, match="is stopped"):
        KafkaConnect(_with(url=served.url, user="")).call(
            "PUT", "/connectors/x/config", {"name": "x"}
        )
    assert len(served.asked) == 1


def test_a_connect_that_does_not_answer_is_told_in_time(monkeypatch):
    """Without Kafka it answers after 90 s."""
    monkeypatch.setattr(rest, "RESPONSE_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ServiceLost, match="the service connect is stopped"):
            KafkaConnect(_with(url=url, user="")).call("GET", "/connectors")
        elsewhere = _with(url=url, user="", managed=False)
        with pytest.raises(StackError, match="Kafka Connect does not answer"):
            KafkaConnect(with_settings(elsewhere, kafka={"managed": False})).call("GET", "/x")


def test_a_wrong_password_of_connect_is_named(answering, monkeypatch):
    monkeypatch.setenv("WORKBENCH_SECRET_CONNECT_ADMIN", "canary")
    served = answering({"/connectors": (401, "User cannot access the resource.")})
    with pytest.raises(ConnectorError, match="connect.user and connect.password") as error:
        connect.names(_with(url=served.url))
    assert "workbench up" in error.value.hint and "canary" not in str(error.value)


def test_offsets_that_cannot_be_deleted_yet_are_tried_again(monkeypatch):
    """After a restart of Kafka a sink's consumer group has a member until its session ends."""
    refused = ConnectorError("The request can be safely retried")
    other = ConnectorError("Connector x is not stopped")
    call = mock.Mock(side_effect=[refused, refused, [], [], [], other])
    monkeypatch.setattr(KafkaConnect, "call", call)
    monkeypatch.setattr(KafkaConnect, "stop", mock.Mock())
    monkeypatch.setattr(KafkaConnect, "deployed", lambda self, name: {"a": "b"})
    monkeypatch.setattr(KafkaConnect, "find_status", lambda self, name: None)
    connect.delete(WORLD, "x")
    asked = [each.args for each in call.call_args_list]
    assert asked[:3] == [("DELETE", "/connectors/x/offsets")] * 3
    assert asked[3:] == [("DELETE", "/connectors/x"), ("GET", "/connectors")]
    with pytest.raises(ConnectorError, match="is not stopped"):
        connect.delete(WORLD, "x")


def test_a_connect_that_rebalances_is_asked_again(answering):
    served = answering(
        {"/connectors": [(409, "rebalancing"), (503, "starting"), (200, '["b", "a"]')]}
    )
    elsewhere = with_settings(
        _with(url=served.url, user="", managed=False), kafka={"managed": False}
    )
    assert connect.names(elsewhere) == ["a", "b"]
    assert len(served.asked) == 3


def test_a_pattern_of_java_switches_the_check_of_partitions_off_for_itself_only(monkeypatch):
    """Python has no \\p{Alpha}."""
    published = pd.DataFrame({"publication": ["p"], "table": ["public.sales"]})
    monkeypatch.setattr(validation.postgres, "tables_published_by_partition", lambda *_: published)
    server = WORLD.postgres
    config = {
        "publication.name": "p",
        "database.hostname": server.host,
        "database.port": str(server.port),
        "table.include.list": r"public.sales, public.\p{Alpha}+",
    }
    with pytest.raises(ConnectorError, match="the changes of public.sales under"):
        validation.require_root_publication(WORLD, "x", config)
