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
import os
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Callable, Optional, Sequence

import nbformat

from ..base import errors, params, terminal, wait
from ..spark import emr
from ..stack import process
from . import emr_notebook, export, notebooks, run_record
from .execute import ExecutionResult, checks, execute_notebook
from .kernels import Kernels
from .run_record import NotebookEntry, RunRecord, count_checks

Execute = Callable[[Path, dict[str, Any]], ExecutionResult]
Echo = Callable[[str], None]


def run(
    targets: Sequence[str] = (),
    world: str = "local",
    parameters: Optional[dict[str, Any]] = None,
    *,
    resume: bool = False,
    timeout: float = 600,
    progress: bool = True,
    executor: str = "here",
) -> RunRecord:
    """Run notebooks, and write the report. Ctrl-C or SIGTERM ends the kernel, and skips the rest.

    Args:
        targets: tracks (`10_outbox`), notebooks by name (`11_source_database`) or by path; none
            selects all.
        world: name of the world.
        parameters: {name: value} for the notebooks that declare them; a text is converted to the
            declared type, and a relative folder (`…_dir`) is relative to the current one.
        resume: continue the last run of the same world and notebooks if it did not pass, at the
            first notebook that did not pass. Otherwise all notebooks run.
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
        emr_notebook.find_cluster(loaded)  # raises StackError before the run starts
    converted = notebooks.convert_parameters(books, parameters or {})
    full_disk = process.disk_full_message()
    if full_disk:
        raise errors.WorkbenchError(
            f"nothing is run: {full_disk}",
            hint="free disk space: `make clean` removes service data, lake and runs",
        )

    def echo(text: str) -> None:
        if progress:
            terminal.echo(run_record.mask_secrets(text).rstrip())

    params.activate(loaded)
    with _run_lock(), wait.stop_on_signal(raise_interrupt=True):
        for secret in loaded.secrets:  # those of AWS, to mask them in what the kernels print
            with contextlib.suppress(errors.WorkbenchError):
                secret.reveal()
        resumed = run_record.find_resumable(books, world, converted) if resume else None
        if resume and not resumed:
            echo(
                f"no run to resume in world {world}: the last one of these notebooks passed, had "
                "other parameters, or does not exist. Running all"
            )
        record = resumed or run_record.create(books, loaded, list(targets), converted)
        prepared = Kernels(list(books))
        execute = _execution(loaded, executor, timeout, echo, prepared)
        try:
            with ThreadPoolExecutor(1) as pages:
                _run_all(record, books, execute, echo, pages)
        finally:
            try:
                prepared.close()
            finally:
                if executor == "here" and loaded.spark.kind == "emr_serverless":
                    # Killed kernels leave their shared session running, which costs money
                    emr.terminate_sessions(loaded)
        run_record.write_report(record.folder)
    return record


def _execution(
    world: params.World, executor: str, timeout: float, echo: Echo, prepared: Kernels
) -> Execute:
    """Return the function that executes a notebook."""
    if executor == "emr-notebook":
        return partial(emr_notebook.execute_notebook, world, timeout=timeout)
    return partial(
        execute_notebook,
        timeout=timeout,
        on_cell=partial(_report_section, echo),
        # with WORKBENCH_LOG a kernel writes its log below the cell
        on_stderr=echo if os.environ.get("WORKBENCH_LOG") else str,
        start_kernel=prepared.take,
    )


def _run_lock() -> contextlib.AbstractContextManager[str]:
    """Hold the lock of this instance's runs; raise WorkbenchError if another run holds it."""
    lock = run_record.lock_file()
    return wait.file_lock(
        lock,
        lambda pid: errors.WorkbenchError(
            "another run is active",
            location=f"process {pid} holds {lock}",
            hint=f"wait until it is done, or stop it: kill {pid}",
        ),
    )


