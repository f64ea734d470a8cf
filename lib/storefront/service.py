"""A service, which runs commands, consumes the subscribed topics, and exports metrics.

Several instances of a service share its store and its topics.
"""

import collections
import contextlib
import logging
import threading
import time
from typing import Optional

import psycopg
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from prometheus_client import CollectorRegistry, Counter, Gauge, Summary, generate_latest
from workbench.base import LakeError, WorkbenchError, World, first_line
from workbench.topic import dlq, groups, topics

from . import faults
from .domain import DLQ_TOPIC, Command, Context, Document, RetryLater
from .events import Event, parse_event
from .store import NON_RETRYABLE_ERRORS, Store, connector_publishes

PRODUCER_SETTINGS = {
    "enable.idempotence": True,
    "linger.ms": 2,
    # The partitioner of Java clients, so also of the connector. All events of a key are in one
    # partition, whether the service or the connector publishes them.
    "partitioner": "murmur2_random",
}
BATCH_SIZE = 500  # messages
CONSUMER_SETTINGS = {
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
    "allow.auto.create.topics": False,
    "fetch.wait.max.ms": 50,
    # after a kill, partitions stay unassigned until the session times out, even for the restarted
    # instance
    "session.timeout.ms": 2_000,
    "heartbeat.interval.ms": 500,
}
REGISTRY = CollectorRegistry()
EVENTS_PUBLISHED = Counter(
    "storefront_events_published", "Events written to the outbox", ["topic"], registry=REGISTRY
)
EVENTS_DELIVERED = Counter(
    "storefront_events_delivered",
    "Events of this process that Kafka has confirmed",
    ["topic"],
    registry=REGISTRY,
)
EVENTS_CONSUMED = Counter(
    "storefront_events_consumed",
    "Consumed events, by outcome",
    ["topic", "outcome"],
    registry=REGISTRY,
)
EVENT_SECONDS = Summary(
    "storefront_event_processing_seconds",
    "Processing time of an event: its share of the batch",
    ["topic"],
    registry=REGISTRY,
)
LAG = Gauge(
    "storefront_lag",
    "Events of a topic that the consumer group has not consumed yet",
    ["topic"],
    registry=REGISTRY,
)
PRODUCER_QUEUE_SIZE = Gauge(
    "storefront_producer_queue_size",
    "Events of this process that Kafka has not confirmed yet",
    registry=REGISTRY,
)
logger = logging.getLogger(__name__)


