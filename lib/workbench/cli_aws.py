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
TAKE_OWNERSHIP = typer.Option(False, help="Also stacks that you made by another name.")
YES = typer.Option(False, "--yes", "-y", help="Do not ask.")


def _deployment(world: str) -> cloud.Deployment:
    return cloud.Deployment(*params.read_deployment(world))


def parse_key_values(parameters: Optional[list[str]], hint: str = "--parameter") -> dict[str, str]:
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


def _print_cost(
    parameters: dict[str, str], only: Optional[Sequence[str]], before: Optional[dict] = None
) -> None:
    rows, day = cloud.hourly_cost(parameters, only or (), before)
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
    _print_cost(parse_key_values(parameter), stacks)


@app.command()
def up(
    stacks: Optional[list[str]] = STACKS,
    parameter: Optional[list[str]] = PARAMETER,
    world: str = WORLD,
    mine: bool = TAKE_OWNERSHIP,
    yes: bool = YES,
) -> None:
    """Show what it costs per hour, ask, then make or update the stacks in their order; the lake's
    is filled at once. Parameters that are not given stay as they are.
    """
    on, parameters = _deployment(world), parse_key_values(parameter)
    _print_cost(
        parameters, stacks, cloud.current_parameters(cloud.describe_stacks(on, stacks or ()))
    )
    if not yes:
        typer.confirm(
            f"Make this as deployment {on.name!r} in {on.region}?", default=False, abort=True
        )
    cloud.up(
        on,
        parameters,
        stacks or (),
        take_ownership=mine,
        after_create={"lake": lambda: publish(world)},
    )
    print(f"it costs from now on: `workbench aws down --world {world}` ends it")


@app.command()
def status(world: str = WORLD) -> None:
    """Show the stacks of a deployment, what they cost per hour, and what bears its tag."""
    on = _deployment(world)
    found = cloud.describe_stacks(on)
    for name, stack in found.items():
        print(f"{on.stack_name(name):<24} {stack['StackStatus']}")
    there = cloud.current_parameters(found)
    if there:
        _print_cost({}, list(there), there)
    for arn in cloud.remaining_resources(on):
        print(f"  {arn}")


@app.command()
def down(world: str = WORLD, mine: bool = TAKE_OWNERSHIP, yes: bool = YES) -> None:
    """Remove a deployment with all that is in it, and look that nothing is left."""
    on = _deployment(world)
    if not yes:
        typer.confirm(
            f"Remove deployment {on.name!r} in {on.region}, its lake and its databases?",
            default=False,
            abort=True,
        )
    cloud.down(on, lambda: _drop_replication_objects(world), take_ownership=mine)
    print("nothing is left that bears the deployment's tag")


def _drop_replication_objects(world: str) -> None:
    """Drop this world's replication slots and publications, where its databases can be reached."""
    from . import walkthroughs
    from .source import postgres

    try:
        loaded = params.load(world)
        there = postgres.databases(loaded)
        ours = [f for f in walkthroughs.ALL if f.engine == "postgres"]
        for flow in (f for f in ours if (f.database or loaded.postgres.database) in there):
            for slot in postgres.connector_slots(loaded, flow.database):
                postgres.drop_slot(loaded, slot, flow.database)
            if flow.publication:
                postgres.drop_publication(loaded, flow.publication, flow.database)
    except WorkbenchError as e:  # an own database keeps them then: its log grows
        print(f"slots and publications were not looked for: {e.message} ({e.location})")


@app.command()
def publish(world: str = WORLD) -> None:
    """Put library, worlds, notebooks, data, jars and connector plugins into the deployment's
    bucket.
    """
    from .run import publish as publishing

    on = _deployment(world)
    count = publishing.publish(on.region, aws.parameter(on.region, on.name, "lake/bucket"))
    print(f"{count} objects were new or had changed")
