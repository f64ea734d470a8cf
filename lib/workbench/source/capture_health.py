"""The replication slots of a server, with the limits of `workbench watch` for the log that it retains."""

from typing import Any

from .. import stack
from ..base import WorkbenchError, World
from ..stack.doctor import Finding
from . import postgres


def examine(world: World) -> list[Finding]:
    """Return a Finding for each replication slot of the source database.

    If the server cannot be read, the only Finding says so. Nothing if the embedded server does not run.
    """
    try:
        slots = postgres.all_slots(world)
    except WorkbenchError as e:
        if world.manages("postgres") and "postgres" not in stack.running():
            return []
        remedy = e.hint or "look at PostgreSQL: `workbench status`"
        detail = f"cannot be read: {e.message}"
        return [Finding("replication slots", detail, remedy, is_warning=True)]
    return [_examine_slot(slot, world.watch.retained_mib[0]) for slot in slots.itertuples()]


def _examine_slot(slot: Any, limit_mib: float) -> Finding:
    state, retained_mib = "active" if slot.active else "inactive", slot.bytes_behind / 2**20
    detail = f"{state}, the server retains {retained_mib:,.1f} MiB of log for it"
    drop = f"postgres.drop_slot(world, {slot.slot_name!r}, {slot.database!r})"
    remedy = ""
    if slot.wal_status == "lost":
        detail = "the server has removed log that the slot needs"
        remedy = f"its connector needs a new snapshot: connect.delete(world, name), {drop}, then apply it again"
    elif retained_mib >= limit_mib:
        remedy = (
            "start its connector, give it heartbeat.action.query (as in params/connectors/outbox_source.json), "
            f"or end open transactions (pg_stat_activity); or, if nothing will read it again, {drop}"
        )
    title = f"replication slot {slot.slot_name} (database {slot.database})"
    return Finding(title, detail, remedy, is_warning=True)
