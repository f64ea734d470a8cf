"""The three bounded contexts: their documents, topics and commands.

This module does not depend on HTTP, Kafka or a database.
"""

import time
from dataclasses import dataclass
from typing import Annotated, Any, Callable, Mapping, Optional

from pydantic import BaseModel, Field, PositiveInt, ValidationError, field_validator

Document = dict[str, Any]
# an order has each status once, in this order
STATUSES = ("CREATED", "APPROVED", "PROCESSING", "COMPLETED")
ID_FIELDS = {"customers": "id", "orders": "guid"}  # {collection: field that identifies a document}
KEY = "/{key:path}"  # the part of a command's path with the key of a document
NonEmptyText = Annotated[str, Field(min_length=1)]


class Customer(BaseModel):
    """The published fields of a customer."""

    id: NonEmptyText
    name: dict[str, Any]
    contact: dict[str, Any]
    addresses: list[dict[str, Any]]


class StatusEvent(BaseModel):
    """The event of one status change of an order.

    Attributes:
        timestamp: milliseconds since 1970.
        orderStatusType: one of STATUSES.
    """

    timestamp: int
    orderStatusType: str


class Product(BaseModel):
    """The product of an order item."""

    guid: NonEmptyText
    title: NonEmptyText
    price: Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+)?$")]


class OrderItem(BaseModel):
    """An item of an order."""

    product: Product
    quantity: PositiveInt


class Order(BaseModel):
    """The published fields of an order."""

    guid: NonEmptyText
    customerId: NonEmptyText
    orderStatusEvents: Annotated[list[StatusEvent], Field(min_length=1)]
    orderItems: Annotated[list[OrderItem], Field(min_length=1)]

    @field_validator("orderStatusEvents")
    @classmethod
    def _validate_status_order(cls, events: list[StatusEvent]) -> list[StatusEvent]:
        if tuple(event.orderStatusType for event in events) != STATUSES[: len(events)]:
            raise ValueError(f"the statuses are {', '.join(STATUSES)}, in this order")
        return events


MODELS: dict[str, type[BaseModel]] = {"customers": Customer, "orders": Order}
# {collection: published fields}; events do not contain other fields, such as credit cards
PUBLISHED_FIELDS = {collection: tuple(model.model_fields) for collection, model in MODELS.items()}


def validate(collection: str, document: Any) -> None:
    """Check that a document has all published fields of its collection, with their types.

    Other fields are ignored. No value is converted to another type.

    Args:
        collection: "customers" or "orders".
        document: the document.

    Raises:
        ValueError: names the first field that is missing or invalid.
    """
    try:
        MODELS[collection].model_validate(document, strict=True)
    except ValidationError as e:
        error = e.errors(include_url=False, include_context=False, include_input=False)[0]
        field = ".".join(map(str, error["loc"]))
        raise ValueError(f"{field}: {error['msg']}") from e


class CommandRejected(Exception):
    """A command was rejected; nothing was changed. The text is part of the HTTP response."""


class RetryLater(CommandRejected):
    """The command may succeed later, after events of other services."""


Command = Callable[[Optional[Document], Document], Document]


@dataclass(frozen=True)
class Context:
    """A service and its data.

    Attributes:
        name: name of the service.
        aggregate: kind of document that the service publishes, such as "order".
        collections: the collections in its store.
        commands: {(HTTP method, path below the collection): command}. KEY in the path is the key
            of the document. A command takes the stored document (None for a new one) and the
            request's body, and returns the new document.
            Commands are idempotent.
        subscribed_topics: the consumed topics. To rebuild its store, a service also consumes its
            own topic.
        min_version: lowest version of a document that is stored from an event.
    """

    name: str
    aggregate: str
    collections: tuple[str, ...]
    commands: Mapping[tuple[str, str], Command]
    subscribed_topics: tuple[str, ...] = ()
    min_version: int = 1

    @property
    def topic(self) -> str:
        """The topic of the service's events."""
        return f"{self.name}.{self.aggregate}.change"

    @property
    def owned_collection(self) -> str:
        """The collection that the service's commands change."""
        return f"{self.aggregate}s"

    @property
    def group(self) -> str:
        """The consumer group of all instances of the service."""
        return f"storefront.{self.name}"


