"""What the museum walkthrough (notebooks/50_time_travel) makes, named once: so each of its notebooks runs alone and
twice.

`need` makes what earlier notebooks make, by running them, where it is not there. `begin` sets everything back to what
was loaded, when a row that a notebook is about to change was changed before. `clear` removes what a notebook and those
after it make.
"""
from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Dict, List, Sequence

import pandas
from psycopg import sql

from . import changes, connect, decode_avro, files, hudi, load_moma, query, sources, topics
from .errors import LakeError, nearest
from .params import ROOT, World
from .spark import session
from .steps import Steps

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DATABASE = load_moma.DATABASE
TABLES = load_moma.TABLES
KEY = {"artists": "artist_id", "artworks": "artwork_id"}
PARTITION = {"artists": "nationality", "artworks": "classification"}
PUBLICATION = "moma_publication"
CONNECTOR = "moma_source"
ENVELOPE = "moma_source_envelope"  # shows the raw change event, before it is flattened
SINK = "moma_sink"
LOADED = "after_load"  # the label of every table's first commit
SCRATCH = "moma_scratch"  # notebook 55's, whose deletes are hard
# Off: after five delta commits, Hudi's default, compaction would begin by itself, and here it is to be seen.
COMPACT_NOW = {"hoodie.compact.inline.max.delta.commits": "1", **hudi.NO_BLOOM_FILTER}
NO_COMPACTION = {"hoodie.compact.inline": "false"}


def topic(name: str) -> str:
    """Name of the topic of `artists` or `artworks`: server name (here the database's), schema, table (S5)."""
    return f"{DATABASE}.{load_moma.SCHEMA}.{name}"


def table(world: World, name: str, kind: str, /, **more: object) -> hudi.Table:
    """The lake table of `artists` or `artworks` of a kind, "cow" or "mor"; `more` changes any of its fields.

    A global index: a record whose partition value changes moves, instead of being there twice. S5 has GLOBAL_BLOOM,
    made for large tables; in small files it is all overhead.
    """
    if name not in TABLES:
        raise LakeError(f"the museum has no table {name!r}", expected=nearest(str(name), TABLES))
    fields = dict(name=f"moma_{name}_{kind}", base=f"{world.lake.tables}/moma/{name}_{kind}", database=f"moma_{kind}",
                  catalog=name, key=(KEY[name],), partition=(PARTITION[name],), ordering="__lsn", type=kind,
                  index="GLOBAL_SIMPLE", deletes="soft", extra=NO_COMPACTION if kind == "mor" else {})
    return hudi.table(world, **{**fields, **more})


def tables(world: World, *names: str) -> List[hudi.Table]:
    """Both tables, Copy-on-Write and Merge-on-Read, of `artists` or `artworks`, or of both."""
    return [table(world, name, kind) for name in names or TABLES for kind in ("cow", "mor")]


def scratch(world: World) -> hudi.Table:
    """A Merge-on-Read table of the artists, in a database of its own, from which deletes remove the row."""
    return table(world, "artists", "mor", name=SCRATCH, base=f"{world.lake.tables}/moma/scratch", database=SCRATCH,
                 deletes="hard")


def config(world: World) -> Dict[str, str]:
    """The source connector's configuration."""
    return connect.config(world, CONNECTOR)


def envelope(world: World) -> Dict[str, str]:
    """The same without the transform, into topics of its own, and of one artist only: a look, not a load."""
    plain = {k: v for k, v in config(world).items() if not k.startswith("transforms")}
    override = "snapshot.select.statement.overrides"
    return {**plain, "topic.prefix": f"{DATABASE}_envelope", "slot.name": plain["slot.name"] + "_envelope",
            "table.include.list": "public.artists", override: "public.artists",
            f"{override}.public.artists": "SELECT * FROM public.artists WHERE artist_id = 1"}


def envelope_topic() -> str:
    """Name of the topic with the raw envelope."""
    return f"{DATABASE}_envelope.{load_moma.SCHEMA}.artists"


def _has_source(world: World) -> bool:
    sources.create_database(world, DATABASE)  # nothing happens where it is there
    return PUBLICATION in set(sources.publications(world, DATABASE)["publication"])


def _has_connector(world: World) -> bool:
    if CONNECTOR not in connect.names(world) or not {topic(n) for n in TABLES} <= set(topics.names(world)):
        return False
    connect.wait_running(world, CONNECTOR)
    return all(topics.count(world, topic(n)) for n in TABLES)


def _has_tables(world: World) -> bool:
    return all(hudi.exists(t) and LOADED in set(hudi.marks(world, t)["label"]) for t in tables(world))


def _has_labels(world: World) -> bool:
    travelled = table(world, "artists", "mor")
    return {f"t{n}" for n in range(6)} <= set(hudi.marks(world, travelled)["label"])


