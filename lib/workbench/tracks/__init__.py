"""The tracks: what a track is (`track`), one module for each, and shared modules.

The module of a track declares it as TRACK, and ALL lists each. The teardown and `workbench trace` read ALL.
"""

from typing import Optional, Union

from .. import flow, own
from ..base import LakeError, World, did_you_mean
from ..own import OwnFlow
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
from .track import Track, ensure, recapture, reset, restore

ALL: tuple[Track, ...] = (
    outbox.TRACK,
    query_based.TRACK,
    log_based.TRACK,
    movies.TRACK,
    museum.TRACK,
    sales.TRACK,
    storefront.TRACK,
    operations.TRACK,
    bikeshare.TRACK,
)


def for_world(world: World) -> list[Track]:
    """Return the tracks that can run in a world, without the own flows (see `own`)."""
    return [each for each in ALL if world.stack.embedded or not each.local_only]


def _all(world: World) -> list[Union[Track, OwnFlow]]:
    return [*ALL, *own.load_all(world)]


def find_captured_table(
    name: str, world: Optional[World] = None
) -> tuple[Union[Track, OwnFlow], str]:
    """Find a captured table, a whole track, or an own flow, by name.

    Args:
        name: a table (`artists`), a table with its track (`50_time_travel/artists`, necessary if
            several tracks have such a table), or a track (`50_time_travel`).
        world: the world whose own flows are searched, too.

    Returns:
        The track or flow, and the name of the table ("" if `name` is that of a track or flow).

    Raises:
        LakeError: no track has such a table, or several have it.
    """
    owners = _all(world) if world else ALL
    folder, _, table = name.rpartition("/")
    if not folder and table in [each.name for each in owners]:
        folder, table = table, ""
    matches = [
        each for each in owners if folder in ("", each.name) and table in ("", *each.flow.names)
    ]
    if not matches:
        names = [name for each in owners for name in (*each.flow.names, each.name)]
        raise LakeError(f"there is no captured table {name!r}", expected=did_you_mean(table, names))
    if len(matches) > 1:
        candidates = ", ".join(f"{each.name}/{table}" for each in matches)
        raise LakeError(
            f"{len(matches)} tracks have a table {name!r}", expected=f"one of {candidates}"
        )
    return matches[0], table


def _flows(world: World) -> dict[str, flow.CaptureFlow]:
    return {each.name: each.flow for each in _all(world)}


flow.declare(_flows)
