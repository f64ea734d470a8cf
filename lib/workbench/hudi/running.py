"""An ingest that ends when all is read, and one that goes on."""
from __future__ import annotations

import json
import threading
from typing import Optional

from pyspark.sql import SparkSession
from pyspark.sql import types as T

from ..base.errors import LakeError
from ..base.params import World
from ..base.paths import ROOT
from ..topic import avro
from .changes import Source
from .ingesting import Ingested, Job
from .tables import Table
from .timeline import check_version


def ingest(spark: SparkSession, world: World, source: Source, table: Table, *, schema: Optional[T.StructType] = None,
           replay: bool = False, batch: int = 200_000) -> Ingested:
    """Bring the changes of `source` into `table`, until all that is there has been written.

    Args:
        source: `Topic(name)` or `Landed(prefix)`, JSON both, or with `format="avro"`. The table's commits say how far
            each has been read: a second run goes on from there. A table that was written to, and has no such commit
            (another tool made it, or the commit was archived), takes a `replay`.
        schema: reader schema; without it that of data/schemas/<table name>.avsc, and for Avro the newest one that the
            registry has of the topic.
        replay: read the source from its beginning once more (rows change only where the ordering field says so).
        batch: most messages or files of one commit.

    Raises:
        LakeError: a batch failed (nothing of it is visible; the next run does it again), how far the source was read is
            not known, or the table version changed.
        StackError: the registry does not answer, or Spark or Kafka is gone. Nothing of the batch shows then.
    """
    job = _job(spark, world, source, table, schema, replay, batch)
    try:
        while job.step():
            pass
    finally:
        job.close()
    check_version(table)
    return job.done


def stream(spark: SparkSession, world: World, source: Source, table: Table, *, schema: Optional[T.StructType] = None,
           replay: bool = False, batch: int = 200_000, pause: float = 0.2) -> Stream:
    """Bring the changes of `source` into `table`, and go on with what comes later, until `stop()` of what this returns.

    Args:
        pause: seconds between two looks at a source that had nothing new. The others: as of `ingest`.
    """
    return Stream(_job(spark, world, source, table, schema, replay, batch), pause)


def _job(spark: SparkSession, world: World, source: Source, table: Table, schema: Optional[T.StructType], replay: bool,
         batch: int) -> Job:
    if schema is None and getattr(source, "format", "json") == "json":
        schema = reader_schema(table.name)
    return Job(spark, world, source, table, schema, batch=batch, replay=replay)


def reader_schema(name: str) -> T.StructType:
    """StructType of data/schemas/<name>.avsc."""
    path = ROOT / "data" / "schemas" / f"{name}.avsc"
    if not path.is_file():
        raise LakeError(f"there is no reader schema for {name}", where=str(path),
                        next_step="put the Avro schema of the rows there, or give schema=… to hudi.ingest")
    return avro.to_spark(json.loads(path.read_text(encoding="utf-8")))


class Stream:
    """An ingest that goes on until `stop()`, in a thread of this process; it ends between two batches."""

    def __init__(self, job: Job, pause: float):
        self._job, self._pause = job, pause
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
        check_version(self._job.table)
        return self._job.done
