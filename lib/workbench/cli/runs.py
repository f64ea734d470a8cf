"""`workbench runs`: the runs so far, and what changed between two.

Modules that are slow to import are imported when their command runs.
"""

import datetime as dt
import json
import re
from itertools import islice
from pathlib import Path
from typing import Any, Iterable, Optional

import typer

from ..base import WorkbenchError, paths
from ..base.terminal import echo
from ..run import comparison, history
from ..run.run_record import RunRecord

app = typer.Typer()
JSON = typer.Option(False, "--json", help="Print JSON instead of lines.")
UNITS = {"m": "minutes", "h": "hours", "d": "days"}
USUAL_RUNS = 10  # that tell how long a notebook usually takes
# {status of a run: color}; any other status is red
COLORS = {"passed": "green", "running": "yellow"}


@app.callback(invoke_without_command=True)
def runs(
    context: typer.Context,
    world: str = typer.Option("", help="Only runs in this world."),
    notebook: str = typer.Option("", help="Only runs with this notebook."),
    limit: int = typer.Option(50, min=1, help="Maximum number of runs."),
    max_age: Optional[str] = typer.Option(
        None,
        help="Exit with 1 unless --notebook passed in a run that started within this time: 90m, 26h or 7d.",
    ),
    as_json: bool = JSON,
) -> None:
    """Show the last runs, the newest first. A run whose process is gone is "lost"."""
    if context.invoked_subcommand:
        return
    if max_age is not None:
        _require_recent_pass(max_age, world, notebook)
        return
    wanted = (record for record in history.records() if _is_wanted(record, world, notebook))
    found = [*islice(wanted, limit)]
    if as_json:
        _print_json(record.model_dump(mode="json", exclude={"world_values"}) for record in found)
        return
    for record in found:
        text, status = _line(record, notebook)
        echo(f"{record.folder.name}  {text}", COLORS.get(status, "red"))
    if not found:
        echo("there are no such runs")


@app.command()
def diff(
    before: Optional[str] = typer.Argument(None, help="Folder of the earlier run."),
    after: Optional[str] = typer.Argument(None, help="Folder of the later run."),
    as_json: bool = JSON,
) -> None:
    """Show what changed from one run to another: checks, figures, seconds, versions, parameters.

    By default the last run is compared with the one before it that has the same world, targets and
    parameters. The exit code is 1 if something became worse.
    """
    later = history.named(after) if after else _last()
    earlier = [*islice(history.before(later), USUAL_RUNS)]
    if not (before or earlier):
        raise WorkbenchError(
            "there is no earlier run with the same world, targets and parameters",
            location=str(later.folder),
            hint="workbench runs diff BEFORE AFTER compares any two runs",
        )
    first = history.named(before) if before else earlier[0]
    changes = comparison.compare(first, later, earlier)
    if as_json:
        _print_json(change._asdict() for change in changes)
    else:
        echo(f"{first.folder.name} → {later.folder.name}")
        for change in changes:
            echo(str(change), "red" if change.is_alarm else "")
    raise typer.Exit(int(any(change.is_alarm for change in changes)))


def _last() -> RunRecord:
    """Return the last run that has ended."""
    for record in history.records():
        if history.has_ended(record):
            return record
    raise WorkbenchError("no run has ended yet")


def _is_wanted(record: RunRecord, world: str, notebook: str) -> bool:
    """Return whether a run belongs to a listing; a damaged one belongs to each."""
    if record.status == history.DAMAGED:
        return True
    has_notebook = not notebook or history.find_notebook(record, notebook)
    return world in ("", record.world) and bool(has_notebook)


def _line(record: RunRecord, notebook: str) -> tuple[str, str]:
    """Return the text of a run, or of its notebook, and the status that decides its color."""
    if record.status == history.DAMAGED:
        return record.describe, record.status
    text, status = str(record), record.status
    entry = history.find_notebook(record, notebook) if notebook else None
    if entry:
        if entry.status != "running":  # a lost run has a notebook that still says so
            status = entry.status
        text = f"{status}: {entry.path}, in {entry.seconds:.0f} s"
    return f"{text}  {paths.display_path(Path(record.report))}", status


def _print_json(values: Iterable[dict[str, Any]]) -> None:
    typer.echo(json.dumps([*values], ensure_ascii=False, indent=1))


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
        f"{notebook} passed in no run of the last {max_age}"
        + (f" in world {world}" if world else ""),
        expected="a run that passed",
        hint=f"workbench runs --notebook {notebook} shows what ran",
    )
