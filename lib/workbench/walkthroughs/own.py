"""Own flows: tables of the user's databases, captured by `workbench capture`.

A flow is a folder params/own/<flow>/ with flow.yaml, which lists the tables, and the JSON of its connector, which
the user may edit. Both are written before anything is created, so an interrupted capture continues when it is
repeated, and `forget` finds everything. Another instance of the stack keeps its flows in its own folder.

The ids of connector, slot, publication and topics begin with own_<flow>. The lake tables are in the catalog
database <flow>. Nothing is written into the user's tables.
"""

import base64
import json
import re
import sys
import time
import uuid
import zlib
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Callable, Literal, Sequence, cast

import pandas
import yaml
from psycopg import sql
from pydantic import Field, ValidationError
from pyspark.sql import SparkSession

from .. import connect, hudi, landing, stack
from ..base import (
    ConnectorError,
    LakeError,
    SourceError,
    WorkbenchError,
    World,
    paths,
    wait_until,
    yaml_files,
)
from ..base.params import ConfigModel
from ..base.wait import stop_on_signal
from ..checks import check, check_values
from ..connect import configs
from ..hudi import changes
from ..hudi.analyst_types import DEFAULT_SCALE
from ..source import mariadb, postgres, readiness
from ..source.databases import MARIADB, POSTGRESQL, SourceDatabase
from ..source.names import identifier
from ..spark import session
from ..topic import registry, topics
from . import own_source
from .capture import Capture
from .flow import CaptureFlow
from .resources import OWN_PREFIX, OwnedResources, OwnSource
from .steps import Product, Step, Steps
from .walkthrough import Walkthrough

TEMPLATES = yaml_files.load(Path(__file__).with_suffix(".yaml"))
ENGINES: dict[str, SourceDatabase] = {
    "postgres": POSTGRESQL,
    "mariadb": MARIADB,
    "mysql": MARIADB,
}
FLOW_NAME = re.compile(r"[a-z][a-z0-9_]{0,29}")
LABEL = "captured"
# Larger tables are compared by their number of rows only: both sides of a comparison are in memory.
MAX_COMPARED_ROWS = 1_000_000
MAX_SCALE = 30  # leaves eight digits before the decimal point
COMPARISONS = 5  # attempts, because the user's applications may write meanwhile
POLL_INTERVAL = 1  # seconds
_bundled: list[Walkthrough] = []
# of readiness.sql: what also a poller needs
READING_PROBLEMS = ("no USAGE on the schema", "no SELECT", "row security hides rows")


class OwnTable(ConfigModel):
    """A captured table.

    Attributes:
        source: `schema.table` (in MariaDB `database.table`).
        name: name of its lake table.
        key: the columns that identify a row.
        declares_key: whether the connector must be told the key.
        partition: partition columns of the lake table.
        type: "cow", "mor", or "" for the default.
        rows: number of rows when it was captured.
        excluded: columns that are not captured.
        joined: whether the table was added to a running flow.
        scales: digits after the decimal point of numeric columns without precision, by default 10.
    """

    source: str
    name: str
    key: list[str]
    declares_key: bool
    partition: list[str]
    type: Literal["", "cow", "mor"]
    rows: int
    excluded: list[str]
    joined: bool
    scales: dict[str, int] = Field(default_factory=dict)


class Declaration(ConfigModel):
    """The content of flow.yaml.

    Attributes:
        world: name of the world.
        source: name of the source.
        engine: its kind.
        database: its database.
        format: format of the messages.
        raw: whether the lake has Debezium's types instead of analyst types (docs/types.md).
        poll: the timestamp column of a polled flow, else "".
        tables: the tables.
    """

    world: str
    source: str
    engine: Literal["postgres", "mariadb", "mysql"]
    database: str
    format: Literal["avro", "json"]
    raw: bool
    poll: str
    tables: list[OwnTable]


