"""What topics does without a broker: it says that there is none, and decodes."""

import dataclasses
from types import SimpleNamespace

import pytest
from workbench.base import params
from workbench.base.errors import StackError, WorkbenchError
from workbench.topic import topics

WORLD = params.load("local")
NOWHERE = dataclasses.replace(WORLD, kafka=dataclasses.replace(WORLD.kafka, bootstrap="127.0.0.1:1"))


def test_absent_kafka_is_named(monkeypatch):
    monkeypatch.setattr(topics, "TIMEOUT", 1)
    with pytest.raises(StackError, match="(?s)the service kafka is stopped.*workbench up"):
        topics.names(NOWHERE)


def test_unknown_topic_names_the_nearest(monkeypatch):
    monkeypatch.setattr(
        topics, "_partitions", lambda world: {"msk.datalake.cdc_events": [0], "__consumer_offsets": [0]}
    )
    for ask in (topics.count, topics.ends, topics.read):
        with pytest.raises(WorkbenchError, match="did you mean 'msk.datalake.cdc_events'") as e:
            ask(WORLD, "msk.datalake.cdc_event")
        assert "__consumer" not in str(e.value)


def test_text_where_utf8_bytes_where_not():
    assert topics._text(None) is None
    assert topics._text("Genève".encode()) == "Genève"
    assert topics._text(b"\xff\x00") == b"\xff\x00"


def test_topics_are_deleted_over_one_connection(monkeypatch):
    made, there = [], {"a": [], "b": [], "c": []}

    class Admin:
        def __init__(self, settings):
            made.append(self)
            self.asked = 0

        def list_topics(self, timeout):
            self.asked += 1
            return SimpleNamespace(topics={name: SimpleNamespace(partitions=[0]) for name in there})

        def delete_topics(self, names, request_timeout):
            return {name: SimpleNamespace(result=lambda timeout, name=name: there.pop(name)) for name in names}

    monkeypatch.setattr(topics, "AdminClient", Admin)
    topics.delete(WORLD, "a", "b", "not there")
    assert list(there) == ["c"] and len(made) == 1 and made[0].asked == 2


def test_a_large_snapshot_is_waited_for_longer(monkeypatch):
    waited = []
    monkeypatch.setattr(topics, "count", lambda *_: 0)
    monkeypatch.setattr(topics, "wait_until", lambda *_, timeout, **__: waited.append(timeout))
    for n, given in ((1, {}), (124_000, {}), (124_000, {"timeout": 5})):
        topics.wait_count(WORLD, "moma.public.artworks", n, **given)
    assert [round(seconds) for seconds in waited] == [60, 308, 5]
