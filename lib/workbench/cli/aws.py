"""`workbench aws …`: commands for a deployment on AWS.

Modules that are slow to import are imported when their command runs.
"""

from typing import Optional, Sequence

import typer

from ..base import WorkbenchError, aws, params
from ..deployment import cloud
from .options import YES, open_world, parse_key_values

app = typer.Typer(
    no_args_is_help=True,
    help="Create, price and remove a deployment on AWS (deploy/README.md).",
)
WORLD = typer.Option(
    "aws", help="Which params/<world>.yaml: it has the region and the name of the deployment."
)
# None, because click 8.1, the last one for Python 3.9, refuses a list as the default of a list.
STACKS = typer.Argument(None, help="Templates, such as network; all of deploy/ by default.")
PARAMETER = typer.Option(
    [], "--parameter", "-p", help="A template's parameter as name=value; may be repeated."
)
TAKE_OWNERSHIP = typer.Option(False, help="Accept stacks that another AWS identity has created.")


def _deployment(world: str) -> cloud.Deployment:
    return cloud.Deployment(*params.read_deployment(world))


def _print_cost(
    values: dict[str, str],
    stacks: Sequence[str],
    current: Optional[dict[str, dict[str, str]]] = None,
) -> None:
    costs, day = cloud.hourly_cost(values, stacks, current)
    for cost in costs:
        print(f"{cost.template:<10} {cost.resource:<20} {cost.usd:>8.4f}")
    total = sum(cost.usd for cost in costs)
    print(
        f"{total:>40.4f} USD an hour, {24 * total:.0f} a day, by the prices of {day} "
        "(deploy/prices.yaml)\n"
        "Charges by use are added: connectors, EMR Serverless, Athena, storage. See `per_use` there."
    )


@app.command()
def cost(stacks: Optional[list[str]] = STACKS, parameter: list[str] = PARAMETER) -> None:
    """Estimate the cost of a deployment per hour, offline. No account is needed."""
    _print_cost(parse_key_values(parameter, "--parameter"), stacks or ())


@app.command()
def up(
    stacks: Optional[list[str]] = STACKS,
    parameter: list[str] = PARAMETER,
    world: str = WORLD,
    take_ownership: bool = TAKE_OWNERSHIP,
    yes: bool = YES,
) -> None:
    """Show the cost per hour, ask for confirmation, then create or update the stacks in order.

    After the stack of the lake, its bucket is filled. Parameters that are not given are unchanged.
    """
    deployment, values = _deployment(world), parse_key_values(parameter, "--parameter")
    existing = cloud.describe_stacks(deployment, stacks or ())
    _print_cost(values, stacks or (), cloud.current_parameters(existing))
    if not yes:
        question = f"Create this as deployment {deployment.name!r} in {deployment.region}?"
        typer.confirm(question, default=False, abort=True)
    cloud.up(
        deployment,
        values,
        stacks or (),
        take_ownership=take_ownership,
        after_create={"lake": lambda: publish(world)},
    )
    print(f"it costs from now on: `workbench aws down --world {world}` ends it")


@app.command()
def status(world: str = WORLD) -> None:
    """Show the stacks of a deployment, their cost per hour, and the resources with its tag."""
    deployment = _deployment(world)
    stacks = cloud.describe_stacks(deployment)
    for name, stack in stacks.items():
        print(f"{deployment.stack_name(name):<24} {stack['StackStatus']}")
    current = cloud.current_parameters(stacks)
    if current:
        _print_cost({}, list(current), current)
    for arn in cloud.remaining_resources(deployment):
        print(f"  {arn}")


@app.command()
def down(world: str = WORLD, take_ownership: bool = TAKE_OWNERSHIP, yes: bool = YES) -> None:
    """Remove a deployment with all its data, and check that no resource is left."""
    from ..walkthroughs import own

    deployment = _deployment(world)
    for flow, declared in own.declarations():
        if declared.world == world:
            print(
                f"flow {flow} of your own is not covered: its slot and publication stay on the server of source "
                f"{declared.source}; first run `workbench forget {flow} --world {world}`"
            )
    if not yes:
        question = (
            f"Remove deployment {deployment.name!r} in {deployment.region}, "
            "its lake and its databases?"
        )
        typer.confirm(question, default=False, abort=True)
    cloud.down(deployment, lambda: _drop_replication_objects(world), take_ownership=take_ownership)
    print("nothing is left that bears the deployment's tag")


def _drop_replication_objects(world: str) -> None:
    """Drop this world's replication slots and publications, if its databases can be reached."""
    from .. import walkthroughs
    from ..source import postgres

    try:
        loaded = open_world(world)
        existing = postgres.databases(loaded)
        for flow in [each.flow for each in walkthroughs.ALL if each.flow]:
            database = flow.database or loaded.postgres.database
            if flow.db is not postgres or database not in existing:
                continue
            for slot in postgres.connector_slots(loaded, flow.database):
                postgres.drop_slot(loaded, slot, flow.database)
            if flow.publication:
                postgres.drop_publication(loaded, flow.publication, flow.database)
    except WorkbenchError as e:  # a database outside the deployment keeps them: its WAL grows
        print(f"slots and publications were not looked for: {e.message} ({e.location})")


@app.command()
def publish(world: str = WORLD) -> None:
    """Upload library, params, notebooks, data, jars and connector plugins to the deployment."""
    from ..deployment import publish as publishing

    deployment = _deployment(world)
    bucket = aws.parameter(deployment.region, deployment.name, "lake/bucket")
    count = publishing.publish(deployment.region, bucket)
    print(f"{count} objects were new or had changed")