STEPS = Steps(ROOT / "notebooks" / "50_time_travel", {
    "51_source_database": _has_source,
    "52_connectors": _has_connector,
    "53_hudi_ingest": _has_tables,
    "56_time_travel": _has_labels,
})
need, made = STEPS.need, STEPS.made


def clear(world: World, step: str) -> None:
    """Remove what `step` and the steps after it make; what is not there is no error.

    Without its lake tables nobody needs the changed rows any more: they are set back in the source, and the topics
    begin again with a snapshot of it, which is what notebook 53 loads.
    """
    later = STEPS.later(step)
    for left in tables_left(world):
        hudi.drop(session(world), world, left)
    sources.create_database(world, DATABASE)
    stays = "51_source_database" not in later and made(world, "51_source_database") and made(world, "52_connectors")
    changed = stays and undo_changes(session(world), world)
    if changed or "52_connectors" in later:
        _drop_connectors(world)
    if changed and "52_connectors" not in later:
        deploy(world)
    if "51_source_database" in later:
        load_moma.reset_moma(world)


def _drop_connectors(world: World) -> None:
    for name, its in ((CONNECTOR, config(world)), (ENVELOPE, envelope(world))):
        connect.delete(world, name)
        sources.drop_slot(world, its["slot.name"], database=DATABASE)
    topics.delete(world, *topics_left(world))


def tables_left(world: World) -> List[hudi.Table]:
    """The tables of this walkthrough that have files in the lake, the scratch table included."""
    return [t for t in (*tables(world), scratch(world)) if files.entries(t.base)]


def connectors_left(world: World) -> List[str]:
    """Names of the connectors of this walkthrough that are deployed; others may run on the same Connect."""
    return sorted({CONNECTOR, ENVELOPE} & set(connect.names(world)))


def topics_left(world: World) -> List[str]:
    """Names of the topics that the connectors of this walkthrough have made."""
    prefixes = [config(world)["topic.prefix"], envelope(world)["topic.prefix"]]
    ours = {*(topic(n) for n in TABLES), envelope_topic(), *(f"__debezium-heartbeat.{p}" for p in prefixes)}
    return sorted(ours & set(topics.names(world)))


# --- what the notebooks compare --------------------------------------------------------------------------------------

def rows(world: World, name: str, where: str = "true", values: Any = None) -> pandas.DataFrame:
    """Rows of `artists` or `artworks` in the source, by key; `where` is a condition in SQL."""
    query = sql.SQL("SELECT * FROM {} WHERE {} ORDER BY {}").format(sql.Identifier(name), sql.SQL(where),
                                                                    sql.Identifier(KEY[name]))
    return sources.frame(world, query, values, DATABASE)


def count(world: World, name: str) -> int:
    """How many rows the source has."""
    query = sql.SQL("SELECT count(*) AS n FROM {}").format(sql.Identifier(name))
    return int(sources.frame(world, query, database=DATABASE).loc[0, "n"])


def events(spark: SparkSession, world: World, name: str) -> DataFrame:
    """All messages of a topic, decoded: partition, offset, outcome (upsert, delete, tombstone, dead), then the row's
    fields, which are null of a tombstone.

    Raises: LakeError: there is no such topic, or it is empty.
    """
    reader = changes.reader(spark, world, source(name), f"events of {name}", 10_000_000)
    try:
        batch = reader.next({}, 0)
        if batch is None or batch.schemas is None:
            raise LakeError(f"topic {topic(name)} is empty", next_step="run 52_connectors: it deploys the connector")
        known = decode_avro.Schemas(world, topic(name))
        known.meet(batch.schemas)
        found = decode_avro.rows(batch.raw, known, key=(KEY[name],), ordering="__lsn")
        return found.select("partition", "offset", "outcome", "row.*")
    finally:
        reader.close()


def views(spark: SparkSession, name: str, key: int, *columns: str) -> pandas.DataFrame:
    """A record as each catalog table shows it: seen_in, columns, __op, file (base or log), then Hudi's file name and
    commit time. A record that comes from a log bears the name of its file group, without `.parquet`."""
    asked = ", ".join([*(f'"{c}"' for c in columns), "__op", "_hoodie_file_name", "_hoodie_commit_time"])
    found = query.sql(spark, " UNION ALL ".join(
        f"SELECT '{entry}' AS seen_in, {asked} FROM {entry} WHERE {KEY[name]} = {int(key)}"  # noqa: S608 - all ours
        for entry in (f"moma_cow.{name}", f"moma_mor.{name}_ro", f"moma_mor.{name}_rt")))
    base = found["_hoodie_file_name"].str.endswith(".parquet")
    found.insert(found.columns.get_loc("__op") + 1, "file", base.map({True: "base", False: "log"}))
    return found.sort_values(["seen_in", "_hoodie_commit_time"], ignore_index=True)


