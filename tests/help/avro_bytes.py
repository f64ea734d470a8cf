"""Avro bytes that no serializer would write, for tests."""

import io
from types import SimpleNamespace

import fastavro
from workbench.topic import avro


def encode_long(n):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, "long", n)
    return out.getvalue()


def encode_string(t):
    return encode_long(len(t.encode())) + t.encode()


def record_schema(name, **fields):
    return {
        "type": "record",
        "name": name,
        "namespace": "t",
        "fields": [{"name": n, "type": kind} for n, kind in fields.items()],
    }


def wire_message(id, body):
    return b"\0" + id.to_bytes(8, "big") + body


def read_container(data):
    """Return the schema (JSON), the metadata and the records of a container file."""
    schema, reader = avro.container_schema(data), fastavro.reader(io.BytesIO(data))
    return SimpleNamespace(schema=schema, meta=dict(reader.metadata), records=list(reader))
