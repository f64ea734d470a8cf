"""The capture of a flow: what is refused, what is created, and the first comparison."""

import contextvars
import json
import shlex
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Mapping, Sequence, Union

import pandas
from psycopg import sql

from .. import connect, hudi, landing, stack
from ..base import LakeError, SourceError, WorkbenchError, World, paths
from ..base.errors import CheckFailed
from ..flow import RESERVED_DATABASES
from ..flow.resources import SCHEMAS, Product
from ..hudi.analyst_types import DEFAULT_SCALE
from ..source import mariadb, postgres
from ..source.names import identifier
from ..spark import session
from ..topic import topics
from . import checking, comparing, files, tables, values
from .files import TEMPLATES, Declaration, OwnTable
from .flow import LABEL, OwnFlow, compose, open_flow

MAX_SCALE = 30  # leaves eight digits before the decimal point


def capture(
    world: World,
    source: str,
    *names: str,
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
        *names: the tables, `table` or `schema.table`; without any, an interrupted capture continues.
        flow: name of the flow, by default that of the source. The lake tables are in a catalog database
            of this name.
        format: format of the messages, "json" or "avro"; by default that of the flow, and of a new flow JSON.
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
            cannot be polled; the replication slot is gone; or a command on the flow is not complete.
        CheckFailed: a lake table does not equal its source. The other tables are captured.
    """
    name, at = flow or source, world.source(source)
    with files.exclusive(name):
        declared = _open(world, name, source, format, raw, poll, not names)
        options = {
            "key": [*key],
            "partition": [*partition],
            "type": type,
            "excluded": [*exclude],
        }
        if not names and (not declared.tables or any(options.values())):
            raise LakeError(
                "no table is named",
                location=f"flow {name!r}",
                expected="the tables of a new flow; and of --key, --partition, --type and --exclude",
                hint=f"name a table: workbench capture {source} TABLE",
            )
        checking.require_server(world, declared)
        drafts = [_draft(declared, each, options) for each in names]
        new = [draft for draft in drafts if draft.source not in declared.sources]
        captured = checking.existing_tables(world, declared)
        checking.require_capturable(world, declared, [*new, *captured])
        added = _describe(at, declared, drafts)
        stack.ensure_running(at, *declared.services)
        is_new, declared = not declared.tables, declared.with_tables([*declared.tables, *added])
        if is_new:
            _require_unused(at, name, declared)
        files.write(name, declared)  # also without new ones: only flow.yaml may have been written
        if poll:
            progress(
                "polling sees no deletes, and of several changes between two polls only the last"
            )
        return _complete(world, name, progress)


def recapture(world: World, flow: str) -> None:
    """Capture the tables of a flow from a new snapshot, with the columns, primary keys and types that they have now.

    Topics and connector are removed first. The lake tables stay until the new topics hold the whole snapshot, and each
    message of it has been ingested into a copy. A repeated call continues an interrupted one.

    Raises:
        LakeError: there is no such flow; or a message of the snapshot cannot be ingested.
        SourceError: a table does not exist any more, or cannot be captured. Nothing was removed.
        CheckFailed: a lake table does not equal its source.
    """
    with files.exclusive(flow):
        command = f"recapture {flow}"
        at, captured = open_flow(world, flow, continued=command)
        declared = captured.declared.model_copy(update={"unfinished": "recapture"})
        captured.require_tables(at)
        checking.require_server(world, declared)
        checking.require_capturable(world, declared, declared.tables)
        tables_now = [
            _with_catalog(at, declared, each.model_copy(update={"joined": False}))
            for each in declared.tables
        ]
        renewed = declared.with_tables(tables_now)
        files.write_declaration(flow, declared)
        captured.resources.remove(at, Product.TOPICS, keep=(SCHEMAS,))
        files.write(flow, renewed)
        at, captured = open_flow(world, flow, continued=command)
        _deploy(at, captured, renewed.tables)
        if declared.poll:
            landing.run_once(at, *captured.deployed_connectors)
        for own in renewed.tables:
            _rehearse(at, captured, own)
        for table in captured.tables(at):
            hudi.drop(session(at), at, table)
        files.write_storage(flow, {})
        _complete(world, flow, continued=command)
        files.write_declaration(flow, renewed.model_copy(update={"unfinished": ""}))


def _rehearse(at: World, flow: OwnFlow, own: OwnTable) -> None:
    """Ingest the snapshot of a table into a copy that is removed again.

    Raises:
        LakeError: a message cannot be ingested. The lake table was not changed.
    """
    if not topics.offset_span(at, flow.topic(at, own.name)):
        return
    spark, copy = session(at), hudi.scratch_copy(at, flow.table(at, own.name))
    hudi.drop(None, at, copy)
    hudi.ingest(spark, at, flow.source(at, own.name), copy)
    dead = hudi.dead_letters(spark, at, copy).take(1)
    hudi.drop(None, at, copy)
    if dead:
        raise LakeError(
            f"a row of {own.source} cannot be captured: {dead[0]['reason']}",
            location=f"topic {dead[0]['topic']}, partition {dead[0]['partition']}, offset {dead[0]['offset']}",
            hint=f"correct the row in the source, and repeat `{flow.recapture_command}`. "
            "The lake tables are as they were, and get no changes until then",
        )


def _open(
    world: World, flow: str, source: str, format: str, raw: bool, poll: str, continues: bool
) -> Declaration:
    """Return the declaration of a flow; a new one is that of the options, without tables.

    A capture that only continues takes the options of the flow that are not given.

    Raises:
        LakeError: the flow has other options, or a name that cannot be used; or it cannot be polled.
    """
    files.require_name(flow, hint=f"--as {files.free_name(flow)}")
    existing = files.declaration(flow) if files.exists(flow) else None
    if existing:
        files.require_finished(flow, existing)
        format = format or existing.format
        if continues:
            raw, poll = raw or existing.raw, poll or existing.poll
    engine = world.source_engine(source)
    options = {
        "world": world.name,
        "source": source,
        "engine": engine,
        "database": world.source(source).server(engine).database,
        "format": format or "json",
        "raw": raw,
        "poll": poll,
    }
    if poll and (engine, options["format"]) != ("postgres", "json"):
        raise LakeError(
            f"a table of {engine} cannot be polled with messages in {options['format']}",
            expected="PostgreSQL and JSON",
            hint="--format json" if engine == "postgres" else "without --poll the log is read",
        )
    declared = existing or Declaration.model_validate({**options, "tables": []})
    for option, value in options.items():
        if getattr(declared, option) != value:
            raise LakeError(
                f"flow {flow!r} has the {option} {getattr(declared, option)!r}, not {value!r}",
                location=paths.display_path(files.folder(flow)),
                hint=f"choose another name: --as {files.free_name(flow)}; "
                f"or first `workbench forget {flow} --world {declared.world}`",
            )
    return declared


def _require_unused(at: World, flow: str, declared: Declaration) -> None:
    """Raise LakeError if something has the id of a new flow: nothing shows whose it is."""
    raw = files.connector_config(flow, declared, {})
    draft = compose(flow, declared, raw, is_draft=True)
    used = [f"catalog database {flow} (of the tracks)"] if flow in RESERVED_DATABASES else []
    for kind, names in draft.resources.remaining(at).items():
        used += [f"{kind} {name}" for name in names]
    if used:
        raise LakeError(
            f"the name {flow!r} is in use: {', '.join(used)}",
            location=f"source {declared.source!r}; no flow in {paths.display_path(files.folder())} made it",
            hint=f"choose another name: --as {files.free_name(flow)}; or remove what is obsolete "
            "(DROP PUBLICATION, SELECT pg_drop_replication_slot). Nothing was changed",
        )


def _draft(declared: Declaration, name: str, options: Mapping[str, Any]) -> OwnTable:
    """Return a table, which may be named without its schema, with the options of a capture."""
    default = declared.database if declared.db is mariadb else "public"
    source = name if "." in name else f"{default}.{name}"
    schema, _, short = source.lower().partition(".")
    fields = {
        **options,
        "source": source,
        "name": short if schema in ("public", declared.database) else f"{schema}_{short}",
        "declares_key": bool(options["key"]),
        "rows": 0,
        "joined": bool(declared.tables),
    }
    return OwnTable.model_validate(fields)


def _describe(at: World, declared: Declaration, drafts: Sequence[OwnTable]) -> list[OwnTable]:
    """Return those of the tables that the flow does not have yet, with their columns and rows.

    Raises:
        SourceError: a table cannot be captured.
        LakeError: a column of the options does not exist, an option differs from that of a table of the
            flow, or two tables would have one name in the lake.
    """
    known = {table.source: table for table in declared.tables}
    added, excluded = dict[str, OwnTable](), set[str]()
    for draft in drafts:
        if draft.source in known:
            excluded |= _require_same(at, declared, known[draft.source], draft)
        else:
            added[draft.source] = _with_catalog(at, declared, draft)
            excluded |= {*added[draft.source].excluded}
    unknown = {column for draft in drafts for column in draft.excluded} - excluded
    if unknown:  # with a typing error the column would get into the lake
        raise LakeError(
            f"no column {', '.join(sorted(unknown))} in {', '.join(each.source for each in drafts)}",
            expected="excluded columns as the database spells them",
        )
    sources = dict[str, str]()
    for table in (*known.values(), *added.values()):
        other = sources.setdefault(table.name, table.source)
        if other != table.source:
            raise LakeError(
                f"{other} and {table.source} would have the same name in the lake: {table.name}",
                hint="capture one of them with another flow: "
                f"`workbench capture {declared.source} {shlex.quote(table.source)} "
                f"--as {files.free_name(declared.source)} --world {declared.world}`",
            )
    return [*added.values()]


def _with_catalog(at: World, declared: Declaration, draft: OwnTable) -> OwnTable:
    """Return a table with what the source's catalog and its rows say of it.

    Raises:
        SourceError: the table cannot be captured.
        LakeError: it has no such column.
    """
    table = tables.describe(at, declared, draft)
    for column in (*table.partition, declared.poll):
        if column and column not in table.columns:
            raise LakeError(
                f"{table.source} has no column {column}",
                expected=f"one of {', '.join(table.columns)}",
            )
    tables.require_partitions(at, declared, table)
    derived = {
        "scales": _scales(at, declared, table),
        "encodes_key": tables.encodes_key(table),
        "layout": tables.layout(table),
    }
    return table.model_copy(update=derived)


def _require_same(at: World, declared: Declaration, own: OwnTable, draft: OwnTable) -> set[str]:
    """Return those of the columns to exclude that a table of the flow has.

    Raises:
        LakeError: an option is given that differs from the table's.
    """
    columns = tables.describe(at, declared, own).columns
    excluded = [each for each in draft.excluded if each in own.excluded or each in columns]
    requested = draft.model_copy(update={"excluded": excluded})
    for option in ("key", "excluded", "partition", "type"):
        before, value = getattr(own, option), getattr(requested, option)
        if value and {*value} != {*before}:
            raise LakeError(
                f"the flow has {own.source} with the {option} {before!r}, not {value!r}",
                hint="leave the option out, or capture the table with another flow: "
                f"--as {files.free_name(declared.source)}",
            )
    return {*excluded}


def _scales(at: World, declared: Declaration, table: OwnTable) -> dict[str, int]:
    """Return the digits after the decimal point of numeric columns that have more than the default 10."""
    loose = [column for column, kind in table.columns.items() if kind == "numeric"]
    if not loose:
        return {}
    scales = [sql.SQL("max(scale({0})) AS {0}").format(sql.Identifier(each)) for each in loose]
    query = sql.SQL("SELECT {} FROM {}").format(
        sql.SQL(", ").join(scales), identifier(table.source)
    )
    digits = postgres.query(at, query, database=declared.database).iloc[0].dropna()
    return {column: min(int(n), MAX_SCALE) for column, n in digits.items() if n > DEFAULT_SCALE}


def _complete(
    world: World, flow: str, progress: Callable[[str], None] = print, continued: str = ""
) -> pandas.DataFrame:
    """Create what is missing of a flow, and compare its new tables with the source (see `capture`)."""
    at, captured = open_flow(world, flow, start=False, continued=continued)
    captured.require_tables(at)
    captured.require_same_tables(at)
    captured.require_slot(at)
    new = _new_tables(at, captured)
    try:
        _deploy(at, captured, new)
    except SourceError:
        captured.require_tables(at)  # a table may have been dropped meanwhile
        raise
    rows, failures = [], list[WorkbenchError]()
    pool = ThreadPoolExecutor(2)  # the embedded Spark has two cores
    try:
        # in a copy of the context, in which a check may be quiet
        futures = [
            pool.submit(contextvars.copy_context().run, _complete_table, at, captured, new, own)
            for own in captured.declared.tables
        ]
        for own, future in zip(captured.declared.tables, futures):
            completed = future.result()
            if isinstance(completed, WorkbenchError):  # the others are captured
                failures.append(completed)
                progress(f"{own.source} is not captured: {completed.message}")
                continue
            rows.append(completed)
            if own in new:
                _, count, seconds, changed = completed
                types = "".join(f"; {column}: {text}" for column, text in changed.items())
                progress(f"{own.source}: {count:,} rows, {seconds:.1f} s{types}")
    finally:
        pool.shutdown(cancel_futures=True)
    if failures:
        raise failures[0]
    if not new:
        progress(f"{flow}: nothing to change in its {len(captured.names)} tables")
    return pandas.DataFrame(rows, columns=["table", "rows", "seconds", "changed_types"])


def _complete_table(
    at: World, flow: OwnFlow, new: Sequence[OwnTable], own: OwnTable
) -> Union[tuple[str, int, float, dict[str, str]], WorkbenchError]:
    """Compare a table if it is new; return its row of the result, or why it is not captured."""
    started = time.monotonic()
    try:
        if own in new:
            described = comparing.compare_table(at, flow, own)
        else:
            described = tables.describe(at, flow.declared, own)
    except (LakeError, CheckFailed) as e:
        return e
    changed = values.changed_types(at, described, flow.table(at, own.name))
    return own.source, described.rows, round(time.monotonic() - started, 1), changed


def _new_tables(at: World, flow: OwnFlow) -> list[OwnTable]:
    """Return the tables to capture and compare: those that never were, and those whose lake table was dropped.

    A lake table that was made anew has no label until it was compared.
    """
    compared = files.storage(flow.name)
    return [
        own
        for own in flow.declared.tables
        if own.source not in compared
        or (
            LABEL not in {*hudi.labels(at, flow.table(at, own.name))["label"]}
            and flow.count(at, own.name)
        )
    ]


def _deploy(at: World, flow: OwnFlow, new: Sequence[OwnTable]) -> None:
    """Create publication, grants, topics and connector, and wait for the snapshot of new tables.

    What exists stays as it is.
    """
    declared, connector = flow.declared, flow.connector
    flow.publish(at, declared)
    if at.server(declared.engine).managed:  # otherwise its owner has granted the permissions
        grant = postgres if declared.engine == "postgres" else mariadb
        grant.grant_replication(at, declared.sources, declared.database)
    if not declared.poll:
        topics.create(at, f"{connector}.signals")
    for name in flow.names:
        topics.create(at, flow.topic(at, name), **TEMPLATES["topic"])
    landing.apply(at, connector, flow.config(at, connector))
    if not declared.poll:
        connect.wait_running(at, connector)
        _await_snapshots(at, flow, new)


def _await_snapshots(at: World, flow: OwnFlow, new: Sequence[OwnTable]) -> None:
    """Start the snapshot of tables that join a running connector, and wait for those of all new tables."""
    joined = [table for table in new if table.joined]
    messages = {t.name: topics.offset_span(at, flow.topic(at, t.name)) for t in joined}
    if joined:
        if flow.publication:  # the log has no changes from before a table was published
            postgres.wait_for_open_transactions(at, flow.database)
        flow.wait_until_captured(at)  # the connector knows the tables now
        _start_snapshot(at, flow, joined)
    for table in new:
        expected = messages.get(table.name, 0) + flow.count(at, table.name)
        topic = flow.topic(at, table.name)
        topics.wait_for_messages(at, topic, expected, connector=flow.connector)


def _start_snapshot(at: World, flow: OwnFlow, joined: Sequence[OwnTable]) -> None:
    """Send the running connector a signal to take a snapshot of these tables."""
    config = flow.config(at, flow.connector)
    selects = {t.source: config.get(f"{files.OVERRIDES}.{t.source}") for t in joined}
    data = {
        "data-collections": [*selects],
        "type": "BLOCKING",
        "additional-conditions": [
            {"data-collection": name, "filter": select}
            for name, select in selects.items()
            if select
        ],
    }
    signal = json.dumps({"type": "execute-snapshot", "data": data})
    topics.produce(at, f"{flow.connector}.signals", [(flow.connector, signal)])
