"""What is new in a source of changes: messages of a topic, or landed files.

A reader's `next(mine, number)` gives the next `Batch`, or None when there is nothing new. `mine` is how far the table's
last commit says that the source has been read, and `Batch.reached` what the next commit is to say.
"""
from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict, FrozenSet, List, Optional, Tuple, Union

from ..base import files
from ..base.errors import LakeError, nearest
from ..landing.job import landed_topic_id
from ..landing.json_lines import payload_start
from ..topic import topics, wire
from . import decode_landed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ..base.params import World

# A few messages are fetched by this process itself: Spark's Kafka reader takes half a second to start.
FEW, FEW_BYTES = 2_000, 16 << 20
COLUMNS = "key binary, value binary, topic string, partition int, offset long, file string"
FORMATS = ("json", "avro")
FOLD = 50  # lists of landed files, after which one list holds what they say


@dataclass(frozen=True)
class Topic:
    """A Kafka topic as the source. format: of its messages, "json", or "avro" with schemas in the world's registry."""

    name: str
    format: str = "json"

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise LakeError(f"format of topic {self.name} is {self.format!r}",
                            expected=nearest(str(self.format), FORMATS))

    @property
    def id(self) -> str:
        return "topic-" + _plain(self.name)

    @property
    def topic(self) -> str:
        """Its name, under which the registry has the schemas of Avro."""
        return self.name


@dataclass(frozen=True)
class Landed:
    """Files below `<world.lake.landing>/<prefix>` as the source. format: "json", lines; or "avro", container files.

    Read in the order of the offsets in their names (see reading_order); files that are still being written are not.
    """

    prefix: str
    format: str = "json"

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise LakeError(f"format of the files in {self.prefix} is {self.format!r}",
                            expected=nearest(str(self.format), FORMATS))

    @property
    def id(self) -> str:
        return "landed-" + _plain(self.prefix)

    @property
    def folder(self) -> str:
        """The prefix of all partitions of the topic: without the folder of one of them (DefaultPartitioner)."""
        return re.sub(r"/partition=\d+$", "", self.prefix.rstrip("/"))

    @property
    def topic(self) -> str:
        """The topic whose messages lie there as Avro; its name is that of the folder."""
        return self.folder.rpartition("/")[2]


Source = Union[Topic, Landed]


@dataclass(frozen=True)
class Batch:
    """Changes as they came: columns `key`, `text` (strings), `topic`, `partition`, `offset`, `file`; of an Avro topic
    `value`, `schema` and `body` instead of `text` (see wire.framed_in_spark).

    few: the rows travel with the query, so asking them twice costs no job. prefix: what most texts begin with, up to
    the payload (see decode.rows). schemas: those that Avro messages name; None for JSON. files: of landed Avro, in
    place of `raw`.
    """

    raw: Optional[DataFrame]
    reached: Dict[str, Any]
    few: bool = False
    prefix: str = ""
    schemas: Optional[FrozenSet[str]] = None
    files: Optional[decode_landed.Files] = None


def reader(spark: SparkSession, world: World, source: Source, table: str, most: int) -> Union[_Topic, _Landed]:
    """The reader of a source for a table of that name; `most` messages or files in one batch."""
    if isinstance(source, Topic):
        return _Topic(spark, world, source, most)
    if isinstance(source, Landed):
        return _Landed(spark, world, source, table, most)
    raise LakeError(f"a source cannot be {source!r}", where="hudi.ingest", expected="Topic(name) or Landed(prefix)")


