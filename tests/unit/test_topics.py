"""What topics does without a broker: it says that there is none, and decodes."""

from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
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


def test_unknown_topic_names_the_nearest(monkeypatch):
    class Nothing:
        def list_topics(self, name, timeout):
            return SimpleNamespace(
                topics={name: SimpleNamespace(error=KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))}
            )

        def close(self):
            pass

        unassign = close

    monkeypatch.setattr(topics, "open_consumer", lambda world: Nothing())
    listed = SimpleNamespace(topics={"msk.datalake.cdc_events": None, "__consumer_offsets": None})
    admin = SimpleNamespace(list_topics=lambda timeout: listed)
    monkeypatch.setattr(topics, "AdminClient", lambda settings: admin)
    for ask in (topics.offset_span, topics.end_offsets, topics.read):
        with pytest.raises(WorkbenchError, match="did you mean 'msk.datalake.cdc_events'") as e:
            ask(WORLD, "msk.datalake.cdc_event")
        assert "__consumer" not in str(e.value)


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


def test_text_where_utf8_bytes_where_not():
    assert topics._decode_text(None) is None
    assert topics._decode_text("Genève".encode()) == "Genève"
    assert topics._decode_text(b"\xff\x00") == b"\xff\x00"


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
            def result(name):
                if name not in there:
                    raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
                there.pop(name)

            return {
                name: SimpleNamespace(result=lambda timeout, name=name: result(name))
                for name in names
            }

    monkeypatch.setattr(topics, "AdminClient", Admin)
    topics.delete(WORLD, "a", "b", "not there")
    assert list(there) == ["c"] and len(made) == 1 and made[0].asked == 2


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


class Reader:
    """A consumer that gives these batches, one after the other, and then nothing; `passed` is its
    position."""

    def __init__(self, *batches, passed=0):
        self.batches, self.passed, self.assigned = list(batches), passed, None

    def assign(self, places):
        self.assigned = [(p.partition, p.offset) for p in places]

    def consume(self, most, timeout):
        return [
            SimpleNamespace(error=lambda: None, partition=lambda p=p: p, offset=lambda n=n: n)
            for p, n in (self.batches.pop(0) if self.batches else [])
        ]

    def position(self, places):
        return [TopicPartition(p.topic, p.partition, self.passed) for p in places]

    def close(self):
        self.assigned = []


@pytest.fixture
def messages(monkeypatch):
    """`topics.consume` from such a reader."""

    def read(reader, start, stop):
        monkeypatch.setattr(topics, "open_consumer", lambda _: reader)
        return topics.consume(WORLD, "t", start, stop)

    return read


def places(found):
    return [(m.partition(), m.offset()) for m in found]


def test_messages_end_where_they_are_to_and_what_is_done_is_not_asked_for(messages):
    reader = Reader([(0, 3), (1, 0)], [(0, 4), (0, 5), (0, 6)])
    assert places(messages(reader, {0: 3, 1: 0, 2: 7}, {0: 6, 1: 1, 2: 7})) == [
        (0, 3),
        (1, 0),
        (0, 4),
        (0, 5),
    ]
    assert reader.assigned == [] and not reader.batches
    reader = Reader([(0, 3)])
    found = messages(reader, {0: 3, 1: 9}, {0: 6, 1: 9})
    assert next(found).offset() == 3 and reader.assigned == [(0, 3)]
    found.close()
    assert reader.assigned == [], "given up half way"


def test_a_mark_of_a_transaction_is_passed_and_silence_is_an_error(monkeypatch, messages):
    assert places(messages(Reader([(0, 0)], passed=2), {0: 0}, {0: 2})) == [(0, 0)]
    monkeypatch.setattr(topics, "TIMEOUT_SECONDS", 0)
    monkeypatch.setattr(topics.stack, "service_down_error", lambda *_: None)
    with pytest.raises(
        StackError, match="(?s)Kafka sent no message.*'t', offsets {0: 1}.*nothing is lost"
    ):
        places(messages(Reader([(0, 0)], passed=1), {0: 0}, {0: 2}))
