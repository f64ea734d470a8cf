"""`workbench dlq …`: the dead-letter queue, messages that could not be decoded.

Modules that are slow to import are imported when their command runs.
"""

from typing import Any

import typer

from ..base import LakeError
from ..base.terminal import echo, escape_unprintable
from .options import WORLD, open_world

app = typer.Typer(
    no_args_is_help=True, help="Show messages that could not be decoded, and replay them."
)
TOPIC = typer.Argument(..., help="A dead-letter topic, such as movies.dlq.")
LOCATION = typer.Argument(..., help="A dead-letter topic, or a folder that `dlq list` names.")
# Values are shown as Python literals. Names and origins come from messages, too: on one line.


@app.command("list")
def list_(world: str = WORLD) -> None:
    """Count dead letters by location (topic or folder), origin and reason."""
    from ..topic import dlq

    for row in dlq.summary(open_world(world)).itertuples():
        echo(
            f"{escape_unprintable(row.location)}: {row.dead_letters} from "
            f"{escape_unprintable(row.origin)}, {row.replayed} replayed"
            f"{f', {row.settled} settled' * bool(row.settled)}\n    {row.reason!r}"
        )


@app.command()
def show(
    topic: str = LOCATION,
    limit: int = typer.Option(10, min=1, help="Maximum number of dead letters."),
    world: str = WORLD,
) -> None:
    """Show dead letters: origin, reason, and the message with its headers."""
    from ..topic import dlq

    loaded = open_world(world)
    if "/" in topic:
        _show_files(topic, dlq.read_files(loaded, topic), limit)
        return
    rows = dlq.read(loaded, topic)
    if len(rows) and not any(rows["topic"]):
        raise LakeError(
            f"the messages of topic {topic} are no dead letters",
            expected="a topic that `workbench dlq list` names",
        )
    for row in rows.head(limit).itertuples():
        replayed = ", replayed" if row.replayed else ""
        echo(f"offset {row.offset}{replayed}: {row.reason!r}")
        for name, value in (*row.headers, ("key", row.key), ("value", row.value)):
            echo(f"    {escape_unprintable(name)}: {value!r:.400}")
    echo(f"{min(limit, len(rows))} of {len(rows)} dead letters")


def _show_files(folder: str, letters: list[dict[str, Any]], limit: int) -> None:
    """Show the dead letters of a folder in the lake.

    Raises:
        LakeError: it has none.
    """
    if not letters:
        raise LakeError(
            f"folder {folder} has no dead letters",
            expected="a folder or topic that `workbench dlq list` names",
        )
    for letter in letters[:limit]:
        origin = letter.get("file") or f"{letter.get('topic')}, offset {letter.get('offset')}"
        settled = ", settled" * letter["is_settled"]
        echo(f"{escape_unprintable(origin)}{settled}: {letter['reason']!r}")
        echo(f"    {letter['text']!r:.2000}")
    echo(f"{min(limit, len(letters))} of {len(letters)} dead letters")


@app.command()
def replay(
    topic: str = TOPIC,
    offset: list[int] = typer.Option(
        [], help="Offset of one dead letter; may be repeated. Default: all dead letters."
    ),
    world: str = WORLD,
) -> None:
    """Publish dead letters that were not replayed yet to their original topics, unchanged."""
    from ..topic import dlq

    echo(f"dead letters replayed: {dlq.replay(open_world(world), topic, offsets=offset)}")
