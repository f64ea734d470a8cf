"""The command line: `workbench <command>`.

Modules that are slow to import are imported when their command runs.
"""

import os
import shutil
import sys
from pathlib import Path
from typing import Optional

import typer

from .. import stack
from ..base import (
    LakeError,
    ParamsError,
    WorkbenchError,
    logs,
    params,
    paths,
    secrets,
)
from ..base.terminal import echo
from ..run import export, run_record
from ..stack import artifacts, process, services
from ..stack import doctor as machine_check
from . import dlq, failures, operate, own, runs, source
from .options import WORLD, YES, confirm, open_world, parse_key_values, print_findings

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Change data capture into a lakehouse, in notebooks. Start with: workbench demo",
)
app.add_typer(dlq.app, name="dlq")
app.add_typer(runs.app, name="runs")
app.add_typer(source.app, name="source")
app.add_typer(own.app)
app.add_typer(operate.app)
FROM_DIR = typer.Option(
    None,
    "--from",
    help="Folder with the original data, instead of generated data.",
    exists=True,
    file_okay=False,
    resolve_path=True,
)
# {state of a service: color}; any other state is red
COLORS = {"up": "", "starting": "yellow", "outdated": "yellow", "stopped": "dim"}


def main(arguments: Optional[list[str]] = None) -> None:
    """Run the command line, and exit.

    Exit codes: 0 success, 1 failure (the message has a hint), 2 wrong usage, 130 interrupted.

    Args:
        arguments: command and options; by default those of the process.
    """
    try:
        logs.configure()
        paths.link_safe_root()
        app(arguments)
    except Exception as e:  # noqa: BLE001 - the text may come from a service or from data, and is escaped
        echo(str(failures.to_error(e)), "red", stderr=True)
        sys.exit(1)


@app.command()
def install(world: str = WORLD) -> None:
    """Fetch the jars and binaries of a world, pinned by checksum. Existing ones are kept."""
    count = _install(open_world(world))
    echo(f"{count} files fetched" if count else "all files are up to date")


def _install(world: params.World) -> int:
    return artifacts.install(echo, *services.optional_artifacts(world))


@app.command()
def demo(world: str = WORLD, source: Optional[Path] = FROM_DIR) -> None:
    """Check the machine, install, start the stack, run the first walkthrough, write its report."""
    from ..run import runner

    loaded = open_world(world)
    findings = [
        finding
        for finding in machine_check.examine(loaded)
        # `_install` repairs damaged and missing jars
        if finding.level != "ok" and finding.subject != "jars"
    ]
    print_findings(findings)
    if loaded.stack.embedded:
        _install(loaded)
    echo("starting the stack …")
    stack.up(loaded, progress=echo)
    targets = _notebooks()[:2]  # 00_start_here and the first walkthrough
    done = _report_run(runner.run(targets, world, {"from_dir": str(source)} if source else {}))
    echo("The stack still runs: `make lab` opens the notebooks, `make down` stops it.")
    raise done


def _notebooks() -> list[str]:
    """Return the names of the top-level notebooks and of the notebook folders, in their order."""
    return sorted(path.stem for path in (paths.ROOT / "notebooks").glob("[0-9]*"))


@app.command()
def secret(
    name: str = typer.Argument(help="Name of the secret, as in ${secret:NAME} of a params file."),
) -> None:
    """Store a password of your own, from a prompt or from standard input, in a file that only you can read."""
    if name in services.SECRETS and name in secrets.read():
        raise ParamsError(
            f"{name} is the password of a service of this instance, which keeps it",
            expected="a name of your own, such as my.admin, and ${secret:my.admin} in the params file",
            hint="nothing was stored",
        )
    text = typer.prompt(name, hide_input=True) if sys.stdin.isatty() else sys.stdin.readline()
    secrets.store(name, text.rstrip("\n"))
    echo(f"stored {name} in {secrets.secrets_dir()}")


@app.command()
def up(
    services: Optional[list[str]] = typer.Argument(
        None, help="Services; by default all services of the world."
    ),
    world: str = WORLD,
) -> None:
    """Start the services that are not running, and wait until they are ready."""
    _print_status(stack.up(open_world(world), services or (), progress=echo))


