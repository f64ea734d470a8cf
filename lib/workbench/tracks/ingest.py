"""Ingest captured tables, or run a streaming query, as a batch job or a continuous job.

Unlike the notebooks, the job does not query the source database. It needs Kafka and the lake only,
so it can run on EMR.
"""

from typing import Callable

from .. import hudi
from ..base import LakeError, World
from ..base.text import plural
from ..base.wait import stop_on_signal
from ..flow.flow import CaptureFlow
from ..spark import session, translate_errors
from . import ALL, find_captured_table, streams
from .track import StartQuery, Track


def ingest(
    world: World,
    name: str,
    kind: str = "",
    continuous: bool = False,
    progress: Callable[[str], None] = print,
) -> int:
    """Ingest the changes of a captured table, or of all captured tables of a track or flow.

    If the track has a streaming query, this query runs instead. SIGTERM and Ctrl-C end the job
    after the current batch. The next run continues with the next batch.

    Args:
        world: the world.
        name: a captured table (`artists`, `50_time_travel/artists`), a track (`50_time_travel`) or an own
            flow.
        kind: "topic" or "landed", the kind of source; by default `flow.source_kind` of each table.
        continuous: continue with later messages until the job is stopped.
        progress: called with one line per ingested table.

    Returns:
        The exit code: 0, or 130 if a signal stopped a job that is not continuous.

    Raises:
        LakeError: a message could not be landed or decoded, or a batch was not written. No message
            is lost, and no partial batch is visible.
        StackError: Spark or Kafka is unavailable.
    """
    track, table = find_captured_table(name, world)
    if isinstance(track, Track) and track.start_query:
        return _run_stream(world, track.start_query, continuous, progress)
    flow, lake_tables = track.flow, _lake_tables(world, name, track.flow, table)
    with stop_on_signal() as stop:
        for counts in flow.follow(session(world), world, *lake_tables, kind=kind, stop=stop):
            for table_name, ingested in counts.items():
                if ingested.messages or not continuous:
                    progress(f"{table_name}: {ingested!r}")
            if not continuous:
                return 130 if stop.is_set() else 0
    return 0


def _lake_tables(world: World, name: str, flow: CaptureFlow, table: str) -> list[hudi.Table]:
    """Return the lake tables of `ingest`.

    Raises:
        LakeError: there are none.
    """
    lake_tables = flow.tables(world, *([table] if table else ()))
    if not lake_tables:
        captures = [(each.name, c) for each in ALL for c in each.flow.captures if c.lake]
        names = ", ".join(f"{track}/{capture.name}" for track, capture in captures)
        raise LakeError(f"{name} has no Hudi table to ingest into", expected=f"one of {names}")
    return lake_tables


def _run_stream(
    world: World, start_query: StartQuery, continuous: bool, progress: Callable[[str], None]
) -> int:
    """Run a streaming query until all messages are read, or until the job is stopped.

    An error of the query ends the job. EMR Serverless then restarts a continuous job, and the query
    continues at its checkpoint.

    Returns:
        The exit code, 0.
    """
    spark = session(world)
    errors = translate_errors(
        spark,
        "the streaming query failed",
        f"checkpoints in {world.lake.checkpoints}",
        "fix the cause, then start the query again: it continues from its checkpoint",
        kafka_world=world,
    )
    with stop_on_signal() as stop, errors:
        query = start_query(spark, world)
        if continuous:
            while not stop.is_set() and not query.awaitTermination(1):
                pass
        else:
            query.processAllAvailable()
        query.stop()
        batches = streams.progress(query)  # Spark keeps the last ones
        progress(f"{query.name}: {plural(batches['rows'].sum(), 'message')}")
    return 0
