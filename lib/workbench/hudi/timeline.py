"""The timeline of a Hudi table, read from its files: commits, instants under labels, and what can still be read.

A label names an instant together with the position that the source had then, so that no notebook types an instant.
Labels lie beside the table's checkpoints and go with them (hudi.drop).

Table version 6 has one clock: an instant is the time at which its action was *requested*, and it is what orders
commits, time travel and incremental reads (Hudi's table versions from 8 on know the completion time as well). It is
UTC: the Javas here run in UTC, and new tables say it (hoodie.table.timeline.timezone), for who else writes to them.
"""
from __future__ import annotations

import datetime as dt
import json
import math
import re
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional, Set, Tuple

from ..base import files
from ..base.errors import LakeError, nearest
from ..base.wait import wait_until

if TYPE_CHECKING:
    import pandas

    from ..base.params import World
    from .tables import Table

WRITES = ("commit", "deltacommit", "replacecommit")  # actions that change what a query sees
INSTANT = re.compile(r"\d{14}(\d{3})?")  # yyyyMMddHHmmss, with milliseconds since Hudi 0.9
LABEL = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
SKEW = dt.timedelta(seconds=10)  # what the clocks of this machine and of the one that writes may differ by


@dataclass(frozen=True)
class Mark:
    """An instant under a label. `position` is the source's (a WAL position, a binlog coordinate) when it was set."""

    label: str
    instant: str
    position: str
    marked_at: str  # UTC, ISO 8601


def mark(world: World, table: Table, label: str, position: str = "") -> Mark:
    """Give the table's last completed instant a label; the same label again moves it there.

    Raises:
        LakeError: there is no instant yet, or a label that is not a name.
    """
    if not LABEL.fullmatch(label):
        raise LakeError(f"{label!r} is not a label", expected="a letter, then letters, digits and _")
    done = completed(table)
    if not done:
        raise LakeError(f"table {table.name} has no completed commit to mark", where=table.base,
                        next_step="ingest something into it first")
    new = Mark(label, done[-1].instant, position, dt.datetime.now(dt.timezone.utc).isoformat(timespec="seconds"))
    kept = {**{m.label: m for m in _marks(world, table) if m.label != label}, label: new}
    files.write_text(_place(world, table), json.dumps([asdict(m) for m in kept.values()], indent=1))
    return new


def marks(world: World, table: Table) -> pandas.DataFrame:
    """The labels of a table in the order of their instants: label, instant, position, marked_at."""
    import pandas

    rows = sorted((asdict(m) for m in _marks(world, table)), key=lambda m: m["instant"])
    return pandas.DataFrame(rows, columns=list(Mark.__dataclass_fields__))


def resolve(world: World, table: Table, when: str) -> str:
    """The instant of a label, or of an instant given as digits.

    Raises:
        LakeError: no such label; a label whose commit was rolled back; or the table was not written any more by then:
            what a read gave would change with the next commit.
    """
    found = {m.label: m.instant for m in _marks(world, table)}
    if when not in found and not INSTANT.fullmatch(when):
        raise LakeError(f"table {table.name} has no instant labelled {when!r}", where=_place(world, table),
                        expected=nearest(when, found), next_step="hudi.mark(world, table, label) sets one")
    instant, done = found.get(when, when), [c.instant for c in completed(table)]
    if when in found and instant not in done and not (done and instant < done[0] and archived(table)):
        raise LakeError(f"the commit {instant} that {when!r} names is not on the timeline of {table.name} any more",
                        where=f"{table.base}/.hoodie", expected=f"one of the {len(done)} that are",
                        next_step="it was rolled back, or the table was made anew; hudi.mark sets the label again")
    last = done[-1] if done else ""
    if instant > last:
        raise LakeError(f"table {table.name} was written last at {last or 'no instant'}, {instant} is later",
                        where=table.base, expected=f"an instant up to {last}",
                        next_step="read the table as it is now: hudi.read(spark, table)")
    return instant


