"""Changes into a Hudi table, batch by batch: read a topic or landed files → decode → one Hudi commit.

How far the source has been read stands in the commit itself (as Hudi's own streamer does it), so rows and progress
become visible together or not at all: after a crash Hudi rolls the half-written commit back and the batch is done
again.

Why not `writeStream.format("hudi")`: with ignore.failed.batch=false a failed batch ends the whole Spark server, which
others share (seen, Hudi 1.0.2); with true, its documentation says, the batch is skipped. Neither will do.

No Python runs inside Spark, so the same code serves Spark Connect, spark-submit and EMR. Use it through `hudi.ingest`.
"""
from __future__ import annotations

import contextlib
import json
import re
import threading
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Callable, ContextManager, Dict, List, Optional, Tuple

from .. import stack
from ..base import files
from ..base.errors import LakeError, WorkbenchError
from ..landing.batch import cause, counted
from ..spark import causes, gone, is_gone, unreachable
from . import changes, decode, decode_avro, decode_landed
from .timeline import archived, check_clock, completed, write_stats

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from ..base.params import World
    from .tables import Table

OUTCOMES = {decode.UPSERT: "upserts", decode.DELETE: "deletes", decode.TOMBSTONE: "tombstones",
            decode.DEAD: "dead_letters"}
# What is written to a table without a commit: there is nothing to merge with. An upsert starts one Spark task for each
# partition that it writes; a bulk insert a fixed number.
FIRST_LOAD = {
    "hoodie.datasource.write.operation": "bulk_insert",
    "hoodie.bulkinsert.sort.mode": "GLOBAL_SORT",  # one file in a partition
    "hoodie.combine.before.insert": "false",
    "hoodie.datasource.write.row.writer.enable": "true",
}
# Many rows stay with the task that has read them: a file of each task in a partition, and nothing travels between them.
FIRST_LOAD_LARGE = {**FIRST_LOAD, "hoodie.bulkinsert.sort.mode": "PARTITION_SORT"}
LARGE = 50_000
PROGRESS = "_workbench_progress"  # Hudi keeps options that begin with _ in the commit's extra metadata
FORGOTTEN = "*"  # among the sources in a progress: what others had read before is not known
BUCKETS = "_workbench_buckets"  # of a table with a BUCKET index, put there by its options


@dataclass(frozen=True)
class Ingested:
    """What one run did, counted from the data; messages = upserts + deletes + tombstones + dead_letters."""

    messages: int = 0
    upserts: int = 0
    deletes: int = 0
    tombstones: int = 0
    dead_letters: int = 0
    batches: int = 0
    seconds: float = 0.0

    def __repr__(self) -> str:
        return counted("ingested", self.messages, upserts=self.upserts, deletes=self.deletes,
                       tombstones=self.tombstones, dead_letters=self.dead_letters)

    def plus(self, counts: Dict[str, int], seconds: float) -> Ingested:
        """With one more batch."""
        new = {name: getattr(self, name) + counts.get(name, 0) for name in OUTCOMES.values()}
        return replace(self, **new, messages=self.messages + sum(counts.values()), batches=self.batches + 1,
                       seconds=round(self.seconds + seconds, 3))


