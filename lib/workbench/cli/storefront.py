"""`workbench storefront …`: three services and their stores.

Modules that are slow to import are imported when their command runs.
"""

import time

import typer

from ..base import params
from .options import WORLD

app = typer.Typer(
    no_args_is_help=True, help="Run three eventually consistent services (notebooks 71 to 74)."
)


@app.command()
def up(
    instances: int = typer.Option(1, min=1, max=2, help="Instances of each service."),
    outbox: bool = typer.Option(
        False, "--outbox", help="Let connectors publish the events, as notebook 74 does."
    ),
    world: str = WORLD,
) -> None:
    """Create missing stores and topics, and start the services that are not running."""
    from ..walkthroughs import storefront

    loaded = params.load(world)
    storefront.up(loaded, instances)
    if outbox:
        storefront.enable_outbox_connectors(loaded)
    status(world)


@app.command()
def load(
    changes: int = typer.Option(500, min=1, help="Number of changes."),
    rate: float = typer.Option(100, min=0, help="Changes per second; 0: no limit."),
    world: str = WORLD,
) -> None:
    """Send random changes, different in each call, and show the replication lag."""
    from ..walkthroughs import storefront, storefront_load

    loaded = params.load(world)
    storefront.require_created(loaded)
    for name in (
        storefront.walkthrough.resources.service_databases
    ):  # raises an error for a service that is down
        storefront.call(loaded, name, "GET", "health")
    operations = storefront_load.random_operations(int(time.time()), changes)
    seconds = storefront_load.load(loaded, operations, rate=rate)
    storefront.wait_until_consistent(loaded)
    lag_ms = 1000 * storefront.replication_lag(loaded)["seconds"].tail(changes)
    print(
        f"{changes:,} changes in {seconds:.1f} s. Until all copies had one: half within "
        f"{lag_ms.quantile(0.5):,.0f} ms, 95 % within {lag_ms.quantile(0.95):,.0f} ms"
    )
    print(f"documents that differ now: {len(storefront.find_divergent(loaded))}")


@app.command()
def status(world: str = WORLD) -> None:
    """Show the state of each service, its unpublished events and its consumer lag."""
    from ..walkthroughs import storefront

    loaded = params.load(world)
    storefront.require_created(loaded)
    lag, pending = storefront.lag(loaded), storefront.pending_events(loaded)
    for name, address, state in storefront.instance_states(loaded):
        context = name.partition("_")[0]
        print(
            f"{name:<14} {address}  {state}, unsent {pending[context]}, lag {lag.get(context, 0)}"
        )


@app.command()
def down(world: str = WORLD) -> None:
    """Stop the services; stores and topics stay.

    `make down` stops them, too. Notebook 99 removes everything.
    """
    from ..walkthroughs import storefront

    params.load(world)
    storefront.stop()
    print("stopped")
