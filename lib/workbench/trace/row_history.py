"""The history of one row: `workbench trace artists 299`, or `row(world, flow, "artists", 299)`.

The history has every change of the row, from the source's log to the views of the lake: LSN and
transaction → topic, partition, offset → schema → landed file → Hudi commit, file group, base or log
file → visibility in each view. The messages of the key are read from the topic. The other values come
from file names, timelines and queries of the lake as of each commit (see in_lake). Spark is used only
if hudi-rs cannot read a table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping, Optional, Sequence

import pandas

from .. import hudi, landing
from ..base import LakeError, World, files
from ..base.paths import join_uri
from ..base.text import plural
from ..display import show
from ..display.result import Result
from ..flow import Capture, CaptureFlow
from ..hudi.changes import is_hidden, parse_landed_file
from ..hudi.timeline import CompletedAction, WriteStat, completed_actions
from ..landing.sinks import Sink
from . import in_topic
from .in_lake import find_commit, rows_of_key, short_name, versions_at, view_names, written_file
from .in_topic import Change

NOW, WAS, NOT_YET, NEVER = "now", "was", "not yet", "never"
# fields of Change that are not in the result
INTERNAL_COLUMNS = ["record", "payload_bytes", "lake"]
IN_SOURCE = ["change", "made_at", "op", "what", "lsn", "transaction"]
IN_TOPIC = ["change", "partition", "offset", "in_topic_at", "schema", "version", "landed"]
HIDDEN_FIELDS = ["_hoodie_commit_seqno", "_hoodie_record_key"]


@dataclass(frozen=True, eq=False, repr=False)
class RowHistory(Result):
    """The history of a row, as `row` returns it. Its text is what `workbench trace` prints.

    Attributes:
        title: name of the captured table, key, and number of changes.
        key: record key of the row.
        topic: topic of the table.
        tables: the lake tables.
        changes: one row per change (see `row`).
        views: the current rows of each view (see `row`).
    """

    title: str
    key: Any
    topic: str
    tables: Sequence[hudi.Table]
    changes: pandas.DataFrame
    views: pandas.DataFrame

    limit = 1000

    def parts(self) -> Mapping[str, pandas.DataFrame]:
        """Return the changes in the source, the topic and each lake table, and the current fields."""
        parts = {"source": self.changes[IN_SOURCE], f"topic {self.topic}": self.changes[IN_TOPIC]}
        for lake in self.tables:
            short = short_name(lake, self.tables)
            columns = ["change", f"{short}_commit", f"{short}_file", *view_names(lake, short)]
            parts[f"table {lake.name}"] = show.short_names(self.changes[columns], f"{short}_file")
        if len(self.views):  # a line for each field: rows are wide, and there are few views
            fields = self.views.drop(columns=HIDDEN_FIELDS, errors="ignore").set_index("view")
            parts["shown now"] = fields.astype(object).T.reset_index(names="field")
        return parts


def row(world: World, flow: CaptureFlow, name: str, key: Any) -> RowHistory:
    """Trace one row from its source to the lake.

    Args:
        world: the world.
        flow: the captured tables.
        name: name of the captured table; it may be "" if the flow has only one.
        key: record key of the row, a number or a text.

    Returns:
        changes: one row per change, oldest first: change, made_at (UTC), op, what, lsn, transaction
            (of a snapshot row: the transaction of the snapshot), partition, offset, in_topic_at
            (UTC), schema (its id; "inline" for JSON), version, landed (file, relative to the landing
            folder); then for each lake table <name>_commit, <name>_file_group, <name>_file (see
            `short_name`); then one column per view with the visibility of the change: now, was (only
            by time travel), not yet (before compaction), never (the same commit has a later change).
        views: the current rows of the key in each view, read by hudi-rs, or by Spark if hudi-rs
            cannot read the table. A read-optimized view has two rows if a record has moved to
            another partition and was not compacted yet.

    Raises:
        LakeError: the flow has no such table, its key has several columns, it is polled, or no message
            has this key.
        WorkbenchError: the topic does not exist.
        StackError: a service does not respond.
    """
    capture = flow.capture(name)
    _require_traceable(flow, capture)
    topic, tables = flow.topic(world, capture.name), flow.tables(world, capture.name)
    changes = in_topic.events(world, capture, topic, key)
    (key_column,) = capture.keys
    record_key = {key_column: changes[0].record[key_column]}
    current = _current_rows(world, tables, record_key)
    if capture.sink:
        sink = landing.parse(flow.config(world, capture.sink))
        for change in changes:
            change.landed = _landed_file(world, sink, topic, change)
    for lake in tables:
        short = short_name(lake, tables)
        _add_table_columns(world, topic, lake, short, record_key, changes, current)
    rows = pandas.DataFrame([{**vars(change), **change.lake} for change in changes])
    # set explicitly, because a column without any value would have another type
    types = {"transaction": "Int64", "made_at": "datetime64[us, UTC]"}
    rows = rows.drop(columns=INTERNAL_COLUMNS).astype(types)
    title = f"{capture.name} {record_key[key_column]}: {plural(len(rows), 'change')}"
    return RowHistory(title, record_key[key_column], topic, tables, rows, current)


def _require_traceable(flow: CaptureFlow, capture: Capture) -> None:
    reason = ""
    if flow.polled:
        reason = "the table is polled"
    elif len(capture.keys) > 1:
        reason = f"the key is {', '.join(capture.keys)}"
    if reason:
        raise LakeError(
            f"{capture.name} cannot be traced: {reason}",
            expected="a key of one column, captured from the log",
        )


def _current_rows(
    world: World, tables: Sequence[hudi.Table], key: Mapping[str, Any]
) -> pandas.DataFrame:
    """Return the current rows of a key ({field: value}) in each view, with a column `view`."""
    rows = [
        {**row, "view": view}
        for lake in tables
        if hudi.exists(lake)
        for view, kind in hudi.catalog_names(lake).items()
        for row in rows_of_key(world, lake, key, kind)
    ]
    return pandas.DataFrame(rows or {"view": []})


def _landed_file(world: World, sink: Sink, topic: str, change: Change) -> str:
    """Return the landed file of a message, relative to the landing folder, or ""."""
    partition_path = sink.record_folder(change.record, change.partition)
    prefix = "/".join(filter(None, (sink.prefix_of(topic), partition_path)))
    folder = join_uri(world.lake.landing, prefix)
    landed = [
        parse_landed_file(f"{prefix}/{info.base_name}")
        for info in files.list_dir(folder)
        if info.is_file and not is_hidden(info.base_name)
    ]
    candidates = [
        file
        for file in landed
        if (file.topic, file.partition) == (topic, change.partition)
        and file.offset <= change.offset
    ]
    if not candidates:
        return ""
    path = max(candidates).path
    data = files.read_bytes(join_uri(world.lake.landing, path))
    return path if change.payload_bytes in data else ""


def _add_table_columns(
    world: World,
    topic: str,
    lake: hudi.Table,
    short: str,
    key: Mapping[str, Any],
    changes: list[Change],
    current: pandas.DataFrame,
) -> None:
    """Add the columns of one lake table and of its views to every change.

    Args:
        world: the world.
        topic: topic of the changes.
        lake: the lake table.
        short: its `short_name`, with which the columns begin.
        key: {field: value} of the row.
        changes: all changes of the row, oldest first.
        current: the result of `_current_rows` for the row.
    """
    actions = completed_actions(lake)
    commits = [find_commit(actions, topic, change) for change in changes]
    base_versions = _compacted_versions(world, lake, key, actions)
    states: list[str] = []
    group = ""
    for number, (change, commit) in enumerate(zip(changes, commits)):
        state = ""
        file: WriteStat = {}
        if commit and commit in commits[number + 1 :]:
            state = NEVER
        elif commit:
            state = WAS
            file = written_file(world, lake, commit, key, change.record, group)
        states.append(state)
        group, path = file.get("fileId", group), file.get("path") or ""
        if path.endswith(".parquet"):
            base_versions.add(lake.ordering_value(change.record))
        change.lake[f"{short}_commit"] = commit.instant if commit else ""
        change.lake[f"{short}_file_group"] = file.get("fileId", "")
        change.lake[f"{short}_file"] = path
    last = max((n for n, commit in enumerate(commits) if commit), default=None)
    for column, view in view_names(lake, short).items():
        rows = current[current["view"] == view].to_dict("records")
        visible = {lake.ordering_value(row) for row in rows}
        needs_base = base_versions if lake.type == "mor" and column.endswith("_ro") else None
        for number, change in enumerate(changes):
            change.lake[column] = _visibility(
                states[number], change.record, lake, visible, number == last, needs_base
            )


def _compacted_versions(
    world: World, lake: hudi.Table, key: Mapping[str, Any], actions: list[CompletedAction]
) -> set[Any]:
    """Return the ordering values of a row that the compactions of a table wrote to base files."""
    versions: set[Any] = set()
    if lake.type == "mor":
        for action in actions:
            if action.action == "commit":
                versions.update(versions_at(world, lake, key, action, "read_optimized"))
    return versions


def _visibility(
    state: str,
    record: dict[str, Any],
    lake: hudi.Table,
    visible: set[Any],
    is_last: bool,
    base_versions: Optional[set[Any]],
) -> str:
    """Return the visibility of a change in a view: NOW, WAS, NOT_YET, NEVER or "".

    Args:
        state: WAS if a commit has written the change. Any other state is the result.
        record: the change.
        lake: the table.
        visible: ordering values of the rows that the view shows.
        is_last: whether the change is the last committed change.
        base_versions: for a read-optimized view, the ordering values that base files have had; else
            None.
    """
    if state != WAS:
        return state
    version = lake.ordering_value(record)
    is_hard_delete = record.get("__op") == "d" and lake.deletes == "hard"
    if version in visible or (is_last and is_hard_delete and not visible):
        return NOW
    if base_versions is None or version in base_versions:
        return WAS
    return NOT_YET if is_last else NEVER