@dataclass(frozen=True)
class OwnFlow(CaptureFlow):
    """The captured tables of an own flow. Its functions take the world of the source."""

    def wait_until_captured(self, world: World) -> None:
        """Wait until the topics hold all changes that were committed so far.

        PostgreSQL's log gets a message, which the connector publishes after all earlier changes.
        MariaDB has no such message: there the connector commits an offset after them.

        Raises:
            WorkbenchError: the connector has failed, or it has not published them after two minutes.
        """
        connector = self.captures[0].connector
        if not self.publication:
            if not self.polled and connect.offset(world, connector) is not None:
                self._wait_for_offset(world, connector)
            return
        topic, mark = f"{connector}.message", uuid.uuid4().hex.encode()
        topics.create(world, topic)
        start = topics.end_offsets(world, topic)
        statement = "SELECT pg_logical_emit_message(true, 'workbench', %s)"
        self.db.query(world, statement, [mark.decode()], self.database)

        def has_arrived() -> bool:
            values = [m.value() or b"" for m in topics.read_all(world, topic, start_offsets=start)]
            return any(mark in v or base64.b64encode(mark) in v for v in values)

        wait_until(
            has_arrived,
            f"connector {connector} to reach the source's log position",
            timeout=120,
            interval=0.1,
            failure_reason=lambda: connect.failure(world, connector),
        )

    def _wait_for_offset(self, world: World, connector: str) -> None:
        position = self.db.position_to_int(self.db.log_position(world, self.database))

        def is_reached() -> bool:
            offset = connect.offset(world, connector) or {}
            return self.db.position_to_int("{file}:{pos}".format(**offset)) >= position

        wait_until(
            is_reached,
            f"connector {connector} to reach the source's log position",
            timeout=120,
            failure_reason=lambda: connect.failure(world, connector),
        )

    def ingest(
        self,
        spark: SparkSession,
        world: World,
        *into: hudi.Table,
        kind: str = "",
        stop: Callable[[], bool] = lambda: False,
    ) -> dict[str, hudi.Ingested]:
        """Ingest as `CaptureFlow.ingest` does, after a poll if the flow is polled.

        A table without messages is left out until its first ingest.

        Raises:
            ConnectorError: the connector has failed.
        """
        connector = self.captures[0].connector
        reason = None if self.polled else connect.failure(world, connector)
        if reason:
            raise ConnectorError(
                f"no changes arrive from connector {connector}: {reason}",
                hint=f"remove the cause, then connect.restart(world, {connector!r})",
            )
        if self.polled:
            landing.run_once(spark, world, *self.deployed_connectors)
        filled = [
            table
            for table in into or self.tables(world)
            if hudi.exists(table)
            or topics.offset_span(world, self.topic(world, self._capture_for(world, table).name))
        ]
        return super().ingest(spark, world, *filled, kind=kind, stop=stop) if filled else {}

    def comparable(self, spark: SparkSession, world: World, name: str = "") -> Capture:
        """Return a capture whose `expected_sql` selects the columns that the lake has with the same values."""
        capture = self.capture(name)
        declared = declaration(capture.connector.removeprefix(OWN_PREFIX))
        own = next(table for table in declared.tables if table.name == capture.name)
        described, table = (
            _describe_again(world, self.db, declared.database, own),
            self.table(world, name),
        )
        if declared.raw and hudi.exists(table):
            described = replace(described, columns=_same_columns(spark, self.db, described, table))
        return replace(capture, expected_sql=_comparable_sql(self.db, described))

    def dead_letter_remedy(self, world: World, capture: Capture) -> str:
        """Return the commands. A replay would read the same messages again."""
        flow = capture.connector.removeprefix(OWN_PREFIX)
        command = f"workbench forget {flow} {capture.source} --world {world.name}"
        return f"`{command}`, and capture the table again"


@dataclass(frozen=True)
class OwnSteps(Steps):
    """The only step of an own flow, its capture."""

    def run(self, world: World, step: Step) -> None:
        """Capture what is missing."""
        complete(world, self.folder.name)


def register(walkthroughs: Sequence[Walkthrough]) -> None:
    """Add the walkthroughs of the workbench, whose catalog databases no flow can have."""
    _bundled.extend(walkthroughs)


def folder(flow: str = "") -> Path:
    """Return the folder of a flow, or the folder of all flows."""
    is_main = paths.instance_name() == "main"
    return (paths.ROOT / "params" if is_main else paths.state_dir()) / "own" / flow


def names(world: World) -> list[str]:
    """Return the names of the own flows of a world."""
    return [each.name for each in load_all(world)]


def load_all(world: World) -> list[Walkthrough]:
    """Return the own flows of a world. One that cannot be loaded is left out, with a line on stderr."""
    loaded = []
    for path in sorted(folder().glob("*/flow.yaml")):
        try:
            if declaration(path.parent.name).world == world.name:
                loaded.append(load(world, path.parent.name))
        except WorkbenchError as e:
            _warn(f"{paths.display_path(path)} is left out: {e.message}; {e.location}")
    return loaded


@cache  # once in a process: each search for a table loads the flows
def _warn(text: str) -> None:
    print(" ".join(text.split()), file=sys.stderr)


def declaration(flow: str) -> Declaration:
    """Return the content of a flow's flow.yaml.

    Raises:
        LakeError: there is no such flow, or the file is not valid.
    """
    _require_name(flow)
    path = folder(flow) / "flow.yaml"
    try:
        return Declaration.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise LakeError(
            f"there is no flow {flow!r}",
            location=str(path),
            expected="a flow that `workbench capture` made",
        ) from None
    except (yaml.YAMLError, ValidationError) as e:
        raise LakeError(f"not a valid flow: {e}", location=paths.display_path(path)) from None


