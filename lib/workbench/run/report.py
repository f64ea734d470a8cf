"""The report of a run: one HTML file that needs nothing else, for a desk, a phone, a printer or an attachment."""
from __future__ import annotations

import datetime as dt
import json
import re
import shlex
from pathlib import Path
from typing import Any, Dict, List

from ..base.errors import WorkbenchError

STATUS = {"passed": "passed", "failed": "failed", "stopped": "stopped", "skipped": "not run", "pending": "not run",
          "running": "not finished"}


def write(run_dir: Path) -> Path:
    """Write report.html beside run.json, from it and the executed notebooks, and return its path.

    Raises:
        WorkbenchError: the folder holds no run.
    """
    import jinja2

    run_dir = Path(run_dir)
    file = run_dir / "run.json"
    if not file.is_file():
        raise WorkbenchError("there is no run here", where=str(run_dir), expected="a folder that holds run.json")
    record = json.loads(file.read_text(encoding="utf-8"))
    for number, entry in enumerate(record["notebooks"], 1):
        entry.update(anchor=f"notebook-{number}", pictures=_pictures(run_dir / "notebooks" / entry["path"]))
        entry["sections"] = _sections(entry["cells"])
        entry.update(said=STATUS[entry["status"]], title=plain(entry["title"]), promise=plain(entry["promise"]))
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters.update(duration=duration, when=_when)
    html = environment.get_template("report.html.j2").render(
        run=record, folder=run_dir.name, status=STATUS[record["status"]], again=_again(record),
        resume=_again(record, "--resume"), checks=[c for e in record["notebooks"] for c in e["checks"]])
    target = run_dir / "report.html"
    target.write_text(html, encoding="utf-8")
    return target


def newest(folder: Path) -> Path:
    """Return the newest run's folder in `folder`. Raises WorkbenchError when there is none."""
    runs = sorted(folder.glob("*/run.json"), key=lambda f: f.stat().st_mtime_ns)
    if not runs:
        raise WorkbenchError("there is no run yet", where=str(folder), next_step="workbench run")
    return runs[-1].parent


def heading(markdown: str) -> str:
    """Return the text of the last heading of a markdown cell, or the empty text."""
    found = re.findall(r"^#{1,3} +(.+?)\s*#*$", re.sub(r"```.*?```", "", markdown, flags=re.S), re.M)
    return plain(found[-1]) if found else ""


def duration(seconds: Any) -> str:
    """Seconds as a person says them: 0.4 s, 12 s, 3 min 05 s."""
    seconds = float(seconds or 0)
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


def plain(markdown: str) -> str:
    """A line of Markdown as plain text."""
    return re.sub(r"[`*]|(?<!\w)_|_(?!\w)", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", markdown))


def _pictures(path: Path) -> List[dict]:
    """The pictures of an executed notebook (none if it was not run): each with the heading that it stands under and,
    for who does not see it, its own title, which `draw.Picture` puts beside it as text."""
    found, section = [], ""
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if path.is_file() else []:
        if cell["cell_type"] == "markdown":
            section = heading("".join(cell["source"])) or section
        for data in (output["data"] for output in cell.get("outputs", []) if "image/png" in output.get("data", {})):
            title = "".join(data.get("text/plain", ""))
            found.append({"src": "data:image/png;base64," + "".join("".join(data["image/png"]).split()),
                          "caption": section, "title": section if title.startswith("<") else title or section})
    return found


def _sections(cells: List[dict]) -> List[dict]:
    """Durations by section, in order."""
    found: Dict[str, float] = {}
    for cell in cells:
        found[cell["section"]] = found.get(cell["section"], 0) + cell["seconds"]
    return [{"name": name or "(before the first heading)", "seconds": s} for name, s in found.items()]


def _when(text: Any) -> str:
    return dt.datetime.fromisoformat(text).strftime("%-d %B %Y, %H:%M") if text else ""


def _again(record: dict, *more: str) -> str:
    """The command that repeats the run."""
    given = (f"--param {shlex.quote(f'{k}={v}')}" for k, v in record["parameters"].items())
    return f'make run ARGS="{" ".join([*record["targets"], "--world", record["world"], *given, *more])}"'