@dataclass
class Job:
    """One source into one table."""

    spark: SparkSession
    world: World
    source: changes.Source
    table: Table
    schema: Any  # None for an Avro topic: the newest one in the registry
    batch: int = 200_000  # most messages (topic) or files (landed) of one commit; bounds memory
    replay: bool = False  # read the source from its beginning, once more
    done: Ingested = field(default_factory=Ingested)
    _reader: Any = None
    _schemas: Optional[decode_avro.Schemas] = None
    _held: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    _tidied: bool = False
    _view: str = field(default_factory=lambda: f"workbench_batch_{uuid.uuid4().hex}")

    @property
    def where(self) -> str:
        return f"{self.source} into {self.table.database}.{self.table.name} ({self.table.base})"

    def step(self) -> bool:
        """Do one batch; False when there is nothing new. Raises LakeError when it could not be written."""
        began = time.monotonic()
        if self._reader is None:
            self._held.enter_context(alone(self.world, self.table))
            self._held.enter_context(causes(self.spark))
            self._reader = changes.reader(self.spark, self.world, self.source, self.table.name, self.batch)
        newest = last_commit(self.table)
        if not self.replay:  # what a commit lacks stays lacking, however often the ingest is run after it
            self._complete(newest)
        self._same_buckets(newest)
        all_progress = progress_in(newest)
        if not newest and was_written(self.table):
            all_progress = {FORGOTTEN: {"batch": -1}}
        last = all_progress.get(self.source.id, {})
        if FORGOTTEN in all_progress and not last:
            self._forgotten()
        # behind the letters of batches that nobody knows of, which stay until the replay has written all its own
        number = last.get("batch", self._last_letters() if self.replay else -1) + 1
        since = number if self.replay else last.get("since", 0)
        try:
            batch = self._reader.next({} if self.replay else last, number)
            if batch is None:  # now that a replay, also one that began in another run, is done
                if not self._tidied:
                    self._keep_letters(last.get("since", 0), number)
                    self._tidied = True
                return False
            check_clock(self.table)
            reached = {**batch.reached, "batch": number, "since": since}
            counts = self._write(batch, {**all_progress, self.source.id: reached}, number)
        except WorkbenchError:
            raise
        except Exception as e:
            from_kafka = isinstance(self.source, changes.Topic)
            lost = from_kafka and stack.lost(self.world, "kafka", self.world.kafka.bootstrap)
            raise lost or failed(self.spark, f"{type(e).__name__}: {e}", self.where) from e
        written = last_commit(self.table)
        if progress_in(written).get(self.source.id) != reached:  # or the next step would read the very same again
            raise LakeError("Hudi wrote a batch without a commit that holds its progress", where=self.where,
                            next_step="look for options in `extra` of the table that change its commits, "
                                      "hoodie.allow.empty.commit above all; nothing is lost, run the ingest again")
        self._complete(written)
        self.replay = False
        self.done = self.done.plus(counts, time.monotonic() - began)
        return True

    def _complete(self, commit: Dict[str, Any]) -> None:
        refused = write_errors(commit)
        if refused:
            raise LakeError(f"Hudi made a commit without {refused} of its rows, which it could not write",
                            where=self.where, next_step="the log of the spark service says why (write errors); mend "
                                                        "that, then hudi.ingest(…, replay=True)")

    def _forgotten(self) -> None:
        """To start over in silence would write no row wrong, but take hours, and clear away the dead letters."""
        if not self.replay:
            raise LakeError(
                f"table {self.table.name} was written to, and none of its commits says how far {self.source} was read",
                where=self.where, expected="an ingest's own commit on the timeline, or a new table",
                next_step="another tool made the table, or so many commits of others came since that Hudi has archived "
                          "the ingest's. Read the source from its beginning: hudi.ingest(…, replay=True), where rows "
                          "change only if the ordering field says so. Or start clean: hudi.drop")

    def _same_buckets(self, commit: Dict[str, Any]) -> None:
        """With another number of buckets a key is looked for in another file, not found, and inserted once more."""
        was = commit.get("extraMetadata", {}).get(BUCKETS, self.table.buckets)
        if self.table.index == "BUCKET" and int(was) != self.table.buckets:
            raise LakeError(f"table {self.table.name} has {was} buckets in a partition, not {self.table.buckets}",
                            where=self.where, expected=f"buckets={was}",
                            next_step="write it as it was made, or drop it and ingest it anew")

    def close(self) -> None:
        """Give back the table, and what it holds of Kafka."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        self._held.close()

    def _write(self, batch: changes.Batch, reached: dict, number: int) -> Dict[str, int]:
        from pyspark.sql import functions as F

        table = self.table
        rows = self._decoded(batch)
        is_dead = F.col("outcome") == decode.DEAD
        text = F.when(is_dead, F.col("text")).alias("text")
        rows = rows.select("row", "outcome", "reason", *decode.ORIGIN, text)
        if not batch.few:
            rows = self._cached(rows)
        try:
            key = F.struct(*[f"row.{name}" for name in table.key])
            new = not completed(table)
            counts, once = _count_few(rows, key) if batch.few else _count(rows, key, new)
            place = self._letters(f"/{number:08d}")
            if counts.get("dead_letters"):
                # written over when the batch is done again, hence exactly once
                (rows.where(is_dead).select("reason", *decode.ORIGIN, "text").coalesce(1)
                 .write.mode("overwrite").json(place))
            else:
                files.remove(place)  # of a try that failed
            # without otherwise(): nullable, so that a table written without this column takes it in
            flag = F.when(F.col("outcome") == decode.DELETE, True).when(F.col("outcome") == decode.UPSERT, False)
            flags = [flag.alias(decode.DELETED)] if table.deletes == "hard" else []
            written = rows.where(F.col("outcome").isin(decode.UPSERT, decode.DELETE)).select("row.*", *flags)
            if new and not once:
                written = newest(written, table)
            first = first_load(counts.get("upserts", 0), written.schema) if new else {}
            options = {**table.options(), **first, **table.extra, PROGRESS: json.dumps(reached)}
            written.write.format("hudi").options(**options).mode("append").save(table.base)
        finally:
            if not batch.few:
                self.spark.catalog.dropTempView(self._view)
        return counts

    def _decoded(self, batch: changes.Batch) -> DataFrame:
        table = self.table
        of_table = dict(key=table.key, ordering=table.ordering, partition=table.partition,
                        global_index=table.index.startswith("GLOBAL_"))
        if self.source.format == "json":
            return decode.rows(batch.raw, self.schema, prefix=batch.prefix, **of_table)
        if self._schemas is None:
            self._schemas = decode_avro.Schemas(self.world, self.source.topic, self.schema)
        if batch.files is not None:
            self._schemas.meet_landed(batch.files.whole)
            return decode_landed.rows(self.spark, batch.files, self._schemas, **of_table)
        self._schemas.meet(batch.schemas)
        return decode_avro.rows(batch.raw, self._schemas, **of_table)

    def _cached(self, rows: DataFrame) -> DataFrame:
        """The rows, parsed once for the counts, the dead letters and the table.

        By way of a view: Spark Connect analyses a DataFrame anew for each action, and then takes what it reads from
        Kafka for something else than what persist() has put into the cache."""
        rows.createOrReplaceTempView(self._view)
        self.spark.catalog.cacheTable(self._view)
        return self.spark.table(self._view)

    def _keep_letters(self, first: int, stop: int) -> None:
        """Remove the dead letters of batches before the last replay, and of batches that were never committed."""
        for name in self._letter_folders():
            if not first <= int(name) < stop:
                files.remove(self._letters("/" + name))

    def _last_letters(self) -> int:
        """The number of the last batch that has dead letters; -1 where none has."""
        return max(map(int, self._letter_folders()), default=-1)

    def _letter_folders(self) -> List[str]:
        return [i.base_name for i in files.entries(self._letters("")) if i.base_name.isdigit()]

    def _letters(self, name: str) -> str:
        return f"{dead_letters_path(self.world, self.table.name)}/{self.source.id}{name}"


class Stream:
    """An ingest that goes on until `stop()`, in a thread of this process; it ends between two batches."""

    def __init__(self, job: Job, pause: float, check: Callable[[], None]):
        self._job, self._pause, self._check = job, pause, check
        self._stop, self._error = threading.Event(), None  # type: ignore[var-annotated]
        self._thread = threading.Thread(target=self._run, name=f"ingest {job.table.name}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                if not self._job.step():
                    self._stop.wait(self._pause)
        except Exception as e:  # noqa: BLE001 - handed to whoever asks, see failure() and stop()
            self._error = e
        finally:
            self._job.close()

    @property
    def active(self) -> bool:
        """Whether it is still going on."""
        return self._thread.is_alive()

    def counts(self) -> Ingested:
        """What it has done so far."""
        return self._job.done

    def failure(self) -> Optional[str]:
        """What ended it; None while all is well. For `failed=` of wait_until."""
        return str(self._error) if self._error else None

    def stop(self, timeout: float = 120) -> Ingested:
        """End it after the batch that is under way. Raises LakeError when one has failed or does not end."""
        self._stop.set()
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise LakeError(f"a batch did not end in {timeout:g} s", where=self._job.where, next_step="stop it again")
        if self._error:
            raise self._error
        self._check()
        return self._job.done


def _count(rows: DataFrame, key: Column, compare: bool) -> Tuple[Dict[str, int], bool]:
    """How many of each outcome, and whether all are upserts of different keys (if they are to be compared: that takes
    two shuffles), in one job."""
    from pyspark.sql import functions as F

    keys = F.count_distinct(key) if compare else F.lit(0)
    found = rows.groupBy("outcome").agg(F.count("*").alias("n"), keys.alias("keys")).collect()
    counts = {OUTCOMES[r["outcome"]]: r["n"] for r in found}
    unique = all(r["n"] == r["keys"] for r in found if r["outcome"] == decode.UPSERT)
    return counts, unique and "deletes" not in counts


def _count_few(rows: DataFrame, key: Column) -> Tuple[Dict[str, int], bool]:
    """The same for rows that travel with the query: without an aggregation Spark answers from them, without a job."""
    found = rows.select("outcome", key.alias("key")).collect()
    keys = Counter(tuple(r["key"]) for r in found if r["outcome"] == decode.UPSERT)
    counts = Counter(OUTCOMES[r["outcome"]] for r in found)
    return dict(counts), len(keys) == counts["upserts"] and not counts["deletes"]


def alone(world: World, table: Table) -> ContextManager[None]:
    """Hold a table: two jobs that write one would read the same progress, and each roll the other's commit back.

    Raises (when it is entered): LakeError: an ingest into it is going on; names its process.
    """
    return files.alone(f"{world.lake.checkpoints}/{table.name}", f"ingest into {table.database}.{table.name}",
                       "wait until it is done; a continuous one ends with stop()")


def first_load(rows: int, schema: Any = None) -> Dict[str, str]:
    """The Hudi options of the first commit of a table, for about so many rows, of each key one (see newest).

    Where its schema holds a list and a decimal of at most 18 digits, Hudi's writer of records writes it. That of rows
    changes to Spark's old format for the sake of such a decimal, and no merge could read the lists in it (seen with
    1.0.2: "Index -1 out of bounds").
    """
    text = schema.simpleString() if schema is not None else ""
    small = any(int(digits) <= 18 for digits in re.findall(r"decimal\((\d+),", text))
    by_records = {"hoodie.datasource.write.row.writer.enable": "false"} if small and "array<" in text else {}
    return {**(FIRST_LOAD_LARGE if rows >= LARGE else FIRST_LOAD), **by_records}


def newest(rows: DataFrame, table: Table) -> DataFrame:
    """Of each key the row with the greatest ordering value, and none where that is a hard delete.

    As in an upsert, a key that is in two partitions counts as two where the index is not a global one.

    Hudi would do it too (hoodie.combine.before.insert), but then with its writer of records instead of that of rows,
    which takes twice as long.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    fields = table.key if table.index.startswith("GLOBAL_") else dict.fromkeys((*table.key, *table.partition))
    versions = Window.partitionBy(*fields).orderBy(F.col(table.ordering).desc())
    last = rows.withColumn("_version", F.row_number().over(versions)).where("_version = 1").drop("_version")
    return last.where(~F.col(decode.DELETED)) if decode.DELETED in rows.columns else last


