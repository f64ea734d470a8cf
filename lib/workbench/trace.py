"""One row's biography: `workbench trace artists 299`, or `row(world, "artists", 299)`.

Every change of the row, from the source's log to the views of the lake: LSN and transaction → topic, partition, offset
→ schema → landed file → Hudi commit, file group, base or log file → what each view shows. It needs no Spark: the topic
is read for the messages of one key, and the rest is looked up in names, timelines and single files (see trace_lake).
"""
from __future__ import annotations

import datetime as dt
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

from . import avro, connect, files, hudi, landing_write, registry, schemas, topics, trace_source, travel
from .changes import reading_order
from .errors import LakeError, nearest
from .landing_sinks import AvroSink, Sink, parse
from .spark import session
from .trace_lake import History, Place

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

    from .params import World

OPS = {"r": "snapshot", "c": "insert", "u": "update", "d": "delete"}
LINES, MARKS = ("-", "--", ":"), "os^D"  # three and four: together they are used up after 12 rounds of colours
NOW, WAS, NOT_YET, NEVER = "now", "was", "not yet", "never"


@dataclass(frozen=True)
class Traced:
    """A source table whose rows can be traced. sink: what its landing does; tables: those of the lake it goes into."""

    name: str
    source: str  # schema.table
    key: str
    topic: str
    sink: Any
    tables: Tuple[hudi.Table, ...]
    database: Optional[str] = None


@dataclass(frozen=True)
class Biography:
    """What `row` found: `changes`, one line per change, `views`, the row as each view shows it now, and `notes` on what
    could not be known."""

    table: Traced
    key: int
    changes: pandas.DataFrame
    views: pandas.DataFrame
    notes: Tuple[str, ...] = ()


def traceable(world: World) -> Dict[str, Traced]:
    """The tables that can be traced, by name."""
    from . import museum, outbox

    def sink(name: str) -> Any:
        return parse(connect.config(world, name))

    found = [Traced(n, f"public.{n}", museum.KEY[n], museum.topic(n), sink(museum.SINK),
                    tuple(museum.tables(world, n)), museum.DATABASE) for n in museum.TABLES]
    found.append(Traced("cdc_events", outbox.TABLE, "order_id", outbox.topic(world), sink(outbox.SINK),
                        (outbox.table(world),)))
    return {t.name: t for t in found}


def row(world: World, table: Any, key: Any) -> Biography:
    """Follow one row through everything.

    Args:
        table: a name of `traceable`, or a Traced. key: of the row, a whole number.

    Returns:
        changes: one line per change, oldest first: change, made_at (UTC), op, what, lsn, transaction (what the event
            says, else the row's own xmin: of the last one only, where the row is as that says), partition, offset,
            in_topic_at, schema (its id; "inline" of JSON), version, landed (file below the landing); then for each lake
            table <kind>_commit, <kind>_file_group, <kind>_file; then for each view whether it shows this change: now,
            was (time travel finds it), not yet (before compaction), never (a later change came with the same commit).
        views: for each view the rows it has of this key now, read by hudi-rs (by Spark while a compaction is pending).
            A read-optimised view has two where a record moved and was not compacted yet.
        notes: why the last change has no transaction, where it has none.

    Raises:
        LakeError: there is no such table, or no message of such a key. WorkbenchError: no topic. StackError: a service
            does not answer.
    """
    import pandas

    if not isinstance(table, Traced):
        have = traceable(world)
        if table not in have:
            raise LakeError(f"there is no table {str(table)!r} to trace", expected=nearest(str(table), have),
                            next_step="workbench trace artists 299")
        table = have[table]
    key = _whole(table, key)
    with ThreadPoolExecutor(2) as pool:
        shown = pool.submit(views, world, table, key)
        events = _events(world, table, key)
    records = [e.pop("record") for e in events]
    needles = [e.pop("needle") for e in events]
    notes = []
    if events[-1]["transaction"] is None and records[-1].get("__op") != "d":
        events[-1]["transaction"], note = trace_source.transaction(world, table, key, records[-1])
        notes += [note] if note else []
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


# --- source and topic ------------------------------------------------------------------------------------------------

def _events(world: World, table: Traced, key: int) -> List[Dict[str, Any]]:
    """The messages of a key but its tombstones, taken apart: `record` is what the message says, `needle` the bytes by
    which its landed file is known."""
    reading = _Reading(world, table)
    found = topics.read(world, table.topic, only=lambda raw: raw is not None and reading.key(raw) == key)
    events: List[Dict[str, Any]] = []
    before: Optional[Dict[str, Any]] = None
    for m in found.itertuples():
        if m.value is None:
            continue
        value = m.value.encode("utf-8") if isinstance(m.value, str) else m.value
        record, needle, schema, version = reading.value(value)
        events.append({
            "change": len(events) + 1, "made_at": _time(record.get("__source_ts_ms")),
            "op": OPS.get(record.get("__op"), record.get("__op")), "what": what(before, record),
            "lsn": record.get("__lsn"), "transaction": record.get("__source_txId", record.get("__txId")),
            "partition": m.partition, "offset": m.offset, "in_topic_at": m.timestamp.to_pydatetime(),
            "schema": schema, "version": version, "record": record, "needle": needle})
        before = record
    if not events:
        raise LakeError(f"topic {table.topic} has no message of {table.key} {key}",
                        where=f"{topics.count(world, table.topic):,} messages",
                        expected=f"a {table.key} of {table.source}",
                        next_step="is the row in the source, and the connector RUNNING? (connect.status)")
    return events


