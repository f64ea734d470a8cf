"""Read the timeline of a Hudi table from its files: commits, and which instants can still be read.

Table version 6 has one clock. An instant is the time at which its action was *requested*; it orders
commits, time travel and incremental reads. (From table version 8 on Hudi also records the completion
time.) Instants are UTC. The JVMs here run in UTC, and new tables set hoodie.table.timeline.timezone
for every other writer.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Iterator, NamedTuple, Optional, TypedDict

import pandas as pd
from pyarrow.fs import FileInfo

from ..base import LakeError, files, wait_until
from .tables import TABLE_TYPES, TABLE_VERSION, Table

# Key in a commit's extra metadata, where Hudi keeps options that begin with _: an ingest's progress.
PROGRESS_KEY = "_workbench_progress"
# Key in a commit's extra metadata: how the source's schema changed (see evolution.describe_change).
SCHEMA_CHANGE_KEY = "_workbench_schema_change"
WRITE_ACTIONS = ("commit", "deltacommit", "replacecommit")  # actions that change query results
COUNTERS = {  # of the rows in a commit: the column of `commits`, and Hudi's name
    "inserted": "numInserts",
    "updated": "numUpdateWrites",
    "deleted": "numDeletes",
    "written": "numWrites",
}
MAX_CLOCK_SKEW_S = 10  # tolerated difference between the clocks of two machines
# <file group>_<write token>_<instant>.parquet
BASE_FILE_PATTERN = re.compile(r"(?P<group>.+)_[^_/]+_(?P<instant>\d+)\.parquet")


WriteStat = dict[str, Any]  # what a commit records about a file that it wrote; Hudi's names


class HistoryRemoved(LakeError):
    """The files or the commits that a read of the past needs were removed."""


class CommitMetadata(TypedDict, total=False):
    """The metadata of a commit, as far as it is used here; Hudi's names."""

    operationType: str
    extraMetadata: dict[str, str]
    partitionToWriteStats: dict[str, list[WriteStat]]
    partitionToReplaceFileIds: Optional[dict[str, list[str]]]


class TimelineFile(NamedTuple):
    """A file of the active timeline, `<instant>.<suffix>`, such as `….compaction.requested`."""

    instant: str
    suffix: str
    info: FileInfo


@dataclass(frozen=True)
class CompletedAction:
    """A completed action on the timeline.

    Attributes:
        instant: time at which the action was requested (digits, UTC).
        action: Hudi's name of it, such as `deltacommit`.
        uri: its file on the timeline.
        seconds: duration; None if the request's file is gone.
    """

    instant: str
    action: str
    uri: str
    seconds: Optional[float]

    @cached_property
    def metadata(self) -> CommitMetadata:
        """The metadata of the commit; JSON in table version 6."""
        text = files.read_text(self.uri)
        metadata: CommitMetadata = json.loads(text or "{}")
        return metadata


def check_readable(table: Table, instant: str) -> bool:
    """Check that the table can still be read as of an instant.

    Returns:
        False before the first commit, where there is nothing to read.

    Raises:
        HistoryRemoved: files that the read needs were cleaned away, or the commits of the instant
            were archived. Hudi itself would return the rows that are left.
    """
    actions = completed_actions(table)
    check_not_archived(table, instant, actions)
    existing = set(files.list_files(table.base))
    missing = missing_files(actions, instant, existing)
    if missing:
        readable = (a.instant for a in actions if not missing_files(actions, a.instant, existing))
        raise HistoryRemoved(
            f"{len(missing)} of the files that {instant} needs were cleaned away",
            location=min(missing),
            expected=f"an instant from {next(readable, 'none')} on",
            hint="keep more: hoodie.cleaner.commits.retained or hoodie.cleaner.fileversions.retained, by the "
            "cleaner's policy; or set a savepoint",
        )
    return any(action.instant <= instant for action in actions)


def check_not_archived(table: Table, instant: str, actions: list[CompletedAction]) -> None:
    """Raise HistoryRemoved if the commits of an instant were archived: no reader looks at those.

    Args:
        table: the table.
        instant: digits, UTC.
        actions: as `completed_actions` returns them.
    """
    if actions and instant < actions[0].instant and archive_folder(table):
        raise HistoryRemoved(
            f"the commits of {instant} were archived",
            location=archive_folder(table),
            expected=f"an instant from {actions[0].instant} on",
            hint="keep more of them: hoodie.keep.min.commits, hoodie.keep.max.commits",
        )


def parse_instant(instant: str) -> dt.datetime:
    """Convert an instant, with or without milliseconds, to a time in UTC."""
    return dt.datetime.strptime(f"{instant:0<17}000", "%Y%m%d%H%M%S%f").replace(
        tzinfo=dt.timezone.utc
    )


