"""Changes into a Hudi table, batch by batch: read a topic or landed files → decode → one Hudi
commit.

How far the source has been read stands in the commit itself (as Hudi's own streamer does it), so
rows and progress become visible together or not at all: after a crash Hudi rolls the half-written
commit back and the batch is done again.

Why not `writeStream.format("hudi")`: with ignore.failed.batch=false a failed batch ends the whole
Spark server, which others share (seen, Hudi 1.0.2); with true, its documentation says, the batch is
skipped. Neither will do.

No Python runs inside Spark, so the same code serves Spark Connect, spark-submit and EMR.
"""

import contextlib
import json
import threading
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import Any, Callable, Optional

from pyspark.sql import SparkSession
from pyspark.sql import types as T

from ..base import LakeError, World, files
from ..landing.batch import Counts
from ..spark import java_stacktraces, translate_errors
from . import changes, ddl, evolution
from .loading import write_batch
from .rewriting import finish_interrupted_rewrite, rewrite
from .tables import BUCKETS_KEY, Table, commit_lock, dead_letters_path, spark_reader, table_lock
from .timeline import (
    SCHEMA_CHANGE_KEY,
    CompletedAction,
    archive_folder,
    check_clock,
    check_version,
    completed_actions,
    write_stats,
)

PROGRESS_KEY = (
    "_workbench_progress"  # Hudi keeps options that begin with _ in the commit's extra metadata
)
# in how far a source was read: the topic of which the table was made since (recapture)
REPLACED_BY = "replaced_by"
UNKNOWN_PROGRESS = "*"  # among the sources in a progress: what others had read before is not known


@dataclass(frozen=True, repr=False)
class Ingested(Counts):
    """What one run did, counted from the data; messages = upserts + deletes + tombstones +
    dead_letters.
    """

    upserts: int = 0
    deletes: int = 0

    def __repr__(self) -> str:
        return self.describe("ingested", upserts=self.upserts, deletes=self.deletes)


def ingest(
    spark: SparkSession,
    world: World,
    source: changes.Source,
    table: Table,
    *,
    schema: Optional[T.StructType] = None,
    replay: bool = False,
    batch: int = 200_000,
    stop: Callable[[], bool] = lambda: False,
) -> Ingested:
    """Bring the changes of `source` into `table`, until all that is there has been written.

    Args:
        source: `Topic(name)` or `Landed(prefix)`, JSON both, or with `format="avro"`. The table's
            commits say how far each has been read: a second run goes on from there. A table that
            was written to, and has no such commit (another tool made it, or the commit was
            archived), takes a `replay`.
        schema: reader schema; without it that of data/schemas/<table name>.avsc, and for Avro the
            newest one that the registry has of the topic, with what earlier messages had beside.
            Given, it is a word on types as well: what it cannot read is a dead letter, and a column
            of whole numbers becomes one of texts where it says string. A key column keeps its type.
        replay: read the source from its beginning once more (rows change only where the ordering
            field says so).
        batch: most messages or files of one commit.
        stop: asked after each batch whether to leave it at that; the next run goes on from there.

    The table follows the source's schema (see evolving): columns are added and become wider, those
    that are gone stay. The commit says so, see `hudi.schema_changes`.

    Raises:
        LakeError: a column cannot hold what the source's schema says now (names both types, and the
            choices); a batch failed (nothing of it is visible; the next run does it again), how far
            the source was read is not known, or the table version changed.
        StackError: the registry does not answer, or Spark or Kafka is gone. Nothing of the batch
            shows then.
    """
    job = IngestJob(spark, world, source, table, schema, batch, replay)
    job.run(lambda more: not more or stop())
    return job.ingested


def stream(
    spark: SparkSession,
    world: World,
    source: changes.Source,
    table: Table,
    *,
    schema: Optional[T.StructType] = None,
) -> "Stream":
    """Bring the changes of `source` into `table`, and go on with what comes later, until `stop()`
    of what this returns. Arguments as of `ingest`.
    """
    return Stream(IngestJob(spark, world, source, table, schema))


class Stream:
    """An ingest that goes on until `stop()`, in a thread of this process; it ends between two
    batches.
    """

    def __init__(self, job: "IngestJob"):
        self._job, self._stop, self._end = job, threading.Event(), Future()  # type: ignore[var-annotated]
        threading.Thread(target=self._run, name=f"ingest {job.table.name}", daemon=True).start()

    def _run(self) -> None:
        try:  # between two looks at a source that had nothing new it waits
            self._end.set_result(self._job.run(lambda more: self._stop.wait(0 if more else 0.2)))
        except Exception as e:  # noqa: BLE001 - handed to whoever asks, see failure() and stop()
            self._end.set_exception(e)

    def counts(self) -> Ingested:
        """What it has done so far."""
        return self._job.ingested

    def failure(self) -> Optional[str]:
        """What ended it; None while all is well. For `failed=` of wait_until."""
        return str(self._end.exception()) if self._end.done() and self._end.exception() else None

    def stop(self, timeout: float = 120) -> Ingested:
        """End it after the batch that is under way. Raises LakeError when one has failed or does
        not end.
        """
        self._stop.set()
        wait([self._end], timeout)
        if not self._end.done():
            raise LakeError(
                f"a batch did not end in {timeout:g} s",
                location=self._job.location,
                hint="stop it again",
            )
        self._end.result()
        return self._job.ingested