class _Topic:
    """Reads a topic by offsets. Holds its two Kafka clients until `close()`."""

    def __init__(self, spark: SparkSession, world: World, source: Topic, most: int):
        from confluent_kafka.admin import AdminClient

        self.spark, self.world, self.name, self.most = spark, world, source.name, most
        self.avro = source.format == "avro"
        self._admin = AdminClient(topics.settings(world))
        self._consumer = topics.consumer(world)

    def next(self, mine: Dict[str, Any], number: int) -> Optional[Batch]:
        marks = self._watermarks()
        now = topics.topic_id(self.world, self.name, self._admin)
        if mine.get("topic_id", now) != now:
            raise LakeError(
                "the topic was deleted and made anew: what has been read of the old one says nothing about the new one",
                where=f"{self.name}, id {now}", expected=f"id {mine['topic_id']}",
                next_step="start clean with hudi.drop, or read it from its beginning with hudi.ingest(…, replay=True)")
        start, stop, left = {}, {}, self.most
        for partition, (begin, end) in sorted(marks.items()):
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
            messages = self.spark.createDataFrame(rows, wire.MESSAGES if self.avro else COLUMNS)
        else:
            messages = self._spark_reads(start, stop)
        reached = {"offsets": _named(stop), "topic_id": now}
        if not self.avro:
            return Batch(_texts(messages), reached, few, prefix="" if few else self._prefix(start, stop))
        raw = wire.framed_in_spark(messages, self.world)
        if few:  # told by this process: a question to Spark takes longer
            named = (wire.framed(self.world, value, headers) for _, value, headers, *_ in rows if value)
            found = [f.schema for f in named if f]
        else:
            found = [r["schema"] for r in raw.select("schema").distinct().collect() if r["schema"]]
        return Batch(raw, reached, few, schemas=frozenset(found))

    def close(self) -> None:
        self._consumer.close()

    def _fetch(self, start: Dict[int, int], stop: Dict[int, int],
               most: int = FEW) -> Tuple[List[tuple], Dict[int, int]]:
        """Messages from `start` up to before `stop`, and up to where: an earlier place where they are large."""
        rows: List[tuple] = []
        size, at = 0, dict(start)
        for m in topics.messages(self.world, self._consumer, self.name, start, stop):
            headers = [m.headers()] if self.avro else []
            rows.append((m.key(), m.value(), *headers, self.name, m.partition(), m.offset(), None))
            size += len(m.value() or b"")
            at[m.partition()] = m.offset() + 1
            if len(rows) >= most or size >= FEW_BYTES:
                return rows, at
        return rows, stop

    def _prefix(self, start: Dict[int, int], stop: Dict[int, int]) -> str:
        """What the first message with a schema begins with; "" when the first few have none."""
        for _, value, *_ in self._fetch(start, stop, most=20)[0]:
            text = (value or b"").decode("utf-8", "replace")
            begin = payload_start(text)
            if begin:
                return text[:begin]
        return ""

    def _spark_reads(self, start: Dict[int, int], stop: Dict[int, int]) -> DataFrame:
        from pyspark.sql import functions as F

        messages = (
            self.spark.read.format("kafka").option("kafka.bootstrap.servers", self.world.kafka.bootstrap)
            .option("kafka.security.protocol", self.world.kafka.security_protocol)
            .option("subscribe", self.name).option("failOnDataLoss", "true")
            .option("kafka.isolation.level", "read_committed")  # as librdkafka reads by itself, see _fetch
            # at the topic's end the consumer asks for more, and its next question waits behind that for half a second
            .option("kafka.fetch.max.wait.ms", "20")
            .option("minPartitions", str(self.world.spark.parallelism))  # one partition is one task otherwise
            .option("startingOffsets", json.dumps({self.name: _named(start)}))
            .option("endingOffsets", json.dumps({self.name: _named(stop)}))
        )
        headers = ["headers"] if self.avro else []
        messages = messages.option("includeHeaders", str(self.avro).lower())
        return messages.load().select("key", "value", *headers, "topic", "partition", "offset",
                                      F.lit(None).cast("string").alias("file"))

    def _watermarks(self) -> Dict[int, Tuple[int, int]]:
        """{partition: (first offset there is, offset after the last)}."""
        from confluent_kafka import KafkaException, TopicPartition

        try:
            topic = self._consumer.list_topics(self.name, timeout=10).topics[self.name]
            if topic.error is not None:
                raise LakeError(f"the topic cannot be read: {topic.error.str()}", where=self.name,
                                next_step="deploy the connector that fills it; topics.names(world) lists them")
            return {p: self._consumer.get_watermark_offsets(TopicPartition(self.name, p), timeout=10)
                    for p in topic.partitions}
        except KafkaException as e:
            raise topics.silent(self.world, e) from e