def check_clock(table: Table) -> None:
    """Raise LakeError if the newest instant of the table lies in the future.

    A commit made now would sort before that instant, and its rows would not be seen. A difference of
    up to MAX_CLOCK_SKEW_S is waited for: the clocks of two machines may differ.
    """
    newest = max((file.instant for file in timeline_files(table)), default="19700101")

    def seconds_ahead() -> float:
        return (parse_instant(newest) - dt.datetime.now(dt.timezone.utc)).total_seconds()

    if 0 < seconds_ahead() <= MAX_CLOCK_SKEW_S:
        wait_until(lambda: seconds_ahead() <= 0, f"instant {newest} to pass", timeout=60)
    if seconds_ahead() > 0:
        now = dt.datetime.now(dt.timezone.utc)
        ahead = dt.timedelta(seconds=math.ceil(seconds_ahead()))
        raise LakeError(
            f"the newest commit of {table.name} lies {ahead} (hours:minutes:seconds) ahead of this machine's clock",
            location=f"instant {newest}, clock {now:%Y%m%d%H%M%S} (UTC); {table.base}",
            expected="instants of the past: a commit that is made now would sort before it, and not be seen",
            hint="if the clock was set back, correct it. If the table was written in local time, east of Greenwich, "
            f"as older versions of this workbench did: wait {ahead}, or start clean: hudi.drop, then ingest anew",
        )


def commits(table: Table) -> pd.DataFrame:
    """List the completed write actions of the active timeline, oldest first.

    Returns:
        instant, action, operation (Hudi's name); inserted, updated, deleted and written (rows);
        files and bytes written; seconds.
    """
    rows = []
    for action in completed_actions(table):
        stats = [stat for _, stat in write_stats(action.metadata)]
        totals = {
            name: sum(max(stat.get(counter) or 0, 0) for stat in stats)
            for name, counter in {**COUNTERS, "bytes": "totalWriteBytes"}.items()
        }
        operation = action.metadata.get("operationType")
        row = {"action": action.action, "operation": operation, **totals, "files": len(stats)}
        rows.append({"instant": action.instant, **row, "seconds": action.seconds})
    columns = ["instant", "action", "operation", *COUNTERS, "files", "bytes", "seconds"]
    return pd.DataFrame(rows, columns=columns)


def schema_changes(table: Table) -> pd.DataFrame:
    """List the commits of the active timeline with which the source's schema changed, oldest first.

    Returns:
        instant, change (text).
    """
    changes = {
        action.instant: extra_metadata(action.metadata).get(SCHEMA_CHANGE_KEY)
        for action in completed_actions(table)
    }
    return pd.DataFrame(filter(all, changes.items()), columns=["instant", "change"])


def extra_metadata(metadata: CommitMetadata) -> dict[str, str]:
    """Return the key-value pairs that the writer added to a commit's metadata."""
    return metadata.get("extraMetadata", {})


def write_stats(metadata: CommitMetadata) -> Iterator[tuple[str, WriteStat]]:
    """Yield (partition path, statistics) of each file that a commit wrote."""
    for partition, stats in metadata.get("partitionToWriteStats", {}).items():
        for stat in stats:
            yield partition, stat


def replaced_file_groups(metadata: CommitMetadata) -> Iterator[tuple[str, str]]:
    """Yield (partition path, file id) of each file group that a commit, such as a clustering, replaced."""
    for partition, file_ids in (metadata.get("partitionToReplaceFileIds") or {}).items():
        for file_id in file_ids:
            yield partition, file_id


def timeline_files(table: Table) -> list[TimelineFile]:
    """List the files of the active timeline, in no order."""
    timeline = []
    for info in files.list_dir(f"{table.base}/.hoodie"):
        instant, _, suffix = info.base_name.partition(".")
        if instant.isdigit():
            timeline.append(TimelineFile(instant, suffix, info))
    return timeline


def completed_actions(table: Table, *actions: str) -> list[CompletedAction]:
    """List the completed actions of the active timeline, oldest first.

    Args:
        table: the table.
        actions: Hudi's names of the actions to list; by default those that write.
    """
    timeline = timeline_files(table)
    requested = {f.instant: f.info.mtime for f in timeline if f.suffix.endswith("requested")}
    completed = []
    for instant, action, info in sorted(timeline, key=lambda file: file.instant):
        if action in (actions or WRITE_ACTIONS):
            seconds = None
            if instant in requested:
                seconds = (info.mtime - requested[instant]).total_seconds()
            uri = f"{table.base}/.hoodie/{info.base_name}"
            completed.append(CompletedAction(instant, action, uri, seconds))
    return completed


def require_commits(table: Table, purpose: str) -> list[CompletedAction]:
    """List the completed write actions; raise LakeError if the table has none.

    Args:
        table: the table.
        purpose: verb for the error message.
    """
    actions = completed_actions(table)
    if not actions:
        raise LakeError(
            f"table {table.name} has no completed commit to {purpose}",
            location=table.base,
            hint="ingest something into it first",
        )
    return actions


def pending_compactions(table: Table) -> list[str]:
    """List the instants of the compactions that were scheduled and are not complete, oldest first."""
    scheduled = {
        file.instant
        for file in timeline_files(table)
        if file.suffix in ("compaction.requested", "compaction.inflight")
    }
    return sorted(scheduled - {action.instant for action in completed_actions(table, "commit")})


