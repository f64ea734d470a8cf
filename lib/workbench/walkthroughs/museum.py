"""What the museum walkthrough (notebooks/50_time_travel) makes: so each of its notebooks runs alone and twice.

Names, changes and tables are in museum_flow.

`need` makes what earlier notebooks make, by running them, where it is not there. `begin` sets everything back to what
was loaded, when a row that a notebook is about to change was changed before. `clear` removes what a notebook and those
after it make.
"""
from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Dict, List, Sequence

from psycopg import sql

from .. import connect, hudi, landing
from ..base import files
from ..base.errors import LakeError, WorkbenchError
from ..base.params import World
from ..base.paths import ROOT
from ..base.wait import wait_until
from ..run.steps import Steps
from ..source import postgres
from ..spark import session
from ..topic import topics
from . import load_moma
from .museum_flow import (
    BAKKER,
    CONNECTOR,
    DATABASE,
    ENVELOPE,
    KEY,
    LIFE,
    LOADED,
    PARTITION,
    PICADOR,
    PUBLICATION,
    SINK,
    TABLES,
    UPDATES,
    at,
    change,
    config,
    count,
    delete,
    deploy,
    envelope,
    envelope_topic,
    events,
    execute,
    follow,
    imaging,
    kind_of,
    land,
    rows,
    scratch,
    skipping,
    source,
    table,
    tables,
    topic,
    views,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "BAKKER", "CONNECTOR", "DATABASE", "ENVELOPE", "KEY", "LIFE", "LOADED", "PARTITION",
    "PICADOR", "PUBLICATION", "SINK", "STEPS", "TABLES", "UPDATES", "at", "begin", "change", "clear",
    "config", "connectors_left", "count", "delete", "deploy", "envelope", "envelope_topic", "events", "execute",
    "first_events", "follow", "imaging", "kind_of", "land", "made", "need", "rows", "scratch", "skipping", "source",
    "table", "tables", "tables_left", "topic", "topics_left", "undo_changes", "views",
]


def _has_source(world: World) -> bool:
    postgres.create_database(world, DATABASE)  # nothing happens where it is there
    found = postgres.publications(world, DATABASE).query("publication == @PUBLICATION")
    return set(found["table"]) == {f"{load_moma.SCHEMA}.{name}" for name in TABLES}


def _has_connector(world: World) -> bool:
    if CONNECTOR not in connect.names(world) or not _has_topics(world):
        return False
    if connect.failure(world, CONNECTOR):
        # it starts with Connect, the registry when a notebook needs it: what came in between has failed it
        connect.restart(world, CONNECTOR)
        with contextlib.suppress(WorkbenchError):  # wait_running says why
            wait_until(lambda: not connect.failure(world, CONNECTOR), f"{CONNECTOR} to start again", timeout=10)
    connect.wait_running(world, CONNECTOR)
    return all(topics.count(world, topic(n)) for n in TABLES)


def _has_topics(world: World) -> bool:
    return {topic(n) for n in TABLES} <= set(topics.names(world))


def _has_tables(world: World) -> bool:
    return all(hudi.exists(t) and LOADED in set(hudi.labels(world, t)["label"]) for t in tables(world))


def _has_labels(world: World) -> bool:
    travelled = table(world, "artists", "mor")
    return {f"t{n}" for n in range(6)} <= set(hudi.labels(world, travelled)["label"])


STEPS = Steps(ROOT / "notebooks" / "50_time_travel", {
    "51_source_database": _has_source,
    "52_connectors": _has_connector,
    "53_hudi_ingest": _has_tables,
    "56_time_travel": _has_labels,
})
need, made = STEPS.need, STEPS.made


def clear(world: World, step: str) -> None:
    """Remove what `step` and the steps after it make; what is not there is no error.

    Without its lake tables nobody needs the changed rows any more: they are set back in the source, as the topics have
    them, and the topics begin again with a snapshot of it, which is what notebook 53 loads.
    """
    later = STEPS.later(step)
    postgres.create_database(world, DATABASE)
    # not whether the connector runs: one that failed is what somebody may want to clear away
    stays = "51_source_database" not in later and made(world, "51_source_database") and _has_topics(world)
    changed = stays and undo_changes(session(world), world)
    for left in tables_left(world):
        hudi.drop(session(world), world, left)
    if changed or "52_connectors" in later:
        _drop_connectors(world)
    if changed and "52_connectors" not in later:
        deploy(world)
    if "51_source_database" in later:
        load_moma.reset_moma(world)


