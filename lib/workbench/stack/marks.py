"""The mark in the environment of everything that we start: whose process it is, also without a pid file."""
from __future__ import annotations

import contextlib
import os
from typing import List, Tuple

import psutil

from ..base.errors import StackError
from ..base.paths import state_dir
from ..base.pidfiles import alive
from ..base.wait import wait_until

MARK = "WORKBENCH_SERVICE"


def mark(name: str) -> str:
    """What a service of this instance is marked with."""
    return f"{state_dir()}:{name}"


def marked(start: str) -> List[Tuple[psutil.Process, str]]:
    """Living processes with a mark that begins so, and their marks: `<folder of the instance>:<service>`."""
    found = ((p, _mark_of(p)) for p in psutil.process_iter())
    return [(p, seen) for p, seen in found if seen.startswith(start) and alive(p)]


def sweep(name: str, patience: float = 0) -> bool:
    """Kill what is left of a service after `patience` seconds, and return whether there was anything: one that does not
    heed its signal, the backends of a PostgreSQL killed with -9, one whose starter was killed before it noted the pid.
    """
    seen = set(_rest_of(name))
    if not seen:
        return False
    psutil.wait_procs(seen, timeout=patience)

    def ended() -> bool:
        seen.update(_rest_of(name))  # looked up each time: one of them may have started another before it ended
        # One that is ending loses its environment, our mark with it, before it lets go of its ports: it is waited for
        # as the process that was seen, until it is gone or a zombie, which holds nothing any more.
        rest = [p for p in seen if alive(p)]
        for p in rest:
            with contextlib.suppress(psutil.Error):
                p.kill()
        return not rest

    wait_until(ended, f"the rest of {name} to end", timeout=30, every=0.1, error=StackError)
    return True


def _rest_of(name: str) -> List[psutil.Process]:
    """Processes that carry this service's mark. PostgreSQL's backends write their title over it (and leave the group):
    they are known by their name and by working in our data folder."""
    folder = os.path.realpath(state_dir() / "data" / name)

    def ours(p: psutil.Process) -> bool:
        with contextlib.suppress(psutil.Error, OSError):  # gone meanwhile, or another user's
            return _mark_of(p) == mark(name) or (p.name() == name and p.cwd() == folder)
        return False

    return [p for p in psutil.process_iter() if ours(p) and alive(p)]


def _mark_of(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error, OSError):  # gone meanwhile, or another user's
        return process.environ().get(MARK, "")
    return ""