def check_readable(table: Table, instant: str) -> bool:
    """Whether there is anything at that instant; False before the first commit.

    Raises:
        LakeError: files that a read as of then needs were cleaned away, or the commits of then were archived. Hudi
            itself would answer with what is left.
    """
    done = completed(table)
    check_active(table, instant, done)
    there = _data_files(table)
    gone = sorted(_gone(done, instant, there))
    if gone:
        whole = (c.instant for c in done if not _gone(done, c.instant, there))
        raise LakeError(f"{len(gone)} of the files that {instant} needs were cleaned away", where=gone[0],
                        expected=f"an instant from {next(whole, 'none')} on",
                        next_step="keep more: hoodie.cleaner.commits.retained or hoodie.cleaner.fileversions.retained, "
                                  "by the cleaner's policy; or set a savepoint")
    return any(c.instant <= instant for c in done)


def check_active(table: Table, instant: str, done: List[Done]) -> None:
    """Raise LakeError where the commits of an instant were archived: no reader looks at those. done: completed()."""
    if done and instant < done[0].instant and archived(table):
        raise LakeError(f"the commits of {instant} were archived", where=archive(table),
                        expected=f"an instant from {done[0].instant} on",
                        next_step="keep more of them: hoodie.keep.min.commits, hoodie.keep.max.commits")


def time_of(instant: str) -> dt.datetime:
    """The time, in UTC, that the digits of an instant say."""
    return dt.datetime.strptime(f"{instant:0<17}000", "%Y%m%d%H%M%S%f").replace(tzinfo=dt.timezone.utc)


def check_clock(table: Table) -> None:
    """Raise LakeError where the table has an instant that is still to come: what is written now would sort before it,
    and its rows would not be seen. What the clocks of two machines may differ by is waited for."""
    newest = max((instant for instant, _, _ in written(table)), default="")

    def ahead_of_now() -> dt.timedelta:
        return time_of(newest) - dt.datetime.now(dt.timezone.utc) if newest else dt.timedelta(0)

    ahead = ahead_of_now()
    if dt.timedelta(0) < ahead <= SKEW:
        wait_until(lambda: ahead_of_now() <= dt.timedelta(0), f"instant {newest} to pass", timeout=60)
    elif ahead > SKEW:
        now = dt.datetime.now(dt.timezone.utc)
        how_far = str(dt.timedelta(seconds=math.ceil(ahead.total_seconds())))
        raise LakeError(
            f"the newest commit of {table.name} lies {how_far} (hours:minutes:seconds) ahead of this machine's clock",
            where=f"instant {newest}, the clock says {now:%Y%m%d%H%M%S} (UTC); {table.base}",
            expected="instants of the past: a commit that is made now would sort before it, and not be seen",
            next_step="was the clock set back? Put it right. Was the table written in local time, east of Greenwich, "
                      f"as this workbench once did? Wait {how_far}, or start clean: hudi.drop, then ingest anew")


def commits(table: Table) -> pandas.DataFrame:
    """The completed instants of the active timeline, oldest first: action, rows and bytes written, seconds."""
    import pandas

    columns = ["instant", "action", "operation", "inserted", "updated", "deleted", "written", "files", "bytes",
               "seconds"]
    rows = []
    for done in completed(table):
        stats = [stat for _, stat in write_stats(done.body)]
        inserted, updated, deleted, written, size = (
            sum(max(s.get(k) or 0, 0) for s in stats)
            for k in ("numInserts", "numUpdateWrites", "numDeletes", "numWrites", "totalWriteBytes"))
        rows.append((done.instant, done.action, done.body.get("operationType"), inserted, updated, deleted, written,
                     len(stats), size, done.seconds))
    return pandas.DataFrame(rows, columns=columns)


@dataclass(frozen=True)
class Done:
    """A completed action: `name` is its file below .hoodie of the table at `base`."""

    instant: str
    action: str
    name: str
    base: str
    seconds: Optional[float]

    @cached_property
    def body(self) -> Dict[str, Any]:
        """The commit's metadata; in table version 6 that is JSON."""
        return json.loads(files.read_text(f"{self.base}/.hoodie/{self.name}") or "{}")


def write_stats(body: Dict[str, Any]) -> Iterator[Tuple[str, Dict[str, Any]]]:
    """What the metadata of a commit says of each file that it wrote, with the file's partition."""
    for partition, stats in body.get("partitionToWriteStats", {}).items():
        for stat in stats:
            yield partition, stat


def written(table: Table) -> Iterator[Tuple[str, str, Any]]:
    """The files of the active timeline, in no order: instant, what the name ends in (`commit`, `compaction.requested`,
    …), pyarrow's FileInfo."""
    for info in files.entries(f"{table.base}/.hoodie"):
        instant, _, action = info.base_name.partition(".")
        if instant.isdigit():
            yield instant, action, info


