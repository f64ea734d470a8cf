"""Connector configurations and validation that need no Connect."""

import importlib
import itertools
import json
import re
import socket

import on_aws
import pytest
from workbench import connect
from workbench.base import http, params, paths, secrets, wait
from workbench.base.errors import ConnectorError, ServiceLost, StackError
from workbench.connect import configs, rest, validation
from workbench.connect.rest import KafkaConnect
from worlds import with_settings

WORLD = params.load("local")


@pytest.mark.parametrize(
    "name", ["outbox_source", "outbox_source_envelope", "outbox_sink", "moma_source", "moma_sink"]
)
def test_every_placeholder_is_filled_and_no_secret_is_in(name):
    filled = connect.config(WORLD, name)
    left = [v for v in filled.values() if "${" in v and v != WORLD.connect.password_reference]
    assert left == []
    assert all(isinstance(v, str) for v in filled.values())


def test_password_is_a_reference_for_the_worker():
    assert connect.config(WORLD, "outbox_source")["database.password"].startswith("${directory:")


def test_sink_lands_the_topic_the_source_writes():
    source, sink = (
        connect.config(WORLD, "outbox_source"),
        connect.config(WORLD, "outbox_sink", bucket="lake"),
    )
    topic = f"{source['topic.prefix']}.{source['table.include.list']}"
    assert sink["topics"] == topic == "msk.datalake.cdc_events"
    assert sink["connect.s3.kcql"] == (
        f"INSERT INTO lake:cdc-events SELECT * FROM {topic} PARTITIONBY customer_id,order_id STOREAS `json` "
        "WITH_FLUSH_INTERVAL = 60 WITH_FLUSH_COUNT = 50"
    )


def test_the_museum_connectors_are_those_of_the_walkthrough():
    source, sink = (
        connect.config(WORLD, "moma_source"),
        connect.config(WORLD, "moma_sink", bucket="lake"),
    )
    assert (source["database.dbname"], source["topic.prefix"], source["slot.name"]) == (
        "moma",
        "moma",
        "msk_moma",
    )
    assert [f"{source['topic.prefix']}.{t}" for t in source["table.include.list"].split(",")] == [
        "moma.public.artists",
        "moma.public.artworks",
    ]
    assert (
        re.fullmatch(sink["topics.regex"], "moma.public.artworks")
        and sink["s3.bucket.name"] == "lake"
    )
    converters = {k: v for k, v in source.items() if ".converter" in k}
    assert len(converters) == 10 and converters.items() <= sink.items()
    assert (
        converters["key.converter.apicurio.registry.url"]
        == WORLD.registry.url + "/apis/registry/v2"
    )
    assert connect.config(WORLD, "moma_source", slot_prefix="test")["slot.name"] == "test_moma"


def test_the_two_sources_share_neither_slot_nor_topic():
    a, b = connect.config(WORLD, "outbox_source"), connect.config(WORLD, "outbox_source_envelope")
    assert a["slot.name"] != b["slot.name"] and a["topic.prefix"] != b["topic.prefix"]


def test_unknown_file_names_the_nearest():
    with pytest.raises(ConnectorError, match="did you mean 'outbox_source'"):
        connect.config(WORLD, "outbox_sorce")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(configs, "CONNECTORS_DIR", tmp_path)
    return tmp_path


def test_unknown_placeholder_names_the_nearest(folder):
    (folder / "x.json").write_text('{"topic.prefix": "${topic_prefx}"}')
    with pytest.raises(ConnectorError, match="did you mean 'topic_prefix'"):
        connect.config(WORLD, "x")


def test_argument_without_placeholder_is_refused(folder):
    (folder / "x.json").write_text('{"a": "${bucket}"}')
    with pytest.raises(ConnectorError, match="did you mean 'bucket'"):
        connect.config(WORLD, "x", buket="b")


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


GLUE = {
    "": configs.CONNECTOR_CATALOG["glue_converter"][""],
    ".region": "ap-southeast-2",
    ".schemaAutoRegistrationEnabled": "true",
    ".compatibility": "NONE",
    ".avroRecordType": "GENERIC_RECORD",
}


