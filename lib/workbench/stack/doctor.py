"""Check the machine before any service starts; report every problem at once with its remedy."""

import os
import shutil
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Callable

import psutil

from ..base import ROOT, StackError, WorkbenchError, World, aws
from . import artifacts, process, services

MEMORY_GIB = 6  # upper limit of the whole stack; the heaps of its parts add up to less
# downloads, unpacked: 1.0; Python packages: 1.2; service data and lake of the walkthroughs: below 1
DISK_GIB = 4


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's report.

    Attributes:
        subject: what was checked.
        detail: what the check found.
        remedy: what to do; empty if there is no problem.
        is_warning: whether the stack can start despite the problem.
    """

    subject: str
    detail: str
    remedy: str = ""
    is_warning: bool = False

    @property
    def level(self) -> str:
        """ok, warning or problem."""
        if not self.remedy:
            return "ok"
        return "warning" if self.is_warning else "problem"


def examine(world: World) -> list[Finding]:
    """Return a Finding for each check. No process is started and nothing is changed."""
    findings = [_check("pyspark", _pyspark)]
    if world.stack.embedded:
        findings += [
            _check_memory(),
            _check("disk", partial(_disk, ROOT / "var")),
            _check("Java", _java),
            _check_files(*services.optional_artifacts(world)),
            *_check_ports(world),
        ]
    if world.stack.deployment:
        findings.append(_check("AWS", partial(_account, world), f"check {world.file}"))
    return findings


def _check(subject: str, look: Callable[[], str], remedy: str = "run `make install`") -> Finding:
    """Return the Finding of a function that returns what it found, or raises WorkbenchError.

    Args:
        subject: what is checked.
        look: the function.
        remedy: what to do after an error without a hint.
    """
    try:
        return Finding(subject, look())
    except WorkbenchError as e:
        detail = f"{e.message}: {e.location}".rstrip(": ")
        return Finding(subject, detail, e.hint or remedy)


def _account(world: World) -> str:
    return f"{aws.call(world.region, 'sts', 'get_caller_identity')['Arn']} in {world.region}"


def _pyspark() -> str:
    """Find the pyspark that would be imported: PYTHONPATH may name that of another Spark."""
    version, folder = artifacts.versions()["spark"], artifacts.package_dir("pyspark")
    if version not in (folder / "version.py").read_text(encoding="utf-8"):
        raise StackError(f"not {version}: {folder}", hint="unset PYTHONPATH, run `make install`")
    return f"{version} in {folder}"


def _java() -> str:
    return f"{artifacts.versions()['java']} at {artifacts.java_home()}"


def _disk(folder: Path) -> str:
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    for path in (existing, *folder.glob("*")):
        if not os.access(path, os.W_OK):  # var/ and its content after one `sudo make`
            raise StackError(
                f"{path} is not writable: it belongs to user {path.stat().st_uid}",
                hint='sudo chown -R "$(id -un)" var runs',
            )
    free = shutil.disk_usage(existing).free / 2**30
    detail = f"{free:.1f} GiB free for {folder}"
    if free < DISK_GIB:
        remedy = f"free some space: {DISK_GIB} GiB are needed (`make clean` removes service data)"
        raise StackError(detail, hint=remedy)
    return detail


def _check_memory() -> Finding:
    free = psutil.virtual_memory().available / 2**30
    detail = f"{free:.1f} GiB available"
    if free >= MEMORY_GIB or any(map(process.running_process, services.SERVICES)):
        return Finding("memory", detail)
    remedy = (
        f"the stack takes up to {MEMORY_GIB} GiB: close other programs, or lower "
        "spark.driver_memory in params/local.yaml"
    )
    return Finding("memory", detail, remedy, is_warning=free >= MEMORY_GIB / 2)


def _check_files(*optional: str) -> Finding:
    total, invalid = len(artifacts.required(*optional)), artifacts.invalid(*optional)
    if not invalid:
        return Finding("jars", f"{total} files with the pinned checksums")
    remedy = "run `make install`: it fetches only those"
    damaged = [artifact.path for artifact in invalid if artifact.path.exists()]
    if damaged:
        return Finding("jars", f"{len(damaged)} damaged: {damaged[0]}", remedy)
    # they are also fetched before a service starts
    return Finding("jars", f"{len(invalid)} of {total} not fetched yet", remedy, is_warning=True)


def _check_ports(world: World) -> list[Finding]:
    all_names = [*services.DEFAULT_SERVICES, *services.ON_DEMAND_SERVICES]
    names = services.with_dependencies(world, all_names)
    ports = [(name, port) for name in names for port in services.SERVICES[name].ports(world)]
    conflicts = [
        Finding(f"port {port} ({name})", f"held by {owner}", process.PORT_HINT)
        for name, port in ports
        if not process.running_process(name) and (owner := process.port_owner(port))
    ]
    numbers = ", ".join(str(port) for _, port in ports)
    return conflicts or [Finding("ports", f"{numbers} are free or used by this instance")]
