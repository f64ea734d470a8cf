"""Avro without Spark: one record's bytes, and the object container file around many (Apache Avro specification 1.11.1,
"Binary encoding" and "Object Container Files").

For the landing, which must know that a message is exactly one record before it puts it between others, and for looking
at single messages. It travels into Spark tasks by value and imports nothing but the standard library. What is malformed
raises ValueError.
"""
from __future__ import annotations

import datetime as dt
import json
import struct
import zlib
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Callable, Dict, Iterator, List, Sequence, Tuple

Reader = Callable[[bytes, int], Tuple[Any, int]]  # bytes and a place in them → the value, and the place after it
MAGIC = b"Obj\x01"
BLOCK = 64_000  # Avro's DEFAULT_SYNC_INTERVAL: a block ends after so many bytes
EPOCH = dt.datetime(1970, 1, 1)


# --- one record ------------------------------------------------------------------------------------------------------

def one(read: Reader, data: bytes) -> Any:
    """The value that the bytes are, no byte less or more. Raises ValueError where they are not one."""
    try:
        value, at = read(data, 0)
    except (IndexError, struct.error):
        raise ValueError("the bytes end too early") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if at != len(data):
        raise ValueError(f"{len(data) - at} bytes are left over")
    return value


def reader(avsc: Any) -> Reader:
    """What reads values of a schema. Dates, timestamps and decimals come as Python's where the schema has them as
    Avro's logical types. Raises ValueError: not an Avro schema."""
    return _reader(avsc, "", {})


def _reader(avsc: Any, space: str, named: Dict[str, Any]) -> Reader:
    if isinstance(avsc, list):
        return _union([_reader(branch, space, named) for branch in avsc])
    if isinstance(avsc, str):
        return _plain_or_named(avsc, space, named)
    if not isinstance(avsc, dict):
        raise ValueError(f"{avsc!r} is not an Avro schema")
    kind = avsc.get("type")
    if kind in ("record", "enum", "fixed"):
        return _named(avsc, kind, space, named)
    if kind == "array":
        return _items(_reader(avsc["items"], space, named), list)
    if kind == "map":
        value = _reader(avsc["values"], space, named)

        def pair(data: bytes, at: int) -> Tuple[Any, int]:
            key, at = _string(data, at)
            found, at = value(data, at)
            return (key, found), at

        return _items(pair, dict)
    return _logical(avsc, _reader(kind, space, named))


def _plain_or_named(name: str, space: str, named: Dict[str, Any]) -> Reader:
    if name in PLAIN:
        return PLAIN[name]
    full = name if "." in name or not space else f"{space}.{name}"
    if full not in named:
        raise ValueError(f"{name!r} is no type of Avro")
    return lambda data, at: named[full](data, at)  # looked up when it is needed: a record may hold one of its own kind


def _named(avsc: Dict[str, Any], kind: str, space: str, named: Dict[str, Any]) -> Reader:
    space = avsc["name"].rpartition(".")[0] if "." in avsc["name"] else avsc.get("namespace", space)
    full = avsc["name"] if "." in avsc["name"] or not space else f"{space}.{avsc['name']}"
    named[full] = None
    if kind == "record":
        fields = [(f["name"], _reader(f["type"], space, named)) for f in avsc["fields"]]

        def made(data: bytes, at: int) -> Tuple[Any, int]:
            row = {}
            for name, read in fields:
                row[name], at = read(data, at)
            return row, at
    elif kind == "enum":
        symbols = avsc["symbols"]

        def made(data: bytes, at: int) -> Tuple[Any, int]:
            n, at = _long(data, at)
            if not 0 <= n < len(symbols):
                raise ValueError(f"an enum has no symbol {n}")
            return symbols[n], at
    else:
        size = avsc["size"]

        def made(data: bytes, at: int) -> Tuple[Any, int]:
            return _cut(data, at, size)
    named[full] = made
    return _logical(avsc, made)


def _logical(avsc: Dict[str, Any], read: Reader) -> Reader:
    mark = avsc.get("logicalType")
    if mark == "date":
        turn: Callable[[Any], Any] = _date
    elif mark in ("timestamp-millis", "timestamp-micros"):
        unit = {"timestamp-millis": "milliseconds", "timestamp-micros": "microseconds"}[mark]

        def turn(n: Any) -> Any:
            try:
                return EPOCH + dt.timedelta(**{unit: n})
            except OverflowError:  # Python's years end at 9999
                return n
    elif mark == "decimal":
        scale = avsc.get("scale", 0)

        def turn(raw: Any) -> Any:
            return Decimal(int.from_bytes(raw, "big", signed=True)).scaleb(-scale)
    else:
        return read

    def made(data: bytes, at: int) -> Tuple[Any, int]:
        value, at = read(data, at)
        return turn(value), at

    return made


def _date(days: int) -> Any:
    try:
        return (EPOCH + dt.timedelta(days=days)).date()
    except OverflowError:
        return days


def _union(branches: List[Reader]) -> Reader:
    def made(data: bytes, at: int) -> Tuple[Any, int]:
        n, at = _long(data, at)
        if not 0 <= n < len(branches):
            raise ValueError(f"a union has no branch {n}")
        return branches[n](data, at)

    return made


