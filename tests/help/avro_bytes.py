"""Avro byte by byte, for tests that write what no serializer would."""

import io
from types import SimpleNamespace

import fastavro
from workbench.topic import avro


def number(n):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, "long", n)
    return out.getvalue()


def text(t):
    return number(len(t.encode())) + t.encode()


def record(name, **fields):
    return {
        "type": "record",
        "name": name,
        "namespace": "t",
        "fields": [{"name": n, "type": kind} for n, kind in fields.items()],
    }


def framed(id, body, size=8):
    return b"\0" + id.to_bytes(size, "big") + body


def opened(data):
    """A container file: its schema (JSON), its metadata, its records."""
    schema, reader = avro.schema_of(data), fastavro.reader(io.BytesIO(data))
    return SimpleNamespace(schema=schema, meta=dict(reader.metadata), records=list(reader))
