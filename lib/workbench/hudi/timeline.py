"""The timeline of a Hudi table, read from its files: what was committed when, and what can still be
read.

Table version 6 has one clock: an instant is the time at which its action was *requested*, and it is
what orders commits, time travel and incremental reads (Hudi's table versions from 8 on know the
completion time as well). It is
UTC: the Javas here run in UTC, and new tables say it (hoodie.table.timeline.timezone), for who else
    writes to them.
"""

import datetime as dt
import json
import math
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Iterator, Optional

import pandas as pd

from ..base import LakeError, files, wait_until
from .tables import TABLE_VERSION, Table

# in a commit's extra metadata what the source changed (see evolving.describe_change)
SCHEMA_CHANGE_KEY = "_workbench_schema_change"
WRITE_ACTIONS = ("commit", "deltacommit", "replacecommit")  # actions that change what a query sees
MAX_CLOCK_SKEW_S = (
    10  # seconds that the clocks of this machine and of the one that writes may differ by
)
BASE_FILE_PATTERN = re.compile(
    r"_[^_/]+_(\d+)\.parquet$"
)  # <file id>_<try of a task>_<instant>.parquet


class HistoryRemoved(LakeError):
    """The files or the commits that a read of the past needs were removed."""


def check_readable(table: Table, instant: str) -> bool:
    """Whether there is anything at that instant; False before the first commit.

    Raises:
        HistoryRemoved: files that a read as of then needs were cleaned away, or the commits of then
            were archived. Hudi itself would answer with what is left.
    """
    done = completed_actions(table)
    check_not_archived(table, instant, done)
    there = {
        name
        for path in files.list_files(
            table.base
        )  # each also as `_gone` calls it, where it knows less of it
        for name in (
            path,
            BASE_FILE_PATTERN.sub(r"_…_\1.parquet", path),
            BASE_FILE_PATTERN.sub("_….parquet", path),
        )
    }
    gone = sorted(missing_files(done, instant, there))
    if gone:
        whole = (c.instant for c in done if not missing_files(done, c.instant, there))
        raise HistoryRemoved(
            f"{len(gone)} of the files that {instant} needs were cleaned away",
            location=gone[0],
            expected=f"an instant from {next(whole, 'none')} on",
            hint="keep more: hoodie.cleaner.commits.retained or hoodie.cleaner.fileversions.retained, by the "
            "cleaner's policy; or set a savepoint",
        )
    return any(c.instant <= instant for c in done)


def check_not_archived(table: Table, instant: str, done: list["CompletedAction"]) -> None:
    """Raise HistoryRemoved where the commits of an instant were archived: no reader looks at those.
    done: completed().
    """
    if done and instant < done[0].instant and archive_folder(table):
        raise HistoryRemoved(
            f"the commits of {instant} were archived",
            location=archive_folder(table),
            expected=f"an instant from {done[0].instant} on",
            hint="keep more of them: hoodie.keep.min.commits, hoodie.keep.max.commits",
        )


def parse_instant(instant: str) -> dt.datetime:
    """The time, in UTC, that the digits of an instant say."""
    return dt.datetime.strptime(f"{instant:0<17}000", "%Y%m%d%H%M%S%f").replace(
        tzinfo=dt.timezone.utc
    )


def check_clock(table: Table) -> None:
    """Raise LakeError where the table has an instant that is still to come: what is written now
    would sort before it, and its rows would not be seen. What the clocks of two machines may differ
    by is waited for.
    """
    newest = max((instant for instant, _, _ in timeline_files(table)), default="19700101")

    def ahead() -> float:
        return (parse_instant(newest) - dt.datetime.now(dt.timezone.utc)).total_seconds()

    if 0 < ahead() <= MAX_CLOCK_SKEW_S:
        wait_until(lambda: ahead() <= 0, f"instant {newest} to pass", timeout=60)
    if ahead() > 0:
        now, how_far = dt.datetime.now(dt.timezone.utc), dt.timedelta(seconds=math.ceil(ahead()))
        raise LakeError(
            f"the newest commit of {table.name} lies {how_far} (hours:minutes:seconds) ahead of this machine's clock",
            location=f"instant {newest}, the clock says {now:%Y%m%d%H%M%S} (UTC); {table.base}",
            expected="instants of the past: a commit that is made now would sort before it, and not be seen",
            hint="was the clock set back? Put it right. Was the table written in local time, east of Greenwich, "
            f"as this workbench once did? Wait {how_far}, or start clean: hudi.drop, then ingest anew",
        )


def commits(table: Table) -> pd.DataFrame:
    """The completed instants of the active timeline, oldest first: action, rows and bytes written,
    seconds.
    """
    columns = [
        "instant",
        "action",
        "operation",
        "inserted",
        "updated",
        "deleted",
        "written",
        "files",
        "bytes",
        "seconds",
    ]
    rows = []
    for done in completed_actions(table):
        stats = [stat for _, stat in write_stats(done.metadata)]
        *counts, size = (
            sum(max(s.get(k) or 0, 0) for s in stats)
            for k in ("numInserts", "numUpdateWrites", "numDeletes", "numWrites", "totalWriteBytes")
        )
        rows.append(
            (
                done.instant,
                done.action,
                done.metadata.get("operationType"),
                *counts,
                len(stats),
                size,
                done.seconds,
            )
        )
    return pd.DataFrame(rows, columns=columns)


