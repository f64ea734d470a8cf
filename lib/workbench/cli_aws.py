"""`workbench aws …`: what is only there on AWS. Modules that take long to import are imported when their verb runs."""
from __future__ import annotations

import typer

from .base import params

WORLD = typer.Option("aws", help="Which params/<world>.yaml.")
app = typer.Typer(no_args_is_help=True, help="Make, price and remove a deployment on AWS (deploy/README.md).")


@app.callback()
def aws() -> None:
    """Make, price and remove a deployment on AWS (deploy/README.md)."""


@app.command()
def publish(world: str = WORLD) -> None:
    """Put library, worlds, notebooks, data, jars and connector plugins into the deployment's bucket."""
    from .run import publish as publishing

    print(f"{publishing.publish(params.load(world))} objects were new or had changed")
