"""Pictures of the storefront: its services, stores and topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import domain

if TYPE_CHECKING:
    from ..display.draw import Picture


def picture() -> Picture:
    """Draw the services with their stores, published topics and consumed topics."""
    from ..display import draw  # a local import: matplotlib is slow to import

    boxes, arrows = {}, []
    for column, (name, context) in enumerate(domain.ALL.items()):
        store = f"database {name}"
        boxes[store] = draw.Box(f"{store}\n{', '.join(context.collections)}", column, 0, "store")
        boxes[name] = draw.Box(f"service {name}", column, 1, "service")
        boxes[context.topic] = draw.Box(context.topic, column, 2, "topic")
        arrows.append(draw.Arrow(name, store, "reads, writes"))
        arrows.append(draw.Arrow(name, context.topic, "publishes"))
        arrows += [draw.Arrow(topic, name, "consumes") for topic in context.subscribed_topics]
    return draw.flow(boxes, arrows, _colors(), "Three services, three stores, three topics")


def delivery(connector: bool = False) -> Picture:
    """Draw how an event of the accounts service reaches its topic.

    Args:
        connector: also draw the path through the outbox and its connector.
    """
    from ..display import draw

    topic = domain.ACCOUNTS.topic
    boxes = {
        "accounts": draw.Box("service accounts", 0, 1, "service"),
        "store": draw.Box("database accounts\ncustomers, outbox", 1, 0, "store"),
        "topic": draw.Box(topic.replace(".customer", "\n.customer"), 3, 1, "topic"),
        "orders": draw.Box("service orders", 4.5, 1, "service"),
    }
    publishes = "2. publishes: lost if the process dies after the commit"
    arrows = [
        draw.Arrow("accounts", "store", "1. commits"),
        draw.Arrow("topic", "orders", "consumes"),
        draw.Arrow("accounts", "topic", publishes, lossy=True),
    ]
    title = "One command, two systems"
    if connector:
        title = "Two ways into the topic"
        boxes["connector"] = draw.Box("connector", 2, 0, "service")
        arrows.append(draw.Arrow("store", "connector", "log"))
        arrows.append(draw.Arrow("connector", "topic", "publishes committed events"))
    return draw.flow(boxes, arrows, _colors(), title)


def _colors() -> dict[str, str]:
    """Return the color of each kind of box."""
    from ..display.draw import PALETTE

    return {"service": PALETTE[3], "store": PALETTE[2], "topic": PALETTE[1]}
