"""What is new in a source of changes: messages of a topic, or landed files.

A reader's `next(mine, number)` gives the next `Batch`, or None when there is nothing new. `mine` is how far the table's
last commit says that the source has been read, and `Batch.reached` what the next commit is to say.
"""
from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Dict, FrozenSet, List, Optional, Tuple, Union

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ..base import files
from ..base.errors import LakeError
from ..base.params import World
from ..landing.job import landed_topic_id
from ..topic import topics, wire
from . import decode, decode_landed
from .sources import Landed, Source, Topic, is_scratch, reading_order
from .tables import Table, state

# A few messages are fetched by this process itself: Spark's Kafka reader takes half a second to start.
FEW, FEW_BYTES = 2_000, 16 << 20


@dataclass(frozen=True)
class Batch:
    """Changes as they came: columns `key`, `text` (strings), `topic`, `partition`, `offset`, `file`; of an Avro topic
    `value`, `schema` and `body` instead of `text` (see wire.framed_in_spark).

    few: the rows travel with the query, so asking them twice costs no job. schemas: those that Avro messages name; None
    for JSON. files: of landed Avro, in place of `raw`.
    """

    raw: Optional[DataFrame]
    reached: Dict[str, Any]
    few: bool = False
    schemas: Optional[FrozenSet[str]] = None
    files: Optional[decode_landed.Files] = None


def reader(spark: SparkSession, world: World, source: Source, table: Table, most: int) -> Union[_Topic, _Landed]:
    """The reader of a source for a table; `most` messages or files in one batch."""
    if isinstance(source, Topic):
        return _Topic(spark, world, source, most)
    if isinstance(source, Landed):
        return _Landed(spark, world, source, table, most)
    raise LakeError(f"a source cannot be {source!r}", where="hudi.ingest", expected="Topic(name) or Landed(prefix)")


class _Topic:
    """Reads a topic by offsets. Holds its two Kafka clients until `close()`."""

    def __init__(self, spark: SparkSession, world: World, source: Topic, most: int):
        self.spark, self.world, self.name, self.most = spark, world, source.name, most
        self.avro = source.format == "avro"
        self._admin = AdminClient(topics.settings(world))
        self._consumer = topics.consumer(world)

    def next(self, mine: Dict[str, Any], number: int) -> Optional[Batch]:
        bounds = self._bounds()
        now = topics.topic_id(self.world, self.name, self._admin)
        if mine.get("topic_id", now) != now:
            raise LakeError(
                "the topic was deleted and made anew: what has been read of the old one says nothing about the new one",
                where=f"{self.name}, id {now}", expected=f"id {mine['topic_id']}",
                next_step="start clean with hudi.drop, or read it from its beginning with hudi.ingest(…, replay=True)")
        start, stop, left = {}, {}, self.most
        for partition, (begin, end) in sorted(bounds.items()):
            at = mine.get("offsets", {}).get(str(partition), begin)
            if at < begin or at > end:
                raise LakeError(
                    f"the topic holds offsets {begin} to {end}, and {at} is the next to be read",
                    where=f"{self.name}, partition {partition}",
                    next_step="messages expired unread. Start clean with hudi.drop, or read it from its beginning "
                              "with hudi.ingest(…, replay=True)")
            start[partition], stop[partition] = at, min(end, at + left)
            left -= stop[partition] - at
        if start == stop:
            return None
        few = self.most - left <= FEW
        if few:
            rows, stop = self._fetch(start, stop)
            messages = self.spark.createDataFrame(rows, wire.MESSAGES)
        else:
            messages = self._spark_reads(start, stop)
        reached = {"offsets": _named(stop), "topic_id": now}
        if not self.avro:  # the bytes are taken for text; decode.rows finds those that are not UTF-8
            texts = (F.col(name).cast("string").alias(to) for name, to in (("key", "key"), ("value", "text")))
            return Batch(messages.select(*texts, *decode.ORIGIN), reached, few)
        raw = wire.framed_in_spark(messages, self.world)
        if few:  # told by this process: a question to Spark takes longer
            named = (wire.framed(self.world, value) for _, value, *_ in rows if value)
            found = [f.schema for f in named if f]
        else:
            found = [r["schema"] for r in raw.select("schema").distinct().collect() if r["schema"]]
        return Batch(raw, reached, few, schemas=frozenset(found))

    def close(self) -> None:
        self._consumer.close()

    def _bounds(self) -> Dict[int, Tuple[int, int]]:
        """{partition: (first offset there is, offset after the last)}."""
        try:
            topic = self._consumer.list_topics(self.name, timeout=10).topics[self.name]
            if topic.error is not None:
                raise LakeError(f"the topic cannot be read: {topic.error.str()}", where=self.name,
                                next_step="deploy the connector that fills it; topics.names(world) lists them")
            return {p: self._consumer.get_watermark_offsets(TopicPartition(self.name, p), timeout=10)
                    for p in topic.partitions}
        except KafkaException as e:
            raise topics.silent(self.world, e) from e

    def _fetch(self, start: Dict[int, int], stop: Dict[int, int]) -> Tuple[List[tuple], Dict[int, int]]:
        """Messages from `start` up to before `stop`, and up to where: an earlier place where they are large."""
        rows: List[tuple] = []
        size, at = 0, dict(start)
        for m in topics.messages(self.world, self._consumer, self.name, start, stop):
            rows.append((m.key(), m.value(), self.name, m.partition(), m.offset(), None))
            size += len(m.value() or b"")
            at[m.partition()] = m.offset() + 1
            if size >= FEW_BYTES:
                return rows, at
        return rows, stop

    def _spark_reads(self, start: Dict[int, int], stop: Dict[int, int]) -> DataFrame:
        messages = self.spark.read.format("kafka").options(**{
            **topics.spark_options(self.world), "subscribe": self.name,
            # at the topic's end the consumer asks for more, and its next question waits behind that for half a second
            "kafka.fetch.max.wait.ms": "20",
            "minPartitions": str(self.world.spark.parallelism),  # one partition is one task otherwise
            "startingOffsets": json.dumps({self.name: _named(start)}),
            "endingOffsets": json.dumps({self.name: _named(stop)})})
        return messages.load().select("key", "value", "topic", "partition", "offset",
                                      F.lit(None).cast("string").alias("file"))


