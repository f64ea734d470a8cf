"""Hudi tables: what one is (`Table`), changes into it (`ingest`), its catalog entries and services, its removal.

Everything is written as table version 6, which Athena v3 reads; Hudi 1.x upgrades a table without a word when a writer
forgets to say so, therefore the version is looked up after each ingest.
"""
from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional, Tuple, Union

from ..base import files
from ..base.errors import LakeError, nearest
from ..landing.batch import read_dead_letters
from . import ingesting as stream
from . import timeline
from .catalog import all_entries, identifier
from .changes import Landed, Topic
from .ingesting import Ingested, Stream, dead_letters_path
from .timeline import check_readable, completed, pending_compactions, resolve
from .travel import reader

if TYPE_CHECKING:
    import pandas
    from pyspark.sql import DataFrame, SparkSession

    from ..base.params import World

TYPES = {"cow": "COPY_ON_WRITE", "mor": "MERGE_ON_READ"}
DELETES = ("hard", "soft")
INDEXES = ("SIMPLE", "GLOBAL_SIMPLE", "BLOOM", "GLOBAL_BLOOM", "BUCKET")
TABLE_VERSION = "6"

# Small tables, small writes: no metadata table to keep, no timeline server to start, and tasks as many as cores
# instead of hundreds. Measured: 1,000 rows into 200,000 in about half the time of Hudi's defaults.
SMALL_WRITES = {
    "hoodie.metadata.enable": "false",
    "hoodie.embed.timeline.server": "false",
    "hoodie.write.markers.type": "DIRECT",
    "hoodie.parquet.compression.codec": "snappy",
}
# A compaction writes records, as a merge does. By default it writes rows, and beside decimals of up to 18 digits in an
# old format of Spark's: the next merge reads lists in such a file as null (seen with 1.0.2).
BY_RECORDS = {"hoodie.file.group.reader.enabled": "false"}
# Only the BLOOM indexes read the filter, and it makes every file 400 KB larger. Hudi's writer of rows puts one in all
# the same (seen with 1.0.2), so it is made for a single entry.
NO_BLOOM_FILTER = {"hoodie.parquet.bloom.filter.enabled": "false", "hoodie.index.bloom.num_entries": "1",
                   "hoodie.bloom.index.filter.type": "SIMPLE"}
# Not among them is the cleaner's: it looks at as many partitions at a time as it has tasks, in one Spark job after the
# other (seen with 1.0.2: 15 jobs for 30 partitions and 2 tasks); with Hudi's default, 200, it is one job.
PARALLELISM = ("upsert.shuffle", "insert.shuffle", "bulkinsert.shuffle", "delete.shuffle", "simple.index",
               "global.simple.index", "global.index.reconcile", "bloom.index", "finalize.write", "markers.delete",
               "file.listing", "rollback", "archive.delete")


