"""The walkthroughs: one module for each, and shared modules.

The module of a walkthrough declares it as `walkthrough`, and ALL lists each. The teardown and
`workbench trace` read ALL.
"""

from typing import Optional

from .. import flow, own
from ..base import LakeError, World, did_you_mean
from ..flow.walkthrough import Walkthrough
from . import (
    bikeshare,
    log_based,
    movies,
    museum,
    operations,
    outbox,
    query_based,
    sales,
    storefront,
)

ALL: tuple[Walkthrough, ...] = (
    outbox.walkthrough,
    query_based.walkthrough,
    log_based.walkthrough,
    movies.walkthrough,
    museum.walkthrough,
    sales.walkthrough,
    storefront.walkthrough,
    operations.walkthrough,
    bikeshare.walkthrough,
)


def for_world(world: World) -> list[Walkthrough]:
    """Return the walkthroughs that can run in a world, without the own flows (see `own`)."""
    return [each for each in ALL if world.stack.embedded or not each.steps.local_only]


def _all(world: World) -> list[Walkthrough]:
    return [*ALL, *own.load_all(world)]


def find_captured_table(name: str, world: Optional[World] = None) -> tuple[Walkthrough, str]:
    """Find a captured table, or a whole walkthrough, by name.

    Args:
        name: a table (`artists`), a table with its walkthrough (`50_time_travel/artists`, necessary
            if several walkthroughs have such a table), or a walkthrough (`50_time_travel`).
        world: the world whose own flows are searched, too.

    Returns:
        The walkthrough, and the name of the table ("" if `name` is a walkthrough).

    Raises:
        LakeError: no walkthrough has such a table, or several have it.
    """
    walkthroughs = _all(world) if world else ALL
    folder, _, table = name.rpartition("/")
    if table in [each.name for each in walkthroughs]:
        folder, table = table, ""
    matches = [
        each
        for each in walkthroughs
        if folder in ("", each.name) and table in ("", *each.captured_names)
    ]
    if not matches:
        names = [name for each in walkthroughs for name in (*each.captured_names, each.name)]
        raise LakeError(f"there is no captured table {name!r}", expected=did_you_mean(table, names))
    if len(matches) > 1:
        candidates = ", ".join(f"{each.name}/{table}" for each in matches)
        raise LakeError(
            f"{len(matches)} walkthroughs have a table {name!r}", expected=f"one of {candidates}"
        )
    return matches[0], table


def _flows(world: World) -> dict[str, flow.CaptureFlow]:
    return {each.name: each.flow for each in _all(world) if each.flow}


flow.declare(_flows)