class _Landed:
    """Reads the files that no earlier commit has read."""

    def __init__(self, spark: SparkSession, world: World, source: Landed, table: str, most: int):
        self.spark, self.world, self.source, self.most = spark, world, source, most
        self.folder = f"{world.lake.landing}/{source.prefix}"
        self.place = f"{world.lake.checkpoints}/{table}/{source.id}"
        self._lists: Dict[str, List[str]] = {}  # what was read of them: a committed list does not change

    def next(self, mine: Dict[str, Any], number: int) -> Optional[Batch]:
        from pyspark.sql import functions as F

        # the landing names files by offset: those of a topic made anew have the names of the old ones
        now = files.read_text(landed_topic_id(self.world, self.source.folder))
        if mine.get("topic_id", now) != now:
            raise LakeError("the landed files are of another topic than those read so far, by the same name",
                            where=f"{self.folder}, topic id {now}", expected=f"id {mine['topic_id']}",
                            next_step="start clean with hudi.drop, or read them from the beginning with "
                                      "hudi.ingest(…, replay=True)")
        # a list of files can be long, so the commit holds only the number of the last list that counts
        first, folded = mine.get("first", number), mine.get("folded")
        lists = [str(n) for n in range(first, number)] + ([folded] if folded else [])
        seen = {path for name in lists for path in self._list(name)}
        root = files.open_address(self.folder)[1]
        there = {i.path: i for i in files.entries(self.folder, recursive=True)
                 if i.is_file and not is_scratch(i.path[len(root):])}
        new = sorted(there.keys() - seen, key=lambda p: reading_order(p, there[p].mtime_ns))[:self.most]
        if not new:
            return None
        if number - first >= FOLD:  # or each run would open more of them than the one before
            first, folded = number, f"before-{number}"
            self._write(folded, sorted(seen))
        self._write(str(number), new)
        reached = {"first": first, "topic_id": now, **({"folded": folded} if folded else {})}
        scheme = self.folder.split(":")[0]
        addresses = [f"{scheme}:{'' if scheme == 'file' else '//'}{p}" for p in new]
        if self.source.format == "avro":
            return Batch(None, reached, files=decode_landed.examine(addresses))
        lines = self.spark.read.format("text").load(addresses)
        nothing = F.lit(None)
        return Batch(lines.where(F.length(F.trim("value")) > 0).select(
            nothing.cast("string").alias("key"), F.col("value").alias("text"), nothing.cast("string").alias("topic"),
            nothing.cast("int").alias("partition"), nothing.cast("long").alias("offset"),
            F.input_file_name().alias("file")), reached)

    def _list(self, name: str) -> List[str]:
        if name not in self._lists:
            self._lists[name] = json.loads(files.read_text(f"{self.place}/{name}.json") or "[]")
        return self._lists[name]

    def _write(self, name: str, paths: List[str]) -> None:
        files.write_text(f"{self.place}/{name}.json", json.dumps(paths))
        self._lists[name] = paths

    def close(self) -> None:
        pass


def _texts(messages: DataFrame) -> DataFrame:
    """Messages with their bytes taken for text; decode.rows finds those that are not UTF-8."""
    from pyspark.sql import functions as F

    return messages.select(F.col("key").cast("string").alias("key"), F.col("value").cast("string").alias("text"),
                           "topic", "partition", "offset", "file")


def _named(offsets: Dict[int, int]) -> Dict[str, int]:
    return {str(p): n for p, n in offsets.items()}


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "_", name)


def is_scratch(path: str) -> bool:
    """Whether a landed path is of a file that is still being written, or of a writer's own bookkeeping."""
    hidden = (part.startswith(".") or part.startswith("_") and "=" not in part for part in path.split("/"))
    return any(hidden) or path.endswith((".tmp", ".crc", ".inprogress"))


def reading_order(path: str, mtime: Optional[int]) -> Tuple[Any, ...]:
    """Sort key of landed files: by topic, partition and first offset where the name has them, else by time.

    `<topic>-<partition>-<first offset>.json` as the landing writes it, `<topic>(<partition>_<offset>).json` as Lenses,
    `<topic>+<partition>+<first offset>.avro` as Confluent.
    """
    name = path.rpartition("/")[2]
    found = (re.fullmatch(r"(.+)-(\d+)-(\d+)\.json", name) or re.fullmatch(r"(.+)\((\d+)_(\d+)\)\.json", name)
             or re.fullmatch(r"(.+)\+(\d+)\+(\d+)\.avro", name))
    if found:
        return True, found[1], int(found[2]), int(found[3]), path
    return False, "", 0, mtime or 0, path