def last_commit(table: Table) -> Dict[str, Any]:
    """The metadata of the table's last commit by an ingest; compactions and other writers say no progress."""
    bodies = (done.body for done in reversed(completed(table)))
    return next((body for body in bodies if body.get("extraMetadata", {}).get(PROGRESS)), {})


def was_written(table: Table) -> bool:
    """Whether the table has commits, or had some that were archived."""
    return bool(completed(table)) or archived(table)


def progress_in(commit: Dict[str, Any]) -> Dict[str, Dict[str, Any]]:
    """{source id: how far it has been read}, as a commit's metadata says."""
    return json.loads(commit.get("extraMetadata", {}).get(PROGRESS, "{}"))


def write_errors(commit: Dict[str, Any]) -> int:
    """How many rows a commit does not hold although they were given to Hudi."""
    return sum(stat.get("totalWriteErrors") or 0 for _, stat in write_stats(commit))


def dead_letters_path(world: World, name: str) -> str:
    """Folder of the dead letters of a table."""
    return f"{world.lake.dead_letters}/{name}"


def failed(spark: SparkSession, reason: str, where: str) -> WorkbenchError:
    """The error for a batch that was not written. `reason` begins with the class of Spark's exception."""
    if is_gone(reason) or unreachable(spark):
        return gone(spark, f"{where}: {cause(reason)}")
    return LakeError(f"a batch was not written: {cause(reason)}", where=where,
                     next_step="see the log of the spark service; nothing of the batch shows, run the ingest again")
