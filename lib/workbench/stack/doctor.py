"""Looks at the machine before any service starts, and names every problem at once, each with its
fix.
"""

import importlib.util
import os
import shutil
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import psutil
from packaging.requirements import Requirement

from ..base import ROOT, WorkbenchError, World, aws
from . import artifacts, process, services

MEMORY_GIB = 6  # what the whole stack may take (its parts add up to less)
# downloads, unpacked, 1.0, Python packages 1.2, service data and lake of the walkthroughs below 1
DISK_GIB = 4


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's report: what was looked at and seen, and what to do about it where
    it is not well.
    """

    subject: str
    detail: str
    remedy: str = ""
    is_warning: bool = False  # the stack can start nevertheless

    @property
    def level(self) -> str:
        """ok, warning or problem."""
        return "ok" if not self.remedy else "warning" if self.is_warning else "problem"


def examine(world: World) -> list[Finding]:
    """Return a Finding for each thing looked at; no process is started and nothing is changed."""
    found = [_check_python(), _check_packages(), _check_platform()]
    if world.stack.embedded:
        found += [
            _check_memory(),
            _check_disk(ROOT / "var"),
            _check_java(),
            _check_files(*services.optional_artifacts(world)),
            *_check_ports(world),
            _check_user(),
        ]
    return found + ([_check_account(world)] if world.stack.deployment else [])


def _check_account(world: World) -> Finding:
    try:
        return Finding(
            "AWS",
            f"{aws.call(world.region, 'sts', 'get_caller_identity')['Arn']} in {world.region}",
        )
    except WorkbenchError as e:
        return Finding("AWS", f"{e.message}: {e.location}", e.hint or f"look at {world.file}")


def _check_python() -> Finding:
    good = (3, 10) <= sys.version_info[:2] <= (3, 13)
    return Finding(
        "Python",
        ".".join(map(str, sys.version_info[:3])),
        ""
        if good
        else "the pinned packages are for 3.10 to 3.13: rm -r .venv, then make PYTHON=python3.13 install",
    )


def _check_packages() -> Finding:
    """Those that requirements.in pins for this machine."""
    lines = (ROOT / "requirements.in").read_text(encoding="utf-8").splitlines()
    wanted = [Requirement(line.split("#")[0]) for line in lines if "==" in line.split("#")[0]]
    pinned = {r.name: str(r.specifier)[2:] for r in wanted if not r.marker or r.marker.evaluate()}
    wrong = [sentence for sentence in map(_package_problem, pinned, pinned.values()) if sentence]
    other = "`unset PYTHONPATH`, then " if os.environ.get("PYTHONPATH") else ""
    return Finding(
        "packages",
        "; ".join(wrong) or ", ".join(f"{n} {v}" for n, v in pinned.items()),
        f"{other}run `make install`" if wrong else "",
    )


def _package_problem(name: str, version: str) -> str:
    """Say which other version of a package is there, or which module would be imported in place of
    its own; "" where all is well.
    """
    have, module = next(iter(metadata.distributions(name=name)), None), name.replace("-", "_")
    if not have or have.version != version:
        return f"{name} {have.version if have else 'missing'}, not {version}"
    spec, installed = importlib.util.find_spec(module), have.locate_file(module)
    found = Path(spec.origin).parent if spec and spec.origin else None
    same = not found or not installed.is_dir() or found.resolve() == installed.resolve()
    return "" if same else f"{name} would be imported from {found}, not from {installed}"


def _check_platform() -> Finding:
    seen, fix = {
        "linux": ("Linux", ""),
        "darwin": ("macOS", "should work; only Linux is tested"),
    }.get(sys.platform, (sys.platform, "use Linux (on Windows: WSL 2)"))
    return Finding("system", seen, fix, is_warning=sys.platform == "darwin")


def _check_memory() -> Finding:
    free = psutil.virtual_memory().available / 2**30
    running = sum(1 for name in services.SERVICES if process.running_process(name))
    seen = f"{free:.1f} GiB available" + (
        f", {running} services already running" if running else ""
    )
    return Finding(
        "memory",
        seen,
        ""
        if free >= MEMORY_GIB or running
        else f"the stack takes up to {MEMORY_GIB} GiB: close something, or lower spark.driver_memory in"
        " params/local.yaml",
        is_warning=free >= MEMORY_GIB / 2,
    )


def _check_disk(folder: Path) -> Finding:
    there = next(p for p in (folder, *folder.parents) if p.exists())
    free = shutil.disk_usage(there).free / 2**30
    others = [f for f in (there, *folder.glob("*")) if not os.access(f, os.W_OK)]
    if others:  # var/ and what is in it after one `sudo make`
        return Finding(
            "disk",
            f"{others[0]} is not writable: it belongs to user {others[0].stat().st_uid}",
            'sudo chown -R "$(id -un)" var runs'
            if there == folder
            else "clone into a folder of your own",
        )
    return Finding(
        "disk",
        f"{free:.1f} GiB free for {folder}",
        ""
        if free >= DISK_GIB
        else f"make room: {DISK_GIB} GiB are needed (`make clean` removes service data)",
    )


def _check_java() -> Finding:
    try:
        home = artifacts.java_home()
    except WorkbenchError as e:
        return Finding("Java", f"{e.message}: {e.location}", e.hint)
    stated = Path(os.environ.get("JAVA_HOME") or home)
    note = (
        ""
        if stated == home
        else f" (JAVA_HOME is a Java {artifacts.java_version(stated) or '?'}, not used)"
    )
    return Finding("Java", f"{artifacts.versions()['java']} at {home}{note}")


def _check_files(*more: str) -> Finding:
    total, sick = len(artifacts.required(*more)), artifacts.verify(*more)
    damaged = [s for s in sick if s.endswith("damaged")]
    seen = (
        f"{len(damaged)} damaged: {damaged[0]}"
        if damaged
        else f"{len(sick)} of {total} not fetched yet"
        if sick
        else f"{total} files with the pinned checksums"
    )
    fix = "run `make install`: it fetches those only. (Missing ones are also fetched before a service starts.)"
    return Finding("jars", seen, fix if sick else "", is_warning=not damaged)


def _check_ports(world: World) -> list[Finding]:
    ours = process.bound_ports()
    wanted = [
        (name, port)
        for name in [*services.default_services(world), *services.ON_DEMAND_SERVICES]
        for port in services.SERVICES[name].ports(world)
    ]
    held = [(name, port, process.port_owner(port)) for name, port in wanted if port not in ours]
    return [
        Finding(f"port {port} ({name})", f"held by {stranger}", process.PORT_HINT)
        for name, port, stranger in held
        if stranger
    ] or [Finding("ports", f"{', '.join(str(p) for _, p in wanted)} are free or ours")]


def _check_user() -> Finding:
    if os.geteuid() == 0 and not shutil.which("setpriv"):
        return Finding(
            "user",
            "root, and setpriv is missing",
            "databases do not run as root: use an ordinary user, or install util-linux",
        )
    return Finding(
        "user", "root (databases run as nobody)" if os.geteuid() == 0 else "an ordinary user"
    )
