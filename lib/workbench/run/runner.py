"""The runner: executes notebooks in order, headless, and records what happened in
runs/<time>-<world>/.

    runs/20261121-093000-local/
        notebooks/10_outbox/11_source_database.ipynb    executed copies
        run.json                                        status, durations, checks, versions (see
        run_record) report.html                                     see run_record

A track is a folder of notebooks; a failed notebook stops the rest of its track and no other.
Everything is looked at before the first notebook starts: world, targets, parameters cells. Whatever
is written goes through run_record.mask_secrets.
"""

import contextlib
import re
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Callable, Optional, Sequence

import nbformat

from ..base import aws, errors, params, terminal, wait
from ..results.check import MIME
from ..stack import process
from . import emr_notebook, execute, notebooks, run_record


@dataclass(frozen=True)
class RunResult:
    """What came out: status is passed, failed or stopped; notebooks are the entries of run.json."""

    folder: Path
    report: Path
    status: str
    seconds: float
    notebooks: Sequence[dict]

    @property
    def exit_code(self) -> int:
        return {"passed": 0, "stopped": 130}.get(self.status, 1)

    def __str__(self) -> str:
        failed = [e["path"] for e in self.notebooks if e["status"] == "failed"]
        passed = sum(e["status"] == "passed" for e in self.notebooks)
        checks = [c["ok"] for e in self.notebooks for c in e["checks"]]
        return (
            f"{self.status}: {passed} of {len(self.notebooks)} notebooks, "
            f"{checks.count(True)} of {len(checks)} checks in {self.seconds:.0f} s"
            + (f"; {checks.count(None)} shown: own data differ" if None in checks else "")
            + (f"; failed: {', '.join(failed)}" if failed else "")
        )


def run(
    targets: Sequence[str] = (),
    world: str = "local",
    parameters: Optional[dict[str, Any]] = None,
    *,
    resume: bool = False,
    timeout: float = 600,
    progress: bool = True,
    executor: str = "here",
) -> RunResult:
    """Run notebooks and write the report. Ctrl-C or TERM ends the kernel and leaves the rest out.

    Args:
        targets: tracks (`10_outbox`), notebooks by name (`11_source_database`) or by path; none
            means all.
        parameters: go to those selected notebooks that declare them; text is converted to the type
            declared, and a relative folder (`…_dir`) is taken from the current one.
        resume: go on with the newest run of the same world and notebooks that did not pass, at the
            first notebook that did not; where there is no such run, say so and run everything.
        timeout: seconds for one notebook.
        on: where notebooks are executed: "here", or "emr-notebook", on the cluster of the world's
            deployment.

    Raises:
        ParamsError: unknown world, target or parameter; a notebook without a parameters cell that
            holds only literals.
        WorkbenchError: another run of this instance is going on, or there is no room for one.
    """
    params.require_choice("on", executor, "here", "emr-notebook")
    books = {p: nbformat.read(p, as_version=4) for p in notebooks.find(targets)}
    loaded = params.load(world)
    for name in (
        emr_notebook.REQUIRED_PARAMETERS if executor != "here" else ()
    ):  # before anything is begun
        aws.parameter(loaded.region, loaded.stack.deployment, name)
    given = notebooks.convert_parameters(books, dict(parameters or {}))
    if process.disk_full_message():
        raise errors.WorkbenchError(
            f"nothing is run: {process.disk_full_message()}",
            hint="make room: `make clean` removes service data, lake and runs",
        )
    lines, lock = ProgressReporter(progress), run_record.lock_file()
    going_on = wait.file_lock(
        lock,
        lambda pid: errors.WorkbenchError(
            "another run is going on",
            location=f"process {pid} holds {lock}",
            hint=f"wait until it is done, or stop it: kill {pid}",
        ),
    )
    with going_on, wait.stop_on_signal(raise_interrupt=True), contextlib.ExitStack() as after:
        earlier = run_record.find_resumable(books, world, given, lines.echo) if resume else None
        folder, record = earlier or run_record.create(books, loaded, list(targets), given)
        executed = (
            partial(execute.execute_notebook, timeout=timeout, on_cell=lines.cell)
            if executor == "here"
            else partial(emr_notebook.execute_notebook, loaded, timeout=timeout)
        )
        if executor == "here" and loaded.spark.kind == "emr_serverless":
            from ..spark import emr

            executed = partial(_retry_on_lost_session, executed, lines)
            after.callback(
                emr.terminate_sessions, loaded
            )  # it costs something; the kernels that share it are killed: none ends it
        _run_all(folder, record, books, given, lines, executed)
        return RunResult(
            folder,
            run_record.write_report(folder),
            record["status"],
            record["seconds"],
            record["notebooks"],
        )


def _retry_on_lost_session(
    executed: Callable[..., execute.ExecutionResult],
    lines: "ProgressReporter",
    path: Path,
    values: dict,
) -> execute.ExecutionResult:
    """Execute a notebook, and once more where its session of Spark was lost, to idleness or a lack
    of capacity say: a notebook makes what it needs anew.
    """
    done = executed(path, values)
    if "Spark was restarted or is gone" in ((_summarize(done)["error"] or {}).get("message") or ""):
        lines.echo("    Spark's session was lost: the notebook is run once more")
        return executed(path, values)
    return done


