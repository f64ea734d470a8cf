"""New messages of a topic, and when they were committed, published and visible in the lake."""

from __future__ import annotations

import json
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Iterable, NamedTuple, Optional

import pandas as pd
from confluent_kafka import Consumer, Message

from ..base import LakeError, World
from ..hudi.changes import SourceProgress
from ..source.databases import SourceDatabase
from ..topic import dlq, registry, topics

WINDOW_S = 600.0  # freshness is that of ten minutes
MAX_SAMPLES = 20  # decoded messages of one observation; others are only counted
MAX_READ = 500  # messages that one observation reads, the newest
MAX_FIRST = 20_000  # of the first observation
POSITION_FIELDS = ("__source_file", "__source_pos")


class Fresh(NamedTuple):
    """When one message became visible: time of that in s since 1970, and the seconds until then.

    Attributes:
        visible: when the commit with the message was complete, in seconds since 1970.
        to_topic: seconds from the commit in the source to the message.
        to_lake: seconds from the message to the commit in the lake.
    """

    visible: float
    to_topic: float
    to_lake: float


@dataclass
class TopicReader:
    """What is known of a topic between observations.

    Attributes:
        ends: {partition: offset after the last observed message}.
        waiting: {(partition, offset): (commit in the source, message)} of sampled messages that are
            not in the lake, in seconds since 1970; 0 for an unknown commit.
        fresh: the samples of WINDOW_S that are in the lake.
        newest: the newest position of the source's log that a message had.
        grown: when the topic had a new message for the last time.
    """

    topic: str
    format: str
    db: SourceDatabase
    ends: dict[int, int] = field(default_factory=dict)
    waiting: dict[tuple[int, int], tuple[float, float]] = field(default_factory=dict)
    fresh: deque[Fresh] = field(default_factory=deque)
    newest: int = 0
    grown: float = field(default_factory=time.time)

    def read(
        self, world: World, consumer: Consumer, committed: dict[int, int]
    ) -> tuple[dict[int, tuple[int, int]], list[int]]:
        """Read the messages that are new since the last observation.

        Args:
            world: the world.
            consumer: see `topics.open_consumer`.
            committed: {partition: offset}, where the first observation begins.

        Returns:
            {partition: (first offset, end offset)}; and the positions of messages that an earlier
            observation has seen, or a later one.
        """
        offsets = topics.watermark_offsets(world, self.topic, consumer)
        ends = {partition: end for partition, (_, end) in offsets.items()}
        first, limit = (self.ends, MAX_READ) if self.ends else (committed, MAX_FIRST)
        start = {
            p: min(end, max(low, first.get(p, low), end - limit))
            for p, (low, end) in offsets.items()
        }
        if ends != self.ends:
            self.grown = time.time()
        messages = list(topics.consume(world, self.topic, start, ends, consumer))
        repeated, newest = [], self.newest
        # from the end, because that has the newest position
        for message in messages[:: -max(1, len(messages) // MAX_SAMPLES)]:
            committed_ms, position = self._decode(world, message)
            sent = message.timestamp()[1] / 1000
            key = (message.partition() or 0, message.offset() or 0)
            self.waiting[key] = (committed_ms / 1000, sent)
            newest = max(newest, position)
            if position and position <= self.newest:
                repeated.append(position)
        self.ends, self.newest = ends, newest
        return offsets, repeated

    def _decode(self, world: World, message: Message) -> tuple[int, int]:
        """Return when the source committed the change (ms since 1970), and its position; 0 if unknown.

        A tombstone, a snapshot's row, a message that cannot be decoded and a replayed one have neither.
        """
        value: Any = message.value()
        headers = dict(message.headers() or [])
        if value is None or dlq.REPLAYED_HEADER in headers:
            return 0, 0
        try:
            if self.format == "avro":
                record = registry.inspect_message(world, value)["record"]
            else:
                body = json.loads(value)
                record = body.get("payload", body)
        except (LakeError, ValueError):
            return 0, 0
        if record.get("__op") == "r":  # an incremental snapshot repeats rows on purpose
            return 0, 0
        return int(record.get("__source_ts_ms") or 0), self._position(record)

    def _position(self, record: dict[str, Any]) -> int:
        if record.get(POSITION_FIELDS[0]):
            file, offset = (record[name] for name in POSITION_FIELDS)
            return self.db.position_to_int(f"{file}:{offset}")
        return int(record.get("__lsn") or 0)

    def mark_visible(self, committed: dict[int, int], visible: float) -> None:
        """Note that all messages before these offsets are visible.

        Args:
            committed: {partition: offset of the next message to ingest} of a commit.
            visible: when the commit was complete, in seconds since 1970.
        """
        for key in [k for k in self.waiting if k[1] < committed.get(k[0], 0)]:
            changed, sent = self.waiting.pop(key)
            if changed:
                self.fresh.append(Fresh(visible, sent - changed, visible - sent))
        while self.fresh and self.fresh[0].visible < time.time() - WINDOW_S:
            self.fresh.popleft()

    def oldest_waiting(self) -> Optional[float]:
        """Return when the oldest sampled message that is not in the lake was published."""
        return min((sent for _, sent in self.waiting.values()), default=None)


def quantiles(fresh: Iterable[Fresh]) -> Optional[dict[str, float]]:
    """Return the freshness of samples: p50, p95, to_topic, to_lake (medians), in seconds."""
    frame = pd.DataFrame(fresh, columns=Fresh._fields)
    if frame.empty:
        return None
    total = frame["to_topic"] + frame["to_lake"]
    return {
        "p50": float(total.quantile(0.5)),
        "p95": float(total.quantile(0.95)),
        "to_topic": float(frame["to_topic"].median()),
        "to_lake": float(frame["to_lake"].median()),
    }


def offsets_of(progress: dict[str, SourceProgress], source: str) -> dict[int, int]:
    """Return {partition: offset of the next message} of a source in a commit's progress."""
    offsets = progress.get(source, {}).get("offsets", {})
    return {int(partition): int(offset) for partition, offset in offsets.items()}
