"""The Prometheus metrics of a service's process."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Summary

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
