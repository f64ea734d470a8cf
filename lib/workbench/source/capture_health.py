"""Looks at what capture does to the source database: what its slots retain of the log, how
partitions are published.
"""

import contextlib

import pandas

from .. import stack
from ..base import WorkbenchError, World
from ..stack.doctor import Finding
from . import postgres
from .names import format_sql

# of log for one slot: beyond that the doctor warns. The embedded server drops a slot at 2 GB
RETAINED_WARNING_MIB = 256
IDLE_HINT = (
    "its connector confirms nothing: give it heartbeat.action.query, as params/connectors/outbox_source.json has; "
    "or a transaction is open (pg_stat_activity)"
)


def examine(world: World) -> list[Finding]:
    """Return a Finding for the slots, or one for each slot that retains much, and one for each
    publication that publishes partitions; one that they cannot be read; none where the embedded
    PostgreSQL does not run.
    """
    try:
        found, databases = postgres.all_slots(world), postgres.databases(world)
    except WorkbenchError as e:
        fix = e.hint or "look at PostgreSQL: `workbench status`"
        return (
            [Finding("replication slots", f"cannot be read: {e.message}", fix, is_warning=True)]
            if _is_expected(world)
            else []
        )
    bad = found[
        (found["bytes_behind"] >= RETAINED_WARNING_MIB << 20) | (found["wal_status"] == "lost")
    ]
    much = [_slot_finding(row) for row in bad.itertuples()]
    most = found["bytes_behind"].max() if len(found) else 0
    fine = Finding(
        "replication slots", f"{len(found)}, each retains at most {_format_mib(most)} of log"
    )
    return [
        *(much or [fine]),
        *(found for name in databases for found in _publication_findings(world, name)),
    ]


def _slot_finding(row: tuple) -> Finding:
    subject = f"replication slot {row.slot_name} (database {row.database})"
    if row.wal_status == "lost":
        return Finding(
            subject,
            "the server has removed log that it needs",
            "the connector needs a new snapshot: "
            "connect.delete(world, name), postgres.drop_slot, then apply it again",
            is_warning=True,
        )
    unread = f"no connector reads it: start that, or postgres.drop_slot(world, {row.slot_name!r}, {row.database!r})"
    return Finding(
        subject,
        f"the server retains {_format_mib(row.bytes_behind)} of log for it",
        IDLE_HINT if row.active else unread,
        is_warning=True,
    )


def _publication_findings(world: World, database: str) -> list[Finding]:
    split = pandas.DataFrame(columns=["publication", "table"])
    with contextlib.suppress(WorkbenchError):  # a template, or a database of the provider's own
        split = postgres.tables_published_by_partition(world, database)
    return [
        Finding(
            f"publication {name} (database {database})",
            f"publishes the changes of {', '.join(rows['table'])} under the names of the partitions",
            "a connector whose table.include.list names the table loses them: "
            + format_sql(
                "ALTER PUBLICATION {} SET (publish_via_partition_root = true)", name
            ).as_string(None),
            is_warning=True,
        )
        for name, rows in split.groupby("publication")
    ]


def describe_slots(world: World) -> list[str]:
    """Return the replication slots as lines of text, the first one their header; or a line that
    they cannot be read; none where there are no slots, or the embedded PostgreSQL does not run.
    """
    try:
        found = postgres.all_slots(world)
    except WorkbenchError as e:
        return [f"replication slots cannot be read: {e.message}"] if _is_expected(world) else []
    line = "{:<32}  {:<16}  {:<8}  {:>12}".format
    rows = [
        line(
            row.slot_name,
            row.database,
            "active" if row.active else "inactive",
            _format_mib(row.bytes_behind),
        )
        for row in found.itertuples()
    ]
    return rows and [line("replication slot", "database", "state", "retained log"), *rows]


def _is_expected(world: World) -> bool:
    """Return whether PostgreSQL should answer: it is not of this instance, or it runs."""
    return not world.stack.embedded or "postgres" in stack.running()


def _format_mib(size: int) -> str:
    return f"{size / 2**20:,.1f} MiB"
