"""Comparing the lake tables of a flow with its source, and capturing them anew when changes were lost for good."""

from typing import Callable, Union

from .. import hudi, own, stack, tracks
from ..base import LakeError, World
from ..flow.flow import CaptureFlow
from ..flow.reconciliation import Reconciliation
from ..flow.reconciling import reconcile_table
from ..flow.resources import SCHEMAS, SOURCE_TABLES, Product
from ..source import postgres
from ..source.names import format_sql
from ..spark import session
from ..tracks import track


def reconcile(
    world: World,
    flow: str,
    table: str = "",
    at: str = "",
    progress: Callable[[Reconciliation], None] = lambda result: None,
) -> list[Reconciliation]:
    """Compare the lake tables of a flow with their source tables, and store the results.

    Args:
        world: the world.
        flow: name of an own flow, or of a walkthrough.
        table: name of a captured table, by default all.
        at: a label, as for `reconcile_table`.
        progress: called with each result.

    Raises:
        LakeError: there is no such flow, table or label; or as for `reconcile_table`.
        SourceError: the source cannot be read.
    """
    owner, name = tracks.find_captured_table(f"{flow}/{table}" if table else flow, world)
    captured, source = owner.flow, owner.flow.source_world(world)
    if not captured.names:
        raise LakeError(f"{flow} has no captured tables", expected="a flow that captures tables")
    stack.ensure_running(source, *owner.services)
    results = []
    for each in [name] if name else captured.names:
        for lake_table in captured.tables(source, each):
            results.append(reconcile_table(source, captured, each, lake_table, at))
            progress(results[-1])
    return results


def recapture(
    world: World, flow: str, progress: Callable[[str], None] = print
) -> list[Reconciliation]:
    """Remove topics, connector and lake tables of a flow, capture its tables from a new snapshot, and compare.

    The source tables stay as they are. The labels of the lake tables are lost. A repeated call completes an
    interrupted one. An ingest that runs continuously must be stopped before.

    Args:
        world: the world.
        flow: name of an own flow, or of a walkthrough.
        progress: called with the result for each lake table.

    Returns:
        The result of `reconcile` for each lake table.

    Raises:
        LakeError: there is no such flow, or it cannot be captured anew by this function. Nothing was removed.
        SourceError: the source cannot be read. Nothing was removed.
    """
    owner, at = _open(world, flow)
    if isinstance(owner, own.OwnFlow):
        own.recapture(world, owner.name)
    else:
        captured = owner.flow
        if captured.publication:
            _publish(at, captured)
        for table in captured.tables(at):
            hudi.drop(session(at), at, table)
        track.recapture(at, owner)
        captured.sync(session(at), at, label=captured.label)
    return reconcile(world, owner.name, progress=lambda result: progress(repr(result)))


def resources_to_remove(world: World, flow: str) -> dict[str, list[str]]:
    """Return what `recapture` removes, {kind: names}; the services of the flow are started.

    Raises:
        LakeError: there is no such flow, it has no lake tables, or they are ingested from landed files.
        SourceError: a source table cannot be read.
    """
    owner, at = _open(world, flow)
    tables = [table.name for table in owner.flow.tables(at) if hudi.exists(table)]
    removed = owner.resources.remaining(at, Product.TOPICS, keep=(SCHEMAS, SOURCE_TABLES))
    return {"lake tables": tables, **removed}


def _open(world: World, flow: str) -> tuple[Union[track.Track, own.OwnFlow], World]:
    """Return a track or flow that can be captured anew, and the world of its source."""
    owner, table = tracks.find_captured_table(flow, world)
    captured, at = owner.flow, owner.flow.source_world(world)
    if table or not captured.tables(at):
        raise LakeError(
            f"{flow} is no flow with lake tables of its own",
            expected="the name of an own flow, or of a walkthrough that ingests captured tables",
        )
    stack.ensure_running(at, *owner.services)
    for name in captured.names:
        captured.count(at, name)  # raises SourceError if the table cannot be read
    tables = filter(hudi.exists, captured.tables(at))
    if any(captured.source_kind(at, each) == "landed" for each in tables):
        raise LakeError(
            f"the lake tables of {flow} are ingested from landed files",
            hint="run the notebooks of the walkthrough again, from the one on connectors",
        )
    return owner, at


def _publish(world: World, flow: CaptureFlow) -> None:
    """Add captured tables to the publication of a flow that it lacks; other tables stay.

    Raises:
        SourceError: the publication does not exist.
    """
    frame = postgres.publications(world, flow.database)
    published = {*frame[frame["publication"] == flow.publication]["table"]}
    for table in sorted({capture.source for capture in flow.captures} - published):
        statement = format_sql(
            "ALTER PUBLICATION {} ADD TABLE {}", flow.publication, tuple(table.split("."))
        )
        postgres.execute(world, statement, database=flow.database)