@pytest.mark.parametrize("name", ["moma_source", "moma_sink"])
def test_avro_goes_to_glue_where_that_is_the_registry(name):
    """Keys and values to a registry each: in one, a topic's key and its value would be versions of
    one schema."""
    here, there = connect.config(WORLD, name), connect.config(on_aws.world(), name)
    settings = {
        f"{side}.converter{k}": v
        for side in ("key", "value")
        for k, v in {**GLUE, ".registry.name": f"workbench-{side}s"}.items()
    }
    assert {k: v for k, v in there.items() if ".converter" in k} == settings
    assert here.keys() - there.keys() == {k for k in here if ".apicurio." in k}
    assert there.keys() - here.keys() <= settings.keys() and "apicurio" not in str(there)
    assert configs.plaintext_secret_keys(there) == []
    assert not configs.unknown_keys(settings, ["key.converter", "value.converter"])


def test_json_needs_no_registry():
    """Nothing of it is changed: a JsonConverter has settings of its own."""
    for file in connect.CONNECTORS_DIR.glob("*.json"):
        here, there = connect.config(WORLD, file.stem), connect.config(on_aws.world(), file.stem)
        if "apicurio" not in str(here):
            assert {k: v for k, v in here.items() if ".converter" in k} == {
                k: v for k, v in there.items() if ".converter" in k
            }


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


def test_running_once_is_not_yet_running(monkeypatch):
    """However long the first answer takes: a task that has begun a moment ago may fail the next."""
    answers = itertools.chain(["RUNNING", None, "UNASSIGNED"], itertools.repeat("RUNNING"))
    clock = itertools.count()
    seen = []

    def status(self, name):
        state = next(answers)
        seen.append(state)
        if state is None:
            raise StackError("Connect does not answer")
        return {"state": state, "tasks": [{"state": state}]}

    monkeypatch.setattr(KafkaConnect, "status", status)
    monkeypatch.setattr(KafkaConnect, "failure", lambda self, name: None)
    monkeypatch.setattr(
        validation.time, "monotonic", lambda: next(clock) / 2
    )  # half a second each time that it is asked
    monkeypatch.setattr(wait.time, "sleep", lambda seconds: None)
    assert connect.wait_running(WORLD, "x", stable_for=1)["state"] == "RUNNING"
    assert seen[:4] == ["RUNNING", None, "UNASSIGNED", "RUNNING"] and len(seen) > 4


class FakePlugin:
    """Answers of a Connect whose plugin knows three keys."""

    def __init__(self, errors=()):
        self.errors, self.sent = dict(errors), []

    def __call__(self, method, path, body=None, **_):
        self.sent.append((method, path))
        if path == "/connector-plugins":
            return [{"class": "io.x.PostgresConnector", "type": "source", "version": "1"}]
        known = [
            "connector.class",
            "name",
            "schema.include.list",
            "topic.prefix",
            "database.password",
            "transforms.unwrap.delete.tombstone.handling.mode",
        ]
        return {
            "configs": [
                {"definition": {"name": k}, "value": {"name": k, "errors": self.errors.get(k, [])}}
                for k in known
            ]
        }


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
def test_a_key_nobody_knows_is_refused(monkeypatch, key, says):
    monkeypatch.setattr(KafkaConnect, "call", FakePlugin())
    with pytest.raises(ConnectorError) as e:
        connect.validate(WORLD, {**GOOD, key: "x"})
    assert key in str(e.value) and says in str(e.value)


def test_every_message_is_listed(monkeypatch):
    monkeypatch.setattr(
        KafkaConnect,
        "call",
        FakePlugin({"topic.prefix": ["is bad"], "schema.include.list": ["odd"]}),
    )
    with pytest.raises(ConnectorError) as e:
        connect.validate(WORLD, GOOD)
    assert "topic.prefix: is bad" in str(e.value) and "schema.include.list: odd" in str(e.value)


def test_keys_by_pattern_pass(monkeypatch):
    monkeypatch.setattr(KafkaConnect, "call", FakePlugin())
    connect.validate(
        WORLD,
        {
            **GOOD,
            "snapshot.select.statement.overrides.a.b": "SELECT 1",
            "producer.override.acks": "1",
        },
    )
    connect.validate(
        WORLD,
        {**GOOD, **{k: v for k, v in connect.config(WORLD, "moma_source").items() if "apic" in k}},
    )


