"""`workbench capture`, `follow`, `compare` and `forget`: tables of the user's own databases.

Modules that are slow to import are imported when their command runs.
"""

from typing import Optional

import typer

from ..base.terminal import echo
from .options import WORLD, YES, confirm, open_world

app = typer.Typer()
FLOW = typer.Argument(..., help="Name of the flow, by default that of its source.")


@app.command()
def capture(
    source: str = typer.Argument(..., help="Name of the source (docs/your_own.md)."),
    tables: Optional[list[str]] = typer.Argument(
        None, help="The tables: table or schema.table; none: an interrupted capture continues."
    ),
    format: str = typer.Option(
        "", help="Format of the messages: json (the default) or avro; polled tables have json."
    ),
    type: str = typer.Option(
        "", help="Type of the lake tables: cow or mor; by default by their number of rows."
    ),
    partition: list[str] = typer.Option(
        [], help="Partition column of the lake tables; may be repeated."
    ),
    poll: str = typer.Option(
        "",
        metavar="COLUMN",
        help="Poll the tables by this timestamp, which each change sets, instead of reading the log.",
    ),
    key: list[str] = typer.Option(
        [], help="Key column of a table without primary key; may be repeated."
    ),
    exclude: list[str] = typer.Option([], help="Column to leave out; may be repeated."),
    raw: bool = typer.Option(False, "--raw", help="Keep Debezium's types (docs/types.md)."),
    flow: Optional[str] = typer.Option(
        None, "--as", help="Name of the flow, by default that of the source."
    ),
    world: str = WORLD,
) -> None:
    """Capture tables of your own database into the lake. A repeated call changes nothing."""
    from .. import own
    from ..base import params

    params.require_choice("--format", format, "", "avro", "json")
    params.require_choice("--type", type, "", "cow", "mor")
    own.capture(
        open_world(world),
        source,
        *(tables or ()),
        flow=flow or "",
        format=format,
        type=type,
        partition=partition,
        poll=poll,
        key=key,
        exclude=exclude,
        raw=raw,
        progress=echo,
    )


@app.command()
def follow(
    flow: str = FLOW,
    continuous: bool = typer.Option(
        False, "--continuous", help="Continue with later changes until Ctrl-C."
    ),
    world: str = WORLD,
) -> None:
    """Bring the changes of captured tables into the lake."""
    from .. import own

    own.follow(open_world(world), flow, continuous, echo)


@app.command()
def compare(flow: str = FLOW, world: str = WORLD) -> None:
    """Compare the lake tables of a flow with their source tables, row by row."""
    from .. import own

    own.compare(open_world(world), flow)


@app.command()
def forget(
    flow: str = FLOW,
    tables: Optional[list[str]] = typer.Argument(
        None, help="Tables that leave the flow; by default the whole flow is removed."
    ),
    yes: bool = YES,
    world: str = WORLD,
) -> None:
    """Remove a flow with its connector, topics and lake tables, or some of its tables. Your tables stay."""
    from .. import own

    loaded = open_world(world)
    parts = {"topics and lake tables of": tables} if tables else own.remaining(loaded, flow)
    for kind, names in parts.items():
        echo(f"{kind}: {', '.join(names)}")
    confirm("Remove this?", yes)
    own.forget(loaded, flow, *(tables or ()))
