"""Run notebooks headless, in order, and record the results in runs/<time>-<world>/.

    runs/20261121-093000-local/
        notebooks/10_outbox/11_source_database.ipynb    executed copy
        notebooks/10_outbox/11_source_database.html     executed copy as a page
        run.json                                        status, durations, checks, versions
        report.html                                     see run_record

A track is a folder of notebooks. After a failed notebook, the rest of its track is skipped; other
tracks run.
World, targets and parameters cells are validated before the first notebook starts. All output
passes through run_record.mask_secrets.
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
from ..checks.check import MIME
from ..stack import process
from . import emr_notebook, execute, export, notebooks, run_record

Execute = Callable[[Path, dict[str, Any]], execute.ExecutionResult]


@dataclass(frozen=True)
class RunResult:
    """The result of a run.

    Attributes:
        folder: folder of the run.
        report: path of report.html.
        status: passed, failed or stopped.
        seconds: duration of the run.
        notebooks: the entries of run.json.
    """

    folder: Path
    report: Path
    status: str
    seconds: float
    notebooks: Sequence[run_record.NotebookEntry]

    @property
    def exit_code(self) -> int:
        """Exit code of the command: 0 passed, 130 stopped, 1 failed."""
        return {"passed": 0, "stopped": 130}.get(self.status, 1)

    def __str__(self) -> str:
        """Return the result in one line."""
        statuses = [entry["status"] for entry in self.notebooks]
        failed = [entry["path"] for entry in self.notebooks if entry["status"] == "failed"]
        checks = [check["ok"] for entry in self.notebooks for check in entry["checks"]]
        text = (
            f"{self.status}: {statuses.count('passed')} of {len(statuses)} notebooks, "
            f"{checks.count(True)} of {len(checks)} checks in {self.seconds:.0f} s"
        )
        if None in checks:
            text += f"; {checks.count(None)} shown: own data differ"
        if failed:
            text += f"; failed: {', '.join(failed)}"
        return text


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
    """Run notebooks, and write the report. Ctrl-C or SIGTERM ends the kernel, and skips the rest.

    Args:
        targets: tracks (`10_outbox`), notebooks by name (`11_source_database`) or by path; none
            selects all.
        world: name of the world.
        parameters: {name: value} for the notebooks that declare them; a text is converted to the
            declared type, and a relative folder (`…_dir`) is relative to the current one.
        resume: continue the newest run of the same world and notebooks that did not pass, at the
            first notebook that did not pass. Without such a run, all notebooks run.
        timeout: seconds for one notebook.
        progress: print a line for each notebook and section.
        executor: "here", or "emr-notebook", on the cluster of the world's deployment.

    Raises:
        ParamsError: an unknown world, target or parameter; a notebook without a parameters cell
            that holds only literals.
        WorkbenchError: another run of this instance is active, or the disk is full.
    """
    params.require_choice("executor", executor, "here", "emr-notebook")
    books = {path: notebooks.read(path) for path in notebooks.find(targets)}
    loaded = params.load(world)
    if executor == "emr-notebook":
        for name in emr_notebook.REQUIRED_PARAMETERS:  # raises StackError before the run starts
            aws.parameter(loaded.region, loaded.stack.deployment, name)
    converted = notebooks.convert_parameters(books, dict(parameters or {}))
    full_disk = process.disk_full_message()
    if full_disk:
        raise errors.WorkbenchError(
            f"nothing is run: {full_disk}",
            hint="free disk space: `make clean` removes service data, lake and runs",
        )
    reporter = ProgressReporter(progress)
    with _run_lock(), wait.stop_on_signal(raise_interrupt=True), contextlib.ExitStack() as at_end:
        params.activate(loaded)
        for secret in loaded.secrets:  # those of AWS, to mask them in what the kernels print
            with contextlib.suppress(errors.WorkbenchError):
                secret.reveal()
        resumed = None
        if resume:
            resumed = run_record.find_resumable(books, world, converted, reporter.echo)
        folder, record = resumed or run_record.create(books, loaded, list(targets), converted)
        execute_one: Execute
        if executor == "here":
            execute_one = partial(
                execute.execute_notebook, timeout=timeout, on_cell=reporter.start_cell
            )
        else:
            execute_one = partial(emr_notebook.execute_notebook, loaded, timeout=timeout)
        if executor == "here" and loaded.spark.kind == "emr_serverless":
            from ..spark import emr

            execute_one = partial(_retry_on_lost_session, execute_one, reporter)
            # Killed kernels leave their shared session running, which costs money
            at_end.callback(emr.terminate_sessions, loaded)
        _run_all(folder, record, books, converted, reporter, execute_one)
        report = run_record.write_report(folder)
    return RunResult(folder, report, record["status"], record["seconds"], record["notebooks"])


def _run_lock() -> contextlib.AbstractContextManager[str]:
    """Hold the lock of this instance's runs; raise WorkbenchError if another run holds it."""
    lock = run_record.lock_file()

    def on_locked(pid: str) -> errors.WorkbenchError:
        return errors.WorkbenchError(
            "another run is active",
            location=f"process {pid} holds {lock}",
            hint=f"wait until it is done, or stop it: kill {pid}",
        )

    return wait.file_lock(lock, on_locked)


