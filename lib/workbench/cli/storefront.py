"""`workbench storefront …`: three services and their stores.

Modules that are slow to import are imported when their command runs.
"""

import time

import typer

from .options import WORLD, open_world

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
    from ..storefront import client

    loaded = open_world(world)
    client.up(loaded, instances)
    if outbox:
        client.enable_outbox_connectors(loaded)
    status(world)


@app.command()
def load(
    changes: int = typer.Option(500, min=1, help="Number of changes."),
    rate: float = typer.Option(100, min=0, help="Changes per second; 0: no limit."),
    world: str = WORLD,
) -> None:
    """Send random changes, different in each call, and show the replication lag."""
    from ..storefront import audit, client, domain, load

    loaded = open_world(world)
    client.require_created(loaded)
    for name in domain.ALL:  # raises an error for a service that is down
        client.call(loaded, name, "GET", "health")
    operations = load.random_operations(int(time.time()), changes)
    seconds = load.load(loaded, operations, rate=rate)
    audit.wait_until_consistent(loaded)
    lag_ms = 1000 * audit.replication_lag(loaded)["seconds"].tail(changes)
    print(
        f"{changes:,} changes in {seconds:.1f} s. Until all copies had one: half within "
        f"{lag_ms.quantile(0.5):,.0f} ms, 95 % within {lag_ms.quantile(0.95):,.0f} ms"
    )
    print(f"documents that differ now: {len(audit.find_divergent(loaded))}")


@app.command()
def status(world: str = WORLD) -> None:
    """Show the state of each service, its unpublished events and its consumer lag."""
    from ..storefront import audit, client

    loaded = open_world(world)
    client.require_created(loaded)
    lag, pending = audit.lag(loaded), audit.pending_events(loaded)
    for name, address, state in client.instance_states(loaded):
        context = name.partition("_")[0]
        print(
            f"{name:<14} {address}  {state}, unsent {pending[context]}, lag {lag.get(context, 0)}"
        )


@app.command()
def down(world: str = WORLD) -> None:
    """Stop the services; stores and topics stay.

    `make down` stops them, too. Notebook 99 removes everything.
    """
    from ..storefront import client

    open_world(world)
    client.stop()
    print("stopped")
