"""`workbench aws …`: what is only there on AWS. Modules that take long to import are imported when
their verb runs.
"""

from typing import Optional, Sequence

import typer

from .base import WorkbenchError, aws, params
from .stack import cloud

app = typer.Typer(
    no_args_is_help=True, help="Make, price and remove a deployment on AWS (deploy/README.md)."
)
WORLD = typer.Option(
    "aws", help="Which params/<world>.yaml: it says the region, and what the deployment is called."
)
STACKS = typer.Argument(None, help="Templates, such as network; all of deploy/ by default.")
PARAMETER = typer.Option(None, "--parameter", "-p", help="name=value, of the templates.")
MINE = typer.Option(False, help="Also stacks that you made by another name.")
YES = typer.Option(False, "--yes", "-y", help="Do not ask.")


def _on(world: str) -> cloud.Deployment:
    return cloud.Deployment(*params.deployment(world))


def given(parameters: Optional[list[str]], hint: str = "--parameter") -> dict[str, str]:
    """What options of the form name=value give. Raises typer.BadParameter, which names the option
    as hint.
    """
    pairs = [text.partition("=") for text in parameters or []]
    for name, equals, value in pairs:
        if not (equals and name.isidentifier()):
            raise typer.BadParameter(
                f"{name + equals + value!r} is not name=value", param_hint=hint
            )
    return {name: value for name, _, value in pairs}


def _bill(
    parameters: dict[str, str], only: Optional[Sequence[str]], before: Optional[dict] = None
) -> None:
    rows, day = cloud.cost(parameters, only or (), before)
    for stack, name, usd in rows:
        print(f"{stack:<10} {name:<20} {usd:>8.4f}")
    total = sum(usd for *_, usd in rows)
    print(
        f"{total:>40.4f} USD an hour, {24 * total:.0f} a day, by the prices of {day} (deploy/prices.yaml)\n"
        "What is paid by use comes on top: connectors, EMR Serverless, Athena, storage. See `per_use` there."
    )


@app.command()
def cost(stacks: Optional[list[str]] = STACKS, parameter: Optional[list[str]] = PARAMETER) -> None:
    """Reckon what a deployment costs per hour. Asks nobody, needs no account."""
    _bill(given(parameter), stacks)


@app.command()
def up(
    stacks: Optional[list[str]] = STACKS,
    parameter: Optional[list[str]] = PARAMETER,
    world: str = WORLD,
    mine: bool = MINE,
    yes: bool = YES,
) -> None:
    """Show what it costs per hour, ask, then make or update the stacks in their order; the lake's
    is filled at once. Parameters that are not given stay as they are.
    """
    on, parameters = _on(world), given(parameter)
    _bill(parameters, stacks, cloud.kept(cloud.stacks(on, stacks or ())))
    if not yes:
        typer.confirm(
            f"Make this as deployment {on.name!r} in {on.region}?", default=False, abort=True
        )
    cloud.up(on, parameters, stacks or (), mine=mine, after={"lake": lambda: publish(world)})
    print(f"it costs from now on: `workbench aws down --world {world}` ends it")


@app.command()
def status(world: str = WORLD) -> None:
    """Show the stacks of a deployment, what they cost per hour, and what bears its tag."""
    on = _on(world)
    found = cloud.stacks(on)
    for name, stack in found.items():
        print(f"{on.stack(name):<24} {stack['StackStatus']}")
    there = cloud.kept(found)
    if there:
        _bill({}, list(there), there)
    for arn in cloud.left(on):
        print(f"  {arn}")


@app.command()
def down(world: str = WORLD, mine: bool = MINE, yes: bool = YES) -> None:
    """Remove a deployment with all that is in it, and look that nothing is left."""
    on = _on(world)
    if not yes:
        typer.confirm(
            f"Remove deployment {on.name!r} in {on.region}, its lake and its databases?",
            default=False,
            abort=True,
        )
    cloud.down(on, lambda: _release(world), mine=mine)
    print("nothing is left that bears the deployment's tag")


def _release(world: str) -> None:
    """Drop this world's replication slots and publications, where its databases can be reached."""
    from . import walkthroughs
    from .source import postgres

    try:
        loaded = params.load(world)
        there = postgres.databases(loaded)
        ours = [f for f in walkthroughs.ALL if f.engine == "postgres"]
        for flow in (f for f in ours if (f.database or loaded.postgres.database) in there):
            for slot in postgres.own_slots(loaded, flow.database):
                postgres.drop_slot(loaded, slot, flow.database)
            if flow.publication:
                postgres.drop_publication(loaded, flow.publication, flow.database)
    except WorkbenchError as e:  # an own database keeps them then: its log grows
        print(f"slots and publications were not looked for: {e.what} ({e.where})")


@app.command()
def publish(world: str = WORLD) -> None:
    """Put library, worlds, notebooks, data, jars and connector plugins into the deployment's
    bucket.
    """
    from .run import publish as publishing

    on = _on(world)
    count = publishing.publish(on.region, aws.parameter(on.region, on.name, "lake/bucket"))
    print(f"{count} objects were new or had changed")
