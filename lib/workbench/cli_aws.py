"""`workbench aws …`: what is only there on AWS. Modules that take long to import are imported when their verb runs."""
from __future__ import annotations

import typer

app = typer.Typer(no_args_is_help=True, help="Make, price and remove a deployment on AWS (deploy/README.md).")


@app.callback()
def aws() -> None:
    """Make, price and remove a deployment on AWS (deploy/README.md)."""
