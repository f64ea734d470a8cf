"""The three bounded contexts: which documents each keeps, which of them are its own, what it hears,
what it does when it is asked. Nothing here knows of HTTP, Kafka or a database.
"""

import time
from dataclasses import dataclass
from typing import Annotated, Any, Callable, Mapping, Optional

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

Document = dict[str, Any]
STATUSES = ("CREATED", "APPROVED", "PROCESSING", "COMPLETED")  # in this order, each once
ID_FIELDS = {
    "customers": "id",
    "orders": "guid",
}  # {collection: the field by which a document is known}
Text = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(ge=1)]


class _Model(BaseModel):
    """The required fields of a JSON object. Other fields are ignored; no value is converted to
    another type.
    """

    model_config = ConfigDict(strict=True)


class Customer(_Model):
    """The published fields of a customer."""

    id: Text
    name: dict[str, Any]
    contact: dict[str, Any]
    addresses: list[dict[str, Any]]


class StatusEvent(_Model):
    """A status of an order. timestamp: milliseconds since 1970."""

    timestamp: int
    orderStatusType: str


class Product(_Model):
    """The product of an order item."""

    guid: Text
    title: Text
    price: Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+)?$")]


class OrderItem(_Model):
    """An item of an order."""

    product: Product
    quantity: Count


class Order(_Model):
    """The published fields of an order."""

    guid: Text
    customerId: Text
    orderStatusEvents: Annotated[list[StatusEvent], Field(min_length=1)]
    orderItems: Annotated[list[OrderItem], Field(min_length=1)]

    @field_validator("orderStatusEvents")
    @classmethod
    def _validate_status_order(cls, events: list[StatusEvent]) -> list[StatusEvent]:
        if tuple(event.orderStatusType for event in events) != STATUSES[: len(events)]:
            raise ValueError(f"the statuses are {', '.join(STATUSES)}, in this order")
        return events


MODELS: dict[str, type[BaseModel]] = {"customers": Customer, "orders": Order}
# What of a document others are told. Everything else (a credit card, or what is added one day)
# stays where it is.
PUBLISHED_FIELDS = {collection: tuple(model.model_fields) for collection, model in MODELS.items()}


def validate(collection: str, document: Any) -> None:
    """Check that a document has all published fields of its collection, with their types.

    Raises:
        ValueError: names the first field that is missing or invalid.
    """
    try:
        MODELS[collection].model_validate(document)
    except ValidationError as e:
        error = e.errors(include_url=False, include_context=False, include_input=False)[0]
        field = ".".join(str(part) for part in error["loc"])
        raise ValueError(f"{field}: {error['msg']}") from e


class CommandRejected(Exception):
    """A command that is not done. again: whether it may be done later, when other services' events
    have come.
    """

    def __init__(self, why: str, retryable: bool = False):
        super().__init__(why)
        self.retryable = retryable


@dataclass(frozen=True)
class Context:
    """A service: its name, the aggregate that it tells of, the collections that it keeps, the
    topics that it hears (its own among them, from which it can be rebuilt), and its commands:
    {(method, path below the collection): function}.

    A command is a function (document as it is or None, body) → document as it shall be. The same
    twice is once.
    takes: from which version on it keeps a document of others.
    """

    name: str
    aggregate: str
    collections: tuple[str, ...]
    commands: Mapping[tuple[str, str], Callable[[Optional[Document], Document], Document]]
    subscribed_topics: tuple[str, ...] = ()
    min_version: int = 1

    @property
    def topic(self) -> str:
        return f"{self.name}.{self.aggregate}.change"

    @property
    def owned_collection(self) -> str:
        """The collection that its commands change."""
        return f"{self.aggregate}s"

    @property
    def group(self) -> str:
        """The consumer group of all its instances."""
        return f"storefront.{self.name}"


def _require(before: Optional[Document], what: str) -> Document:
    if before is None:
        raise CommandRejected(f"there is no such {what}, or not yet", retryable=True)
    return before