@app.command()
def status(world: str = WORLD) -> None:
    """Show the services with their state, port and memory, and the WAL of replication slots."""
    from ..source import capture_health

    loaded = open_world(world)
    _print_status(stack.status(loaded))
    for finding in capture_health.examine(loaded):
        echo(f"{finding.subject}: {finding.detail}")
    message = process.disk_full_message()
    if message:
        echo(message, "red")


@app.command()
def run(
    targets: Optional[list[str]] = typer.Argument(
        None, help="Tracks or notebooks; all by default."
    ),
    world: str = WORLD,
    param: list[str] = typer.Option(
        [], "--param", "-p", help="name=value, for the notebooks that declare this parameter."
    ),
    resume: bool = typer.Option(
        False, help="Continue the last run of the same notebooks if it did not pass."
    ),
    timeout: float = typer.Option(600, min=1, help="Seconds for one notebook."),
    executor: str = typer.Option(
        "here",
        "--on",
        help="Where the notebooks run: here, or emr-notebook (on the deployment's cluster).",
    ),
) -> None:
    """Run notebooks headless and write a report. The exit code is not 0 if anything failed.

    The default is all notebooks. The storefront notebooks need an embedded world. With the variable
    WORKBENCH_LOG=info a line is logged for each batch that the notebooks process.
    """
    from ..run import runner

    if not targets and not open_world(world).stack.embedded:
        from .. import tracks

        local = {each.name for each in tracks.ALL if each.local_only}
        targets = [name for name in _notebooks() if name not in local]
    values = parse_key_values(param, "--param")
    result = runner.run(
        targets or (), world, values, resume=resume, timeout=timeout, executor=executor
    )
    raise _report_run(result)


@app.command()
def lab(browser: bool = typer.Option(True, help="Open the browser.")) -> None:
    """Open JupyterLab at the first notebook, on loopback only and with a token."""
    arguments = [
        sys.executable,
        "-m",
        "jupyterlab",
        "--ServerApp.ip=127.0.0.1",
        f"--ServerApp.root_dir={paths.ROOT}",
        "--LabApp.default_url=/lab/tree/notebooks/00_start_here.ipynb",
        # HTML exports fold the code of the same cells as JupyterLab. Slides keep their own template.
        f"--HTMLExporter.template_file={export.TEMPLATE}",
        "--SlidesExporter.template_file=index.html.j2",
        f"--ServerApp.open_browser={browser}",
    ]
    if os.geteuid() == 0:
        arguments.append("--allow-root")
    # Without JUPYTER_TOKEN Jupyter creates a token. All kernels would inherit the variable.
    variables = {name: value for name, value in os.environ.items() if name != "JUPYTER_TOKEN"}
    os.execve(sys.executable, arguments, variables)


@app.command()
def doctor(world: str = WORLD) -> None:
    """Check the machine, the replication slots of the source database, and your own sources.

    Every problem is reported at once, with its remedy.
    """
    from ..source import capture_health, readiness

    loaded = open_world(world)
    findings = [*machine_check.examine(loaded), *capture_health.examine(loaded)]
    for name, section in loaded.sources.items():
        findings.append(readiness.check(loaded, name).summary())
        if section.engine == "postgres" and not section.managed:
            findings += capture_health.examine(loaded.source(name))
    print_findings(findings)


@app.command()
def down(yes: bool = YES) -> None:
    """Stop all services of this instance (WORKBENCH_INSTANCE).

    The command lists the replication slots that stay on servers of your own. It asks for confirmation if
    notebooks are running.
    """
    _confirm_stopping_run(run_record.running_pids(), yes)
    if not stack.down(echo):
        echo("nothing was running")
    if paths.flows_dir().is_dir():  # the import takes seconds
        from .. import own

        for line in own.describe_slots():
            echo(line)


