"""Tables that are captured anew: a new connector takes a new snapshot into new topics, and the lake
tables follow.

It is the way out where a column gets a type that the old column cannot hold: the old topic and its
schemas in the registry keep both types, so that no table can be made of it. Nothing of the old
capture is removed before copies of the lake tables, filled from the new topics, equal the source.
"""

import json
import re
import zlib
from dataclasses import dataclass, replace
from itertools import count
from types import ModuleType
from typing import Any, Callable, Iterator, Optional, Union

from psycopg import sql
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from . import connect, hudi
from .base import ConnectorError, LakeError, WorkbenchError, World, did_you_mean, files, wait_until
from .connect.configs import SCHEMA_HISTORY_PREFIX
from .hudi import decode, evolution, tables
from .hudi.ingesting import (
    PROGRESS_KEY,
    REPLACED_BY,
    check_ordering,
    last_ingest_commit,
    read_progress,
)
from .hudi.rewriting import finish_rewrite, rewrite
from .hudi.timeline import SCHEMA_CHANGE_KEY, completed_actions
from .landing.sources import topic_name
from .results import check_values
from .source import mariadb, postgres
from .source.names import identifier
from .topic import registry, topics

INCLUDE_LIST = "table.include.list"
DEFAULT_SLOT = "debezium"  # the slot of a PostgreSQL connector that names none
JOURNAL_KEYS = (
    "connector.class",
    "topic.prefix",
    INCLUDE_LIST,
    "slot.name",
    "database.dbname",
    f"{SCHEMA_HISTORY_PREFIX}.kafka.topic",
)
ENGINES = {"PostgresConnector": postgres, "MariaDbConnector": mariadb, "MySqlConnector": mariadb}


@dataclass(frozen=True)
class CapturedTable:
    """A source table and a lake table that holds its rows.

    source: `schema.table`, of MariaDB `database.table`. schema: of JSON messages, as of
        `hudi.ingest`. truth: SQL of
    the source's rows as the lake has them, where a column travels as another type (docs/types.md).
    former: the name before, `schema.table`, of a table that was renamed at the source: the lake
        table has read the topic of that name.
    It leaves the old connector's table.include.list, so no table may have it now.
    """

    source: str
    table: hudi.Table
    schema: Optional[T.StructType] = None
    expected_sql: str = ""
    former_name: str = ""

    @property
    def names(self) -> list[str]:
        """The names that the table has and had at the source."""
        return [name for name in (self.source, self.former_name) if name]


@dataclass(frozen=True)
class RecaptureResult:
    """What a recapture has left.

    connector, config: of the new connector. rows: {lake table: rows}. old_topics: topics without a
    connector that publishes to them.
    """

    connector: str
    config: dict[str, str]
    rows: dict[str, int]
    old_topics: list[str]


def run(
    spark: SparkSession,
    world: World,
    connector: str,
    config: dict[str, str],
    *captured: CapturedTable,
    timeout: Optional[float] = None,
    progress: Callable[[str], None] = print,
) -> RecaptureResult:
    """Capture tables anew: with a new connector, topic prefix, replication slot and snapshot.

    The lake tables keep their names, places and labels, and get the columns that the source has
    now. Each is replaced in one commit, after copies of all of them have equaled the source. A call
    that was interrupted is repeated with the same arguments, and goes on. Afterwards `hudi.ingest`
    reads the new topics, and refuses the old ones for these tables.

    Args:
        connector: name of the connector that captures the tables; Debezium's for PostgreSQL,
            MariaDB or MySQL. It is deleted, with its slot, when `captured` holds all of its tables;
            else they leave its table.include.list.
        config: its configuration, as `connect.apply` takes it.
        captured: the source tables, with every lake table that they go into.
        timeout: seconds for the snapshot, and for a copy to equal the source; by default one
            minute, and one second for each 500 rows.
        say: is called with one line for each step.

    Raises:
        ConnectorError: there is no such connector; it is of another kind or does not capture the
            tables; the new one is refused or has failed.
        LakeError: a message cannot be read; a copy does not equal the source in time; the source
            table is empty; a lake table is named twice, or holds rows of other sources; an ingest
            into a table is going on; another recapture of this connector is not finished.
        The old tables and the old connector are as they were then.
    """
    job = _Recapture(
        spark, world, connector, config, captured, _engine(connector, config), timeout, progress
    )
    with files.exclusive_lock(job.journal, f"recapture of {connector}", "wait until it is done"):
        return job.run()


