"""The command line: `workbench <verb>`. Modules that take long to import are imported only when
their verb runs.
"""

import errno
import os
import shutil
import sys
import traceback
from pathlib import Path
from typing import Optional

import typer

from . import cli_aws, cli_dlq, cli_storefront, stack
from .base import WorkbenchError, did_you_mean, params, paths, pidfiles
from .base.errors import redact_credentials
from .base.terminal import echo as _say
from .base.terminal import escape_unprintable
from .run import export, run_record
from .stack import artifacts, process, services
from .stack import doctor as doctors

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Change data capture into a lakehouse, in notebooks. Start with: workbench demo",
)
app.add_typer(cli_aws.app, name="aws")
app.add_typer(cli_dlq.app, name="dlq")
app.add_typer(cli_storefront.app, name="storefront")
WORLD = typer.Option("local", help="Which params/<world>.yaml.")
FROM_DIR = typer.Option(
    None,
    "--from",
    help="Folder with the original data, instead of generated ones.",
    exists=True,
    file_okay=False,
    resolve_path=True,
)
YES = typer.Option(False, "--yes", "-y", help="Do not ask.")


def main(arguments: Optional[list[str]] = None) -> None:
    """Run the command line. Exit codes: 0 done, 1 failed (the message says what to do), 2 wrong
    usage, 130 stopped.
    """
    try:
        app(arguments)
    except Exception as e:  # noqa: BLE001 - no text of a service or of data reaches the terminal as it is
        _say(
            str(e if isinstance(e, WorkbenchError) else _to_user_error(e) or _unexpected_error(e)),
            "red",
            stderr=True,
        )
        sys.exit(1)


@app.command()
def install(world: str = WORLD) -> None:
    """Fetch the jars and binaries of a world, pinned and checksummed; what is there already is not
    fetched again.
    """
    count = artifacts.install(_say, *services.optional_artifacts(params.load(world)))
    _say(f"{count} files fetched" if count else "everything is there")


@app.command()
def demo(world: str = WORLD, source: Optional[Path] = FROM_DIR) -> None:
    """Look at the machine, install, start the stack, run the first walkthrough and write its
    report.
    """
    loaded = params.load(world)
    findings = [
        f for f in doctors.examine(loaded) if f.subject != "jars"
    ]  # bad ones are what install mends
    _print_findings([f for f in findings if f.level != "ok"])
    if loaded.stack.embedded:
        artifacts.install(_say, *services.optional_artifacts(loaded))
    _say("starting the stack …")
    stack.up(loaded, progress=_say)
    first = sorted(p.stem for p in (paths.ROOT / "notebooks").glob("[0-9]*"))[
        :2
    ]  # 00_start_here, and a walkthrough
    code = _run_notebooks(first, world, {"from_dir": str(source)} if source else {}, False, 600)
    _say("The stack still runs: `make lab` opens the notebooks, `make down` stops it.")
    raise typer.Exit(code)


@app.command()
def up(
    services: Optional[list[str]] = typer.Argument(
        None, help="Services; all of the world's by default."
    ),
    world: str = WORLD,
) -> None:
    """Start the services that are not running, and wait until they answer."""
    _print_status(stack.up(params.load(world), services or None, progress=_say))


@app.command()
def status(world: str = WORLD) -> None:
    """Show which services run, on which port, and with how much memory; and how much of its log
    PostgreSQL retains for each replication slot.
    """
    from .source import capture_health

    loaded = params.load(world)
    _print_status(stack.status(loaded))
    for line in capture_health.describe_slots(loaded):
        _say(line)
    if process.disk_full_message():
        _say(process.disk_full_message(), "red")


@app.command()
def run(
    targets: Optional[list[str]] = typer.Argument(
        None, help="Tracks or notebooks; all by default."
    ),
    world: str = WORLD,
    param: Optional[list[str]] = typer.Option(
        None, help="name=value, for the notebooks that declare it."
    ),
    resume: bool = typer.Option(False, help="Go on with the newest such run that did not pass."),
    timeout: float = typer.Option(600, min=1, help="Seconds for one notebook."),
    on: str = typer.Option(
        "here", help="Where: here, or emr-notebook, on the deployment's cluster."
    ),
    verbose: bool = typer.Option(
        False, "--verbose", "-v", help="Log a line for each batch that the notebooks process."
    ),
) -> None:
    """Run notebooks headless and write a report. Exits non-zero when anything failed. All are those
    of the world: the storefront's are of an embedded one.
    """
    if verbose:
        os.environ["WORKBENCH_LOG"] = "info"  # kernels and the processes that they start inherit it
    if not targets and not params.load(world).stack.embedded:
        from . import walkthroughs

        others = {flow.folder.name for flow in walkthroughs.ALL if flow.local_only}
        targets = sorted({path.stem for path in (paths.ROOT / "notebooks").glob("[0-9]*")} - others)
    raise typer.Exit(
        _run_notebooks(
            targets or [], world, cli_aws.parse_key_values(param, "--param"), resume, timeout, on
        )
    )


