"""What changed from one run to another: notebooks, checks, figures, seconds, versions, parameters."""

import re
import statistics
from collections import Counter
from typing import Any, Iterator, NamedTuple, Sequence

from .run_record import RunRecord

NUMBER = re.compile(r"-?\d[\d,]*(\.\d+)?")
TOLERANCE = "tolerance"  # label of the right side of a figure
# A number that these last runs had in common should come again. Others, such as sizes, differ in each run.
STEADY_RUNS = 2
SLOW_FACTOR = 2  # times the median of earlier runs
SLOW_S = (
    5.0  # and at least so much longer: short notebooks differ by some seconds on a busy machine
)
# {whether a check is as expected: its word}; None if it differs because the data are the user's own
STATES = {True: "green", False: "red", None: "differs"}
# values of a notebook or check that passed before
BAD = ("not there", "red", "failed", "skipped", "stopped", "running", "slow")
Facts = dict[tuple[str, str], str]


class Change(NamedTuple):
    """A difference between two runs.

    Attributes:
        notebook: path of the notebook; "run" for the run as a whole.
        what: a check, a figure, `status`, `seconds`, a version, a parameter or a setting of the world.
        before: its value in the earlier run.
        after: its value in the later run.
        is_alarm: whether a notebook or a check is worse: it failed, is missing or slow, or moved too far.
    """

    notebook: str
    what: str
    before: str
    after: str
    is_alarm: bool

    def __str__(self) -> str:
        """Return the difference as one line."""
        text = f"{self.notebook}: {self.what}: {self.before} → {self.after}"
        if self.notebook == "run" or not (NUMBER.match(self.before) and NUMBER.match(self.after)):
            return text
        return f"{text} ({_share(self.before, self.after):+.2%})"


def compare(before: RunRecord, after: RunRecord, earlier: Sequence[RunRecord] = ()) -> list[Change]:
    """Return what changed from one run to another; nothing for two equal runs.

    Args:
        before: the earlier run.
        after: the later run.
        earlier: runs before `after`, the newest first: they tell the usual seconds of each notebook,
            and which numbers come again.
    """
    old, new = _facts(before), _facts(after)
    tolerances = _tolerances(after)
    previous = [_facts(run) for run in earlier[:STEADY_RUNS]]
    changes = []
    for key in {**old, **new}:
        sides = old.get(key, "not there"), new.get(key, "not there")
        ended_early = key not in new and new.get((key[0], "status"), "passed") != "passed"
        if sides[0] == sides[1] or ended_early:
            continue
        values = {facts.get(key) for facts in previous}
        is_steady = len(previous) == STEADY_RUNS and len(values) == 1
        is_number = key[0] != "run" and all(map(NUMBER.fullmatch, sides))
        if is_number and not is_steady and key not in tolerances:
            continue
        is_figure = key in old and key in tolerances
        is_too_far = is_figure and abs(_share(*sides)) > tolerances[key]
        is_worse = key[0] != "run" and sides[1] in BAD
        changes.append(Change(*key, *sides, is_alarm=is_worse or is_too_far))
    return [*changes, *_slow(after, earlier)]


def _facts(record: RunRecord) -> Facts:
    """Return {(notebook, what): value}. What each run measures anew, such as seconds, is left out."""
    facts = {("run", "commit"): str(record.commit)}
    for kind, values in (
        ("parameter", record.parameters),
        ("version", record.versions),
        ("setting of the world", dict(record.world_values)),
    ):
        facts.update({("run", f"{kind} {name}"): str(value) for name, value in values.items()})
    for entry in record.notebooks:
        facts[entry.path, "status"] = entry.status
    for key, check in _checks(record):
        is_equal_number = check["left"] == check["right"] and NUMBER.fullmatch(check["left"])
        is_figure = check["right_label"] == TOLERANCE
        facts[key] = check["left"] if is_equal_number or is_figure else STATES[check["ok"]]
    return facts


def _tolerances(record: RunRecord) -> dict[tuple[str, str], float]:
    """Return {(notebook, figure): the share by which it may move}."""
    return {
        key: float(check["right"].replace("any", "inf").removesuffix(" %")) / 100
        for key, check in _checks(record)
        if check["right_label"] == TOLERANCE
    }


def _checks(record: RunRecord) -> Iterator[tuple[tuple[str, str], dict[str, Any]]]:
    """Yield each check after its notebook and claim; a claim that is repeated has its number after it."""
    seen = Counter[tuple[str, str]]()
    for entry in record.notebooks:
        for check in entry.checks:
            key = entry.path, check["what"]
            seen[key] += 1
            yield (key if seen[key] == 1 else (entry.path, f"{key[1]} ({seen[key]})")), check


def _share(before: str, after: str) -> float:
    """Return the change between two texts that begin with a number; infinity if there is no share."""
    numbers = [NUMBER.match(text) for text in (before, after)]
    old, new = (float(number[0].replace(",", "")) if number else 0.0 for number in numbers)
    return (new - old) / abs(old) if old else float("inf")


def _slow(record: RunRecord, earlier: Sequence[RunRecord]) -> Iterator[Change]:
    for entry in record.notebooks:
        entries = (each for run in earlier for each in run.notebooks if each.status == "passed")
        usual = [each.seconds for each in entries if each.path == entry.path]
        median = statistics.median(usual or [entry.seconds])
        if entry.seconds > max(SLOW_FACTOR * median, median + SLOW_S):
            seconds = f"{median:.1f}", f"{entry.seconds:.1f}"
            yield Change(entry.path, "seconds", *seconds, is_alarm=True)
