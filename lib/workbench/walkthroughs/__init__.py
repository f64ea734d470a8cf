"""The walkthroughs: what is particular to each, and what is the same in all.

A new one is a module with a `flow`, and a place in ALL: that is how teardown, trace and `workbench
load` find it.
"""

from ..base import LakeError, World, did_you_mean
from ..trace import TracedTable
from . import log_based, movies, museum, outbox, query_based, sales, storefront
from .walkthrough import Walkthrough

ALL = (
    outbox.flow,
    query_based.flow,
    log_based.flow,
    movies.flow,
    museum.flow,
    sales.flow,
    storefront.flow,
)
LOADERS = {flow.loader.name: flow.loader for flow in ALL if flow.loader}


def for_world(world: World) -> list[Walkthrough]:
    """The walkthroughs that run in a world."""
    return [flow for flow in ALL if world.stack.embedded or not flow.local_only]


def traced_table(world: World, name: str) -> TracedTable:
    """What trace.row takes, of a captured table of any walkthrough. Raises: as `captured`."""
    flow, table = find_captured_table(name)
    return flow.traced_table(world, table)


def find_captured_table(name: str) -> tuple[Walkthrough, str]:
    """The walkthrough and the captured table of a name: `artists`, or `50_time_travel/artists`
    where more than one has a table of that name; of `50_time_travel` alone the table is "". Raises:
    LakeError: there is no such table, or there are several.
    """
    folder, _, table = name.rpartition("/")
    if table in (flow.folder.name for flow in ALL):
        folder, table = table, ""
    found = [
        flow for flow in ALL if folder in ("", flow.folder.name) and table in ("", *flow.names)
    ]
    if not found:
        raise LakeError(
            f"there is no captured table {name!r}",
            expected=did_you_mean(
                table, [known for flow in ALL for known in (*flow.names, flow.folder.name)]
            ),
        )
    if len(found) > 1:
        raise LakeError(
            f"{len(found)} walkthroughs have a table {name!r}",
            expected="one of " + ", ".join(f"{flow.folder.name}/{table}" for flow in found),
        )
    return found[0], table