def _items(read: Reader, kind: Any) -> Reader:
    """Arrays and maps: blocks of a count and so many items; a negative count is followed by the size in bytes."""

    def made(data: bytes, at: int) -> Tuple[Any, int]:
        found: list = []
        while True:
            n, at = _long(data, at)
            if n < 0:
                n = -n
                _, at = _long(data, at)
            if n > len(data):
                raise ValueError(f"{n} items in {len(data)} bytes")
            if n == 0:
                return kind(found), at
            for _ in range(n):
                item, at = read(data, at)
                found.append(item)

    return made


def _long(data: bytes, at: int) -> Tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than ten bytes")


def _cut(data: bytes, at: int, size: int) -> Tuple[bytes, int]:
    if size < 0 or at + size > len(data):
        raise ValueError(f"{size} bytes of {len(data) - at}")
    return data[at:at + size], at + size


def _bytes(data: bytes, at: int) -> Tuple[bytes, int]:
    size, at = _long(data, at)
    return _cut(data, at, size)


def _string(data: bytes, at: int) -> Tuple[str, int]:
    raw, at = _bytes(data, at)
    return raw.decode("utf-8"), at  # UnicodeDecodeError is a ValueError


def _boolean(data: bytes, at: int) -> Tuple[bool, int]:
    if data[at] > 1:
        raise ValueError(f"a boolean is {data[at]}")
    return data[at] == 1, at + 1


def _packed(form: str, size: int) -> Reader:
    return lambda data, at: (struct.unpack_from(form, data, at)[0], at + size)


PLAIN: Dict[str, Reader] = {
    "null": lambda data, at: (None, at), "boolean": _boolean, "int": _long, "long": _long, "bytes": _bytes,
    "string": _string, "float": _packed("<f", 4), "double": _packed("<d", 8)}


# --- a file of records -----------------------------------------------------------------------------------------------

def number(n: int) -> bytes:
    """A whole number as Avro has it: zigzag, then seven bits a byte."""
    n, out = (n << 1) ^ (n >> 63), bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def container(avsc: str, bodies: Sequence[bytes], sync: bytes, **more: str) -> bytes:
    """A file of records of one schema, not compressed.

    Args:
        avsc: the schema's JSON. bodies: the records' bytes. sync: 16 bytes that end each block; the same give the same
            file. more: further metadata of the file.
    """
    known = {"avro.schema": avsc, "avro.codec": "null", **more}
    out = [MAGIC, number(len(known))]
    for name, value in known.items():
        for text in (name.encode("utf-8"), value.encode("utf-8")):
            out += [number(len(text)), text]
    out += [number(0), sync]
    block: List[bytes] = []
    size = 0
    for body in bodies:
        block.append(body)
        size += len(body)
        if size >= BLOCK:
            out += [number(len(block)), number(size), *block, sync]
            block, size = [], 0
    if block:
        out += [number(len(block)), number(size), *block, sync]
    return b"".join(out)


@dataclass(frozen=True)
class File:
    """A container file: its metadata, and its blocks as (records, bytes)."""

    meta: Dict[str, bytes]
    blocks: List[Tuple[int, bytes]]

    @property
    def schema(self) -> str:
        """The JSON of the schema it was written with."""
        return self.meta["avro.schema"].decode("utf-8")

    def records(self) -> Iterator[Any]:
        """Its records. Raises ValueError: one is malformed, or the file is compressed otherwise than by deflate."""
        codec = self.meta.get("avro.codec", b"null")
        if codec not in (b"null", b"deflate"):
            raise ValueError(f"the codec {codec.decode('utf-8', 'replace')} cannot be read here")
        read = reader(json.loads(self.schema))
        for count, block in self.blocks:
            data, at = (zlib.decompress(block, -15) if codec == b"deflate" else block), 0
            for _ in range(count):
                record, at = read(data, at)
                yield record


def opened(data: bytes) -> File:
    """Take a container file apart. Raises ValueError: it is none, it is cut off, or it has no schema."""
    if data[:4] != MAGIC:
        raise ValueError("it does not begin as an Avro file does")
    try:
        meta, at = _items(_entry, dict)(data, 4)
        sync, at = _cut(data, at, 16)
        blocks = []
        while at < len(data):
            count, at = _long(data, at)
            size, at = _long(data, at)
            if at + size + 16 > len(data):
                raise ValueError("it is cut off")
            block, at = _cut(data, at, size)
            if data[at:at + 16] != sync or count < 0:
                raise ValueError("a block does not end as the others do")
            blocks.append((count, block))
            at += 16
        if not isinstance(json.loads(meta["avro.schema"]), (dict, list, str)):
            raise ValueError("its schema is none")
    except IndexError:
        raise ValueError("it is cut off") from None
    except KeyError:
        raise ValueError("it holds no schema") from None
    return File(meta, blocks)


def _entry(data: bytes, at: int) -> Tuple[Any, int]:
    key, at = _string(data, at)
    value, at = _bytes(data, at)
    return (key, value), at
