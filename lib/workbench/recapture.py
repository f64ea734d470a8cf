"""Capture tables anew with a new connector, a new snapshot and new topics.

A recapture is required if a column changes to an incompatible type. The old topic and its schemas in
the registry have both types, so no table can be built from that topic. The old capture is removed only
after copies of the lake tables, filled from the new topics, equal the source.
"""

import json
import re
import zlib
from dataclasses import dataclass
from itertools import count
from typing import Any, Callable, Iterator, Optional, TypedDict, Union

from psycopg import sql
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from . import connect, hudi
from .base import ConnectorError, LakeError, WorkbenchError, World, did_you_mean, files, wait_until
from .checks import check_values
from .connect.configs import SCHEMA_HISTORY_PREFIX
from .hudi import decode, evolution, tables
from .hudi.changes import SourceProgress
from .hudi.ingesting import (
    REPLACED_BY,
    check_ordering,
    last_ingest_commit,
    read_progress,
)
from .hudi.rewriting import finish_rewrite, rewrite
from .hudi.timeline import PROGRESS_KEY, SCHEMA_CHANGE_KEY, completed_actions
from .landing.sources import topic_name
from .source import databases
from .source.names import identifier
from .topic import registry, topics

ConnectorConfig = dict[str, str]


class Journal(TypedDict, total=False):
    """The journal of a recapture; empty before the first one.

    Attributes:
        suffix: suffix of the new names, such as `_r2`.
        tables: source, path in the lake and former name (if any) of each table.
        done: whether the recapture is finished.
        made: {connector that was deployed: its configuration, reduced to JOURNAL_KEYS}.
    """

    suffix: str
    tables: list[list[str]]
    done: bool
    made: dict[str, ConnectorConfig]


INCLUDE_LIST = "table.include.list"
DEFAULT_SLOT = "debezium"  # the slot of a PostgreSQL connector without slot.name
HISTORY_TOPIC = f"{SCHEMA_HISTORY_PREFIX}.kafka.topic"
JOURNAL_KEYS = (
    "connector.class",
    "topic.prefix",
    INCLUDE_LIST,
    "slot.name",
    "database.dbname",
    HISTORY_TOPIC,
)
ENGINES = databases.BY_CONNECTOR_CLASS


@dataclass(frozen=True)
class CapturedTable:
    """A source table and the lake table that holds its rows.

    Attributes:
        source: `schema.table`, for MariaDB `database.table`.
        table: the lake table.
        schema: schema of JSON messages, as in `hudi.ingest`.
        expected_sql: SQL that returns the source's rows as the lake stores them; required if a
            column is transported as another type (docs/types.md).
        former_name: the previous name, `schema.table`, of a table that was renamed at the source.
            The lake table has read the topic of that name. The name is removed from the old
            connector's table.include.list, so no source table may have this name now.
    """

    source: str
    table: hudi.Table
    schema: Optional[T.StructType] = None
    expected_sql: str = ""
    former_name: str = ""

    @property
    def names(self) -> list[str]:
        """The current and the former name of the table at the source."""
        return [name for name in (self.source, self.former_name) if name]


@dataclass(frozen=True)
class RecaptureResult:
    """The result of a recapture.

    Attributes:
        connector: name of the new connector.
        config: its configuration.
        rows: number of rows of each lake table.
        old_topics: existing topics that no connector publishes to any more.
    """

    connector: str
    config: ConnectorConfig
    rows: dict[str, int]
    old_topics: list[str]


