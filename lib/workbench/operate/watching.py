"""Watch the captured flows of a world: observe them all, and report what needs attention."""

import contextlib
import dataclasses
import json
import math
import time
from typing import Callable, Iterator, Optional, Sequence

import pandas as pd

from .. import connect, hudi
from ..base import ParamsError, WorkbenchError, World, did_you_mean, wait_until
from ..base.models import MAX_INTERVAL_S
from ..base.wait import stop_on_signal
from ..flow import declared
from ..flow.flow import CaptureFlow
from .observe import FlowReader
from .problems import Observation, Problem
from .source import MIB

FIND_EVERY_S = 60.0  # the deployed flows are searched at most that often
EXIT_CODES = ("green", "amber", "red")
Report = Callable[[list[Observation]], object]


class Watcher:
    """Observes flows again and again.

    Attributes:
        world: the world.
        names: the flows, by default all that are deployed.
    """

    def __init__(self, world: World, *names: str):
        """Find the flows.

        Raises:
            WorkbenchError: there is no flow of such a name.
        """
        self.world, self.names = world, names
        self._readers: dict[str, FlowReader] = {}
        self._found_at = -math.inf
        known = declared(world)
        for name in names:
            if name not in known:
                raise WorkbenchError(
                    f"there is no flow {name!r}", expected=did_you_mean(name, known)
                )

    def observe(self) -> list[Observation]:
        """Observe each flow once, in the order of their names."""
        if time.monotonic() - self._found_at > FIND_EVERY_S:
            self._find_flows()
        return [self._readers[name].observe() for name in sorted(self._readers)]

    def wait_for(self, kind: str, *, gone: bool = False, timeout: float = 90) -> Optional[Problem]:
        """Observe until a problem is reported, and return it; or until it is gone.

        Args:
            kind: its kind (docs/operations.md lists them).
            gone: wait until no flow has the problem.
            timeout: in seconds.

        Raises:
            WorkbenchError: the time is over.
        """
        matches: list[Problem] = []

        def is_over() -> bool:
            matches[:] = [p for each in self.observe() for p in each.problems if p.kind == kind]
            return bool(matches) != gone

        event = f"problem {kind} to be {'gone' if gone else 'reported'}"
        wait_until(is_over, event, timeout=timeout, interval=0.5)
        return matches[0] if matches else None

    def changes(self) -> pd.DataFrame:
        """Return the sampled changes of the last ten minutes that are visible in the lake.

        Returns:
            flow, visible (time, UTC), to_topic_s (from the commit in the source to the message),
            to_lake_s (from there to the commit in the lake), in the order of `visible`.
        """
        rows = [
            (name, *fresh)
            for name, reader in self._readers.items()
            for lake in reader.lakes
            for fresh in lake.fresh
        ]
        frame = pd.DataFrame(rows, columns=["flow", "visible", "to_topic_s", "to_lake_s"])
        frame["visible"] = pd.to_datetime(frame["visible"], unit="s", utc=True)
        return frame.sort_values("visible", ignore_index=True)

    def _find_flows(self) -> None:
        """Find the flows to observe; a reader of a flow whose tables are the same keeps what it saw."""
        deployed: list[str] = []
        with contextlib.suppress(WorkbenchError):
            deployed = connect.names(self.world)
        found = {}
        for name, flow in declared(self.world).items():
            at, known = flow.source_world(self.world), self._readers.get(name)
            if name in self.names or (not self.names and _is_used(at, flow, deployed)):
                is_same = known and known.flow.captures == flow.captures
                found[name] = known if known and is_same else FlowReader(name, at, flow)
                found[name].flow = found[name].source.flow = flow
        self._readers = found
        self._found_at = time.monotonic()


def _is_used(at: World, flow: CaptureFlow, deployed: Sequence[str]) -> bool:
    """Return whether a flow has a connector or a lake table."""
    return bool({*flow.deployed_connectors} & {*deployed}) or any(map(hudi.exists, flow.tables(at)))


def watch(
    world: World, *names: str, report: Report, interval: float = 0, once: bool = False
) -> int:
    """Observe flows until SIGTERM or Ctrl-C.

    Args:
        world: the world.
        *names: the flows, by default all that are deployed.
        report: called with the observations.
        interval: seconds between two observations; 0: those of the params file.
        once: observe them only once.

    Returns:
        The exit code of the last observation: 0 green, 1 amber, 2 red.

    Raises:
        WorkbenchError: there is no such flow.
        ParamsError: the interval is not a number of seconds up to a day.
    """
    if not 0 <= interval <= MAX_INTERVAL_S:
        raise ParamsError(
            f"the interval is {interval}",
            expected=f"seconds up to {MAX_INTERVAL_S:,}; 0: those of the params file",
        )
    watcher = Watcher(world, *names)
    with stop_on_signal() as stop:
        while True:
            observed = watcher.observe()
            report(observed)
            if once or stop.wait(interval or world.watch.interval_s):
                return max((EXIT_CODES.index(each.level) for each in observed), default=0)


def frame(observed: Sequence[Observation]) -> pd.DataFrame:
    """Return observations as a table.

    Returns:
        One row per flow: flow, state, p50_s, p95_s, to_topic_s, to_lake_s (freshness; empty without
        changes), unread (messages), retained_mib, connectors, dead_letters, commits_per_hour, files,
        small_files, log_mib, reconciled (the oldest comparison of its tables, UTC).
    """
    columns = ("p50", "p95", "to_topic", "to_lake")
    rows = []
    for each in observed:
        fresh = each.freshness or {}
        rows.append(
            {
                "flow": each.flow,
                "state": each.level,
                **{f"{name}_s": round(fresh[name], 2) if fresh else "" for name in columns},
                "unread": sum(each.unread.values()),
                "retained_mib": round(sum(each.retained.values()) / MIB, 1),
                "connectors": ", ".join(sorted({*each.states.values()})),
                "dead_letters": sum(each.dead_letters.values()),
                "commits_per_hour": round(each.commits_per_hour),
                "files": each.files,
                "small_files": each.small_files,
                "log_mib": round(each.log_bytes / MIB, 1),
                "reconciled": min(each.reconciled.values(), default=""),
            }
        )
    return pd.DataFrame(rows)


def lines(observed: Sequence[Observation]) -> Iterator[tuple[str, str]]:
    """Yield (text, level): the table of all flows, then each problem with the next step."""
    if not observed:
        text = "no flow is deployed: run a notebook on connectors, or capture tables of your own"
        yield f"{text} (docs/your_own.md)", "green"
        return
    table = frame(observed).to_string(index=False).splitlines()
    yield table[0], ""
    yield from zip(table[1:], [each.level for each in observed])
    for each in observed:
        for problem in each.problems:
            yield (
                f"{each.flow} {problem.signal}, {problem.kind}: {problem.text}\n    {problem.step}",
                problem.level,
            )


def to_json(observed: Sequence[Observation]) -> str:
    """Return observations as one line of JSON: a list of objects with the fields of `Observation`."""
    return json.dumps([{**dataclasses.asdict(each), "level": each.level} for each in observed])