def load(world: World, flow: str) -> Walkthrough:
    """Return an own flow as a walkthrough.

    Args:
        world: the world of the flow.
        flow: name of the flow.

    Raises:
        LakeError: there is no such flow, its files are not valid, or it is a flow of another world.
        ParamsError: the world does not have the source of the flow.
    """
    declared, connector = declaration(flow), OWN_PREFIX + flow
    if declared.world != world.name:
        raise LakeError(
            f"flow {flow!r} is one of world {declared.world!r}, not of {world.name!r}",
            location=paths.display_path(folder(flow)),
            hint=f"--world {declared.world}",
        )
    world.source(declared.source)  # raises ParamsError
    path = folder(flow) / f"{connector}.json"
    if not path.exists():  # deleted, or a capture was interrupted
        _write_connector(flow, declared)
    raw = configs.read(path)

    def config(world: World, name: str) -> dict[str, str]:
        return configs.fill(world.source(declared.source), raw, paths.display_path(path), name)

    captured = OwnFlow(
        tuple(_capture(flow, declared, table) for table in declared.tables),
        declared.database,
        config,
        polled=bool(declared.poll),
        db=ENGINES[declared.engine],
        publication=connector if declared.engine == "postgres" and not declared.poll else "",
        label=LABEL,
    )
    signals = f"{connector}.signals"
    return Walkthrough(
        flow,
        OwnSteps(
            folder(flow),
            (Step("capture", Product.SOURCE, partial(is_complete, flow=flow)),),
            tuple(_services(declared.engine, declared.format)),
        ),
        OwnedResources(
            captured,
            config=config,
            own_topics=() if declared.poll else (f"{connector}.message", signals),
            consumer_groups=() if declared.poll else (signals,),
            catalog_databases=(flow,),
            own=OwnSource(declared.source, folder(flow)),
        ),
        captured,
    )


def _capture(flow: str, declared: Declaration, table: OwnTable) -> Capture:
    positions = {
        "postgres": "__op,__lsn",
        "mariadb": "__source_file,__source_pos,__source_row",
    }
    ordering = declared.poll or positions.get(declared.engine, positions["mariadb"])
    lake = {
        "name": table.name,
        "database": flow,
        "ordering": ordering,
        "partition": tuple(table.partition),
        "type": table.type,
        "rows": table.rows,
        # a row may move to another partition
        "index": "" if {*table.partition} <= {*table.key} else "GLOBAL_SIMPLE",
    }
    key = table.key[0] if len(table.key) == 1 else tuple(table.key)
    return Capture(
        table.source,
        key,
        OWN_PREFIX + flow,
        format=declared.format,
        lake=(lake,),
        alias=table.name,
        types=changes.RAW if declared.raw else changes.ANALYST,
        scales=table.scales,
    )


def capture(
    world: World,
    source: str,
    *tables: str,
    flow: str = "",
    format: str = "",
    type: str = "",
    partition: Sequence[str] = (),
    poll: str = "",
    key: Sequence[str] = (),
    exclude: Sequence[str] = (),
    raw: bool = False,
    progress: Callable[[str], None] = print,
) -> pandas.DataFrame:
    """Capture tables into the lake, or add them to a running capture.

    A repeated call changes nothing, and one after an interrupted call continues. The connector's JSON in
    params/own/<flow>/ is applied as it is: edit it, then repeat the call.

    Args:
        world: the world.
        source: name of the source database (see `World.source`).
        *tables: the tables, `table` or `schema.table`.
        flow: name of the flow, by default that of the source. The lake tables are in a catalog database
            of this name.
        format: format of the messages, "avro" (the default) or "json" (always, if polled).
        type: "cow" or "mor"; by default chosen by the number of rows.
        partition: partition columns of the lake tables.
        poll: a timestamp column that each change sets: the tables are polled by it, and no log is read.
        key: the columns that identify a row, for a table without primary key.
        exclude: columns that are not captured.
        raw: keep Debezium's types in the lake, instead of analyst types (docs/types.md).
        progress: called with one line per table.

    Returns:
        One row per table of the flow: table, rows, seconds, changed_types ({column: "source type → lake
        type"}).

    Raises:
        SourceError: a table cannot be captured; or the database has a publication or slot of this name.
        ConnectorError: the connector's JSON is not valid.
        LakeError: the flow or a table of it exists with other options, its name is in use, or the source
            cannot be polled.
        CheckFailed: a lake table does not equal its source.
    """
    name = flow or source
    engine = world.source_engine(source)
    messages = format or ("json" if poll else "avro")
    _require_pollable(engine, messages, poll)
    at = world.source(source)
    stack.ensure_running(at, *_services(engine, messages))
    section = at.server(engine)
    options = {
        "world": world.name,
        "source": source,
        "engine": engine,
        "database": section.database,
        "format": messages,
        "raw": raw,
        "poll": poll,
    }
    if not (section.managed or poll or (folder(name) / "flow.yaml").exists()):
        _require_ready(readiness.check(world, source, ()))
    declared = _open(at, name, options)
    layout = {"partition": [*partition], "type": type}
    added = _describe(at, declared, tables, key, exclude, layout)
    if engine == "postgres" and not poll:
        captured = [table.source for table in (*declared.tables, *added)]
        own_source.require_apart(at, section.database, captured)
    report = readiness.check(world, source, [table.source for table in added], exclude)
    _require_ready(replace(report, server=report.server[:0]), bool(key), bool(poll))
    declared = declared.model_copy(update={"tables": [*declared.tables, *added]})
    if declared.tables:  # no new one: an interrupted call may have written flow.yaml only
        _write(name, declared)
    if poll:
        progress("polling sees no deletes, and of several changes between two polls only the last")
    return complete(world, name, progress)