@pytest.mark.parametrize(
    "secret", ["canary-7", "${canary-7", "${x}canary-7", "${file:a:b}canary-7"]
)
def test_literal_secret_is_refused_and_never_sent(monkeypatch, secret):
    fake = FakePlugin()
    monkeypatch.setattr(KafkaConnect, "call", fake)
    with pytest.raises(ConnectorError) as e:
        connect.validate(WORLD, {**GOOD, "database.password": secret})
    assert "database.password" in str(e.value) and "canary-7" not in str(e.value)
    assert all(method == "GET" for method, _ in fake.sent)


FOLDER = "${directory:/x/secrets:"  # of the instance; a test has one of its own


@pytest.mark.parametrize(
    "key, value",
    [
        ("database.user", FOLDER + "postgres.admin}"),
        ("database.user", "x" + FOLDER + "mine}"),
        ("heartbeat.action.query", f"SELECT '{FOLDER}mine}}'"),
        ("topic.prefix", "${env:HOME}"),
        ("database.hostname", "${file:/etc/passwd}"),
        ("connection.url", f"jdbc:postgresql://h/d?password={FOLDER}mine}}"),
        ("database.password", FOLDER + "postgres.admin}"),
        ("database.password", FOLDER + "mine}"),
        ("connection.password", "${secretsmanager:workbench/mine:password}"),
        ("database.ssl.truststore.password", FOLDER + "connect.admin}"),
        ("value.converter.basic.auth.user.info", FOLDER + "mysql.admin}"),
        ("database.ssl.keystore.password", FOLDER + "mysql.replication}"),
        ("secret", "${directory:/root/.ssh:id_rsa}"),
        ("database.ssl.truststore.password", "${directory:/s:trust}"),
        ("database.ssl.truststore.password", FOLDER + ".users}"),
        ("database.ssl.truststore.password", "${directory:/x/secrets/../secrets:my.truststore}"),
        ("database.ssl.truststore.password", "${file:/s/my.truststore:x}"),
    ],
)
def test_a_reference_to_a_secret_is_for_passwords_and_for_the_own_one(monkeypatch, key, value):
    fake = FakePlugin()
    monkeypatch.setattr(KafkaConnect, "call", fake)
    with pytest.raises(ConnectorError, match=f"'{key}' refers to a secret that is not for this"):
        connect.validate(WORLD, {**GOOD, key: in_own_folder(value)})
    assert all(method == "GET" for method, _ in fake.sent)


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


def test_a_source_that_would_lose_what_it_cannot_send_is_refused_and_a_sink_is_not(monkeypatch):
    fake = FakePlugin()
    monkeypatch.setattr(KafkaConnect, "call", fake)
    with pytest.raises(
        ConnectorError, match="(?s)a source would silently lose.*errors.tolerance: all.*none"
    ):
        connect.validate(WORLD, {**GOOD, "errors.tolerance": "all"})
    assert all(method == "GET" for method, _ in fake.sent)
    for passes in ({"errors.tolerance": "none"}, {"errors.tolerance": "all", "topics": "t"}):
        with pytest.raises(
            ConnectorError, match="would ignore it"
        ):  # the next question: which keys the plugin has
            connect.validate(WORLD, {**GOOD, **passes})


