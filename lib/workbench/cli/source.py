"""`workbench source …`: the source databases of a world.

Modules that are slow to import are imported when their command runs.
"""

from typing import Optional

import typer

from ..base.terminal import echo
from .options import WORLD, open_world, print_findings

app = typer.Typer(no_args_is_help=True, help="Check the databases that are captured.")


@app.command()
def check(
    name: str = typer.Argument(
        ..., help="A source of the params file, or postgres or mariadb of the stack."
    ),
    tables: Optional[list[str]] = typer.Argument(
        None, help="Tables, such as public.trips; by default all tables of the database."
    ),
    key: list[str] = typer.Option([], help="As in capture: key column; may be repeated."),
    exclude: list[str] = typer.Option([], help="As in capture: column to leave out."),
    poll: str = typer.Option("", metavar="COLUMN", help="As in capture: poll, and read no log."),
    world: str = WORLD,
    sql: bool = typer.Option(
        False, "--sql", help="Print only the SQL script that removes the obstacles."
    ),
) -> None:
    """Check whether a source is ready for capture. Each obstacle comes with the SQL that removes it.

    The exit code is 1 if there is an obstacle (0 with --sql). Nothing is changed.
    """
    from ..source import readiness

    options = readiness.Options(exclude, key, bool(poll))
    report = readiness.check(open_world(world), name, tables or None, options)
    if sql:
        echo(report.script())
    else:
        print_findings(report.findings())
