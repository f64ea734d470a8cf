"""The museum's flow (notebooks/50_time_travel), from a row of PostgreSQL to the lake's tables: names, connector,
changes, and what the notebooks compare. Use it through `museum`, which adds the steps and the setting back.
"""
from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Dict, List

import pandas
from psycopg import sql

from .. import connect, hudi, landing
from ..base import files
from ..base.errors import LakeError, SourceError, nearest
from ..base.params import World
from ..hudi import changes, decode_avro
from ..hudi.ingesting import last_commit, progress_in
from ..hudi.tables import dead_letters_path
from ..results import query
from ..source import postgres
from ..topic import topics
from . import generate_moma, load_moma

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
# Both are called in the notebooks, to be seen. A Spark job compacts when it is told to; it is said all the same. It
# cleans after each commit, and keeps the files of ten: too few for tables that are there to be asked for their past.
WHEN_TOLD = {"hoodie.compact.inline": "false", "hoodie.clean.automatic": "false"}


# What S5 does to artwork 128447, and to artist 299 between the instants t0 to t5 (None: the row is deleted)
PICADOR, BAKKER = generate_moma.PICADOR, 299
UPDATES = {
    "u1": {"date": "1959"},
    "u2": {"acquisition_date": "2009-04-15"},
    "u3": {"dimensions": "composition: 20 13/16 x 25 3/16 in (52.9 x 64 cm); "
                         "sheet: 24 7/16 x 29 1/2 in (62.1 x 75 cm)"},
    "u4": {"acquisition_date": "2009-04-19"},
    "u5": {"date": "1960"},
}
LIFE = {
    "t1": ({"birth_year": 1907}, {"death_year": 1989}),
    "t2": ({"name": "Gerhard M. Bakker"},),
    "t3": ({"nationality": "German"},),
    "t4": ({"birth_year": 1905},),
    "t5": (None,),
}


def topic(name: str) -> str:
    """Name of the topic of `artists` or `artworks`: server name (here the database's), schema, table (S5)."""
    return f"{DATABASE}.{load_moma.SCHEMA}.{name}"


def table(world: World, name: str, kind: str, /, **more: object) -> hudi.Table:
    """The lake table of `artists` or `artworks` of a kind, "cow" or "mor"; `more` changes any of its fields.

    A global index: a record whose partition value changes moves, instead of being there twice. S5 has GLOBAL_BLOOM,
    made for large tables; in small files it is all overhead.
    """
    _known(name)
    fields = dict(name=f"moma_{name}_{kind}", base=f"{world.lake.tables}/moma/{name}_{kind}", database=f"moma_{kind}",
                  catalog=name, key=(KEY[name],), partition=(PARTITION[name],), ordering="__lsn", type=kind,
                  index="GLOBAL_SIMPLE", deletes="soft", extra=WHEN_TOLD)
    return hudi.table(world, **{**fields, **more})


def _known(name: str) -> None:
    if name not in TABLES:
        raise LakeError(f"the museum has no table {name!r}", expected=nearest(str(name), TABLES))


def tables(world: World, *names: str) -> List[hudi.Table]:
    """Both tables, Copy-on-Write and Merge-on-Read, of `artists` or `artworks`, or of both."""
    return [table(world, name, kind) for name in names or TABLES for kind in ("cow", "mor")]


def scratch(world: World, kind: str = "mor") -> hudi.Table:
    """A table of the artists of a kind, "cow" or "mor", in a database of its own, from which deletes remove the row."""
    name = SCRATCH if kind == "mor" else f"{SCRATCH}_{kind}"
    return table(world, "artists", kind, name=name, base=f"{world.lake.tables}/moma/{name[len('moma_'):]}",
                 database=SCRATCH, deletes="hard")


def skipping(world: World) -> hudi.Table:
    """A table with the column statistics that Hudi 1.x writes by default; notebook 57 shows what comes of it."""
    return hudi.table(world, "moma_skipping", key=("id",), ordering="__lsn", database=SCRATCH, extra={
        "hoodie.metadata.enable": "true", "hoodie.metadata.index.column.stats.enable": "true"})


def imaging(world: World) -> hudi.Table:
    """A table that keeps the row before and after each change, for Hudi's own change query; notebook 57 asks it."""
    return hudi.table(world, "moma_imaging", key=("id",), ordering="__lsn", database=SCRATCH, extra={
        "hoodie.table.cdc.enabled": "true", "hoodie.table.cdc.supplemental.logging.mode": "data_before_after"})


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


