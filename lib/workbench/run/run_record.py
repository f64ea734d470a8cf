"""What is kept of a run in runs/<time>-<world>: run.json, made, found again, written with every
secret masked; and report.html, made of it.
"""

import datetime as dt
import html
import importlib.metadata
import json
import os
import platform
import re
import shlex
import subprocess
import urllib.parse
from pathlib import Path
from typing import Any, Callable, Iterable, Optional

from ..base import errors, params, paths, secrets, wait
from ..stack.artifacts import versions
from . import notebooks

STATUS_LABELS = {
    "skipped": "not run",
    "pending": "not run",
    "running": "not finished",
}  # other states by their own names
RECORDED_PACKAGES = [
    "pyspark",
    "hudi",
    "pandas",
    "pyarrow",
    "numpy",
    "confluent-kafka",
    "psycopg",
    "matplotlib",
    "papermill",
]


def runs_dir() -> Path:
    """Where runs are kept: runs/, or the folder that WORKBENCH_RUNS names (tests use their own)."""
    return Path(os.environ.get("WORKBENCH_RUNS") or paths.ROOT / "runs")


def run_locations() -> list[Path]:
    """Where the runs lie: runs/; or, as WORKBENCH_RUNS may name a folder that holds other things,
    each run's own.
    """
    at = runs_dir()
    return [at] if at == paths.ROOT / "runs" else sorted(f.parent for f in at.glob("*/run.json"))


def lock_file() -> Path:
    """What a run of this instance holds while it goes on."""
    return paths.state_dir() / "run.lock"


def running_pids(*locks: Path) -> list[str]:
    """Pids of the runs that hold one of these lock files; of this instance's where none is
    named.
    """
    return [pid for pid in map(wait.lock_owner_pid, locks or [lock_file()]) if pid]


