"""Avro byte by byte, for tests that write what no serializer would."""
import io

import fastavro


def number(n):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, "long", n)
    return out.getvalue()


def text(t):
    return number(len(t.encode())) + t.encode()


def record(name, **fields):
    return {"type": "record", "name": name, "namespace": "t", "fields": [
        {"name": n, "type": kind} for n, kind in fields.items()]}


def framed(id, body, size=8):
    return b"\0" + id.to_bytes(size, "big") + body
