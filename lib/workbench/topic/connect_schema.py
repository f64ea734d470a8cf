"""Connect's schemas, as its JsonConverter writes them: {"type": "struct", "fields": [{"field": …,
"type": …, …}, …], "optional": …, "name": …}. A name may give a type another meaning, such as those
below.

From Avro they are made as the AvroConverters do it (AvroData.toConnectSchema). It travels into
Spark tasks by value.
"""

from __future__ import annotations

from typing import Any

from .avro import TYPES

LOGICAL = "org.apache.kafka.connect.data."
DECIMAL, DATE, TIME, TIMESTAMP = (
    LOGICAL + name for name in ("Decimal", "Date", "Time", "Timestamp")
)
# the parameter of a Decimal that AvroConverters write, where it is known
PRECISION = "connect.decimal.precision"
PLAIN, NAMED = TYPES["connect"], TYPES["connect names"]


def from_avro(avsc: Any) -> dict[str, Any]:
    """Return Connect's schema of values that are written with an Avro schema, which `avro.reader`
    takes.

    Raises: ValueError: a union of several types, or a record within itself, which are not taken
        over.
    """
    import fastavro

    return _connect(
        fastavro.schema.expand_schema(avsc), "the record"
    )  # a name that comes again is what it names


def _connect(avsc: Any, where: str) -> dict[str, Any]:
    if isinstance(avsc, list):
        branches = [b for b in avsc if b != "null"]
        if len(branches) != 1:
            raise ValueError(f"{where} is a union of {len(branches)} types")
        return {**_connect(branches[0], where), "optional": "null" in avsc}
    if not isinstance(avsc, dict):
        avsc = {"type": avsc}
    kind, logical = avsc["type"], avsc.get("logicalType")
    name = avsc.get("connect.name") or NAMED.get(f"{kind} {logical}")
    made: dict[str, Any] = {"type": avsc.get("connect.type") or PLAIN.get(kind), "optional": False}
    if kind == "record":
        made["type"] = "struct"
        made["fields"] = [
            {**_connect(f["type"], f"{where}.{f['name']}"), "field": f["name"]}
            for f in avsc["fields"]
        ]
        name = name or avsc["name"]
    elif kind == "array":
        made.update(type="array", items=_connect(avsc["items"], f"{where}[]"))
    elif kind not in PLAIN:
        raise ValueError(f"{where} is of Avro's type {kind}")
    if name == DECIMAL and logical == "decimal":
        made["parameters"] = {"scale": str(avsc.get("scale", 0)), PRECISION: str(avsc["precision"])}
    return {**made, "name": name} if name else made
