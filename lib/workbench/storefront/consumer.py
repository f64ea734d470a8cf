"""The consumer of a service: it applies the events of the subscribed topics to the service's store."""

import contextlib
import logging
import threading
import time
from collections import Counter

import psycopg
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from ..base import LakeError, WorkbenchError, World, first_line
from ..base.text import plural
from ..topic import dlq, groups, topics
from . import metrics
from .domain import DLQ_TOPIC, Context
from .events import Event, parse_event
from .faults import FaultPoints
from .store import NON_RETRYABLE_ERRORS, Store

BATCH_SIZE = 500  # messages
CONSUMER_SETTINGS = {
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
    # otherwise the offsets of a failed batch would be committed, too
    "enable.auto.offset.store": False,
    "allow.auto.create.topics": False,
    "fetch.wait.max.ms": 50,
    # after a kill, partitions stay unassigned until the session times out, even for the restarted
    # instance
    "session.timeout.ms": 2_000,
    "heartbeat.interval.ms": 500,
}
logger = logging.getLogger(__name__)


class EventConsumer:
    """Consumes the topics of a service.

    Attributes:
        caught_up: set when the events that were published before the start are consumed.
    """

    def __init__(self, world: World, context: Context):
        """Prepare the consumer; nothing is consumed before `run_consumer`."""
        self.world, self.context = world, context
        self.faults, self._consumer_store = FaultPoints(context), Store(world, context)
        self.caught_up = threading.Event()
        if not context.subscribed_topics:
            self.caught_up.set()

    def run_consumer(self, stop: threading.Event) -> None:
        """Consume the subscribed topics until `stop` is set."""
        if not self.context.subscribed_topics:
            stop.wait()
            return
        settings = {**CONSUMER_SETTINGS, "group.id": self.context.group}
        consumer = Consumer(topics.settings(self.world, **settings))
        consumer.subscribe([*self.context.subscribed_topics])
        while not stop.is_set():
            batch = []
            for message in consumer.consume(BATCH_SIZE, 0.05):
                if message.error():
                    logger.warning("Kafka: %s", message.error())
                else:
                    batch.append(message)
            try:
                if batch:
                    self.consume_batch(batch)
                    for message in batch:
                        consumer.store_offsets(message)
                    consumer.commit(asynchronous=False)
                if not self.caught_up.is_set() and consumer.assignment():
                    if not any(self.lag_by_topic().values()):
                        self.caught_up.set()
            except (psycopg.Error, WorkbenchError, KafkaException) as e:
                logger.warning("batch will be retried: %s", first_line(e))
                _seek_to_batch_start(consumer, batch)
                stop.wait(0.5)
        consumer.close()

    def consume_batch(self, messages: list[Message]) -> None:
        """Apply a batch of messages to the store; malformed messages become dead letters.

        The caller commits the offsets afterwards.

        Raises:
            psycopg.Error, WorkbenchError: the batch was not stored, or a dead letter was not
                produced. The batch can be retried.
        """
        started = time.monotonic()
        self.faults.reach("before_batch")
        events: list[tuple[Message, Event]] = []
        dead: list[tuple[Message, str]] = []  # (message, reason) of each dead letter
        for message in messages:
            try:
                events.append((message, parse_event(message)))
            except LakeError as e:
                dead.append((message, first_line(e)))
        try:
            outcomes = self._consumer_store.apply_events(
                [event for _, event in events], lambda: self.faults.reach("in_transaction")
            )
        except NON_RETRYABLE_ERRORS:  # caused by one event: apply the events one by one
            outcomes = [self._apply_single(message, event, dead) for message, event in events]
        # after the commit, because a failed batch is retried
        dlq.publish_messages(self.world, DLQ_TOPIC, dead, self.context.group, __name__)
        seconds = (time.monotonic() - started) / len(messages)
        for (_, event), outcome in zip(events, outcomes):
            metrics.EVENTS_CONSUMED.labels(event.topic, outcome).inc()
            metrics.EVENT_SECONDS.labels(event.topic).observe(seconds)
        counts = "".join(f"{count} {outcome}, " for outcome, count in Counter(outcomes).items())
        consumed, dead_letters = plural(len(messages), "message"), plural(len(dead), "dead letter")
        logger.info("consumed %s: %s%s", consumed, counts, dead_letters)
        self.faults.reach("before_offset_commit")

    def _apply_single(self, message: Message, event: Event, dead: list[tuple[Message, str]]) -> str:
        try:
            return self._consumer_store.apply_events([event])[0]
        except NON_RETRYABLE_ERRORS as e:
            dead.append((message, first_line(e)))
            return "dead"

    def lag_by_topic(self) -> dict[str, int]:
        """Return {topic: number of events that the consumer group has not consumed yet}."""
        subscribed = self.context.subscribed_topics
        return groups.lag(self.world, self.context.group, *subscribed) if subscribed else {}


def _seek_to_batch_start(consumer: Consumer, batch: list[Message]) -> None:
    """Seek to the first message of the batch in each partition, to consume them again."""
    for message in reversed(batch):
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        assert topic is not None and partition is not None and offset is not None
        # if the partition was reassigned, the other instance starts at the committed offset
        with contextlib.suppress(KafkaException):
            consumer.seek(TopicPartition(topic, partition, offset))
