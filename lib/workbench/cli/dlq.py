"""`workbench dlq …`: the dead-letter queue, messages that could not be decoded.

Modules that are slow to import are imported when their command runs.
"""

import base64
from typing import Any

import typer

from ..base import LakeError, WorkbenchError, World, files
from ..base.terminal import echo, escape_unprintable
from .options import WORLD, YES, confirm, open_world

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
            f"{escape_unprintable(row.origin)}, {row.replayed} replayed or left out\n    {row.reason!r}"
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
    found: Any
    if "/" in topic:
        found = dlq.read_files(dlq.folder_uri(loaded, topic))
        if not found:
            raise _nothing_found(topic)
        for record in found[:limit]:
            echo(f"{escape_unprintable(dlq.describe_origin(record))}: {record['reason']!r}")
            echo(f"    {_decode_text(loaded, record.get('text'))!r:.2000}")
    else:
        found = dlq.read(loaded, topic)
        if len(found) and not any(found["topic"]):
            raise LakeError(
                f"the messages of topic {topic} are no dead letters",
                expected="a topic that `workbench dlq list` names",
            )
        for row in found.head(limit).itertuples():
            replayed = ", replayed or left out" if row.replayed else ""
            echo(f"offset {row.offset}{replayed}: {row.reason!r}")
            for name, value in (*row.headers, ("key", row.key), ("value", row.value)):
                echo(f"    {escape_unprintable(name)}: {value!r:.400}")
    echo(f"{min(limit, len(found))} of {len(found)} dead letters")


def _decode_text(world: World, text: Any) -> Any:
    """Return the text of a dead letter, or its record if it is an Avro message in base64."""
    from ..topic import registry

    try:
        return registry.inspect_message(world, base64.b64decode(text, validate=True))["record"]
    except (WorkbenchError, TypeError, ValueError):
        return text


def _nothing_found(folder: str) -> LakeError:
    return LakeError(
        f"folder {folder} has no dead letters",
        expected="a folder or topic that `workbench dlq list` names",
    )


@app.command()
def remove(
    folder: str = typer.Argument(..., help="A folder that `dlq list` names."),
    yes: bool = YES,
    world: str = WORLD,
) -> None:
    """Remove the dead letters of a folder after their cause was removed: `watch` reports them until then."""
    from ..topic import dlq

    uri = dlq.folder_uri(open_world(world), folder)
    # those that arrive during the confirmation stay
    listed = dlq.list_files(uri)
    reasons = [record["reason"] for file in listed for record in dlq.read_file(file)]
    if not reasons:
        raise _nothing_found(folder)
    for reason in dict.fromkeys(reasons):
        echo(f"{reasons.count(reason)} with the reason {reason!r}")
    confirm("Remove these dead letters?", yes)
    for file in listed:
        files.remove(file)
    echo(f"dead letters removed: {len(reasons)}")


@app.command()
def replay(topic: str = TOPIC, world: str = WORLD) -> None:
    """Publish dead letters that were not replayed yet to their original topics, unchanged."""
    from ..topic import dlq

    echo(f"dead letters replayed: {dlq.replay(open_world(world), topic)}")
