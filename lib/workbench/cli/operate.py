"""`workbench watch`, `reconcile`, `recapture`, `connector restart`: state and repair of the captured flows.

Modules that are slow to import are imported when their command runs.
"""

from typing import Any, Optional

import typer

from ..base import ConnectorError, WorkbenchError
from ..base.terminal import echo
from .options import WORLD, YES, confirm, open_world

app = typer.Typer()
connector = typer.Typer(no_args_is_help=True, help="Restart the connectors of captured tables.")
app.add_typer(connector, name="connector")
COLORS = {"green": "green", "amber": "yellow", "red": "red"}


@app.command()
def watch(
    flows: Optional[list[str]] = typer.Argument(None, help="The flows, by default all deployed."),
    once: bool = typer.Option(False, "--once", help="Observe once; for schedulers."),
    json: bool = typer.Option(False, "--json", help="Print each observation as a line of JSON."),
    interval: float = typer.Option(
        0, help="Seconds between two observations, by default those of the params file."
    ),
    notify: list[str] = typer.Option(
        [], help="Send changes by webhook, sns or mail (params, section watch); may be repeated."
    ),
    metrics: int = typer.Option(
        0,
        min=0,
        max=65535,
        metavar="PORT",
        help="Serve Prometheus metrics at this port of 127.0.0.1.",
    ),
    world: str = WORLD,
) -> None:
    """Watch the captured flows: freshness, lag, retained log, connectors, dead letters, files.

    The exit code is 0 if all is green, 1 if something is amber, 2 if something is red.
    """
    from .. import operate
    from ..base import notices, params
    from ..operate import metrics as prometheus
    from ..operate import notifying

    for channel in notify:
        params.require_choice("--notify", channel, *notices.CHANNELS)
    loaded = open_world(world)
    notices.require_addresses(loaded, *notify)
    collector = prometheus.serve(metrics) if metrics else None

    def report(observed: list[Any]) -> None:
        if collector:
            collector.observed = observed
        if json:
            print(operate.to_json(observed), flush=True)
        else:
            for text, level in operate.lines(observed):
                echo(text, COLORS.get(level, ""))
        try:
            if notify:
                notifying.notify(loaded, notify, observed)
        except WorkbenchError as e:  # the next report repeats the message
            echo(str(e), "red", stderr=True)

    raise typer.Exit(
        operate.watch(loaded, *flows or (), report=report, interval=interval, once=once)
    )


@app.command()
def reconcile(
    flow: str = typer.Argument(..., help="Name of an own flow, or of a walkthrough."),
    table: str = typer.Option("", help="A captured table, by default all."),
    at: str = typer.Option(
        "", metavar="LABEL", help="Compare the lake as of this label; by default as of now."
    ),
    world: str = WORLD,
) -> None:
    """Compare lake tables with their source tables while changes continue. The exit code is 1 if they differ."""
    from .. import operate

    results = operate.reconcile(
        open_world(world), flow, table, at, lambda result: echo(repr(result))
    )
    if not all(result.is_equal for result in results):
        raise typer.Exit(1)


@app.command()
def recapture(
    flow: str = typer.Argument(..., help="Name of an own flow, or of a walkthrough."),
    yes: bool = YES,
    world: str = WORLD,
) -> None:
    """Capture a flow anew: its lake tables and topics are removed, and a new snapshot is ingested. Sources stay.

    The labels of the lake tables are lost. The exit code is 1 if lake and source differ afterwards.
    """
    from .. import operate

    loaded = open_world(world)
    for kind, names in operate.resources_to_remove(loaded, flow).items():
        if names:
            echo(f"{kind}: {', '.join(names)}")
    confirm("Remove these, and capture the tables anew?", yes)
    if not all(result.is_equal for result in operate.recapture(loaded, flow, echo)):
        raise typer.Exit(1)


@connector.command()
def restart(
    name: str = typer.Argument(..., help="A deployed connector, such as outbox_source."),
    world: str = WORLD,
) -> None:
    """Restart what has FAILED of a connector, itself and its tasks, and wait until it runs.

    It resumes at its committed offsets. What is RUNNING is not restarted.
    """
    from .. import connect

    loaded = open_world(world)
    connect.restart(loaded, name)
    state = connect.status(loaded, name)["state"]
    if state in ("PAUSED", "STOPPED"):
        raise ConnectorError(
            f"connector {name} is {state}, and a restart does not resume it",
            hint="docs/operations.md#connector_stopped",
        )
    connect.wait_running(loaded, name)
    echo(f"{name} is RUNNING")