def create(
    books: dict[Path, Any], world: params.World, targets: list[str], given: dict
) -> tuple[Path, dict]:
    """Make the folder of a run; return it and what its record begins with."""
    now = dt.datetime.now().astimezone()
    stamp = f"{now:%Y%m%d-%H%M%S}-{world.name}"
    if not os.environ.get("WORKBENCH_RUNS"):  # whose rights are the user's own choice
        paths.ensure_private_dir(runs_dir())
    taken = len(list(runs_dir().glob(f"{stamp}*")))
    folder = runs_dir() / (f"{stamp}-{taken + 1}" if taken else stamp)
    folder.mkdir(parents=True)
    packages = {
        f"python package {name}": importlib.metadata.version(name) for name in RECORDED_PACKAGES
    }
    return folder, {
        "status": "running",
        "world": world.name,
        "describe": world.description,
        "targets": targets,
        "parameters": given,
        "started": now.isoformat(timespec="seconds"),
        "seconds": 0.0,
        "cell_seconds": 0.0,
        "commit": checkout_commit(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processors": os.cpu_count(),
        "versions": {**versions(), **packages},
        "world_values": params.flatten(world),
        "notebooks": [
            {
                "path": notebooks.name(p),
                **notebooks.introduction(book.cells, p.stem),
                "status": "pending",
                "why": "",
                "seconds": 0.0,
                "cell_seconds": 0.0,
                "cells": [],
                "checks": [],
                "error": None,
            }
            for p, book in books.items()
        ],
    }


def find_resumable(
    books: Iterable[Path], world: str, given: dict, say: Callable[[str], None]
) -> Optional[tuple[Path, dict]]:
    """Return folder and record of the newest run of the same world and notebooks that did not pass;
    None, and say so, where there is none. Its parameters go into `given`; ParamsError where other
    ones are there already.
    """
    for file in sorted(runs_dir().glob(f"*-{world}*/run.json"), key=lambda f: f.stat().st_mtime_ns)[
        ::-1
    ]:
        record = json.loads(file.read_text(encoding="utf-8"))
        same = record["world"] == world and [e["path"] for e in record["notebooks"]] == list(
            map(notebooks.name, books)
        )
        if same and any(e["status"] != "passed" for e in record["notebooks"]):
            if given and given != record["parameters"]:
                raise errors.ParamsError(
                    "the run to resume had other parameters",
                    location=str(file),
                    expected=str(record["parameters"]),
                    hint="leave --resume or --param out",
                )
            given.update(record["parameters"])
            then, this = record.get("commit") or "unknown", checkout_commit() or "unknown"
            if then != this:
                say(
                    f"note: the run to resume is of commit {then}, this is {this}; what passed then is not run again"
                )
            return file.parent, record
    say(
        f"there is no run of these notebooks in world {world} that did not pass: running all of them"
    )
    return None


def save(folder: Path, record: dict) -> None:
    """Write the record, masked, in one step: whoever reads it sees the one before or this one."""
    scratch = folder / "run.json.new"
    scratch.write_text(
        json.dumps(mask_secrets(record), indent=1, default=str, ensure_ascii=False),
        encoding="utf-8",
    )
    scratch.replace(folder / "run.json")


def mask_secrets(value: Any) -> Any:
    """Return a copy in which every secret's text is dots, as it stands and as HTML, JSON or a URL
    would write it.
    """
    known = {
        *secrets.read().values(),
        *(v for k, v in os.environ.items() if k.startswith("WORKBENCH_SECRET_")),
    }
    forms = {
        f
        for s in known
        if len(s) > 3  # dots for a shorter one would show it by where they stand
        for f in (
            s,
            html.escape(s),
            urllib.parse.quote(s, safe=""),
            json.dumps(s)[1:-1],
            repr(s)[1:-1],
        )
    }
    if not forms:
        return value
    pattern = re.compile("|".join(re.escape(f) for f in sorted(forms, key=len, reverse=True)))

    def walk(v: Any) -> Any:
        if isinstance(v, dict):
            return {
                pattern.sub(secrets.MASK, str(k)): w if k == "image/png" else walk(w)
                for k, w in v.items()
            }
        if isinstance(v, (list, tuple)):
            return [walk(w) for w in v]
        return pattern.sub(secrets.MASK, v) if isinstance(v, str) else v

    return walk(value)


def checkout_commit() -> Optional[str]:
    """The commit of this checkout, and whether a file of it was changed since; None where git does
    not say.
    """
    describe = [
        "git",
        "-C",
        str(paths.ROOT),
        "describe",
        "--always",
        "--exclude=*",
        "--dirty= with local changes",
    ]
    try:
        return (
            subprocess.run(describe, capture_output=True, text=True, timeout=10).stdout.strip()
            or None
        )
    except (OSError, subprocess.TimeoutExpired):
        return None


# ---- the report


def write_report(run_dir: Path) -> Path:
    """Write report.html beside run.json, from it and the executed notebooks, and return its path:
    one file that needs nothing else, for a desk, a phone, a printer or an attachment.

    Raises:
        WorkbenchError: the folder holds no run.
    """
    import jinja2  # here, and nbformat below: `workbench down` needs neither

    file = run_dir / "run.json"
    if not file.is_file():
        raise errors.WorkbenchError(
            "there is no run here", location=str(run_dir), expected="a folder that holds run.json"
        )
    record = json.loads(file.read_text(encoding="utf-8"))
    for number, entry in enumerate(record["notebooks"], 1):
        entry.update(
            anchor=f"notebook-{number}", pictures=_pictures(run_dir / "notebooks" / entry["path"])
        )
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        duration=format_duration, moment=dt.datetime.fromisoformat, plain=notebooks.strip_markdown
    )
    page = environment.get_template("report.html.j2").render(
        run=record,
        folder=run_dir.name,
        said=STATUS_LABELS,
        again=_repeat_command(record),
        resume=_repeat_command(record, "--resume"),
        checks=[c for e in record["notebooks"] for c in e["checks"]],
    )
    target = run_dir / "report.html"
    target.write_text(page, encoding="utf-8")
    return target


def format_duration(seconds: Any) -> str:
    """Seconds as a person says them: 0.4 s, 12 s, 3 min 05 s."""
    seconds = float(seconds or 0)
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


def _pictures(path: Path) -> list[dict]:
    """The pictures of an executed notebook (none if it was not run): each with the heading that it
    stands under and, for who does not see it, its own title, which `draw.Picture` puts beside it as
    text.
    """
    import nbformat

    found, cells = [], nbformat.read(path, as_version=4).cells if path.is_file() else []
    for cell, section in zip(cells, notebooks.sections(cells)):
        for data in (
            output["data"]
            for output in cell.get("outputs", [])
            if "image/png" in output.get("data", {})
        ):
            title = data.get("text/plain", "")
            found.append(
                {
                    "src": "data:image/png;base64," + "".join(data["image/png"].split()),
                    "caption": section,
                    "title": section if title.startswith("<") else title or section,
                }
            )
    return found


def _repeat_command(record: dict, *more: str) -> str:
    """The command that repeats the run."""
    given = (f"--param {shlex.quote(f'{k}={v}')}" for k, v in record["parameters"].items())
    return f'make run ARGS="{" ".join([*record["targets"], "--world", record["world"], *given, *more])}"'
