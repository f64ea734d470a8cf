"""New messages of a topic: when they were committed in the source, and when they were published."""

import json
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from confluent_kafka import Message

from ..base import WorkbenchError, World
from ..topic import dlq, registry, topics

MAX_SAMPLES = 20  # decoded messages of one observation; others are only counted
MAX_READ = 5_000  # messages that one observation reads, the newest
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
        ends: {partition: offset after the last observed message}.
    """

    topic: str
    format: str
    ends: Offsets = field(default_factory=dict)

    def read(self, world: World, first: Offsets) -> tuple[dict[int, tuple[int, int]], list[Sample]]:
        """Read the messages that are new since the last observation, at most the newest MAX_READ.

        Args:
            world: the world.
            first: {partition: offset}, where the first observation begins.

        Returns:
            {partition: (first offset, end offset)}, and a sample of the messages.

        Raises:
            LakeError: the topic does not exist.
            StackError: Kafka does not respond.
        """
        offsets = topics.watermark_offsets(world, self.topic)
        ends = {partition: end for partition, (_, end) in offsets.items()}
        is_new_topic = any(ends.get(partition, 0) < end for partition, end in self.ends.items())
        begin = first if is_new_topic or not self.ends else self.ends
        start = {
            p: min(end, max(low, begin.get(p, low), end - MAX_READ))
            for p, (low, end) in offsets.items()
        }
        messages = list(topics.consume(world, self.topic, start, ends))
        # a decoder for each observation: ids begin anew in a registry that was reset
        decode = registry.Decoder(world)
        # from the end, because the newest messages are the ones that wait
        step = max(1, len(messages) // MAX_SAMPLES)
        samples = [
            Sample(
                message.partition() or 0,
                message.offset() or 0,
                self.commit_time(decode, message),
                message.timestamp()[1] / 1000,
            )
            for message in messages[::-step]
        ]
        self.ends = ends
        return offsets, samples

    def commit_time(self, decode: registry.Decoder, message: Message) -> float:
        """Return when the source committed the change of a message, in seconds since 1970.

        The result is 0 for a tombstone, a row of a snapshot, a replayed message, and one that cannot be decoded.
        """
        value: Any = message.value()
        if value is None or dlq.REPLAYED_HEADER in dict(message.headers() or []):
            return 0.0
        try:
            if self.format == "avro":
                record = decode(value).record
            else:
                body = json.loads(value)
                record = body.get("payload", body)
            is_of_snapshot = record.get("__op") == "r"
            return 0.0 if is_of_snapshot else int(record.get("__source_ts_ms") or 0) / 1000
        except (WorkbenchError, ValueError, TypeError, AttributeError, KeyError):
            return 0.0