def run(
    spark: SparkSession,
    world: World,
    connector: str,
    config: ConnectorConfig,
    *captured: CapturedTable,
    timeout: Optional[float] = None,
    progress: Callable[[str], None] = print,
) -> RecaptureResult:
    """Capture tables anew, with a new connector, topic prefix, replication slot and snapshot.

    The lake tables keep their names, paths and labels, and get the current columns of the source.
    Each is replaced in one commit, after the copies of all of them have equaled the source. Repeat
    an interrupted call with the same arguments to resume it. Afterwards `hudi.ingest` reads the new
    topics and rejects the old ones for these tables.

    Args:
        spark: the Spark session.
        world: the world of connector and tables.
        connector: name of the Debezium connector (PostgreSQL, MariaDB or MySQL) that captures the
            tables. If `captured` has all of its tables, the connector is deleted with its slot.
            Otherwise the tables are removed from its table.include.list.
        config: configuration of this connector, as for `connect.apply`.
        captured: the source tables, with every lake table that holds their rows.
        timeout: seconds for the snapshot, and for a copy to equal the source. Default: one minute
            plus one second per 500 rows.
        progress: called with one line per step.

    Returns:
        The new connector, the rows of the lake tables and the unused topics.

    Raises:
        ConnectorError: the connector does not exist, is of another kind or does not capture the
            tables; or the new connector is rejected or has failed.
        LakeError: a message cannot be decoded; a copy does not equal the source in time; the source
            table is empty; a lake table is named twice, or holds rows of other sources; an ingest
            into a table is running; another recapture of this connector is not finished. The old
            tables and the old connector are then unchanged.
    """
    job = _Recapture(spark, world, connector, config, captured, timeout, progress)
    with files.exclusive_lock(
        job.journal_uri, f"recapture of {connector}", "wait until it is done"
    ):
        return job.run()


def _connector_class(config: ConnectorConfig) -> str:
    return config.get("connector.class", "").rpartition(".")[2]


def _slot_name(config: ConnectorConfig) -> str:
    """Return the replication slot that a connector reads, "" for a database without slots."""
    if not isinstance(ENGINES.get(_connector_class(config)), databases.SlotDatabase):
        return ""
    return config.get("slot.name", DEFAULT_SLOT)


def _with_suffix(text: str, suffix: str) -> str:
    return re.sub(r"_r\d+$", "", text) + suffix


def _include_patterns(config: ConnectorConfig) -> list[str]:
    patterns = (pattern.strip() for pattern in config.get(INCLUDE_LIST, "").split(","))
    return [pattern for pattern in patterns if pattern]


def _captures_table(config: ConnectorConfig, source: str) -> bool:
    patterns = _include_patterns(config)
    return not patterns or any(re.fullmatch(pattern, source, re.I) for pattern in patterns)


def renamed_config(config: ConnectorConfig, suffix: str, sources: list[str]) -> ConnectorConfig:
    """Return the configuration of a new connector for some of the tables.

    It has another topic prefix and slot, and takes a snapshot. For MySQL and MariaDB it also has
    another server id and schema history topic.

    Args:
        config: configuration of the old connector.
        suffix: suffix of the new names, such as `_r2`.
        sources: the source tables.
    """
    new = {**config, INCLUDE_LIST: ",".join(sources), "snapshot.mode": "initial"}
    new.pop("name", None)
    slot = _slot_name(config)
    if slot:
        new["slot.name"] = slot
    for key in ("topic.prefix", "slot.name", HISTORY_TOPIC):
        if key in new:
            new[key] = _with_suffix(new[key], suffix)
    if "database.server.id" in new:
        checksum = zlib.crc32(new["topic.prefix"].encode())
        new["database.server.id"] = str(1 + checksum % (2**31 - 1))
    return new


def journals(world: World, *connectors: str) -> dict[str, Journal]:
    """Return the journals of these connectors, and of those that recaptures derived from them.

    Returns:
        {URI of a journal: its content}.
    """
    folder = f"{world.lake.checkpoints}/recapture"
    existing = files.list_files(folder) if connectors else {}
    contents: dict[str, Journal] = {}
    waiting = [*connectors]
    while waiting:
        name = f"{tables.safe_file_name(waiting.pop())}.json"
        uri = f"{folder}/{name}"
        if name in existing and uri not in contents:
            contents[uri] = json.loads(files.read_text(uri) or "{}")
            waiting += contents[uri].get("made", {})
    return contents


def connectors_of_recaptures(world: World, *connectors: str) -> dict[str, ConnectorConfig]:
    """Return the connectors that recaptures of these connectors have deployed.

    A connector that has been deleted since is included: its topics and its slot may still exist.

    Returns:
        {connector: its configuration, reduced to JOURNAL_KEYS}.
    """
    deployed: dict[str, ConnectorConfig] = {}
    for journal in journals(world, *connectors).values():
        deployed.update(journal.get("made", {}))
    return deployed


