"""The lake side of a captured table: its commits and files, and when messages became visible. No Spark."""

import time
from dataclasses import dataclass, field
from typing import Iterable, Iterator, NamedTuple, Optional

import pandas as pd

from .. import hudi
from ..base import LakeError, World, files
from ..hudi.ingesting import read_progress
from ..hudi.tables import table_lock
from ..hudi.timeline import (
    WRITE_ACTIONS,
    CompletedAction,
    completed_actions,
    file_slices,
    parse_instant,
    timeline_files,
)
from .messages import Offsets, Sample

WINDOW_S = 600.0  # freshness and rates are those of ten minutes
SMALL_FILE_BYTES = 1 << 20
INFLIGHT = ("inflight", "deltacommit.inflight")  # of a Copy-on-Write commit, Merge-on-Read
MAX_WAITING = 1_000  # samples, the oldest
INTERRUPTED_S = 5.0  # age of an incomplete commit that no process writes


class Fresh(NamedTuple):
    """When one message became visible, and how long that took.

    Attributes:
        visible: when the commit with the message was complete, in seconds since 1970.
        to_topic: seconds from the commit in the source to the message.
        to_lake: seconds from the message to the commit in the lake.
    """

    visible: float
    to_topic: float
    to_lake: float


@dataclass
class LakeReader:
    """What is known of a lake table between observations.

    Attributes:
        table: the table.
        source: id of the topic that is ingested into it.
        commits: {instant: ({partition: next offset}, time when it was complete)}, in their order.
        is_landed: whether its messages come from landed files, whose offsets are of files.
        base_files: bytes of each base file that a read needs, of the active timeline.
        log_bytes: bytes of the logs on top of them.
        waiting: sampled messages that are not in the lake.
        fresh: samples of WINDOW_S that are.
    """

    table: hudi.Table
    source: str
    commits: dict[str, tuple[Offsets, float]] = field(default_factory=dict)
    is_landed: bool = False
    base_files: list[int] = field(default_factory=list)
    log_bytes: int = 0
    waiting: list[Sample] = field(default_factory=list)
    fresh: list[Fresh] = field(default_factory=list)
    _unread_since: float = 0.0

    def read(self) -> None:
        """Read the timeline: which commits are new, and which were removed by a restore."""
        actions = completed_actions(self.table) if hudi.exists(self.table) else []
        commits = {
            each.instant: self.commits.get(each.instant) or self._read_commit(each)
            for each in actions
        }
        if self.commits and not commits.keys() & self.commits.keys():
            self.waiting = []  # the table was removed or made anew, and with it perhaps its topic
        if commits.keys() != self.commits.keys():
            self._list_files(actions)
        self.commits = commits

    def _read_commit(self, action: CompletedAction) -> tuple[Offsets, float]:
        """Return the offsets of a commit, and the time when it was complete."""
        progress = read_progress(action.metadata)
        if progress:
            self.is_landed = self.source not in progress
        offsets = progress.get(self.source, {}).get("offsets", {})
        complete = parse_instant(action.instant).timestamp() + (action.seconds or 0.0)
        return {int(partition): int(offset) for partition, offset in offsets.items()}, complete

    def _list_files(self, actions: list[CompletedAction]) -> None:
        """Find the sizes of the files that a read needs."""
        slices = file_slices(actions, actions[-1].instant).values() if actions else ()
        needed = {path for paths in slices for path in paths}
        found = files.list_files(self.table.base) if needed else {}
        sizes = {path: info.size for path, info in found.items() if path in needed}
        self.base_files = [size for path, size in sizes.items() if path.endswith(".parquet")]
        self.log_bytes = sum(sizes.values()) - sum(self.base_files)

    def committed(self, before: float = float("inf")) -> Offsets:
        """Return {partition: offset of the next message to ingest}, of the last commit before a time."""
        offsets = [part for part, complete in self.commits.values() if part and complete < before]
        return offsets[-1] if offsets else {}

    def add(self, samples: Iterable[Sample], ends: Offsets) -> None:
        """Add new messages, and find those that commits have made visible.

        Args:
            samples: the messages.
            ends: {partition: offset after the last message}. A topic that was made anew ends before messages
                that the topic of before had; these are not waited for any more.
        """
        waiting = [s for s in (*self.waiting, *samples) if s.offset < ends.get(s.partition, 0)]
        for offsets, complete in self.commits.values():
            visible = [s for s in waiting if s.offset < offsets.get(s.partition, 0)]
            waiting = [s for s in waiting if s.offset >= offsets.get(s.partition, 0)]
            self.fresh += [
                Fresh(complete, s.published - s.committed, complete - s.published)
                for s in visible
                if s.committed
            ]
        self.waiting = sorted(waiting, key=lambda sample: sample.published)[:MAX_WAITING]
        start = time.time() - WINDOW_S
        self.fresh = [each for each in self.fresh if each.visible > start]

    def waiting_s(self, unread: int) -> float:
        """Return for how many seconds the oldest of so many unread messages has been waiting.

        After a restore messages are unread again that were visible before. Their wait begins then.
        """
        now = time.time()
        self._unread_since = (self._unread_since or now) if unread else 0.0
        oldest = min((each.published for each in self.waiting), default=self._unread_since)
        return now - oldest if unread else 0.0

    def commits_per_hour(self) -> float:
        """Return the rate of the commits of WINDOW_S."""
        start = time.time() - WINDOW_S
        return sum(complete > start for _, complete in self.commits.values()) * 3600 / WINDOW_S

    def small_files(self) -> int:
        """Return the number of base files below SMALL_FILE_BYTES."""
        return sum(size < SMALL_FILE_BYTES for size in self.base_files)

    def seconds_ahead(self) -> float:
        """Return how far the newest commit lies ahead of the clock; negative if it is past."""
        newest = max(self.commits, default="19700101")
        return parse_instant(newest).timestamp() - time.time()

    def interrupted(self, world: World) -> Iterator[tuple[str, float]]:
        """Yield (instant, seconds since its start) of commits that no process completes."""
        started = min(pending(self.table).values(), default=time.time())
        if time.time() - started <= INTERRUPTED_S:
            return
        try:
            with table_lock(world, self.table):
                requests = pending(self.table)
        except LakeError:  # an ingest holds the lock, so it is running
            return
        for instant, start in requests.items():
            yield instant, time.time() - start


def pending(table: hudi.Table) -> dict[str, float]:
    """Return {instant: time of its start in seconds since 1970} of the commits that are not complete."""
    timeline = timeline_files(table) if hudi.exists(table) else []
    complete = {each.instant for each in timeline if each.suffix in WRITE_ACTIONS}
    return {
        each.instant: each.info.mtime.timestamp()
        for each in timeline
        if each.suffix in INFLIGHT and each.instant not in complete
    }


def quantiles(fresh: Iterable[Fresh]) -> Optional[dict[str, float]]:
    """Return the freshness of samples: p50, p95, to_topic, to_lake (medians), in seconds; None without samples."""
    frame = pd.DataFrame(fresh, columns=Fresh._fields)
    if frame.empty:
        return None
    total = frame["to_topic"] + frame["to_lake"]
    return {
        "p50": float(total.quantile(0.5)),
        "p95": float(total.quantile(0.95)),
        "to_topic": float(frame["to_topic"].median()),
        "to_lake": float(frame["to_lake"].median()),
    }
