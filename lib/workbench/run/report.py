"""The report of a run: one HTML file that needs nothing else, for a desk, a phone, a printer or an attachment."""
from __future__ import annotations

import datetime as dt
import json
import shlex
from pathlib import Path
from typing import Any

import jinja2
import nbformat

from ..base.errors import WorkbenchError
from .notebooks import plain, sections

STATUS = {"passed": "passed", "failed": "failed", "stopped": "stopped", "skipped": "not run", "pending": "not run",
          "running": "not finished"}


def write(run_dir: Path) -> Path:
    """Write report.html beside run.json, from it and the executed notebooks, and return its path.

    Raises:
        WorkbenchError: the folder holds no run.
    """
    run_dir = Path(run_dir)
    file = run_dir / "run.json"
    if not file.is_file():
        raise WorkbenchError("there is no run here", where=str(run_dir), expected="a folder that holds run.json")
    record = json.loads(file.read_text(encoding="utf-8"))
    for number, entry in enumerate(record["notebooks"], 1):
        entry.update(anchor=f"notebook-{number}", pictures=_pictures(run_dir / "notebooks" / entry["path"]))
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters.update(duration=duration, when=_when, plain=plain)
    html = environment.get_template("report.html.j2").render(
        run=record, folder=run_dir.name, said=STATUS, again=_again(record), resume=_again(record, "--resume"),
        checks=[c for e in record["notebooks"] for c in e["checks"]])
    target = run_dir / "report.html"
    target.write_text(html, encoding="utf-8")
    return target


def newest(folder: Path) -> Path:
    """Return the newest run's folder in `folder`. Raises WorkbenchError when there is none."""
    runs = sorted(folder.glob("*/run.json"), key=lambda f: f.stat().st_mtime_ns)
    if not runs:
        raise WorkbenchError("there is no run yet", where=str(folder), next_step="workbench run")
    return runs[-1].parent


def duration(seconds: Any) -> str:
    """Seconds as a person says them: 0.4 s, 12 s, 3 min 05 s."""
    seconds = float(seconds or 0)
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


def _pictures(path: Path) -> list[dict]:
    """The pictures of an executed notebook (none if it was not run): each with the heading that it stands under and,
    for who does not see it, its own title, which `draw.Picture` puts beside it as text."""
    found, cells = [], nbformat.read(path, as_version=4).cells if path.is_file() else []
    for cell, section in zip(cells, sections(cells)):
        for data in (output["data"] for output in cell.get("outputs", []) if "image/png" in output.get("data", {})):
            title = data.get("text/plain", "")
            found.append({"src": "data:image/png;base64," + "".join(data["image/png"].split()),
                          "caption": section, "title": section if title.startswith("<") else title or section})
    return found


def _when(text: Any) -> str:
    return dt.datetime.fromisoformat(text).strftime("%-d %B %Y, %H:%M") if text else ""


def _again(record: dict, *more: str) -> str:
    """The command that repeats the run."""
    given = (f"--param {shlex.quote(f'{k}={v}')}" for k, v in record["parameters"].items())
    return f'make run ARGS="{" ".join([*record["targets"], "--world", record["world"], *given, *more])}"'