def _services(engine: str, messages: str) -> list[str]:
    """Return the services that a flow needs."""
    database = "postgres" if engine == "postgres" else "mariadb"
    registry = ["apicurio"] if messages == "avro" else []
    return [database, "kafka", "connect", "spark", *registry]


def _require_pollable(engine: str, messages: str, poll: str) -> None:
    """Raise LakeError if a polled flow cannot have this engine or format."""
    if poll and (engine, messages) != ("postgres", "json"):
        raise LakeError(
            f"a table of {engine} cannot be polled with messages in {messages}",
            expected="PostgreSQL and JSON",
            hint="--format json" if engine == "postgres" else "without --poll the log is read",
        )


def _require_ready(report: readiness.Report, has_key: bool = False, polled: bool = False) -> None:
    """Raise SourceError if a report has an obstacle.

    Args:
        report: the report.
        has_key: whether the capture declares a key, so that the tables need no primary key.
        polled: whether no log is read, so that the tables need to be readable only.
    """
    for item, problem, statements in report.obstacles.itertuples(index=False):
        problems = problem.split("; ")
        if has_key:
            problems = [each for each in problems if each != "no primary key"]
        if polled:
            problems = [each for each in problems if each in READING_PROBLEMS]
        if problems:
            raise SourceError(
                f"{item}: {'; '.join(problems)}",
                location=f"source {report.source!r}",
                hint="; ".join(
                    [
                        *statements,
                        f"`workbench source check {report.source} --world {report.world}` has the details",
                    ]
                ),
            )


def _open(at: World, flow: str, options: dict[str, Any]) -> Declaration:
    """Return the declaration of a flow; a new one has no tables.

    Raises:
        LakeError: the flow has other options, or its name cannot be used.
    """
    _require_name(flow)
    if not (folder(flow) / "flow.yaml").exists():
        declared = Declaration.model_validate({**options, "tables": []})
        _require_unused(at, flow, declared)
        return declared
    declared = declaration(flow)
    for option, value in options.items():
        if getattr(declared, option) != value:
            raise LakeError(
                f"flow {flow!r} has the {option} {getattr(declared, option)!r}, not {value!r}",
                location=paths.display_path(folder(flow)),
                hint=f"choose another name: --as NAME; or first `workbench forget {flow}`",
            )
    return declared


def _require_name(flow: str) -> None:
    """Raise LakeError if a flow cannot have this name, which becomes a folder, a topic and a slot."""
    if not FLOW_NAME.fullmatch(flow):
        raise LakeError(
            f"{flow!r} is not the name of a flow",
            expected="a small letter, then small letters, digits and _; 30 at most",
            hint="--as NAME",
        )


def _require_unused(at: World, flow: str, declared: Declaration) -> None:
    """Raise LakeError if something has the id of a new flow: nothing shows whose it is."""
    name = OWN_PREFIX + flow
    reserved = {"default", *(each for one in _bundled for each in one.resources.catalog_databases)}
    reserved |= {table.database for one in _bundled if one.flow for table in one.flow.tables(at)}
    used = [f"catalog database {flow} (of the walkthroughs)"] if flow in reserved else []
    used += [f"connector {name}"] if name in landing.names(at) else []
    used += [f"topic {topic}" for topic in topics.names(at) if topic.startswith(f"{name}.")]
    if session(at).catalog.databaseExists(flow):
        used.append(f"catalog database {flow}")
    if declared.engine == "postgres" and not declared.poll:
        slot = postgres.slot_prefix(at) + name
        if name in {*postgres.publications(at, declared.database)["publication"]}:
            used.append(f"publication {name} (DROP PUBLICATION {name})")
        if slot in {*postgres.all_slots(at)["slot_name"]}:
            used.append(f"replication slot {slot} (SELECT pg_drop_replication_slot('{slot}'))")
    if used:
        raise LakeError(
            f"the name {flow!r} is in use: {', '.join(used)}",
            location=f"source {declared.source!r}; no flow in {paths.display_path(folder())} made it",
            hint="choose another name: --as NAME; or remove what is obsolete. Nothing was changed",
        )


