"""Read changes from a topic or from landed files, in batches.

The reader of a source is created by `create_reader`. Its `next(progress)` returns the next `Batch`, or
None if nothing is new. `progress` is the source position in the table's last commit.
`Batch.progress` is the source position for the next commit.
"""

from __future__ import annotations

import contextlib
import json
import re
from dataclasses import dataclass, field
from typing import Any, Mapping, NamedTuple, Optional, TypedDict

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ..base import LakeError, World, did_you_mean, files
from ..base.added_columns import DERIVED_COLUMNS
from ..base.paths import join_uri
from ..landing.job import read_progress as landing_progress
from ..topic import topics, wire
from . import decode, decode_avro, evolution
from .decode_avro import AvroSchemas, LandedSchemas
from .decode_json import CarriedSchemas, PublishedSchema
from .schemas import Schemas
from .tables import Table, safe_file_name
from .timeline import completed_actions

FORMATS = ("json", "avro")
PUBLISHED, RAW, ANALYST = "published", "raw", "analyst"
TYPES = (PUBLISHED, RAW, ANALYST)
# {format of a source: file extensions of others}
FOREIGN_EXTENSIONS = {"json": (".parquet", ".avro"), "avro": (".parquet",)}
REPLAY_HINT = (
    "read the source from its beginning with hudi.ingest(…, replay=True), where the ordering field decides "
    "which rows change; or start clean with hudi.drop"
)
# A batch up to this size is consumed in this process: Spark's Kafka reader takes half a second to start.
SMALL_BATCH_MESSAGES, SMALL_BATCH_BYTES = 2_000, 16 << 20

# A landed file is not read before its batch, so it counts as one message for each of so many bytes.
BYTES_PER_LANDED_MESSAGE = 1 << 10


class SourceProgress(TypedDict, total=False):
    """The position in a source after a batch. A commit of the ingest stores it in its metadata.

    Attributes:
        offsets: {partition: next offset to read}. For landed files: {`LandedFile.key`: next first offset of a
            file}.
        start: the `position` at which the last batch began.
        dead_letters: name of the folder with the dead letters of the last batch.
        replay: name of the folder with those since the last replay; "" before the first one.
        fields: {name: type}, the source's schema at the last batch.
        topic_id: Kafka's id of the topic.
        files: Landed only: number of the files that were read.
        bytes: Landed only: their size.
    """

    offsets: dict[str, int]
    start: int
    dead_letters: str
    replay: str
    fields: dict[str, str]
    topic_id: Optional[str]
    files: int
    bytes: int


def position(progress: SourceProgress) -> int:
    """Return how far a source is read, as one number: each batch makes it greater."""
    return sum(progress.get("offsets", {}).values())


@dataclass(frozen=True)
class Source:
    """A source of changes: a Topic or Landed.

    Attributes:
        name: of the topic, or of the folder below the landing.
        format: "json" or "avro".
        types: "published": the types that are sent (JSON has those of data/schemas/<table>.avsc, and its
            messages need no schema). "raw": the same, and JSON has those of the schema that each
            message carries. "analyst": the analyst types of docs/types.md; JSON's messages carry
            their schema.
        scales: {column: digits after the decimal point} of the analyst type of a numeric without
            precision, by default 10.
    """

    name: str
    format: str = "json"
    types: str = field(default=PUBLISHED, repr=False)
    scales: Mapping[str, int] = field(default_factory=dict, hash=False, repr=False)

    def __post_init__(self) -> None:
        """Raise LakeError if the format or the types are unknown."""
        for name, value, known in (("format", self.format, FORMATS), ("types", self.types, TYPES)):
            if value not in known:
                raise LakeError(
                    f"{name} of {self.name} is {value!r}",
                    expected=did_you_mean(str(value), known),
                )

    @property
    def id(self) -> str:
        """The name of the source in the progress of a table."""
        return f"{type(self).__name__.lower()}-{safe_file_name(self.name)}"


class Topic(Source):
    """A Kafka topic as the source. Avro schemas are in the world's registry."""


class Landed(Source):
    """Files below `<world.lake.landing>/<name>`, the folder of a topic, as the source.

    The files contain lines of JSON, or are Avro container files with their schemas. Parquet files are
    rejected. The files are read in the order of the first offsets in their names (see `LandedFile`).
    Unfinished files are skipped. In one folder the files of a topic partition must appear in this order,
    as those of a sink do: an earlier one that appears late is an error.
    """

    def __post_init__(self) -> None:
        """Raise LakeError also if the name is the folder of one partition: it has no progress of its own."""
        super().__post_init__()
        if re.search(r"/partition=\d+/?$", self.name):
            raise LakeError(
                f"{self.name} is the folder of one partition", hint="name the topic's folder"
            )


