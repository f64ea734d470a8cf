"""What is traced, and the messages of one row in its topic, each taken apart: what a trace begins
with.
"""

import datetime as dt
import json
from dataclasses import dataclass
from typing import Any, Optional

from ..base import LakeError, World
from ..hudi import Table
from ..landing import messages
from ..landing.formats import JsonLines
from ..topic import registry, topics

OPERATIONS = {"r": "snapshot", "c": "insert", "u": "update", "d": "delete"}


@dataclass(frozen=True)
class TracedTable:
    """A source table whose rows can be traced. sink: what its landing does, None where nothing
    lands them; tables: those of the lake it goes into; format: of its messages, "json" or
    "avro".
    """

    name: str
    source: str  # schema.table
    key: str
    topic: str
    sink: Any
    tables: tuple[Table, ...]
    format: str = "json"


def events(world: World, table: TracedTable, key: Any) -> list[dict[str, Any]]:
    """The messages of a key but its tombstones, taken apart: `record` is what the message says,
    `needle` the bytes by which its landed file is known.
    """
    decode = registry.Decoder(world) if table.format == "avro" else None  # or Connect's JSON
    versions = registry.versions_by_schema_id(world, [f"{table.topic}-value"]) if decode else {}

    def asked_for(raw: Optional[bytes]) -> bool:
        said = extract_key(decode, raw, table.key)
        return said is not None and str(said) == str(key)  # a text `None` may be a key

    found = topics.read(world, table.topic, key_filter=asked_for)
    events: list[dict[str, Any]] = []
    before: Optional[dict[str, Any]] = None
    for m in found[found["value"].notna()].itertuples():
        try:
            record, needle, schema = _decode_value(
                decode, m.value.encode() if isinstance(m.value, str) else m.value
            )
        except LakeError as e:
            raise LakeError(
                f"a message of the row cannot be read: {e.message}",
                location=f"{table.topic}, partition {m.partition}, offset {m.offset}",
                hint="the ingest has put it aside: hudi.dead_letters(spark, world, table) has the "
                "reason",
            ) from e
        made = record.get("__source_ts_ms")
        events.append(
            {
                "change": len(events) + 1,
                "made_at": made and dt.datetime.fromtimestamp(made / 1000, dt.timezone.utc),
                "op": OPERATIONS.get(record.get("__op"), record.get("__op")),
                "what": describe_change(before, record),
                "lsn": record.get("__lsn"),
                "transaction": record.get("__source_txId"),
                "partition": m.partition,
                "offset": m.offset,
                "in_topic_at": m.timestamp.to_pydatetime(),
                "schema": schema,
                "version": versions.get(schema),
                "record": record,
                "needle": needle,
            }
        )
        before = record
    if not events:
        raise LakeError(
            f"topic {table.topic} has no message of {table.key} {key}",
            location=f"{topics.offset_span(world, table.topic):,} messages",
            expected=f"a {table.key} of {table.source}",
            hint="is the row in the source, and the connector RUNNING? (connect.status)",
        )
    return events


def extract_key(decode: Optional[registry.Decoder], raw: Optional[bytes], name: str) -> Any:
    """The key that a message's key says, None where it is of another kind, or of a schema that
    nobody knows.
    """
    try:
        found = None if raw is None else decode(raw).record if decode else json.loads(raw)
    except (LakeError, ValueError):
        return None
    found = found.get("payload", found) if isinstance(found, dict) else found
    return found.get(name) if isinstance(found, dict) else found


def _decode_value(
    decode: Optional[registry.Decoder], raw: bytes
) -> tuple[dict[str, Any], bytes, str]:
    """(record, bytes by which the landed file is known, schema id)."""
    if decode:
        record, found, _ = decode(raw)
        return record, found.body, found.schema
    try:
        _, payload, line = messages.JsonConverter(has_envelope=True).read(raw)
    except ValueError as e:
        raise LakeError(str(e)) from e
    if payload is None:
        raise LakeError("it holds nothing")
    return payload, JsonLines().encoder_for(None)(payload, line), "inline"


def describe_change(before: Optional[dict[str, Any]], record: dict[str, Any]) -> str:
    """What a change did, as text: `birth_year 1906 → 1907`."""
    if record.get("__op") == "d":
        return "row deleted"
    if before is None or before.get("__op") == "d":
        return "row inserted" if record.get("__op") == "c" else "row read"
    own = [n for n in record if not n.startswith("__") and record[n] != before.get(n)]
    return (
        ", ".join(f"{n} {_truncate(before.get(n))} → {_truncate(record[n])}" for n in own)
        or "nothing"
    )


def _truncate(value: Any) -> str:
    text = "null" if value is None else str(value)
    return text if len(text) <= 40 else text[:39] + "…"