def _describe(
    at: World,
    declared: Declaration,
    tables: Sequence[str],
    key: Sequence[str],
    exclude: Sequence[str],
    layout: dict[str, Any],
) -> list[OwnTable]:
    """Return those of the tables that the flow does not have yet.

    Raises:
        SourceError: a table cannot be captured.
        LakeError: a column of the options does not exist, an option differs from that of a table of the
            flow, or two tables would have one name in the lake.
    """
    known = {table.source: table for table in declared.tables}
    added, found = list[OwnTable](), set[str]()
    for name in tables:
        own = known.get(own_source.full_name(ENGINES[declared.engine], declared.database, name))
        if own:
            found.update(_require_same(at, declared, own, key, exclude, layout))
            continue
        table = own_source.describe(
            at, ENGINES[declared.engine], declared.database, name, key, exclude
        )
        known[table.name] = _own_table(at, declared, table, layout)
        added.append(known[table.name])
        found.update(table.excluded)
    if {*exclude} - found:  # with a typing error the column would get into the lake
        raise LakeError(
            f"no column {', '.join(sorted({*exclude} - found))} in {', '.join(tables)}",
            expected="excluded columns as the database spells them",
        )
    lake_names = [table.name for table in known.values()]
    if len({*lake_names}) < len(lake_names):
        raise LakeError(
            f"several tables would have the same name in the lake: {', '.join(sorted(lake_names))}",
            hint="capture one of them with another flow: --as NAME",
        )
    return added


def _own_table(
    at: World, declared: Declaration, table: own_source.SourceTable, layout: dict[str, Any]
) -> OwnTable:
    """Return the declaration of a new table.

    Raises:
        LakeError: a column of the partition or of the polling does not exist.
    """
    missing = {*layout["partition"], *filter(None, [declared.poll])} - {*table.columns}
    if missing:
        raise LakeError(
            f"{table.name} has no column {', '.join(sorted(missing))}",
            expected=f"one of {', '.join(table.columns)}",
        )
    schema, _, short = table.name.lower().partition(".")
    return OwnTable(
        source=table.name,
        name=short if schema in ("public", declared.database) else f"{schema}_{short}",
        key=[*table.key],
        declares_key=table.declares_key,
        rows=table.rows,
        excluded=table.excluded,
        joined=bool(declared.tables),
        scales=_scales(at, declared, table),
        **layout,
    )


def _require_same(
    at: World,
    declared: Declaration,
    own: OwnTable,
    key: Sequence[str],
    exclude: Sequence[str],
    layout: dict[str, Any],
) -> list[str]:
    """Return those of the columns to exclude that a table of the flow has.

    Raises:
        LakeError: an option is given that differs from the table's.
    """
    described = _describe_again(
        at,
        ENGINES[declared.engine],
        declared.database,
        own.model_copy(update={"excluded": [*own.excluded, *exclude]}),
    )
    excluded = [column for column in described.excluded if column in exclude]
    given = {"key": [*key], "excluded": excluded, **layout}
    for option, value in given.items():
        if value and {*value} != {*getattr(own, option)}:
            raise LakeError(
                f"the flow has {own.source} with the {option} {getattr(own, option)!r}, not {value!r}",
                hint="leave the option out, or capture the table with another flow: --as NAME",
            )
    return excluded


def _scales(at: World, declared: Declaration, table: own_source.SourceTable) -> dict[str, int]:
    """Return the digits after the decimal point of numeric columns that have more than the default 10."""
    loose = [column for column, kind in table.columns.items() if kind == "numeric"]
    if not loose:
        return {}
    scales = [sql.SQL("max(scale({0})) AS {0}").format(sql.Identifier(each)) for each in loose]
    query = sql.SQL("SELECT {} FROM {}").format(sql.SQL(", ").join(scales), identifier(table.name))
    found = postgres.query(at, query, database=declared.database).iloc[0].dropna()
    return {column: min(int(n), MAX_SCALE) for column, n in found.items() if n > DEFAULT_SCALE}


def _write(flow: str, declared: Declaration) -> None:
    """Write flow.yaml, then the connector's JSON: `load` creates a missing one."""
    text = yaml.safe_dump(declared.model_dump(), sort_keys=False, allow_unicode=True)
    paths.write_private_file(folder(flow) / "flow.yaml", text.encode())
    _write_connector(flow, declared)


def _write_connector(flow: str, declared: Declaration) -> None:
    """Write the tables of a flow into the connector's JSON; the user's other changes of it stay."""
    path = folder(flow) / f"{OWN_PREFIX}{flow}.json"
    config = configs.read(path) if path.exists() else _template(OWN_PREFIX + flow, declared)
    sources = ",".join(table.source for table in declared.tables)
    if declared.poll:
        config["table.whitelist"] = sources
    else:
        config["table.include.list"] = sources
        config["message.key.columns"] = ";".join(
            f"{table.source}:{','.join(table.key)}"
            for table in declared.tables
            if table.declares_key
        )
        config["column.exclude.list"] = ",".join(_excluded(declared))
    config = {key: value for key, value in config.items() if value}
    if not path.exists() or configs.read(path) != config:
        paths.write_private_file(path, json.dumps(config, indent=2).encode())


def _excluded(declared: Declaration) -> list[str]:
    return [f"{table.source}.{column}" for table in declared.tables for column in table.excluded]


