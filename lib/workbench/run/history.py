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


def folders() -> list[Path]:
    """Return the folders of all runs, the newest first."""
    return sorted((each for each in runs_dir().glob(FOLDERS) if each.is_dir()), reverse=True)


def read(folder: Path) -> RunRecord:
    """Return the record of a run.

    Args:
        folder: folder of the run.

    Returns:
        The record. The status of a run whose process is gone is "lost", not "running".

    Raises:
        WorkbenchError: the folder has no run.json, or it is damaged.
    """
    file = folder / "run.json"
    try:
        record = RunRecord(folder=folder, **json.loads(file.read_text(encoding="utf-8")))
        _start(record)
    except (OSError, ValueError, TypeError) as e:
        raise errors.WorkbenchError(
            f"no record of a run: {errors.first_line(e)}",
            location=str(file),
            hint="the run ended before it wrote one, or the file is damaged; remove the folder",
        ) from e
    if record.status == "running":
        lock = paths.VAR_DIR / "instances" / record.instance / "run.lock"
        # another run of the instance may hold the lock; records of older versions have no pid
        if not record.pid or wait.lock_owner_pid(lock) != record.pid:
            record.status = "lost"
    return record


def _start(record: RunRecord) -> dt.datetime:
    """Return when a run started; raise ValueError if its text has no instant."""
    start = dt.datetime.fromisoformat(record.started)
    if start.tzinfo is None:
        raise ValueError(f"{record.started!r} has no time zone")
    return start


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
    for folder in folders():
        try:
            record = read(folder)
        except errors.WorkbenchError:  # it is no evidence of a run that passed
            continue
        entry = find_notebook(record, notebook)
        is_recent = _start(record) >= earliest
        if entry and entry.status == "passed" and is_recent and world in ("", record.world):
            return True
    return False


def named(name: str) -> RunRecord:
    """Return the record of the run with this name of a folder.

    Raises:
        WorkbenchError: there is no such run, or its record is damaged.
    """
    names = [folder.name for folder in folders()]
    if name not in names:
        raise errors.WorkbenchError(
            f"there is no run {name!r}",
            location=str(runs_dir()),
            expected=errors.did_you_mean(name, names),
            hint="workbench runs lists them",
        )
    return read(runs_dir() / name)


def before(record: RunRecord) -> Iterator[RunRecord]:
    """Yield the ended runs of the same world, targets and parameters before a run, the newest first."""
    same = record.world, record.targets, record.parameters
    for folder in folders():
        if folder.name >= record.folder.name:
            continue
        try:
            each = read(folder)
        except errors.WorkbenchError:
            continue
        if each.status != "running" and (each.world, each.targets, each.parameters) == same:
            yield each


def last() -> RunRecord:
    """Return the last run that has ended.

    Raises:
        WorkbenchError: none has.
    """
    for folder in folders():
        try:
            record = read(folder)
        except errors.WorkbenchError:
            continue
        if record.status != "running":
            return record
    raise errors.WorkbenchError("no run has ended yet", location=str(runs_dir()))
