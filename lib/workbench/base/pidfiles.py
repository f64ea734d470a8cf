"""Pid files: which processes this instance has started, and whether each of them still is the one
that was noted.
"""

import json
from pathlib import Path
from typing import Any, Optional

import psutil

from . import paths


def pid_file(name: str) -> Path:
    """Where it is noted which process a service is."""
    return paths.state_dir() / "run" / f"{name}.json"


def read(pid_file: Path) -> dict[str, Any]:
    """Return what a pid file says; a pid that no process has where there is none or it is damaged
    (a full disk).
    Raises: OSError: it cannot be read.
    """
    try:
        noted = json.loads(pid_file.read_text())
        return {**noted, "pid": int(noted["pid"]), "born": float(noted["born"])}
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return {"pid": -1, "born": -1}


def recorded_ports() -> set[int]:
    """The ports that services of this instance were started with, of those that died as well."""
    return {
        port
        for file in pid_file("any").parent.glob("*.json")
        for port in read(file).get("ports", ())
    }


def running_port_base() -> Optional[int]:
    """The port base that the living services of this instance were started with; None where none
    lives.
    """
    noted = (read(f) for f in sorted(pid_file("any").parent.glob("*.json")))
    return next((n["base"] for n in noted if type(n.get("base")) is int and find_process(n)), None)


def running_instances() -> set[str]:
    """Names of the instances in this checkout of which a service is running."""
    return {f.parents[1].name for f in paths.VAR_DIR.glob("*/run/*.json") if find_process(read(f))}


def find_process(noted: dict[str, Any]) -> Optional[psutil.Process]:
    """The process that was noted, None where it has ended (a later one may have its number)."""
    try:
        process = psutil.Process(int(noted["pid"]))
        return process if start_ticks(process) == noted["born"] and is_alive(process) else None
    except (ValueError, psutil.Error):
        return None


def start_ticks(process: psutil.Process) -> float:
    """When a process began, on a clock that nobody sets. Linux gives it in ticks since boot
    (proc(5), stat, field 22); as a time of day it would move when a laptop wakes up and its clock
    is put right.
    """
    try:
        return float(Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        return process.create_time()


def is_alive(process: psutil.Process) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