@dataclass(frozen=True)
class Batch:
    """A batch of decoded changes.

    Attributes:
        rows: the changes, in the columns of `decode.rows`.
        progress: the source position after this batch.
        in_memory: whether the rows are in the query plan (a LocalRelation), so that a second action
            starts no Spark job.
    """

    rows: DataFrame
    progress: SourceProgress
    in_memory: bool = False


def create_reader(
    spark: SparkSession,
    world: World,
    source: Source,
    table: Table,
    max_records: int,
    schema: Optional[T.StructType] = None,
) -> Reader:
    """Create the reader of a source for a table.

    Args:
        spark: the session.
        world: the world.
        source: a Topic or Landed.
        table: the target table of the ingest.
        max_records: maximum number of messages in a batch; of landed files an estimate.
        schema: reader schema of JSON of published types; by default that of data/schemas/<table name>.avsc.
    """
    kind = _LandedReader if isinstance(source, Landed) else _TopicReader
    return kind(spark, world, source, table, max_records, schema)


@dataclass
class Reader:
    """Reads the changes of a source for a table."""

    spark: SparkSession
    world: World
    source: Source
    table: Table
    max_records: int
    schema: Optional[T.StructType]

    def __post_init__(self) -> None:
        """Create the schemas of the source."""
        # {partition: offset of the next message} of a topic, after `next` returned None
        self.end_offsets: dict[int, int] = {}
        # {partition: offset after the last message} of a topic when a run began; empty before its first batch
        self.run_end: dict[int, int] = {}
        self.source_schemas = _create_schemas(self.world, self.source, self.table, self.schema)

    def next(self, progress: SourceProgress) -> Optional[Batch]:
        """Read the next batch of changes after `progress`; None if nothing is new."""
        raise NotImplementedError

    @property
    def schemas(self) -> tuple[T.StructType, T.StructType]:
        """The schema of the last batch's rows, and the latest schema of the source.

        The rows may have fields that the latest schema no longer has.
        """
        schemas = self.source_schemas
        rows = schemas.row_schema
        latest = schemas.latest.columns if schemas.latest else rows
        return (
            decode.classified_schema(rows, self.table),
            decode.classified_schema(latest, self.table),
        )

    def _require_topic_id(
        self, progress: SourceProgress, topic_id: Optional[str], message: str, location: str
    ) -> None:
        """Raise LakeError if `topic_id` differs from the id in the last commit."""
        if progress.get("topic_id", topic_id) != topic_id:
            raise LakeError(
                message,
                location=f"{location}, topic id {topic_id}",
                expected=f"id {progress['topic_id']}",
                hint=REPLAY_HINT,
            )


def _create_schemas(
    world: World, source: Source, table: Table, schema: Optional[T.StructType]
) -> Schemas:
    columns = _source_columns(table)
    if source.format == "json" and source.types == PUBLISHED:
        reader_schema = decode.reader_schema(table.name) if schema is None else schema
        return PublishedSchema(world, source.name, columns, reader_schema)
    if schema is not None:
        raise LakeError(
            "a reader schema serves JSON of published types only",
            location=f"{source}, types {source.types}",
            hint="leave it out: these messages name or carry their schemas",
        )
    kind: type[Schemas] = CarriedSchemas
    if source.format == "avro":
        kind = AvroSchemas if isinstance(source, Topic) else LandedSchemas
    return kind(world, source.name, columns, source.scales if source.types == ANALYST else None)


def _source_columns(table: Table) -> Optional[T.StructType]:
    """Return the columns of a table that come from its source; None before its first commit."""
    columns = evolution.table_columns(completed_actions(table))
    return columns and T.StructType([f for f in columns if f.name not in DERIVED_COLUMNS])


