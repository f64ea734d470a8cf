"""Helpers of test_stack.py and test_stack_faults.py."""

import contextlib

import instance
import psutil
import requests
from workbench.base import paths
from workbench.source import postgres
from workbench.spark import session
from workbench.stack import process
from workbench.stack.services import SERVICES


def marked():
    """Processes that belong to this instance, by the mark they carry or by the files they work
    in."""
    found = {p.pid: p for p, _ in instance.find_service_processes(f"{paths.state_dir()}:")}
    folder = paths.state_dir().resolve()  # of a path with a space there is a link
    for p in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if p.cwd().startswith(f"{folder}/") and p.status() != psutil.STATUS_ZOMBIE:
                found[p.pid] = p
    return list(found.values())


def rows_of_one(world):
    with postgres.connect(world, database="postgres") as c:
        return c.execute("SELECT 1").fetchone()[0]


ANSWERS = {
    "postgres": rows_of_one,
    "kafka": lambda world: process.status(SERVICES["kafka"], world).state == "up",
    "connect": lambda world: (
        requests.get(world.connect.url + "/connectors", timeout=5, auth=world.connect.auth).json()
        is not None
    ),
    "spark": lambda world: session(world).range(3).count() == 3,
}


def scratch(name):
    """The temporary files of a service, without the place of an archive, whose name stays."""
    folder = paths.state_dir() / "tmp" / name
    return {path for path in folder.iterdir() if path.suffix != ".jsa"}
