"""Where changes come from, a topic or landed files, and what is new in them.

A reader's `next(mine, number)` gives the next `Batch`, or None when there is nothing new. `mine` is
how far the table's last commit says that the source has been read, and `Batch.progress` what the
next commit is to say.
"""

import contextlib
import json
import re
from dataclasses import dataclass
from typing import Any, Optional, Union

from confluent_kafka.admin import AdminClient
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ..base import LakeError, World, did_you_mean, files
from ..base.paths import join_uri
from ..landing.job import topic_id_path
from ..topic import topics, wire
from . import decode, decode_avro, evolution
from .tables import COMBINED_ORDERING_COLUMN, Table, safe_file_name, table_state_dir
from .timeline import completed_actions

FORMATS = ("json", "avro")
_PARQUET_HINT = (
    "hudi.Landed reads no Parquet: let the sink write JsonFormat or AvroFormat into another folder, and ingest "
    "that; to look at the files: spark.read.parquet"
)
# {format: {the ending of a file that is of another one: what to do}}
FOREIGN_FORMATS = {
    "json": {".parquet": _PARQUET_HINT, ".avro": 'hudi.Landed(…, format="avro") reads Avro'},
    "avro": {".parquet": _PARQUET_HINT},
}
REPLAY_HINT = (
    "read it from its beginning with hudi.ingest(…, replay=True), where rows change only if the ordering field "
    "says so; or start clean: hudi.drop"
)
# A few messages are fetched by this process itself: Spark's Kafka reader takes half a second to
# start.
SMALL_BATCH_MESSAGES, SMALL_BATCH_BYTES = 2_000, 16 << 20


@dataclass(frozen=True)
class Source:
    """Where changes come from: a Topic or Landed. format: "json", or "avro"."""

    name: str
    format: str = "json"

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise LakeError(
                f"format of {self.name} is {self.format!r}",
                expected=did_you_mean(str(self.format), FORMATS),
            )

    @property
    def id(self) -> str:
        return f"{type(self).__name__.lower()}-{safe_file_name(self.name)}"


class Topic(Source):
    """A Kafka topic as the source; the schemas of Avro are in the world's registry."""

    @property
    def topic(self) -> str:
        """Its name, under which the registry has the schemas of Avro."""
        return self.name


class Landed(Source):
    """Files below `<world.lake.landing>/<name>` as the source: lines of JSON, or container files of
    Avro, each read by the schema that stands in it. Parquet is refused.

    Read in the order of the offsets in their names (see reading_order); files that are still being
    written are not.
    """

    @property
    def folder(self) -> str:
        """The prefix of all partitions of the topic: without the folder of one of them
        (DefaultPartitioner).
        """
        return re.sub(r"/partition=\d+$", "", self.name.rstrip("/"))

    @property
    def topic(self) -> str:
        """The topic whose messages lie there as Avro; its name is that of the folder."""
        return self.folder.rpartition("/")[2]


@dataclass(frozen=True)
class Batch:
    """Changes, decoded (see decode.rows). few: the rows travel with the query, so asking them twice
    costs no job.
    """

    rows: DataFrame
    progress: dict[str, Any]
    in_memory: bool = False


def create_reader(
    spark: SparkSession,
    world: World,
    source: Source,
    table: Table,
    max_records: int,
    schema: Optional[T.StructType] = None,
) -> Union["_TopicReader", "_LandedReader"]:
    """The reader of a source for a table; `most` messages or files in one batch. schema: as of
    `hudi.ingest`.
    """
    kinds = {Topic: _TopicReader, Landed: _LandedReader}
    if type(source) not in kinds:
        raise LakeError(
            f"a source cannot be {source!r}",
            location="hudi.ingest",
            expected="Topic(name) or Landed(prefix)",
        )
    return kinds[type(source)](spark, world, source, table, max_records, schema)


class _Reader:
    """What both have: where they read, for which table, and the schemas by which they decode."""

    def __init__(
        self,
        spark: SparkSession,
        world: World,
        source: Any,
        table: Table,
        most: int,
        schema: Optional[T.StructType],
    ):
        self.spark, self.world, self.source, self.table, self.max_records = (
            spark,
            world,
            source,
            table,
            most,
        )
        self.is_avro = source.format == "avro"
        self.schema: Any = schema
        if self.is_avro:
            self.schema = decode_avro.SchemaResolver(
                world, source.topic, schema, _source_columns(table)
            )
        elif schema is None:
            self.schema = decode.reader_schema(table.name)

    @property
    def schemas(self) -> tuple[T.StructType, ...]:
        """The schema that the last batch's rows have, and the one that the source has now, of which
        they may hold more.
        """
        both = (
            (self.schema.reader_schema, self.schema.latest_schema)
            if self.is_avro
            else (self.schema, self.schema)
        )
        return tuple(decode.classified_schema(each, self.table) for each in both)