def _retry_on_lost_session(
    execute_one: Execute, reporter: "ProgressReporter", path: Path, values: dict[str, Any]
) -> execute.ExecutionResult:
    """Execute a notebook, and once more if its Spark session was lost, such as by an idle timeout.

    A notebook can be run again, because its first cells create what it needs.
    """
    result = execute_one(path, values)
    failures = _failures(result)
    if failures and "Spark was restarted or is gone" in (failures[0]["message"] or ""):
        reporter.echo("    the Spark session was lost: running the notebook once more")
        return execute_one(path, values)
    return result


def _run_all(
    folder: Path,
    record: run_record.RunRecord,
    books: dict[Path, Any],
    parameters: dict[str, Any],
    reporter: "ProgressReporter",
    execute_one: Execute,
) -> None:
    """Run the notebooks that have not passed yet, and update run.json after each."""
    start = time.monotonic() - record["seconds"]
    entries = record["notebooks"]
    record["status"] = "running"
    for entry in entries:
        if entry["status"] != "passed":
            _set_status(entry, "pending")
    failed_tracks = set()
    try:
        for entry, (path, book) in zip(entries, books.items()):
            track = entry["path"].split("/")[0]
            if entry["status"] == "passed":
                continue
            if track in failed_tracks:
                _set_status(entry, "skipped", "a notebook before it in the track failed")
                continue
            entry["status"] = "running"
            record["seconds"] = round(time.monotonic() - start, 2)
            run_record.save(folder, record)
            declared = notebooks.declared_parameters(book, entry["path"])
            values = {k: v for k, v in parameters.items() if k in declared}
            values["world"] = record["world"]
            _run_one(entry, path, folder, values, reporter, execute_one)
            if entry["status"] == "stopped":
                raise KeyboardInterrupt
            if entry["status"] == "failed":
                failed_tracks.add(track)
        record["status"] = "failed" if failed_tracks else "passed"
    except KeyboardInterrupt:  # in a notebook, or between two notebooks
        _mark_stopped(record)
    record["seconds"] = round(time.monotonic() - start, 2)
    record["cell_seconds"] = round(sum(entry["cell_seconds"] for entry in entries), 2)
    run_record.save(folder, record)


def _set_status(entry: run_record.NotebookEntry, status: str, reason: str = "") -> None:
    entry["status"], entry["why"] = status, reason


def _mark_stopped(record: run_record.RunRecord) -> None:
    record["status"] = "stopped"
    for entry in record["notebooks"]:
        if entry["status"] == "pending":
            _set_status(entry, "skipped", "stopped")
        if entry["status"] == "running":
            _set_status(entry, "stopped", "stopped")


def _run_one(
    entry: run_record.NotebookEntry,
    path: Path,
    folder: Path,
    values: dict[str, Any],
    reporter: "ProgressReporter",
    execute_one: Execute,
) -> None:
    """Execute one notebook, complete its entry, and write its copy with masked secrets."""
    reporter.start_notebook(entry["path"])
    start = time.monotonic()
    result = execute_one(path, values)
    _complete_entry(entry, result, time.monotonic() - start)
    full_disk = process.disk_full_message()
    if entry["error"] and full_disk:  # the error itself may be just a timeout
        entry["error"]["message"] += (
            f"\n{full_disk}: free disk space, then `workbench up`, then run again"
        )
    target = folder / "notebooks" / entry["path"]
    target.parent.mkdir(parents=True, exist_ok=True)
    masked = nbformat.from_dict(run_record.mask_secrets(result.notebook))
    target.write_text(nbformat.writes(masked), encoding="utf-8")
    try:
        target.with_suffix(".html").write_text(export.to_html(masked), encoding="utf-8")
    except ModuleNotFoundError:  # nbconvert comes with JupyterLab
        pass
    except Exception as e:  # noqa: BLE001 - a failed export does not end the run
        reporter.echo(run_record.mask_secrets(f"    no HTML page: {errors.first_line(e)}"))
    reporter.end_notebook(entry)