@dataclass
class IngestJob:
    """One source into one table."""

    spark: SparkSession
    world: World
    source: changes.Source
    table: Table
    schema: Optional[T.StructType] = None
    batch: int = 200_000
    replay: bool = False
    ingested: Ingested = field(default_factory=Ingested)

    def __post_init__(self) -> None:
        self._reader = changes.create_reader(
            self.spark, self.world, self.source, self.table, self.batch, self.schema
        )
        self._dead_letters = f"{dead_letters_path(self.world, self.table)}/{self.source.id}"
        self._cleaned_up = self._rewrite_finished = False

    @property
    def location(self) -> str:
        return f"{self.source} into {self.table.database}.{self.table.name} ({self.table.base})"

    def run(self, ended: Callable[[bool], bool]) -> None:
        """Do one batch after the other; after each look `ended` is told whether there was anything
        new.
        """
        with table_lock(self.world, self.table), java_stacktraces(self.spark):
            while not ended(self._ingest_batch()):
                pass
        check_version(self.table)

    def _ingest_batch(self) -> bool:
        """Do one batch; False when there is nothing new. Raises LakeError when it could not be
        written.
        """
        done = completed_actions(self.table)
        if not self._rewrite_finished:
            finish_interrupted_rewrite(self.spark, self.table, done)
            self._rewrite_finished = True
        progress = self._progress(done)
        last = progress.get(self.source.id, {})
        # behind the letters of batches that nobody knows of, which stay until the replay has
        # written all its own
        number = (
            last.get("batch", max(self._dead_letter_batches(), default=-1) if self.replay else -1)
            + 1
        )
        since = number if self.replay else last.get("since", 0)
        with translate_errors(
            self.spark,
            "a batch was not written",
            self.location,
            "see the log of the spark service; nothing of the batch shows, run the ingest again",
            self.world if isinstance(self.source, changes.Topic) else None,
        ):
            batch = self._reader.next({} if self.replay else last, number)
            if batch is None:
                if (
                    not self._cleaned_up
                ):  # once, now that a replay, also one that began in another run, is done
                    for n, letters in self._dead_letter_batches().items():
                        if (
                            not last.get("since", 0) <= n < number
                        ):  # before the replay, or of a batch never committed
                            files.remove(letters)
                    ddl.sync_catalog(
                        self.spark, self.table
                    )  # also where that failed after an earlier commit
                    self._cleaned_up = True
                return False
            check_clock(self.table)
            had = evolution.table_columns(done)
            columns, changed, fields = self._evolve_columns(had, last.get("fields"))
            if had and evolution.needs_rewrite(had, columns):
                rewrite(
                    self.spark,
                    self.table,
                    spark_reader(self.spark).load(self.table.base),
                    columns,
                    {PROGRESS_KEY: json.dumps(progress)},
                )
                self._require_no_write_errors(last_ingest_commit(self.table))
            reached = {**batch.progress, "batch": number, "since": since, "fields": fields}
            with commit_lock(self.table) if done else contextlib.nullcontext():
                counts = write_batch(
                    self.spark,
                    batch.rows,
                    self.table,
                    f"{self._dead_letters}/{number:08d}",
                    in_memory=batch.in_memory,
                    is_first_commit=not done,
                    columns=columns,
                    options={
                        PROGRESS_KEY: json.dumps({**progress, self.source.id: reached}),
                        SCHEMA_CHANGE_KEY: changed,
                    },
                )
        commit = last_ingest_commit(self.table)
        if (
            read_progress(commit).get(self.source.id) != reached
        ):  # or the next step would read the very same again
            raise LakeError(
                "Hudi wrote a batch without a commit that holds its progress",
                location=self.location,
                hint="look for options in `extra` of the table that change its commits, "
                "hoodie.allow.empty.commit above all; nothing is lost, run the ingest again",
            )
        self._require_no_write_errors(commit)
        self.replay = False
        self.ingested += Ingested(messages=sum(counts.values()), batches=1, **counts)
        ddl.sync_catalog(self.spark, self.table)
        return True

    def _evolve_columns(
        self, table: Optional[T.StructType], before: Any
    ) -> tuple[T.StructType, str, dict[str, str]]:
        """The columns of the table with this batch, what has changed in the source's schema since
        it had the fields `before`, and those that it has now.
        """
        rows, newest = self._reader.schemas
        now = evolution.field_types(newest)
        if table is None:
            columns = evolution.merge_schemas(self.table.name, rows)
            check_ordering(self.table, columns)
            return columns, "", now
        columns = evolution.evolve(
            self.table.name, table, rows, self.schema is not None, self.table.key
        )
        return (
            columns,
            evolution.describe_change(
                before or evolution.field_types(table), now, evolution.field_types(columns)
            ),
            now,
        )

    def _dead_letter_batches(self) -> dict[int, str]:
        """{number: address of its dead letters} of the batches that have some."""
        found = (info.base_name for info in files.list_dir(self._dead_letters))
        return {int(name): f"{self._dead_letters}/{name}" for name in found if name.isdigit()}

    def _progress(self, done: list[CompletedAction]) -> dict[str, dict[str, Any]]:
        """How far the table's last commit says that each source was read. Raises LakeError: where
        nothing must be added to what that commit has left.
        """
        commit = last_ingest_commit(self.table, done)
        if (
            not self.replay
        ):  # what a commit lacks stays lacking, however often the ingest is run after it
            self._require_no_write_errors(commit)
        self._require_same_buckets(commit)
        if not commit and (done or archive_folder(self.table)):
            progress: dict[str, dict[str, Any]] = {UNKNOWN_PROGRESS: {"batch": -1}}
        else:
            progress = read_progress(commit)
        replaced = progress.get(self.source.id, {}).get(REPLACED_BY)
        if replaced:
            raise LakeError(
                f"table {self.table.name} was captured anew, and {self.source} is of the capture before",
                location=self.location,
                expected=f"topic {replaced}",
                hint=f"ingest topic {replaced}; to go back to the old one: hudi.drop, then ingest it",
            )
        # to start over in silence would write no row wrong, but take hours, and clear away the dead
        # letters
        if UNKNOWN_PROGRESS in progress and self.source.id not in progress and not self.replay:
            raise LakeError(
                f"table {self.table.name} was written to, and none of its commits says how far {self.source} was read",
                location=self.location,
                expected="an ingest's own commit on the timeline, or a new table",
                hint="another tool made the table, or so many commits of others came since that Hudi has archived "
                f"the ingest's: {changes.REPLAY_HINT}",
            )
        return progress

    def _require_no_write_errors(self, commit: dict[str, Any]) -> None:
        refused = sum(stat.get("totalWriteErrors") or 0 for _, stat in write_stats(commit))
        if refused:
            raise LakeError(
                f"Hudi made a commit without {refused} of its rows, which it could not write",
                location=self.location,
                hint="the log of the spark service says why (write errors); mend "
                "that, then hudi.ingest(…, replay=True)",
            )

    def _require_same_buckets(self, commit: dict[str, Any]) -> None:
        """With another number of buckets a key is looked for in another file, not found, and
        inserted once more.
        """
        was = commit.get("extraMetadata", {}).get(BUCKETS_KEY, self.table.buckets)
        if self.table.index == "BUCKET" and int(was) != self.table.buckets:
            raise LakeError(
                f"table {self.table.name} has {was} buckets in a partition, not {self.table.buckets}",
                location=self.location,
                expected=f"buckets={was}",
                hint="write it as it was made, or drop it and ingest it anew",
            )


