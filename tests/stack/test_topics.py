"""Topics of a real Kafka."""

import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from types import SimpleNamespace

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from lake_help import produce
from workbench import stack
from workbench.base import params
from workbench.base.errors import WorkbenchError
from workbench.topic import topics

TOPIC = "topics_test"


@pytest.fixture
def topic(world):
    """An empty topic of three partitions."""
    topics.delete(world, TOPIC)
    admin = AdminClient(topics.settings(world))
    admin.create_topics([NewTopic(TOPIC, 3, 1)])[TOPIC].result(20)
    yield TOPIC
    topics.delete(world, TOPIC)


def test_what_is_produced_is_read_as_it_is(world, topic):
    produce(
        world,
        topic,
        ("a", "Genève"),
        (None, "no key"),
        ("b", None),
        (b"\xff", b"\xfe\x00"),
        ("c", "{broken"),
    )
    frame = topics.read(world, topic)
    assert list(frame.columns) == topics.COLUMNS
    assert (
        topics.offset_span(world, topic) == len(frame) == topics.wait_for_messages(world, topic, 5)
    )
    assert {(k, v) for k, v in zip(frame["key"], frame["value"])} == {
        ("a", "Genève"),
        (None, "no key"),
        ("b", None),
        (b"\xff", b"\xfe\x00"),
        ("c", "{broken"),
    }
    assert (
        abs(frame["timestamp"].max().timestamp() - time.time()) < 60
        and str(frame["timestamp"].dt.tz) == "UTC"
    )


def test_only_what_came_after(world, topic):
    produce(world, topic, ("a", "1"))
    place = topics.end_offsets(world, topic)
    assert topics.read(world, topic, start_offsets=place).empty
    produce(world, topic, ("a", "2"), ("b", "3"))
    assert sorted(topics.read(world, topic, start_offsets=place)["value"]) == ["2", "3"]
    assert len(topics.read(world, topic, limit=2)) == 2
    assert topics.read(world, topic, limit=0).empty


def test_empty_topic_reads_as_an_empty_frame(world, topic):
    frame = topics.read(world, topic)
    assert (
        frame.empty
        and list(frame.columns) == topics.COLUMNS
        and topics.offset_span(world, topic) == 0
    )


def test_many_messages_are_all_read(world, topic):
    producer = Producer(
        {**topics.settings(world), "linger.ms": 50, "queue.buffering.max.messages": 100000}
    )
    for i in range(83_000):
        producer.produce(topic, key=str(i), value="x" * 200)
    assert producer.flush(60) == 0
    frame = topics.read(world, topic)
    assert len(frame) == 83_000 and frame["key"].nunique() == 83_000


def test_asking_for_a_topic_that_is_not_there_does_not_make_it(world, topic):
    for ask in (topics.offset_span, topics.end_offsets, topics.read):
        with pytest.raises(WorkbenchError, match=f"did you mean '{TOPIC}'"):
            ask(world, "topic_test")
    with pytest.raises(
        WorkbenchError, match="(?s)waited 0.5 s for 1 messages.*there is no topic 'topic_test'"
    ):
        topics.wait_for_messages(world, "topic_test", 1, timeout=0.5)
    assert "topic_test" not in topics.names(world)


def test_several_that_need_the_same_topic_at_once_all_get_it(world, topic):
    topics.delete(world, topic)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: topics.create(world, topic), range(8)))
    assert topic in topics.names(world)


def test_deleted_is_gone_and_deleting_again_is_fine(world, topic):
    topics.delete(world, topic, "never_was")
    assert topic not in topics.names(world)
    topics.delete(world, topic)


def test_of_a_transaction_what_was_committed_is_read_and_its_marks_hold_nobody_up(world, topic):
    producer = Producer(topics.settings(world, **{"transactional.id": topic}))
    producer.init_transactions(20)
    for value, end in (
        ("taken back", producer.abort_transaction),
        ("committed", producer.commit_transaction),
        ("open", lambda timeout: None),
    ):
        producer.begin_transaction()
        producer.produce(topic, key="k", value=value, partition=0)
        assert producer.flush(20) == 0
        end(20)
    began = time.monotonic()
    assert list(topics.read(world, topic)["value"]) == ["committed"]
    assert time.monotonic() - began < 5
    producer.commit_transaction(20)
    began = time.monotonic()
    assert list(topics.read(world, topic)["value"]) == ["committed", "open"]
    assert time.monotonic() - began < 5


def test_a_wait_ends_with_the_message_and_does_not_poll(world, topic, monkeypatch):
    calls, stop, first = [], threading.Event(), time.monotonic()
    borrow_consumer = topics.borrow_consumer

    def end_offsets(topic):
        with monkeypatch.context() as patch:
            patch.setattr(topics, "borrow_consumer", borrow_consumer)
            return topics.end_offsets(world, topic)

    def ends(offsets):
        return {(topic, partition): offset for partition, offset in offsets.items()}

    with topics.borrow_consumer(world) as consumer:
        counting = SimpleNamespace(
            assign=consumer.assign,
            unassign=consumer.unassign,
            consume=lambda *args: calls.append(1) or consumer.consume(*args),
        )
    monkeypatch.setattr(topics, "borrow_consumer", lambda _: contextlib.nullcontext(counting))
    for partition in (0, 1, 2, 0):
        start = end_offsets(topic)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(
                lambda start=start: (
                    topics.wait_for_message(world, ends(start), stop, 30),
                    time.monotonic(),
                )
            )
            with pytest.raises(FutureTimeout):
                waiting.result(1)
            topics.produce(world, topic, [("k", "v", {"partition": partition})])
            produced = time.monotonic()
            arrived, at = waiting.result(5)
            assert arrived == {topic} and at - produced < 0.1
    # each wait also makes a call that is not full, and one for messages of other topics
    assert len(calls) <= (time.monotonic() - first) / 0.1 + 8, "one call in 0.1 s of the wait"
    end = end_offsets(topic)
    begun = time.monotonic()
    threading.Timer(0.5, stop.set).start()
    assert topics.wait_for_message(world, ends(end), stop, 30) == set()
    assert 0.4 < time.monotonic() - begun < 0.8, "stopped"
    begun = time.monotonic()
    assert topics.wait_for_message(world, ends(end), threading.Event(), 0.5) == set()
    assert 0.5 <= time.monotonic() - begun < 0.8, "the time is over"


def test_a_topic_that_is_created_anew_is_read_by_a_process_that_knew_the_old_one(world, topic):
    """A restart of Kafka raises the leader epoch. A new topic begins at 0, and a consumer that knows the higher one reads nothing."""
    stack.kill("kafka")
    stack.ensure_running(world, "kafka")
    produce(world, topic, ("a", "old"))
    assert list(topics.read(world, topic)["value"]) == ["old"]
    topics.delete(world, topic)
    topics.create(world, topic)
    produce(world, topic, ("a", "new"))
    assert list(topics.read(world, topic)["value"]) == ["new"]


def test_nor_is_it_an_obstacle_that_another_process_has_created_it_anew(world, topic):
    stack.kill("kafka")
    stack.ensure_running(world, "kafka")
    produce(world, topic, ("a", "old"))
    assert list(topics.read(world, topic)["value"]) == ["old"]
    elsewhere = params.load("local")  # with consumers of its own
    topics.delete(elsewhere, topic)
    topics.create(elsewhere, topic)
    produce(elsewhere, topic, ("a", "new"), ("b", "newer"))
    assert list(topics.read(world, topic)["value"]) == ["new", "newer"]
