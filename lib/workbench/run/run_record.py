"""The record of a run in runs/<time>-<world>: run.json, with masked secrets, and report.html."""

import contextlib
import datetime as dt
import html
import importlib.metadata
import itertools
import json
import os
import platform
import re
import shlex
import subprocess
import urllib.parse
from collections import Counter
from pathlib import Path
from typing import Any, Iterable, Optional

from pydantic import BaseModel, Field

from ..base import params, paths, secrets, wait
from ..stack.artifacts import versions
from . import notebooks

RECORDED_PACKAGES = (
    "pyspark hudi pandas pyarrow numpy confluent-kafka psycopg matplotlib papermill".split()
)


class NotebookEntry(BaseModel):
    """A notebook in run.json; times are in seconds."""

    path: str
    title: str
    promise: str
    status: str = "pending"
    why: str = ""
    seconds: float = 0
    cell_seconds: float = 0
    cells: list[dict[str, Any]] = []
    checks: list[dict[str, Any]] = []
    error: Optional[dict[str, Any]] = None


class RunRecord(BaseModel):
    """The result of a run: the content of run.json, in the folder of the run.

    Attributes:
        folder: folder of the run.
        status: running, passed, failed or stopped.
        pid: the process that runs it; `history` tells by it whether a run is active.
        seconds: duration of the run; `cell_seconds`: of its cells.
        notebooks: the notebooks, in their order.
    """

    folder: Path = Field(exclude=True)
    status: str = "running"
    instance: str = ""
    pid: str = ""
    world: str
    describe: str
    targets: list[str]
    parameters: dict[str, Any]
    started: str = ""
    seconds: float = 0
    cell_seconds: float = 0
    commit: Optional[str] = None
    versions: dict[str, Any] = {}
    world_values: list[tuple[str, str]] = []
    notebooks: list[NotebookEntry]

    @property
    def report(self) -> Path:
        """Path of the report."""
        return self.folder / "report.html"

    @property
    def exit_code(self) -> int:
        """Exit code of the command: 0 passed, 130 stopped, 1 failed."""
        return {"passed": 0, "stopped": 130}.get(self.status, 1)

    def __str__(self) -> str:
        """Return the result in one line."""
        passed = sum(entry.status == "passed" for entry in self.notebooks)
        failed = [entry.path for entry in self.notebooks if entry.status == "failed"]
        return (
            f"{self.status}: {passed} of {len(self.notebooks)} notebooks, "
            f"{count_checks(self.notebooks)}, in {self.seconds:.0f} s"
            + (f"; failed: {', '.join(failed)}" if failed else "")
        )

    def save(self) -> None:
        """Write run.json with masked secrets, atomically."""
        scratch = self.folder / "run.json.new"
        masked = mask_secrets(self.model_dump(mode="json"))
        scratch.write_text(json.dumps(masked, indent=1, ensure_ascii=False), encoding="utf-8")
        scratch.replace(self.folder / "run.json")


def count_checks(entries: Iterable[NotebookEntry]) -> str:
    """Return how many checks passed, and how many differ because the data are the user's own."""
    states = Counter(check["ok"] for entry in entries for check in entry.checks)
    text = f"{states[True]} of {sum(states.values())} checks passed"
    return text + (f", {states[None]} shown: own data differ" if states[None] else "")


def runs_dir() -> Path:
    """Return the folder of the runs: runs/, or the value of WORKBENCH_RUNS (set in tests)."""
    return Path(os.environ.get("WORKBENCH_RUNS") or paths.ROOT / "runs")


def lock_file() -> Path:
    """Return the file that an active run of this instance locks."""
    return paths.state_dir() / "run.lock"


def running_pids(*locks: Path) -> list[str]:
    """Return the process ids of active runs.

    Args:
        locks: lock files of several instances, by default the lock file of this instance.
    """
    pids = [wait.lock_owner_pid(lock) for lock in locks or [lock_file()]]
    return [pid for pid in pids if pid]


def create(
    books: dict[Path, Any], world: params.World, targets: list[str], parameters: dict[str, Any]
) -> RunRecord:
    """Create the folder of a run, and return its initial record.

    Args:
        books: {path: notebook}.
        world: the world.
        targets: the targets of the command.
        parameters: {name: value}.
    """
    now = dt.datetime.now().astimezone()
    if not os.environ.get("WORKBENCH_RUNS"):  # the user chooses the permissions of that folder
        paths.ensure_private_dir(runs_dir())
    packages = {
        f"python package {name}": importlib.metadata.version(name) for name in RECORDED_PACKAGES
    }
    return RunRecord(
        folder=_create_folder(f"{now:%Y%m%d-%H%M%S}-{world.name}"),
        instance=paths.instance_name(),
        world=world.name,
        describe=world.description,
        targets=targets,
        parameters=parameters,
        started=now.isoformat(timespec="seconds"),
        commit=checkout_commit(),
        versions={
            "Python": platform.python_version(),
            "machine": f"{platform.platform()}, {os.cpu_count()} processors",
            **versions(),
            **packages,
        },
        world_values=params.flatten(world),
        notebooks=[
            NotebookEntry(
                path=notebooks.name(path), **notebooks.introduction(book.cells, path.stem)
            )
            for path, book in books.items()
        ],
    )


