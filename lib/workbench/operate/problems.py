"""Problems of a flow, with their texts, and the state of a flow at one time."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

from ..base import yaml_files
from ..base.models import Limits

PROBLEMS: dict[str, dict[str, str]] = yaml_files.load(Path(__file__).with_suffix(".yaml"))
LEVELS = ("", "amber", "red")
SIGNALS = sorted({each["signal"] for each in PROBLEMS.values()})


@dataclass(frozen=True)
class Problem:
    """A problem of a flow.

    Attributes:
        kind: a key of problems.yaml.
        level: "amber" or "red".
        text: what was observed.
        step: what to do.
        signal: the part of the pipeline that has the problem.
    """

    kind: str
    level: str
    text: str
    step: str
    signal: str


def problem(kind: str, level: str = "", **values: Any) -> Problem:
    """Return a problem with its texts.

    Args:
        kind: a key of problems.yaml.
        level: its level, if problems.yaml has none.
        **values: the values of the texts.
    """
    texts = PROBLEMS[kind]
    text, step = (texts[name].format(**values) for name in ("text", "step"))
    return Problem(kind, texts["level"] or level, text, step, texts["signal"])


def level_of(value: float, limits: Limits) -> str:
    """Return "amber" or "red" if a value exceeds its limits, else ""; falling limits count downwards."""
    warning, alarm = limits
    sign = 1 if warning <= alarm else -1
    if sign * value >= sign * alarm:
        return "red"
    return "amber" if sign * value >= sign * warning else ""


@dataclass
class Observation:
    """The state of a flow at one time.

    Attributes:
        flow: name of the flow.
        freshness: p50 and p95 of the last ten minutes, to_topic and to_lake, in seconds; None without
            changes.
        unread: {table: number of messages that are not in the lake}.
        retained: {slot: bytes of log that the server retains}.
        states: {connector: its states}.
        dead_letters: {table: number of dead letters}.
        reconciled: {table: time of its last comparison with the source (UTC, ISO 8601)}.
        commits_per_hour: of all tables.
        files: base files of all tables.
        small_files: those below 1 MiB.
        log_bytes: unmerged bytes of Merge-on-Read tables.
        problems: what is amber or red.
    """

    flow: str
    freshness: Optional[dict[str, float]] = None
    unread: dict[str, int] = field(default_factory=dict)
    retained: dict[str, int] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)
    dead_letters: dict[str, int] = field(default_factory=dict)
    reconciled: dict[str, str] = field(default_factory=dict)
    commits_per_hour: float = 0.0
    files: int = 0
    small_files: int = 0
    log_bytes: int = 0
    problems: list[Problem] = field(default_factory=list)

    def levels(self) -> dict[str, str]:
        """Return {signal: the worst level of its problems, "" without any}."""
        worst = dict.fromkeys(SIGNALS, "")
        for each in self.problems:
            worst[each.signal] = max(worst[each.signal], each.level, key=LEVELS.index)
        return worst

    @property
    def level(self) -> str:
        """The worst level of the problems, or "green"."""
        return max((each.level for each in self.problems), key=LEVELS.index, default="green")
