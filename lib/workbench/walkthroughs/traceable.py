"""The tables of the walkthroughs whose rows `trace` can follow."""
from __future__ import annotations

from .. import connect
from ..base.errors import LakeError, nearest
from ..base.params import World
from ..landing.sinks import parse
from ..trace import Traced
from . import museum, outbox


def traced(world: World, name: str) -> Traced:
    """What `trace.row` asks for, by the table's name: artists, artworks or cdc_events.

    Raises: LakeError: there is no such table.
    """
    known = {n: (f"public.{n}", museum.KEY[n], museum.topic(n), museum.SINK, tuple(museum.tables(world, n)))
             for n in museum.TABLES}
    known["cdc_events"] = (outbox.TABLE, "order_id", outbox.topic(world), outbox.SINK, (outbox.table(world),))
    if name not in known:
        raise LakeError(f"there is no table {name!r} to trace", expected=nearest(name, known),
                        next_step="workbench trace artists 299")
    source, key, topic, sink, tables = known[name]
    return Traced(name, source, key, topic, parse(connect.config(world, sink)), tables)