@dataclass(frozen=True)
class Table:
    """A Hudi table. `options()` shows the Hudi options that it becomes.

    name: of the table. database, catalog: of its entry in the catalog, the table's name by default (see `entries`).
    base: address of its folder. key: record key fields. partition: partition fields.
    ordering: of two versions of a key the one with the greater value wins, whichever comes last, deletes too.
    type: "cow" or "mor". parallelism: tasks of a shuffle.
    index: how the file of a key is found. SIMPLE and BLOOM look into the files of the key's partition, GLOBAL_SIMPLE
    and GLOBAL_BLOOM into all, so that a row may move to another partition. BUCKET reckons the file from the key and
    reads none, which keeps an upsert into a large table quick; it knows the key's own partition only.
    buckets: how many files a partition has then. It cannot be changed later: the ingest refuses another number.
    deletes: "hard" removes the row of a key; "soft" keeps it as the delete event has it (S5: the key, `__deleted`
    "true" and nulls, in Hudi's partition for null), so that it is still there to be read.
    extra: options that go before the ones made here.

    Limits. Hudi has one partition for null and for an empty text, and Spark takes the value from the partition's name:
    an empty text in a partition field reads as null. A delete that was committed to a "cow" table leaves nothing
    behind, so an older event of the same key that comes in a later batch brings the row back. A "mor" table remembers
    the delete until it is compacted. Within one batch the order does not matter, and a topic and landed files are read
    in the order of their offsets, so this needs a source that sends out of order.
    """

    name: str
    base: str
    key: Tuple[str, ...]
    ordering: str
    partition: Tuple[str, ...] = ()
    database: str = "datalake"
    catalog: str = ""
    type: str = "cow"
    index: str = "SIMPLE"
    buckets: int = 2
    parallelism: int = 2
    deletes: str = "hard"
    extra: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("key", "partition"):
            if isinstance(getattr(self, name), str) or not all(isinstance(f, str) for f in getattr(self, name)):
                raise LakeError(f"{name} of table {self.name} is {getattr(self, name)!r}",
                                expected="a tuple of field names")
        if not self.key or not self.ordering:
            raise LakeError(f"table {self.name} has no {'ordering field' if self.key else 'record key'}")
        if type(self.buckets) is not int or self.buckets < 1:
            raise LakeError(f"buckets of table {self.name} is {self.buckets!r}", expected="a whole number from 1 on")
        for name, allowed in (("type", TYPES), ("index", INDEXES), ("deletes", DELETES)):
            if getattr(self, name) not in allowed:
                raise LakeError(f"{name} of table {self.name} is {getattr(self, name)!r}",
                                expected=nearest(str(getattr(self, name)), allowed))

    def options(self) -> Dict[str, str]:
        """The Hudi write options of this table."""
        return {
            "hoodie.table.name": self.name,
            "hoodie.database.name": self.database,
            "hoodie.datasource.write.table.type": TYPES[self.type],
            "hoodie.datasource.write.operation": "upsert",
            "hoodie.datasource.write.recordkey.field": ",".join(self.key),
            **self._partitioning(),
            "hoodie.datasource.write.precombine.field": self.ordering,
            # this payload looks at the ordering field of the stored row too, and for deletes; Hudi's own default
            # on table version 6 (OverwriteWithLatest) lets a late older event win
            "hoodie.datasource.write.payload.class": "org.apache.hudi.common.model.DefaultHoodieRecordPayload",
            "hoodie.payload.ordering.field": self.ordering,
            "hoodie.payload.event.time.field": self.ordering,
            "hoodie.index.type": self.index,
            "hoodie.table.timeline.timezone": "UTC",  # of a table that is made; by default the zone of who writes
            "hoodie.write.table.version": TABLE_VERSION,
            "hoodie.write.auto.upgrade": "false",
            # for those who write to the table with writeStream: the default, true, drops a batch that failed
            "hoodie.datasource.write.streaming.ignore.failed.batch": "false",
            **SMALL_WRITES, **BY_RECORDS,
            **({name: str(self.buckets) for name in ("hoodie.bucket.index.num.buckets", stream.BUCKETS)}
               if self.index == "BUCKET" else {}),
            **({"hoodie.parquet.bloom.filter.enabled": "true"} if self.index.endswith("BLOOM") else NO_BLOOM_FILTER),
            **{f"hoodie.{name}.parallelism": str(self.parallelism) for name in PARALLELISM},
            **self.extra,
        }

    def _partitioning(self) -> Dict[str, str]:
        generator = "org.apache.hudi.keygen." + (
            "NonpartitionedKeyGenerator" if not self.partition
            else "ComplexKeyGenerator" if len(self.partition) > 1 or len(self.key) > 1 else "SimpleKeyGenerator")
        if not self.partition:
            return {"hoodie.datasource.write.keygenerator.class": generator}
        return {
            "hoodie.datasource.write.keygenerator.class": generator,
            "hoodie.datasource.write.partitionpath.field": ",".join(self.partition),
            "hoodie.datasource.write.hive_style_partitioning": "true",
            "hoodie.datasource.write.partitionpath.urlencode": "true",  # a / in a value must not make a folder
        }


def table(world: World, name: str, **fields: Any) -> Table:
    """A Table in the world's lake and catalog database; `fields` are those of Table."""
    return Table(**{"name": name, "base": f"{world.lake.tables}/{name}", "parallelism": world.spark.parallelism,
                    **fields})


def ingest(spark: SparkSession, world: World, source: Union[Topic, Landed], table: Table, *, schema: Any = None,
           until: str = "available", replay: bool = False, batch: int = 200_000,
           pause: float = 0.2) -> Union[Ingested, Stream]:
    """Bring the changes of `source` into `table`.

    Args:
        source: `Topic(name)` or `Landed(prefix)`, JSON both, or with `format="avro"`. The table's commits say how far
            each has been read: a second run goes on from there. A table that was written to, and has no such commit
            (another tool made it, or the commit was archived), takes a `replay`.
        schema: reader schema, a StructType; without it that of data/schemas/<table name>.avsc, and for Avro the newest
            one that the registry has of the topic.
        until: "available" returns `Ingested` when all that is there has been written; "continuous" returns a running
            `Stream`, whose `stop()` returns it.
        replay: read the source from its beginning once more (rows change only where the ordering field says so).
        batch: most messages or files of one commit.
        pause: seconds between two looks at a source that had nothing new (continuous).

    Raises:
        LakeError: a batch failed (nothing of it is visible; the next run does it again), how far the source was read is
            not known, or the table version changed.
        StackError: the registry does not answer, or Spark or Kafka is gone. Nothing of the batch shows then.
    """
    if until not in ("available", "continuous"):
        raise LakeError(f"until is {until!r}", where="hudi.ingest", expected="'available' or 'continuous'")
    schema = schema or (None if getattr(source, "format", "json") == "avro" else reader_schema(table.name))
    job = stream.Job(spark, world, source, table, schema, batch=batch, replay=replay)
    if until == "continuous":
        return Stream(job, pause, lambda: check_version(table))
    try:
        while job.step():
            pass
    finally:
        job.close()
    check_version(table)
    return job.done