class _Landed:
    """Reads the files that no earlier commit has read."""

    def __init__(self, spark: SparkSession, world: World, source: Landed, table: Table, most: int):
        self.spark, self.world, self.source, self.table, self.most = spark, world, source, table, most
        self.folder = f"{world.lake.landing}/{source.prefix}"
        self.lists: Dict[int, Optional[List[str]]] = {}  # what was read of them: a committed list does not change

    def next(self, mine: Dict[str, Any], number: int) -> Optional[Batch]:
        # the landing names files by offset: those of a topic made anew have the names of the old ones
        now = files.read_text(landed_topic_id(self.world, self.source.folder))
        if mine.get("topic_id", now) != now:
            raise LakeError("the landed files are of another topic than those read so far, by the same name",
                            where=f"{self.folder}, topic id {now}", expected=f"id {mine['topic_id']}",
                            next_step="start clean with hudi.drop, or read them from the beginning with "
                                      "hudi.ingest(…, replay=True)")
        # a list of files can be long, so each batch writes its own only, and the commit says those that count
        first = mine.get("first", number)
        for n in range(first, number):
            if n not in self.lists:
                self.lists[n] = landed_list(self.world, self.table, self.source.id, n)
            if self.lists[n] is None:
                raise LakeError(f"the list of the files that were read of {self.source} is gone",
                                where=_list_of(self.world, self.table, self.source.id, n),
                                next_step="was it removed, or is the table one of an older workbench, which kept the "
                                          "list elsewhere? Read the files from the beginning: hudi.ingest(…, "
                                          "replay=True). Or start clean: hudi.drop")
        seen = {path for n in range(first, number) for path in self.lists[n]}
        there = {i.path: i for path, i in files.below(self.folder).items() if not is_scratch(path)}
        new = sorted(there.keys() - seen, key=lambda p: reading_order(p, there[p].mtime_ns))[:self.most]
        if not new:
            return None
        self.lists[number] = new  # of a batch that was not committed it is replaced when that is done again
        files.write_text(_list_of(self.world, self.table, self.source.id, number), json.dumps(new))
        reached = {"first": first, "topic_id": now}
        scheme = self.folder.split(":")[0]
        addresses = [f"{scheme}:{'' if scheme == 'file' else '//'}{p}" for p in new]
        if self.source.format == "avro":
            return Batch(None, reached, files=decode_landed.examine(addresses))
        lines = self.spark.read.format("text").load(addresses).where("length(trim(value)) > 0")
        return Batch(lines.select(*decode.no_message(), F.col("value").alias("text"),
                                  F.input_file_name().alias("file")), reached)

    def close(self) -> None:
        pass


def landed_list(world: World, table: Table, source: str, batch: int) -> Optional[List[str]]:
    """Paths of the landed files that a batch has read, None where nobody knows. source: its id."""
    return json.loads(files.read_text(_list_of(world, table, source, batch)) or "null")


def _list_of(world: World, table: Table, source: str, batch: int) -> str:
    return f"{state(world, table)}/{source}/{batch:08d}.json"


def _named(offsets: Dict[int, int]) -> Dict[str, int]:
    return {str(p): n for p, n in offsets.items()}
