"""The command `python -m storefront`: start, watch, load and stop the three services."""

import sys
import time

import typer
from workbench import stack
from workbench.base import StackError, WorkbenchError, World
from workbench.base.terminal import echo
from workbench.cli.options import WORLD, open_world
from workbench.source import postgres

from . import audit, client, setup
from .domain import ALL
from .load import random_operations, run

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Three eventually consistent services, each with its own store (notebooks 71 to 74).",
)


@app.command()
def up(
    outbox: bool = typer.Option(
        False, "--outbox", help="Let connectors publish the events, as notebook 74 does."
    ),
    world: str = WORLD,
) -> None:
    """Create missing stores and topics, and start the services that are not running."""
    loaded = open_world(world)
    setup.up(loaded)
    if outbox:
        setup.enable_outbox_connectors(loaded)
    status(world)


@app.command()
def status(world: str = WORLD) -> None:
    """Show the state and the consumer lag of each service."""
    loaded = _open_created(world)
    lag = audit.lag(loaded)
    for name in dict.fromkeys([*ALL, *client.running()]):
        try:
            state = client.call(loaded, name, "GET", "health")["events"]
        except StackError as e:
            state = e.message
        url = stack.get_service(name).address(loaded)
        echo(f"{name:<14} {url}  {state}, lag {lag.get(name.partition('_')[0], 0)}")


@app.command()
def load(
    changes: int = typer.Option(500, min=1, help="Number of changes."),
    rate: float = typer.Option(100, min=0, help="Changes per second; 0: no limit."),
    world: str = WORLD,
) -> None:
    """Send random changes, different in each call, and show how long copies were outdated."""
    loaded = _open_created(world)
    seconds = run(loaded, random_operations(int(time.time()), changes), rate=rate)
    audit.wait_until_consistent(loaded)
    lag_ms = 1000 * audit.replication_lag(loaded)["seconds"].tail(changes)
    echo(
        f"{changes:,} changes in {seconds:.1f} s. Until all copies had one: half within "
        f"{lag_ms.quantile(0.5):,.0f} ms, 95 % within {lag_ms.quantile(0.95):,.0f} ms"
    )
    echo(f"documents that differ now: {len(audit.find_divergent(loaded))}")


@app.command()
def down(world: str = WORLD) -> None:
    """Stop the services; stores and topics stay. Notebook 99 removes them."""
    open_world(world)
    client.stop()


def _open_created(name: str) -> World:
    """Load a world, and check that the storefront has stores there."""
    world = open_world(name)
    setup.require_embedded(world)
    if not {*ALL} <= {*postgres.databases(world)}:
        raise StackError("the storefront has no stores yet", hint="python -m storefront up")
    return world


def main() -> None:
    """Run the command line; a failure is printed with its hint, and the exit code is 1."""
    try:
        app()
    except WorkbenchError as e:
        echo(str(e), "red", stderr=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
