"""Where the time of a fresh row goes: the stages from a commit in PostgreSQL to the row in a query."""

from __future__ import annotations

import datetime as dt
import os
import statistics
from typing import TYPE_CHECKING

from workbench.hudi.timeline import completed_actions
from workbench.topic import topics

if TYPE_CHECKING:
    from workbench import hudi
    from workbench.base.params import World

STAGES = (
    "PostgreSQL's log, Debezium, Kafka's producer",
    "ingest: fetch, decode, count, plan",
    "Hudi: begin, find the keys",
    "Hudi: write, commit",
    "reader: list the timeline, every 20 ms",
)
WIDTH = 50  # characters of the longest possible bar


def stage_seconds(
    world: World, table: hudi.Table, topic: str, committed: float, seen: float
) -> list[float]:
    """Return the seconds of each of STAGES for the last message of a topic with one partition.

    Args:
        world: the world.
        table: the table, of type "mor", in a local folder.
        topic: the topic.
        committed: time of the commit in PostgreSQL, in seconds since 1970.
        seen: time from which a query sees the row.
    """
    commits = [action for action in completed_actions(table) if action.action == "deltacommit"]
    file = commits[-1].uri.removeprefix("file:")
    instant = dt.datetime.strptime(commits[-1].instant, "%Y%m%d%H%M%S%f")  # milliseconds, UTC
    times = [
        committed,
        _produced(world, topic),
        instant.replace(tzinfo=dt.timezone.utc).timestamp(),
        os.stat(f"{file}.inflight").st_mtime,
        os.stat(file).st_mtime,
        seen,
    ]
    return [after - before for before, after in zip(times, times[1:])]


def _produced(world: World, topic: str) -> float:
    """Return when Debezium gave the last message to its producer, in seconds since 1970."""
    last = {partition: end - 1 for partition, end in topics.end_offsets(world, topic).items()}
    return topics.read(world, topic, start_offsets=last)["timestamp"].item().timestamp()


def picture(rows: list[list[float]]) -> str:
    """Return a bar chart of the medians: a line for each stage.

    Args:
        rows: what `stage_seconds` returned for each commit.
    """
    medians = [statistics.median(stage) for stage in zip(*rows)]
    total = sum(medians)
    longest = max(map(len, STAGES))
    return "\n".join(
        f"{stage:{longest}}  {'█' * round(WIDTH * took / total)} {1000 * took:.0f} ms, {took / total:.0%}"
        for stage, took in zip(STAGES, medians)
    )
