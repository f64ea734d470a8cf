"""`workbench runs`: the runs so far, and what changed between two.

Modules that are slow to import are imported when their command runs.
"""

import datetime as dt
import json
import re
from itertools import islice
from pathlib import Path
from typing import Any, Iterable, Iterator, Optional, Union

import typer

from ..base import WorkbenchError, paths
from ..base.terminal import echo
from ..run import comparison, history
from ..run.run_record import RunRecord

app = typer.Typer()
JSON = typer.Option(False, "--json", help="Print JSON instead of lines.")
UNITS = {"m": "minutes", "h": "hours", "d": "days"}
SHOWN = ("status", "world", "started", "seconds", "parameters", "commit")  # by --json, of a run
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
    found = [*islice(_records(world, notebook), limit)]
    if as_json:
        _print_json({"run": folder.name, **_values(record)} for folder, record in found)
        return
    for folder, record in found:
        text, status = _line(record, notebook)
        echo(f"{folder.name}  {text}", COLORS.get(status, "red"))
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
    later = history.named(after) if after else history.last()
    earlier = [*islice(history.before(later), USUAL_RUNS)]
    if before:
        first = history.named(before)
    elif earlier:
        first = earlier[0]
    else:
        raise WorkbenchError(
            "there is no earlier run with the same world, targets and parameters",
            location=str(later.folder),
            hint="workbench runs diff BEFORE AFTER compares any two runs",
        )
    changes = comparison.compare(first, later, earlier)
    if as_json:
        _print_json(change._asdict() for change in changes)
    else:
        echo(f"{first.folder.name} → {later.folder.name}")
        for change in changes:
            echo(str(change), "red" if change.is_alarm else "")
    raise typer.Exit(int(any(change.is_alarm for change in changes)))


def _records(world: str, notebook: str) -> Iterator[tuple[Path, Union[RunRecord, WorkbenchError]]]:
    """Yield the folder and the record of each run; a damaged record is an error, in every listing."""
    for folder in history.folders():
        try:
            record = history.read(folder)
        except WorkbenchError as e:
            yield folder, e
            continue
        is_wanted = not notebook or history.find_notebook(record, notebook)
        if world in ("", record.world) and is_wanted:
            yield folder, record


def _line(record: Union[RunRecord, WorkbenchError], notebook: str) -> tuple[str, str]:
    """Return the text of a run, or of its notebook, and the status that decides its color."""
    if isinstance(record, WorkbenchError):
        return record.message, ""
    text, status = str(record), record.status
    entry = history.find_notebook(record, notebook) if notebook else None
    if entry:
        if entry.status != "running":  # a lost run has a notebook that still says so
            status = entry.status
        text = f"{status}: {entry.path}, in {entry.seconds:.0f} s"
    return f"{text}  {paths.display_path(Path(record.report))}", status


def _values(record: Union[RunRecord, WorkbenchError]) -> dict[str, Any]:
    """Return what --json shows of a run."""
    if isinstance(record, WorkbenchError):
        return {"status": "damaged", "error": record.message}
    shown = record.model_dump(mode="json", include={*SHOWN})
    return {**shown, "notebooks": {entry.path: entry.status for entry in record.notebooks}}


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