# --- what the notebooks compare --------------------------------------------------------------------------------------

def rows(world: World, name: str, where: str = "true", values: Any = None) -> pandas.DataFrame:
    """Rows of `artists` or `artworks` in the source, by key; `where` is a condition in SQL."""
    query = sql.SQL("SELECT * FROM {} WHERE {} ORDER BY {}").format(sql.Identifier(name), sql.SQL(where),
                                                                    sql.Identifier(KEY[name]))
    return postgres.frame(world, query, values, DATABASE)


def count(world: World, name: str) -> int:
    """How many rows the source has."""
    query = sql.SQL("SELECT count(*) AS n FROM {}").format(sql.Identifier(name))
    return int(postgres.frame(world, query, database=DATABASE).loc[0, "n"])


def events(spark: SparkSession, world: World, name: str) -> DataFrame:
    """All messages of a topic, decoded: partition, offset, outcome (upsert, delete, tombstone, dead), then the row's
    fields, which are null of a tombstone.

    Raises: LakeError: there is no such topic, or it is empty.
    """
    reader = changes.reader(spark, world, source(name), table(world, name, "cow"), 10_000_000)
    try:
        batch = reader.next({}, 0)
        if batch is None or batch.schemas is None:
            raise LakeError(f"topic {topic(name)} is empty", next_step="run 52_connectors: it deploys the connector")
        known = decode_avro.Schemas(world, topic(name))
        known.meet(batch.schemas)
        found = decode_avro.rows(batch.raw, known, table(world, name, "cow"))
        return found.select("partition", "offset", "outcome", "row.*")
    finally:
        reader.close()


def at(changes: pandas.DataFrame, name: str, position: str) -> pandas.DataFrame:
    """The rows of `artists` or `artworks` as the change log has them at a position of the source's log: of each key the
    last event before it, deletes included. (The position is where the next change will stand, so it is exclusive. The
    snapshot is older than any position that is asked for, and need not have moved the log.)

    Args:
        changes: events() of it, as pandas. position: as postgres.wal_position gives it, `16/B374D848`.
    """
    so_far = changes[(changes["__lsn"] < postgres.lsn(position)) | (changes["__op"] == "r")]
    return so_far.sort_values("__lsn").groupby(KEY[name], as_index=False).tail(1)


def views(spark: SparkSession, name: str, key: int, *columns: str) -> pandas.DataFrame:
    """A record as each catalog table shows it: seen_in, columns, __op, file (base or log), then Hudi's file name and
    commit time. A record that comes from a log bears the name of its file group, without `.parquet`.

    Raises: LakeError: there is no such table or column.
    """
    _known(name)
    asked = ", ".join(map(_quoted, [*columns, "__op", "_hoodie_file_name", "_hoodie_commit_time"]))

    def one(database: str, entry: str) -> pandas.DataFrame:
        return query.sql(spark, f"SELECT '{database}.{entry}' AS seen_in, {asked} FROM "  # noqa: S608
                                f"{_quoted(database)}.{_quoted(entry)} WHERE {_quoted(KEY[name])} = :id", id=int(key))

    with ThreadPoolExecutor(2) as pool:  # sooner than one query with UNION ALL: Spark plans its parts one by one
        parts = list(pool.map(one, ("moma_cow", "moma_mor", "moma_mor"), (name, f"{name}_ro", f"{name}_rt")))
    found = pandas.concat([p for p in parts if len(p)] or parts, ignore_index=True)
    base = found["_hoodie_file_name"].str.endswith(".parquet")
    found.insert(found.columns.get_loc("__op") + 1, "file", base.map({True: "base", False: "log"}))
    return found.sort_values(["seen_in", "_hoodie_commit_time"], ignore_index=True)


def _quoted(name: str) -> str:
    """A name as an identifier of Athena's dialect, whatever stands in it."""
    from sqlglot import exp

    return exp.to_identifier(name, quoted=True).sql(dialect="athena")


# --- following the source --------------------------------------------------------------------------------------------

def source(name: str, kind: str = "topic") -> changes.Source:
    """Where the changes of `artists` or `artworks` are read: "topic", straight from Kafka, or "landed", the Avro files
    of the sink."""
    ways = {"topic": hudi.Topic(topic(name), format="avro"),
            "landed": hudi.Landed(f"topics/{topic(name)}", format="avro")}
    if kind not in ways:
        raise LakeError(f"the museum's changes cannot be read from {kind!r}", expected=nearest(kind, ways))
    return ways[kind]