def _source_columns(table: Table) -> Optional[T.StructType]:
    """The columns of a table that come from its source; None before its first commit."""
    found = evolution.table_columns(completed_actions(table))
    return found and T.StructType([f for f in found if f.name != COMBINED_ORDERING_COLUMN])


class _TopicReader(_Reader):
    """Reads a topic by offsets."""

    def __init__(self, *given: Any):
        super().__init__(*given)
        self.name, self._admin = self.source.name, AdminClient(topics.settings(self.world))

    def next(self, progress: dict[str, Any], batch_id: int) -> Optional[Batch]:
        bounds = topics.watermark_offsets(self.world, self.name)
        now = topics.topic_id(self.world, self.name, self._admin)
        if progress.get("topic_id", now) != now:
            raise LakeError(
                "the topic was deleted and made anew: what has been read of the old one says nothing about the new one",
                location=f"{self.name}, id {now}",
                expected=f"id {progress['topic_id']}",
                hint=REPLAY_HINT,
            )
        start, stop, left = {}, {}, self.max_records
        for partition, (begin, end) in sorted(bounds.items()):
            at = progress.get("offsets", {}).get(str(partition), begin)
            if at < begin or at > end:
                raise LakeError(
                    f"the topic holds offsets {begin} to {end}, and {at} is the next to be read",
                    location=f"{self.name}, partition {partition}",
                    hint=f"messages expired unread: {REPLAY_HINT}",
                )
            start[partition], stop[partition] = at, min(end, at + left)
            left -= stop[partition] - at
        if start == stop:
            return None
        few = self.max_records - left <= SMALL_BATCH_MESSAGES
        if few:
            rows, stop = self._fetch(start, stop)
            messages = self.spark.createDataFrame(rows, wire.MESSAGE_COLUMNS)
        else:
            messages = self._read_with_spark(start, stop)
        reached = {"offsets": {str(p): n for p, n in stop.items()}, "topic_id": now}
        if (
            not self.is_avro
        ):  # the bytes are taken for text; decode.rows finds those that are not UTF-8
            texts = (
                F.col(name).cast("string").alias(to)
                for name, to in (("key", "key"), ("value", "text"))
            )
            return Batch(
                decode.rows(messages.select(*texts, *decode.ORIGIN), self.schema, self.table),
                reached,
                few,
            )
        raw = wire.with_wire_columns(messages, self.world)
        ids = (
            raw.select("schema") if few else raw.select("schema").distinct()
        )  # of few Spark knows them without a job
        found = {r["schema"] for r in ids.collect() if r["schema"]}
        return Batch(decode_avro.rows(raw, found, self.schema, self.table), reached, few)

    def _fetch(
        self, start: dict[int, int], stop: dict[int, int]
    ) -> tuple[list[tuple], dict[int, int]]:
        """Messages from `start` up to before `stop`, and up to where: an earlier place where they
        are large.
        """
        rows: list[tuple] = []
        size, at = 0, dict(start)
        with contextlib.closing(topics.consume(self.world, self.name, start, stop)) as found:
            for m in found:
                rows.append((m.key(), m.value(), self.name, m.partition(), m.offset(), None))
                size += len(m.value() or b"")
                at[m.partition()] = m.offset() + 1
                if size >= SMALL_BATCH_BYTES:
                    return rows, at
        return rows, stop

    def _read_with_spark(self, start: dict[int, int], stop: dict[int, int]) -> DataFrame:
        messages = self.spark.read.format("kafka").options(
            **{
                **topics.spark_options(self.world),
                "subscribe": self.name,
                # at the topic's end the consumer asks for more, and its next question waits behind
                # that for half a second
                "kafka.fetch.max.wait.ms": "20",
                "minPartitions": str(
                    self.world.spark.parallelism
                ),  # one partition is one task otherwise
                "startingOffsets": json.dumps({self.name: start}),
                "endingOffsets": json.dumps({self.name: stop}),
            }
        )
        return messages.load().select(
            "key", "value", "topic", "partition", "offset", F.lit(None).cast("string").alias("file")
        )