@app.command()
def lab(browser: bool = typer.Option(True, help="Open the browser.")) -> None:
    """Open JupyterLab at the first notebook; on this machine only, with a token."""
    os.environ.pop(
        "JUPYTER_TOKEN", None
    )  # Jupyter makes one and prints it: kernels inherit the environment
    os.execv(
        sys.executable,
        [
            sys.executable,
            "-m",
            "jupyterlab",
            "--ServerApp.ip=127.0.0.1",
            f"--ServerApp.root_dir={paths.ROOT}",
            "--LabApp.default_url=/lab/tree/notebooks/00_start_here.ipynb",
            # Exported pages fold the code of the same cells as JupyterLab; slides stay as they are
            f"--HTMLExporter.template_file={export.TEMPLATE}",
            "--SlidesExporter.template_file=index.html.j2",
            f"--ServerApp.open_browser={browser}",
            *(["--allow-root"] if os.geteuid() == 0 else []),
        ],
    )


@app.command()
def doctor(world: str = WORLD) -> None:
    """Look at the machine, and at what capture does to the source database; name every problem at
    once, with its fix.
    """
    from .source import capture_health

    loaded = params.load(world)
    _print_findings([*doctors.examine(loaded), *capture_health.examine(loaded)])


@app.command()
def down(yes: bool = YES) -> None:
    """Stop every service of this instance (see WORKBENCH_INSTANCE), and name the others that run in
    this checkout. Asks first where a run is going on.
    """
    _confirm_stopping_run(run_record.running_pids(), yes)
    if not stack.down(_say):
        _say("nothing was running")
    for other in sorted(pidfiles.running_instances() - {paths.instance_name()}):
        _say(f"services of instance {other} still run: WORKBENCH_INSTANCE={other} workbench down")


@app.command()
def clean(
    everything: bool = typer.Option(
        False, "--all", help="The downloaded jars and binaries as well."
    ),
    yes: bool = YES,
) -> None:
    """Remove service data, lake, logs, secrets and runs of this checkout. Asks first."""
    from rich.filesize import decimal as format_size

    running = stack.running()
    if running:
        raise WorkbenchError(
            f"{', '.join(running)} still run{'s' * (len(running) == 1)}", hint="workbench down"
        )
    others = pidfiles.running_instances() - {paths.instance_name()}
    if others:  # runs/ is everybody's, and with --all so is what they work in
        raise WorkbenchError(
            f"services of {', '.join(sorted(others))} still run in this checkout",
            hint="WORKBENCH_INSTANCE=<each of them> workbench down",
        )
    _confirm_stopping_run(run_record.running_pids(*paths.VAR_DIR.glob("*/run.lock")), yes)
    service_state = paths.VAR_DIR if everything else paths.state_dir()
    folders = [f for f in (service_state, *run_record.run_locations()) if f.is_dir()]
    for folder in folders:
        total = sum(
            p.stat().st_size for p in folder.rglob("*") if p.is_file() and not p.is_symlink()
        )
        _say(f"{folder}  {format_size(total)}")
    if not folders:
        _say("there is nothing to remove")
    elif not yes:
        typer.confirm("Remove this?", default=False, abort=True)
    for folder in folders:
        shutil.rmtree(folder)


@app.command()
def load(
    name: str = typer.Argument(..., help="Whose data."),
    world: str = WORLD,
    source: Optional[Path] = FROM_DIR,
    scale: Optional[float] = typer.Option(
        None, min=0.001, help="How much is generated, as the notebook says."
    ),
    yes: bool = YES,
) -> None:
    """Load the data of a walkthrough into the source database of a world, in one transaction."""
    from .walkthroughs import LOADERS

    if name not in LOADERS:
        raise WorkbenchError(
            f"there is no loader of {name!r}", expected=did_you_mean(name, LOADERS)
        )
    loaded = params.load(world)
    stack.ensure_running(loaded, "postgres")
    how = {} if scale is None else {"scale": int(scale) if scale.is_integer() else scale}
    if not LOADERS[name].load(
        loaded, from_dir=source, confirm=lambda question: yes or typer.confirm(question), **how
    ):
        _say("nothing was changed")
        raise typer.Exit(1)
    _say(f"{name} is loaded")


@app.command()
def ingest(
    name: str = typer.Argument(
        ..., help="A captured table, such as cdc_events, or a walkthrough: 10_outbox."
    ),
    world: str = WORLD,
    source: str = typer.Option(
        "", help="topic, or landed: its files. By default as last time, else topic."
    ),
    continuous: bool = typer.Option(
        False, "--continuous", help="Go on with what comes later, until Ctrl-C."
    ),
    on: str = typer.Option(
        "here", help="Where: here, or as a job of emr-serverless, or an emr-step."
    ),
    wait: bool = typer.Option(True, help="For the end of a job on EMR, and stop it on Ctrl-C."),
) -> None:
    """Bring the changes of captured tables from their topics into the lake. Asks the source
    nothing.
    """
    from . import walkthroughs
    from .run import emr_jobs
    from .walkthroughs import capture
    from .walkthroughs import ingest as here

    params.require_choice("--on", on, "here", *emr_jobs.EXECUTORS)
    if source:
        params.require_choice("--source", source, *capture.SOURCE_KINDS)
    walkthroughs.find_captured_table(name)  # a misspelt one is told before anything is started
    loaded = params.load(world)
    if on == "here":
        raise typer.Exit(here.ingest(loaded, name, source, continuous, _say))
    more = [*(["--source", source] if source else []), *(["--continuous"] if continuous else [])]
    raise typer.Exit(
        emr_jobs.run(
            loaded,
            on,
            ["ingest", name, "--world", world, *more],
            continuous=continuous,
            wait=wait,
            progress=_say,
        )
    )


