"""Pid files: find the processes that this instance has started.

The record in a pid file is a JSON object. Its keys are `pid`, `started_ticks` (see `start_ticks`),
`ports`, `stop_signal` and `fingerprint` (of the settings that the service was started with).
"""

import contextlib
import json
from pathlib import Path
from typing import Any, Optional

import psutil

from . import paths


def pid_file(name: str) -> Path:
    """Return the path of a service's pid file."""
    return paths.state_dir() / "run" / f"{name}.json"


def read(name: str) -> dict[str, Any]:
    """Return the record of a service; it is empty if the pid file does not exist or is damaged.

    Raises:
        OSError: the file cannot be read.
    """
    try:
        record = json.loads(pid_file(name).read_text())
        return record if isinstance(record, dict) else {}
    except (FileNotFoundError, ValueError):  # damaged, for example after a full disk
        return {}


def names() -> list[str]:
    """Return the names of the services that have a pid file."""
    return sorted(file.stem for file in pid_file("any").parent.glob("*.json"))


def find_process(record: dict[str, Any]) -> Optional[psutil.Process]:
    """Return the process of a record, None if it has ended.

    The kernel reuses pids, so the start of the process must equal the recorded start, too.
    """
    with contextlib.suppress(psutil.Error, KeyError, TypeError, ValueError):
        process = psutil.Process(record["pid"])
        if start_ticks(process) == record["started_ticks"] and is_alive(process):
            return process
    return None


def start_ticks(process: psutil.Process) -> float:
    """Return when a process started, in clock ticks since boot (proc(5), stat, field 22).

    A time of day is not used, because a correction of the clock changes it, for example after a
    laptop wakes up. On systems without /proc the result is psutil's `create_time`.
    """
    try:
        return float(Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        return process.create_time()


def is_alive(process: psutil.Process) -> bool:
    """Return whether a process runs. A zombie does not count as running."""
    with contextlib.suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False