def _engine(connector: str, config: dict[str, str]) -> ModuleType:
    """The functions of the database that a connector captures. Raises ConnectorError: it captures
    none of ours.
    """
    kind = _connector_class(config)
    if kind not in ENGINES:
        raise ConnectorError(
            f"connector {connector!r} cannot be recaptured: its class is {kind!r}",
            expected=f"one of {', '.join(ENGINES)}",
        )
    return ENGINES[kind]


def _connector_class(config: dict[str, str]) -> str:
    return config.get("connector.class", "").rpartition(".")[2]


def _slot_name(config: dict[str, str]) -> str:
    """The replication slot that a connector reads; "" where its database has none."""
    return (
        config.get("slot.name", DEFAULT_SLOT)
        if ENGINES.get(_connector_class(config)) is postgres
        else ""
    )


def _with_suffix(text: str, suffix: str) -> str:
    return re.sub(r"_r\d+$", "", text) + suffix


def renamed_config(config: dict[str, str], suffix: str, sources: list[str]) -> dict[str, str]:
    """Return the configuration of a new connector for some of the tables: another topic prefix and
    slot, of MySQL and MariaDB another server id and topic of schema history, and a snapshot.
    suffix: such as `_r2`.
    """
    new = {**config, INCLUDE_LIST: ",".join(sources), "snapshot.mode": "initial"}
    new.pop("name", None)
    if _slot_name(config):
        new["slot.name"] = _slot_name(config)
    for key in {"topic.prefix", "slot.name", f"{SCHEMA_HISTORY_PREFIX}.kafka.topic"} & new.keys():
        new[key] = _with_suffix(new[key], suffix)
    if "database.server.id" in new:
        new["database.server.id"] = str(1 + zlib.crc32(new["topic.prefix"].encode()) % (2**31 - 1))
    return new


def journals(world: World, *connectors: str) -> dict[str, dict[str, Any]]:
    """Return {address: content} of the journals of these connectors, and of the connectors that
    recaptures deployed in their place.
    """
    folder = f"{world.lake.checkpoints}/recapture"
    existing = files.list_files(folder) if connectors else {}
    contents: dict[str, dict[str, Any]] = {}
    waiting = [*connectors]
    while waiting:
        name = f"{tables.safe_file_name(waiting.pop())}.json"
        address = f"{folder}/{name}"
        if name in existing and address not in contents:
            contents[address] = json.loads(files.read_text(address) or "{}")
            waiting += contents[address].get("made", {})
    return contents


def connectors_of_recaptures(world: World, *connectors: str) -> dict[str, dict[str, str]]:
    """Return {connector: its configuration's JOURNAL_KEYS} of the connectors that recaptures of
    these have deployed. A connector that was deleted since is included: its topics and its slot may
    still exist.
    """
    return {
        name: config
        for journal in journals(world, *connectors).values()
        for name, config in journal.get("made", {}).items()
    }


