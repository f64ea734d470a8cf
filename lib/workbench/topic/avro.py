"""Avro without Spark, by fastavro: one record's bytes, and the object container file around many (Apache Avro
specification 1.11.1, "Object Container Files").

For the landing, which must know that a message is exactly one record before it puts it between others, and for looking
at single messages. It travels into Spark tasks by value. What is malformed raises ValueError.
"""
from __future__ import annotations

import io
import json
from typing import Any, Callable, Dict, Sequence

MAGIC = b"Obj\x01"
DIGITS = 131_072 + 16_383  # the most that PostgreSQL's numeric has, before and after the point
Reader = Callable[[bytes], Any]


# --- one record ------------------------------------------------------------------------------------------------------

def reader(avsc: Any, *, plain: bool = False) -> Reader:
    """What reads the value that some bytes are, no byte less or more; it raises ValueError where they are not one.

    Args:
        avsc: the schema. plain: do not turn numbers and bytes into dates, times and decimals: Python has not all of
            those that Avro has (its years end at 9999).
    Raises: ValueError: not an Avro schema.
    """
    import fastavro

    try:
        parsed = fastavro.parse_schema(rebuilt(avsc, _plain if plain else _all_digits))
    except Exception as e:  # noqa: BLE001 - it has errors of many classes
        raise ValueError(f"not an Avro schema: {type(e).__name__}: {e}") from None

    def read(data: bytes) -> Any:
        stream = io.BytesIO(data)
        try:
            value = fastavro.schemaless_reader(stream, parsed, None)
        except (Exception, RecursionError) as e:  # noqa: BLE001 - as many as there are ways to be malformed
            raise ValueError(f"{type(e).__name__}: {e}") from None
        if stream.tell() != len(data):
            raise ValueError(f"{len(data) - stream.tell()} bytes are left over")
        return value

    return read


def rebuilt(avsc: Any, change: Callable[[Dict[str, Any]], Dict[str, Any]]) -> Any:
    """A copy of a schema with each of its parts changed by `change`, the innermost ones first."""
    if isinstance(avsc, list):
        return [rebuilt(each, change) for each in avsc]
    if not isinstance(avsc, dict):
        return avsc
    return change({k: rebuilt(v, change) if k in ("type", "items", "values", "fields") else v for k, v in avsc.items()})


def _all_digits(found: Dict[str, Any]) -> Dict[str, Any]:
    """Decimals of any number of digits: one of more than its schema says would be rounded by fastavro."""
    if found.get("logicalType") == "decimal" and found.get("type") == "bytes" and "precision" in found:
        found["precision"] = max(found["precision"], DIGITS)
    return found


def _plain(found: Dict[str, Any]) -> Dict[str, Any]:
    return {k: v for k, v in found.items() if k != "logicalType"}


# --- a file of records -----------------------------------------------------------------------------------------------

def container(avsc: Any, values: Sequence[Any], sync: bytes, **more: str) -> bytes:
    """A file of records of one schema, not compressed.

    Args:
        avsc: the schema. values: as `reader(…, plain=True)` gives them. sync: 16 bytes that end each block; the same
            give the same file. more: further metadata of the file.
    """
    import fastavro

    out = io.BytesIO()
    fastavro.writer(out, fastavro.parse_schema(avsc), values, sync_marker=sync, metadata=more)
    return out.getvalue()


def schema_of(data: bytes) -> str:
    """JSON of the schema that a container file was written with; the file is gone through to its end.

    Raises: ValueError: it is none, it is cut off, or it has no schema.
    """
    import fastavro

    if data[:4] != MAGIC:
        raise ValueError("it does not begin as an Avro file does")
    try:
        blocks = fastavro.block_reader(io.BytesIO(data))
        for _ in blocks:
            pass
    except Exception as e:  # noqa: BLE001 - see reader
        raise ValueError(f"{type(e).__name__}: {e}") from None
    text = blocks.metadata["avro.schema"]
    if not isinstance(json.loads(text), (dict, list, str)):
        raise ValueError("its schema is none")
    return text