@dataclass
class _Recapture:
    """One recapture: its connectors and its journal.

    The journal names the new connector before that is deployed. `suffix` is the suffix of the new
    names; it is empty until it is read from the journal or chosen.
    """

    spark: SparkSession
    world: World
    connector: str
    config: ConnectorConfig
    captured: tuple[CapturedTable, ...]
    timeout: Optional[float] = None
    progress: Callable[[str], None] = print
    suffix: str = ""

    def __post_init__(self) -> None:
        kind = _connector_class(self.config)
        if kind not in ENGINES:
            raise ConnectorError(
                f"connector {self.connector!r} cannot be recaptured: its class is {kind!r}",
                expected=f"one of {', '.join(ENGINES)}",
            )
        self.engine = ENGINES[kind]
        file = f"{tables.safe_file_name(self.connector)}.json"
        self.journal_uri = f"{self.world.lake.checkpoints}/recapture/{file}"
        self.sources = list(dict.fromkeys(each.source for each in self.captured))
        former_names = [name for each in self.captured for name in each.names]
        self.names = list(dict.fromkeys([*self.sources, *former_names]))
        self.database = self.config.get("database.dbname")
        is_avro = "avro" in self.config.get("value.converter", "").lower()
        self.format = "avro" if is_avro else "json"
        self.table_entries = [[c.source, c.table.base, *c.names[1:]] for c in self.captured]
        # patterns of the old connector that match exactly one name, by current and former name
        patterns = _include_patterns(self.config)
        self.literal_patterns = {
            name: [p for p in patterns if p.replace("\\", "") == name] for name in self.names
        }
        # Only a connector whose list has each of the tables literally can be changed.
        self.are_literal = all(self.literal_patterns[source] for source in self.sources)
        # The old connector no longer captures these afterwards.
        self.released_names = [
            name for name in self.names if name in self.sources or self.literal_patterns[name]
        ]

    @property
    def new_connector(self) -> str:
        return _with_suffix(self.connector, self.suffix)

    @property
    def new_config(self) -> ConnectorConfig:
        return renamed_config(self.config, self.suffix, self.sources)

    def run(self) -> RecaptureResult:
        journal = self._read_journal()
        self.suffix = journal.get("suffix", "")
        if self._is_finished(journal):
            return self._result(connect.deployed(self.world, self.new_connector))
        is_resumed = self._is_resumable(journal)
        replacements = [_Replacement(self, each) for each in self.captured]
        if not is_resumed:
            self._validate(replacements)
            for each in replacements:
                each.drop_copy()  # the copy of an abandoned recapture
            self.suffix = next(self._free_suffixes())
            connect.validate(self.world, self.new_config, self.new_connector)
            self._write_journal(is_done=False)
        # Tables may have been added to a new connector that is running: leave it as it is.
        if not is_resumed or connect.failure(self.world, self.new_connector):
            connect.apply(self.world, self.new_connector, self.new_config)
        self.progress(
            f"connector {self.new_connector} takes a snapshot of {', '.join(self.sources)} "
            f"into {self.new_config['topic.prefix']}.*"
        )
        for each in replacements:
            if not each.is_done():
                each.fill_copy()
        for each in replacements:
            each.replace_rows()
        for each in replacements:
            each.drop_copy()
        self._release_old_connector()
        self._write_journal(is_done=True)
        return self._result(self.new_config)

    def _result(self, config: ConnectorConfig) -> RecaptureResult:
        new = {key: value for key, value in config.items() if key != "name"}
        changed = [f"{k}={v}" for k, v in sorted(new.items()) if self.config.get(k) != v]
        self.progress(
            f"done. Keep the new configuration: connector {self.new_connector}, "
            + ", ".join(changed)
        )
        rows = {c.table.name: hudi.read(self.spark, c.table).count() for c in self.captured}
        old_topics = []
        if self.are_literal:
            existing = topics.names(self.world)
            uncaptured = [name for name in self.names if not _captures_table(self.config, name)]
            names = [*self.released_names, *uncaptured]
            old_topics = [topic_name(self.config, name) for name in names]
            old_topics = [topic for topic in old_topics if topic in existing]
        return RecaptureResult(self.new_connector, new, rows, old_topics)

    # --- which connector

    def _read_journal(self) -> Journal:
        journal: Journal = json.loads(files.read_text(self.journal_uri) or "{}")
        return journal

    def _write_journal(self, *, is_done: bool) -> None:
        config = {key: value for key, value in self.new_config.items() if key in JOURNAL_KEYS}
        journal: Journal = {
            "suffix": self.suffix,
            "tables": self.table_entries,
            "done": is_done,
            "made": {**self._read_journal().get("made", {}), self.new_connector: config},
        }
        files.write_text(self.journal_uri, json.dumps(journal))

    def _is_finished(self, journal: Journal) -> bool:
        """Return whether these tables were recaptured and the result still exists.

        The result is the new connector, and no old one that captures any of the tables.
        """
        if not journal.get("done") or journal["tables"] != self.table_entries:
            return False
        deployed = connect.names(self.world)
        if self.new_connector not in deployed:
            return False
        if self.connector not in deployed:
            return True
        old = connect.deployed(self.world, self.connector)
        return not any(_captures_table(old, name) for name in self.released_names)

    def _is_resumable(self, journal: Journal) -> bool:
        """Return whether a recapture of these tables has deployed its connector, but is unfinished.

        Raises:
            LakeError: the unfinished recapture has other tables.
        """
        if journal.get("done", True) or self.new_connector not in connect.names(self.world):
            return False
        if journal["tables"] == self.table_entries:
            return True
        expected = [
            f"{source} into {path}" + "".join(f", former_name={name}" for name in former_names)
            for source, path, *former_names in journal["tables"]
        ]
        raise LakeError(
            f"another recapture of {self.connector} is not finished",
            location=self.journal_uri,
            expected=f"the same tables: {', '.join(expected)}",
            hint="repeat that recapture with these tables first",
        )

    def _validate(self, replacements: list["_Replacement"]) -> None:
        """Raise an error if the connector does not capture a table, or it cannot be replaced."""
        if not self.captured:
            raise ConnectorError(
                "no table is named", expected="at least one recapture.CapturedTable(source, table)"
            )
        deployed = connect.names(self.world)
        if self.connector not in deployed:
            raise ConnectorError(
                f"there is no connector {self.connector!r}",
                location=self.world.connect.url,
                expected=did_you_mean(self.connector, deployed),
            )
        for source in self.sources:
            if not _captures_table(self.config, source):
                raise ConnectorError(
                    f"connector {self.connector!r} does not capture {source}",
                    location=f"{INCLUDE_LIST}: {self.config[INCLUDE_LIST]}",
                    expected=did_you_mean(source, _include_patterns(self.config)),
                )
        paths = [each.table.base for each in self.captured]
        for replacement in replacements:
            table = replacement.table
            if paths.count(table.base) > 1:
                raise LakeError(
                    f"table {table.name} is named twice",
                    location=table.base,
                    expected="one source for each lake table: the copy of that source replaces it",
                )
            replacement.validate()

    def _free_suffixes(self) -> Iterator[str]:
        """Yield `_r2`, `_r3`, … that no connector, topic, schema or slot has in its name.

        The first candidate is the successor of the old topic prefix's suffix.
        """
        names = [*topics.names(self.world)]
        if self.format == "avro":
            names += registry.names(self.world)
        used_names = {*connect.names(self.world)}
        if isinstance(self.engine, databases.SlotDatabase):
            used_names.update(self.engine.all_slots(self.world)["slot_name"])
        current = re.search(r"_r(\d+)$", self.config["topic.prefix"])
        for number in count(int(current[1]) + 1 if current else 2):
            suffix = f"_r{number}"
            config = renamed_config(self.config, suffix, self.sources)
            prefix = f"{config['topic.prefix']}."
            new_names = {_with_suffix(self.connector, suffix), config.get("slot.name")}
            if not used_names & new_names and not any(name.startswith(prefix) for name in names):
                yield suffix

    # --- the old connector

    def _release_old_connector(self) -> None:
        """Remove the tables from the old connector's list, or delete it if no table remains."""
        released = {p for patterns in self.literal_patterns.values() for p in patterns}
        remaining = ",".join(p for p in _include_patterns(self.config) if p not in released)
        if not self.are_literal:
            self.progress(
                f"connector {self.connector} stays, and still captures these tables: its {INCLUDE_LIST} "
                "does not name each of the tables"
            )
        elif not remaining:
            connect.delete(self.world, self.connector)
            if isinstance(self.engine, databases.SlotDatabase):
                self.engine.drop_slot(self.world, _slot_name(self.config), self.database)
            self.progress(f"connector {self.connector} is deleted")
        elif self.connector in connect.names(self.world):
            config = {**self.config, INCLUDE_LIST: remaining}
            connect.apply(self.world, self.connector, config)
            self.progress(f"connector {self.connector} now has {INCLUDE_LIST}={remaining}")


