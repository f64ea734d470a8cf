"""An event: a document as it is from now on (event-carried state transfer), with an id of its own
and the version of the document, both as headers. Key and value are what others agree on: the
document's key, and its fields in JSON.
"""

import json
import uuid
from dataclasses import dataclass
from typing import Any

from ..base import LakeError
from .contexts import ID_FIELDS, PUBLISHED_FIELDS, TOPICS, CommandRejected, Document, validate

MAX_NESTING_LEVELS = (
    50  # levels of a document. JSON nested more deeply ends in RecursionError, here or at a reader
)
MAX_EVENT_BYTES = (
    900_000  # bytes of a value; a topic takes a message of a mebibyte by default, headers and all
)


@dataclass(frozen=True)
class Event:
    """id: of the event. version: of the document, 1 for a new one, one more with each change."""

    id: str
    topic: str
    key: str
    version: int
    document: Document

    def to_message(self) -> tuple[bytes, bytes, dict[str, Any]]:
        """Key, value, and what a producer is told besides, as `topics.produce` takes them."""
        return (
            self.key.encode(),
            json.dumps(self.document).encode(),
            {"headers": [("id", self.id.encode()), ("version", str(self.version).encode())]},
        )


def is_too_deep(document: Any) -> bool:
    """Whether JSON is nested more than NESTING levels deep."""
    level = [document]
    for _ in range(MAX_NESTING_LEVELS + 1):
        containers = [value for value in level if isinstance(value, (dict, list))]
        if not containers:
            return False
        level = [
            inner
            for value in containers
            for inner in (value.values() if isinstance(value, dict) else value)
        ]
    return True


def build_event(topic: str, key: str, version: int, document: Document) -> Event:
    """The event of a change: of the document only what others are told.

    Raises:
        Refused: a field is missing or invalid, or the document is too large.
    """
    collection = TOPICS[topic].owned_collection
    try:
        validate(collection, document)
    except ValueError as e:
        raise CommandRejected(str(e)) from e
    event = Event(
        str(uuid.uuid4()),
        topic,
        key,
        version,
        {name: document[name] for name in PUBLISHED_FIELDS[collection]},
    )
    if (
        len(event.to_message()[1]) > MAX_EVENT_BYTES
    ):  # Kafka would refuse it when the document is kept already
        raise CommandRejected(
            f"the document is too large: what others are told of it has at most {MAX_EVENT_BYTES:,} bytes"
        )
    return event


def parse_event(message: Any) -> Event:
    """The event of a message (confluent_kafka's). Raises: LakeError: it is none, and why."""
    topic, headers = message.topic(), dict(message.headers() or [])
    collection = TOPICS[topic].owned_collection
    fields = ID_FIELDS[collection]
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
    if (
        not isinstance(event.document, dict)
        or event.document.get(fields) != event.key
        or event.version < 1
    ):
        raise LakeError(
            f"not an event: its key is not the document's {fields}, or its version is below 1"
        )
    if is_too_deep(event.document):
        raise LakeError(
            f"not an event: its document is nested more than {MAX_NESTING_LEVELS} levels deep"
        )
    try:
        validate(collection, event.document)
    except ValueError as e:
        raise LakeError(f"not an event: {e}") from e
    return event
