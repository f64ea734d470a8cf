"""Events: the state of a document after a change (event-carried state transfer).

The key of an event is the key of the document. The value is the published fields as JSON. Headers
have the id of the event and the version of the document.
"""

import json
import uuid
from dataclasses import dataclass
from typing import Any

from ..base import LakeError, World
from ..topic import topics
from .domain import ID_FIELDS, PUBLISHED_FIELDS, TOPICS, CommandRejected, Document, validate

# nesting levels of a document; deeper JSON may raise RecursionError in a consumer
MAX_NESTING_LEVELS = 50
# size of a value; by default a topic accepts messages of up to 1 MiB, headers included
MAX_EVENT_BYTES = 900_000


@dataclass(frozen=True)
class Event:
    """An event.

    Attributes:
        id: id of the event, a UUID.
        topic: the topic of the event.
        key: key of the document.
        version: version of the document, 1 for a new document; each change adds 1.
        document: the published fields.
    """

    id: str
    topic: str
    key: str
    version: int
    document: Document

    def to_message(self) -> tuple[bytes, bytes, dict[str, Any]]:
        """Return (key, value, options of the producer) for `topics.produce`."""
        headers = [("id", self.id.encode()), ("version", str(self.version).encode())]
        return self.key.encode(), json.dumps(self.document).encode(), {"headers": headers}


def is_too_deep(document: Any, levels: int = MAX_NESTING_LEVELS) -> bool:
    """Return whether JSON has more than this number of nesting levels."""
    if not isinstance(document, (dict, list)):
        return False
    children = document.values() if isinstance(document, dict) else document
    return levels == 0 or any(is_too_deep(child, levels - 1) for child in children)


def build_event(topic: str, key: str, version: int, document: Document) -> Event:
    """Return the event of a change, with the published fields of the document.

    Raises:
        CommandRejected: a field is missing or invalid, or the document is too large.
    """
    collection = TOPICS[topic].owned_collection
    try:
        validate(collection, document)
    except ValueError as e:
        raise CommandRejected(str(e)) from e
    published = {name: document[name] for name in PUBLISHED_FIELDS[collection]}
    event = Event(str(uuid.uuid4()), topic, key, version, published)
    # checked here, because Kafka would reject the event after the commit of the document
    if len(event.to_message()[1]) > MAX_EVENT_BYTES:
        raise CommandRejected(
            f"the document is too large: its event has more than {MAX_EVENT_BYTES:,} bytes"
        )
    return event


def parse_event(message: Any) -> Event:
    """Return the event of a Kafka message.

    Raises:
        LakeError: the message is not an event; the error has the reason.
    """
    topic, headers = message.topic(), dict(message.headers() or [])
    collection = TOPICS[topic].owned_collection
    id_field = ID_FIELDS[collection]
    try:
        event = Event(
            str(uuid.UUID(headers["id"].decode())),
            topic,
            message.key().decode(),
            int(headers["version"]),
            json.loads(message.value()),
        )
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError) as e:
        raise LakeError(f"not an event: {type(e).__name__} {e}") from e
    document = event.document
    if not isinstance(document, dict) or document.get(id_field) != event.key or event.version < 1:
        raise LakeError(
            f"not an event: its key is not the document's {id_field}, or its version is below 1"
        )
    if is_too_deep(document):
        raise LakeError(
            f"not an event: its document has more than {MAX_NESTING_LEVELS} nesting levels"
        )
    try:
        validate(collection, document)
    except ValueError as e:
        raise LakeError(f"not an event: {e}") from e
    return event


class EventIds:
    """The ids of the events in a topic. Each `read` consumes only the new messages."""

    def __init__(self, world: World, topic: str):
        """Start at the beginning of the topic."""
        self._world, self._topic = world, topic
        self._next_offsets: dict[int, int] = {}  # {partition: offset}
        self._ids: list[str] = []

    def read(self) -> list[str]:
        """Return the ids of all messages so far, "" for a message without an id."""
        for message in topics.read_all(self._world, self._topic, start_offsets=self._next_offsets):
            self._next_offsets[message.partition()] = message.offset() + 1
            self._ids.append(dict(message.headers() or []).get("id", b"").decode())
        return self._ids
