"""Health of change data capture: the log that slots retain, and how partitions are published."""

import contextlib
from typing import Any

import pandas

from .. import stack
from ..base import WorkbenchError, World
from ..stack.doctor import Finding
from . import postgres
from .names import format_sql

# The doctor warns if a slot retains more log. The embedded server drops a slot at 2 GB.
RETAINED_WARNING_MIB = 256
IDLE_HINT = (
    "its connector commits no position: give it heartbeat.action.query, as in "
    "params/connectors/outbox_source.json; or a transaction is open (pg_stat_activity)"
)


def examine(world: World) -> list[Finding]:
    """Examine the slots and publications of the source database.

    Returns:
        One Finding for all slots, or one for each slot that retains too much log, and one for each
        publication that publishes partitions. If PostgreSQL cannot be read, one Finding says so.
        Empty if the embedded PostgreSQL does not run.
    """
    try:
        slots, databases = postgres.all_slots(world), postgres.databases(world)
    except WorkbenchError as e:
        if not _is_expected(world):
            return []
        remedy = e.hint or "look at PostgreSQL: `workbench status`"
        detail = f"cannot be read: {e.message}"
        return [Finding("replication slots", detail, remedy, is_warning=True)]
    is_large = slots["bytes_behind"] >= RETAINED_WARNING_MIB << 20
    findings = [
        _slot_finding(slot)
        for slot in slots[is_large | (slots["wal_status"] == "lost")].itertuples()
    ]
    if not findings:
        maximum = slots["bytes_behind"].max() if len(slots) else 0
        detail = f"{len(slots)}, each retains at most {_format_mib(maximum)} of log"
        findings = [Finding("replication slots", detail)]
    for name in databases:
        findings += _publication_findings(world, name)
    return findings


def _slot_finding(slot: Any) -> Finding:
    if slot.wal_status == "lost":
        detail = "the server has removed log that the slot needs"
        remedy = (
            "the connector needs a new snapshot: "
            "connect.delete(world, name), postgres.drop_slot, then apply it again"
        )
    else:
        detail = f"the server retains {_format_mib(slot.bytes_behind)} of log for the slot"
        remedy = IDLE_HINT
        if not slot.active:
            drop = f"postgres.drop_slot(world, {slot.slot_name!r}, {slot.database!r})"
            remedy = f"no connector reads it: start its connector, or {drop}"
    title = f"replication slot {slot.slot_name} (database {slot.database})"
    return Finding(title, detail, remedy, is_warning=True)


def _publication_findings(world: World, database: str) -> list[Finding]:
    tables = pandas.DataFrame(columns=["publication", "table"])
    with contextlib.suppress(WorkbenchError):  # a template, or a database of the provider's own
        tables = postgres.tables_published_by_partition(world, database)
    findings = []
    for name, rows in tables.groupby("publication"):
        statement = format_sql("ALTER PUBLICATION {} SET (publish_via_partition_root = true)", name)
        findings.append(
            Finding(
                f"publication {name} (database {database})",
                f"publishes the changes of {', '.join(rows['table'])} "
                "under the names of the partitions",
                "a connector whose table.include.list names the table loses them: "
                + statement.as_string(None),
                is_warning=True,
            )
        )
    return findings


def describe_slots(world: World) -> list[str]:
    """Return the replication slots as a text table.

    Returns:
        Lines of text, the first one the header; none if there are no slots, or the embedded
        PostgreSQL does not run. If the slots cannot be read, one line says so.
    """
    try:
        slots = postgres.all_slots(world)
    except WorkbenchError as e:
        if not _is_expected(world):
            return []
        return [f"replication slots cannot be read: {e.message}"]
    rows = [("replication slot", "database", "state", "retained log")]
    for slot in slots.itertuples():
        state = "active" if slot.active else "inactive"
        rows.append((slot.slot_name, slot.database, state, _format_mib(slot.bytes_behind)))
    if len(rows) == 1:
        return []
    return ["{:<32}  {:<16}  {:<8}  {:>12}".format(*row) for row in rows]


def _is_expected(world: World) -> bool:
    """Return whether PostgreSQL should respond: it is not of this instance, or it runs."""
    return not world.manages("postgres") or "postgres" in stack.running()


def _format_mib(size_bytes: int) -> str:
    return f"{size_bytes / 2**20:,.1f} MiB"