class _TopicReader(Reader):
    """Reads a topic by offsets."""

    def next(self, progress: SourceProgress) -> Optional[Batch]:
        """Read the messages from the committed offsets on; None if the run has read all that it found at its start."""
        topic = self.source.name
        watermarks = topics.watermark_offsets(self.world, topic)
        self.run_end = self.run_end or {p: high for p, (_, high) in watermarks.items()}
        topic_id = self._read_topic_id(progress)
        start, stop = self._plan_offsets(progress.get("offsets", {}), watermarks)
        if start == stop:
            self.end_offsets = start
            return None
        in_memory = sum(stop.values()) - sum(start.values()) <= SMALL_BATCH_MESSAGES
        if in_memory:
            messages, stop = self._fetch(start, stop)
        else:
            messages = self._read_with_spark(start, stop)
        decoded = decode.rows(messages, self.source_schemas, self.table, in_memory)
        offsets = {str(partition): offset for partition, offset in stop.items()}
        return Batch(decoded, {"offsets": offsets, "topic_id": topic_id}, in_memory)

    def _read_topic_id(self, progress: SourceProgress) -> str:
        """Return Kafka's id of the topic; raise LakeError if the last commit has another one."""
        topic_id = topics.topic_id(self.world, self.source.name)
        self._require_topic_id(
            progress,
            topic_id,
            "the topic was deleted and recreated: the committed offsets belong to the old topic",
            self.source.name,
        )
        return topic_id

    def _plan_offsets(
        self, committed: dict[str, int], watermarks: dict[int, tuple[int, int]]
    ) -> tuple[dict[int, int], dict[int, int]]:
        """Return the next batch as {partition: start offset} and {partition: end offset, exclusive}.

        Args:
            committed: {partition: next offset to read}, from the progress.
            watermarks: {partition: (low, high)} of the topic.

        Raises:
            LakeError: a committed offset is outside of the watermarks.
        """
        start, stop, remaining = {}, {}, self.max_records
        for partition, (low, high) in sorted(watermarks.items()):
            offset = committed.get(str(partition), low)
            if not low <= offset <= high:
                raise LakeError(
                    f"the topic holds offsets {low} to {high}, but the next offset to read is {offset}",
                    location=f"{self.source.name}, partition {partition}",
                    hint=f"messages expired unread: {REPLAY_HINT}",
                )
            run_end = max(offset, self.run_end.get(partition, 0))
            start[partition], stop[partition] = offset, min(run_end, offset + remaining)
            remaining -= stop[partition] - offset
        return start, stop

    def _fetch(
        self, start: dict[int, int], stop: dict[int, int]
    ) -> tuple[DataFrame, dict[int, int]]:
        """Consume the messages from `start` to `stop` (exclusive), or until SMALL_BATCH_BYTES.

        Returns:
            The messages, and {partition: next offset to read}.
        """
        rows: list[tuple[Any, ...]] = []
        size, offsets = 0, dict(start)
        found = topics.consume(self.world, self.source.name, start, stop)
        with contextlib.closing(found) as messages:
            for m in messages:
                rows.append((m.key(), m.value(), self.source.name, m.partition(), m.offset(), None))
                size += len(m.value() or b"")
                offsets[m.partition()] = m.offset() + 1
                if size >= SMALL_BATCH_BYTES:
                    stop = offsets
                    break
        return self.spark.createDataFrame(rows, wire.MESSAGE_COLUMNS), stop

    def _read_with_spark(self, start: dict[int, int], stop: dict[int, int]) -> DataFrame:
        options = {
            **topics.spark_options(self.world),
            "subscribe": self.source.name,
            # At the end of the topic the broker holds a fetch request for half a second by default,
            # and the next request of the consumer waits for it.
            "kafka.fetch.max.wait.ms": "20",
            # otherwise one task for each partition
            "minPartitions": str(self.world.spark.parallelism),
            "startingOffsets": json.dumps({self.source.name: start}),
            "endingOffsets": json.dumps({self.source.name: stop}),
        }
        messages = self.spark.read.format("kafka").options(**options).load()
        file = F.lit(None).cast("string").alias("file")
        return messages.select("key", "value", "topic", "partition", "offset", file)