def missing_files(actions: list[CompletedAction], instant: str, existing: set[str]) -> set[str]:
    """Return the files that a read as of an instant needs and that do not exist any more.

    Args:
        actions: all of the active timeline, as `completed_actions` returns them.
        instant: digits, UTC.
        existing: paths of the files of the table.

    Returns:
        Paths. A `*` replaces an unknown part of the name of a file whose commit was archived.
    """
    needed = set().union(*file_slices(actions, instant).values())
    base_files = filter(None, map(BASE_FILE_PATTERN.fullmatch, existing))
    patterns = {
        pattern
        for match in base_files
        for pattern in (_base_file(match["group"], match["instant"]), _base_file(match["group"]))
    }
    return needed - existing - patterns


def file_slices(actions: list[CompletedAction], instant: str) -> dict[str, set[str]]:
    """Return {file group: paths of the files that a read as of an instant needs}.

    Commits up to the instant name their files. A later commit implies a base file of an archived
    commit, if no earlier commit mentions the file group. The prevCommit of a write is the instant of
    that base file. If the file group was replaced, its instant is unknown.
    """
    slices: dict[str, set[str]] = {}
    for action in actions:
        is_past = action.instant <= instant
        for partition, stat in write_stats(action.metadata):
            group, path = _file_group(partition, stat["fileId"]), stat.get("path") or ""
            if not is_past:
                previous = stat.get("prevCommit") or "null"  # "null" sorts after every instant
                is_archived = previous <= instant
                slices.setdefault(group, {_base_file(group, previous)} if is_archived else set())
            elif path.endswith(".parquet"):
                slices[group] = {path}  # a base file holds all that came before it
            elif path:
                slices.setdefault(group, set()).add(path)
        for partition, file_id in replaced_file_groups(action.metadata):
            group = _file_group(partition, file_id)
            if is_past:
                slices.pop(group, None)
            else:
                slices.setdefault(group, {_base_file(group)})
    return slices


def _base_file(group: str, instant: str = "") -> str:
    """Return the path of a base file of an archived commit, with a `*` for what is unknown of its name."""
    return f"{group}_*{instant}.parquet"


def _file_group(partition: str, file_id: str) -> str:
    """Return the path prefix of a file group; a table without partitions has one named ""."""
    return f"{partition}/{file_id}" if partition else file_id


def exists(table: Table) -> bool:
    """Return whether the table was written to."""
    return bool(_read_properties(table))


def properties(table: Table) -> dict[str, str]:
    """Read `.hoodie/hoodie.properties` of the table. Raises LakeError if there is no table."""
    entries = _read_properties(table)
    if not entries:
        raise LakeError(
            f"there is no Hudi table {table.name}",
            location=table.base,
            hint="ingest something into it first (a run without any row makes no table)",
        )
    return entries


def check_version(table: Table) -> None:
    """Raise LakeError if the table exists and has another table version than 6."""
    entries = _read_properties(table)
    version = entries.get("hoodie.table.version")
    if entries and version != TABLE_VERSION:
        raise LakeError(
            f"table {table.name} has Hudi table version {version}",
            location=f"{table.base}/.hoodie",
            expected=f"version {TABLE_VERSION}, which Athena reads",
            hint="some writer did not set hoodie.write.table.version=6; start clean with hudi.drop",
        )


def check_type(table: Table) -> None:
    """Raise LakeError if the table exists and is not of its type: its names in the catalog would be wrong."""
    stored = _read_properties(table).get("hoodie.table.type")
    if stored in (None, TABLE_TYPES[table.type]):
        return
    name = next((name for name, text in TABLE_TYPES.items() if text == stored), stored)
    raise LakeError(
        f"table {table.name} is {stored}, not {TABLE_TYPES[table.type]}",
        location=f"{table.base}/.hoodie",
        expected=f'type="{name}"',
        hint="name this type, or drop the table and ingest it anew",
    )


def _read_properties(table: Table) -> dict[str, str]:
    text = files.read_text(f"{table.base}/.hoodie/hoodie.properties") or ""
    lines = [line.partition("=") for line in text.splitlines() if not line.startswith("#")]
    return {name.strip(): _unescape(value.strip()) for name, separator, value in lines if separator}


def _unescape(value: str) -> str:
    """Return a value of a properties file of Java, which escapes `:`, `=` and what is not Latin-1."""
    return re.sub(
        r"\\(?:u([0-9A-Fa-f]{4})|(.))",
        lambda match: chr(int(match[1], 16)) if match[1] else match[2],
        value,
    )


def archive_folder(table: Table) -> str:
    """Return the folder of the archived timeline; "" if it is empty.

    The table's properties name the folder. Tables made by Hudi 1.0.2 have `history`.
    """
    name = _read_properties(table).get("hoodie.archivelog.folder") or "archived"
    folder = f"{table.base}/.hoodie/{name}"
    return folder if files.list_files(folder) else ""
