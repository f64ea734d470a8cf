"""Capturing the tables of a flow anew, when changes are lost that no snapshot can bring back."""

from __future__ import annotations

from typing import Callable

from .. import hudi, stack, walkthroughs
from ..base import LakeError, World
from ..source import postgres
from ..source.names import format_sql
from ..spark import session
from ..walkthroughs import own
from ..walkthroughs.flow import CaptureFlow
from ..walkthroughs.resources import SCHEMAS, SOURCE_TABLES
from ..walkthroughs.steps import Product
from ..walkthroughs.walkthrough import Walkthrough
from .reconcile_result import Reconciliation
from .reconciling import reconcile


def recapture(
    world: World, flow: str, progress: Callable[[str], None] = print
) -> list[Reconciliation]:
    """Remove lake tables, topics and connectors of a flow; capture its tables from a new snapshot, and compare.

    The source tables stay as they are. The labels of the lake tables are lost. A repeated call completes an
    interrupted one.

    Args:
        world: the world.
        flow: name of an own flow, or of a walkthrough.
        progress: called with a line for each table.

    Returns:
        The result of `reconcile` for each lake table.

    Raises:
        LakeError: there is no such flow.
        SourceError: the source cannot be read. Nothing was removed.
    """
    walkthrough, table = walkthroughs.find_captured_table(flow, world)
    captured = walkthrough.flow
    if table or not captured:
        raise LakeError(f"{flow} is not a flow", expected="an own flow, or a walkthrough")
    if walkthrough.resources.own:
        own.recapture(world, walkthrough.name, progress)
    else:
        _recapture(world, walkthrough, captured)
    return reconcile(world, walkthrough.name, progress=lambda result: progress(repr(result)))


def _recapture(world: World, walkthrough: Walkthrough, flow: CaptureFlow) -> None:
    stack.ensure_running(world, *walkthrough.steps.services)
    for name in flow.names:
        flow.count(world, name)  # the source can be read
    existing = [table for table in flow.tables(world) if hudi.exists(table)]
    kinds = {flow.source_kind(world, table) for table in existing}
    publish(world, flow)
    walkthrough.resources.remove(
        world, Product.TABLES, Product.TOPICS, keep=(SCHEMAS, SOURCE_TABLES)
    )
    flow.deploy(world)
    kind = "landed" if "landed" in kinds else ""
    flow.sync(session(world), world, kind=kind, label=flow.label)


def publish(world: World, flow: CaptureFlow) -> None:
    """Add captured tables to the publication of a flow if it lacks them; other tables stay."""
    if not flow.publication:
        return
    frame = postgres.publications(world, flow.database)
    published = {*frame[frame["publication"] == flow.publication]["table"]}
    for table in sorted({capture.source for capture in flow.captures} - published):
        statement = format_sql(
            "ALTER PUBLICATION {} ADD TABLE {}", flow.publication, tuple(table.split("."))
        )
        postgres.execute(world, statement, database=flow.database)
