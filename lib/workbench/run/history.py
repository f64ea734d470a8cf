"""The runs so far: which passed, which failed, and which never reached their end.

The run.json in the folder of each run is all there is; there is no index.
"""

import datetime as dt
import json
from pathlib import Path
from typing import Iterator, Optional

from ..base import errors, paths, wait
from .run_record import NotebookEntry, RunRecord, runs_dir

FOLDERS = "[0-9]" * 8 + "-" + "[0-9]" * 6 + "-*"  # <date>-<time>-<world>
DAMAGED = "damaged"  # status of a run without a readable record


def records() -> Iterator[RunRecord]:
    """Yield the record of each run, the newest first.

    The status of a run whose process is gone is "lost", not "running". That of a run whose run.json is
    missing or damaged is DAMAGED, and `describe` has the reason.
    """
    for folder in sorted(runs_dir().glob(FOLDERS), reverse=True):
        if folder.is_dir():
            yield _read(folder)


def _read(folder: Path) -> RunRecord:
    try:
        content = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        record = RunRecord(folder=folder, **content)
        start(record)
    except (OSError, ValueError, TypeError) as e:
        reason = f"no record of a run: {errors.first_line(e)}"
        return RunRecord.model_construct(
            folder=folder,
            status=DAMAGED,
            describe=reason,
            world="",
            targets=[],
            parameters={},
            notebooks=[],
        )
    if record.status == "running":
        lock = paths.VAR_DIR / "instances" / record.instance / "run.lock"
        # another run of the instance may hold the lock; records of older versions have no pid
        if not record.pid or wait.lock_owner_pid(lock) != record.pid:
            record.status = "lost"
    return record


def start(record: RunRecord) -> dt.datetime:
    """Return when a run started; raise ValueError if its text has no instant."""
    instant = dt.datetime.fromisoformat(record.started)
    if instant.tzinfo is None:
        raise ValueError(f"{record.started!r} has no time zone")
    return instant


def named(name: str) -> RunRecord:
    """Return the run of a folder's name.

    Raises:
        WorkbenchError: there is no such run, or it has no readable record.
    """
    runs = {record.folder.name: record for record in records()}
    record = runs.get(name)
    if record and record.status != DAMAGED:
        return record
    raise errors.WorkbenchError(
        record.describe if record else f"there is no run {name!r}",
        location=str(runs_dir()),
        expected=errors.did_you_mean(name, runs),
    )


def before(record: RunRecord) -> Iterator[RunRecord]:
    """Yield the ended runs of the same world, targets and parameters before a run, the newest first."""
    wanted = record.world, record.targets, record.parameters
    for each in records():
        is_same = (each.world, each.targets, each.parameters) == wanted
        if is_same and each.folder.name < record.folder.name and has_ended(each):
            yield each


def has_ended(record: RunRecord) -> bool:
    """Return whether a run has a result; a lost one has the results until then."""
    return record.status not in ("running", DAMAGED)


def find_notebook(record: RunRecord, name: str) -> Optional[NotebookEntry]:
    """Return the entry of a notebook in a run, None if the run did not have it.

    Args:
        record: the run.
        name: name or path of the notebook.
    """
    wanted = Path(name).stem
    return next((e for e in record.notebooks if Path(e.path).stem == wanted), None)


def passed_since(earliest: dt.datetime, world: str, notebook: str) -> bool:
    """Return whether a notebook passed in a run that started at an instant or later.

    Args:
        earliest: the instant, with its zone.
        world: name of the world, "" for any.
        notebook: name or path of the notebook.
    """
    for record in records():
        entry = find_notebook(record, notebook)
        if entry and entry.status == "passed" and world in ("", record.world):
            if start(record) >= earliest:
                return True
    return False