def _create_folder(name: str) -> Path:
    """Create a folder of this name, or with a number after it, that no other run has.

    Runs of two instances may start in the same second.
    """
    for number in itertools.count(1):
        folder = runs_dir() / (f"{name}-{number}" if number > 1 else name)
        with contextlib.suppress(FileExistsError):
            folder.mkdir(parents=True)
            return folder
    raise AssertionError


def find_resumable(
    books: Iterable[Path], world: str, parameters: dict[str, Any]
) -> Optional[RunRecord]:
    """Return the last run of the same world and notebooks, if it did not pass.

    Args:
        books: paths of the notebooks.
        world: name of the world.
        parameters: the parameters of the new run, {} for those of the run to resume.

    Returns:
        The record of the run; its notebooks that did not pass are pending. None if it
        passed or had other parameters, or if there is no such run.
    """
    wanted = paths.instance_name(), world, [notebooks.name(path) for path in books]
    files = runs_dir().glob("*/run.json")
    for file in sorted(files, key=lambda f: f.stat().st_mtime_ns, reverse=True):
        content = json.loads(file.read_text(encoding="utf-8"))
        record = RunRecord(folder=file.parent, **content)
        if (record.instance, record.world, [e.path for e in record.notebooks]) != wanted:
            continue
        if record.status == "passed" or parameters not in ({}, record.parameters):
            return None
        for entry in record.notebooks:
            if entry.status != "passed":
                entry.status, entry.why, entry.error = "pending", "", None
        return record
    return None


def mask_secrets(value: Any) -> Any:
    """Return a copy with masked secrets, also if a secret is escaped as HTML, JSON or in a URL.

    Args:
        value: a text, or nested dicts and lists of texts; images are not searched.
    """
    variables = {v for k, v in os.environ.items() if k.startswith("WORKBENCH_SECRET_")}
    forms = set()
    for secret in {*secrets.read().values(), *secrets.revealed(), *variables}:
        if len(secret) > 3:  # the mask would reveal where a shorter secret occurs
            forms |= {secret, html.escape(secret), urllib.parse.quote(secret, safe="")}
            forms |= {json.dumps(secret)[1:-1], repr(secret)[1:-1]}
    if not forms:
        return value
    pattern = re.compile("|".join(map(re.escape, sorted(forms, key=len, reverse=True))))

    def mask(v: Any) -> Any:
        if isinstance(v, str):
            return pattern.sub(secrets.MASK, v)
        if isinstance(v, dict):
            return {mask(str(k)): w if k == "image/png" else mask(w) for k, w in v.items()}
        return [mask(w) for w in v] if isinstance(v, (list, tuple)) else v

    return mask(value)


def checkout_commit() -> Optional[str]:
    """Return the commit of this checkout, with a note about local changes; None without git."""
    command = ["git", "-C", str(paths.ROOT), "describe", "--always", "--exclude=*"]
    command.append("--dirty= with local changes")
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() or None


# ---- the report


def write_report(run_dir: Path) -> None:
    """Write report.html next to run.json, as one file without references to other files.

    Args:
        run_dir: folder of the run, with run.json and the executed notebooks.
    """
    record = json.loads((run_dir / "run.json").read_text(encoding="utf-8"))
    arguments = [*record["targets"], "--world", record["world"]]
    for name, value in record["parameters"].items():
        arguments += ["--param", shlex.quote(f"{name}={value}")]
    for number, entry in enumerate(record["notebooks"], 1):
        entry["anchor"] = f"notebook-{number}"
        entry["pictures"] = _pictures(run_dir / "notebooks" / entry["path"])
    page = notebooks.render(
        "report.html.j2",
        run=record,
        folder=run_dir.name,
        arguments=" ".join(arguments),
        plain=notebooks.strip_markdown,
    )
    (run_dir / "report.html").write_text(page, encoding="utf-8")


def _pictures(path: Path) -> list[dict[str, str]]:
    """Return the pictures of an executed notebook; none if it was not executed.

    Returns:
        image (base64), caption (the heading above the picture), and title: the alternative text,
        which `draw.Picture` stores beside the image as its text form.
    """
    import nbformat  # `workbench down` runs without it

    if not path.is_file():
        return []
    pictures = []
    cells = nbformat.read(path, as_version=4).cells
    for cell, section in zip(cells, notebooks.sections(cells)):
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if "image/png" in data:
                title = data.get("text/plain", "")
                if not title or title.startswith("<"):
                    title = section
                pictures.append({"image": data["image/png"], "caption": section, "title": title})
    return pictures