def deploy(world: World) -> Dict[str, int]:
    """Deploy the connector and wait for its snapshot: {topic: messages}, as many as the tables have rows."""
    connect.apply(world, CONNECTOR, config(world))
    return {topic(n): topics.wait_count(world, topic(n), count(world, n), connector=CONNECTOR) for n in TABLES}


def change(world: World, name: str, key: int, /, **values: Any) -> None:
    """Set columns of one row of the source, and wait for its event. Raises SourceError: there is no row with this key.
    """
    fields = sql.SQL(", ").join(sql.SQL("{} = %s").format(sql.Identifier(c)) for c in values)
    statement = sql.SQL("UPDATE {} SET {} WHERE {} = %s").format(sql.Identifier(name), fields,
                                                                 sql.Identifier(KEY[name]))
    execute(world, name, statement, [*values.values(), key])


def delete(world: World, name: str, key: int) -> None:
    """Delete one row of the source, and wait for its two messages, the delete and a tombstone. Raises as `change`."""
    statement = sql.SQL("DELETE FROM {} WHERE {} = %s").format(sql.Identifier(name), sql.Identifier(KEY[name]))
    execute(world, name, statement, [key], messages=2)


def execute(world: World, name: str, statement: Any, values: Any = None, *, messages: int = 1) -> int:
    """Execute a statement that changes rows of `artists` or `artworks` in the source, wait for its events, and return
    how many rows it changed.

    Args:
        messages: how many each row gives: 1, or of a DELETE 2.
    Raises: SourceError: it changed none.
    """
    end = sum(topics.ends(world, topic(name)).values())
    changed = postgres.execute(world, statement, values, DATABASE)
    if changed < 1:
        raise SourceError(f"no row of {name} was changed", where=f"database {DATABASE}, values {values}",
                          next_step="run 53_hudi_ingest: it sets changed rows back")
    topics.wait_count(world, topic(name), end + changed * messages, connector=CONNECTOR)
    return changed


def land(spark: SparkSession, world: World) -> None:
    """Land what is new in the topics, as the sink's configuration says. Raises LakeError: some message could not be."""
    config = connect.config(world, SINK)
    landing.run(spark, world, config)
    place = landing.dead_letters_path(world, landing.parse(config))
    if files.holds_files(place):
        raise LakeError("messages could not be landed", where=place,
                        next_step="landing.dead_letters(spark, world, config) has them, each with its reason; mend "
                                  "that, then run 52_connectors: it lands all of them anew")


def follow(spark: SparkSession, world: World, *into: hudi.Table, kind: str = "", label: str = ""
           ) -> Dict[str, hudi.Ingested]:
    """Ingest what is new into these tables (all four where none is given), side by side.

    Args:
        kind: where the changes are read (see `source`): by default the landed files if the table was ever read from
            there, else the topic. What is new in the topics is landed first for "landed".
        label: put on the last commit of each, with the source's position.
    Returns: {table: counts}.
    Raises: LakeError: a message could not be landed or decoded; the museum's database writes none that cannot.
    """
    position = postgres.wal_position(world, DATABASE)
    into = into or tuple(tables(world))
    kinds = {t.name: kind or kind_of(t) for t in into}
    if "landed" in kinds.values():
        land(spark, world)

    def one(into: hudi.Table) -> hudi.Ingested:
        done = hudi.ingest(spark, world, source(_name(into), kinds[into.name]), into)
        place = dead_letters_path(world, into)
        letters = hudi.dead_letters(spark, world, into).count() if files.holds_files(place) else 0
        if letters:  # of this ingest or of one before
            raise LakeError(f"{letters} messages could not be decoded", where=f"table {into.name}",
                            next_step="hudi.dead_letters(spark, world, table) has them, each with its reason; mend "
                                      "that, then hudi.ingest(…, replay=True)")
        if not hudi.registered(spark, into):  # also where an earlier try wrote it and got no further
            hudi.register(spark, into)
        if label:
            hudi.label(world, into, label, position)
        return done

    with ThreadPoolExecutor(2) as pool:  # as many as the embedded Spark has cores
        return dict(zip((t.name for t in into), pool.map(one, into)))


def _name(table: hudi.Table) -> str:
    """Which of the museum's tables a lake table holds."""
    return next(n for n in TABLES if table.key == (KEY[n],))


def kind_of(table: hudi.Table) -> str:
    """Where a table is read from: "landed" once it was, or "topic"."""
    read = progress_in(last_commit(table))
    return "landed" if source(_name(table), "landed").id in read else "topic"