REF = "${directory:/var/x/secrets:db.pw}"
JAAS = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password='


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("mongodb.connection.string", "mongodb://u:canary-7@h:27017/db"),
        ("mongodb.connection.string", f"mongodb://u:{REF}canary-7@h"),
        ("mongodb.connection.string", "mongodb://u:p/canary-7@h/db"),
        ("mongodb.connection.string", "mongodb://u:77@h/db"),
        ("connection.url", "jdbc:postgresql://h/db?user=u&password=canary-7"),
        ("connection.url", "jdbc:sqlserver://h;user=u;Password = canary-7;encrypt=true"),
        ("connection.url", "jdbc:mysql://h/db?trustCertificateKeyStorePassword=canary-7"),
        ("producer.override.sasl.jaas.config", f'{JAAS}"canary-7";'),
        ("producer.override.sasl.jaas.config", f'{JAAS.replace("u", REF)}"canary-7";'),
        ("producer.override.sasl.jaas.config", f"{JAAS}'canary-7';"),
        ("producer.override.sasl.jaas.config", f'{JAAS.replace("u", REF)[:-1]} = "canary-7";'),
        (
            "producer.override.sasl.jaas.config",
            f'x required clientId={REF} clientSecret="canary-7";',
        ),
        ("driver.options", '{"user": "u", "password": "canary-7"}'),
        ("driver.options", "host=h password=canary-7"),
        ("connection.url", "http://h/a?access_token=canary-7"),
        ("driver.options", "SELECT dblink('postgresql://u:canary-7@h')"),
        ("query", "SELECT * FROM dblink('host=h password=canary-7', 'SELECT 1')"),
        ("query", "SELECT * FROM dblink('host=h password=''canary-7''', 'SELECT 1')"),
        ("driver.options", "with password=canary-7"),
        ("driver.options", "select password=canary-7"),
        ("value.converter.basic.auth.user.info", "u:canary-7"),
        ("ssl.keystore.key", "canary-7"),
        ("connection.token", "canary-7"),
        ("x.api.key", "canary-7"),
        ("x.private_key", "canary-7"),
        ("http.headers", "Authorization: Bearer canary-7"),
        ("http.headers", "Authorization: Basic canary-7"),
        ("ssl.chain", "-----BEGIN ENCRYPTED PRIVATE KEY-----canary-7"),
    ],
)
def test_a_secret_inside_a_value_is_refused_and_never_sent(monkeypatch, key, value):
    fake = FakePlugin()
    monkeypatch.setattr(KafkaConnect, "call", fake)
    with pytest.raises(ConnectorError, match="contains a secret as plain text") as e:
        connect.validate(WORLD, {**GOOD, key: value})
    assert (
        key in str(e.value)
        and "canary-7" not in str(e.value)
        and all(method == "GET" for method, _ in fake.sent)
    )


@pytest.mark.parametrize(
    "value",
    [
        f"mongodb://u:{REF}@h",
        f"mongodb://{REF}:{REF}@h",
        "mongodb://h:27017,h2:27017/db",
        "http://h:80/a@b",
        f"jdbc:postgresql://h/db?user=u&password={REF}&ssl=true",
        f'{JAAS}"{REF}";',
        "SELECT token, password FROM t",
        "public.users.password:id",
        REF,
        "",
        "?password=",
        "SELECT * FROM t WHERE token_id = 5",
        "topic.regex=^secrets=.*$",
        "^secrets=.*$",
        "passwordFile=/a",
        "select * from t where password = 'x'",
        "value.after.token == 5",
        "jdbc:sqlserver://h:1433;user=u@server",
        "http://[::1]:80/a@b",
        "mongodb://h:1,h2:2/?a=b@c",
        '{"url":"http://h","mail":"a@b"}',
        '{"url":"http://h:80","mail":"a@b"}',
        f"Authorization: Bearer {REF}",
        f"Authorization: Basic {REF}",
        "-----BEGIN CERTIFICATE-----x",
        "with t as (select 1 as token) select * from t where password = 'x'",
    ],
)
def test_references_inside_a_value_and_what_is_no_secret_pass(value):
    assert configs.plaintext_secret_keys({"connection.url": value}) == []


@pytest.mark.parametrize(
    "file", sorted(connect.CONNECTORS_DIR.glob("*.json")), ids=lambda f: f.stem
)
def test_our_own_configurations_hold_no_secret(file):
    assert configs.plaintext_secret_keys(connect.config(WORLD, file.stem)) == []


def test_missing_sink_plugin_names_the_job_that_does_its_work(monkeypatch):
    monkeypatch.setattr(KafkaConnect, "call", FakePlugin())
    with pytest.raises(ConnectorError, match="workbench.landing"):
        connect.apply(WORLD, "sink", connect.config(WORLD, "outbox_sink"))


