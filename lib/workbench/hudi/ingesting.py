"""Changes into a Hudi table, batch by batch: read a topic or landed files → decode → one Hudi commit.

How far the source has been read stands in the commit itself (as Hudi's own streamer does it), so rows and progress
become visible together or not at all: after a crash Hudi rolls the half-written commit back and the batch is done
again.

Why not `writeStream.format("hudi")`: with ignore.failed.batch=false a failed batch ends the whole Spark server, which
others share (seen, Hudi 1.0.2); with true, its documentation says, the batch is skipped. Neither will do.

No Python runs inside Spark, so the same code serves Spark Connect, spark-submit and EMR. Use it through `hudi.ingest`
and `hudi.stream`.
"""
from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any, Dict, List, Optional, Tuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ..base import files
from ..base.errors import LakeError
from ..base.params import World
from ..landing.batch import counted
from ..spark import answered, causes
from . import changes, decode, decode_avro
from .loading import first_load, newest
from .tables import BUCKETS, Table, alone, dead_letters_path
from .timeline import Done, archived, check_clock, completed, write_stats, written

OUTCOMES = {decode.UPSERT: "upserts", decode.DELETE: "deletes", decode.TOMBSTONE: "tombstones",
            decode.DEAD: "dead_letters"}

PROGRESS = "_workbench_progress"  # Hudi keeps options that begin with _ in the commit's extra metadata
FORGOTTEN = "*"  # among the sources in a progress: what others had read before is not known


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
            self._reader = changes.reader(self.spark, self.world, self.source, self.table, self.batch)
        there = written(self.table)
        done = completed(self.table, there=there)
        progress = self._progress(done)
        last = progress.get(self.source.id, {})
        # behind the letters of batches that nobody knows of, which stay until the replay has written all its own
        number = last.get("batch", self._last_letters() if self.replay else -1) + 1
        since = number if self.replay else last.get("since", 0)
        with answered(self.spark, "a batch was not written", self.where,
                      "see the log of the spark service; nothing of the batch shows, run the ingest again",
                      self.world if isinstance(self.source, changes.Topic) else None):
            batch = self._reader.next({} if self.replay else last, number)
            if batch is None:  # now that a replay, also one that began in another run, is done
                if not self._tidied:
                    self._keep_letters(last.get("since", 0), number)
                    self._tidied = True
                return False
            check_clock(self.table, there)
            reached = {**batch.reached, "batch": number, "since": since}
            counts = self._write(batch, {**progress, self.source.id: reached}, number, not done)
        commit = last_commit(self.table)
        if progress_in(commit).get(self.source.id) != reached:  # or the next step would read the very same again
            raise LakeError("Hudi wrote a batch without a commit that holds its progress", where=self.where,
                            next_step="look for options in `extra` of the table that change its commits, "
                                      "hoodie.allow.empty.commit above all; nothing is lost, run the ingest again")
        self._complete(commit)
        self.replay = False
        self.done = self.done.plus(counts, time.monotonic() - began)
        return True

    def _progress(self, done: List[Done]) -> Dict[str, Dict[str, Any]]:
        """How far the table's last commit says that each source was read. Raises LakeError: where nothing must be added
        to what that commit has left."""
        commit = last_commit(self.table, done)
        if not self.replay:  # what a commit lacks stays lacking, however often the ingest is run after it
            self._complete(commit)
        self._same_buckets(commit)
        if not commit and (done or archived(self.table)):
            progress: Dict[str, Dict[str, Any]] = {FORGOTTEN: {"batch": -1}}
        else:
            progress = progress_in(commit)
        # to start over in silence would write no row wrong, but take hours, and clear away the dead letters
        if FORGOTTEN in progress and self.source.id not in progress and not self.replay:
            raise LakeError(
                f"table {self.table.name} was written to, and none of its commits says how far {self.source} was read",
                where=self.where, expected="an ingest's own commit on the timeline, or a new table",
                next_step="another tool made the table, or so many commits of others came since that Hudi has archived "
                          "the ingest's. Read the source from its beginning: hudi.ingest(…, replay=True), where rows "
                          "change only if the ordering field says so. Or start clean: hudi.drop")
        return progress

    def _complete(self, commit: Dict[str, Any]) -> None:
        refused = sum(stat.get("totalWriteErrors") or 0 for _, stat in write_stats(commit))
        if refused:
            raise LakeError(f"Hudi made a commit without {refused} of its rows, which it could not write",
                            where=self.where, next_step="the log of the spark service says why (write errors); mend "
                                                        "that, then hudi.ingest(…, replay=True)")

    def _same_buckets(self, commit: Dict[str, Any]) -> None:
        """With another number of buckets a key is looked for in another file, not found, and inserted once more."""
        was = commit.get("extraMetadata", {}).get(BUCKETS, self.table.buckets)
        if self.table.index == "BUCKET" and int(was) != self.table.buckets:
            raise LakeError(f"table {self.table.name} has {was} buckets in a partition, not {self.table.buckets}",
                            where=self.where, expected=f"buckets={was}",
                            next_step="write it as it was made, or drop it and ingest it anew")

    def close(self) -> None:
        """Give back the table."""
        self._held.close()

    def _write(self, batch: changes.Batch, progress: Dict[str, Any], number: int, new: bool) -> Dict[str, int]:
        table = self.table
        rows = self._decoded(batch)
        is_dead = F.col("outcome") == decode.DEAD
        text = F.when(is_dead, F.col("text")).alias("text")
        rows = rows.select("row", "outcome", "reason", *decode.ORIGIN, text)
        if not batch.few:
            rows = self._cached(rows)
        try:
            key = F.struct(*[f"row.{name}" for name in table.key])
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
            options = {**table.options(), **first, **table.extra, PROGRESS: json.dumps(progress)}
            written.write.format("hudi").options(**options).mode("append").save(table.base)
        finally:
            if not batch.few:
                self.spark.catalog.dropTempView(self._view)
        return counts

    def _decoded(self, batch: changes.Batch) -> DataFrame:
        if self.source.format == "json":
            return decode.rows(batch.raw, self.schema, self.table)
        if self._schemas is None:
            self._schemas = decode_avro.Schemas(self.world, self.source.topic, self.schema)
        if batch.files is not None:
            self._schemas.meet(batch.files.whole)
            return decode_avro.landed(self.spark, batch.files, self._schemas, self.table)
        self._schemas.meet(batch.schemas)
        return decode_avro.rows(batch.raw, self._schemas, self.table)

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
        return f"{dead_letters_path(self.world, self.table)}/{self.source.id}{name}"


def _count(rows: DataFrame, key: Column, compare: bool) -> Tuple[Dict[str, int], bool]:
    """How many of each outcome, and whether all are upserts of different keys (if they are to be compared: that takes
    two shuffles), in one job."""
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


def last_commit(table: Table, done: Optional[List[Done]] = None) -> Dict[str, Any]:
    """The metadata of the table's last commit by an ingest; compactions and other writers say no progress."""
    bodies = (done.body for done in reversed(completed(table) if done is None else done))
    return next((body for body in bodies if body.get("extraMetadata", {}).get(PROGRESS)), {})


def progress_in(commit: Dict[str, Any]) -> Dict[str, Dict[str, Any]]:
    """{source id: how far it has been read}, as a commit's metadata says."""
    return json.loads(commit.get("extraMetadata", {}).get(PROGRESS, "{}"))