def _run_all(
    folder: Path,
    record: dict,
    books: dict,
    given: dict,
    lines: "ProgressReporter",
    executed: Callable[..., execute.ExecutionResult],
) -> None:
    began = time.monotonic() - record["seconds"]
    entries, broken = record["notebooks"], set()
    record["status"] = "running"
    for entry in entries:
        if entry["status"] != "passed":
            entry.update(status="pending", why="")
    try:
        for entry, (path, book) in zip(entries, books.items()):
            track = entry["path"].split("/")[0]
            if entry["status"] == "pending" and track in broken:
                entry.update(status="skipped", why="a notebook before it in the track failed")
            if entry["status"] != "pending":
                continue
            entry["status"] = "running"
            record["seconds"] = round(time.monotonic() - began, 2)
            run_record.save(folder, record)
            own = {
                k: v
                for k, v in given.items()
                if k in notebooks.declared_parameters(book, entry["path"])
            }
            _run_one(entry, path, folder, {"world": record["world"], **own}, lines, executed)
            if entry["status"] == "stopped":
                raise KeyboardInterrupt
            if entry["status"] == "failed":
                broken.add(track)
        record["status"] = "passed" if all(e["status"] == "passed" for e in entries) else "failed"
    except KeyboardInterrupt:  # in a notebook, or between two: what was going on is not finished
        record["status"] = "stopped"
        for entry in entries:
            if entry["status"] in ("pending", "running"):
                entry.update(
                    status={"pending": "skipped", "running": "stopped"}[entry["status"]],
                    why="stopped",
                )
    record.update(
        seconds=round(time.monotonic() - began, 2),
        cell_seconds=round(sum(e["cell_seconds"] for e in entries), 2),
    )
    run_record.save(folder, record)


def _run_one(
    entry: dict,
    path: Path,
    folder: Path,
    values: dict,
    lines: "ProgressReporter",
    executed: Callable[..., execute.ExecutionResult],
) -> None:
    """Execute one notebook and put what came out into its entry; the copy is written masked."""
    lines.start(entry["path"])
    began = time.monotonic()
    done = executed(path, values)
    entry.update(_summarize(done), seconds=round(time.monotonic() - began, 2))
    if (
        entry["error"] and process.disk_full_message()
    ):  # who waits for a service in vain gets a time-out to read
        entry["error"]["message"] += (
            f"\n{process.disk_full_message()}: make room, then `workbench up`, then run again"
        )
    target = folder / "notebooks" / entry["path"]
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(
        nbformat.writes(nbformat.from_dict(run_record.mask_secrets(done.notebook))),
        encoding="utf-8",
    )
    lines.end(entry)


def _summarize(done: execute.ExecutionResult) -> dict:
    """Status, cells, checks and error of an executed notebook."""
    cells, checks, red, sections = [], [], [], notebooks.sections(done.notebook.cells)
    places = [
        {"cell": i, "section": section, "source": cell.source}
        for i, (cell, section) in enumerate(zip(done.notebook.cells, sections))
    ]
    # where no cell was started, the kernel did not come up
    at = places[done.last_cell] if done.last_cell >= 0 else {"cell": None}
    errors = [{**at, "name": "", "message": done.reason}] if done.reason else []
    for cell, place in zip(done.notebook.cells, places):
        if cell.cell_type != "code":
            continue
        seconds = cell.metadata.get("papermill", {}).get("duration") or 0
        cells.append({"section": place["section"], "seconds": round(seconds, 3)})
        for output in cell.get("outputs", []):
            if MIME in output.get("data", {}):
                check = output["data"][MIME]
                checks.append({"cell": place["cell"], "section": place["section"], **check})
                if check["ok"] is False:  # one that was caught is still red
                    red.append(
                        {
                            **place,
                            "name": "CheckFailed",
                            "message": f"check failed: {check['what']}",
                            "traceback": check["detail"],
                        }
                    )
            if output.output_type == "error" and not (
                output.ename == "SystemExit" and output.evalue in "0"
            ):
                traceback = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(output.traceback))
                errors.append(
                    {
                        **place,
                        "name": output.ename,
                        "message": output.evalue,
                        "traceback": traceback,
                    }
                )
    error = next(iter(errors + red), None)
    status = "stopped" if done.interrupted else "failed" if error else "passed"
    return {
        "status": status,
        "cells": cells,
        "checks": checks,
        "error": error,
        "cell_seconds": round(sum(c["seconds"] for c in cells), 3),
    }


class ProgressReporter:
    """What a run says, line by line; nothing where it is not wanted."""

    def __init__(self, wanted: bool) -> None:
        self.echo = terminal.echo if wanted else lambda text: None

    def start(self, name: str) -> None:
        self.section = ""
        self.echo(f"▶ {name}")

    def cell(self, at: int, cells: list) -> None:
        section = notebooks.sections(cells)[at]
        if section != self.section:
            self.echo(f"    cell {at + 1} of {len(cells)}: {section}")
        self.section = section

    def end(self, entry: dict) -> None:
        sign = {"passed": "✔"}.get(entry["status"], "✘")
        green, differ = (sum(c["ok"] is state for c in entry["checks"]) for state in (True, None))
        self.echo(
            f"{sign} {entry['path']}  {entry['seconds']:.1f} s, {green} of {len(entry['checks'])} checks passed"
            + f", {differ} shown: own data differ" * bool(differ)
        )
        if entry["error"]:
            self.echo(
                run_record.mask_secrets(f"    {entry['error']['name']} {entry['error']['message']}")
            )
