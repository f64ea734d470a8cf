"""What the workbench keeps of a table beside its rows: labels of its instants and dead letters; and
its end.

A label names an instant together with the position that the source had then, so that no notebook
types an instant.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from dataclasses import asdict, dataclass

import pandas as pd
from pyspark.sql import DataFrame, SparkSession

from ..base import LakeError, World, did_you_mean, files
from ..landing.batch import read_dead_letters
from ..topic import dlq
from .changes import Topic
from .ddl import catalog_synced, unregister
from .ingesting import last_ingest_commit, read_progress
from .tables import Table, all_catalog_names, dead_letters_path, table_lock, table_state_dir
from .timeline import archive_folder, completed_actions

INSTANT_PATTERN = re.compile(r"\d{14}(\d{3})?")  # yyyyMMddHHmmss, with milliseconds since Hudi 0.9
LABEL_PATTERN = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Label:
    """An instant under a label. `position` is the source's (a WAL position, a binlog coordinate)
    when it was set.
    """

    label: str
    instant: str
    position: str
    set_at: str  # UTC, ISO 8601


def label(world: World, table: Table, name: str, position: str = "") -> Label:
    """Give the table's last completed instant a label; the same label again moves it there.

    Raises:
        LakeError: there is no instant yet, or a label that is not a name.
    """
    if not LABEL_PATTERN.fullmatch(name):
        raise LakeError(f"{name!r} is not a label", expected="a letter, then letters, digits and _")
    done = completed_actions(table)
    if not done:
        raise LakeError(
            f"table {table.name} has no completed commit to label",
            location=table.base,
            hint="ingest something into it first",
        )
    new = Label(
        name,
        done[-1].instant,
        position,
        dt.datetime.now(dt.timezone.utc).isoformat(timespec="seconds"),
    )
    with files.exclusive_lock(_labels_path(world, table)):  # another may give one at the same time
        kept = (each for each in _load_labels(world, table) if each.label != name)
        files.write_text(
            _labels_path(world, table),
            json.dumps([asdict(each) for each in (*kept, new)], indent=1),
        )
    return new


def labels(world: World, table: Table) -> pd.DataFrame:
    """The labels of a table in the order of their instants: label, instant, position, set_at."""
    found = sorted(_load_labels(world, table), key=lambda each: each.instant)
    return pd.DataFrame(map(asdict, found), columns=list(Label.__dataclass_fields__))


def resolve_instant(world: World, table: Table, when: str) -> str:
    """The instant of a label, or of an instant given as digits.

    Raises:
        LakeError: no such label; a label whose commit was rolled back; or the table was not written
            any more by then: what a read gave would change with the next commit.
    """
    found = {each.label: each.instant for each in _load_labels(world, table)}
    if when not in found and not INSTANT_PATTERN.fullmatch(when):
        raise LakeError(
            f"table {table.name} has no instant labelled {when!r}",
            location=_labels_path(world, table),
            expected=did_you_mean(when, found),
            hint="hudi.label(world, table, name) gives one",
        )
    instant, done = found.get(when, when), [c.instant for c in completed_actions(table)]
    if (
        when in found
        and instant not in done
        and not (done and instant < done[0] and archive_folder(table))
    ):
        raise LakeError(
            f"the commit {instant} that {when!r} names is not on the timeline of {table.name} any more",
            location=f"{table.base}/.hoodie",
            expected=f"one of the {len(done)} that are",
            hint="it was rolled back, or the table was made anew; hudi.label gives the label again",
        )
    last = done[-1] if done else ""
    if instant > last:
        raise LakeError(
            f"table {table.name} was written last at {last or 'no instant'}, {instant} is later",
            location=table.base,
            expected=f"an instant up to {last}",
            hint="read the table as it is now: hudi.read(spark, table)",
        )
    return instant


def _labels_path(world: World, table: Table) -> str:
    return f"{table_state_dir(world, table)}/labels.json"


def _load_labels(world: World, table: Table) -> list[Label]:
    return [
        Label(**each) for each in json.loads(files.read_text(_labels_path(world, table)) or "[]")
    ]


def drop(spark: SparkSession | None, world: World, table: Table) -> None:
    """Start clean: remove the catalog entries, the files, the labels, the progress and the dead
    letters of the table.

    Raises: LakeError: an ingest into it is going on, whose next commit would name files that are no
        more.
    """
    with table_lock(world, table):
        if spark is not None:
            for entry in all_catalog_names(table):
                unregister(spark, entry)
            catalog_synced.pop(table.base, None)
        # labels first: they are of no other table, also when the rest is not reached
        for place in (table_state_dir(world, table), dead_letters_path(world, table), table.base):
            files.remove(place)


def dead_letters(spark: SparkSession, world: World, table: Table) -> DataFrame:
    """The messages that could not be ingested: reason, topic, partition, offset, file, text (base64
    where it is Avro).
    """
    return read_dead_letters(spark, dead_letters_path(world, table))


def publish_dead_letters(world: World, table: Table, topic: str) -> int:
    """Send the messages that could not be ingested from topics to a dead-letter topic, in the form
    that a Connect sink gives them; those that were not sent yet. Return how many. Raises: LakeError
    as dlq.publish does.
    """
    read = read_progress(last_ingest_commit(table))
    return dlq.publish(
        world,
        topic,
        dead_letters_path(world, table),
        f"{table_state_dir(world, table)}/dead_letters.json",
        table.name,
        "workbench.hudi.ingest",
        lambda origin: read.get(Topic(origin).id, {}).get("topic_id"),
    )
