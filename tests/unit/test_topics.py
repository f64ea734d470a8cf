"""What topics does without a broker: it says that there is none, and decodes."""

from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException
from workbench.base import params
from workbench.base.errors import StackError, WorkbenchError
from workbench.topic import topics
from worlds import with_settings

WORLD = params.load("local")
NOWHERE = with_settings(WORLD, kafka={"bootstrap": "127.0.0.1:1"})


def test_absent_kafka_is_named(monkeypatch):
    monkeypatch.setattr(topics, "TIMEOUT_SECONDS", 1)
    with pytest.raises(StackError, match="(?s)the service kafka is stopped.*workbench up"):
        topics.names(NOWHERE)


def test_a_topic_without_a_leader_is_asked_again_and_any_other_error_is_raised(monkeypatch):
    codes = [KafkaError.LEADER_NOT_AVAILABLE, KafkaError.NOT_LEADER_FOR_PARTITION]

    class New:
        def list_topics(self, name, timeout):
            error = KafkaError(codes.pop(0)) if len(codes) == 2 else None
            return SimpleNamespace(topics={name: SimpleNamespace(error=error, partitions=[0, 1])})

        def get_watermark_offsets(self, position, timeout):
            if codes:
                raise KafkaException(KafkaError(codes.pop()))
            return position.partition, 7

        def close(self):
            pass

    monkeypatch.setattr(topics, "open_consumer", lambda world: New())
    assert topics.watermark_offsets(WORLD, "t") == {0: (0, 7), 1: (1, 7)} and not codes
    codes.append(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(StackError):
        topics.watermark_offsets(WORLD, "t")
    assert not codes, "it is not asked again"


def test_a_topic_that_is_not_created_is_an_error_whatever_its_code(monkeypatch):
    def refuse(timeout):
        raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))

    admin = SimpleNamespace(
        list_topics=lambda timeout: SimpleNamespace(topics={}),
        create_topics=lambda new, request_timeout: {"a": SimpleNamespace(result=refuse)},
    )
    monkeypatch.setattr(topics, "AdminClient", lambda settings: admin)
    with pytest.raises(WorkbenchError, match="topic 'a' was not created"):
        topics.create(WORLD, "a")


def test_a_large_snapshot_is_waited_for_longer(monkeypatch):
    waited = []
    monkeypatch.setattr(topics, "offset_span", lambda *_: 0)
    monkeypatch.setattr(
        topics, "wait_until", lambda *_, timeout, **__: waited.append(timeout) or (0,)
    )
    for n, given in ((1, {}), (124_000, {}), (124_000, {"timeout": 5})):
        topics.wait_for_messages(WORLD, "moma.public.artworks", n, **given)
    assert [round(seconds) for seconds in waited] == [60, 308, 5]


def test_silence_is_an_error(monkeypatch):
    silent = SimpleNamespace(
        assign=lambda _: None, consume=lambda *_: [], position=lambda _: [], close=lambda: None
    )
    monkeypatch.setattr(topics, "open_consumer", lambda _: silent)
    monkeypatch.setattr(topics, "TIMEOUT_SECONDS", 0)
    monkeypatch.setattr(topics.stack, "service_down_error", lambda *_: None)
    with pytest.raises(
        StackError, match="(?s)Kafka sent no message.*'t', offsets {0: 1}.*nothing is lost"
    ):
        list(topics.consume(WORLD, "t", {0: 1}, {0: 2}))