def reader_schema(name: str) -> Any:
    """StructType of data/schemas/<name>.avsc."""
    from ..base.paths import ROOT
    from ..topic import schemas

    path = ROOT / "data" / "schemas" / f"{name}.avsc"
    if not path.is_file():
        raise LakeError(f"there is no reader schema for {name}", where=str(path),
                        next_step="put the Avro schema of the rows there, or give schema=… to hudi.ingest")
    return schemas.avro_to_spark(json.loads(path.read_text(encoding="utf-8")))


def read(spark: SparkSession, table: Table) -> DataFrame:
    """The rows of the table as of its last commit."""
    return reader(spark).load(table.base)


def properties(table: Table) -> Dict[str, str]:
    """What `.hoodie/hoodie.properties` of the table says. Raises LakeError when there is no table."""
    found = timeline.properties(table)
    if not found:
        raise LakeError(f"there is no Hudi table {table.name}", where=table.base,
                        next_step="ingest something into it first (a run without any row makes no table)")
    return found


def exists(table: Table) -> bool:
    """Whether something has been written to the table yet."""
    return bool(timeline.properties(table))


def check_version(table: Table) -> None:
    """Raise LakeError when the table is there and has another version than 6."""
    version = properties(table).get("hoodie.table.version") if exists(table) else TABLE_VERSION
    if version != TABLE_VERSION:
        raise LakeError(f"table {table.name} has Hudi table version {version}", where=f"{table.base}/.hoodie",
                        expected=f"version {TABLE_VERSION}, which Athena reads",
                        next_step="some writer did not set hoodie.write.table.version=6; start clean with hudi.drop")


def drop(spark: Optional[SparkSession], world: World, table: Table) -> None:
    """Start clean: remove the catalog entries, the files, the checkpoints and the dead letters of the table.

    Raises: LakeError: an ingest into it is going on, whose next commit would name files that are no more.
    """
    with stream.alone(world, table):
        if spark is not None:
            for entry in all_entries(table):
                spark.sql(f"DROP TABLE IF EXISTS {identifier(entry)}")
        # labels first: they are of no other table, also when the rest is not reached
        for place in (f"{world.lake.checkpoints}/{table.name}", dead_letters_path(world, table.name), table.base):
            files.remove(place)


def dead_letters(spark: SparkSession, world: World, table: Union[Table, str]) -> DataFrame:
    """The messages that could not be ingested: reason, topic, partition, offset, file, text (base64 where it is Avro).
    """
    return read_dead_letters(spark, dead_letters_path(world, table if isinstance(table, str) else table.name))


def read_independent(table: Table, *, as_of: Optional[Tuple[World, str]] = None, optimized: bool = False,
                     where: Optional[Mapping[str, Any]] = None) -> pandas.DataFrame:
    """The rows of the table read by hudi-rs, which shares no code with Spark or Hudi's Java.

    Args:
        as_of: the world and a label or instant in it, instead of now.
        optimized: base files only, what a `…_ro` view shows.
        where: {field: value} that the rows have; the value is not null.

    Raises:
        LakeError: as `hudi.as_of` does. Or a compaction is pending, and was followed by commits: hudi-rs (0.5.0) does
            not see what they wrote. Or it cannot read the table: of a "mor" table, a log by one commit that deleted a
            record and moved another out of the same file, because Hudi puts both into one block and gives the second
            an ordering value of its own type. Compaction cures both.
    """
    import pandas
    import pyarrow
    import pyarrow.compute
    from hudi import HudiReadConfig, HudiReadOptions, HudiTableBuilder

    instant = resolve(as_of[0], table, as_of[1]) if as_of else ""
    if instant and not check_readable(table, instant):
        return pandas.DataFrame()
    first = next(iter(pending_compactions(table)), None)
    if first and not optimized and any(first < c.instant <= (instant or c.instant) for c in completed(table)):
        raise LakeError(f"the compaction {first} of {table.name} is pending: hudi-rs does not see what came after it",
                        where=table.base, next_step="run the compaction: hudi.run_compaction(spark, table)")
    system, path = files.open_address(table.base)
    address = path if system.type_name == "local" else table.base.replace("s3a:", "s3:")
    options = HudiReadOptions()
    if instant:
        options = options.with_as_of_timestamp(instant)
    if optimized:
        options = options.with_hudi_option(HudiReadConfig.USE_READ_OPTIMIZED_MODE.value, "true")
    try:
        batches = HudiTableBuilder.from_base_uri(address).build().read(options)
    except Exception as e:
        raise LakeError(f"hudi-rs cannot read {table.name}: {e}", where=table.base,
                        next_step="Spark reads it: hudi.read(spark, table)") from e
    if not batches:
        return pandas.DataFrame()
    found = pyarrow.Table.from_batches(batches)
    for name, value in (where or {}).items():
        found = found.filter(pyarrow.compute.equal(found[name], value))
    return found.to_pandas()