def _require_stored(stored: Optional[Document], kind: str) -> Document:
    if stored is None:
        raise RetryLater(f"there is no such {kind} yet")
    return stored


def _create_if_absent(stored: Optional[Document], document: Document) -> Document:
    if stored not in (None, document):
        raise CommandRejected("another document has this key")
    return document


def _create_customer(stored: Optional[Document], body: Document) -> Document:
    fields = PUBLISHED_FIELDS["customers"]
    missing = [name for name in fields if not body.get(name)]
    if missing:
        raise CommandRejected(f"a customer has {', '.join(fields)}; missing: {', '.join(missing)}")
    return _create_if_absent(stored, body)


def _update_customer(stored: Optional[Document], body: Document) -> Document:
    """Change fields of a customer: merge a mapping into the stored one, replace any other value."""
    changeable = (*PUBLISHED_FIELDS["customers"][1:], "creditCards")  # all but the id
    document = dict(_require_stored(stored, "customer"))
    for name, value in body.items():
        has_other_type = name in document and type(value) is not type(document[name])
        if name not in changeable or has_other_type:
            raise CommandRejected(
                f"{name!r} cannot be changed, or has another type; known: {', '.join(changeable)}"
            )
        if isinstance(value, dict):
            value = {**document.get(name, {}), **value}
        document[name] = value
    return document


def _status_event(status: str, body: Document) -> Document:
    timestamp = body.get("timestamp", int(time.time() * 1000))
    if type(timestamp) is not int:
        raise CommandRejected("timestamp is a whole number: milliseconds since 1970")
    return {"timestamp": timestamp, "orderStatusType": status}


def _create_order(stored: Optional[Document], body: Document) -> Document:
    items = body.get("orderItems")
    if not (body.get("guid") and body.get("customerId") and items and isinstance(items, list)):
        raise CommandRejected("an order has guid, customerId and a list of orderItems")
    if stored and stored["customerId"] == body["customerId"] and stored["orderItems"] == items:
        return stored
    order = {name: body[name] for name in ("guid", "customerId", "orderItems")}
    created = _status_event(STATUSES[0], body)
    return _create_if_absent(stored, {**order, "orderStatusEvents": [created]})


def _advance_status(*statuses: str) -> Command:
    """Return a command that adds the next status to an order.

    Args:
        statuses: the statuses that this command may add.
    """

    def add_status(stored: Optional[Document], body: Document) -> Document:
        order, status = _require_stored(stored, "order"), body.get("orderStatusType")
        events = order["orderStatusEvents"]
        if status not in statuses:
            raise CommandRejected(
                f"status {status!r} is not set by this service; known: {', '.join(statuses)}"
            )
        if status in [event["orderStatusType"] for event in events]:
            return order
        if status != STATUSES[len(events)]:
            last_status, next_status = events[-1]["orderStatusType"], STATUSES[len(events)]
            raise RetryLater(f"after {last_status} comes {next_status}, not {status}")
        return {**order, "orderStatusEvents": [*events, _status_event(status, body)]}

    return add_status


ACCOUNTS = Context(
    "accounts",
    "customer",
    ("customers",),
    {("POST", ""): _create_customer, ("PATCH", KEY): _update_customer},
)
FULFILLMENT = Context(
    "fulfillment",
    "order",
    ("orders",),
    {("POST", f"{KEY}/status"): _advance_status(*STATUSES[2:])},
    subscribed_topics=("orders.order.change", "fulfillment.order.change"),
    min_version=2,  # an order is approved in its second version
)
ORDERS = Context(
    "orders",
    "order",
    ("customers", "orders"),
    {("POST", ""): _create_order, ("POST", f"{KEY}/status"): _advance_status(STATUSES[1])},
    subscribed_topics=(ACCOUNTS.topic, "orders.order.change", FULFILLMENT.topic),
)
ALL = {context.name: context for context in (ACCOUNTS, ORDERS, FULFILLMENT)}
TOPICS = {context.topic: context for context in ALL.values()}
DLQ_TOPIC = "storefront.dead_letters"
# With this publication in its store, a connector publishes the outbox instead of the service.
PUBLICATION = "storefront_outbox"
