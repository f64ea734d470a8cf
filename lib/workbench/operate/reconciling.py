"""Comparing the lake tables of a flow with its source tables."""

from __future__ import annotations

from typing import Callable

from .. import stack, tracks
from ..base import LakeError, World
from ..flow.reconciliation import Reconciliation
from ..flow.reconciling import reconcile_table


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
    name = f"{flow}/{table}" if table else flow
    owner, name = tracks.find_captured_table(name, world)
    captured, at_source = owner.flow, owner.flow.source_world(world)
    if not captured.names:
        raise LakeError(f"{flow} has no captured tables", expected="a flow that captures tables")
    stack.ensure_running(at_source, *owner.services)
    results = []
    for each in [name] if name else captured.names:
        for lake_table in captured.tables(at_source, each):
            results.append(reconcile_table(at_source, captured, each, lake_table, at))
            progress(results[-1])
    return results
