"""Labels of a table's instants.

A label names an instant together with the source's position at that time. So no notebook contains an
instant.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from dataclasses import asdict, dataclass

import pandas as pd

from ..base import LakeError, World, did_you_mean, files
from .tables import Table, table_state_dir
from .timeline import archive_folder, completed_actions, require_commits

INSTANT_PATTERN = re.compile(r"\d{14}(\d{3})?")  # yyyyMMddHHmmss; milliseconds since Hudi 0.9
LABEL_PATTERN = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Label:
    """A label of an instant.

    Attributes:
        label: its name.
        instant: digits, UTC.
        position: the source's log position when the label was set (an LSN, a binlog coordinate).
        set_at: UTC, ISO 8601.
    """

    label: str
    instant: str
    position: str
    set_at: str


def label(world: World, table: Table, name: str, position: str = "") -> Label:
    """Label the table's last completed instant; an existing label of this name is moved there.

    Args:
        world: the world.
        table: the table.
        name: a letter, then letters, digits and _.
        position: the source's log position.

    Raises:
        LakeError: the table has no instant yet, or the name is invalid.
    """
    if not LABEL_PATTERN.fullmatch(name):
        raise LakeError(f"{name!r} is not a label", expected="a letter, then letters, digits and _")
    actions = require_commits(table, "label")
    now = dt.datetime.now(dt.timezone.utc).isoformat(timespec="seconds")
    new = Label(name, actions[-1].instant, position, now)
    path = _labels_path(world, table)
    with files.exclusive_lock(path):  # another process may set a label at the same time
        unchanged = [entry for entry in _load_labels(world, table) if entry.label != name]
        files.write_text(path, json.dumps([asdict(entry) for entry in (*unchanged, new)], indent=1))
    return new


def labels(world: World, table: Table) -> pd.DataFrame:
    """List the labels of a table by instant.

    Returns:
        label, instant, position, set_at.
    """
    rows = sorted(_load_labels(world, table), key=lambda entry: entry.instant)
    return pd.DataFrame(map(asdict, rows), columns=list(Label.__dataclass_fields__))


def resolve_instant(world: World, table: Table, name: str) -> str:
    """Return the instant of a label; an instant, as digits, is returned as it is.

    Args:
        world: the world.
        table: the table.
        name: label or instant.

    Raises:
        LakeError: there is no such label, or its commit was rolled back. Or the instant is later than
            the last commit: what a read returned would change with the next commit.
    """
    by_label = {entry.label: entry.instant for entry in _load_labels(world, table)}
    if name not in by_label and not INSTANT_PATTERN.fullmatch(name):
        raise LakeError(
            f"table {table.name} has no instant labeled {name!r}",
            location=_labels_path(world, table),
            expected=did_you_mean(name, by_label),
            hint="hudi.label(world, table, name) gives one",
        )
    instant = by_label.get(name, name)
    instants = [action.instant for action in completed_actions(table)]
    if name in by_label and instant not in instants:
        is_archived = bool(instants) and instant < instants[0] and archive_folder(table)
        if not is_archived:
            raise LakeError(
                f"the commit {instant} that {name!r} names is not on the timeline of {table.name} any more",
                location=f"{table.base}/.hoodie",
                expected=f"one of the {len(instants)} that are",
                hint="it was rolled back, or the table was made anew; hudi.label gives the label again",
            )
    last = instants[-1] if instants else ""
    if instant > last:
        raise LakeError(
            f"table {table.name} was written last at {last or 'no instant'}, {instant} is later",
            location=table.base,
            expected=f"an instant up to {last}",
            hint="read the table as it is now: hudi.read(spark, table)",
        )
    return instant


def _labels_path(world: World, table: Table) -> str:
    return f"{table_state_dir(world, table)}/labels.json"


def _load_labels(world: World, table: Table) -> list[Label]:
    entries = json.loads(files.read_text(_labels_path(world, table)) or "[]")
    return [Label(**entry) for entry in entries]