class _Recapture:
    """One recapture. Its journal names the new connector, from before its deployment on."""

    def __init__(
        self,
        spark: SparkSession,
        world: World,
        connector: str,
        config: dict[str, str],
        captured: tuple[CapturedTable, ...],
        engine: ModuleType,
        timeout: Optional[float],
        say: Callable[[str], None],
    ):
        self.spark, self.world, self.old, self.config = spark, world, connector, config
        self.captured, self.timeout, self.say = captured, timeout, say
        self.journal = f"{world.lake.checkpoints}/recapture/{tables.safe_file_name(connector)}.json"
        self.sources = list(dict.fromkeys(c.source for c in captured))
        self.names = list(
            dict.fromkeys([*self.sources, *(name for c in captured for name in c.names)])
        )
        self.db, self.database = engine, config.get("database.dbname")
        self.format = "avro" if "avro" in config.get("value.converter", "").lower() else "json"

    def run(self) -> RecaptureResult:
        journal = self._read_journal()
        if journal.get("done") and self._is_finished(journal):
            self._set_suffix(journal["suffix"])
            return self._result(connect.deployed(self.world, self.new))
        resumed = self._suffix_to_resume(journal)
        suffix = resumed or self._begin()
        self._set_suffix(suffix)
        if not resumed or connect.failure(
            self.world, self.new
        ):  # tables may have been added to one that runs
            connect.apply(self.world, self.new, self.new_config)
        self.say(
            f"connector {self.new} takes a snapshot of {', '.join(self.sources)} "
            f"into {self.new_config['topic.prefix']}.*"
        )
        for each in self.captured:
            if not self._is_replaced(each):
                self._fill_copy(each)
        for each in self.captured:
            self._replace_rows(each)
        for each in self.captured:
            hudi.drop(None, self.world, self._copy(each))
        self._release_old_connector()
        self._write_journal(suffix, done=True)
        return self._result(self.new_config)

    def _set_suffix(self, suffix: str) -> None:
        self.new = _with_suffix(self.old, suffix)
        self.new_config = renamed_config(self.config, suffix, self.sources)

    def _result(self, config: dict[str, str]) -> RecaptureResult:
        named = {key: value for key, value in config.items() if key != "name"}
        changed = [
            f"{key}={value}"
            for key, value in sorted(named.items())
            if self.config.get(key) != value
        ]
        self.say(f"done. Keep the new configuration: connector {self.new}, {', '.join(changed)}")
        rows = {c.table.name: hudi.read(self.spark, c.table).count() for c in self.captured}
        existing = topics.names(self.world)
        names = [
            *self._released_names(),
            *(name for name in self.names if not _captures_table(self.config, name)),
        ]
        old_topics = [
            topic
            for topic in (topic_name(self.config, name) for name in names)
            if topic in existing
        ]
        return RecaptureResult(self.new, named, rows, old_topics if self._are_literal() else [])

    # --- which connector
    # ---------------------------------------------------------------------------------------------

    def _read_journal(self) -> dict[str, Any]:
        return json.loads(files.read_text(self.journal) or "{}")

    def _is_finished(self, journal: dict[str, Any]) -> bool:
        """Whether what a finished recapture has left is there: its connector, and no old one that
        captures a table.
        """
        deployed = connect.names(self.world)
        if (
            journal["tables"] != self._tables()
            or _with_suffix(self.old, journal["suffix"]) not in deployed
        ):
            return False
        if self.old not in deployed:
            return True
        old = connect.deployed(self.world, self.old)
        return not any(_captures_table(old, name) for name in self._released_names())

    def _suffix_to_resume(self, journal: dict[str, Any]) -> str:
        """Return the suffix of a recapture of these tables that was interrupted after its connector
        was deployed, or "" without such a recapture.
        """
        if journal.get("done", True) or _with_suffix(
            self.old, journal["suffix"]
        ) not in connect.names(self.world):
            return ""
        if journal["tables"] != self._tables():
            raise LakeError(
                f"another recapture of {self.old} is not finished",
                location=self.journal,
                expected="the same tables: "
                + ", ".join(
                    " into ".join(each[:2]) + "".join(f", former={name}" for name in each[2:])
                    for each in journal["tables"]
                ),
                hint="repeat it with those first",
            )
        return str(journal["suffix"])

    def _tables(self) -> list[list[str]]:
        return [[c.source, c.table.base, *c.names[1:]] for c in self.captured]

    def _begin(self) -> str:
        """Judge what is asked for, note it, and return the suffix of the new connector."""
        if not self.captured:
            raise ConnectorError(
                "no table is named", expected="recapture.CapturedTable(source, table), one at least"
            )
        deployed = connect.names(self.world)
        if self.old not in deployed:
            raise ConnectorError(
                f"there is no connector {self.old!r}",
                location=self.world.connect.url,
                expected=did_you_mean(self.old, deployed),
            )
        for source in self.sources:
            if not _captures_table(self.config, source):
                raise ConnectorError(
                    f"connector {self.old!r} does not capture {source}",
                    expected=did_you_mean(source, _include_patterns(self.config)),
                    location=f"{INCLUDE_LIST}: {self.config[INCLUDE_LIST]}",
                )
        bases = [each.table.base for each in self.captured]
        for each in self.captured:
            if bases.count(each.table.base) > 1:
                raise LakeError(
                    f"table {each.table.name} is named twice",
                    location=each.table.base,
                    expected="one source for each lake table, which the copy of that source replaces",
                )
            self._own_progress(each)
            self._check_former(each)
            check_ordering(
                each.table, evolution.table_columns(completed_actions(each.table)) or T.StructType()
            )
            if not self._count(each):
                raise LakeError(
                    f"{each.source} is empty: there is no message to make a table of",
                    hint="hudi.drop removes the table; the next row makes it again",
                )
        for each in self.captured:
            hudi.drop(None, self.world, self._copy(each))  # of a try that was given up
        suffix = next(suffix for suffix in self._suffixes() if self._is_free(suffix))
        connect.validate(
            self.world,
            renamed_config(self.config, suffix, self.sources),
            _with_suffix(self.old, suffix),
        )
        self._write_journal(suffix, done=False)
        return suffix

    def _write_journal(self, suffix: str, *, done: bool) -> None:
        new = renamed_config(self.config, suffix, self.sources)
        deployed = {
            **self._read_journal().get("made", {}),
            _with_suffix(self.old, suffix): {key: new[key] for key in JOURNAL_KEYS if key in new},
        }
        files.write_text(
            self.journal,
            json.dumps(
                {"suffix": suffix, "tables": self._tables(), "done": done, "made": deployed}
            ),
        )

    def _suffixes(self) -> Iterator[str]:
        """`_r2`, `_r3`, … from the one on that follows the old topic prefix's."""
        now = re.search(r"_r(\d+)$", self.config["topic.prefix"])
        return (f"_r{n}" for n in count(int(now[1]) + 1 if now else 2))

    def _is_free(self, suffix: str) -> bool:
        """Whether no connector, topic, schema or slot has the names of this suffix."""
        config = renamed_config(self.config, suffix, self.sources)
        names = [
            *topics.names(self.world),
            *(registry.names(self.world) if self.format == "avro" else ()),
        ]
        slots = list(postgres.all_slots(self.world)["slot_name"]) if self.db is postgres else []
        return (
            _with_suffix(self.old, suffix) not in connect.names(self.world)
            and config.get("slot.name") not in slots
            and not any(name.startswith(f"{config['topic.prefix']}.") for name in names)
        )

    # --- the copies
    # --------------------------------------------------------------------------------------------------

    def _copy(self, captured: CapturedTable) -> hudi.Table:
        """The copy of a lake table that is filled from the new topic. Its name is in no catalog: of
        a table without a commit, Hudi would take the columns that the catalog has under its
        name.
        """
        return replace(
            captured.table,
            name=f"{captured.table.name}_recapture",
            catalog="",
            base=f"{tables.table_state_dir(self.world, captured.table)}/recapture",
        )

    def _schema(self, captured: CapturedTable) -> Optional[T.StructType]:
        """The reader schema of a topic; of Avro the registry has it."""
        return captured.schema or (
            decode.reader_schema(captured.table.name) if self.format == "json" else None
        )

    def _topic(
        self, captured: CapturedTable, config: Optional[dict[str, str]] = None
    ) -> hudi.Topic:
        return hudi.Topic(
            topic_name(config or self.new_config, captured.source), format=self.format
        )

    def _is_replaced(self, captured: CapturedTable) -> bool:
        last = read_progress(last_ingest_commit(captured.table)).get(self._topic(captured).id)
        return last is not None and REPLACED_BY not in last

    def _own_progress(self, captured: CapturedTable) -> dict[str, dict[str, Any]]:
        """How far the table has read the topics of this source, under its former name too, and what
        was landed of them, by this prefix or earlier ones. Raises LakeError: it holds rows of other
        sources, which the new rows would remove.
        """
        prefix = re.escape(tables.safe_file_name(_with_suffix(self.config["topic.prefix"], "")))
        sources = "|".join(re.escape(tables.safe_file_name(name)) for name in captured.names)
        pattern = rf"(topic-|landed-(.*_)?){prefix}(_r\d+)?\.({sources})(_partition_\d+)?_?"
        progress = read_progress(last_ingest_commit(captured.table))
        foreign = [
            name
            for name, last in progress.items()
            if not re.fullmatch(pattern, name) and REPLACED_BY not in last
        ]
        if foreign:
            raise LakeError(
                f"table {captured.table.name} holds rows of other sources than {captured.source}",
                location=f"read into it: {', '.join(foreign)} (*: not known what)",
                expected=f"rows of {topic_name(self.config, captured.source)} only: all rows are replaced",
                hint="if the source table was renamed: recapture.CapturedTable(…, former=its name before). "
                "Else a table of its own for each source: hudi.drop, and repeat the recapture",
            )
        return progress

    def _check_former(self, captured: CapturedTable) -> None:
        """Raises LakeError: the former name is another table's, which the old connector would no
        longer capture.
        """
        if not captured.former_name:
            return
        schema, _, name = captured.former_name.rpartition(".")
        found = self.db.query(
            self.world,
            "SELECT count(*) AS n FROM information_schema.tables "
            "WHERE table_schema = %s AND table_name = %s",
            [schema, name],
            self.database,
        )
        if found["n"][0] or captured.former_name in self.sources:
            raise LakeError(
                f"{captured.former_name} is a table of its own, not the former name of {captured.source}",
                expected="a name that no table of the source has now",
                hint="leave former= out, or rename the other table for the time of the recapture",
            )

    def _source_rows(self, captured: CapturedTable, columns: str = "*") -> Any:
        rows = identifier(captured.source)
        if captured.expected_sql:
            rows = sql.SQL('({}) AS "rows"').format(sql.SQL(captured.expected_sql))
        query = sql.SQL("SELECT {} FROM {}").format(sql.SQL(columns), rows)
        return self.db.query(self.world, query, database=self.database)

    def _count(self, captured: CapturedTable) -> int:
        return int(self._source_rows(captured, "count(*) AS n")["n"][0])

    def _fill_copy(self, captured: CapturedTable) -> None:
        """Ingest the new topic into the copy until it equals the source."""
        copy = self._copy(captured)
        timeout = 60 + self._count(captured) / 500 if self.timeout is None else self.timeout
        topics.wait_for_messages(
            self.world, self._topic(captured).name, 1, timeout=timeout, connector=self.new
        )
        differences: list[LakeError] = []

        def equal() -> Union[tuple[int], WorkbenchError]:
            try:
                done = hudi.ingest(
                    self.spark,
                    self.world,
                    self._topic(captured),
                    copy,
                    schema=self._schema(captured),
                )
                self._raise_on_dead_letters(copy)
            except WorkbenchError as e:  # waiting does not help
                return e
            if differences and not done.messages:  # a comparison reads both tables
                raise differences[-1]
            source, lake = self._source_rows(captured), hudi.read(self.spark, copy)
            if captured.table.deletes == "soft":
                lake = lake.where("coalesce(__deleted, 'false') <> 'true'")
            lake = lake.select(
                *(name for name in source.columns if name in lake.columns)
            ).toPandas()
            found = check_values.differences(
                source, lake, list(captured.table.key), ("copy", "source")
            )
            if found:
                differences.append(LakeError(f"{len(found)} differences: {'; '.join(found[:3])}"))
                raise differences[-1]
            return (len(source),)

        outcome = wait_until(
            equal,
            f"the copy of {captured.table.name} to equal {captured.source}",
            timeout=timeout,
            interval=0.5,
            error=LakeError,
            failure_reason=lambda: connect.failure(self.world, self.new),
            hint="the table is as it was. A column that travels as another type: give truth=, SQL of the rows as "
            "the lake has them. A source that is written without a pause: repeat it when it rests, or with a "
            f"longer timeout. To give up: connect.delete(world, {self.new!r}), and drop its slot",
        )
        if isinstance(outcome, WorkbenchError):
            raise outcome
        self.say(f"the copy of {captured.table.name} equals {captured.source}: {outcome[0]:,} rows")

    def _raise_on_dead_letters(self, copy: hudi.Table) -> None:
        letters = hudi.dead_letters(self.spark, self.world, copy).limit(1).collect()
        if letters:
            raise LakeError(
                f"a message cannot be decoded: {letters[0]['reason']}",
                location=f"table {copy.name}",
                hint="correct the row at the source, or the schema; then repeat the recapture",
            )

    def _replace_rows(self, captured: CapturedTable) -> None:
        """Put the rows of the copy in the place of the table's, where that is not done; then what
        follows from it.
        """
        with tables.table_lock(self.world, captured.table):
            replaced = self._is_replaced(captured)
            if replaced:
                finish_rewrite(self.spark, captured.table)
            else:
                self._rewrite(captured)
            for name, last in read_progress(last_ingest_commit(captured.table)).items():
                if REPLACED_BY in last:
                    files.remove(f"{hudi.dead_letters_path(self.world, captured.table)}/{name}")
        if not replaced:
            self.say(
                f"{captured.table.name} has the rows of the copy, and reads {self._topic(captured).name} "
                "from now on"
            )

    def _rewrite(self, captured: CapturedTable) -> None:
        """Replace the rows, with the progress of the copy; the old topic and its files are refused
        from then on: the old connector still writes to it, and what the new rows lack, because it
        was deleted, would come again.
        """
        copy, new = self._copy(captured), self._topic(captured).name
        topics_before = [
            hudi.Topic(topic_name(self.config, name), format=self.format) for name in captured.names
        ]
        old = {**{topic.id: {} for topic in topics_before}, **self._own_progress(captured)}
        progress = {name: {**last, REPLACED_BY: new} for name, last in old.items()}
        rewrite(
            self.spark,
            captured.table,
            hudi.read(self.spark, copy),
            evolution.table_columns(completed_actions(copy)),
            {
                PROGRESS_KEY: json.dumps({**progress, **read_progress(last_ingest_commit(copy))}),
                SCHEMA_CHANGE_KEY: f"captured anew from topic {new}",
            },
        )

    # --- the old connector
    # -------------------------------------------------------------------------------------------

    def _literal_patterns(self) -> dict[str, list[str]]:
        """{name of a source, a former one too: the patterns of the old connector that name it and
        nothing else}.
        """
        return {
            name: [p for p in _include_patterns(self.config) if p.replace("\\", "") == name]
            for name in self.names
        }

    def _released_names(self) -> list[str]:
        """The sources, and the former names that the old connector's list names literally: it
        captures none of them afterwards.
        """
        literal = self._literal_patterns()
        return [name for name in self.names if name in self.sources or literal[name]]

    def _are_literal(self) -> bool:
        """Whether the old connector names each of the tables, so that it can do without them."""
        literal = self._literal_patterns()
        return all(literal[source] for source in self.sources)

    def _release_old_connector(self) -> None:
        """Take the tables from the old connector."""
        literal = self._literal_patterns()
        remaining = [
            p for p in _include_patterns(self.config) if p not in sum(literal.values(), [])
        ]
        if not self._are_literal():
            self.say(
                f"connector {self.old} stays, and still captures them: its {INCLUDE_LIST} does not name each of them"
            )
        elif not remaining:
            connect.delete(self.world, self.old)
            if self.db is postgres:
                postgres.drop_slot(self.world, _slot_name(self.config), self.database)
            self.say(f"connector {self.old} is deleted")
        elif self.old in connect.names(self.world):
            connect.apply(self.world, self.old, {**self.config, INCLUDE_LIST: ",".join(remaining)})
            self.say(f"connector {self.old} has {INCLUDE_LIST}={','.join(remaining)} from now on")


def _captures_table(config: dict[str, str], source: str) -> bool:
    patterns = _include_patterns(config)
    return not patterns or any(re.fullmatch(pattern, source, re.I) for pattern in patterns)


def _include_patterns(config: dict[str, str]) -> list[str]:
    return [p.strip() for p in config.get(INCLUDE_LIST, "").split(",") if p.strip()]