class _Replacement:
    """The replacement of one lake table by a copy that is filled from the new topic."""

    def __init__(self, job: _Recapture, captured: CapturedTable):
        self.job, self.captured = job, captured
        self.spark, self.world, self.table = job.spark, job.world, captured.table
        self.copy = hudi.scratch_copy(self.world, self.table)

    @property
    def topic(self) -> hudi.Topic:
        """The new topic."""
        return self._topic_of(self.job.new_config, self.captured.source)

    def _topic_of(self, config: ConnectorConfig, name: str) -> hudi.Topic:
        return hudi.Topic(topic_name(config, name), format=self.job.format)

    def is_done(self) -> bool:
        """Return whether the table has the rows of the new topic."""
        progress = read_progress(last_ingest_commit(self.table)).get(self.topic.id)
        return progress is not None and REPLACED_BY not in progress

    def validate(self) -> None:
        """Raise LakeError for a table that cannot be replaced."""
        self.own_progress()
        self._check_former_name()
        columns = evolution.table_columns(completed_actions(self.table))
        check_ordering(self.table, columns or T.StructType())
        if not self._count():
            raise LakeError(
                f"{self.captured.source} is empty: there is no message to build a table from",
                hint="hudi.drop removes the table; the next row creates it again",
            )

    def own_progress(self) -> dict[str, SourceProgress]:
        """Return how far the table has read topics and landed files of this source.

        Topics of its former name and of earlier recaptures count, too.

        Raises:
            LakeError: the table holds rows of other sources, which the new rows would remove.
        """
        captured, config = self.captured, self.job.config
        prefix = re.escape(tables.safe_file_name(_with_suffix(config["topic.prefix"], "")))
        names = "|".join(re.escape(tables.safe_file_name(name)) for name in captured.names)
        own_progress = re.compile(
            rf"(topic-|landed-(.*_)?){prefix}(_r\d+)?\.({names})(_partition_\d+)?_?"
        )
        progress = read_progress(last_ingest_commit(self.table))
        foreign = [
            name
            for name, last in progress.items()
            if not own_progress.fullmatch(name) and REPLACED_BY not in last
        ]
        if foreign:
            raise LakeError(
                f"table {self.table.name} holds rows of other sources than {captured.source}",
                location=f"read into it: {', '.join(foreign)} (*: unknown)",
                expected=f"only rows of {topic_name(config, captured.source)}: all rows are replaced",
                hint="if the source table was renamed: recapture.CapturedTable(…, "
                "former_name=its previous name). Else use one table for each source: hudi.drop, "
                "then repeat the recapture",
            )
        return progress

    def _check_former_name(self) -> None:
        """Raise LakeError if another table has the former name: it would no longer be captured."""
        former_name = self.captured.former_name
        if not former_name:
            return
        schema, _, name = former_name.rpartition(".")
        matches = self.job.engine.query(
            self.world,
            "SELECT count(*) AS n FROM information_schema.tables "
            "WHERE table_schema = %s AND table_name = %s",
            [schema, name],
            self.job.database,
        )
        if matches["n"][0] or former_name in self.job.sources:
            raise LakeError(
                f"{former_name} is a table of its own, not the former name of "
                f"{self.captured.source}",
                expected="a name that no table of the source has now",
                hint="omit former_name=, or rename the other table until the recapture is done",
            )

    def _source_rows(self, columns: str = "*") -> Any:
        """Return the rows of the source as a pandas DataFrame, as the lake stores them."""
        rows: sql.Composable = identifier(self.captured.source)
        if self.captured.expected_sql:
            rows = sql.SQL('({}) AS "rows"').format(sql.SQL(self.captured.expected_sql))
        query = sql.SQL("SELECT {} FROM {}").format(sql.SQL(columns), rows)
        return self.job.engine.query(self.world, query, database=self.job.database)

    def _count(self) -> int:
        return int(self._source_rows("count(*) AS n")["n"][0])

    def drop_copy(self) -> None:
        """Remove the copy."""
        hudi.drop(None, self.world, self.copy)

    def fill_copy(self) -> None:
        """Ingest the new topic into the copy until it equals the source."""
        job, source = self.job, self.captured.source
        timeout = 60 + self._count() / 500 if job.timeout is None else job.timeout
        topics.wait_for_messages(
            self.world, self.topic.name, 1, timeout=timeout, connector=job.new_connector
        )
        last_difference: Optional[LakeError] = None
        row_count = 0

        def is_equal() -> Union[bool, WorkbenchError]:
            nonlocal last_difference, row_count
            try:
                messages = self._ingest()
            except WorkbenchError as e:  # ends the wait
                return e
            if last_difference and not messages:  # skips the comparison, which reads both tables
                raise last_difference
            rows = self._source_rows()
            differences = self._differences(rows)
            if differences:
                last_difference = LakeError(
                    f"{len(differences)} differences: {'; '.join(differences[:3])}"
                )
                raise last_difference
            row_count = len(rows)
            return True

        outcome = wait_until(
            is_equal,
            f"the copy of {self.table.name} to equal {source}",
            timeout=timeout,
            interval=0.5,
            error=LakeError,
            failure_reason=lambda: connect.failure(self.world, job.new_connector),
            hint="the table is unchanged. If a column is transported as another type: give "
            "expected_sql=, SQL that returns the rows as the lake stores them. If the source is "
            "written to all the time: repeat the call in a quiet period, or with a longer timeout. "
            f"To give up: connect.delete(world, {job.new_connector!r}), and drop its slot",
        )
        if isinstance(outcome, WorkbenchError):
            raise outcome
        job.progress(f"the copy of {self.table.name} equals {source}: {row_count:,} rows")

    def _ingest(self) -> int:
        """Ingest the new topic into the copy and return the number of messages."""
        schema = self.captured.schema
        if not schema and self.job.format == "json":  # an Avro schema is in the registry
            schema = decode.reader_schema(self.table.name)
        result = hudi.ingest(self.spark, self.world, self.topic, self.copy, schema=schema)
        self._raise_on_dead_letters()
        return result.messages

    def _raise_on_dead_letters(self) -> None:
        """Raise LakeError if a message cannot be decoded."""
        dead_letters = hudi.dead_letters(self.spark, self.world, self.copy).limit(1).collect()
        if dead_letters:
            raise LakeError(
                f"a message cannot be decoded: {dead_letters[0]['reason']}",
                location=f"table {self.copy.name}",
                hint="correct the row at the source, or the schema; then repeat the recapture",
            )

    def _differences(self, source: Any) -> list[str]:
        """Return one sentence for each difference between the copy and the source's rows."""
        lake = hudi.read(self.spark, self.copy)
        if self.table.deletes == "soft":
            lake = lake.where("coalesce(__deleted, 'false') <> 'true'")
        columns = [name for name in source.columns if name in lake.columns]
        return check_values.differences(
            source, lake.select(*columns).toPandas(), list(self.table.key), ("copy", "source")
        )

    def replace_rows(self) -> None:
        """Replace the table's rows by those of the copy unless that was done before, and clean up."""
        with tables.table_lock(self.world, self.table):
            is_done = self.is_done()
            if is_done:
                finish_rewrite(self.spark, self.table)
            else:
                self._rewrite()
            for name, last in read_progress(last_ingest_commit(self.table)).items():
                if REPLACED_BY in last:
                    files.remove(f"{hudi.dead_letters_path(self.world, self.table)}/{name}")
        if not is_done:
            self.job.progress(
                f"{self.table.name} has the rows of the copy, and reads {self.topic.name} "
                "from now on"
            )

    def _rewrite(self) -> None:
        """Replace the rows in one commit, with the progress of the copy.

        The commit marks the old topic and its files as replaced, so that later ingests reject them.
        Otherwise the old connector, which still publishes to the topic, would bring back deleted
        rows.
        """
        old_topics = [self._topic_of(self.job.config, name).id for name in self.captured.names]
        old_progress = {**dict.fromkeys(old_topics, {}), **self.own_progress()}
        replaced = {
            name: {**last, REPLACED_BY: self.topic.name} for name, last in old_progress.items()
        }
        progress = {**replaced, **read_progress(last_ingest_commit(self.copy))}
        rewrite(
            self.spark,
            self.table,
            hudi.read(self.spark, self.copy),
            evolution.table_columns(completed_actions(self.copy)) or T.StructType(),
            {
                PROGRESS_KEY: json.dumps(progress),
                SCHEMA_CHANGE_KEY: f"captured anew from topic {self.topic.name}",
            },
        )