def test_trace_is_cut_to_first_line_and_cause():
    trace = "a.B: stopped\n\tat x\nCaused by: c.D\nCaused by: e.F: Publication autocreation is disabled\n\tat z"
    line = validation.summarize_stacktrace(trace)
    assert line == "a.B: stopped … Caused by: e.F: Publication autocreation is disabled"
    assert "postgres.create_publication" in validation.likely_causes(line)
    statement = "ALTER TABLE t\n  ADD c varchar(9) COMPRESSED"
    trace = (
        "a.B: stopped\nCaused by: io.debezium.text.ParsingException: DDL statement couldn't be parsed. "
        f"Please open a GitHub issue with the statement '{statement}'\nno viable alternative\n\tat x\n"
        "Caused by: org.antlr.v4.runtime.NoViableAltException\n\tat z"
    )
    line = validation.summarize_stacktrace(trace)
    assert line == f"Debezium cannot parse the statement {statement}"
    cause = validation.likely_causes(line)
    assert "workbench recapture" in cause and "repeat its command" in cause and "FLOW" not in cause
    line = "Error processing row in d.t, internal schema size 2, but row size 3, restart connector"
    assert "UNIQUE index on a long column" in validation.likely_causes(line)
    line = (
        'java.lang.NullPointerException: Cannot invoke "java.sql.Array.getArray()" because the return '
        'value of "java.sql.ResultSet.getArray(String)" is null'
    )
    assert "a domain over an enum" in validation.likely_causes(line)
    line = (
        "java.util.concurrent.RejectedExecutionException: Task io.debezium.storage.kafka.history."
        "KafkaSchemaHistory$$Lambda$2075/0x7f@7a rejected from java.util.concurrent.ThreadPoolExecutor"
    )
    assert "connect.restart" in validation.likely_causes(line)


@pytest.mark.parametrize(
    "kind, says",
    [
        ("io.confluent.connect.s3.S3SinkConnector", "landing.run"),
        ("io.confluent.connect.jdbc.JdbcSourceConnector", "landing.poll"),
    ],
)
def test_what_to_do_about_a_plugin_that_is_not_there(monkeypatch, kind, says):
    monkeypatch.setattr(KafkaConnect, "plugins", lambda self: [])
    with pytest.raises(ConnectorError, match="has no plugin") as e:
        connect.validate(WORLD, {"connector.class": kind}, "one")
    assert says in e.value.hint
    for module in re.findall(r"workbench\.(\w+)", e.value.hint):
        importlib.import_module(f"workbench.{module}")


@pytest.mark.parametrize(("code", "told"), [(400, False), (404, False), (500, True), (None, True)])
def test_only_a_connect_that_has_no_proper_answer_is_told_as_lost(monkeypatch, code, told):
    """A healthy refusal stays what it is, even when Kafka has died in that moment."""

    def request(*args, **more):
        if code is None:
            raise http.requests.ConnectionError("refused")
        answer = http.requests.Response()
        answer.status_code, answer._content = code, b'{"message": "no such key"}'
        return answer

    monkeypatch.setattr(http.requests.Session, "request", request)
    monkeypatch.setattr(
        rest.stack, "service_down_error", lambda *args: StackError("the service kafka died")
    )
    with pytest.raises(
        StackError if told else ConnectorError,
        match="the service kafka died"
        if told
        else f"Connect responds with status {code}: no such key",
    ):
        KafkaConnect(_with(user="")).call("GET", "/connectors/x")


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
    with pytest.raises(ConnectorError, match="rejects the user and password") as error:
        connect.names(_with(url=served.url))
    assert "params/local.yaml" in str(error.value) and "canary" not in str(error.value)


@pytest.mark.parametrize(
    ("refusals", "why"),
    [
        (
            2,
            "Failed to reset consumer group offsets for connector x. The request can be safely retried",
        ),
        (0, ""),
        (1, "Connector x is not stopped"),
    ],
)
def test_offsets_that_cannot_be_deleted_yet_are_tried_again(monkeypatch, refusals, why):
    """After a restart of Kafka a sink's consumer group has a member until its session ends."""
    asked = []

    def call(method, path, body=None):
        asked.append((method, path))
        if len(asked) <= refusals:
            raise ConnectorError(f"Connect answers 500: {why}")

    monkeypatch.setattr(KafkaConnect, "call", staticmethod(call))
    if "not stopped" in why:
        with pytest.raises(ConnectorError, match="is not stopped"):
            KafkaConnect(WORLD)._delete_offsets("x")
    else:
        KafkaConnect(WORLD)._delete_offsets("x")
    assert asked == [("DELETE", "/connectors/x/offsets")] * max(1, refusals + ("retried" in why))


def test_a_connect_that_rebalances_is_asked_again(answering):
    served = answering(
        {"/connectors": [(409, "rebalancing"), (503, "starting"), (200, '["b", "a"]')]}
    )
    elsewhere = with_settings(
        _with(url=served.url, user="", managed=False), kafka={"managed": False}
    )
    assert connect.names(elsewhere) == ["a", "b"]
    assert len(served.asked) == 3
