"""Messages as Kafka's client returns them, and the files that a sink makes of them, without Kafka."""

from confluent_kafka import Message
from workbench.base import files
from workbench.landing import writing
from workbench.landing.messages import registry
from workbench.topic import dlq


def message(offset, value, key=b"k", topic="t", partition=0):
    return Message(topic, partition, offset, key=key, value=value)


def messages(*values):
    """Return messages with these values, of one partition."""
    return [message(offset, value) for offset, value in enumerate(values)]


def write_files(encoder, folder, found):
    """Write messages to files below a folder; return (counts, {offset: reason of a dead letter})."""
    filesystem, root = files.open_filesystem(f"file:{folder}")
    counts, dead_letters = writing.write_files(
        found, encoder, lambda path, data: files.write_bytes(filesystem, f"{root}/{path}", data)
    )
    lines = [dlq.to_record(*letter) for letter in dead_letters]
    return counts, {line["offset"]: line for line in lines}


def register(monkeypatch, schemas):
    """Let the registry have these schemas, {id: schema}; return the list of the requested ids."""
    requested = []

    def find(world, id):
        requested.append(id)
        return schemas.get(id)

    monkeypatch.setattr(registry, "find", find)
    return requested
