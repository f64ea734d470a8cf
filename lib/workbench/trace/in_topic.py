"""The messages of one row in its topic, each taken apart: what a trace begins with.

Of Avro the schema's id is looked for in the message, as `registry.wire` says; one in a Kafka header is not found.
"""
from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

from ..base.errors import LakeError
from ..landing import json_lines
from ..topic import registry, topics, wire

if TYPE_CHECKING:
    import pandas

    from ..base.params import World
    from .model import Traced

OPS = {"r": "snapshot", "c": "insert", "u": "update", "d": "delete"}


def events(world: World, table: Traced, key: int) -> List[Dict[str, Any]]:
    """The messages of a key but its tombstones, taken apart: `record` is what the message says, `needle` the bytes by
    which its landed file is known."""
    reading = _Reading(world, table)
    found = topics.read(world, table.topic, only=lambda raw: raw is not None and reading.key(raw) == key)
    events: List[Dict[str, Any]] = []
    before: Optional[Dict[str, Any]] = None
    for m in found.itertuples():
        if m.value is None:
            continue
        value = m.value.encode("utf-8") if isinstance(m.value, str) else m.value
        record, needle, schema, version = reading.value(
            value, f"{table.topic}, partition {m.partition}, offset {m.offset}")
        events.append({
            "change": len(events) + 1, "made_at": _time(record.get("__source_ts_ms")),
            "op": OPS.get(record.get("__op"), record.get("__op")), "what": what(before, record),
            "lsn": record.get("__lsn"), "transaction": record.get("__source_txId", record.get("__txId")),
            "partition": m.partition, "offset": m.offset, "in_topic_at": m.timestamp.to_pydatetime(),
            "schema": schema, "version": version, "record": record, "needle": needle})
        before = record
    if not events:
        raise LakeError(f"topic {table.topic} has no message of {table.key} {key}",
                        where=f"{topics.count(world, table.topic):,} messages",
                        expected=f"a {table.key} of {table.source}",
                        next_step="is the row in the source, and the connector RUNNING? (connect.status)")
    return events


class _Reading:
    """Keys and values of one topic as dicts, Avro or Connect's JSON; each schema is asked for once."""

    def __init__(self, world: World, table: Traced):
        self.world, self.table, self.avro = world, table, table.sink.format == "avro"
        self._decode = registry.Decoder(world)
        self._versions: Optional[pandas.DataFrame] = None

    def key(self, raw: bytes) -> Any:
        """The key of a message, None where it is of another kind, or of a schema that the registry does not know."""
        try:
            whole = self._decode(raw).record if self.avro else json.loads(raw)
        except (LakeError, ValueError):
            return None
        whole = whole.get("payload", whole) if isinstance(whole, dict) else whole
        return whole.get(self.table.key) if isinstance(whole, dict) else whole

    def value(self, raw: bytes, where: str) -> Tuple[Dict[str, Any], bytes, Any, Any]:
        """(record, bytes by which the landed file is known, schema id, version of the schema)."""
        if not self.avro:
            payload, line, reason = json_lines.unwrap(raw.decode("utf-8", "replace"), True)
            if payload is None:
                raise _unreadable(reason, where)
            return payload, line.encode("utf-8"), "inline", None
        try:
            record, found, _ = self._decode(raw)
        except LakeError as e:
            raise _unreadable(e.what, where) from e
        return record, found.body, found.schema, self._version(found)

    def _version(self, found: wire.Framed) -> Optional[str]:
        if self._versions is None:
            versions = registry.artifacts(self.world)
            self._versions = versions[versions["artifact"] == f"{self.table.topic}-value"]
        column = {wire.GLOBAL: "global_id"}.get(found.kind, "content_id")
        same = self._versions[self._versions[column] == found.id]
        return None if same.empty else str(same["version"].iloc[0])


def _unreadable(reason: Any, where: str) -> LakeError:
    return LakeError(f"a message of the row cannot be read: {reason}", where=where,
                     next_step="the ingest has put it aside: hudi.dead_letters(spark, world, table) has the reason")


def what(before: Optional[Dict[str, Any]], record: Dict[str, Any]) -> str:
    """What a change did, as text: `birth_year 1906 → 1907`."""
    if record.get("__op") == "d":
        return "row deleted"
    if before is None or before.get("__op") == "d":
        return "row inserted" if record.get("__op") == "c" else "row read"
    own = [n for n in record if not n.startswith("__") and record[n] != before.get(n)]
    return ", ".join(f"{n} {_short(before.get(n))} → {_short(record[n])}" for n in own) or "nothing"


def _short(value: Any) -> str:
    text = "null" if value is None else str(value)
    return text if len(text) <= 40 else text[:39] + "…"


def _time(millis: Optional[int]) -> Optional[dt.datetime]:
    return None if millis is None else dt.datetime.fromtimestamp(millis / 1000, dt.timezone.utc)