class _Reading:
    """Keys and values of one topic as dicts, Avro or Connect's JSON; each schema is asked for once."""

    def __init__(self, world: World, table: Traced):
        self.world, self.table, self.avro = world, table, isinstance(table.sink, AvroSink)
        self._readers: Dict[str, Any] = {}
        self._versions: Optional[pandas.DataFrame] = None

    def key(self, raw: bytes) -> Any:
        """The key of a message, None where it is of another kind."""
        try:
            whole = self._avro(raw)[0] if self.avro else json.loads(raw)
        except ValueError:
            return None
        whole = whole.get("payload", whole) if isinstance(whole, dict) else whole
        return whole.get(self.table.key) if isinstance(whole, dict) else whole

    def value(self, raw: bytes) -> Tuple[Dict[str, Any], bytes, Any, Any]:
        """(record, bytes by which the landed file is known, schema id, version of the schema)."""
        if not self.avro:
            payload, line, reason = landing_write.unwrap(raw.decode("utf-8", "replace"), True)
            if payload is None:
                raise LakeError(f"a message of the row cannot be read: {reason}", where=self.table.topic)
            return payload, line.encode("utf-8"), "inline", None
        try:
            record, found = self._avro(raw)
        except ValueError as e:
            raise LakeError(f"a message of the row cannot be read: {e}", where=self.table.topic) from e
        return record, found.body, found.schema, self._version(found)

    def _avro(self, raw: bytes) -> Tuple[Any, registry.Framed]:
        found = registry.framed(self.world, raw)
        if found is None:
            raise ValueError(f"not in the wire format {self.world.registry.wire}")
        if found.schema not in self._readers:
            avsc = registry.schema(self.world, found.id, found.kind)
            self._readers[found.schema] = avro.reader(schemas.exact(avsc))
        return self._readers[found.schema](found.body), found

    def _version(self, found: registry.Framed) -> Optional[str]:
        if self._versions is None:
            versions = registry.artifacts(self.world)
            self._versions = versions[versions["artifact"] == f"{self.table.topic}-value"]
        column = {registry.GLOBAL: "global_id"}.get(found.kind, "content_id")
        same = self._versions[self._versions[column] == found.id]
        return None if same.empty else str(same["version"].iloc[0])


def what(before: Optional[Dict[str, Any]], record: Dict[str, Any]) -> str:
    """What a change did, as text: `birth_year 1906 → 1907`."""
    if record.get("__op") == "d":
        return "row deleted"
    if before is None or before.get("__op") == "d":
        return "row inserted" if record.get("__op") == "c" else "row read"
    own = [n for n in record if not n.startswith("__") and record[n] != before.get(n)]
    return ", ".join(f"{n} {_short(before.get(n))} → {_short(record[n])}" for n in own) or "nothing"


def _short(value: Any) -> str:
    text = "null" if value is None else str(value)
    return text if len(text) <= 40 else text[:39] + "…"


def _time(millis: Optional[int]) -> Optional[dt.datetime]:
    return None if millis is None else dt.datetime.fromtimestamp(millis / 1000, dt.timezone.utc)


# --- files and lake --------------------------------------------------------------------------------------------------

def _landed(world: World, table: Traced, event: Dict[str, Any], record: Dict[str, Any], needle: bytes) -> str:
    """The landed file that holds a message, below the landing; "" where there is none."""
    sink, partition = table.sink, event["partition"]
    below = landing_write.folder_of(record, sink.fields) if isinstance(sink, Sink) else f"partition={partition}"
    prefix = "/".join(p for p in (sink.prefix_of(table.topic), below) if p)
    names = (i.base_name for i in files.entries(f"{world.lake.landing}/{prefix}") if i.is_file)
    orders = (reading_order(name, 0) for name in names)
    first = {o[3]: o[4] for o in orders if o[:3] == (True, table.topic, partition) and o[3] <= event["offset"]}
    name = first[max(first)] if first else ""
    return f"{prefix}/{name}" if name and needle in files.read_bytes(f"{world.lake.landing}/{prefix}/{name}") else ""


def names(lake: hudi.Table) -> Dict[str, str]:
    """{short name: view}: `cow`, or `mor_ro` and `mor_rt`, and the catalog's names of them."""
    return {lake.type + entry[-3:] if lake.type == "mor" else lake.type: entry for entry in hudi.entries(lake)}


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


