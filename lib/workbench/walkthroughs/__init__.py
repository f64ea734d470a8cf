"""The walkthroughs: what is particular to each, and what is the same in all.

A new one is a module with a `flow`, and a place in ALL: that is how teardown and trace find it. `workbench load` finds
its loader in LOADERS.
"""
from __future__ import annotations

from ..base.errors import LakeError, nearest
from ..base.params import World
from ..trace import Traced
from . import load, load_moma, museum, outbox

ALL = (outbox.flow, museum.flow)
LOADERS = {"northwind": load.load_northwind, "moma": load_moma.load_moma}  # of `workbench load`


def traced(world: World, name: str) -> Traced:
    """What trace.row takes, of a captured table of any walkthrough. Raises: LakeError: there is no such table."""
    found = {table: flow for flow in ALL for table in flow.names}
    if name not in found:
        raise LakeError(f"there is no table {name!r} to trace", expected=nearest(name, found),
                        next_step="workbench trace artists 299")
    return found[name].traced(world, name)
