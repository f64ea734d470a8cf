"""One row's biography: `workbench trace artists 299`, or `row(world, traced(world, "artists"), 299)`.

Every change of the row, from the source's log to the views of the lake: LSN and transaction → topic, partition, offset
→ schema → landed file → Hudi commit, file group, base or log file → what each view shows. The topic is read for
the messages of one key, and the rest is looked up in names, timelines and single files (see in_lake); Spark is
asked only for views that hudi-rs cannot read.
"""
from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Dict, List, Optional

from .. import hudi
from ..base import files
from ..base.errors import LakeError
from ..hudi import travel
from ..hudi.changes import reading_order
from ..landing import json_lines
from ..spark import session
from . import in_source, in_topic
from .in_lake import History, Place, names
from .model import Biography, Traced

if TYPE_CHECKING:
    import pandas

    from ..base.params import World

NOW, WAS, NOT_YET, NEVER = "now", "was", "not yet", "never"


def row(world: World, table: Traced, key: Any) -> Biography:
    """Follow one row through everything.

    Args:
        table: of a walkthrough, `walkthroughs.traceable` gives it. key: of the row, a whole number.

    Returns:
        changes: one line per change, oldest first: change, made_at (UTC), op, what, lsn, transaction (what the event
            says, else the row's own xmin: of the last one only, where the row is as that says), partition, offset,
            in_topic_at, schema (its id; "inline" of JSON), version, landed (file below the landing); then for each lake
            table <kind>_commit, <kind>_file_group, <kind>_file; then for each view whether it shows this change: now,
            was (time travel finds it), not yet (before compaction), never (a later change came with the same commit).
        views: for each view the rows it has of this key now, read by hudi-rs, by Spark where that cannot.
            A read-optimised view has two where a record moved and was not compacted yet.
        notes: why changes have no transaction, where they have none.

    Raises:
        LakeError: no message of such a key. WorkbenchError: no topic. StackError: a service
            does not answer.
    """
    import pandas

    key = _whole(table, key)
    with ThreadPoolExecutor(2) as pool:
        shown = pool.submit(views, world, table, key)
        events = in_topic.events(world, table, key)
    records = [e.pop("record") for e in events]
    needles = [e.pop("needle") for e in events]
    notes = in_source.complete(world, table, key, events, records)
    for event, record, needle in zip(events, records, needles):
        event["landed"] = _landed(world, table, event, record, needle)
    seen = shown.result()
    for lake in table.tables:
        _through(world, table, lake, key, events, records, seen)
    return Biography(table, key, pandas.DataFrame(events), seen, tuple(notes))


def _whole(table: Traced, key: Any) -> int:
    try:
        return int(str(key))
    except ValueError:
        raise LakeError(f"{key!r} is no {table.key}", where=f"table {table.name}", expected="a whole number",
                        next_step=f"workbench trace {table.name} 1") from None


# --- files and lake --------------------------------------------------------------------------------------------------

def _landed(world: World, table: Traced, event: Dict[str, Any], record: Dict[str, Any], needle: bytes) -> str:
    """The landed file that holds a message, below the landing; "" where there is none."""
    sink, partition = table.sink, event["partition"]
    below = json_lines.folder_of(record, sink.fields) if sink.format == "json" else f"partition={partition}"
    prefix = "/".join(p for p in (sink.prefix_of(table.topic), below) if p)
    names = (i.base_name for i in files.entries(f"{world.lake.landing}/{prefix}") if i.is_file)
    orders = (reading_order(name, 0) for name in names)
    first = {o[3]: o[4] for o in orders if o[:3] == (True, table.topic, partition) and o[3] <= event["offset"]}
    name = first[max(first)] if first else ""
    return f"{prefix}/{name}" if name and needle in files.read_bytes(f"{world.lake.landing}/{prefix}/{name}") else ""


def views(world: World, table: Traced, key: int) -> pandas.DataFrame:
    """The rows of a key as each view shows them now."""
    import pandas

    parts = []
    for lake in table.tables:
        if not hudi.exists(lake):
            continue
        for view, kind in hudi.entries(lake).items():
            try:
                found = hudi.read_independent(lake, optimized=kind == "read_optimized", where={table.key: key})
            except LakeError:  # a pending compaction hides from hudi-rs what came after it; Spark takes longer
                read = travel.reader(session(world)).option("hoodie.datasource.query.type", kind)
                found = read.load(lake.base).where(f"`{table.key}` = {key:d}").toPandas()
            found.insert(0, "view", view)
            parts.append(found)
    return pandas.concat(parts, ignore_index=True) if parts else pandas.DataFrame({"view": []})


def _through(world: World, table: Traced, lake: hudi.Table, key: int, events: List[Dict[str, Any]],
             records: List[Dict[str, Any]], shown: pandas.DataFrame) -> None:
    """Add the columns of one lake table and of its views to every change."""
    history = History(world, lake, key)
    commits = [history.commit(table.topic, e["partition"], e["offset"], e["landed"]) for e in events]
    place: Optional[Place] = None
    groups = set()
    last = max((n for n, c in enumerate(commits) if c), default=None)
    for number, (event, record, commit) in enumerate(zip(events, records, commits)):
        merged = history.merged_away(commits, number)
        mine = history.place(commit, record, place) if commit and not merged else None
        place = mine or place
        groups |= {mine.file_group} if mine else set()
        event[f"{lake.type}_commit"] = commit.instant if commit else ""
        event[f"{lake.type}_file_group"] = mine.file_group if mine else ""
        event[f"{lake.type}_file"] = mine.file if mine else ""
        event["_state"] = NEVER if merged else WAS if commit else ""
    based = set(history.in_base_files(groups))
    for short, view in names(lake).items():
        here = set(shown[shown["view"] == view].get(lake.ordering, ()))
        for number, (event, record) in enumerate(zip(events, records)):
            event[short] = _state(event["_state"], record, lake, here, number == last,
                                  based if short == "mor_ro" else None)
    for event in events:
        del event["_state"]


def _state(state: str, record: Dict[str, Any], lake: hudi.Table, here: set, last: bool, based: Optional[set]) -> str:
    """Whether a view shows a change: `here` are the versions it shows, `based` those that base files have held."""
    if state != WAS:
        return state
    version, gone = record[lake.ordering], record.get("__op") == "d" and lake.deletes == "hard"
    if version in here or (last and gone and not here):
        return NOW
    if based is None or version in based:
        return WAS
    return NOT_YET if last else NEVER