def _template(connector: str, declared: Declaration) -> dict[str, str]:
    """Return the JSON of a new connector."""
    kind = "poll" if declared.poll else declared.engine
    template = {
        **TEMPLATES["connectors"][kind],
        **({} if declared.poll else TEMPLATES["log"]),
        **TEMPLATES["converters"][declared.format],
    }
    values = {
        "id": connector,
        "database": declared.database,
        "poll": declared.poll,
        "server_id": str(10_000 + zlib.crc32(connector.encode()) % 10**6),
    }
    return {
        key: re.sub(r"<(\w+)>", lambda match: values.get(match[1], ""), text)
        for key, text in template.items()
    }


def is_complete(world: World, flow: str) -> bool:
    """Return whether the connector runs with its JSON, and each table was captured and compared."""
    declared, captured = declaration(flow), load(world, flow).flow
    at, connector = world.source(declared.source), OWN_PREFIX + flow
    assert captured
    if connector not in landing.names(at):
        return False
    if not declared.poll:
        target = {**captured.config(at, connector), "name": connector}
        if connect.deployed(at, connector) != target or connect.failure(at, connector):
            return False
    return all(
        _is_captured(at, captured, own) or not (hudi.exists(table) or captured.count(at, own.name))
        for table, own in zip(captured.tables(at), declared.tables)
    )


def complete(world: World, flow: str, progress: Callable[[str], None] = print) -> pandas.DataFrame:
    """Create what is missing of a flow, and compare its new tables with the source (see `capture`)."""
    captured, declared = load(world, flow).flow, declaration(flow)
    at, db = world.source(declared.source), ENGINES[declared.engine]
    assert captured
    _require_tables(at, flow, declared)
    unchanged = is_complete(world, flow)
    if unchanged:
        progress(f"{flow}: nothing to change, its {len(declared.tables)} tables are captured")
    else:
        _deploy(at, declared, captured)
    spark, rows = session(at), []
    for table, own in zip(captured.tables(at), declared.tables):
        started = time.monotonic()
        if not _is_captured(at, captured, own):
            _compare(spark, at, captured, table, own)
        described = _describe_again(at, db, declared.database, own)
        changed = _changed_types(spark, described, table)
        seconds = time.monotonic() - started
        rows.append((own.source, described.rows, round(seconds, 1), changed))
        if not unchanged:
            types = "".join(f"; {column}: {text}" for column, text in changed.items())
            progress(f"{own.source}: {described.rows:,} rows, {seconds:.1f} s{types}")
    return pandas.DataFrame(rows, columns=["table", "rows", "seconds", "changed_types"])


def _require_tables(at: World, flow: str, declared: Declaration) -> None:
    """Raise SourceError if tables of a flow were dropped or renamed in the source."""
    sources = [table.source for table in declared.tables]
    existing = ENGINES[declared.engine].existing_tables(at, sources, declared.database)
    missing = sorted({*sources} - {*existing})
    if missing:
        raise SourceError(
            f"the source no longer has {', '.join(missing)}",
            location=f"database {declared.database}; {paths.display_path(folder(flow))}",
            hint=f"`workbench forget {flow} {' '.join(missing)} --world {at.name}` removes them from the flow; "
            "the others are not compared until then, but `follow` brings their changes",
        )


def _deploy(at: World, declared: Declaration, captured: CaptureFlow) -> None:
    """Create publication, grants, topics and connector, and wait for the snapshot."""
    connector, sources = captured.captures[0].connector, [c.source for c in captured.captures]
    if captured.publication:
        postgres.create_publication(
            at, captured.publication, sources, declared.database, _excluded(declared)
        )
    if at.server(
        declared.engine
    ).managed:  # otherwise the user has the permissions that its owner gave
        grant = postgres if declared.engine == "postgres" else mariadb
        grant.grant_replication(at, sources, declared.database)
    own_topics = [] if declared.poll else [f"{connector}.signals"]
    for topic in own_topics:
        topics.create(at, topic)
    for name in captured.names:
        topics.create(at, captured.topic(at, name), **TEMPLATES["topic"])
    landing.apply(at, connector, captured.config(at, connector))
    if not declared.poll:
        connect.wait_running(at, connector)
        _await_snapshot(at, declared, captured)


def _await_snapshot(at: World, declared: Declaration, captured: CaptureFlow) -> None:
    """Start the snapshot of tables that join a running connector, and wait for those of all new tables."""
    connector = captured.captures[0].connector
    new = [table for table in declared.tables if not _is_captured(at, captured, table)]
    joined = [table for table in new if table.joined]
    spans = {t.name: topics.offset_span(at, captured.topic(at, t.name)) for t in joined}
    if joined:
        if captured.publication:  # the log has no changes from before a table was published
            postgres.wait_for_open_transactions(at, captured.database)
        captured.wait_until_captured(at)  # the connector knows the tables now
        data = {"data-collections": [t.source for t in joined], "type": "BLOCKING"}
        signal = json.dumps({"type": "execute-snapshot", "data": data})
        topics.produce(at, f"{connector}.signals", [(connector, signal)])
    for table in new:
        expected = spans.get(table.name, 0) + captured.count(at, table.name)
        topic = captured.topic(at, table.name)
        topics.wait_for_messages(at, topic, expected, connector=connector)