@app.command()
def trace(
    table: str = typer.Argument(..., help="A captured table, such as artists."),
    key: str = typer.Argument(..., help="The row's key."),
    world: str = WORLD,
) -> None:
    """Follow one row: log position, topic, schema, landed file, Hudi commit and file, what each
    view shows.
    """
    from . import trace as traces
    from . import walkthroughs

    loaded = params.load(world)
    traces.show(traces.row(loaded, walkthroughs.traced_table(loaded, table), key))


def _unexpected_error(e: Exception) -> WorkbenchError:
    """Return the error shown for an exception that no code expected. Its text may come from a
    service or from data. The traceback is written to a file that only the user can read.
    """
    trace = "".join(traceback.format_exception(type(e), e, e.__traceback__))
    file = paths.state_dir() / "log" / "traceback.txt"
    try:
        paths.write_private_file(
            file, redact_credentials(trace).encode("utf-8", "backslashreplace")
        )
        where = f"traceback in {paths.display_path(file)}"
    except OSError as refused:
        where = f"traceback not written to {paths.display_path(file)}: {refused.strerror}"
    return WorkbenchError(
        f"{type(e).__name__}: {escape_unprintable(str(e))}",
        location=where,
        hint="this is unexpected: look at the traceback, and report it",
    )


def _to_user_error(e: Exception) -> Optional[WorkbenchError]:
    """What a person does about a full disk, or about files of somebody else's (after one `sudo
    make`); None of any other error.
    """
    if not isinstance(e, OSError):
        return None
    if e.errno in (errno.ENOSPC, errno.EDQUOT):
        return WorkbenchError(
            f"the disk is full: {e.strerror}",
            location=e.filename or f"var/ or runs/ of {paths.ROOT}",
            hint="make room (`make clean` removes service data, lake and runs), then again",
        )
    if e.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):
        return None
    return WorkbenchError(
        f"a file cannot be read or written: {e.strerror}",
        location=f"{e.filename or paths.VAR_DIR}",
        expected="var/ and runs/ to belong to who runs this",
        hint='sudo chown -R "$(id -un)" var runs',
    )


def _confirm_stopping_run(pids: list[str], yes: bool) -> None:
    """Stop here where a run is going on, unless a person says yes."""
    if pids and not yes:
        _say(
            f"a run is going on (process {', '.join(pids)}), and this ends it: wait until it is done, or say --yes",
            "yellow",
        )
        typer.confirm("End it?", default=False, abort=True)


def _run_notebooks(
    targets: list[str], world: str, values: dict, resume: bool, timeout: float, on: str = "here"
) -> int:
    from .run import runner

    result = runner.run(targets, world, values, resume=resume, timeout=timeout, executor=on)
    _say(str(result), "green" if result.status == "passed" else "red")
    print(f"report: {result.report}")
    return result.exit_code


def _print_status(rows: list) -> None:
    row = "{:<16}  {:<9}  {:>5}  {:>7}  {:>7}  {:>8}  {}".format
    _say(row("service", "state", "port", "pid", "since", "memory", "log"), "bold")
    for s in rows:
        colour = {"up": "", "starting": "yellow", "outdated": "yellow", "stopped": "dim"}.get(
            s.state, "red"
        )
        since = "" if s.seconds is None else f"{s.seconds:.0f} s"
        memory = "" if s.memory_mb is None else f"{s.memory_mb:,.0f} MB"
        _say(
            row(
                s.name,
                s.state,
                s.port or "",
                s.pid or "",
                since,
                memory,
                s.log and paths.display_path(Path(s.log)),
            ),
            colour,
        )
        if s.detail and s.state != "up":
            _say(f"    {s.detail}", colour)
    total = sum(s.memory_mb or 0 for s in rows)
    if total:
        _say(f"{total:,.0f} MB together")


def _print_findings(findings: list) -> None:
    """Show what the doctor found, and stop here where it is a problem."""
    marks = {"ok": ("✔", "green"), "warning": ("!", "yellow"), "problem": ("✘", "red")}
    for f in findings:
        mark, colour = marks[f.level]
        _say(f"{mark} {f.subject}: {f.detail}" + (f"\n    {f.remedy}" if f.remedy else ""), colour)
    if any(f.level == "problem" for f in findings):
        raise typer.Exit(1)


if __name__ == "__main__":
    main()