def check_ordering(table: Table, columns: T.StructType) -> None:
    """Raises LakeError: Hudi 1.0.2 cannot write a date into a log's delete, nor compare the decimal
    of one.
    """
    kind = next((f.dataType for f in columns if f.name == table.ordering_column), None)
    deletes = table.deletes == "hard" or table.index.startswith("GLOBAL_")  # a move deletes, too
    if table.type == "mor" and deletes and isinstance(kind, (T.DecimalType, T.DateType)):
        raise LakeError(
            f"the ordering field {table.ordering} of {table.name} is {kind.simpleString()}: "
            "a Merge-on-Read table could not be read after its first delete",
            location=table.base,
            expected="a whole number, a text, a time, a double",
            hint='another ordering field, such as the place in the source\'s log; or type="cow". A '
            "table that has rows already: hudi.drop, and ingest anew",
        )


def last_ingest_commit(
    table: Table, actions: Optional[list[CompletedAction]] = None
) -> dict[str, Any]:
    """The metadata of the table's last commit by an ingest; compactions and other writers say no
    progress.
    """
    bodies = (
        done.metadata for done in reversed(completed_actions(table) if actions is None else actions)
    )
    return next((body for body in bodies if body.get("extraMetadata", {}).get(PROGRESS_KEY)), {})


def read_progress(commit: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """{source id: how far it has been read}, as a commit's metadata says."""
    return json.loads(commit.get("extraMetadata", {}).get(PROGRESS_KEY, "{}"))
