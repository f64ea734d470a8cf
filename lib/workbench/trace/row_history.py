"""One row's biography: `workbench trace artists 299`, or `row(world, traced(world, "artists"),
299)`.

Every change of the row, from the source's log to the views of the lake: LSN and transaction →
topic, partition, offset → schema → landed file → Hudi commit, file group, base or log file → what
each view shows. The topic is read for the messages of one key, and the rest is looked up in names,
timelines and the lake as of each commit (see in_lake); Spark is asked only for what hudi-rs cannot
read.
"""

from dataclasses import dataclass
from typing import Any, Mapping, Optional

import pandas

from .. import hudi
from ..base import World, files
from ..base.paths import join_uri
from ..hudi.changes import reading_order
from ..hudi.timeline import completed_actions
from . import in_topic
from .in_lake import find_commit, rows_of_key, versions_at, view_names, written_file
from .in_topic import TracedTable

NOW, WAS, NOT_YET, NEVER = "now", "was", "not yet", "never"
INTERNAL_COLUMNS = [
    "record",
    "needle",
    "_state",
]  # what a change is known by here, and nobody else asks for


@dataclass(frozen=True)
class RowHistory:
    """What `row` found: `changes`, one line per change, and `views`, the row as each view shows it
    now.
    """

    table: TracedTable
    key: Any
    changes: pandas.DataFrame
    views: pandas.DataFrame


def row(world: World, table: TracedTable, key: Any) -> RowHistory:
    """Follow one row through everything.

    Args:
        table: `walkthroughs.traced_table` gives that of a captured table. key: of the row, a number or a
            text.

    Returns:
        changes: one line per change, oldest first: change, made_at (UTC), op, what, lsn,
            transaction (of a snapshot's row that of the snapshot), partition, offset, in_topic_at,
            schema (its id; "inline" of JSON), version, landed (file below the landing); then for
            each lake table <kind>_commit, <kind>_file_group, <kind>_file; then for each view
            whether it shows this change: now, was (time travel finds it), not yet (before
            compaction), never (a later change came with the same commit).
        views: for each view the rows it has of this key now, read by hudi-rs, by Spark where that
            cannot. A read-optimised view has two where a record moved and was not compacted yet.

    Raises:
        LakeError: no message of such a key. WorkbenchError: no topic. StackError: a service does
            not answer.
    """
    events = in_topic.events(world, table, key)
    where = {table.key: events[0]["record"][table.key]}
    shown = views(world, table, where)
    for event in events:
        event["landed"] = _landed_file(world, table, event)
    for lake in table.tables:
        _add_table_columns(world, table, lake, where, events, shown)
    changes = pandas.DataFrame(events).drop(columns=INTERNAL_COLUMNS, errors="ignore")
    kinds = {
        "transaction": "Int64",
        "made_at": "datetime64[us, UTC]",
    }  # also where no message says them
    return RowHistory(table, where[table.key], changes.astype(kinds), shown)


def views(world: World, table: TracedTable, where: Mapping[str, Any]) -> pandas.DataFrame:
    """The rows of a key as each view shows them now."""
    found = [
        {**row, "view": view}
        for lake in filter(hudi.exists, table.tables)
        for view, kind in hudi.catalog_names(lake).items()
        for row in rows_of_key(world, lake, where, kind)
    ]
    return pandas.DataFrame(found or {"view": []})


def _landed_file(world: World, table: TracedTable, event: dict[str, Any]) -> str:
    """The landed file that holds a message, below the landing; "" where there is none."""
    sink, partition = table.sink, event["partition"]
    if sink is None:
        return ""
    below, _ = sink.folder_of(
        event["record"], partition, int(event["in_topic_at"].timestamp() * 1000)
    )
    prefix = "/".join(p for p in (sink.prefix_of(table.topic), below) if p)
    folder = join_uri(world.lake.landing, prefix)
    orders = (reading_order(i.base_name, 0) for i in files.list_dir(folder) if i.is_file)
    first = {
        o[3]: o[4]
        for o in orders
        if o[:3] == (True, table.topic, partition) and o[3] <= event["offset"]
    }
    name = first[max(first)] if first else ""
    return (
        f"{prefix}/{name}"
        if name and event["needle"] in files.read_bytes(f"{folder}/{name}")
        else ""
    )


def _add_table_columns(
    world: World,
    table: TracedTable,
    lake: hudi.Table,
    where: Mapping[str, Any],
    events: list[dict[str, Any]],
    shown: pandas.DataFrame,
) -> None:
    """Add the columns of one lake table and of its views to every change."""
    done = completed_actions(lake)
    commits = [find_commit(world, lake, done, table.topic, event) for event in events]
    last = max((n for n, c in enumerate(commits) if c), default=None)
    # what base files have held: versions that went into one, and those that a compaction brought
    # there
    based = {
        v
        for c in done
        if lake.type == "mor" and c.action == "commit"
        for v in versions_at(world, lake, where, c, "read_optimized")
    }
    group = ""
    for number, (event, commit) in enumerate(zip(events, commits)):
        merged = commit is not None and commit.instant in {
            c.instant for c in commits[number + 1 :] if c
        }
        mine = (
            written_file(world, lake, commit, where, event["record"], group)
            if commit and not merged
            else {}
        )
        group, path = mine.get("fileId", group), mine.get("path") or ""
        if path.endswith(".parquet"):
            based.add(lake.ordering_value(event["record"]))
        event[f"{lake.type}_commit"] = commit.instant if commit else ""
        event[f"{lake.type}_file_group"], event[f"{lake.type}_file"] = mine.get("fileId", ""), path
        event["_state"] = NEVER if merged else WAS if commit else ""
    for short, view in view_names(lake).items():
        here = {lake.ordering_value(r) for r in shown[shown["view"] == view].to_dict("records")}
        for number, event in enumerate(events):
            event[short] = _visibility(
                event["_state"],
                event["record"],
                lake,
                here,
                number == last,
                based if short == "mor_ro" else None,
            )


def _visibility(
    state: str,
    record: dict[str, Any],
    lake: hudi.Table,
    here: set,
    last: bool,
    based: Optional[set],
) -> str:
    """Whether a view shows a change: `here` are the versions it shows, `based` those that base
    files have held.
    """
    if state != WAS:
        return state
    version, gone = (
        lake.ordering_value(record),
        record.get("__op") == "d" and lake.deletes == "hard",
    )
    if version in here or (last and gone and not here):
        return NOW
    if based is None or version in based:
        return WAS
    return NOT_YET if last else NEVER
