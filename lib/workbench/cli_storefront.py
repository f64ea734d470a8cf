"""`workbench storefront …`: three services and their stores. Modules that take long are imported
when it runs.
"""

import time

import typer

from .base import params

app = typer.Typer(
    no_args_is_help=True, help="Three services that agree in the end (notebooks 71 to 74)."
)
WORLD = typer.Option("local", help="Which params/<world>.yaml.")


@app.command()
def up(
    instances: int = typer.Option(1, min=1, max=2, help="Of each service."),
    outbox: bool = typer.Option(
        False, "--outbox", help="Let connectors send the events, as notebook 74 does."
    ),
    world: str = WORLD,
) -> None:
    """Make the stores and topics that are missing, and start the services that do not run."""
    from .walkthroughs import storefront

    loaded = params.load(world)
    storefront.up(loaded, instances)
    if outbox:
        storefront.enable_outbox_connectors(loaded)
    status(world)


@app.command()
def load(
    changes: int = typer.Option(500, min=1, help="How many."),
    rate: float = typer.Option(100, min=0, help="Per second; 0: as fast as it goes."),
    world: str = WORLD,
) -> None:
    """Ask the services for random changes, others each time, and tell how long the stores were
    apart.
    """
    from .walkthroughs import storefront, storefront_load

    loaded = params.load(world)
    storefront.require_created(loaded)
    for name in storefront.flow.service_databases:  # one that does not run is told of at once
        storefront.call(loaded, name, "GET", "health")
    took = storefront_load.load(
        loaded, storefront_load.random_operations(int(time.time()), changes), rate=rate
    )
    storefront.wait_until_consistent(loaded)
    apart = storefront.replication_lag(loaded)["seconds"].tail(changes)
    print(
        f"{changes:,} changes in {took:.1f} s. Until all copies had one: half within "
        f"{1000 * apart.quantile(0.5):,.0f} ms, 95 % within {1000 * apart.quantile(0.95):,.0f} ms"
    )
    print(f"documents that differ now: {len(storefront.find_divergent(loaded))}")


@app.command()
def status(world: str = WORLD) -> None:
    """Show what each service says of itself, and what is on its way."""
    from .walkthroughs import storefront

    loaded = params.load(world)
    storefront.require_created(loaded)
    behind, unsent = storefront.lag(loaded), storefront.pending_events(loaded)
    for name, address, said in storefront.instance_states(loaded):
        of = name.partition("_")[0]
        print(f"{name:<14} {address}  {said}, unsent {unsent[of]}, lag {behind.get(of, 0)}")


@app.command()
def down(world: str = WORLD) -> None:
    """Stop the services; stores and topics stay. (`make down` stops them, too; notebook 99 removes
    everything.)
    """
    from .walkthroughs import storefront

    params.load(world)
    storefront.stop()
    print("stopped")
