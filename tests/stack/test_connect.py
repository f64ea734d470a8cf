"""A real Debezium in a real Connect: from the outbox to flat messages, and the ways it goes wrong.

In a database of its own with a topic prefix of its own, so that nothing of the walkthrough's is
touched.
"""

import json

import pytest
from workbench import connect
from workbench.base import secrets
from workbench.base.errors import ConnectorError
from workbench.base.paths import ROOT
from workbench.base.wait import wait_until
from workbench.connect import rest
from workbench.source import postgres
from workbench.topic import topics
from workbench.topic.connect_schema import from_avro, to_spark
from workbench.tracks import northwind
from worlds import with_settings

TABLE, SOURCE = "datalake.cdc_events", "connect_test"
PUBLICATION = "cdc_publication"


@pytest.fixture(scope="module")
def lab(world):
    """The world, with Northwind in a database `connect_test`, published."""
    lab = with_settings(
        world, postgres={"database": "connect_test"}, connect={"topic_prefix": "connect_test"}
    )
    _clean(lab)
    northwind.loader.load(lab, confirm=lambda question: True)
    postgres.grant_replication(lab, [TABLE])
    postgres.create_publication(lab, PUBLICATION, [TABLE])
    yield lab
    _clean(lab)
    postgres.execute(lab, "DROP DATABASE connect_test WITH (FORCE)", database="postgres")


def _clean(lab):
    for name in (SOURCE, SOURCE + "_2"):
        connect.delete(lab, name)
    postgres.create_database(lab)
    for slot in postgres.slots(lab)["slot_name"]:
        postgres.drop_slot(lab, slot)
    northwind.loader.unload(lab)
    topics.delete(lab, *(t for t in topics.names(lab) if "connect_test" in t))


@pytest.fixture
def source(lab):
    """The walkthrough's connector, RUNNING, its snapshot in the topic; (configuration, topic)."""
    config = connect.config(lab, "outbox_source")
    topic = f"{config['topic.prefix']}.{TABLE}"
    connect.apply(lab, SOURCE, config)
    connect.wait_running(lab, SOURCE)
    topics.wait_for_messages(lab, topic, 829, connector=SOURCE)
    return config, topic


def test_snapshot_is_one_flat_message_per_row_and_applying_again_changes_nothing(lab, source):
    config, topic = source
    rows = postgres.query(lab, "SELECT order_id FROM datalake.cdc_events ORDER BY 1")[
        "order_id"
    ].tolist()
    snapshot = topics.read(lab, topic).head(829)
    payloads = [json.loads(value)["payload"] for value in snapshot["value"]]
    assert sorted(p["order_id"] for p in payloads) == rows
    assert not {"before", "after"} & set(payloads[0])
    added = {
        "__op",
        "__db",
        "__table",
        "__schema",
        "__lsn",
        "__source_ts_ms",
        "__source_txId",
        "__deleted",
    }
    assert added <= set(payloads[0]) and {p["__op"] for p in payloads} == {"r"}
    before = topics.offset_span(lab, topic)
    connect.apply(lab, SOURCE, config)
    connect.wait_running(lab, SOURCE)
    assert topics.offset_span(lab, topic) == before


def test_committed_avro_schema_is_in_step_with_the_topic(lab, source):
    _, topic = source
    schema = json.loads(topics.read(lab, topic, limit=1)["value"][0])["schema"]
    committed = json.loads(
        (ROOT / "data" / "schemas" / "cdc_events.avsc").read_text(encoding="utf-8")
    )
    assert to_spark(schema) == to_spark(from_avro(committed))
    names = [[f.get("name") for f in s["fields"]] for s in (schema, from_avro(committed))]
    assert names[0] == names[1]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"value.converter.schema.enable": "true"},
            "did you mean 'value.converter.schemas.enable'",
        ),
        ({"database.port": "1"}, "refused"),
        ({"database.dbname": "nowhere"}, 'database "nowhere" does not exist'),
        ({"snapshot.mode": "sometimes"}, "snapshot.mode"),
    ],
)
def test_what_is_not_valid_is_not_deployed(lab, change, says):
    with pytest.raises(ConnectorError) as e:
        connect.apply(lab, SOURCE + "_2", {**connect.config(lab, "outbox_source"), **change})
    assert says in str(e.value)
    assert SOURCE + "_2" not in connect.names(lab)


def test_reference_to_a_password_that_is_not_there(lab):
    config = connect.config(
        lab, "outbox_source", password_reference=f"${{directory:{secrets.secrets_dir()}:no.such}}"
    )
    with pytest.raises(ConnectorError, match="password"):
        connect.apply(lab, SOURCE + "_2", config)
    assert SOURCE + "_2" not in connect.names(lab)


def _restart(lab):
    rest.KafkaConnect(lab).stop(SOURCE)
    rest.KafkaConnect(lab).call("PUT", f"/connectors/{SOURCE}/resume")


def test_dropped_publication_fails_with_its_cause_and_applying_again_heals(lab, source):
    postgres.drop_publication(lab, PUBLICATION)
    try:
        _restart(lab)
        with pytest.raises(ConnectorError, match="the publication is missing"):
            connect.wait_running(lab, SOURCE, stable_for=30)
    finally:
        postgres.create_publication(lab, PUBLICATION, [TABLE])
    connect.apply(lab, SOURCE, source[0])
    connect.wait_running(lab, SOURCE)


def test_slot_in_use_fails_with_its_cause(lab, source):
    other = {**source[0], "topic.prefix": "connect_test_2"}
    with pytest.raises(ConnectorError, match=f"connector '{SOURCE}' reads its replication slot"):
        connect.apply(lab, SOURCE + "_2", other)
    assert SOURCE + "_2" not in connect.names(lab)
    # a reader that this Connect does not know of: no retries, to see the trace
    quick = {"slot.max.retries": "1", "slot.retry.delay.ms": "200", "errors.max.retries": "0"}
    rest.KafkaConnect(lab).call("PUT", f"/connectors/{SOURCE}_2/config", {**other, **quick})
    wait_until(lambda: connect.status(lab, SOURCE + "_2"), "the connector to appear")
    try:
        with pytest.raises(ConnectorError, match="each connector needs its own slot.name"):
            connect.wait_running(lab, SOURCE + "_2", stable_for=30)
    finally:
        connect.delete(lab, SOURCE + "_2")


def test_dropped_slot_fails_loudly_and_a_clean_start_takes_a_new_snapshot(lab, source):
    config, topic = source
    rest.KafkaConnect(lab).stop(SOURCE)
    postgres.drop_slot(lab, config["slot.name"])
    rest.KafkaConnect(lab).call("PUT", f"/connectors/{SOURCE}/resume")
    with pytest.raises(ConnectorError, match="the replication slot was dropped"):
        connect.wait_running(lab, SOURCE, stable_for=30)
    assert len(connect.failure(lab, SOURCE)) < 1000
    connect.delete(lab, SOURCE)
    wait_until(lambda: SOURCE not in connect.names(lab), "the connector to be gone")
    rows = int(postgres.query(lab, "SELECT count(*) AS n FROM datalake.cdc_events")["n"][0])
    before = topics.offset_span(lab, topic)
    connect.apply(lab, SOURCE, config)
    assert topics.wait_for_messages(lab, topic, before + rows, connector=SOURCE) == before + rows