# --- shown -----------------------------------------------------------------------------------------------------------

def show(life: Biography) -> None:
    """Print a biography: where the changes come from, where they went, and what the views show."""
    from rich.console import Console

    console = Console()
    shown = life.changes.copy()
    for column in ("made_at", "in_topic_at"):
        shown[column] = shown[column].map(lambda t: "" if t is None else f"{t:%Y-%m-%d %H:%M:%S.%f}"[:-3])
    shown["schema"] = [s if v is None else f"{s}, version {v}" for s, v in zip(shown["schema"], shown["version"])]
    shown["place"] = [f"{p}:{o}" for p, o in zip(shown["partition"], shown["offset"])]
    console.print(f"[b]{life.table.name} {life.key}[/b]  {len(shown)} changes; topic {life.table.topic}",
                  highlight=False)
    _print(console, shown, {"change": "", "made_at": "made at (UTC)", "op": "op", "what": "what", "lsn": "LSN",
                            "transaction": "transaction"})
    _print(console, shown, {"change": "", "place": "partition:offset", "in_topic_at": "in the topic at",
                            "schema": "schema", "landed": "landed file"})
    for lake in life.table.tables:
        columns = {"change": "", f"{lake.type}_commit": f"commit of {lake.name}",
                   f"{lake.type}_file_group": "file group", f"{lake.type}_file": "file"}
        _print(console, shown, {**columns, **names(lake)})
    if len(life.views):  # a line for each field: rows are wide, and there are few views
        hidden = {"view", "_hoodie_commit_seqno", "_hoodie_record_key"}
        fields = [c for c in life.views if c not in hidden]
        across = life.views[fields].astype(object).T
        across.insert(0, "field", fields)
        _print(console, across, {"field": "shown now", **dict(enumerate(life.views["view"]))})
    for note in life.notes:
        console.print(note, markup=False, highlight=False)


def _print(console: Any, frame: pandas.DataFrame, columns: Dict[str, str]) -> None:
    import pandas
    from rich.table import Table
    from rich.text import Text

    out = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in columns.values():
        out.add_column(title, overflow="fold")
    for _, line in frame.iterrows():
        cells = ("" if pandas.isna(v) else int(v) if isinstance(v, float) and v == int(v) else v
                 for v in (line[c] for c in columns))
        out.add_row(*[Text(str(cell)) for cell in cells])
    console.print(out)
    console.print()


def draw(life: Biography) -> Figure:
    """The timeline of a biography: a line per change through its stages. The distances in time are not to scale."""
    import matplotlib.pyplot as plt

    from . import show as charts

    stages: Dict[str, List[Optional[dt.datetime]]] = {
        "source": list(life.changes["made_at"]), f"topic {life.table.topic}": list(life.changes["in_topic_at"])}
    for lake in life.table.tables:
        stages[f"commit of {lake.name}"] = [_instant(i) for i in life.changes[f"{lake.type}_commit"]]
    times = sorted({t for row in stages.values() for t in row if t})
    at = {t: n for n, t in enumerate(times)}
    colours = [*charts.PALETTE, charts.INK]
    with plt.rc_context(charts.style()):
        height = max(1.2 + 0.8 * len(stages), 0.8 + 0.24 * len(life.changes))  # the legend has a line for each change
        figure, axes = plt.subplots(figsize=(11, height))
        for number, (_, change) in enumerate(life.changes.iterrows()):
            points = [(at[row[number]], -level) for level, row in enumerate(stages.values()) if row[number]]
            again, colour = divmod(number, len(colours))  # where the colours are used up: other lines and marks
            axes.plot(*zip(*points), color=colours[colour], linestyle=LINES[again % len(LINES)],
                      marker=MARKS[again % len(MARKS)], label=f"{change['change']}  {change['what']}")
            axes.annotate(str(change["change"]), points[0], textcoords="offset points", xytext=(0, 7), ha="center")
        axes.set_yticks([-n for n in range(len(stages))], list(stages))
        axes.set_xticks(range(len(times)), [f"{t:%H:%M:%S}" for t in times], rotation=90, fontsize=8)
        axes.set_ylim(0.6 - len(stages), 0.6)
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
        figure.suptitle(f"{life.table.name} {life.key}: from the source to the lake (UTC, not to scale)", x=0.03,
                        ha="left", fontsize=15, weight="bold")
        figure.tight_layout(rect=(0, 0, 1, 1))
    plt.close(figure)
    return figure


def _instant(text: str) -> Optional[dt.datetime]:
    """The time of an instant: Hudi's clock is the machine's local time (hoodie.table.timeline.timezone, LOCAL)."""
    if not text:
        return None
    return dt.datetime.strptime(f"{text:0<17}000", "%Y%m%d%H%M%S%f").astimezone(dt.timezone.utc)
