"""What topics does without a broker: it says that there is none, and decodes."""

from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from workbench.base import params
from workbench.base.errors import LakeError, StackError, WorkbenchError
from workbench.topic import topics
from worlds import with_settings

WORLD = params.load("local")
NOWHERE = with_settings(WORLD, kafka={"bootstrap": "127.0.0.1:1"})


def test_absent_kafka_is_named(monkeypatch):
    monkeypatch.setattr(topics, "TIMEOUT_SECONDS", 1)
    with pytest.raises(StackError, match="(?s)the service kafka is stopped.*workbench up"):
        topics.names(NOWHERE)


class Client:
    """A consumer that knows topics: {name: Kafka's errors, one for each time that it is asked}."""

    def __init__(self, **topics):
        self.topics = topics

    def list_topics(self, name="", timeout=0):
        if not name:
            return SimpleNamespace(topics=self.topics)
        unknown = [KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)]
        errors = self.topics.get(name, unknown)
        error = errors.pop(0) if errors else None
        return SimpleNamespace(topics={name: SimpleNamespace(error=error, partitions=[0, 1])})

    def get_watermark_offsets(self, position, timeout):
        return position.partition, 7

    def unassign(self):
        pass

    close = unassign


@pytest.fixture
def client(monkeypatch):
    """Return a world whose consumers are a client of these topics."""

    def make(consumer):
        monkeypatch.setattr(topics, "open_consumer", lambda world: consumer)
        return with_settings(WORLD)

    return make


def test_unknown_topic_names_the_nearest(client):
    world = client(Client(**{"msk.datalake.cdc_events": [], "__consumer_offsets": []}))
    for ask in (topics.offset_span, topics.end_offsets, topics.read):
        with pytest.raises(WorkbenchError, match="did you mean 'msk.datalake.cdc_events'") as e:
            ask(world, "msk.datalake.cdc_event")
        assert "__consumer" not in str(e.value)


def test_a_topic_without_a_leader_is_asked_again_and_any_other_error_is_raised(client):
    codes = [KafkaError.LEADER_NOT_AVAILABLE, KafkaError.NOT_LEADER_FOR_PARTITION]
    known = Client(t=[*map(KafkaError, codes)])
    world = client(known)
    assert topics.watermark_offsets(world, "t") == {0: (0, 7), 1: (1, 7)} and not known.topics["t"]
    known.topics["t"] = [KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)]
    with pytest.raises(StackError):
        topics.watermark_offsets(world, "t")
    assert not known.topics["t"], "it is not asked again"


def test_text_where_utf8_bytes_where_not():
    assert topics._decode_text(None) is None
    assert topics._decode_text("Genève".encode()) == "Genève"
    assert topics._decode_text(b"\xff\x00") == b"\xff\x00"


def test_a_topic_that_is_not_created_is_an_error_whatever_its_code(monkeypatch, client):
    def refuse(timeout):
        raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))

    admin = SimpleNamespace(
        create_topics=lambda new, request_timeout: {"a": SimpleNamespace(result=refuse)},
    )
    monkeypatch.setattr(topics, "AdminClient", lambda settings: admin)
    with pytest.raises(WorkbenchError, match="topic 'a' was not created"):
        topics.create(client(Client()), "a")


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
        self.at = {}

    def assign(self, places):
        self.assigned = [(p.partition, p.offset) for p in places]

    def consume(self, most, timeout):
        batch = self.batches.pop(0) if self.batches else []
        self.at |= {p: n + 1 for p, n in batch}
        return [
            SimpleNamespace(error=lambda: None, partition=lambda p=p: p, offset=lambda n=n: n)
            for p, n in batch
        ]

    def position(self, places):
        offsets = [max(self.passed, self.at.get(p.partition, -1001)) for p in places]
        return [TopicPartition(p.topic, p.partition, n) for p, n in zip(places, offsets)]

    def unassign(self):
        self.assigned = []

    close = unassign


@pytest.fixture
def messages(client):
    """`topics.consume` from such a reader."""
    return lambda reader, start, stop: topics.consume(client(reader), "t", start, stop)


def test_a_consumer_is_used_again_unless_another_thread_has_it_or_it_failed(monkeypatch):
    opened, closed = [], []

    def open_consumer(world):
        opened.append(SimpleNamespace(unassign=lambda: None, close=lambda: closed.append(1)))
        return opened[-1]

    monkeypatch.setattr(topics, "open_consumer", open_consumer)
    world = with_settings(WORLD)
    with topics.borrow_consumer(world) as first, topics.borrow_consumer(world) as second:
        assert [first, second] == opened
    with pytest.raises(LakeError), topics.borrow_consumer(world) as again:
        raise LakeError("expired")
    assert again is first and closed == [1]
    with topics.borrow_consumer(world) as left:
        assert left is second and len(opened) == 2


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
