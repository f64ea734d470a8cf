"""Captured tables into the lake, or a streaming query, as a job, which ends when all that is there
has been written, or goes on.

Unlike the notebooks it asks the source nothing, so that it runs where only Kafka and the lake are
reached, on EMR say.
"""

from typing import Callable

from ..base import LakeError, World
from ..base.wait import stop_on_signal
from ..results import streams
from ..spark import session
from . import ALL, Walkthrough, find_captured_table

# seconds between two looks at what is new: each asks the lake and Kafka some questions, which S3
# bills
POLL_INTERVAL = 10


def ingest(
    world: World,
    name: str,
    kind: str = "",
    continuous: bool = False,
    progress: Callable[[str], None] = print,
) -> int:
    """Bring what is in the topics into the lake's tables of a captured table, or of all that a
    walkthrough has; or run its streaming query.

    TERM and Ctrl-C end it after the batch that is under way; who starts it again goes on from
    there.

    Args:
        name: as of `captured`. kind: as of Flow.sync.
        continuous: go on with what comes later, until it is told to stop.
    Returns: the exit code: 0; 130 where it was stopped before it was done.
    Raises: LakeError: a message cannot be landed or decoded, a batch was not written; nothing is
        lost, nothing half-written shows. StackError: Spark or Kafka is gone.
    """
    flow, table = find_captured_table(name)
    if flow.start_query:
        return _run_stream(world, flow, continuous, progress)
    into = flow.tables(world, *([table] if table else ()))
    if not into:
        raise LakeError(
            f"{name} goes into no Hudi table",
            expected="one of "
            + ", ".join(f"{f.folder.name}/{c.name}" for f in ALL for c in f.captures if c.lake),
        )
    with stop_on_signal() as told:
        spark = session(world)
        while True:
            for to, done in flow.ingest(spark, world, *into, kind=kind, stop=told.is_set).items():
                if done.messages or not continuous:
                    progress(f"{to}: {done!r}")
            if not continuous:
                return 130 if told.is_set() else 0
            if told.wait(POLL_INTERVAL):
                return 0


def _run_stream(
    world: World, flow: Walkthrough, continuous: bool, say: Callable[[str], None]
) -> int:
    """Run a streaming query until all that is there is read, or until it is told to stop. What ends
    it is raised: on EMR Serverless a job that goes on is begun again then, and the query goes on
    where its checkpoint says.
    """
    with stop_on_signal() as told:
        query = flow.start_query(session(world), world)
        if continuous:
            while not told.is_set() and not query.awaitTermination(1):
                pass
        else:
            query.processAllAvailable()
        query.stop()
        say(f"{query.name}: {streams.progress(query)['rows'].sum():,} messages")
    return 0