def _create_if_absent(before: Optional[Document], document: Document) -> Document:
    if before not in (None, document):
        raise CommandRejected("there is another one of this key")
    return document


def _create_customer(before: Optional[Document], body: Document) -> Document:
    missing = [name for name in PUBLISHED_FIELDS["customers"] if not body.get(name)]
    if missing:
        raise CommandRejected(
            f"a customer has {', '.join(PUBLISHED_FIELDS['customers'])}; missing: {', '.join(missing)}"
        )
    return _create_if_absent(before, body)


def _update_customer(before: Optional[Document], body: Document) -> Document:
    """Fields of a mapping are changed one by one, a list is replaced."""
    known, document = (
        (*PUBLISHED_FIELDS["customers"][1:], "creditCards"),
        dict(_require(before, "customer")),
    )
    for name, value in body.items():
        if name not in known or type(value) is not type(document.get(name, value)):
            raise CommandRejected(
                f"{name!r} cannot be changed, or not to this; known: {', '.join(known)}"
            )
        document[name] = {**document.get(name, {}), **value} if isinstance(value, dict) else value
    return document


def _status_event(kind: str, body: Document) -> Document:
    at = body.get("timestamp", int(time.time() * 1000))
    if type(at) is not int:
        raise CommandRejected("timestamp is a whole number: milliseconds since 1970")
    return {"timestamp": at, "orderStatusType": kind}


def _create_order(before: Optional[Document], body: Document) -> Document:
    items = body.get("orderItems")
    if (
        not body.get("guid")
        or not body.get("customerId")
        or not items
        or not isinstance(items, list)
    ):
        raise CommandRejected("an order has guid, customerId and orderItems, a list")
    if before and [before[name] for name in ("customerId", "orderItems")] == [
        body["customerId"],
        items,
    ]:
        return before
    return _create_if_absent(
        before,
        {
            "guid": body["guid"],
            "customerId": body["customerId"],
            "orderStatusEvents": [_status_event(STATUSES[0], body)],
            "orderItems": items,
        },
    )


def _advance_status(*mine: str) -> Callable[[Optional[Document], Document], Document]:
    """The command that brings an order to its next status, of those that are this service's to
    give.
    """

    def add(before: Optional[Document], body: Document) -> Document:
        order, wanted = _require(before, "order"), body.get("orderStatusType")
        events = order["orderStatusEvents"]
        if wanted not in mine:
            raise CommandRejected(
                f"the status {wanted!r} is not given here; known: {', '.join(mine)}"
            )
        if wanted in [event["orderStatusType"] for event in events]:
            return order
        if wanted != STATUSES[len(events)]:
            last, due = events[-1]["orderStatusType"], STATUSES[len(events)]
            raise CommandRejected(f"after {last} comes {due}, not {wanted}", retryable=True)
        return {**order, "orderStatusEvents": [*events, _status_event(wanted, body)]}

    return add


ACCOUNTS = Context(
    "accounts",
    "customer",
    ("customers",),
    {("POST", ""): _create_customer, ("PATCH", "id"): _update_customer},
)
FULFILLMENT = Context(
    "fulfillment",
    "order",
    ("orders",),
    {("POST", "id/status"): _advance_status(*STATUSES[2:])},
    subscribed_topics=("orders.order.change", "fulfillment.order.change"),
    min_version=2,
)  # what is approved
ORDERS = Context(
    "orders",
    "order",
    ("customers", "orders"),
    {("POST", ""): _create_order, ("POST", "id/status"): _advance_status(STATUSES[1])},
    subscribed_topics=(ACCOUNTS.topic, "orders.order.change", FULFILLMENT.topic),
)
ALL = {context.name: context for context in (ACCOUNTS, ORDERS, FULFILLMENT)}
TOPICS = {context.topic: context for context in ALL.values()}
DLQ_TOPIC = "storefront.dead_letters"
# where a store has it, a connector sends what is in its outbox, and not the service
PUBLICATION = "storefront_outbox"
