"""`workbench reconcile`: whether the lake tables of a flow equal their source tables.

Modules that are slow to import are imported when their command runs.
"""

import typer

from ..base.terminal import echo
from .options import WORLD, open_world


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


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(reconcile)
