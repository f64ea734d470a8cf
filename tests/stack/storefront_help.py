"""Helpers of test_storefront.py and test_storefront_faults.py."""

import uuid

from storefront import audit, client, domain, load
from workbench.topic import topics

CUSTOMERS = domain.ACCOUNTS.topic


JOHN = load.sample_documents()["customer"]


PUBLISHED = {name: JOHN[name] for name in domain.PUBLISHED_FIELDS["customers"]}


def customer(world, **more):
    """Create a customer, and return its key."""
    key = uuid.uuid4().hex
    client.call(world, "accounts", "POST", "customers", {**JOHN, "id": key, **more})
    return key


def copies(world, key):
    found = audit.documents(world, "orders", "customers").set_index("id")["document"]
    return found.get(key)


def send(world, key, value, topic=CUSTOMERS, **headers):
    own = {"id": str(uuid.uuid4()), "version": "1", **headers}
    topics.produce(
        world,
        topic,
        [(key, value, {"headers": [(name, text.encode()) for name, text in own.items()]})],
    )


def check_no_event_is_confidential(world):
    for topic in domain.TOPICS:
        for message in topics.read_all(world, topic):
            text = (message.value() or b"").decode(errors="replace") + str(message.headers())
            assert not any(
                word in text
                for word in ("P-8841-X", JOHN["creditCards"][0]["number"], "creditCards", "_class")
            )


def alternate(operations):
    """Send every other operation to the second instance of its service."""
    return [
        one._replace(service=f"{one.service}_2") if number % 2 else one
        for number, one in enumerate(operations)
    ]
