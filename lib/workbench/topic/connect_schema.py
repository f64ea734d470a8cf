"""Connect's schemas, as its JsonConverter writes them: {"type": "struct", "fields": [{"field": …,
"type": …, …}, …], "optional": …, "name": …}. A name may give a type another meaning, such as those
below.

From Avro they are made as the AvroConverters do it (AvroData.toConnectSchema). It travels into
Spark tasks by value.
"""

from __future__ import annotations

from typing import Any

from .avro import TYPE_MAPPINGS

LOGICAL_PREFIX = "org.apache.kafka.connect.data."
DECIMAL, DATE, TIME, TIMESTAMP = (
    LOGICAL_PREFIX + name for name in ("Decimal", "Date", "Time", "Timestamp")
)
# the parameter of a Decimal that AvroConverters write, where it is known
PRECISION_PARAMETER = "connect.decimal.precision"
CONNECT_TYPES, LOGICAL_NAMES = TYPE_MAPPINGS["connect"], TYPE_MAPPINGS["connect names"]


def from_avro(avsc: Any) -> dict[str, Any]:
    """Return Connect's schema of values that are written with an Avro schema, which `avro.reader`
    takes.

    Raises: ValueError: a union of several types, or a record within itself, which are not taken
        over.
    """
    import fastavro

    return _connect_type(
        fastavro.schema.expand_schema(avsc), "the record"
    )  # a name that comes again is what it names


def _connect_type(avsc: Any, where: str) -> dict[str, Any]:
    if isinstance(avsc, list):
        branches = [b for b in avsc if b != "null"]
        if len(branches) != 1:
            raise ValueError(f"{where} is a union of {len(branches)} types")
        return {**_connect_type(branches[0], where), "optional": "null" in avsc}
    if not isinstance(avsc, dict):
        avsc = {"type": avsc}
    kind, logical = avsc["type"], avsc.get("logicalType")
    name = avsc.get("connect.name") or LOGICAL_NAMES.get(f"{kind} {logical}")
    made: dict[str, Any] = {
        "type": avsc.get("connect.type") or CONNECT_TYPES.get(kind),
        "optional": False,
    }
    if kind == "record":
        made["type"] = "struct"
        made["fields"] = [
            {**_connect_type(f["type"], f"{where}.{f['name']}"), "field": f["name"]}
            for f in avsc["fields"]
        ]
        name = name or avsc["name"]
    elif kind == "array":
        made.update(type="array", items=_connect_type(avsc["items"], f"{where}[]"))
    elif kind not in CONNECT_TYPES:
        raise ValueError(f"{where} is of Avro's type {kind}")
    if name == DECIMAL and logical == "decimal":
        made["parameters"] = {
            "scale": str(avsc.get("scale", 0)),
            PRECISION_PARAMETER: str(avsc["precision"]),
        }
    return {**made, "name": name} if name else made