def completed(table: Table, *actions: str) -> List[Done]:
    """The completed actions of the active timeline, oldest first: those that write, or the ones named."""
    found, asked = [], {}
    for instant, action, info in written(table):
        if action.endswith("requested"):
            asked[instant] = info.mtime
        elif action in (actions or WRITES):
            found.append((instant, action, info))
    return [Done(instant, action, info.base_name, table.base,
                  (info.mtime - asked[instant]).total_seconds() if instant in asked else None)
            for instant, action, info in sorted(found, key=lambda f: f[0])]


def pending_compactions(table: Table) -> List[str]:
    """Instants of compactions that were scheduled and are not done, oldest first."""
    asked = {instant for instant, action, _ in written(table)
             if action in ("compaction.requested", "compaction.inflight")}
    return sorted(asked - {done.instant for done in completed(table, "commit")})


def _gone(done: List[Done], instant: str, there: Set[str]) -> Set[str]:
    """The files that a read as of an instant needs and that are not there any more."""
    groups = _groups([c for c in done if c.instant <= instant])
    gone = {path for group in groups.values() for path in group} - there
    # a file group whose version of then was written by a commit that was archived since: the next one names that commit
    for commit in (c for c in done if c.instant > instant):
        for partition, stat in write_stats(commit.body):
            group, before = (partition, stat["fileId"]), stat.get("prevCommit") or "null"
            if group not in groups and before != "null" and before <= instant:
                gone |= _missing(group, f"_{before}.parquet", there)
            groups.setdefault(group, set())
        for group in replaced(commit.body):  # the same of one that no commit has written between
            if group not in groups:
                gone |= _missing(group, ".parquet", there)
            groups.setdefault(group, set())
    return gone


def _missing(group: Tuple[str, str], end: str, there: Set[str]) -> Set[str]:
    """What to say of a base file of this group, whose name ends so; nothing where it is there."""
    start = "/".join(filter(None, group)) + "_"  # a table without partitions has one named ""
    return set() if any(p.startswith(start) and p.endswith(end) for p in there) else {f"{start}…{end}"}


def replaced(body: Dict[str, Any]) -> Iterator[Tuple[str, str]]:
    """The file groups that a commit, a clustering say, has replaced by others: partition, file id."""
    for partition, ids in (body.get("partitionToReplaceFileIds") or {}).items():
        for file_id in ids:
            yield partition, file_id


def _groups(done: List[Done]) -> Dict[Tuple[str, str], Set[str]]:
    """{(partition, file id): paths of its base and log files}, as the table is made up after these commits."""
    groups: Dict[Tuple[str, str], Set[str]] = {}
    for commit in done:
        body = commit.body
        for group in replaced(body):
            groups.pop(group, None)
        for partition, stat in write_stats(body):
            path = stat.get("path")
            if not path:
                continue
            group = groups.setdefault((partition, stat["fileId"]), set())
            if path.endswith(".parquet"):
                group.clear()  # a base file holds all that came before
            group.add(path)
    return groups


def _data_files(table: Table) -> Set[str]:
    root = files.open_address(table.base)[1].rstrip("/") + "/"
    found = files.entries(table.base, recursive=True)
    return {i.path[len(root):] for i in found if i.is_file and not i.path[len(root):].startswith(".hoodie/")}


def properties(table: Table) -> Dict[str, str]:
    """What `.hoodie/hoodie.properties` of the table says; nothing where there is no table."""
    text = files.read_text(f"{table.base}/.hoodie/hoodie.properties") or ""
    lines = (line.partition("=") for line in text.splitlines() if "=" in line and not line.startswith("#"))
    return {name.strip(): value.strip() for name, _, value in lines}


def archive(table: Table) -> str:
    """The folder into which Hudi puts old commits: the table says which; 1.0.2 makes tables with `history`."""
    return f"{table.base}/.hoodie/{properties(table).get('hoodie.archivelog.folder') or 'archived'}"


def archived(table: Table) -> bool:
    """Whether commits of the table were archived."""
    return files.holds_files(archive(table))


def _place(world: World, table: Table) -> str:
    return f"{world.lake.checkpoints}/{table.name}/marks.json"


def _marks(world: World, table: Table) -> List[Mark]:
    return [Mark(**m) for m in json.loads(files.read_text(_place(world, table)) or "[]")]