class _LandedReader(Reader):
    """Reads landed files by the offsets in their names."""

    @property
    def folder(self) -> str:
        """The URI of the files' folder."""
        return join_uri(self.world.lake.landing, self.source.name)

    def next(self, progress: SourceProgress) -> Optional[Batch]:
        """Read the landed files from the committed offsets on; None if there are none.

        Files are in order only in their folder, so there is one offset for each partition and folder.
        """
        # File names contain offsets, so the files of a recreated topic would repeat the old names.
        landed = landing_progress(self.world, self.source.name)
        topic_id = landed and landed["topic_id"]
        self._require_topic_id(
            progress,
            topic_id,
            "the landed files are of another topic than those read so far, with the same name",
            self.folder,
        )
        offsets = dict(progress.get("offsets", {}))
        sizes = self._list_files()
        unread = sorted(file for file in sizes if not file.is_read(offsets))
        count = len(sizes) - len(unread)
        size = sum(sizes.values()) - sum(sizes[file] for file in unread)
        self._require_nothing_late(progress, count, size)
        planned = self._plan_files(unread, sizes)
        if not planned:
            return None
        offsets.update({file.key: file.offset + 1 for file in planned})
        _check_format(self.source, planned)
        uris = [join_uri(self.world.lake.landing, file.path) for file in planned]
        read: SourceProgress = {
            "topic_id": topic_id,
            "offsets": offsets,
            "files": count + len(planned),
            "bytes": size + sum(sizes[file] for file in planned),
        }
        return Batch(self._decode(uris), read)

    def _require_nothing_late(self, progress: SourceProgress, count: int, size: int) -> None:
        """Raise LakeError if more is there of the files that are read than was read of them."""
        read_count, read_size = progress.get("files", 0), progress.get("bytes", 0)
        if count > read_count or size > read_size:
            raise LakeError(
                "landed files appeared after later ones of their folder were read, or have grown since",
                location=self.folder,
                expected=f"{read_count} files that were read, {read_size:,} bytes",
                hint=f"{count} files, {size:,} bytes are there. The difference is not ingested: {REPLAY_HINT}",
            )

    def _list_files(self) -> dict[LandedFile, int]:
        """Return {file: size} of the finished files."""
        return {
            parse_landed_file(f"{self.source.name}/{path}"): info.size
            for path, info in files.list_files(self.folder).items()
            if not is_hidden(path)
        }

    def _plan_files(
        self, unread: list[LandedFile], sizes: dict[LandedFile, int]
    ) -> list[LandedFile]:
        """Return the files of the next batch: about `max_records` messages."""
        remaining = self.max_records
        for number, file in enumerate(unread):
            remaining -= max(1, sizes[file] // BYTES_PER_LANDED_MESSAGE)
            if remaining < 0 and number > 0:
                return unread[:number]
        return unread

    def _decode(self, uris: list[str]) -> DataFrame:
        if isinstance(self.source_schemas, LandedSchemas):
            decoded = decode_avro.read_files(self.spark, uris, self.source_schemas)
            return decode.classify(decoded, self.source_schemas.row_schema, self.table)
        lines = self.spark.read.format("text").load(uris).where("length(trim(value)) > 0")
        messages = lines.selectExpr("value", "input_file_name() AS file", *decode.NO_MESSAGE)
        return decode.rows(messages, self.source_schemas, self.table)


def _check_format(source: Source, planned: list[LandedFile]) -> None:
    """Raise LakeError if the name of a file ends with a format that cannot be read as the source's."""
    extensions = FOREIGN_EXTENSIONS[source.format]
    foreign = [file.path for file in planned if file.path.endswith(extensions)]
    if foreign:
        raise LakeError(
            f"{len(foreign)} landed files are not {source.format}",
            location=foreign[0],
            expected='JSON, or Avro with format="avro"',
            hint="configure the sink to write JsonFormat or AvroFormat into another folder, and ingest that "
            "folder; spark.read.parquet shows Parquet files",
        )


def is_hidden(path: str) -> bool:
    """Return whether a path belongs to an unfinished file, or to metadata of a writer.

    Args:
        path: path below the folder of the source.
    """
    hidden = (
        name.startswith(".") or (name.startswith("_") and "=" not in name)
        for name in path.split("/")
    )
    return any(hidden) or path.endswith((".tmp", ".crc", ".inprogress"))


class LandedFile(NamedTuple):
    """A landed file. Files are read in the order of these fields.

    Attributes:
        topic: the topic in the file name.
        partition: the partition in the file name.
        offset: the first offset in the file, from its name.
        path: path of the file below the landing.
    """

    topic: str
    partition: int
    offset: int
    path: str

    @property
    def key(self) -> str:
        """The topic partition in the file's folder as a key of offsets."""
        return f"{self.path.rpartition('/')[0]}/{self.topic}-{self.partition}"

    def is_read(self, offsets: Mapping[str, int]) -> bool:
        """Return whether the offsets of a progress are beyond the first one of this file."""
        return self.offset < offsets.get(self.key, 0)


def parse_landed_file(path: str) -> LandedFile:
    """Return a landed file by its name.

    The names are `<topic>-<partition>-<first offset>.json` (the landing), `<topic>(<partition>_<offset>).json`
    (Lenses) and `<topic>+<partition>+<first offset>.avro` (Confluent).

    A file of another name is a topic partition of its own, with one file.

    Args:
        path: path of the file below the landing.
    """
    match = re.fullmatch(r"(.+)[-+(](\d+)[-+_](\d+)\)?\.[a-z.]+", path.rpartition("/")[2])
    if not match:
        return LandedFile(path, 0, 0, path)
    return LandedFile(match[1], int(match[2]), int(match[3]), path)