def _run_all(
    record: RunRecord,
    books: dict[Path, Any],
    execute: Execute,
    echo: Echo,
    pages: ThreadPoolExecutor,
) -> None:
    """Run the notebooks that have not passed yet, and update run.json before each and at the end."""
    start = time.monotonic() - record.seconds
    entries = record.notebooks
    failed_tracks = set()
    record.status, record.pid = "running", str(os.getpid())
    try:
        for entry, (path, book) in zip(entries, books.items()):
            track = entry.path.split("/")[0]
            if entry.status == "passed":
                continue
            if track in failed_tracks:
                entry.status = "skipped"
                entry.why = "a notebook before it in the track failed"
                continue
            entry.status, entry.why = "running", ""
            record.seconds = round(time.monotonic() - start, 2)
            record.save()
            declared = notebooks.declared_parameters(book, entry.path)
            values = {k: v for k, v in record.parameters.items() if k in declared}
            values["world"] = record.world
            executed = _run_one(entry, path, record.folder, values, execute, echo)
            page = (record.folder / "notebooks" / entry.path).with_suffix(".html")
            pages.submit(_write_page, executed, path.parent, page, echo)
            if entry.status == "stopped":
                raise KeyboardInterrupt
            if entry.status == "failed":
                failed_tracks.add(track)
        record.status = "failed" if failed_tracks else "passed"
    except KeyboardInterrupt:  # in a notebook, or between two notebooks
        record.status = "stopped"
        for entry in entries:
            if entry.status == "running":
                entry.status = "stopped"
            if entry.status == "pending":
                entry.status, entry.why = "skipped", "stopped"
    record.seconds = round(time.monotonic() - start, 2)
    record.cell_seconds = round(sum(entry.cell_seconds for entry in entries), 2)
    record.save()


def _run_one(
    entry: NotebookEntry,
    path: Path,
    folder: Path,
    values: dict[str, Any],
    execute: Execute,
    echo: Echo,
) -> Any:
    """Execute one notebook, complete its entry, and write and return its copy with masked secrets."""
    echo(f"▶ {entry.path}")
    start = time.monotonic()
    result = execute(path, values)
    _complete_entry(entry, result, time.monotonic() - start)
    target = folder / "notebooks" / entry.path
    target.parent.mkdir(parents=True, exist_ok=True)
    masked = nbformat.from_dict(run_record.mask_secrets(result.notebook))
    target.write_text(nbformat.writes(masked), encoding="utf-8")
    mark = "✔" if entry.status == "passed" else "✘"
    echo(f"{mark} {entry.path}  {entry.seconds:.1f} s, {count_checks([entry])}")
    if entry.error:
        echo(f"    {entry.error['name']} {entry.error['message']}")
    return masked


def _write_page(executed: Any, folder: Path, page: Path, echo: Echo) -> None:
    """Write an executed notebook as an HTML page, while the next notebook runs."""
    try:
        page.write_text(export.to_html(executed, folder), encoding="utf-8")
    except Exception as e:  # noqa: BLE001 - a failed export does not end the run
        echo(f"    no HTML page {page.name}: {errors.first_line(e)}")


def _complete_entry(entry: NotebookEntry, result: ExecutionResult, seconds: float) -> None:
    """Set the results of an executed notebook in its entry."""
    failure = entry.error = result.failure()
    entry.status = "failed" if failure else "passed"
    if result.interrupted:
        entry.status = "stopped"
    full_disk = process.disk_full_message()
    if failure and full_disk:  # the error itself may be just a timeout
        failure["message"] += f"\n{full_disk}: free disk space, then `workbench up`, then run again"
    entry.cells, entry.checks = [], []
    for location, cell in result.located_cells():
        if cell.cell_type == "code":
            duration = cell.metadata.get("papermill", {}).get("duration") or 0
            entry.cells.append({"section": location["section"], "seconds": round(duration, 3)})
        entry.checks += [{**location, **check} for check in checks(cell)]
    entry.seconds = round(seconds, 2)
    entry.cell_seconds = round(sum(cell["seconds"] for cell in entry.cells), 3)


def _report_section(echo: Echo, index: int, cells: list[Any]) -> None:
    """Report the first cell of a section."""
    sections = notebooks.sections(cells)
    if sections[index] not in ["", *sections[:index]]:
        echo(f"    cell {index + 1} of {len(cells)}: {sections[index]}")