@app.command()
def clean(yes: bool = YES) -> None:
    """Remove service data, lake, logs, secrets and runs of this checkout, after confirmation.

    The downloaded jars and binaries stay.
    """
    running = stack.running()
    if running:
        raise WorkbenchError(f"these still run: {', '.join(running)}", hint="workbench down")
    # all instances share runs/
    _confirm_stopping_run(run_record.running_pids(*paths.VAR_DIR.glob("instances/*/run.lock")), yes)
    folders = [f for f in (paths.state_dir(), paths.ROOT / "runs") if f.is_dir()]
    if not folders:
        echo("there is nothing to remove")
    else:
        confirm(f"Remove {' and '.join(map(str, folders))}?", yes)
    for folder in folders:
        shutil.rmtree(folder)


@app.command()
def ingest(
    name: str = typer.Argument(
        ...,
        help="A captured table, such as cdc_events, or a walkthrough, such as 10_outbox. "
        "60_streaming_sales runs its streaming query.",
    ),
    world: str = WORLD,
    source: str = typer.Option(
        "",
        help="Where the changes are read: topic, or landed (the landed files). "
        "Default: as in the last ingest, else topic.",
    ),
    continuous: bool = typer.Option(
        False, "--continuous", help="Continue with later changes until Ctrl-C."
    ),
    executor: str = typer.Option(
        "here",
        "--on",
        help="Where the ingest runs: here, or emr-serverless (a job, which Ctrl-C cancels).",
    ),
) -> None:
    """Ingest the changes of captured tables into the lake, or run a streaming query.

    The source database is not queried.
    """
    from .. import tracks
    from ..flow import capture
    from ..run import emr_jobs
    from ..tracks import ingest as ingest_job

    params.require_choice("--on", executor, "here", "emr-serverless")
    if source:
        params.require_choice("--source", source, *capture.SOURCE_KINDS)
    loaded = open_world(world)
    tracks.find_captured_table(name, loaded)  # reject an unknown name before anything starts
    if executor == "here":
        raise typer.Exit(ingest_job.ingest(loaded, name, source, continuous, echo))
    arguments = ["ingest", name, "--world", world]
    if source:
        arguments += ["--source", source]
    if continuous:
        arguments.append("--continuous")
    raise typer.Exit(emr_jobs.run(loaded, arguments, continuous=continuous, progress=echo))


@app.command()
def trace(
    table: str = typer.Argument(..., help="A captured table, such as artists."),
    key: str = typer.Argument(..., help="Key of the row."),
    world: str = WORLD,
) -> None:
    """Trace one row: log position, topic, schema, landed file, Hudi commit and file, and views."""
    from .. import trace as traces
    from .. import tracks

    loaded = open_world(world)
    track, name = tracks.find_captured_table(table, loaded)
    if not track.flow.names:
        raise LakeError(f"{table} has no captured tables", expected="a captured table")
    echo(repr(traces.row(loaded, track.flow, name, key)))


def _confirm_stopping_run(pids: list[str], yes: bool) -> None:
    """Ask for confirmation if other processes are running notebooks, because this ends them."""
    if pids and not yes:
        echo(
            f"notebooks are running (process {', '.join(pids)}), and this command ends their run: "
            "wait until it is complete, or pass --yes",
            "yellow",
        )
        confirm("End the run?", yes)


def _report_run(result: run_record.RunRecord) -> typer.Exit:
    """Print the result of a run; return the exit of the command."""
    echo(str(result), "green" if result.status == "passed" else "red")
    print(f"report: {result.report}")
    return typer.Exit(result.exit_code)


def _print_status(rows: list[process.Status]) -> None:
    template = "{:<16}  {:<13}  {:>5}  {:>7}  {:>7}  {:>8}  {}"
    echo(template.format("service", "state", "port", "pid", "since", "memory", "log"), "bold")
    for row in rows:
        color = COLORS.get(row.state, "red")
        since = f"{row.seconds:.0f} s" if row.seconds is not None else ""
        memory = f"{row.memory_mb:,.0f} MB" if row.memory_mb is not None else ""
        log = row.log and paths.display_path(Path(row.log))
        cells = row.name, row.state, row.port or "", row.pid or "", since, memory, log
        echo(template.format(*cells), color)
        if row.detail and row.state != "up":
            echo(f"    {row.detail}", color)
    echo(f"{sum(row.memory_mb or 0 for row in rows):,.0f} MB in total")
