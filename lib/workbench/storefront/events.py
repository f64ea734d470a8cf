"""An event: a document as it is from now on (event-carried state transfer), with an id of its own and the version of
the document, both as headers. Key and value are what others agree on: the document's key, and its fields in JSON."""

import json
import uuid
from dataclasses import dataclass
from typing import Any

from ..base import LakeError
from .contexts import KEYS, TOLD, TOPICS, Document


@dataclass(frozen=True)
class Event:
    """id: of the event. version: of the document, 1 for a new one, one more with each change."""

    id: str
    topic: str
    key: str
    version: int
    document: Document

    @property
    def collection(self) -> str:
        return TOPICS[self.topic].owns

    def message(self) -> tuple[bytes, bytes, dict[str, Any]]:
        """Key, value, and what a producer is told besides, as `topics.send` takes them."""
        return self.key.encode(), json.dumps(self.document).encode(), {
            "headers": [("id", self.id.encode()), ("version", str(self.version).encode())]}


def told(topic: str, key: str, version: int, document: Document) -> Event:
    """The event of a change: of the document only what others are told."""
    fields = TOLD[TOPICS[topic].owns]
    return Event(str(uuid.uuid4()), topic, key, version, {name: document[name] for name in fields})


def parse(message: Any) -> Event:
    """The event of a message (confluent_kafka's). Raises: LakeError: it is none, and why."""
    topic, headers = message.topic(), dict(message.headers() or [])
    fields = KEYS[TOPICS[topic].owns]
    try:
        event = Event(str(uuid.UUID(headers["id"].decode())), topic, message.key().decode(),
                      int(headers["version"]), json.loads(message.value()))
    except (KeyError, ValueError, TypeError, AttributeError) as e:
        raise LakeError(f"not an event: {type(e).__name__} {e}") from e
    if not isinstance(event.document, dict) or event.document.get(fields) != event.key or event.version < 1:
        raise LakeError(f"not an event: its key is not the document's {fields}, or its version is below 1")
    return event
