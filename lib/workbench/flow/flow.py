"""From the source tables to the lake: change, capture, ingest and compare rows.

The functions are the same for every walkthrough. Only the captures differ.
"""

import base64
import contextlib
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Callable, Iterator, Sequence, cast

import pandas
from psycopg import sql
from pyspark.sql import DataFrame, SparkSession

from .. import connect, hudi, landing
from ..base import LakeError, SourceError, WorkbenchError, World, wait_until
from ..base.wait import background
from ..checks import check
from ..hudi import changes
from ..hudi.ingesting import last_ingest_commit, read_progress
from ..source import mariadb, postgres
from ..source.names import identifier
from ..topic import dlq, topics
from .capture import Capture, CaptureSet

CAPTURE_TIMEOUT_S = 300  # without a message of the connector
MARK_INTERVAL_S = 1  # between two messages in PostgreSQL's log


class CaptureFlow(CaptureSet):
    """The captures of one database, and the operations on their rows."""

    def rows(
        self, world: World, name: str = "", condition: str = "true", values: Any = None
    ) -> pandas.DataFrame:
        """Return the source rows of a capture, sorted by key, in the form of the messages.

        Args:
            world: the world.
            name: name of the capture; it may be omitted if there is only one.
            condition: a condition in SQL.
            values: the parameters of the condition.
        """
        capture = self.capture(name)
        rows: sql.Composable = identifier(capture.source)
        if capture.expected_sql:
            rows = sql.SQL('({}) AS "rows"').format(sql.SQL(capture.expected_sql))
        statement = sql.SQL("SELECT * FROM {} WHERE {} ORDER BY {}")
        query = statement.format(rows, sql.SQL(condition), capture.key_columns)
        return self.db.query(world, query, values, self.database)

    def comparable(self, spark: SparkSession, world: World, name: str = "") -> Capture:
        """Return a capture; its `expected_sql`, if it has one, selects the rows as the lake has them.

        Args:
            spark: the Spark session.
            world: the world.
            name: name of the capture.
        """
        return self.capture(name)

    def count(self, world: World, name: str = "") -> int:
        """Return the number of rows in the source table of a capture."""
        table = identifier(self.capture(name).source)
        query = sql.SQL("SELECT count(*) AS n FROM {}").format(table)
        return int(self.db.query(world, query, database=self.database).loc[0, "n"])

    def change(self, world: World, name: str, key: Any, /, **values: Any) -> None:
        """Set columns of one source row, and wait for its event.

        Args:
            world: the world.
            name: name of the capture.
            key: value of the key; of a key of several columns their values, as a tuple.
            **values: the new values of columns.

        Raises:
            SourceError: no row has this key, or it has another number of columns.
        """
        capture = self.capture(name)
        assignments = [sql.SQL("{} = %s").format(sql.Identifier(column)) for column in values]
        statement = sql.SQL("UPDATE {} SET {} WHERE {}").format(
            identifier(capture.source), sql.SQL(", ").join(assignments), _has_key(capture)
        )
        self.execute(world, name, statement, [*values.values(), *_key_values(capture, key)])

    def delete(self, world: World, name: str, key: Any) -> None:
        """Delete one source row, and wait for its two messages: the delete and the tombstone.

        Args:
            world: the world.
            name: name of the capture.
            key: as for `change`.

        Raises:
            SourceError: as for `change`.
        """
        capture = self.capture(name)
        statement = sql.SQL("DELETE FROM {} WHERE {}").format(
            identifier(capture.source), _has_key(capture)
        )
        self.execute(world, name, statement, _key_values(capture, key), messages=2)

    def execute(
        self, world: World, name: str, statement: Any, values: Any = None, *, messages: int = 1
    ) -> int:
        """Execute a statement that changes source rows of one capture, and wait for the events.

        Args:
            world: the world.
            name: name of the capture.
            statement: the SQL statement.
            values: parameters of the statement.
            messages: number of messages per row: 1; 2 for a DELETE; 3 for an UPDATE of the key, which
                is a DELETE and an INSERT.

        Returns:
            The number of changed rows.

        Raises:
            SourceError: the statement changed no row.
        """
        topic, connector = self.topic(world, name), self.capture(name).connector
        end = sum(topics.end_offsets(world, topic).values())
        changed: int = self.db.execute(world, statement, values, self.database)
        if changed < 1:
            raise SourceError(
                f"no row of {name} was changed",
                location=f"values {values}",
                hint="check the key; `reset` restores deleted rows",
            )
        topics.wait_for_messages(world, topic, end + changed * messages, connector=connector)
        return changed

    def deploy(self, world: World) -> dict[str, int]:
        """Deploy the connectors, and wait until their snapshots are complete.

        Returns:
            {topic: number of messages}, one for each row of the source table.
        """
        for connector in self.deployed_connectors:
            landing.apply(world, connector, self.config(world, connector))
        if self.polled:
            landing.run_once(world, *self.deployed_connectors)
        counts = {}
        for capture in self.captures:
            topic, rows = self.topic(world, capture.name), self.count(world, capture.name)
            counts[topic] = topics.wait_for_messages(
                world, topic, rows, connector=capture.connector
            )
        return counts

    def wait_until_captured(self, world: World) -> None:
        """Wait until the topics hold all changes that were committed so far.

        PostgreSQL's log gets a message, which each connector publishes after all earlier changes.
        MariaDB has no such message: there a connector commits an offset after them. Polled tables have
        nothing to wait for.

        Raises:
            WorkbenchError: a connector has failed, or has published nothing for CAPTURE_TIMEOUT_S.
        """
        for connector in () if self.polled else self.deployed_connectors:
            if self.db is postgres:
                is_reached = self._mark(world, connector)
            elif connect.offset(world, connector) is None:  # MSK Connect does not show it
                continue
            else:
                is_reached = self._committed_offset(world, connector)
            self._wait_for(world, connector, is_reached)

    def _wait_for(self, world: World, connector: str, is_reached: Callable[[], bool]) -> None:
        """Wait for a position of a connector as long as its messages arrive: one statement may change all rows."""
        captured = {self.topic(world, c.name) for c in self.captures if c.connector == connector}
        arrived = topics.all_end_offsets(world, captured.__contains__)
        while True:
            try:
                wait_until(
                    is_reached,
                    f"connector {connector} to reach the source's log position",
                    timeout=CAPTURE_TIMEOUT_S,
                    interval=0.03,
                    failure_reason=partial(connect.failure, world, connector),
                    hint=f"`workbench watch --once --world {world.name}` reports what is wrong with the flow",
                )
                return
            except WorkbenchError:
                earlier, arrived = arrived, topics.all_end_offsets(world, captured.__contains__)
                if arrived == earlier:
                    raise

    def _mark(self, world: World, connector: str) -> Callable[[], bool]:
        """Write a message into the log; return a function that returns whether its topic has it.

        The function writes the message again after MARK_INTERVAL_S: the log before the end of a snapshot is
        never read, and the connector may be about to begin one.
        """
        topic = f"{self.config(world, connector)['topic.prefix']}.message"
        mark = uuid.uuid4().hex.encode()
        statement = "SELECT pg_logical_emit_message(true, 'workbench', %s)"
        topics.create(world, topic)
        start = topics.end_offsets(world, topic)

        def write() -> float:
            self.db.query(world, statement, [mark.decode()], self.database)
            return time.monotonic()

        written = write()

        def has_arrived() -> bool:
            nonlocal written
            if time.monotonic() > written + MARK_INTERVAL_S:
                written = write()
            values = [m.value() or b"" for m in topics.read_all(world, topic, start_offsets=start)]
            return any(mark in v or base64.b64encode(mark) in v for v in values)

        return has_arrived

    def _committed_offset(self, world: World, connector: str) -> Callable[[], bool]:
        """Return a function that returns whether a connector has committed the current position.

        Raises:
            SourceError: the server's log is another one, or began anew.
        """
        # read before the log's position, which it cannot pass
        earlier = connect.offset(world, connector)
        current = self.db.log_position(world, self.database)
        position = self.db.position_to_int(current)
        committed = "{file}:{pos}".format(**earlier) if earlier else current
        if (
            committed.rpartition(".")[0] != current.rpartition(".")[0]
            or self.db.position_to_int(committed) > position
        ):
            raise SourceError(
                f"the server's log is at {current}, connector {connector} at {committed}: the log began anew "
                "(RESET MASTER), or is that of another server",
                location=f"connector {connector}, database {self.database}",
                expected="the log that the flow began with: later changes would lose against older ones",
                hint="`workbench recapture FLOW` takes a new snapshot of the connector's flow",
            )

        def is_committed() -> bool:
            offset = connect.offset(world, connector)  # empty before the first
            if not offset:
                return False
            reached = "{file}:{pos}".format(**offset)
            if self.db.position_to_int(reached) >= position:
                return True
            # after a statement such as ALTER or TRUNCATE, the connector commits no offset until the next change
            return not mariadb.has_row_changes(world, reached, current)

        return is_committed

    def land(self, spark: SparkSession, world: World) -> None:
        """Land the new messages of the topics with the sink connectors.

        Raises:
            LakeError: a message could not be landed, and its sink has no DLQ topic.
        """
        for config in (self.config(world, name) for name in self.sinks):
            landing.run(world, config)
            sink = landing.parse(config)
            uri = landing.dead_letters_path(world, sink)
            reasons = dlq.reasons(uri)
            if reasons and not sink.dlq_topic:  # otherwise that topic has them
                raise LakeError(
                    "messages could not be landed",
                    location=f"{uri}, such as: {next(iter(reasons))}",
                    hint="landing.dead_letters(world, config) shows them with their reasons; fix the cause, "
                    "then run the notebook on connectors: it lands all messages again",
                )

    def source_kind(self, world: World, table: hudi.Table) -> str:
        """Return the kind of source of a lake table: "landed" if landed files were ever ingested, else "topic"."""
        capture = self._capture_for(world, table)
        if not capture.sink:
            return "topic"
        landed = self.source(world, capture.name, "landed").id
        return "landed" if landed in read_progress(last_ingest_commit(table)) else "topic"

    def _capture_for(self, world: World, table: hudi.Table) -> Capture:
        """Return the capture of a lake table.

        This is the capture that declares the table, or for a scratch table the one with the same key.

        Raises:
            LakeError: no capture has this key, or several have it.
        """
        candidates = [
            c for c in self.captures if table.base in {t.base for t in self.tables(world, c.name)}
        ] or [c for c in self.captures if c.keys == table.key]
        if len(candidates) != 1:
            raise LakeError(
                f"the key {', '.join(table.key)} does not identify the captured table of "
                f"{table.name}",
                location=table.base,
                expected=f"a table in `lake` of one of {', '.join(self.names)}",
            )
        return candidates[0]

    def sync(
        self, spark: SparkSession, world: World, *into: hudi.Table, kind: str = "", label: str = ""
    ) -> dict[str, hudi.Ingested]:
        """Ingest all changes that the source has committed so far.

        Args:
            spark: the Spark session.
            world: the world.
            into: the lake tables, by default all. They are written in parallel.
            kind: kind of source (see `source`), by default `source_kind` of each table. Before
                landed files are ingested, the new messages are landed.
            label: label for the last commit of each table; it records the source's log position.

        Returns:
            {table: counts}.

        Raises:
            LakeError: a message could not be landed or decoded.
        """
        self.wait_until_captured(world)
        position = self.db.log_position(world, self.database)
        counts = self.ingest(spark, world, *into, kind=kind)
        if label:
            for table in into or self.tables(world):
                hudi.label(world, table, label, position)
        return counts

    def ingest(
        self,
        spark: SparkSession,
        world: World,
        *into: hudi.Table,
        kind: str = "",
        stop: Callable[[], bool] = lambda: False,
    ) -> dict[str, hudi.Ingested]:
        """Ingest the changes that the topics hold now, as `sync` does; the source is not queried.

        Args:
            spark: the Spark session.
            world: the world.
            *into: as for `sync`.
            kind: as for `sync`.
            stop: called between two batches; the ingest ends when it returns true.

        Raises:
            LakeError: messages could not be decoded. The error is raised once, after all tables were ingested: the next
                call continues after these messages.
        """
        return self._run(world, self._jobs(spark, world, into, kind), stop)

    def follow(
        self,
        spark: SparkSession,
        world: World,
        *into: hudi.Table,
        kind: str = "",
        stop: threading.Event,
    ) -> Iterator[dict[str, hudi.Ingested]]:
        """Ingest the changes that the topics hold, and later ones as they arrive, until `stop` is set.

        Args:
            spark: the Spark session.
            world: the world.
            *into: as for `sync`.
            kind: as for `sync`.
            stop: ends the ingest between two batches.

        Yields:
            The counts of each round, {table: counts}: first of all tables, then of those that may have
            changes. No table is locked between two rounds, which follow each other after a second at most.
        """
        jobs = self._jobs(spark, world, into, kind)
        for due in hudi.wait_for_changes(world, jobs, stop):
            yield self._run(world, due, stop.is_set)

    @contextlib.contextmanager
    def following(
        self, spark: SparkSession, world: World, *into: hudi.Table, pause: float = 0.0
    ) -> Iterator[dict[str, hudi.Ingested]]:
        """Follow in a thread while the block runs.

        Args:
            spark: the Spark session.
            world: the world.
            *into: as for `sync`.
            pause: seconds between two rounds.

        Yields:
            {table: counts so far}.
        """
        ingested: dict[str, hudi.Ingested] = {}

        def follow(stop: threading.Event) -> None:
            for counts in self.follow(spark, world, *into, stop=stop):
                for name, added in counts.items():
                    ingested[name] = ingested.get(name, hudi.Ingested()) + added
                stop.wait(pause)

        with background(follow):
            yield ingested

    def _jobs(
        self, spark: SparkSession, world: World, into: Sequence[hudi.Table], kind: str
    ) -> list[hudi.IngestJob]:
        """Return an ingest for each lake table."""
        jobs = []
        for table in into or self.tables(world):
            name = self._capture_for(world, table).name
            source = self.source(world, name, kind or self.source_kind(world, table))
            jobs.append(hudi.IngestJob(spark, world, source, table))
        return jobs

    def _run(
        self, world: World, jobs: Sequence[hudi.IngestJob], stop: Callable[[], bool]
    ) -> dict[str, hudi.Ingested]:
        """Run ingests, two at a time; before, land the new messages if a source is landed files."""
        landed = [job for job in jobs if isinstance(job.source, hudi.Landed)]
        if landed:
            self.land(landed[0].spark, world)

        def run(job: hudi.IngestJob) -> hudi.Ingested:
            spark, table = job.spark, job.table
            counts = job.run(stop)
            # this also repairs an earlier run that stopped before the registration
            if hudi.exists(table) and not hudi.is_registered(spark, table):
                hudi.register(spark, table)
            return counts

        with ThreadPoolExecutor(2) as pool:  # the embedded Spark has two cores
            counts = dict(zip((job.table.name for job in jobs), pool.map(run, jobs)))
        self.require_no_dead_letters(
            world, [(job.table, counts[job.table.name].dead_letters) for job in jobs]
        )
        return counts

    def require_no_dead_letters(self, world: World, counts: list[tuple[hudi.Table, int]]) -> None:
        """Raise LakeError with reasons and origins if tables have dead letters.

        Args:
            world: the world.
            counts: each table, with the number of its newest dead letters that count.
        """
        found, uris, commands = [], [], []
        for table, count in counts:
            if not count:
                continue
            uri = hudi.dead_letters_path(world, table)
            records = dlq.read_files(uri)[:count]
            by_reason = {each["reason"]: dlq.describe_origin(each) for each in records}
            reasons = "; ".join(f"{reason} ({origin})" for reason, origin in by_reason.items())
            found.append(f"{count} of {table.name}, {reasons:.1000}")
            uris.append(uri)
            folder = dlq.folder_name(world, uri)
            remedy = self.dead_letter_remedy(world, self._capture_for(world, table))
            commands.append(f"`workbench dlq show {folder} --world {world.name}`; {remedy}")
        if found:
            raise LakeError(
                f"messages could not be decoded: {'; '.join(found)}",
                location=", ".join(uris),
                hint=", ".join(commands),
            )

    def dead_letter_remedy(self, world: World, capture: Capture) -> str:
        """Return what brings the rows of dead letters into the lake."""
        return "fix the cause, then run hudi.ingest(…, replay=True)"

    def compare(self, spark: SparkSession, world: World, *tables: hudi.Table) -> None:
        """Check that lake tables equal the source in every column of every row.

        Args:
            spark: the Spark session.
            world: the world.
            tables: the lake tables, by default all.
        """
        for table in tables or self.tables(world):
            source = self.rows(world, self._capture_for(world, table).name)
            lake = hudi.read(spark, table)
            if table.deletes == "soft":
                lake = lake.where("coalesce(__deleted, 'false') <> 'true'")
            columns = [column for column in source.columns if column in lake.columns]
            check.same_rows(  # a column that the lake lacks is a difference
                source,
                cast(pandas.DataFrame, lake.toPandas())[columns],
                key=table.key,
                claim=f"{table.name} = source, row by row",
            )

    def events(self, spark: SparkSession, world: World, name: str = "") -> DataFrame:
        """Return all messages of a topic, decoded.

        Returns:
            Columns partition, offset, outcome (upsert, delete, tombstone or dead), then the fields
            of the row, which are null for a tombstone.

        Raises:
            LakeError: the topic does not exist, or it is empty.
        """
        source, table = self.source(world, name), self.tables(world, name)[0]
        batch = changes.create_reader(spark, world, source, table, 10_000_000).next({})
        if batch is None:
            raise LakeError(
                f"topic {source.name} is empty",
                hint="run the notebook on connectors: it deploys the connector",
            )
        return batch.rows.select("partition", "offset", "outcome", "row.*")

    def rows_at(self, events: pandas.DataFrame, name: str, position: str) -> pandas.DataFrame:
        """Return the rows of a table at a position of the source's log, from its events.

        The result has the last event of each key before the position, including deletes. The position
        is exclusive, because the next change will have it. Snapshot rows are always included: they
        are older than any change, and a snapshot need not advance the log.

        Args:
            events: the result of `events`, as a pandas data frame.
            name: name of the capture.
            position: a position such as `16/B374D848`.
        """
        before = events["__lsn"] < self.db.position_to_int(position)
        history = events[before | (events["__op"] == "r")].sort_values("__lsn")
        return history.groupby([*self.capture(name).keys], as_index=False).tail(1)


def _has_key(capture: Capture) -> sql.Composed:
    """Return the condition that a row has the key of `_key_values`."""
    marks = sql.SQL(", ").join([sql.Placeholder()] * len(capture.keys))
    return sql.SQL("({}) = ({})").format(capture.key_columns, marks)


def _key_values(capture: Capture, key: Any) -> list[Any]:
    values = [*key] if isinstance(key, tuple) else [key]
    if len(values) != len(capture.keys):
        raise SourceError(f"{key!r} is no key of {capture.name}", expected=", ".join(capture.keys))
    return values