# --- following the source --------------------------------------------------------------------------------------------

def source(name: str, kind: str = "topic") -> changes.Source:
    """Where the changes of `artists` or `artworks` are read: "topic", straight from Kafka."""
    if kind != "topic":
        raise LakeError(f"the museum's changes cannot be read from {kind!r}", expected=nearest(kind, ["topic"]))
    return hudi.Topic(topic(name), format="avro")


def deploy(world: World) -> Dict[str, int]:
    """Deploy the connector and wait for its snapshot: {topic: messages}, as many as the tables have rows."""
    connect.apply(world, CONNECTOR, config(world))
    return {topic(n): topics.wait_count(world, topic(n), count(world, n), connector=CONNECTOR) for n in TABLES}


def change(world: World, name: str, statement: str, values: Sequence[Any] = ()) -> int:
    """Execute one statement that changes rows of `artists` or `artworks` in the source, and wait for its events.

    Returns: how many rows it changed. A deleted row gives two messages, the delete and a tombstone.
    """
    end = sum(topics.ends(world, topic(name)).values())
    changed = sources.execute(world, statement, values or None, DATABASE)
    more = changed * (2 if statement.lstrip()[:6].upper() == "DELETE" else 1)
    topics.wait_count(world, topic(name), end + more, connector=CONNECTOR)
    return changed


def follow(spark: SparkSession, world: World, *into: hudi.Table, kind: str = "topic", label: str = ""
           ) -> Dict[str, hudi.Ingested]:
    """Ingest what is new into these tables (all four where none is given), side by side.

    Args:
        kind: where the changes are read (see `source`).
        label: put on the last commit of each, with the source's position.
    Returns: {table: counts}.
    """
    position = sources.wal_position(world, DATABASE)
    into = into or tuple(tables(world))

    def one(into: hudi.Table) -> hudi.Ingested:
        name = next(n for n in TABLES if into.key == (KEY[n],))
        new = not hudi.exists(into)
        done = hudi.ingest(spark, world, source(name, kind), into)
        if label:
            hudi.mark(world, into, label, position)
        if new:
            hudi.register(spark, into)
        return done

    with ThreadPoolExecutor(2) as pool:  # as many as the embedded Spark has cores
        return dict(zip((t.name for t in into), pool.map(one, into)))


def compact(spark: SparkSession, merged: hudi.Table) -> None:
    """Schedule a compaction of a Merge-on-Read table and run it."""
    entry = next(e for e, kind in hudi.entries(merged).items() if kind == "snapshot")
    options = ",".join(f"{k}={v}" for k, v in COMPACT_NOW.items())
    for op in ("schedule", "run"):
        spark.sql(f"CALL run_compaction(op => '{op}', table => '{entry}', "
                  f"options => '{options}')").collect()
    hudi.register(spark, merged)


# --- setting back ----------------------------------------------------------------------------------------------------

def begin(spark: SparkSession, world: World, name: str, *keys: int) -> bool:
    """Set everything back to what was loaded if one of these rows was changed since; return whether it was."""
    asked = ", ".join(str(int(k)) for k in keys)
    later = events(spark, world, name).where(f"{KEY[name]} IN ({asked}) AND `__op` <> 'r'")
    if not later.limit(1).collect():
        return False
    clear(world, "53_hudi_ingest")
    follow(spark, world, label=LOADED)
    return True


def undo_changes(spark: SparkSession, world: World) -> bool:
    """Take back in the source what was changed since the snapshot, whose rows the topics hold; return whether there was
    anything."""
    changed = False
    for name in TABLES:
        seen = events(spark, world, name).where("outcome IN ('upsert', 'delete')")
        changed = _undo(world, name, seen) or changed
    return changed


def _undo(world: World, name: str, seen: DataFrame) -> bool:
    key = KEY[name]
    later = {r[0] for r in seen.where("`__op` <> 'r'").select(key).distinct().collect()}
    if not later:
        return False
    columns = list(rows(world, name, "false"))
    before = seen.where(f"`__op` = 'r' AND {key} IN ({', '.join(map(str, later))})").select(*columns).collect()
    table, fields = sql.Identifier(name), sql.SQL(", ").join(map(sql.Identifier, columns))
    with sources.session(world, DATABASE) as c, c.transaction():
        c.execute(sql.SQL("DELETE FROM {} WHERE {} = ANY(%s)").format(table, sql.Identifier(key)), [sorted(later)])
        for row in before:
            marks = sql.SQL(", ").join([sql.Placeholder()] * len(columns))
            c.execute(sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(table, fields, marks), list(row))
    return True
