"""Pid files: the processes that this instance has started, and whether they still run."""

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
        At least `pid` and `born` (see `start_ticks`). Both are -1, which no process has, if the
        file does not exist or is damaged (a full disk).

    Raises:
        OSError: the file cannot be read.
    """
    try:
        record = json.loads(pid_file.read_text())
        return {**record, "pid": int(record["pid"]), "born": float(record["born"])}
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return {"pid": -1, "born": -1}


def _records() -> Iterator[dict[str, Any]]:
    return map(read, sorted(pid_file("any").parent.glob("*.json")))


def recorded_ports() -> set[int]:
    """Return the ports that services of this instance were started with, dead ones included."""
    return {port for record in _records() for port in record.get("ports", ())}


def running_port_base() -> Optional[int]:
    """Return the port base that the running services were started with, None if none runs."""
    for record in _records():
        base = record.get("base")
        if type(base) is int and find_process(record):
            return base
    return None


def running_instances() -> set[str]:
    """Return the names of the instances in this checkout with a running service."""
    files = paths.VAR_DIR.glob("*/run/*.json")
    return {file.parents[1].name for file in files if find_process(read(file))}


def find_process(record: dict[str, Any]) -> Optional[psutil.Process]:
    """Return the process of a record, None if it has ended.

    A later process may have the same pid, but not the same start.
    """
    try:
        process = psutil.Process(int(record["pid"]))
        if start_ticks(process) == record["born"] and is_alive(process):
            return process
    except (ValueError, psutil.Error):
        pass
    return None


def start_ticks(process: psutil.Process) -> float:
    """Return when a process started, on a clock that is never set.

    Linux has it in ticks since boot (proc(5), stat, field 22). As a time of day it would change
    when a laptop wakes up and its clock is corrected.
    """
    try:
        return float(Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        return process.create_time()


def is_alive(process: psutil.Process) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