def schema_changes(table: Table) -> pd.DataFrame:
    """The commits of the active timeline with which the source's schema changed, oldest first:
    instant, change.
    """
    said = (
        (done.instant, done.metadata.get("extraMetadata", {}).get(SCHEMA_CHANGE_KEY))
        for done in completed_actions(table)
    )
    return pd.DataFrame([each for each in said if each[1]], columns=["instant", "change"])


@dataclass(frozen=True)
class CompletedAction:
    """A completed action: `name` is its file below .hoodie of the table at `base`."""

    instant: str
    action: str
    file_name: str
    base: str
    seconds: Optional[float]

    @cached_property
    def metadata(self) -> dict[str, Any]:
        """The commit's metadata; in table version 6 that is JSON."""
        return json.loads(files.read_text(f"{self.base}/.hoodie/{self.file_name}") or "{}")


def write_stats(body: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What the metadata of a commit says of each file that it wrote, with the file's partition."""
    for partition, stats in body.get("partitionToWriteStats", {}).items():
        for stat in stats:
            yield partition, stat


def timeline_files(table: Table) -> list[tuple[str, str, Any]]:
    """The files of the active timeline, in no order: instant, what the name ends in (`commit`,
    `compaction.requested`, …), pyarrow's FileInfo.
    """
    parts = (
        (*info.base_name.partition("."), info) for info in files.list_dir(f"{table.base}/.hoodie")
    )
    return [(instant, action, info) for instant, _, action, info in parts if instant.isdigit()]


def completed_actions(table: Table, *actions: str) -> list[CompletedAction]:
    """The completed actions of the active timeline, oldest first: those that write, or the ones
    named.
    """
    found, asked = [], {}
    for instant, action, info in timeline_files(table):
        if action.endswith("requested"):
            asked[instant] = info.mtime
        elif action in (actions or WRITE_ACTIONS):
            found.append((instant, action, info))
    return [
        CompletedAction(
            instant,
            action,
            info.base_name,
            table.base,
            (info.mtime - asked[instant]).total_seconds() if instant in asked else None,
        )
        for instant, action, info in sorted(found, key=lambda f: f[0])
    ]


def pending_compactions(table: Table) -> list[str]:
    """Instants of compactions that were scheduled and are not done, oldest first."""
    asked = {
        instant
        for instant, action, _ in timeline_files(table)
        if action in ("compaction.requested", "compaction.inflight")
    }
    return sorted(asked - {done.instant for done in completed_actions(table, "commit")})


def missing_files(done: list[CompletedAction], instant: str, there: set[str]) -> set[str]:
    """The files that a read as of an instant needs and that are not there any more."""
    needed: dict[str, set[str]] = {}  # of each file group: its base file and the logs after it
    for commit in done:
        past = commit.instant <= instant
        for partition, stat in write_stats(commit.metadata):
            # a table without partitions has one named ""
            group, path = (
                "/".join(filter(None, (partition, stat["fileId"]))),
                stat.get("path") or "",
            )
            if not past:
                # the version of then, if an archived commit has written it: this one says which
                # that was
                before = stat.get("prevCommit") or "null"
                needed.setdefault(
                    group, {f"{group}_…_{before}.parquet"} if before <= instant else set()
                )
            elif path.endswith(".parquet"):
                needed[group] = {path}  # a base file holds all that came before
            elif path:
                needed.setdefault(group, set()).add(path)
        for group in map(
            "/".join, (filter(None, each) for each in replaced_file_groups(commit.metadata))
        ):
            if past:
                needed.pop(group, None)
            else:  # the same of one that no commit has written between
                needed.setdefault(group, {f"{group}_….parquet"})
    return set().union(*needed.values()) - there


def replaced_file_groups(body: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The file groups that a commit, a clustering say, has replaced by others: partition, file
    id.
    """
    for partition, ids in (body.get("partitionToReplaceFileIds") or {}).items():
        for file_id in ids:
            yield partition, file_id


def exists(table: Table) -> bool:
    """Whether something has been written to the table yet."""
    return bool(_read_properties(table))


def properties(table: Table) -> dict[str, str]:
    """What `.hoodie/hoodie.properties` of the table says. Raises LakeError when there is no
    table.
    """
    found = _read_properties(table)
    if not found:
        raise LakeError(
            f"there is no Hudi table {table.name}",
            location=table.base,
            hint="ingest something into it first (a run without any row makes no table)",
        )
    return found


def check_version(table: Table) -> None:
    """Raise LakeError when the table is there and has another version than 6."""
    found = _read_properties(table)
    version = found.get("hoodie.table.version")
    if found and version != TABLE_VERSION:
        raise LakeError(
            f"table {table.name} has Hudi table version {version}",
            location=f"{table.base}/.hoodie",
            expected=f"version {TABLE_VERSION}, which Athena reads",
            hint="some writer did not set hoodie.write.table.version=6; start clean with hudi.drop",
        )


def _read_properties(table: Table) -> dict[str, str]:
    text = files.read_text(f"{table.base}/.hoodie/hoodie.properties") or ""
    lines = (
        line.partition("=")
        for line in text.splitlines()
        if "=" in line and not line.startswith("#")
    )
    return {name.strip(): value.strip() for name, _, value in lines}


def archive_folder(table: Table) -> str:
    """The folder into which Hudi has put old commits, "" where it has put none there: the table
    says which it is; 1.0.2 makes tables with `history`.
    """
    place = f"{table.base}/.hoodie/{_read_properties(table).get('hoodie.archivelog.folder') or 'archived'}"
    return place if files.list_files(place) else ""
