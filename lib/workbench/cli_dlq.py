"""`workbench dlq …`: messages that could not be read. Modules that take long to import are imported when it runs."""

from typing import Optional

import typer

from .base import params

app = typer.Typer(no_args_is_help=True, help="Look at messages that could not be read, and send them back.")
WORLD = typer.Option("local", help="Which params/<world>.yaml.")
TOPIC = typer.Argument(..., help="A dead-letter topic, such as movies.dlq.")


@app.command("list")
def list_(world: str = WORLD) -> None:
    """Count the dead letters by place, origin and reason: in topics, and in the files of our jobs."""
    from .topic import dlq

    found = dlq.counts(params.load(world))
    for one in found.itertuples():
        sent = f", {one.replayed} sent back" if one.place.startswith("topic ") else ""
        print(f"{one.place}  from {one.origin}: {one.letters}{sent}\n    {dlq.shown(one.reason.encode())}")
    if found.empty:
        print("there are no dead letters")


@app.command()
def show(topic: str = TOPIC, limit: int = typer.Option(10, min=1, help="Most letters."), world: str = WORLD) -> None:
    """Show letters: where each came from, why it could not be read, its headers, key and value (hex where no text)."""
    from .topic import dlq

    found = dlq.letters(params.load(world), topic)
    for one in found.head(limit).itertuples():
        print(f"offset {one.offset}, of {one.topic} partition {one.origin_partition} offset {one.origin_offset}"
              f"{', sent back' * one.replayed}\n    {dlq.shown(one.reason.encode())}")
        for name, value in (*one.headers, ("key", one.key), ("value", one.value)):
            print(f"    {name}: {dlq.shown(value)}")
    print(f"{min(limit, len(found))} of {len(found)} letters")


@app.command()
def replay(topic: str = TOPIC, offset: Optional[list[int]] = typer.Option(None, help="Of one letter; all by default."),
           world: str = WORLD) -> None:
    """Send letters back to the topics that they came from, unchanged, each once."""
    from .topic import dlq

    print(f"{dlq.replay(params.load(world), topic, offsets=offset or ())} letters were sent back")
