"""Check the machine before any service starts; report every problem at once with its remedy."""

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
    findings = [_check_python(), _check_packages(), _check_platform()]
    if world.stack.embedded:
        findings += [
            _check_memory(),
            _check_disk(ROOT / "var"),
            _check_java(),
            _check_files(*services.optional_artifacts(world)),
            *_check_ports(world),
            _check_user(),
        ]
    if world.stack.deployment:
        findings.append(_check_account(world))
    return findings


def _check_account(world: World) -> Finding:
    try:
        arn = aws.call(world.region, "sts", "get_caller_identity")["Arn"]
    except WorkbenchError as e:
        return Finding("AWS", f"{e.message}: {e.location}", e.hint or f"check {world.file}")
    return Finding("AWS", f"{arn} in {world.region}")


def _check_python() -> Finding:
    version = sys.version_info[:3]
    remedy = ""
    if not (3, 10) <= version[:2] <= (3, 13):
        remedy = (
            "the pinned packages need Python 3.10 to 3.13: rm -r .venv, then "
            "make PYTHON=python3.13 install"
        )
    return Finding("Python", ".".join(map(str, version)), remedy)


def _check_packages() -> Finding:
    """Check the packages that requirements.in pins for this machine."""
    lines = (ROOT / "requirements.in").read_text(encoding="utf-8").splitlines()
    without_comments = [line.partition("#")[0] for line in lines]
    requirements = [Requirement(text) for text in without_comments if "==" in text]
    pinned = {
        requirement.name: str(requirement.specifier)[2:]
        for requirement in requirements
        if not requirement.marker or requirement.marker.evaluate()
    }
    problems = [problem for item in pinned.items() if (problem := _package_problem(*item))]
    if not problems:
        return Finding("packages", ", ".join(f"{name} {v}" for name, v in pinned.items()))
    unset = "`unset PYTHONPATH`, then " if os.environ.get("PYTHONPATH") else ""
    return Finding("packages", "; ".join(problems), f"{unset}run `make install`")


def _package_problem(name: str, version: str) -> str:
    """Return the problem of a pinned package (missing, other version, shadowed), else ""."""
    distribution = next(iter(metadata.distributions(name=name)), None)
    if not distribution:
        return f"{name} missing, not {version}"
    if distribution.version != version:
        return f"{name} {distribution.version}, not {version}"
    module = name.replace("-", "_")
    installed = Path(str(distribution.locate_file(module)))
    spec = importlib.util.find_spec(module)
    if not spec or not spec.origin or not installed.is_dir():
        return ""
    imported = Path(spec.origin).parent
    if imported.resolve() == installed.resolve():
        return ""
    return f"{name} would be imported from {imported}, not from {installed}"


def _check_platform() -> Finding:
    if sys.platform == "linux":
        return Finding("system", "Linux")
    if sys.platform == "darwin":
        return Finding("system", "macOS", "should work; only Linux is tested", is_warning=True)
    return Finding("system", sys.platform, "use Linux (on Windows: WSL 2)")


def _check_memory() -> Finding:
    free = psutil.virtual_memory().available / 2**30
    running = [name for name in services.SERVICES if process.running_process(name)]
    detail, remedy = f"{free:.1f} GiB available", ""
    if running:
        detail += f", {len(running)} services already running"
    elif free < MEMORY_GIB:
        remedy = (
            f"the stack takes up to {MEMORY_GIB} GiB: close other programs, or lower "
            "spark.driver_memory in params/local.yaml"
        )
    return Finding("memory", detail, remedy, is_warning=free >= MEMORY_GIB / 2)


def _check_disk(folder: Path) -> Finding:
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(existing).free / 2**30
    for path in (existing, *folder.glob("*")):
        if not os.access(path, os.W_OK):  # var/ and its content after one `sudo make`
            return Finding(
                "disk",
                f"{path} is not writable: it belongs to user {path.stat().st_uid}",
                'sudo chown -R "$(id -un)" var runs'
                if existing == folder
                else "clone into a folder of your own",
            )
    remedy = ""
    if free < DISK_GIB:
        remedy = f"free some space: {DISK_GIB} GiB are needed (`make clean` removes service data)"
    return Finding("disk", f"{free:.1f} GiB free for {folder}", remedy)


def _check_java() -> Finding:
    try:
        home = artifacts.java_home()
    except WorkbenchError as e:
        return Finding("Java", f"{e.message}: {e.location}", e.hint)
    detail = f"{artifacts.versions()['java']} at {home}"
    configured = os.environ.get("JAVA_HOME")
    if configured and Path(configured) != home:
        version = artifacts.java_version(Path(configured)) or "?"
        detail += f" (JAVA_HOME is a Java {version}, not used)"
    return Finding("Java", detail)


def _check_files(*optional: str) -> Finding:
    total = len(artifacts.required(*optional))
    invalid = artifacts.verify(*optional)
    if not invalid:
        return Finding("jars", f"{total} files with the pinned checksums")
    remedy = (
        "run `make install`: it fetches only those. (Missing ones are also fetched before a "
        "service starts.)"
    )
    damaged = [sentence for sentence in invalid if sentence.endswith("damaged")]
    if damaged:
        return Finding("jars", f"{len(damaged)} damaged: {damaged[0]}", remedy)
    return Finding("jars", f"{len(invalid)} of {total} not fetched yet", remedy, is_warning=True)


def _check_ports(world: World) -> list[Finding]:
    names = [*services.default_services(world), *filter(world.manages, services.ON_DEMAND_SERVICES)]
    ports = [(name, port) for name in names for port in services.SERVICES[name].ports(world)]
    conflicts = [
        Finding(f"port {port} ({name})", f"held by {owner}", process.PORT_HINT)
        for name, port in ports
        if not process.running_process(name) and (owner := process.port_owner(port))
    ]
    if conflicts:
        return conflicts
    numbers = ", ".join(str(port) for _, port in ports)
    return [Finding("ports", f"{numbers} are free or used by this instance")]


def _check_user() -> Finding:
    if os.geteuid() != 0:
        return Finding("user", "an ordinary user")
    if shutil.which("setpriv"):
        return Finding("user", "root (databases run as user nobody)")
    return Finding(
        "user",
        "root, and setpriv is missing",
        "databases do not run as root: use an ordinary user, or install util-linux",
    )
