"""Events: the state of a document after a change (event-carried state transfer).

The key of an event is the key of the document. The value is the published fields as JSON. Headers
have the id of the event and the version of the document.
"""

import json
from typing import Any
from uuid import UUID, uuid4

from pydantic import BaseModel, PositiveInt, ValidationError
from workbench.base import LakeError

from .domain import ID_FIELDS, MODELS, TOPICS, CommandRejected, Document, describe_errors, published

# size of a value; by default a topic accepts messages of up to 1 MiB, headers included
MAX_EVENT_BYTES = 900_000


class Event(BaseModel):
    """An event.

    Attributes:
        id: id of the event.
        topic: the topic of the event.
        key: key of the document.
        version: version of the document, 1 for a new document; each change adds 1.
        document: the published fields.
    """

    id: UUID
    topic: str
    key: str
    version: PositiveInt
    document: Document

    def to_message(self) -> tuple[str, str, dict[str, Any]]:
        """Return (key, value, options of the producer) for `topics.produce`."""
        headers = [("id", str(self.id)), ("version", str(self.version))]
        return self.key, json.dumps(self.document), {"headers": headers}


def build_event(topic: str, key: str, version: int, document: Document) -> Event:
    """Return the event of a change, with the published fields of the document.

    Raises:
        CommandRejected: the document is too large.
    """
    fields = published(TOPICS[topic].owned_collection, document)
    event = Event(id=uuid4(), topic=topic, key=key, version=version, document=fields)
    # checked here, because Kafka would reject the event after the commit of the document
    if len(event.to_message()[1]) > MAX_EVENT_BYTES:
        raise CommandRejected(f"the event has more than {MAX_EVENT_BYTES:,} bytes")
    return event


def parse_event(message: Any) -> Event:
    """Return the event of a Kafka message.

    Raises:
        LakeError: the message is not an event; the error has the reason.
    """
    collection = TOPICS[message.topic()].owned_collection
    try:
        document = MODELS[collection].model_validate_json(message.value()).model_dump()
        fields = {"topic": message.topic(), "key": message.key(), "document": document}
        event = Event.model_validate({**dict(message.headers() or []), **fields})
    except ValidationError as e:
        raise LakeError(f"not an event: {describe_errors(e)}") from e
    if document[ID_FIELDS[collection]] != event.key:
        raise LakeError(f"not an event: its key is not the document's {ID_FIELDS[collection]}")
    return event
