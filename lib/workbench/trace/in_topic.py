"""The messages of one row in the topic of its table."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import dataclass, field
from typing import Any, Optional

from ..base import LakeError, World
from ..base.added_columns import ADDED_COLUMNS
from ..flow import Capture
from ..landing import messages
from ..landing.formats import to_json_line
from ..topic import registry, topics, wire

OPERATIONS = {"r": "snapshot", "c": "insert", "u": "update", "d": "delete"}


@dataclass
class Change:
    """A change of a row: its message, landed file and lake columns.

    Attributes:
        change: number of the change, from 1.
        made_at: commit time in the source (UTC).
        op: snapshot, insert, update or delete.
        what: description, such as `birth_year 1906 → 1907`.
        lsn: log position in the source.
        transaction: transaction id in the source.
        partition: partition of the message.
        offset: offset of the message.
        in_topic_at: timestamp of the message.
        schema: schema id, "inline" for JSON.
        version: version of the schema.
        record: the decoded message.
        payload_bytes: bytes that identify the message in its landed file.
        landed: landed file, relative to the landing folder; "" if the change has no landed file.
        lake: {column of a lake table or view: value} (see `row_history.row`).
    """

    change: int
    made_at: Optional[dt.datetime]
    op: Optional[str]
    what: str
    lsn: Optional[int]
    transaction: Optional[int]
    partition: int
    offset: int
    in_topic_at: dt.datetime
    schema: str
    version: Optional[str]
    record: dict[str, Any]
    payload_bytes: bytes
    landed: str = ""
    lake: dict[str, str] = field(default_factory=dict)


def events(world: World, capture: Capture, topic: str, key: Any) -> list[Change]:
    """Read the messages of a key, without its tombstones, oldest first.

    Args:
        world: the world.
        capture: the captured table, whose key has one column.
        topic: its topic.
        key: the key, a number or a text.

    Raises:
        LakeError: there is no such message, or one cannot be decoded.
    """
    (key_column,) = capture.keys
    decode = registry.Decoder(world) if capture.format == "avro" else None  # None: Connect's JSON
    versions = registry.versions_by_schema_id(world, [f"{topic}-value"]) if decode else {}

    def has_key(raw: Optional[bytes]) -> bool:
        message_key = extract_key(decode, raw, key_column)
        # checked for None, because the text `None` may be a key
        return message_key is not None and str(message_key) == str(key)

    rows = topics.read(world, topic, key_filter=has_key)
    changes: list[Change] = []
    before: Optional[dict[str, Any]] = None
    for m in rows[rows["value"].notna()].itertuples():
        try:
            record, payload_bytes, schema = _decode_value(
                decode, m.value.encode() if isinstance(m.value, str) else m.value
            )
        except LakeError as e:
            raise LakeError(
                f"a message of the row cannot be read: {e.message}",
                location=f"{topic}, partition {m.partition}, offset {m.offset}",
                hint="the ingest has written a dead letter: hudi.dead_letters(spark, world, table) shows the "
                "reason",
            ) from e
        source_ms, op = record.get("__source_ts_ms"), record.get("__op")
        changes.append(
            Change(
                change=len(changes) + 1,
                made_at=source_ms and dt.datetime.fromtimestamp(source_ms / 1000, dt.timezone.utc),
                op=OPERATIONS.get(op or "", op),
                what=describe_change(before, record),
                lsn=record.get("__lsn"),
                transaction=record.get("__source_txId"),
                partition=m.partition,
                offset=m.offset,
                in_topic_at=m.timestamp.to_pydatetime(),
                schema=schema,
                version=versions.get(schema),
                record=record,
                payload_bytes=payload_bytes,
            )
        )
        before = record
    if not changes:
        raise LakeError(
            f"topic {topic} has no message of {key_column} {key}",
            location=f"{topics.offset_span(world, topic):,} messages",
            expected=f"a {key_column} of {capture.source}",
            hint="is the row in the source, and the connector RUNNING? (connect.status)",
        )
    return changes


def extract_key(decode: Optional[registry.Decoder], raw: Optional[bytes], name: str) -> Any:
    """Return the record key in a message's key; None if it has another format or an unknown schema.

    Args:
        decode: decoder of Avro; None for JSON.
        raw: the message's key.
        name: the record key field.
    """
    if raw is None:
        return None
    try:
        key = decode(raw).record if decode else json.loads(raw)
    except (LakeError, ValueError):
        return None
    if isinstance(key, dict):
        key = key.get("payload", key)
    return key.get(name) if isinstance(key, dict) else key


def _decode_value(
    decode: Optional[registry.Decoder], raw: bytes
) -> tuple[dict[str, Any], bytes, str]:
    """Return (record, bytes that identify the message in its landed file, schema id)."""
    if decode:
        record, schema_id, _ = decode(raw)
        return record, raw[wire.prefix_size(decode.world) :], schema_id
    try:
        _, payload, line = messages.JsonConverter(has_envelope=True).read(raw)
    except ValueError as e:
        raise LakeError(str(e)) from e
    if payload is None:
        raise LakeError("the payload is null")
    return payload, to_json_line(payload, line), "inline"


def describe_change(before: Optional[dict[str, Any]], record: dict[str, Any]) -> str:
    """Describe what a change did: `birth_year 1906 → 1907`.

    Args:
        before: the row before the change, or None.
        record: the change.
    """
    if record.get("__op") == "d":
        return "row deleted"
    if before is None or before.get("__op") == "d":
        return "row inserted" if record.get("__op") == "c" else "row read"
    changed = [
        f"{name} {_truncate(before.get(name))} → {_truncate(value)}"
        for name, value in record.items()
        if name not in ADDED_COLUMNS and value != before.get(name)
    ]
    return ", ".join(changed) or "nothing"


def _truncate(value: Any) -> str:
    text = "null" if value is None else str(value)
    return text if len(text) <= 40 else text[:39] + "…"
