"""Ingest changes into a Hudi table in batches: read a topic or landed files, decode, one Hudi commit.

The commit itself holds the position in the source (Hudi's own streamer does the same). So rows and
progress become visible together or not at all. After a crash Hudi rolls the incomplete commit back,
and the batch is repeated.

Why not `writeStream.format("hudi")`: with ignore.failed.batch=false a failed batch ends the whole
Spark server, which others share (seen, Hudi 1.0.2). With true, its documentation says, the batch is
skipped. Neither is acceptable.

No Python runs inside Spark, so the same code serves Spark Connect, spark-submit and EMR.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
import uuid
from dataclasses import dataclass
from typing import Callable, Iterator, Optional, Sequence

from pyspark.sql import SparkSession
from pyspark.sql import types as T

from ..base import LakeError, World
from ..spark import innermost_cause, is_session_lost, java_stacktraces, translate_errors
from ..spark.batch import Counts
from ..topic import topics
from . import changes, ddl, evolution, lifecycle
from .changes import SourceProgress
from .loading import REWRITE_OPERATION, finish_rewrite, rewrite, write_batch
from .tables import (
    BUCKETS_KEY,
    Table,
    commit_lock,
    dead_letters_path,
    spark_reader,
    table_lock,
)
from .timeline import (
    PROGRESS_KEY,
    SCHEMA_CHANGE_KEY,
    CommitMetadata,
    CompletedAction,
    archive_folder,
    check_clock,
    check_type,
    check_version,
    completed_actions,
    extra_metadata,
    write_stats,
)

logger = logging.getLogger(__name__)

UNKNOWN_PROGRESS = "*"  # source id in a progress: the sources of earlier commits are unknown
MAX_WAIT_S = 1.0  # longest wait for a message of a topic
# Interval at which sources are read without a message: landed files (S3 bills the requests), topics that
# were recreated or have new partitions.
CHECK_INTERVAL_S = 10.0


@dataclass(frozen=True, repr=False)
class Ingested(Counts):
    """The result of an ingest, counted from the data.

    messages = upserts + deletes + tombstones + dead_letters.
    """

    upserts: int = 0
    deletes: int = 0

    def __repr__(self) -> str:
        """Return one line for a user."""
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
    """Ingest the changes of a source into a table, until all available ones are written.

    The table follows the source's schema (see evolution.py): columns are added and become wider,
    dropped ones stay. `hudi.schema_changes` lists these changes.

    Args:
        spark: the session.
        world: the world.
        source: `Topic(name)` or `Landed(prefix)`, in JSON or with `format="avro"`. The table's
            commits hold the position in each: a second run continues from there. A table that was
            written to without such a commit (another tool made it, or the commit was archived)
            needs a `replay`.
        table: the table.
        schema: reader schema of JSON of published types, by default that of data/schemas/<table name>.avsc.
            What it cannot read is a dead letter.
        replay: read the source from its beginning again (rows change only if the ordering field says
            so).
        batch: greatest number of messages in one commit. Those of landed files are estimated by the
            size of the files (see changes.BYTES_PER_LANDED_MESSAGE).
        stop: called after each batch; if it returns true, the ingest ends, and the next run continues.

    Raises:
        LakeError: a column cannot hold the type in the source's schema (names both types, and what
            to do); a batch failed (nothing of it is visible; the next run repeats it), or Hudi's
            compaction after it (the batch is visible); the position
            in the source is unknown; the table has another type; or the table version changed.
        StackError: the registry does not answer, or the connection to Spark or Kafka is lost.
            Nothing of the batch is visible then, or all of it; the next run continues after that.
    """
    return IngestJob(spark, world, source, table, schema, batch, replay).run(stop)


def wait_for_changes(
    world: World, jobs: Sequence[IngestJob], stop: threading.Event
) -> Iterator[list[IngestJob]]:
    """Yield the ingests that may have something new, until `stop` is set: a continuous ingest runs these.

    First all of them; then one as soon as its topic has a message, all every CHECK_INTERVAL_S, and
    none after MAX_WAIT_S. Nothing is locked during the wait.

    Args:
        world: the world.
        jobs: the ingests. The caller runs those that are yielded.
        stop: ends the wait.
    """
    checked_at = time.monotonic()
    yield [*jobs]
    while not stop.is_set():
        ends = [
            ((job.source.name, partition), offset)
            for job in jobs
            for partition, offset in job.reader.end_offsets.items()
        ]
        # of several tables of a topic, the one that has read least
        start = dict(sorted(ends, reverse=True))
        arrived = topics.wait_for_message(world, start, stop, MAX_WAIT_S)
        if time.monotonic() > checked_at + CHECK_INTERVAL_S:
            checked_at = time.monotonic()
            yield [*jobs]
        else:
            yield [job for job in jobs if job.source.name in arrived]


@dataclass
class IngestJob:
    """An ingest of one source into one table, which may run again and again.

    The fields are the arguments of `ingest`.
    """

    spark: SparkSession
    world: World
    source: changes.Source
    table: Table
    schema: Optional[T.StructType] = None
    batch: int = 200_000
    replay: bool = False

    def __post_init__(self) -> None:
        """Create the reader of the source."""
        self.reader = self._create_reader()
        self._dead_letters = f"{dead_letters_path(self.world, self.table)}/{self.source.id}"
        self._is_recovered = False
        self._last: Optional[SourceProgress] = None  # after the last batch of this job

    def _create_reader(self) -> changes.Reader:
        return changes.create_reader(
            self.spark, self.world, self.source, self.table, self.batch, self.schema
        )

    @property
    def location(self) -> str:
        """The source and the table, for error messages."""
        return f"{self.source} into {self.table.database}.{self.table.name} ({self.table.base})"

    def run(self, stop: Callable[[], bool] = lambda: False) -> Ingested:
        """Ingest batch by batch what the source has now, or until `stop` returns true after a batch.

        Messages that arrive in a topic during the run are left to the next one, so a topic that never rests does
        not keep a job from ending, and other tables from their turn. Files that land meanwhile are read.

        Returns:
            The counts of this run.

        Raises:
            WorkbenchError: as for `ingest`.
        """
        ingested = Ingested()
        with table_lock(self.world, self.table), java_stacktraces(self.spark):
            check_type(self.table)
            self._is_recovered = False
            self.reader.run_end = {}
            while (batch := self._ingest_batch()) is not None:
                ingested += batch
                if stop():
                    break
        check_version(self.table)
        return ingested

    def _ingest_batch(self) -> Optional[Ingested]:
        """Ingest the next batch; return None if nothing is new.

        Raises:
            LakeError: the batch could not be written.
        """
        started = time.monotonic()
        actions = completed_actions(self.table)
        progress = self._progress(actions)
        last = progress.get(self.source.id, {})
        if not self._is_recovered:
            self._recover(actions, last)
        with translate_errors(
            self.spark,
            "a batch was not written",
            self.location,
            "see the log of the spark service; nothing of the batch is visible, run the ingest again",
            self.world if isinstance(self.source, changes.Topic) else None,
        ):
            read = {} if self.replay else last
            batch = self.reader.next(read)
            if batch is None:
                lifecycle.remove_replaced_dead_letters(self._dead_letters, last)
                ddl.sync_catalog(self.spark, self.table)  # in case that it failed after a commit
                self._last = last
                return None
            _, latest_schema = self.reader.schemas
            current: SourceProgress = {
                **batch.progress,
                "start": changes.position(read),
                "dead_letters": f"{changes.position(read)}_{uuid.uuid4().hex}",
                "replay": uuid.uuid4().hex if self.replay else last.get("replay", ""),
                "fields": evolution.field_types(latest_schema),
            }
            try:
                counts = self._commit(batch, actions, progress, current)
            except Exception as e:
                self._finish(current, e)
                raise
        instant = self._finish(current)
        self.replay, self._last = False, current
        result = Ingested(messages=sum(counts.values()), batches=1, **counts)
        ddl.sync_catalog(self.spark, self.table)
        logger.info(
            "%s.%s: %d records, instant %s, %.1f s",
            self.table.database,
            self.table.name,
            result.messages,
            instant,
            time.monotonic() - started,
        )
        return result

    def _recover(self, actions: list[CompletedAction], last: SourceProgress) -> None:
        """Finish what an interrupted run has left, once for each run of the job."""
        if actions and actions[-1].metadata.get("operationType") == REWRITE_OPERATION:
            finish_rewrite(self.spark, self.table)
        lifecycle.settle_dead_letters(self._dead_letters, last)
        if self._last not in (None, last):  # another job wrote to the table, or dropped it
            self.reader = self._create_reader()
        self._is_recovered = True

    def _commit(
        self,
        batch: changes.Batch,
        actions: list[CompletedAction],
        progress: dict[str, SourceProgress],
        current: SourceProgress,
    ) -> dict[str, int]:
        """Write a batch with the progress after it; return the counts of `write_batch`."""
        check_clock(self.table)
        columns, change = self._evolve_columns(actions, progress)
        with commit_lock(self.table) if actions else contextlib.nullcontext():
            return write_batch(
                self.spark,
                batch.rows,
                self.table,
                f"{lifecycle.source_folder(self._dead_letters, current)}/.{current['dead_letters']}",
                in_memory=batch.in_memory,
                is_first_commit=not actions,
                columns=columns,
                options={
                    PROGRESS_KEY: json.dumps({**progress, self.source.id: current}),
                    SCHEMA_CHANGE_KEY: change,
                },
            )

    def _evolve_columns(
        self, actions: list[CompletedAction], progress: dict[str, SourceProgress]
    ) -> tuple[T.StructType, str]:
        """Return the columns of the table after this batch, and how the source's schema changed.

        If Hudi's readers cannot apply the new columns to older files, the table is rewritten.
        """
        rows_schema, latest_schema = self.reader.schemas
        old = evolution.table_columns(actions)
        versions = [schema for schema in (old, rows_schema) if schema]
        columns = evolution.merge_schemas(self.table.name, *versions)
        if old is None:
            check_ordering(self.table, columns)
            return columns, ""
        evolution.check_key_types(self.table.name, old, columns, self.table.key)
        fields = progress.get(self.source.id, {}).get("fields") or evolution.field_types(old)
        change = evolution.describe_change(
            fields, evolution.field_types(latest_schema), evolution.field_types(columns)
        )
        if evolution.needs_rewrite(old, columns):
            rows = spark_reader(self.spark).load(self.table.base)
            options = {PROGRESS_KEY: json.dumps(progress)}
            rewrite(self.spark, self.table, rows, columns, options)
            require_no_write_errors(last_ingest_commit(self.table), self.location)
        return columns, change

    def _progress(self, actions: list[CompletedAction]) -> dict[str, SourceProgress]:
        """Return {source id: position} of the table's last commit.

        Raises:
            LakeError: nothing must be added to the table as this commit has left it.
        """
        commit = last_ingest_commit(self.table, actions)
        if not self.replay:  # a repeated ingest does not bring back the rows that the commit lacks
            require_no_write_errors(commit, self.location)
        check_buckets(self.table, commit, self.location)
        progress = read_progress(commit)
        if not commit and (actions or archive_folder(self.table)):
            progress = {UNKNOWN_PROGRESS: {}}
        # To start over silently would write no wrong row, but take hours, and remove the dead letters.
        is_known = self.source.id in progress or UNKNOWN_PROGRESS not in progress
        if not is_known and not self.replay:
            raise LakeError(
                f"table {self.table.name} was written to, and none of its commits says how far {self.source} was read",
                location=self.location,
                expected="an ingest's own commit on the timeline, or a new table",
                hint="another tool made the table, or Hudi has archived the ingest's commit after many commits "
                f"of others: {changes.REPLAY_HINT}",
            )
        return progress

    def _finish(self, progress: SourceProgress, error: Optional[Exception] = None) -> str:
        """Show the dead letters of a batch, and return the instant of its commit.

        Args:
            progress: the position in the source after the batch.
            error: of the write.

        Raises:
            LakeError: the last commit does not hold the progress: the next batch would read the same
                messages again. Or it lacks rows. Or what Hudi does after a commit has failed.
            Exception: the error, of a batch that is not committed, or whose session is lost.
        """
        action = last_ingest_action(completed_actions(self.table))
        if action is None or read_progress(action.metadata).get(self.source.id) != progress:
            raise error or LakeError(
                "Hudi wrote a batch without a commit that holds its progress",
                location=self.location,
                hint="look for options in `extra` of the table that change its commits, "
                "hoodie.allow.empty.commit above all; nothing is lost, run the ingest again",
            )
        lifecycle.settle_dead_letters(self._dead_letters, progress)
        if error and is_session_lost(error):
            raise error
        if error:
            raise LakeError(
                f"a batch is committed, and the work of Hudi after the commit failed: {innermost_cause(str(error))}",
                location=self.location,
                hint="see the log of the spark service; no row is lost, and the next run continues after this "
                "batch. Compaction, cleaning and archiving are repeated by a later commit",
            ) from error
        require_no_write_errors(action.metadata, self.location)
        return action.instant


def require_no_write_errors(commit: CommitMetadata, location: str) -> None:
    """Raise LakeError if a commit lacks rows that Hudi could not write."""
    failed = sum(stat.get("totalWriteErrors") or 0 for _, stat in write_stats(commit))
    if failed:
        raise LakeError(
            f"Hudi made a commit without {failed} of its rows, which it could not write",
            location=location,
            hint="the log of the spark service gives the reason (write errors); fix "
            "it, then hudi.ingest(…, replay=True)",
        )


def check_buckets(table: Table, commit: CommitMetadata, location: str) -> None:
    """Raise LakeError if a commit by an ingest wrote other buckets than those of the table, or none.

    A key would be looked for in another file, not found, and inserted again. The other indexes can
    replace each other.
    """
    written = extra_metadata(commit).get(BUCKETS_KEY, "no")
    own = table.options().get(BUCKETS_KEY, "no")
    if commit and written != own:
        raise LakeError(
            f"table {table.name} was written with {written} buckets, not {own}",
            location=location,
            expected='the same number of buckets with index="BUCKET", and no buckets with another index',
            hint="write it as it was made, or drop it and ingest it anew",
        )


def check_ordering(table: Table, columns: T.StructType) -> None:
    """Raise LakeError if a Merge-on-Read table with deletes has an ordering field that Hudi cannot use.

    Hudi 1.0.2 can neither write a date into a log's delete nor compare the decimal of one.
    """
    kind = next((f.dataType for f in columns if f.name == table.ordering_column), None)
    deletes = table.deletes == "hard" or table.index == "GLOBAL_SIMPLE"  # a move deletes, too
    if table.type == "mor" and deletes and isinstance(kind, (T.DecimalType, T.DateType)):
        raise LakeError(
            f"the ordering field {table.ordering} of {table.name} is {kind.simpleString()}: "
            "a Merge-on-Read table could not be read after its first delete",
            location=table.base,
            expected="a whole number, a text, a time, a double",
            hint="another ordering field, such as the position in the source's log; or "
            'type="cow". A table that has rows already: hudi.drop, and ingest anew',
        )


def last_ingest_action(actions: list[CompletedAction]) -> Optional[CompletedAction]:
    """Return the last commit by an ingest; compactions and other writers record no progress.

    Args:
        actions: as `completed_actions` returns them.
    """
    for action in reversed(actions):
        if extra_metadata(action.metadata).get(PROGRESS_KEY):
            return action
    return None


def last_ingest_commit(
    table: Table, actions: Optional[list[CompletedAction]] = None
) -> CommitMetadata:
    """Return the metadata of the table's last commit by an ingest; {} without one.

    Args:
        table: the table.
        actions: as `completed_actions` returns them; by default they are read.
    """
    action = last_ingest_action(completed_actions(table) if actions is None else actions)
    return action.metadata if action else {}


def read_progress(commit: CommitMetadata) -> dict[str, SourceProgress]:
    """Return {source id: position in the source} from a commit's metadata."""
    progress: dict[str, SourceProgress] = json.loads(extra_metadata(commit).get(PROGRESS_KEY, "{}"))
    return progress


def next_offsets(table: Table, topic: str) -> dict[int, int]:
    """Return where the next ingest of a topic into a table begins.

    Args:
        table: the table.
        topic: name of the topic.

    Returns:
        {partition: offset of the next message}, from the table's last commit by an ingest. It is
        empty if no commit on the timeline has read the topic.
    """
    progress = read_progress(last_ingest_commit(table)).get(changes.Topic(topic).id, {})
    return {int(number): offset for number, offset in progress.get("offsets", {}).items()}
