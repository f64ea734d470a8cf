"""Pid files: find the processes that this instance has started.

The record in a pid file is a JSON object. Its keys are `pid`, `born` (the start of the process, see
`start_ticks`), `ports` and `base` (the port base of the instance).
"""

import json
from pathlib import Path
from typing import Any, Iterator, Optional

import psutil

from . import paths


def pid_file(name: str) -> Path:
    """Return the path of a service's pid file."""
    return paths.state_dir() / "run" / f"{name}.json"


def read(pid_file: Path) -> dict[str, Any]:
    """Return the record in a pid file.

    Returns:
        The record, with at least `pid` and `born`. Both are -1, which no process has, if the file
        does not exist or is damaged (for example after a full disk).

    Raises:
        OSError: the file cannot be read.
    """
    try:
        record = json.loads(pid_file.read_text())
        return {**record, "pid": int(record["pid"]), "born": float(record["born"])}
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return {"pid": -1, "born": -1}


def names() -> list[str]:
    """Return the names of the services that have a pid file."""
    return sorted(file.stem for file in pid_file("any").parent.glob("*.json"))


def _records() -> Iterator[dict[str, Any]]:
    return (read(pid_file(name)) for name in names())


def recorded_ports() -> set[int]:
    """Return the ports in all pid files of this instance, also those of dead services."""
    return {port for record in _records() for port in record.get("ports", ())}


def running_port_base() -> Optional[int]:
    """Return the port base of the running services, None if no service runs."""
    for record in _records():
        base = record.get("base")
        if type(base) is int and find_process(record):
            return base
    return None


def running_instances() -> set[str]:
    """Return the names of the instances of this checkout that have a running service."""
    files = paths.VAR_DIR.glob("*/run/*.json")
    return {file.parents[1].name for file in files if find_process(read(file))}


def find_process(record: dict[str, Any]) -> Optional[psutil.Process]:
    """Return the process of a record, None if it has ended.

    The kernel reuses pids, so the start of the process must equal the recorded start, too.
    """
    try:
        process = psutil.Process(int(record["pid"]))
        if start_ticks(process) == record["born"] and is_alive(process):
            return process
    except (ValueError, psutil.Error):
        pass
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
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