def _complete_entry(
    entry: run_record.NotebookEntry, result: execute.ExecutionResult, seconds: float
) -> None:
    """Set the results of an executed notebook in its entry."""
    failures = _failures(result)
    entry["status"] = "failed" if failures else "passed"
    if result.interrupted:
        entry["status"] = "stopped"
    entry["error"] = failures[0] if failures else None
    entry["cells"], entry["checks"] = [], []
    for index, (cell, section) in enumerate(_cells_with_sections(result.notebook)):
        if cell.cell_type == "code":
            duration = cell.metadata.get("papermill", {}).get("duration") or 0
            entry["cells"].append({"section": section, "seconds": round(duration, 3)})
        entry["checks"] += [{"cell": index, "section": section, **c} for c in _checks(cell)]
    entry["seconds"] = round(seconds, 2)
    entry["cell_seconds"] = round(sum(cell["seconds"] for cell in entry["cells"]), 3)


def _failures(result: execute.ExecutionResult) -> list[dict[str, Any]]:
    """Return why a notebook failed: an early end, errors of cells, then failed checks.

    A failed check that the notebook caught is a failure, too.
    """
    failures: list[dict[str, Any]] = []
    failed_checks: list[dict[str, Any]] = []
    ended_early = {"cell": None, "name": "", "message": result.reason}  # the kernel did not start
    for index, (cell, section) in enumerate(_cells_with_sections(result.notebook)):
        location = {"cell": index, "section": section, "source": cell.source}
        if index == result.last_cell:
            ended_early.update(location)
        may_fail = "raises-exception" in cell.metadata.get("tags", [])  # Jupyter's tag
        for output in cell.get("outputs", []):
            if output.output_type == "error" and not (may_fail or _is_normal_exit(output)):
                text = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(output.traceback))
                error = {"name": output.ename, "message": output.evalue, "traceback": text}
                failures.append({**location, **error})
        for check in _checks(cell):
            if check["ok"] is False:
                message = f"check failed: {check['what']}"
                error = {"name": "CheckFailed", "message": message, "traceback": check["detail"]}
                failed_checks.append({**location, **error})
    return [*([ended_early] if result.reason else []), *failures, *failed_checks]


def _cells_with_sections(notebook: Any) -> list[tuple[Any, str]]:
    return list(zip(notebook.cells, notebooks.sections(notebook.cells)))


def _checks(cell: Any) -> list[dict[str, Any]]:
    return [o["data"][MIME] for o in cell.get("outputs", []) if MIME in o.get("data", {})]


def _is_normal_exit(output: Any) -> bool:
    return output.ename == "SystemExit" and output.evalue in ("", "0")


class ProgressReporter:
    """Prints the progress of a run line by line, or nothing.

    Args:
        enabled: whether to print the lines.
    """

    def __init__(self, enabled: bool) -> None:
        """Create the reporter."""
        self.enabled = enabled
        self.section = ""

    def echo(self, text: str) -> None:
        """Print a line."""
        if self.enabled:
            terminal.echo(text)

    def start_notebook(self, name: str) -> None:
        """Report that a notebook starts."""
        self.section = ""
        self.echo(f"▶ {name}")

    def start_cell(self, index: int, cells: list[Any]) -> None:
        """Report that the first cell of a section starts."""
        section = notebooks.sections(cells)[index]
        if section != self.section:
            self.echo(f"    cell {index + 1} of {len(cells)}: {section}")
        self.section = section

    def end_notebook(self, entry: run_record.NotebookEntry) -> None:
        """Report the result of a notebook."""
        mark = "✔" if entry["status"] == "passed" else "✘"
        states = [check["ok"] for check in entry["checks"]]
        line = (
            f"{mark} {entry['path']}  {entry['seconds']:.1f} s, "
            f"{states.count(True)} of {len(states)} checks passed"
        )
        if None in states:
            line += f", {states.count(None)} shown: own data differ"
        self.echo(line)
        error = entry["error"]
        if error:
            self.echo(run_record.mask_secrets(f"    {error['name']} {error['message']}"))
