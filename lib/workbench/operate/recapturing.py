"""Capturing the tables of a flow anew, when changes are lost that no snapshot can bring back."""

from __future__ import annotations

from typing import Callable, Union

from .. import hudi, own, stack, tracks
from ..base import LakeError, SourceError, World
from ..flow.flow import CaptureFlow
from ..flow.resources import SCHEMAS, SOURCE_TABLES, Product
from ..source import postgres
from ..source.names import format_sql
from ..spark import session
from ..tracks.track import Track
from .reconcile_result import Reconciliation
from .reconciling import reconcile

KEPT = (SCHEMAS, SOURCE_TABLES)


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
    owner, at, captured = _open(world, flow)
    if isinstance(owner, own.OwnFlow):
        own.recapture(world, owner.name)
    else:
        publish(at, captured)
        owner.resources.remove(at, Product.TOPICS, keep=KEPT)
        for table in captured.tables(at):
            hudi.drop(session(at), at, table)
        captured.deploy(at)
        captured.sync(session(at), at, label=captured.label)
    return reconcile(world, owner.name, progress=lambda result: progress(repr(result)))


def resources_to_remove(world: World, flow: str) -> dict[str, list[str]]:
    """Return what `recapture` removes, {kind: names}; the services of the flow are started.

    Raises:
        LakeError: there is no such flow, it has no lake tables, or they are ingested from landed files.
        SourceError: a source table cannot be read.
    """
    owner, at, captured = _open(world, flow)
    tables = [table.name for table in captured.tables(at) if hudi.exists(table)]
    removed = owner.resources.remaining(at, Product.TOPICS, keep=KEPT)
    return {"lake tables": tables, **removed}


def _open(world: World, flow: str) -> tuple[Union[Track, own.OwnFlow], World, CaptureFlow]:
    """Return a track or flow that can be captured anew, the world of its source, and its captured tables."""
    owner, table = tracks.find_captured_table(flow, world)
    captured, at = owner.flow, owner.flow.source_world(world)
    if table or not captured.tables(at):
        raise LakeError(
            f"{flow} is no flow with lake tables of its own",
            expected="the name of an own flow, or of a walkthrough that ingests captured tables",
        )
    stack.ensure_running(at, *owner.services)
    for name in captured.names:
        captured.count(at, name)
    tables = filter(hudi.exists, captured.tables(at))
    if any(captured.source_kind(at, each) == "landed" for each in tables):
        raise LakeError(
            f"the lake tables of {flow} are ingested from landed files",
            hint="run the notebooks of the walkthrough again, from the one on connectors",
        )
    return owner, at, captured


def publish(world: World, flow: CaptureFlow) -> None:
    """Add captured tables to the publication of a flow if it lacks them; other tables stay.

    Raises:
        SourceError: the publication does not exist.
    """
    if not flow.publication:
        return
    frame = postgres.publications(world, flow.database)
    published = frame[frame["publication"] == flow.publication]["table"]
    sources = [capture.source for capture in flow.captures]
    if published.empty:
        raise SourceError(
            f"publication {flow.publication} does not exist, or publishes no table",
            hint=f"postgres.create_publication(world, {flow.publication!r}, {sources}, {flow.database!r})",
        )
    for table in sorted({*sources} - {*published}):
        statement = format_sql(
            "ALTER PUBLICATION {} ADD TABLE {}", flow.publication, tuple(table.split("."))
        )
        postgres.execute(world, statement, database=flow.database)