class _LandedReader(_Reader):
    """Reads the files that no earlier commit has read."""

    def __init__(self, *given: Any):
        super().__init__(*given)
        self.folder = join_uri(self.world.lake.landing, self.source.name.rstrip("/"))
        self.file_lists: dict[
            int, Optional[list[str]]
        ] = {}  # what was read of them: a committed list does not change

    def next(self, progress: dict[str, Any], batch_id: int) -> Optional[Batch]:
        # the landing names files by offset: those of a topic made anew have the names of the old
        # ones
        now = files.read_text(topic_id_path(self.world, self.source.folder))
        if progress.get("topic_id", now) != now:
            raise LakeError(
                "the landed files are of another topic than those read so far, by the same name",
                location=f"{self.folder}, topic id {now}",
                expected=f"id {progress['topic_id']}",
                hint=REPLAY_HINT,
            )
        # a list of files can be long, so each batch writes its own only, and the commit says those
        # that count
        first = progress.get("first", batch_id)
        for n in range(first, batch_id):
            if n not in self.file_lists:
                self.file_lists[n] = landed_list(self.world, self.table, self.source.id, n)
            if self.file_lists[n] is None:
                raise LakeError(
                    f"the list of the files that were read of {self.source} is gone",
                    location=_list_path(self.world, self.table, self.source.id, n),
                    hint="was it removed, or is the table one of an older workbench, which kept the "
                    f"list elsewhere? Whichever it is, {REPLAY_HINT}",
                )
        seen = {path for n in range(first, batch_id) for path in self.file_lists[n]}
        there = {
            info.path: (reading_order(path, info.mtime_ns), f"{self.folder}/{path}")
            for path, info in files.list_files(self.folder).items()
            if not is_hidden(path)
        }
        new = sorted(there.keys() - seen, key=there.get)[: self.max_records]
        if not new:
            return None
        _check_format(self.source, [there[path][1] for path in new])
        self.file_lists[batch_id] = (
            new  # of a batch that was not committed it is replaced when that is done again
        )
        files.write_text(
            _list_path(self.world, self.table, self.source.id, batch_id), json.dumps(new)
        )
        reached = {"first": first, "topic_id": now}
        addresses = [there[path][1] for path in new]
        if self.is_avro:
            return Batch(
                decode_avro.read_files(self.spark, addresses, self.schema, self.table), reached
            )
        lines = (
            self.spark.read.format("text")
            .load(addresses)
            .where("length(trim(value)) > 0")
            .select(
                *decode.null_message_columns(),
                F.col("value").alias("text"),
                F.input_file_name().alias("file"),
            )
        )
        return Batch(decode.rows(lines, self.schema, self.table), reached)


def _check_format(source: Landed, addresses: list[str]) -> None:
    """Raise LakeError where the ending of a file says that it is of another format than its
    source.
    """
    for ending, hint in FOREIGN_FORMATS[source.format].items():
        wrong = [address for address in addresses if address.endswith(ending)]
        if wrong:
            raise LakeError(
                f"{len(wrong)} landed files end with {ending}, and are read as {source.format}",
                location=wrong[0],
                hint=hint,
            )


def landed_list(world: World, table: Table, source: str, batch: int) -> Optional[list[str]]:
    """Paths of the landed files that a batch has read, None where nobody knows. source: its id."""
    return json.loads(files.read_text(_list_path(world, table, source, batch)) or "null")


def _list_path(world: World, table: Table, source: str, batch: int) -> str:
    return f"{table_state_dir(world, table)}/{source}/{batch:08d}.json"


def is_hidden(path: str) -> bool:
    """Whether a landed path is of a file that is still being written, or of a writer's own
    bookkeeping.
    """
    hidden = (
        part.startswith(".") or part.startswith("_") and "=" not in part for part in path.split("/")
    )
    return any(hidden) or path.endswith((".tmp", ".crc", ".inprogress"))


def reading_order(path: str, mtime: Optional[int]) -> tuple[Any, ...]:
    """Sort key of landed files: by topic, partition and first offset where the name has them, else
    by time.

    `<topic>-<partition>-<first offset>.json` as the landing writes it,
    `<topic>(<partition>_<offset>).json` as Lenses, `<topic>+<partition>+<first offset>.avro` as
    Confluent.
    """
    name = path.rpartition("/")[2]
    found = re.fullmatch(r"(.+)[-+(](\d+)[-+_](\d+)\)?\.(json|avro)", name)
    if found:
        return True, found[1], int(found[2]), int(found[3]), path
    return False, "", 0, mtime or 0, path
