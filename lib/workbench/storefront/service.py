"""A service, which runs commands, consumes the subscribed topics, and exports metrics.

Several instances of a service share its store and its topics.
"""

import contextlib
import logging
import threading
from typing import Optional

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from prometheus_client import generate_latest

from .. import stack
from ..base import WorkbenchError, World, first_line
from ..topic import topics
from . import metrics
from .consumer import EventConsumer
from .domain import Context, Document, RetryLater
from .events import Event
from .store import Store, connector_publishes

PRODUCER_SETTINGS = {
    "enable.idempotence": True,
    "linger.ms": 2,
    # The partitioner of Java clients, so also of the connector. All events of a key are in one
    # partition, whether the service or the connector publishes them.
    "partitioner": "murmur2_random",
}
logger = logging.getLogger(__name__)


class Service(EventConsumer):
    """The commands and the consumer of a service.

    Commands have a connection of their own, so that they do not wait for a batch of events.
    """

    def __init__(self, world: World, context: Context):
        """Create the producer; nothing is consumed before `run_consumer`."""
        super().__init__(world, context)
        self.store = Store(world, context)
        self.producer = Producer(topics.settings(world, **PRODUCER_SETTINGS))
        metrics.PRODUCER_QUEUE_SIZE.set_function(lambda: len(self.producer))
        self._command_lock = threading.Lock()

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
            CommandRejected: the command is rejected, or the consumer has not caught up (RetryLater).
            psycopg.Error, SourceError: the store rejects a statement, or is down.
        """
        edit = self.context.commands[method, path]
        self.require_caught_up()
        # the lock keeps the events of a key in the order of their versions
        with self._command_lock:
            change = self.store.change(key, lambda before: edit(before, body))
            event = change.event
            if event:
                self.faults.reach("after_commit")
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

    # --- monitoring

    def export_metrics(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        with contextlib.suppress(WorkbenchError):  # without Kafka the metric keeps its last value
            if not stack.service_down_error(self.world, "kafka"):
                for topic, lag in self.lag_by_topic().items():
                    metrics.LAG.labels(topic).set(lag)
        return generate_latest(metrics.REGISTRY)

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


def _on_delivery(error: Optional[KafkaError], message: Message) -> None:
    if error:
        logger.error(
            "event lost: topic %s, key %r: %s", message.topic(), message.key(), error.str()
        )
    else:
        metrics.EVENTS_DELIVERED.labels(message.topic()).inc()
