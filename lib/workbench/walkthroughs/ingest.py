"""Ingest captured tables, or run a streaming query, as a job that ends or continues.

Unlike the notebooks the job does not query the source. It can run where only Kafka and the lake are
reachable, for example on EMR.
"""

from typing import Callable

from ..base import LakeError, World
from ..base.text import plural
from ..base.wait import stop_on_signal
from ..results import streams
from ..spark import session
from . import ALL, find_captured_table
from .declaration import StartQuery

# seconds between two polls; each sends requests to Kafka and the lake, which S3 bills
POLL_INTERVAL = 10


def ingest(
    world: World,
    name: str,
    kind: str = "",
    continuous: bool = False,
    progress: Callable[[str], None] = print,
) -> int:
    """Ingest the topics into the lake tables of a captured table or of a walkthrough.

    If the walkthrough has a streaming query, that query runs instead. TERM and Ctrl-C end the job
    after the current batch; the next run continues there.

    Args:
        world: the world.
        name: as for `find_captured_table`.
        kind: as for `Flow.sync`.
        continuous: continue with later messages until the job is stopped.
        progress: called with a line about each ingest.

    Returns:
        The exit code: 0; 130 if the job was stopped before it was done.

    Raises:
        LakeError: a message could not be landed or decoded, or a batch was not written. No message
            is lost, and no partial batch is visible.
        StackError: Spark or Kafka is lost.
    """
    flow, table = find_captured_table(name)
    if flow.start_query:
        return _run_stream(world, flow.start_query, continuous, progress)
    into = flow.tables(world, *([table] if table else ()))
    if not into:
        names = [f"{f.folder.name}/{c.name}" for f in ALL for c in f.captures if c.lake]
        raise LakeError(
            f"{name} is ingested into no Hudi table", expected=f"one of {', '.join(names)}"
        )
    with stop_on_signal() as stop:
        spark = session(world)
        while True:
            counts = flow.ingest(spark, world, *into, kind=kind, stop=stop.is_set)
            for table, ingested in counts.items():
                if ingested.messages or not continuous:
                    progress(f"{table}: {ingested!r}")
            if not continuous:
                return 130 if stop.is_set() else 0
            if stop.wait(POLL_INTERVAL):
                return 0


def _run_stream(
    world: World, start_query: StartQuery, continuous: bool, progress: Callable[[str], None]
) -> int:
    """Run a streaming query until all messages are read, or until the job is stopped.

    An error of the query is raised: EMR Serverless restarts a continuous job then, and the query
    continues at its checkpoint.
    """
    with stop_on_signal() as stop:
        query = start_query(session(world), world)
        if continuous:
            while not stop.is_set() and not query.awaitTermination(1):
                pass
        else:
            query.processAllAvailable()
        query.stop()
        count = streams.progress(query)["rows"].sum()
        progress(f"{query.name}: {plural(count, 'message')}")
    return 0