def _drop_connectors(world: World) -> None:
    for name, its in ((CONNECTOR, config(world)), (ENVELOPE, envelope(world))):
        connect.delete(world, name)
        postgres.drop_slot(world, its["slot.name"], database=DATABASE)
    topics.delete(world, *topics_left(world))
    landing.drop(world, connect.config(world, SINK))


def tables_left(world: World) -> List[hudi.Table]:
    """The tables of this walkthrough that have files in the lake, those of its experiments included."""
    experiments = scratch(world), scratch(world, "cow"), skipping(world), imaging(world)
    return [t for t in (*tables(world), *experiments) if files.entries(t.base)]


def connectors_left(world: World) -> List[str]:
    """Names of the connectors of this walkthrough that are deployed; others may run on the same Connect."""
    return sorted({CONNECTOR, ENVELOPE} & set(connect.names(world)))


def topics_left(world: World) -> List[str]:
    """Names of the topics that the connectors of this walkthrough have made."""
    prefixes = [config(world)["topic.prefix"], envelope(world)["topic.prefix"]]
    ours = {*(topic(n) for n in TABLES), envelope_topic(), *(f"__debezium-heartbeat.{p}" for p in prefixes)}
    return sorted(ours & set(topics.names(world)))


# --- setting back ----------------------------------------------------------------------------------------------------

def begin(spark: SparkSession, world: World, name: str, *keys: int) -> bool:
    """Set everything back to what was loaded if one of these rows of `name`, or any where no key is given, was changed
    since; return whether it was."""
    later = events(spark, world, name).where("`__op` <> 'r'")
    if keys:
        later = later.where(f"{KEY[name]} IN ({', '.join(str(int(k)) for k in keys)})")
    if not later.limit(1).collect():
        return False
    kind = "landed" if "landed" in map(kind_of, tables(world)) else "topic"
    clear(world, "53_hudi_ingest")
    follow(spark, world, kind=kind, label=LOADED)
    return True


def undo_changes(spark: SparkSession, world: World) -> bool:
    """Take back in the source what was changed since the snapshot, whose rows the topics hold; return whether there was
    anything.

    Raises: LakeError: the topics do not begin with the snapshot any more. Nothing was changed then.
    """
    changed = {name: first_events(name, _changed(spark, world, name)) for name in TABLES}
    if not any(changed.values()):
        return False
    columns = {name: list(rows(world, name, "false")) for name in TABLES}
    with postgres.session(world, DATABASE) as c, c.transaction():
        for name, first in changed.items():
            _set_back(c, name, columns[name], first)
    return True


def _changed(spark: SparkSession, world: World, name: str) -> List[Any]:
    """The events of the rows that were changed since the snapshot, all that the topic has of them."""
    key = KEY[name]
    if not topics.count(world, topic(name)):
        raise LakeError(f"topic {topic(name)} is empty: nothing tells what was changed in the source",
                        next_step="run 51_source_database, it loads the source anew")
    seen = events(spark, world, name).where("outcome IN ('upsert', 'delete')")
    later = {r[0] for r in seen.where("`__op` <> 'r'").select(key).distinct().collect()}
    return seen.where(f"{key} IN ({', '.join(map(str, later))})").collect() if later else []


def first_events(name: str, events: Sequence[Any]) -> Dict[int, Any]:
    """{key: its first event} of these events of `artists` or `artworks`: what the snapshot read, or an insert.

    Raises: LakeError: of some key the topic begins with neither, so it has forgotten messages.
    """
    first: Dict[int, Any] = {}
    for event in sorted(events, key=lambda e: (e["__op"] != "r", e["__lsn"])):
        first.setdefault(event[KEY[name]], event)
    lost = sorted(key for key, event in first.items() if event["__op"] not in ("r", "c"))
    if lost:
        raise LakeError(f"topic {topic(name)} has no snapshot of {len(lost)} rows that were changed",
                        where=f"{KEY[name]} {', '.join(map(str, lost[:5]))}", expected="its first message, too",
                        next_step="run 51_source_database, it loads the source anew")
    return first


def _set_back(connection: Any, name: str, columns: List[str], first: Dict[int, Any]) -> None:
    table, key = sql.Identifier(name), sql.Identifier(KEY[name])
    fields = sql.SQL(", ").join(map(sql.Identifier, columns))
    marks = sql.SQL(", ").join([sql.Placeholder()] * len(columns))
    connection.execute(sql.SQL("DELETE FROM {} WHERE {} = ANY(%s)").format(table, key), [sorted(first)])
    for event in first.values():
        if event["__op"] == "r":
            connection.execute(sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(table, fields, marks),
                               [event[c] for c in columns])