def _is_captured(at: World, captured: CaptureFlow, table: OwnTable) -> bool:
    return LABEL in {*hudi.labels(at, captured.table(at, table.name))["label"]}


def _changed_types(
    spark: SparkSession, described: own_source.SourceTable, table: hudi.Table
) -> dict[str, str]:
    """Return {column: "source type → lake type"} of the columns whose type is another one in the lake."""
    if not hudi.exists(table):
        return {}
    lake = dict(hudi.read(spark, table).dtypes)
    changed = {}
    for column, kind in described.columns.items():
        same = TEMPLATES["same_types"].get(_base_type(kind)) or kind.replace("numeric", "decimal")
        if lake.get(column) not in (same, kind):
            changed[column] = f"{kind} → {lake.get(column, 'missing')}"
    return changed


def _compare(
    spark: SparkSession, at: World, captured: CaptureFlow, table: hudi.Table, own: OwnTable
) -> None:
    """Ingest and compare a table, and label the instant of its first comparison.

    Raises:
        CheckFailed: they differ, also after COMPARISONS attempts.
    """
    for attempt in range(COMPARISONS):
        position = captured.db.log_position(at, captured.database)
        captured.wait_until_captured(at)
        captured.ingest(spark, at, table)
        if _has_same_rows(spark, at, captured, table, own, attempt == COMPARISONS - 1):
            break
        time.sleep(1)
    if hudi.exists(table) and not _is_captured(at, captured, own):
        hudi.label(at, table, LABEL, position)


def _describe_again(
    at: World, db: SourceDatabase, database: str, own: OwnTable
) -> own_source.SourceTable:
    key = own.key if own.declares_key else ()
    return own_source.describe(at, db, database, own.source, key, own.excluded)


def _comparable_sql(db: SourceDatabase, described: own_source.SourceTable) -> str:
    """Return the query for a table's rows as the lake has them with analyst types."""
    rules = TEMPLATES["comparable"]["postgres" if db is POSTGRESQL else "mariadb"]
    columns = []
    for name, kind in described.columns.items():
        column = f'"{name}"'
        columns.append(f"{_comparable_value(rules, kind, column)} AS {column}")
    schema, _, table = described.name.partition(".")
    # own_source.describe has accepted the names: letters, digits and _ only
    return f'SELECT {", ".join(columns)} FROM "{schema}"."{table}"'  # noqa: S608


def _comparable_value(rules: dict[str, str], kind: str, value: str) -> str:
    rule = rules.get(kind) or rules.get(_base_type(kind))
    if not rule and kind.endswith("[]"):
        rule = rules["[]"].replace("<>", _comparable_value(rules, kind[:-2], "e"))
    return (rule or rules[""]).replace("{}", value)


def _same_columns(
    spark: SparkSession,
    db: SourceDatabase,
    described: own_source.SourceTable,
    table: hudi.Table,
) -> dict[str, str]:
    """Return the columns whose values in a lake table with Debezium's types are those of the source."""
    changed, lake = _changed_types(spark, described, table), dict(hudi.read(spark, table).dtypes)
    rules = TEMPLATES["comparable"]["postgres" if db is POSTGRESQL else "mariadb"]
    converted = {*rules, *TEMPLATES["same_types"]}
    return {
        column: kind
        for column, kind in described.columns.items()
        if column not in changed
        or (lake.get(column) == "string" and _base_type(kind) not in converted)
    }


def _base_type(kind: str) -> str:
    """Return a type of the source without its digits."""
    return re.sub(r"\(.*?\)", "", kind)


def _has_same_rows(
    spark: SparkSession,
    at: World,
    captured: CaptureFlow,
    table: hudi.Table,
    own: OwnTable,
    is_last: bool,
) -> bool:
    """Return whether a lake table equals its source; show the check if it does, or if it is the last.

    Raises:
        CheckFailed: they differ in the last comparison.
    """
    described = _describe_again(at, captured.db, captured.database or "", own)
    copy = "" if _is_captured(at, captured, own) else "first copy of "
    claim, rows, skipped = f"{copy}{own.source} = lake", described.rows, list[str]()
    if captured.capture(own.name).types == changes.RAW and hudi.exists(table):
        columns = _same_columns(spark, captured.db, described, table)
        skipped = [column for column in described.columns if column not in columns]
        described = replace(described, columns=columns)
    if rows > MAX_COMPARED_ROWS or {*own.key} & {*skipped}:
        lake_rows = hudi.read(spark, table).count()
        if lake_rows == rows or is_last:
            check.equal(f"{claim}, number of rows", lake_rows, rows)
        return lake_rows == rows
    expected = replace(
        captured.capture(own.name), expected_sql=_comparable_sql(captured.db, described)
    )
    source = replace(captured, captures=(expected,)).rows(at, own.name)
    lake = source.head(0)
    if hudi.exists(table):
        lake = cast(pandas.DataFrame, hudi.read(spark, table).toPandas())
        # a column that was added to the source is in the lake after the next change
        lake = lake.reindex(columns=source.columns)
    is_same = not check_values.differences(source, lake, own.key, ("lake", "source"))
    if is_same or is_last:
        extent = f"row by row{', without ' * bool(skipped)}{', '.join(skipped)}"
        check.same_rows(source, lake, own.key, f"{claim}, {extent}", allow_empty=True)
    return is_same


