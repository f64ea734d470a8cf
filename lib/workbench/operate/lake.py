"""The lake side of a captured table: its commits and files, read without Spark."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Iterator

from .. import hudi
from ..base import LakeError, World, files
from ..hudi.ingesting import read_progress
from ..hudi.tables import table_lock
from ..hudi.timeline import (
    WRITE_ACTIONS,
    completed_actions,
    file_slices,
    parse_instant,
    timeline_files,
)
from .messages import WINDOW_S, offsets_of

SMALL_FILE_BYTES = 1 << 20
INFLIGHT = ("inflight", "deltacommit.inflight")  # of a Copy-on-Write commit, Merge-on-Read
FILES_EVERY_S = 60.0  # the files of a table are listed at most that often


@dataclass
class LakeReader:
    """What is known of a lake table between observations.

    Attributes:
        table: the table.
        source: id of the source that is ingested into it.
        commits: {instant: ({partition: next offset}, time when it was complete)}, in their order.
        base_files: {path: bytes} of the base files that a read needs, of the active timeline.
        log_bytes: bytes of the logs on top of them.
    """

    table: hudi.Table
    source: str
    commits: dict[str, tuple[dict[int, int], float]] = field(default_factory=dict)
    base_files: dict[str, int] = field(default_factory=dict)
    log_bytes: int = 0
    _listed: float = 0.0

    def read(self) -> list[tuple[dict[int, int], float]]:
        """Read the timeline; return the commits that are new since the last observation."""
        actions = completed_actions(self.table)
        new = [action for action in actions if action.instant not in self.commits]
        for action in new:
            offsets = offsets_of(read_progress(action.metadata), self.source)
            complete = parse_instant(action.instant).timestamp() + (action.seconds or 0.0)
            self.commits[action.instant] = (offsets, complete)
        instants = {action.instant for action in actions}  # a rollback or a restore removes commits
        self.commits = {i: self.commits[i] for i in sorted(self.commits) if i in instants}
        if new and time.time() - self._listed > FILES_EVERY_S:
            self._listed = time.time()
            sizes = {path: info.size for path, info in files.list_files(self.table.base).items()}
            slices = file_slices(actions, actions[-1].instant).values()
            paths = [path for each in slices for path in each.paths if path in sizes]
            self.base_files = {path: sizes[path] for path in paths if path.endswith(".parquet")}
            self.log_bytes = sum(sizes[path] for path in paths if path not in self.base_files)
        return [self.commits[action.instant] for action in new]

    def committed(self, before: float = float("inf")) -> dict[int, int]:
        """Return {partition: offset of the next message to ingest}, of the last commit before a time."""
        offsets = [part for part, complete in self.commits.values() if part and complete < before]
        return offsets[-1] if offsets else {}

    def commits_per_hour(self) -> float:
        """Return the rate of the commits of WINDOW_S."""
        start = time.time() - WINDOW_S
        return sum(complete > start for _, complete in self.commits.values()) * 3600 / WINDOW_S

    def small_files(self) -> int:
        """Return the number of base files below SMALL_FILE_BYTES."""
        return sum(size < SMALL_FILE_BYTES for size in self.base_files.values())

    def seconds_ahead(self) -> float:
        """Return how far the newest commit lies ahead of the clock; negative if it is past."""
        newest = max(self.commits, default="19700101")
        return parse_instant(newest).timestamp() - time.time()

    def interrupted(self, world: World) -> Iterator[tuple[str, float]]:
        """Yield (instant, seconds since its start) of commits that no process completes."""
        requests = pending(self.table)
        if requests:
            try:
                with table_lock(world, self.table):
                    yield from ((i, time.time() - start) for i, start in requests.items())
            except LakeError:  # an ingest holds the lock, so it is running
                return


def pending(table: hudi.Table) -> dict[str, float]:
    """Return {instant: time of its start in seconds since 1970} of the commits that are not complete."""
    timeline = timeline_files(table)
    complete = {each.instant for each in timeline if each.suffix in WRITE_ACTIONS}
    return {
        each.instant: each.info.mtime.timestamp()
        for each in timeline
        if each.suffix in INFLIGHT and each.instant not in complete
    }
