"""`workbench runs`: the runs so far.

Modules that are slow to import are imported when their command runs.
"""

import datetime as dt
import re
from itertools import islice
from pathlib import Path
from typing import Iterator, Optional

import typer

from ..base import WorkbenchError, paths
from ..base.terminal import echo
from ..run import history

app = typer.Typer()
UNITS = {"m": "minutes", "h": "hours", "d": "days"}
# {status of a run: color}; any other status is red
COLORS = {"passed": "green", "running": "yellow"}


@app.command()
def runs(
    world: str = typer.Option("", help="Only runs in this world."),
    notebook: str = typer.Option("", help="Only runs with this notebook."),
    limit: int = typer.Option(50, min=1, help="Maximum number of runs."),
    max_age: Optional[str] = typer.Option(
        None,
        help="Exit with 1 unless --notebook passed in a run that started within this time: 90m, 26h or 7d.",
    ),
) -> None:
    """Show the last runs, the newest first. A run whose process is gone is "lost"."""
    if max_age is not None:
        _require_recent_pass(max_age, world, notebook)
        return
    shown = 0
    for text, color in islice(_lines(world, notebook), limit):
        echo(text, color)
        shown += 1
    if not shown:
        echo("there are no such runs")


def _lines(world: str, notebook: str) -> Iterator[tuple[str, str]]:
    """Yield the line of each run, with its color; a damaged record has a line in every listing."""
    for folder in history.folders():
        try:
            record = history.read(folder)
        except WorkbenchError as e:
            yield f"{folder.name}  {e.message}", "red"
            continue
        if world not in ("", record.world):
            continue
        text, status = str(record), record.status
        if notebook:
            entry = history.find_notebook(record, notebook)
            if not entry:
                continue
            if entry.status != "running":  # a lost run has a notebook that still says so
                status = entry.status
            text = f"{status}: {entry.path}, in {entry.seconds:.0f} s"
        report = paths.display_path(Path(record.report))
        yield f"{folder.name}  {text}  {report}", COLORS.get(status, "red")


def _require_recent_pass(max_age: str, world: str, notebook: str) -> None:
    """Exit with 1 unless a notebook passed in a run that started within a time.

    Raises:
        typer.BadParameter: the time is none, or the notebook is missing.
    """
    match = re.fullmatch(r"(\d{1,5})([mhd])", max_age)
    if not match:
        raise typer.BadParameter(f"{max_age!r} is not like 90m, 26h or 7d", param_hint="--max-age")
    if not notebook:
        raise typer.BadParameter("needs --notebook", param_hint="--max-age")
    age = dt.timedelta(**{UNITS[match[2]]: int(match[1])})
    if history.passed_since(dt.datetime.now().astimezone() - age, world, notebook):
        echo(f"{notebook} passed within {max_age}")
        return
    raise WorkbenchError(
        f"{notebook} passed in no run of the last {max_age}",
        expected="a run that passed",
        hint=f"workbench runs --notebook {notebook} shows what ran",
    )
