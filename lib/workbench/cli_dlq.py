"""`workbench dlq …`: messages that could not be read. Modules that take long to import are imported
when it runs.
"""

from typing import Optional

import typer

from .base import params
from .base.terminal import echo, escape_unprintable

app = typer.Typer(
    no_args_is_help=True, help="Look at messages that could not be read, and send them back."
)
WORLD = typer.Option("local", help="Which params/<world>.yaml.")
TOPIC = typer.Argument(..., help="A dead-letter topic, such as movies.dlq.")
# values are shown as Python writes them; names and origins, which messages state, too, on one line


@app.command("list")
def list_(world: str = WORLD) -> None:
    """Count the dead letters by place, origin and reason: in topics, and in the files of our
    jobs.
    """
    from .topic import dlq

    for one in dlq.summary(params.load(world)).itertuples():
        echo(
            f"{escape_unprintable(one.place)}: {one.dead_letters} from {escape_unprintable(one.origin)}, {one.replayed} sent back\n"
            f"    {one.reason!r}"
        )


@app.command()
def show(
    topic: str = TOPIC,
    limit: int = typer.Option(10, min=1, help="Most letters."),
    world: str = WORLD,
) -> None:
    """Show letters: where each came from, why it could not be read, and the message with its
    headers.
    """
    from .topic import dlq

    found = dlq.read(params.load(world), topic)
    for one in found.head(limit).itertuples():
        echo(f"offset {one.offset}{', sent back' * one.replayed}: {one.reason!r}")
        for name, value in (*one.headers, ("key", one.key), ("value", one.value)):
            echo(f"    {escape_unprintable(name)}: {value!r:.400}")
    echo(f"{min(limit, len(found))} of {len(found)} letters")


@app.command()
def replay(
    topic: str = TOPIC,
    offset: Optional[list[int]] = typer.Option(None, help="Of one letter; all by default."),
    world: str = WORLD,
) -> None:
    """Send letters back to the topics that they came from, unchanged, each once."""
    from .topic import dlq

    echo(f"letters sent back: {dlq.replay(params.load(world), topic, offsets=offset or ())}")
