"""What a source may not send: a schema that the registry refuses, a row that is too large. There is
no dead-letter topic for it, Connect has that for sinks only: the task fails, says why, and goes on
where it was when it is mended."""

import avro_help
import pytest
from workbench import connect
from workbench.base import http
from workbench.base.errors import LakeError
from workbench.base.wait import wait_until
from workbench.source import postgres
from workbench.topic import registry, topics

NAME = "dlq_test"
TOPIC = f"{NAME}.public.artists"
SCRIPT = """
    CREATE TABLE artists (artist_id int PRIMARY KEY, name text NOT NULL, born int);
    INSERT INTO artists VALUES (1, 'one');
    CREATE TABLE artworks (artwork_id int PRIMARY KEY)"""


@pytest.fixture
def lab(world):
    with avro_help.museum(world, NAME, SCRIPT) as lab:
        topics.wait_for_messages(lab, TOPIC, 1, connector=NAME)
        yield lab
    registry.delete(world, f"{TOPIC}-value", f"{TOPIC}-key")


def failed(lab):
    return wait_until(lambda: connect.failure(lab, NAME), "the task to fail")


def versions(lab):
    return list(registry.artifacts(lab).query(f"artifact == '{TOPIC}-value'")["version"])


def test_a_schema_that_the_registry_refuses(lab):
    rules = f"{lab.registry.url}/apis/registry/v2/groups/default/artifacts/{TOPIC}-value/rules"
    http.call(
        "the registry", "POST", rules, {"type": "COMPATIBILITY", "config": "FORWARD"}
    ).raise_for_status()
    postgres.execute(lab, "ALTER TABLE artists DROP COLUMN name")
    postgres.execute(lab, "INSERT INTO artists VALUES (2)")
    said = failed(lab)
    print(said)
    assert (
        "Incompatible artifact" in said
        and "likely: the registry refuses" in said
        and "connect.restart" in said
    )
    assert versions(lab) == ["1"] and topics.offset_span(lab, TOPIC) == 1
    none = {"type": "COMPATIBILITY", "config": "NONE"}
    http.call("the registry", "PUT", f"{rules}/COMPATIBILITY", none).raise_for_status()
    connect.restart(lab, NAME)
    assert connect.failure(lab, NAME) is None, "a state of before"
    assert topics.wait_for_messages(lab, TOPIC, 2, connector=NAME) == 2 and versions(lab) == [
        "1",
        "2",
    ]


def test_a_row_that_is_too_large(lab):
    postgres.execute(
        lab,
        "INSERT INTO artists SELECT 2, string_agg(md5(n::text), '') FROM generate_series(1, 40000) n",
    )
    postgres.execute(lab, "INSERT INTO artists VALUES (3, 'after it')")
    said = failed(lab)
    print(said)
    assert "max.request.size" in said and "likely: a row is larger" in said
    assert topics.offset_span(lab, TOPIC) == 1
    larger = {**avro_help.source_config(lab, NAME), "producer.override.max.request.size": "2000000"}
    connect.apply(lab, NAME, larger)
    topics.wait_for_messages(lab, TOPIC, 3, connector=NAME)
    assert [
        registry.inspect_message(lab, value)["record"]["artist_id"]
        for value in topics.read(lab, TOPIC)["value"]
    ] == [1, 2, 3]


def test_a_message_that_is_too_large_is_refused_before_it_is_sent(world):
    with pytest.raises(
        LakeError, match="(?s)Kafka rejects a message: .*too large.*max.message.bytes"
    ):
        topics.produce(world, f"{NAME}_large", [("k", "x" * 1_100_000)])
    topics.create(world, f"{NAME}_large")
    try:
        with pytest.raises(LakeError, match="too large"):
            topics.produce(
                world, f"{NAME}_large", [("k", "x" * 2_100_000)], **{"message.max.bytes": 3_000_000}
            )
        assert topics.offset_span(world, f"{NAME}_large") == 0
    finally:
        topics.delete(world, f"{NAME}_large")
