"""New messages of a topic: when they were committed in the source and published, and which are repeated."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from confluent_kafka import Consumer, Message

from ..base import WorkbenchError, World
from ..source.databases import SourceDatabase
from ..topic import dlq, registry, topics

MAX_SAMPLES = 20  # decoded messages of one observation; others are only counted
MAX_READ = 500  # messages that one observation reads, the newest
MAX_FIRST = 20_000  # of the first observation
MAX_KNOWN = 2_000  # changes that are recognized when they are published again
POSITION_FIELDS = ("__source_file", "__source_pos")
Offsets = dict[int, int]  # {partition: offset}


class Sample(NamedTuple):
    """A message of a topic.

    Attributes:
        partition: its partition.
        offset: its offset.
        committed: when the source committed the change, in seconds since 1970; 0 if unknown.
        published: when the message was published, in seconds since 1970.
    """

    partition: int
    offset: int
    committed: float
    published: float


@dataclass
class TopicReader:
    """What is known of a topic between observations.

    Attributes:
        topic: its name.
        format: "avro" or "json".
        db: the kind of the source database.
        ends: {partition: offset after the last observed message}.
    """

    topic: str
    format: str
    db: SourceDatabase
    ends: Offsets = field(default_factory=dict)
    _known: dict[tuple[Any, int], None] = field(default_factory=dict)

    def read(
        self, world: World, consumer: Consumer, first: Offsets
    ) -> tuple[dict[int, tuple[int, int]], list[Sample], int]:
        """Read the messages that are new since the last observation, at most the newest MAX_READ.

        Args:
            world: the world.
            consumer: see `topics.open_consumer`.
            first: {partition: offset}, where the first observation begins.

        Returns:
            {partition: (first offset, end offset)}; a sample of the messages; and how many messages
            of the sample repeat a change that was published before.
        """
        offsets = topics.watermark_offsets(world, self.topic, consumer)
        ends = {partition: end for partition, (_, end) in offsets.items()}
        if any(ends.get(partition, 0) < end for partition, end in self.ends.items()):
            self.ends, self._known = {}, {}  # the topic was made anew
        begin, limit = (self.ends, MAX_READ) if self.ends else (first, MAX_FIRST)
        start = {
            p: min(end, max(low, begin.get(p, low), end - limit))
            for p, (low, end) in offsets.items()
        }
        messages = list(topics.consume(world, self.topic, start, ends, consumer))
        # a decoder for each observation: ids begin anew in a registry that was reset
        samples, repeated, decode = [], 0, registry.Decoder(world)
        # from the end, because the newest messages are the ones that wait
        for message in messages[:: -max(1, len(messages) // MAX_SAMPLES)]:
            committed_ms, position = self._decode(decode, message)
            published = message.timestamp()[1] / 1000
            place = (message.partition() or 0, message.offset() or 0)
            samples.append(Sample(*place, committed_ms / 1000, published))
            change = (message.key(), position)
            repeated += position > 0 and change in self._known
            self._known[change] = None
        self._known = dict(list(self._known.items())[-MAX_KNOWN:])
        self.ends = ends
        return offsets, samples, repeated

    def _decode(self, decode: registry.Decoder, message: Message) -> tuple[int, int]:
        """Return when the source committed the change (ms since 1970), and its position; 0 if unknown.

        A tombstone, a snapshot's row, a message that cannot be decoded and a replayed one have neither.
        """
        value: Any = message.value()
        if value is None or dlq.REPLAYED_HEADER in dict(message.headers() or []):
            return 0, 0
        try:
            if self.format == "avro":
                record = decode(value).record
            else:
                body = json.loads(value)
                record = body.get("payload", body)
            if record.get("__op") == "r":  # an incremental snapshot repeats rows on purpose
                return 0, 0
            return int(record.get("__source_ts_ms") or 0), self._position(record)
        except (WorkbenchError, ValueError, TypeError, AttributeError, KeyError):
            return 0, 0

    def _position(self, record: dict[str, Any]) -> int:
        if record.get(POSITION_FIELDS[0]):
            file, offset = (record[name] for name in POSITION_FIELDS)
            return self.db.position_to_int(f"{file}:{offset}")
        return int(record.get("__lsn") or 0)
