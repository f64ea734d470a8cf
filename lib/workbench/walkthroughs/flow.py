"""The way of source tables to the lake, the same in every walkthrough: names, changes, following,
comparing.

What is particular to a walkthrough is data: its captures.
"""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Callable, Optional

import pandas
from psycopg import sql
from pyspark.sql import DataFrame, SparkSession

from .. import connect, hudi, landing
from ..base import LakeError, SourceError, World, did_you_mean, files, wait_until
from ..hudi import changes
from ..hudi.ingesting import last_ingest_commit, read_progress
from ..landing.sources import topic_name
from ..results import check
from ..source import mariadb, postgres
from ..source.names import identifier
from ..spark import session
from ..topic import registry, topics
from ..trace import TracedTable
from .capture import Capture

SOURCE_KINDS = ("topic", "landed")
ENGINES = {"postgres": postgres, "mariadb": mariadb}


@dataclass(frozen=True)
class Flow:
    """The captures of one database. Where there is one only, its name may be left out below.

    database: None for the world's own. config: a connector's configuration by its name. engine: of
        the database, one
    of ENGINES; a table of MariaDB's is `database.table`.
    watermark: whether `settle` may write. Not where the notebooks count events: there each change
        waits for its own;
    nor in MariaDB, where a row that is written unchanged makes no event.
    polled: whether connectors ask the tables what is new, instead of the log, and connectors land
        that. What reads
    events of the log is nothing for these: tracing, following, settling.
    """

    captures: tuple[Capture, ...]
    database: Optional[str] = None
    config: Callable[[World, str], dict[str, str]] = connect.config
    watermark: bool = True
    polled: bool = False
    engine: str = "postgres"

    @property
    def db(self) -> ModuleType:
        """The functions of its database."""
        return ENGINES[self.engine]

    @property
    def names(self) -> tuple[str, ...]:
        """The captured tables."""
        return tuple(c.name for c in self.captures)

    @property
    def sinks(self) -> list[str]:
        """The configurations of what lands them, each once."""
        return list(dict.fromkeys(c.sink for c in self.captures if c.sink))

    @property
    def deployed_connectors(self) -> list[str]:
        """The connectors without which nothing is captured, each once."""
        return [
            *dict.fromkeys(c.connector for c in self.captures),
            *(self.sinks if self.polled else ()),
        ]

    def capture(self, name: str = "") -> Capture:
        """The capture of a table. Raises: LakeError: there is none of this name."""
        found = [c for c in self.captures if c.name == name or not name and len(self.captures) == 1]
        if not found:
            raise LakeError(
                f"there is no captured table {name!r}", expected=did_you_mean(str(name), self.names)
            )
        return found[0]

    def topic(self, world: World, name: str = "") -> str:
        """Name of a table's topic."""
        capture = self.capture(name)
        return topic_name(self.config(world, capture.connector), capture.source)

    def table(self, world: World, name: str = "", kind: str = "", /, **more: object) -> hudi.Table:
        """The lake table of a captured table, of a kind ("cow" or "mor") where it has several;
        `more` changes any of its fields.
        """
        capture = self.capture(name)
        fields = next((f for f in capture.lake if kind in ("", f.get("type", "cow"))), None)
        if fields is None:
            raise LakeError(
                f"{capture.name} has no lake table of kind {kind!r}",
                expected=did_you_mean(kind, [f.get("type", "cow") for f in capture.lake]),
            )
        return capture.table(world, {**fields, **more})

    def tables(self, world: World, *names: str) -> list[hudi.Table]:
        """All lake tables of these captured tables, or of all."""
        return [
            c.table(world, fields)
            for c in map(self.capture, names or self.names)
            for fields in c.lake
        ]

    def source(self, world: World, name: str = "", kind: str = "topic") -> changes.Source:
        """Where the changes of a table are read: "topic", straight from Kafka, or "landed", the
        files of the sink.
        """
        if kind not in SOURCE_KINDS:
            raise LakeError(
                f"changes cannot be read from {kind!r}", expected=did_you_mean(kind, SOURCE_KINDS)
            )
        topic, capture = self.topic(world, name), self.capture(name)
        if kind == "topic":
            return hudi.Topic(topic, format=capture.format)
        return hudi.Landed(
            landing.parse(self.config(world, capture.sink)).prefix_of(topic), format=capture.format
        )

    def landing_folder(self, world: World, name: str = "") -> str:
        """Address of the folder that the sink lands a table's messages in."""
        return f"{world.lake.landing}/{self.source(world, name, 'landed').name}"

    def traced_table(self, world: World, name: str = "") -> TracedTable:
        """What trace.row takes: where a table's rows can be met. Raises: LakeError: its key has
        several columns, or it is polled.
        """
        c = self.capture(name)
        if self.polled or not isinstance(c.key, str):
            why = "it is polled" if self.polled else f"its key is {', '.join(c.key)}"
            raise LakeError(
                f"{c.name} cannot be traced: {why}",
                expected="a key of one column, captured from the log",
            )
        sink = landing.parse(self.config(world, c.sink)) if c.sink else None
        return TracedTable(
            c.name,
            c.source,
            c.key,
            self.topic(world, name),
            sink,
            tuple(self.tables(world, c.name)),
            c.format,
        )

    def rows(
        self, world: World, name: str = "", where: str = "true", values: Any = None
    ) -> pandas.DataFrame:
        """The rows of a table in the source, by key, as they travel; `where` is a condition in
        SQL.
        """
        c = self.capture(name)
        rows = (
            sql.SQL('({}) AS "rows"').format(sql.SQL(c.expected_sql))
            if c.expected_sql
            else identifier(c.source)
        )
        asked = sql.SQL("SELECT * FROM {} WHERE {} ORDER BY {}").format(
            rows, sql.SQL(where), c.key_columns
        )
        return self.db.query(world, asked, values, self.database)

    def count(self, world: World, name: str = "") -> int:
        """How many rows the source has."""
        asked = sql.SQL("SELECT count(*) AS n FROM {}").format(
            identifier(self.capture(name).source)
        )
        return int(self.db.query(world, asked, database=self.database).loc[0, "n"])

    def change(self, world: World, name: str, key: Any, /, **values: Any) -> None:
        """Set columns of one row of the source, and wait for its event. Raises as `execute`."""
        c = self.capture(name)
        fields = sql.SQL(", ").join(
            sql.SQL("{} = %s").format(sql.Identifier(column)) for column in values
        )
        statement = sql.SQL("UPDATE {} SET {} WHERE {} = %s").format(
            identifier(c.source), fields, c.key_columns
        )
        self.execute(world, name, statement, [*values.values(), key])

    def delete(self, world: World, name: str, key: Any) -> None:
        """Delete one row of the source, and wait for its two messages, the delete and a tombstone.
        Raises as `execute`.
        """
        c = self.capture(name)
        statement = sql.SQL("DELETE FROM {} WHERE {} = %s").format(
            identifier(c.source), c.key_columns
        )
        self.execute(world, name, statement, [key], messages=2)

    def execute(
        self, world: World, name: str, statement: Any, values: Any = None, *, messages: int = 1
    ) -> int:
        """Execute a statement that changes rows of one table in the source, wait for its events,
        and return how many rows it changed.

        Args:
            messages: how many each row gives: 1; of a DELETE 2; of an UPDATE of the key 3, DELETE
                and INSERT.
        Raises: SourceError: it changed none.
        """
        topic, connector = self.topic(world, name), self.capture(name).connector
        end = sum(topics.end_offsets(world, topic).values())
        changed = self.db.execute(world, statement, values, self.database)
        if changed < 1:
            raise SourceError(
                f"no row of {name} was changed",
                location=f"values {values}",
                hint="is the key right? A row that was deleted comes back with `reset`",
            )
        topics.wait_for_messages(world, topic, end + changed * messages, connector=connector)
        return changed

    def deploy(self, world: World) -> dict[str, int]:
        """Deploy what captures, and wait for its snapshot: {topic: messages}, as many as the tables
        have rows.
        """
        for connector in self.deployed_connectors:
            landing.apply(world, connector, self.config(world, connector))
        if self.polled:
            landing.run_once(session(world), world, *self.deployed_connectors)
        return {
            self.topic(world, c.name): topics.wait_for_messages(
                world, self.topic(world, c.name), self.count(world, c.name), connector=c.connector
            )
            for c in self.captures
        }

    def wait_until_captured(self, world: World) -> None:
        """Wait until the topics have everything that was committed so far.

        A watermark: one row is written unchanged, and its event is waited for; all earlier ones
        stand before it.
        """
        for c in self.captures if self.watermark else ():
            position = self.db.position_to_int(self.db.log_position(world, self.database))
            self.db.execute(
                world,
                sql.SQL(
                    "UPDATE {0} SET {1} = {1} WHERE ({2}) = (SELECT {2} FROM {0} ORDER BY {2} LIMIT 1)"
                ).format(identifier(c.source), sql.Identifier(c.keys[0]), c.key_columns),
                database=self.database,
            )
            wait_until(
                lambda c=c, position=position: self._last_captured_position(world, c) >= position,
                f"topic {self.topic(world, c.name)} to reach the source's position",
                timeout=60,
                interval=0.2,
                failure_reason=lambda c=c: connect.failure(world, c.connector),
            )

    def _last_captured_position(self, world: World, capture: Capture) -> int:
        """The position in the source's log of the last message of a topic."""
        topic = self.topic(world, capture.name)
        ends = topics.end_offsets(world, topic)
        last = topics.read(
            world, topic, start_offsets={p: max(0, end - 1) for p, end in ends.items()}
        )["value"].dropna()
        if capture.format == "avro":
            found = [registry.inspect_message(world, value)["record"] for value in last]
        else:
            found = [body.get("payload", body) for body in map(json.loads, last)]
        return max((int(row["__lsn"]) for row in found), default=0)

    def land(self, spark: SparkSession, world: World) -> None:
        """Land what is new in the topics, as the sinks say. Raises LakeError: some message could
        not be, of a sink that names no topic for those.
        """
        for config in (self.config(world, name) for name in self.sinks):
            landing.run(spark, world, config)
            sink = landing.parse(config)
            if not sink.dlq_topic:  # where it names a topic, they are looked after there
                _raise_on_dead_letters(
                    landing.dead_letters_path(world, sink),
                    "landed",
                    "landing.dead_letters(spark, world, config)",
                    "run the notebook on connectors: it lands all of them anew",
                )

    def source_kind(self, world: World, table: hudi.Table) -> str:
        """Where a lake table is read from: "landed" once it was, or "topic"."""
        capture = self._capture_for(world, table)
        landed = capture.sink and self.source(world, capture.name, "landed").id in read_progress(
            last_ingest_commit(table)
        )
        return "landed" if landed else "topic"

    def _capture_for(self, world: World, table: hudi.Table) -> Capture:
        """The capture that a lake table holds: the one that declares it; of an experiment's, the
        one with its key.
        Raises: LakeError: several have that key, or none.
        """
        found = [
            c for c in self.captures if table.base in (t.base for t in self.tables(world, c.name))
        ] or [c for c in self.captures if table.key == c.keys]
        if len(found) != 1:
            raise LakeError(
                f"which captured table {table.name} holds cannot be told by its key {', '.join(table.key)}",
                location=table.base,
                expected=f"a table in `lake` of one of {', '.join(self.names)}",
            )
        return found[0]

    def sync(
        self, spark: SparkSession, world: World, *into: hudi.Table, kind: str = "", label: str = ""
    ) -> dict[str, hudi.Ingested]:
        """Bring what is new in the source into these tables (all where none is given), side by
        side.

        Args:
            kind: where the changes are read (see `source`): by default the landed files if the
                table was ever read from there, else the topic. What is new in the topics is landed
                first for "landed".
            label: put on the last commit of each, with the source's position.
        Returns: {table: counts}.
        Raises: LakeError: a message could not be landed or decoded.
        """
        self.wait_until_captured(world)
        position = self.db.log_position(world, self.database)
        done = self.ingest(spark, world, *into, kind=kind)
        for table in (into or self.tables(world)) if label else ():
            hudi.label(world, table, label, position)
        return done

    def ingest(
        self,
        spark: SparkSession,
        world: World,
        *into: hudi.Table,
        kind: str = "",
        stop: Callable[[], bool] = lambda: False,
    ) -> dict[str, hudi.Ingested]:
        """The same with what is in the topics by now: nothing is asked of the source.

        stop: asked between two batches whether to leave it at that.
        """
        into = into or tuple(self.tables(world))
        kinds = {t.name: kind or self.source_kind(world, t) for t in into}
        if "landed" in kinds.values():
            self.land(spark, world)

        def one(table: hudi.Table) -> hudi.Ingested:
            source = self.source(world, self._capture_for(world, table).name, kinds[table.name])
            done = hudi.ingest(spark, world, source, table, stop=stop)
            _raise_on_dead_letters(
                hudi.dead_letters_path(world, table),
                "decoded",
                "hudi.dead_letters(spark, world, table)",
                "hudi.ingest(…, replay=True)",
            )  # also where they are of an ingest before this one
            if not hudi.is_registered(spark, table) and hudi.exists(
                table
            ):  # also where an earlier try got no further
                hudi.register(spark, table)
            return done

        with ThreadPoolExecutor(2) as pool:  # as many as the embedded Spark has cores
            return dict(zip((t.name for t in into), pool.map(one, into)))

    def compare(self, spark: SparkSession, world: World, *tables: hudi.Table) -> None:
        """Check these lake tables (all where none is given) against the source: every column of
        every row.
        """
        for table in tables or self.tables(world):
            source, lake = (
                self.rows(world, self._capture_for(world, table).name),
                hudi.read(spark, table),
            )
            if table.deletes == "soft":
                lake = lake.where("coalesce(__deleted, 'false') <> 'true'")
            check.same_rows(
                source,
                lake.toPandas()[source.columns],
                key=table.key,
                claim=f"{table.name} = source, row by row",
            )

    def events(self, spark: SparkSession, world: World, name: str = "") -> DataFrame:
        """All messages of a topic, decoded: partition, offset, outcome (upsert, delete, tombstone,
        dead), then the row's fields, which are null of a tombstone.

        Raises: LakeError: there is no such topic, or it is empty.
        """
        source, table = self.source(world, name), self.tables(world, name)[0]
        batch = changes.create_reader(spark, world, source, table, 10_000_000).next({}, 0)
        if batch is None:
            raise LakeError(
                f"topic {source.name} is empty",
                hint="run the notebook on connectors: it deploys the connector",
            )
        return batch.rows.select("partition", "offset", "outcome", "row.*")

    def rows_at(self, events: pandas.DataFrame, name: str, position: str) -> pandas.DataFrame:
        """The rows of a table as its events (see `events`, as pandas) have them at a position of
        the source's log, such as `16/B374D848`: of each key the last event before it, deletes
        included. (The next change will stand at that position, so it is exclusive. The snapshot is
        older than any, and need not have moved the log.)
        """
        so_far = events[
            (events["__lsn"] < self.db.position_to_int(position)) | (events["__op"] == "r")
        ]
        return (
            so_far.sort_values("__lsn").groupby([*self.capture(name).keys], as_index=False).tail(1)
        )


def _raise_on_dead_letters(place: str, done: str, asked: str, again: str) -> None:
    """Raise LakeError where there are dead letters."""
    if files.list_files(place):
        raise LakeError(
            f"messages could not be {done}",
            location=place,
            hint=f"{asked} has them, each with its reason; mend that, then {again}",
        )