class Service:
    """The commands and the consumer of a service.

    Commands have a connection of their own, so that they do not wait for a batch of events.

    Attributes:
        caught_up: set when the events that were published before the start are consumed.
    """

    def __init__(self, world: World, context: Context):
        """Create the producer; nothing is consumed before `run_consumer`."""
        self.world, self.context = world, context
        self.caught_up = threading.Event()
        self.store, self._consumer_store = Store(world, context), Store(world, context)
        self.producer = Producer(topics.settings(world, **PRODUCER_SETTINGS))
        PRODUCER_QUEUE_SIZE.set_function(lambda: len(self.producer))
        self._command_lock = threading.Lock()

    # --- commands

    def command(self, command: Command, key: str, body: Document) -> Document:
        """Run a command on a document, and publish the event unless a connector does.

        This is a dual write: a crash between commit and produce loses the event.

        Args:
            command: a command of the service.
            key: key of the document.
            body: body of the request.

        Returns:
            key, version and event (the id; None if nothing was changed).

        Raises:
            CommandRejected: the command is rejected, or the consumer has not caught up (RetryLater).
            psycopg.Error, SourceError: the store rejects a statement, or is down.
        """
        self.require_caught_up()
        # the lock keeps the events of a key in the order of their versions
        with self._command_lock:
            change = self.store.change(key, lambda stored: command.run(stored, body))
            event = change.event
            if event:
                faults.reach("after_commit")
                EVENTS_PUBLISHED.labels(event.topic).inc()
                if not change.connector_publishes:
                    self._publish(event)
        return {"key": key, "version": change.version, "event": event.id if event else None}

    def _publish(self, event: Event) -> None:
        key, value, options = event.to_message()
        try:
            self.producer.produce(event.topic, value, key, on_delivery=_on_delivery, **options)
        except (KafkaException, BufferError) as e:
            logger.error("event lost: topic %s, key %r: %s", event.topic, key, first_line(e))
        self.producer.poll(0)  # calls the delivery callbacks of earlier events

    # --- the consumer

    def run_consumer(self, stop: threading.Event) -> None:
        """Consume the subscribed topics until `stop` is set.

        After a failed batch, a new consumer begins at the committed offsets.
        """
        if not self.context.subscribed_topics:
            self.caught_up.set()
            stop.wait()
        settings = {**CONSUMER_SETTINGS, "group.id": self.context.group}
        while not stop.is_set():
            consumer = Consumer(topics.settings(self.world, **settings))
            try:
                consumer.subscribe([*self.context.subscribed_topics])
                while not stop.is_set():
                    self._consume_available(consumer)
            except (psycopg.Error, WorkbenchError, KafkaException) as e:
                logger.warning("batch will be retried: %s", first_line(e))
                stop.wait(0.5)
            finally:
                consumer.close()

    def _consume_available(self, consumer: Consumer) -> None:
        """Consume the next batch, and commit its offsets after it is stored."""
        batch = consumer.consume(BATCH_SIZE, 0.05)
        for error in filter(None, (message.error() for message in batch)):
            raise KafkaException(error)
        if batch:
            self.consume_batch(batch)
            consumer.commit(asynchronous=False)
        if not self.caught_up.is_set() and consumer.assignment():
            if not any(lag_by_topic(self.world, self.context).values()):
                self.caught_up.set()

    def consume_batch(self, messages: list[Message]) -> None:
        """Apply a batch of messages to the store; malformed messages become dead letters.

        The caller commits the offsets afterwards.

        Raises:
            psycopg.Error, WorkbenchError: the batch was not stored, or a dead letter was not
                produced. The batch can be retried.
        """
        started = time.monotonic()
        faults.reach("before_batch")
        events: list[tuple[Message, Event]] = []
        dead: list[tuple[Message, str]] = []  # (message, reason) of each dead letter
        for message in messages:
            try:
                events.append((message, parse_event(message)))
            except LakeError as e:
                dead.append((message, first_line(e)))
        outcomes = self._apply(events, dead)
        # after the commit, because a failed batch is retried
        dlq.publish_messages(self.world, DLQ_TOPIC, dead, self.context.group, __name__)
        seconds = (time.monotonic() - started) / len(messages)
        for (_, event), outcome in zip(events, outcomes):
            EVENTS_CONSUMED.labels(event.topic, outcome).inc()
            EVENT_SECONDS.labels(event.topic).observe(seconds)
        logger.info("consumed %s, dead letters: %s", dict(collections.Counter(outcomes)), len(dead))
        faults.reach("before_offset_commit")

    def _apply(
        self, events: list[tuple[Message, Event]], dead: list[tuple[Message, str]]
    ) -> list[str]:
        """Store events in one transaction, and return the outcome of each.

        An event that PostgreSQL cannot store becomes a dead letter; the others are then stored one by
        one.
        """
        try:
            return self._consumer_store.apply_events([event for _, event in events])
        except NON_RETRYABLE_ERRORS as e:
            if len(events) > 1:
                return [outcome for each in events for outcome in self._apply([each], dead)]
            dead.append((events[0][0], first_line(e)))
            return ["dead"]

    # --- monitoring

    def export_metrics(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        self.producer.poll(0)
        with contextlib.suppress(WorkbenchError):  # without Kafka the metric keeps its last value
            for topic, lag in lag_by_topic(self.world, self.context).items():
                LAG.labels(topic).set(lag)
        return generate_latest(REGISTRY)

    def require_caught_up(self) -> None:
        """Check that the events that were published before the start are consumed.

        Raises:
            RetryLater: the consumer lag is not zero yet.
        """
        if not self.caught_up.is_set():
            raise RetryLater("still catching up: consumer lag is not zero yet")

    def health(self) -> dict[str, str]:
        """Return the state of the service.

        Raises:
            RetryLater: the consumer lag is not zero yet.
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


def lag_by_topic(world: World, context: Context) -> dict[str, int]:
    """Return {topic: number of events that the consumer group of a service has not consumed yet}."""
    subscribed = context.subscribed_topics
    return groups.lag(world, context.group, *subscribed) if subscribed else {}


def _on_delivery(error: Optional[KafkaError], message: Message) -> None:
    if error:
        logger.error(
            "event lost: topic %s, key %r: %s", message.topic(), message.key(), error.str()
        )
    else:
        EVENTS_DELIVERED.labels(message.topic()).inc()
