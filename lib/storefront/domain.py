"""The three bounded contexts: their documents, commands and topics.

This module does not depend on HTTP, Kafka or a database.
"""

import time
from dataclasses import dataclass
from typing import Annotated, Any, Callable, Literal, Mapping, NamedTuple, Optional

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError, field_validator

Document = dict[str, Any]
# an order has each status once, in this order
STATUSES = ("CREATED", "APPROVED", "PROCESSING", "COMPLETED")
ID_FIELDS = {"customers": "id", "orders": "guid"}  # {collection: field that identifies a document}
KEY = "{key:path}"  # the key of a document in the path of a command
NonEmptyText = Annotated[str, Field(min_length=1)]
CurrentTime = Annotated[int, Field(default_factory=lambda: int(time.time() * 1000))]


class Model(BaseModel):
    """A part of a document. It may have more fields, and no value is converted to another type."""

    model_config = ConfigDict(strict=True, extra="allow")


class Customer(Model):
    """The published fields of a customer."""

    id: NonEmptyText
    name: dict[str, Any]
    contact: dict[str, Any]
    addresses: list[dict[str, Any]]


class CustomerChange(Model, extra="forbid"):
    """New values of a customer's fields; the id cannot be changed."""

    name: dict[str, Any] = {}
    contact: dict[str, Any] = {}
    addresses: list[dict[str, Any]] = []
    creditCards: list[dict[str, Any]] = []


class StatusEvent(Model):
    """The event of one status change of an order.

    Attributes:
        timestamp: milliseconds since 1970.
        orderStatusType: one of STATUSES.
    """

    timestamp: int
    orderStatusType: str


class StatusChange(StatusEvent, extra="ignore"):
    """A new status of an order."""

    timestamp: CurrentTime


class Approval(StatusChange):
    """A status that the service `orders` sets."""

    orderStatusType: Literal["APPROVED"]


class Progress(StatusChange):
    """A status that the service `fulfillment` sets."""

    orderStatusType: Literal["PROCESSING", "COMPLETED"]


class Product(Model):
    """The product of an order item."""

    guid: NonEmptyText
    title: NonEmptyText
    price: Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+)?$")]


class OrderItem(Model):
    """An item of an order."""

    product: Product
    quantity: PositiveInt


class OrderFields(Model):
    """The fields of an order that never change."""

    guid: NonEmptyText
    customerId: NonEmptyText
    orderItems: Annotated[list[OrderItem], Field(min_length=1)]


class NewOrder(OrderFields):
    """An order that a customer places."""

    timestamp: CurrentTime


class Order(OrderFields):
    """The published fields of an order."""

    orderStatusEvents: Annotated[list[StatusEvent], Field(min_length=1)]

    @field_validator("orderStatusEvents")
    @classmethod
    def _validate_status_order(cls, events: list[StatusEvent]) -> list[StatusEvent]:
        if tuple(event.orderStatusType for event in events) != STATUSES[: len(events)]:
            raise ValueError(f"the statuses are {', '.join(STATUSES)}, in this order")
        return events


MODELS: dict[str, type[Model]] = {"customers": Customer, "orders": Order}
# {collection: published fields}; events do not contain other fields, such as credit cards
PUBLISHED_FIELDS = {collection: tuple(model.model_fields) for collection, model in MODELS.items()}


def published(collection: str, document: Document) -> Document:
    """Return the published fields of a document."""
    return {name: document[name] for name in PUBLISHED_FIELDS[collection]}


def describe_errors(error: ValidationError) -> str:
    """Return the invalid fields of a document, each with the reason."""
    return "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())


class CommandRejected(Exception):
    """A command was rejected; nothing was changed. The text is part of the HTTP response."""


class RetryLater(CommandRejected):
    """The command may succeed later, after events of other services."""


class Command(NamedTuple):
    """A command on one document. It is idempotent.

    Attributes:
        model: the body of the request.
        edit: takes the stored document (None for a new one) and the body, returns the new document.
    """

    model: type[Model]
    edit: Callable[[Optional[Document], Any], Document]

    def run(self, stored: Optional[Document], body: Document) -> Document:
        """Return the new document.

        Raises:
            CommandRejected: the body is invalid, or the stored document does not allow the command.
        """
        try:
            return self.edit(stored, self.model.model_validate(body))
        except ValidationError as e:
            raise CommandRejected(describe_errors(e)) from e


@dataclass(frozen=True)
class Context:
    """A service and its data.

    Attributes:
        name: name of the service.
        aggregate: kind of document that the service publishes, such as "order".
        collections: the collections in its store.
        commands: {(HTTP method, path): command}, with KEY for the key of the document.
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
    """Return the stored document, or the new one; the same document may be created again."""
    if stored is None:
        return document
    if {**stored, **document} != stored:
        raise CommandRejected("another document has this key")
    return stored


def _create_customer(stored: Optional[Document], customer: Customer) -> Document:
    return _create_if_absent(stored, customer.model_dump())


def _change_customer(stored: Optional[Document], change: CustomerChange) -> Document:
    """Change fields of a customer: merge a mapping into the stored one, replace any other value."""
    customer = dict(_require_stored(stored, "customer"))
    for name, value in change.model_dump(exclude_unset=True).items():
        is_mapping = isinstance(value, dict)
        customer[name] = {**customer.get(name, {}), **value} if is_mapping else value
    return customer


def _create_order(stored: Optional[Document], order: NewOrder) -> Document:
    document = _create_if_absent(stored, order.model_dump(include={*OrderFields.model_fields}))
    created = {"timestamp": order.timestamp, "orderStatusType": STATUSES[0]}
    return {"orderStatusEvents": [created], **document}


def _add_status(stored: Optional[Document], change: StatusChange) -> Document:
    order, status = _require_stored(stored, "order"), change.orderStatusType
    events = order["orderStatusEvents"]
    if status in [event["orderStatusType"] for event in events]:
        return order
    last_status, next_status = STATUSES[len(events) - 1 : len(events) + 1]
    if status != next_status:
        raise RetryLater(f"after {last_status} comes {next_status}, not {status}")
    return {**order, "orderStatusEvents": [*events, change.model_dump()]}


ACCOUNTS = Context(
    "accounts",
    "customer",
    ("customers",),
    {
        ("POST", "customers"): Command(Customer, _create_customer),
        ("PATCH", f"customers/{KEY}"): Command(CustomerChange, _change_customer),
    },
)
FULFILLMENT = Context(
    "fulfillment",
    "order",
    ("orders",),
    {("POST", f"orders/{KEY}/status"): Command(Progress, _add_status)},
    subscribed_topics=("orders.order.change", "fulfillment.order.change"),
    min_version=2,  # an order is approved in its second version
)
ORDERS = Context(
    "orders",
    "order",
    ("customers", "orders"),
    {
        ("POST", "orders"): Command(NewOrder, _create_order),
        ("POST", f"orders/{KEY}/status"): Command(Approval, _add_status),
    },
    subscribed_topics=(ACCOUNTS.topic, "orders.order.change", FULFILLMENT.topic),
)
ALL = {context.name: context for context in (ACCOUNTS, ORDERS, FULFILLMENT)}
TOPICS = {context.topic: context for context in ALL.values()}
DLQ_TOPIC = "storefront.dead_letters"
# With this publication in its store, a connector publishes the outbox instead of the service.
PUBLICATION = "storefront_outbox"