def follow(
    world: World,
    flow: str,
    continuous: bool = False,
    progress: Callable[[str], None] = print,
) -> dict[str, hudi.Ingested]:
    """Bring the changes that the source has committed so far into the lake.

    Args:
        world: the world.
        flow: name of the flow.
        continuous: continue with later changes until SIGTERM or Ctrl-C.
        progress: called with one line per table that has changes.

    Returns:
        {lake table: counts} of the last round.
    """
    at, captured = _running(world, flow)
    spark, existing, tables = session(at), {*topics.names(at)}, list[hudi.Table]()
    for each, capture in zip(captured.tables(at), captured.captures):
        if captured.topic(at, capture.name) in existing:
            tables.append(each)
        else:  # its capture was interrupted, or failed
            progress(
                f"{capture.source} is left out, because it has no topic: repeat `workbench capture`, "
                f"or `workbench forget {flow} {capture.source}`"
            )
    with stop_on_signal() as stop:
        while True:
            counts = (
                captured.ingest(spark, at, *tables, stop=stop.is_set)
                if continuous
                else captured.sync(spark, at, *tables)
            )
            for table, ingested in counts.items():
                if ingested.messages or not continuous:
                    progress(f"{table}: {ingested!r}")
            if not continuous or stop.wait(POLL_INTERVAL):
                return counts


def compare(world: World, flow: str) -> None:
    """Compare each lake table of a flow with its source, row by row; later changes are ingested first.

    A table of more than a million rows is compared by its number of rows.

    Raises:
        CheckFailed: a table differs.
        SourceError: the source no longer has one of the tables.
    """
    at, captured = _running(world, flow)
    _require_tables(at, flow, declaration(flow))
    for table, own in zip(captured.tables(at), declaration(flow).tables):
        _compare(session(at), at, captured, table, own)


def _running(world: World, flow: str) -> tuple[World, CaptureFlow]:
    """Return the world of the source and the captured tables of a flow, whose services run."""
    walkthrough, declared = load(world, flow), declaration(flow)
    at = world.source(declared.source)
    stack.ensure_running(at, *walkthrough.steps.services)
    assert walkthrough.flow
    return at, walkthrough.flow


def remaining(world: World, flow: str) -> dict[str, list[str]]:
    """Return what `forget` removes, {kind: names}."""
    walkthrough = load(world, flow)
    stack.ensure_running(world.source(declaration(flow).source), *walkthrough.steps.services)
    return {kind: found for kind, found in walkthrough.resources.remaining(world).items() if found}


def forget(world: World, flow: str, *tables: str) -> None:
    """Remove a flow: what `remaining` returns. The source tables and their rows stay.

    Args:
        world: the world of the flow.
        flow: name of the flow.
        *tables: tables that leave the flow, by their names in source or lake; by default the whole flow
            is removed. Their topics and lake tables are removed, and the others are captured further.

    Raises:
        LakeError: there is no such flow or table, or the flow is one of another world.
    """
    remaining(world, flow)
    declared = declaration(flow)
    leaving = [each for each in declared.tables if {each.name, each.source} & {*tables}]
    unknown = {*tables}.difference(*((each.name, each.source) for each in leaving))
    if unknown:
        raise LakeError(
            f"flow {flow!r} has no table {', '.join(sorted(unknown))}",
            expected=f"one of {', '.join(each.source for each in declared.tables)}",
        )
    if len(leaving) in (0, len(declared.tables)):
        load(world, flow).reset(world)
    else:
        _remove_tables(world, flow, declared, leaving)


def _remove_tables(
    world: World, flow: str, declared: Declaration, leaving: Sequence[OwnTable]
) -> None:
    """Remove some tables of a flow; flow.yaml is written last, so that a repeated call continues."""
    at, connector = world.source(declared.source), OWN_PREFIX + flow
    kept = [table for table in declared.tables if table not in leaving]
    reduced = declared.model_copy(update={"tables": kept})
    _write_connector(flow, reduced)
    captured = load(world, flow).flow
    assert captured
    if captured.publication:
        sources = [table.source for table in kept]
        postgres.create_publication(
            at, captured.publication, sources, declared.database, _excluded(reduced)
        )
    landing.apply(at, connector, captured.config(at, connector))
    if declared.poll:  # otherwise a table that joins again would not be polled from its start
        landing.reset_offsets(at, captured.config(at, connector))
    for each in leaving:
        table, topic = captured.table(at, each.name), captured.topic(at, each.name)
        hudi.drop(session(at), at, table)
        if declared.format == "avro":
            registry.delete(at, f"{topic}-key", f"{topic}-value")
        topics.delete(at, topic)
    _write(flow, reduced)
