"""A service, which runs commands, consumes the subscribed topics, and exports metrics.

Several instances of a service share its store and its topics.
"""

import contextlib
import logging
import os
import signal
import threading
import time
from collections import Counter
from typing import Any, Optional

import psycopg
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from prometheus_client import generate_latest

from .. import stack
from ..base import LakeError, WorkbenchError, World, first_line
from ..base.text import plural
from ..topic import dlq, groups, topics
from . import metrics
from .contexts import DLQ_TOPIC, CommandRejected, Context, Document
from .events import Event, parse_event
from .store import NON_RETRYABLE_ERRORS, Store, connector_publishes

# Points at which `arm_fault` can kill the process: after the commit of a command; before a batch of
# events; in the transaction of a batch; between this transaction and the commit of the offsets.
FAULT_POINTS = ("after_commit", "before_batch", "in_transaction", "before_offset_commit")
BATCH_SIZE = 500  # messages
PRODUCER_SETTINGS = {
    "enable.idempotence": True,
    "linger.ms": 2,
    # The partitioner of Java clients, so also of the connector. All events of a key are in one
    # partition, whether the service or the connector publishes them.
    "partitioner": "murmur2_random",
}
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


class Service:
    """The commands and the consumer of a service."""

    def __init__(self, world: World, context: Context):
        """Create the producer; nothing is consumed before `run_consumer`."""
        self.world, self.context = world, context
        self.store, self._consumer_store = Store(world, context), Store(world, context)
        self.producer = Producer(topics.settings(world, **PRODUCER_SETTINGS))
        metrics.PRODUCER_QUEUE_SIZE.set_function(lambda: len(self.producer))
        self.caught_up, self.command_lock = threading.Event(), threading.Lock()
        if not context.subscribed_topics:
            self.caught_up.set()
        self._armed_faults: dict[str, int] = {}

    # --- commands

    def command(self, method: str, path: str, key: str, body: Document) -> Document:
        """Run a command on a document, and publish the event unless a connector does.

        This is a dual write: a crash between commit and produce loses the event.

        Args:
            method: HTTP method of the command.
            path: path of the command, a key of `Context.commands`.
            key: key of the document.
            body: body of the request.

        Returns:
            key, version and event (the id; None if nothing was changed).

        Raises:
            CommandRejected: the command is rejected, or the consumer has not caught up.
            psycopg.Error, SourceError: the store rejects a statement, or is down.
        """
        edit = self.context.commands[method, path]
        self.require_caught_up()
        # the lock keeps the events of a key in the order of their versions
        with self.command_lock:
            change = self.store.change(key, lambda before: edit(before, body))
            event = change.event
            if event:
                self.fault_point("after_commit")
                metrics.EVENTS_PUBLISHED.labels(event.topic).inc()
                if not change.connector_publishes:
                    self._publish(event)
        return {"key": key, "version": change.version, "event": event.id if event else None}

    def _publish(self, event: Event) -> None:
        key, value, options = event.to_message()
        try:
            self.producer.produce(event.topic, value, key, on_delivery=_on_delivery, **options)
        except (KafkaException, BufferError) as e:
            logger.error("event lost: topic %s, key %r: %s", event.topic, key, first_line(e))

    # --- consumer

    def run_consumer(self, stop: threading.Event) -> None:
        """Consume the subscribed topics until `stop` is set."""
        if not self.context.subscribed_topics:
            stop.wait()
            return
        settings = {**CONSUMER_SETTINGS, "group.id": self.context.group}
        consumer = Consumer(topics.settings(self.world, **settings))
        assigned = threading.Event()
        consumer.subscribe([*self.context.subscribed_topics], on_assign=lambda *_: assigned.set())
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
                    consumer.commit(offsets=_next_offsets(batch), asynchronous=False)
                if assigned.is_set():
                    self._update_caught_up()
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
        self.fault_point("before_batch")
        events: list[tuple[Message, Event]] = []
        dead: list[tuple[Message, str]] = []  # (message, reason) of each dead letter
        for message in messages:
            try:
                events.append((message, parse_event(message)))
            except LakeError as e:
                dead.append((message, first_line(e)))
        try:
            outcomes = self._consumer_store.apply_events(
                [event for _, event in events], lambda: self.fault_point("in_transaction")
            )
        except NON_RETRYABLE_ERRORS:  # caused by one event: apply the events one by one
            outcomes = [self._apply_single(message, event, dead) for message, event in events]
        if dead:  # published after the commit, because a failed batch is retried
            records = [
                dlq.to_record(message, self.context.group, __name__, reason)
                for message, reason in dead
            ]
            topics.produce(self.world, DLQ_TOPIC, records, **dlq.PRODUCER_SETTINGS)
        seconds = (time.monotonic() - started) / len(messages)
        for (event_message, _), outcome in zip(events, outcomes):
            topic = event_message.topic()
            metrics.EVENTS_CONSUMED.labels(topic, outcome).inc()
            metrics.EVENT_SECONDS.labels(topic).observe(seconds)
        counts = "".join(f"{count} {outcome}, " for outcome, count in Counter(outcomes).items())
        consumed, dead_letters = plural(len(messages), "message"), plural(len(dead), "dead letter")
        logger.info("consumed %s: %s%s", consumed, counts, dead_letters)
        self.fault_point("before_offset_commit")

    def _apply_single(self, message: Message, event: Event, dead: list[tuple[Message, str]]) -> str:
        try:
            return self._consumer_store.apply_events([event])[0]
        except NON_RETRYABLE_ERRORS as e:
            dead.append((message, first_line(e)))
            return "dead"

    def _update_caught_up(self) -> None:
        if not self.caught_up.is_set() and not any(self._lag_by_topic().values()):
            self.caught_up.set()

    def _lag_by_topic(self) -> dict[str, int]:
        subscribed = self.context.subscribed_topics
        return groups.lag(self.world, self.context.group, *subscribed) if subscribed else {}

    # --- monitoring

    def export_metrics(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        with contextlib.suppress(WorkbenchError):  # without Kafka the metric keeps its last value
            if not stack.process_down_error(self.world, "kafka"):
                for topic, lag in self._lag_by_topic().items():
                    metrics.LAG.labels(topic).set(lag)
        return generate_latest(metrics.REGISTRY)

    def require_caught_up(self) -> None:
        """Check that the events that were published before the start are consumed.

        Raises:
            CommandRejected: the consumer lag is not zero yet.
        """
        if not self.caught_up.is_set():
            raise CommandRejected("still catching up: consumer lag is not zero yet", retryable=True)

    def health(self) -> dict[str, str]:
        """Return the state of the service.

        Raises:
            CommandRejected: the consumer lag is not zero yet.
            SourceError: the store is down.
        """
        self.require_caught_up()
        with self.store.transaction() as c:
            publisher = "connector" if connector_publishes(c) else "service"
        return {
            "service": self.context.name,
            "status": "UP",
            "events": f"published by the {publisher}",
        }

    # --- faults

    def arm_fault(self, name: Any, after: Any) -> dict[str, Any]:
        """Make the process kill itself when it reaches a fault point for the n-th time.

        Args:
            name: one of FAULT_POINTS; only the first if the service subscribes to no topic.
            after: n, from 1.

        Returns:
            {"at": name, "after": n}.

        Raises:
            CommandRejected: the name or the number is invalid.
        """
        points = FAULT_POINTS if self.context.subscribed_topics else FAULT_POINTS[:1]
        if name not in points or type(after) is not int or after < 1:
            raise CommandRejected(
                f"at is one of {', '.join(points)}, and after a whole number from 1"
            )
        self._armed_faults[name] = after
        return {"at": name, "after": after}

    def fault_point(self, name: str) -> None:
        """Count down an armed fault point, and kill the process at zero."""
        if name in self._armed_faults:
            self._armed_faults[name] -= 1
            if not self._armed_faults[name]:
                os.kill(os.getpid(), signal.SIGKILL)


def _on_delivery(error: Optional[KafkaError], message: Message) -> None:
    if error:
        logger.error(
            "event lost: topic %s, key %r: %s", message.topic(), message.key(), error.str()
        )
    else:
        metrics.EVENTS_DELIVERED.labels(message.topic()).inc()


def _position(message: Message, distance: int = 0) -> TopicPartition:
    """Return topic, partition and offset of a consumed message; `distance` is added to the offset."""
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None and partition is not None and offset is not None
    return TopicPartition(topic, partition, offset + distance)


def _next_offsets(batch: list[Message]) -> list[TopicPartition]:
    """Return the next offset of each partition after a batch."""
    last = {(message.topic(), message.partition()): message for message in batch}
    return [_position(message, 1) for message in last.values()]


def _seek_to_batch_start(consumer: Consumer, batch: list[Message]) -> None:
    """Seek to the first message of the batch in each partition, to consume them again."""
    for message in reversed(batch):
        # if the partition was reassigned, the other instance starts at the committed offset
        with contextlib.suppress(KafkaException):
            consumer.seek(_position(message))
