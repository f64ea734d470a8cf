"""A flow: its captured tables, and how it is found and removed."""

import shutil
import sys
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Callable, Iterator, Sequence, cast

from pyspark.sql import SparkSession
from rich.filesize import decimal as format_size

from .. import connect, hudi, landing, stack
from ..base import (
    ConnectorError,
    LakeError,
    SourceError,
    WorkbenchError,
    World,
    params,
    paths,
)
from ..base.tls import LOOPBACK_NAMES
from ..connect import configs
from ..flow.capture import Capture
from ..flow.flow import CaptureFlow
from ..flow.resources import OWN_PREFIX, Owns, Product, Resources
from ..hudi import changes
from ..hudi.tables import all_catalog_names
from ..source import postgres
from ..source.queries import QUERIES
from ..spark import session
from ..topic import registry, topics
from . import checking, files, tables, values
from .files import TEMPLATES, Declaration, OwnTable

LABEL = "captured"


@dataclass(frozen=True)
class OwnFlow(CaptureFlow):
    """The captured tables of an own flow. Its functions take the world of the source.

    Attributes:
        declared: the content of its flow.yaml.
        continued: the command on the flow that is continued, and may ingest.
    """

    declared: Declaration = cast(Declaration, None)  # required; fields after defaults need one
    continued: str = ""

    @property
    def connector(self) -> str:
        """The name of the connector, and of the publication."""
        return self.captures[0].connector

    @property
    def name(self) -> str:
        """The name of the flow."""
        return self.connector.removeprefix(OWN_PREFIX)

    @property
    def flow(self) -> CaptureFlow:
        """The captured tables, as a track has them."""
        return self

    @property
    def services(self) -> tuple[str, ...]:
        """The services of the stack that must run."""
        return self.declared.services

    @property
    def resources(self) -> Resources:
        """Everything that `workbench capture` may have made, without the files of the flow."""
        signals = (f"{self.connector}.signals",)
        return Resources(self, Owns(topics=signals, groups=signals, databases=(self.name,)))

    def incomplete(self, world: World) -> list[OwnTable]:
        """Return the tables whose capture was interrupted or failed.

        A table has no topic then, or was never equal to its source.
        """
        existing, compared = {*topics.names(world)}, files.storage(self.name)
        return [
            own
            for own in self.declared.tables
            if self.topic(world, own.name) not in existing or own.source not in compared
        ]

    @property
    def capture_command(self) -> str:
        """The command that continues a capture, and deploys the connector as its JSON is now."""
        declared = self.declared
        return f"workbench capture {declared.source} --as {self.name} --world {declared.world}"

    @property
    def recapture_command(self) -> str:
        """The command that takes a new snapshot."""
        return f"workbench recapture {self.name} --world {self.declared.world}"

    def forget_command(self, *tables: str) -> str:
        """Return the command that removes tables from the flow."""
        return f"workbench forget {self.name} {' '.join(tables)} --world {self.declared.world}"

    def capture_remedy(self, own: OwnTable) -> str:
        """Return the commands for a table whose capture is not complete."""
        return f"repeat `{self.capture_command}`, or `{self.forget_command(own.source)}`"

    def comparable(self, spark: SparkSession, world: World, name: str = "") -> Capture:
        """Return a capture whose `expected_sql` selects the columns that the lake has with the same values."""
        capture = self.capture(name)
        own = next(each for each in self.declared.tables if each.name == capture.name)
        described = tables.describe(world, self.declared, own)
        columns = values.comparable_columns(
            world, self.declared, described, self.table(world, name)
        )
        return replace(
            capture, expected_sql=values.comparable_sql(self.declared, own.source, columns)
        )

    def publish(self, world: World, declared: Declaration) -> None:
        """Publish exactly the tables of a declaration, if the database has publications."""
        if self.publication:
            postgres.create_publication(
                world, self.publication, declared.sources, self.database, declared.excluded
            )

    def replaced_tables(self, world: World) -> list[str]:
        """Return the tables that were dropped and created anew, whose changes are not published."""
        known = {own.source: own.oid for own in self.declared.tables if own.oid}
        if not known or not self.publication:
            return []
        oids = [[*known], [*known.values()]]
        return [*self.db.query(world, QUERIES["replaced_tables"], oids, self.database)["name"]]

    def require_same_tables(self, world: World) -> None:
        """Raise SourceError if a table was dropped and created anew."""
        replaced = self.replaced_tables(world)
        if replaced:
            raise SourceError(
                f"dropped and created anew in the source, so that no change arrives: {', '.join(replaced)}",
                location=f"flow {self.name!r}, database {self.database}",
                hint=f"`{self.recapture_command}` takes a new snapshot",
            )

    def require_tables(self, world: World, leaving: Sequence[OwnTable] = ()) -> None:
        """Raise SourceError if tables, but for those that leave, were dropped or renamed in the source."""
        sources = [each.source for each in self.declared.tables if each not in leaving]
        missing = sorted({*sources} - {*self.db.existing_tables(world, sources, self.database)})
        if missing:
            command = self.forget_command(*(each.source for each in leaving), *missing)
            raise SourceError(
                f"the source no longer has {', '.join(missing)}",
                location=f"database {self.database}; {paths.display_path(files.folder(self.name))}",
                hint=f"`{command}` removes them from the flow; the others are not compared until then, but `follow` "
                "brings their changes",
            )

    def require_slot(self, world: World) -> None:
        """Raise LakeError if the slot is gone since tables were captured: changes from before a new one are lost."""
        if not (self.publication and files.storage(self.name)):
            return
        slot = self.config(world, self.connector)["slot.name"]
        if slot not in {*postgres.all_slots(world)["slot_name"]}:
            raise LakeError(
                f"replication slot {slot} does not exist any more, so changes are lost",
                location=f"flow {self.name!r}, source {self.declared.source!r}",
                expected="the slot that the connector made at the first capture",
                hint=f"`{self.recapture_command}` takes a new snapshot",
            )

    def _run(
        self, world: World, jobs: Sequence[hudi.IngestJob], stop: Callable[[], bool]
    ) -> dict[str, hudi.Ingested]:
        """Run ingests, after a poll if the flow is polled.

        Raises:
            ConnectorError: the connector has failed.
            LakeError: a command on the flow is not complete; or as for `CaptureFlow.ingest`.
        """
        files.require_finished(self.name, files.declaration(self.name), self.continued)
        if self.polled:
            landing.run_once(world, *self.deployed_connectors)
        elif reason := connect.failure(world, self.connector):
            raise ConnectorError(
                f"no changes arrive from connector {self.connector}: {reason}",
                hint="remove the cause, then repeat the command: `follow` restarts the connector",
            )
        return super()._run(world, jobs, stop)

    def is_being_changed(self) -> bool:
        """Return whether a command of another process creates or removes parts of the flow now."""
        return files.is_being_changed(self.name)

    def interrupted_command(self) -> str:
        """Return the command that removes parts of the flow and is not complete, "" without one."""
        return files.unfinished_command(self.name, files.declaration(self.name))

    def restart_failed(self, world: World) -> None:
        """Restart a connector that has failed, once: the cause may be gone.

        Raises:
            ConnectorError: it fails again; the error has the reason.
        """
        is_deployed = not self.polled and self.connector in connect.names(world)
        if is_deployed and connect.failure(world, self.connector):
            connect.restart(world, self.connector)
            connect.wait_running(world, self.connector)

    def dead_letter_remedy(self, world: World, capture: Capture) -> str:
        """Return what brings the rows of dead letters into the lake. A replay would read the same messages again."""
        return (
            "correct the row in the source: its next message has the complete row. Or alter its column, and run "
            f"`{self.recapture_command}`"
        )


def names(world: World) -> list[str]:
    """Return the names of the own flows of a world."""
    return [each.name for each in load_all(world)]


def declarations() -> Iterator[tuple[str, Declaration]]:
    """Yield each flow of any world with its declaration. Damaged ones are left out, with a line on stderr."""
    for path in sorted(files.folder().glob("*/flow.yaml")):
        with _left_out(path):
            yield path.parent.name, files.declaration(path.parent.name)


def load_all(world: World) -> list[OwnFlow]:
    """Return the own flows of a world. One that cannot be loaded is left out, with a line on stderr."""
    loaded = []
    for name, declared in declarations():
        with _left_out(files.folder(name) / "flow.yaml"):
            if declared.world == world.name:
                loaded.append(load(world, name))
    return loaded


@contextmanager
def _left_out(path: Path) -> Iterator[None]:
    try:
        yield
    except WorkbenchError as e:
        _warn(f"{paths.display_path(path)} is left out: {e.message}; {e.location}")


@cache  # once in a process: each search for a table loads the flows
def _warn(text: str) -> None:
    print(" ".join(text.split()), file=sys.stderr)


def load(world: World, flow: str, *, removes: bool = False) -> OwnFlow:
    """Return an own flow.

    Args:
        world: the world of the flow.
        flow: name of the flow.
        removes: whether the flow is to be removed, also if the JSON of its connector is damaged: the names of
            what the connector made follow from that of the flow.

    Raises:
        LakeError: there is no such flow, its files are not valid, or it is a flow of another world.
        ParamsError: the world does not have the source of the flow.
    """
    declared = files.declaration(flow)
    if declared.world != world.name:
        raise LakeError(
            f"flow {flow!r} is one of world {declared.world!r}, not of {world.name!r}",
            location=paths.display_path(files.folder(flow)),
            hint=f"--world {declared.world}",
        )
    world.source(declared.source)  # raises ParamsError
    path = files.connector_path(flow)
    if not path.exists():  # deleted, or a capture was interrupted
        files.write_connector(flow, declared)
    try:
        raw = configs.read(path)
    except ConnectorError:
        if not removes:
            raise
        raw = files.connector_config(flow, declared, {})

    return compose(flow, declared, raw)


def compose(
    flow: str, declared: Declaration, raw: dict[str, str], is_draft: bool = False
) -> OwnFlow:
    """Return the flow of a declaration, and of the JSON of its connector (`is_draft`: see configs.fill)."""
    connector, path = OWN_PREFIX + flow, paths.display_path(files.connector_path(flow))

    def config(world: World, name: str) -> dict[str, str]:
        return configs.fill(world.source(declared.source), raw, path, is_draft)

    return OwnFlow(
        tuple(_capture(connector, declared, table) for table in declared.tables),
        declared.database,
        config,
        polled=bool(declared.poll),
        db=declared.db,
        publication=connector if declared.has_publication else "",
        label=LABEL,
        server=declared.source,
        declared=declared,
    )


def _capture(connector: str, declared: Declaration, table: OwnTable) -> Capture:
    lake = {
        "name": table.name,
        "database": connector.removeprefix(OWN_PREFIX),
        "ordering": declared.poll or TEMPLATES["ordering"][declared.engine],
        "partition": tuple(table.partition),
        "encodes_key": table.encodes_key,
        "checks_partition": True,
        **table.layout.model_dump(),
    }
    return Capture(
        table.source,
        table.key[0] if len(table.key) == 1 else tuple(table.key),
        connector,
        format=declared.format,
        lake=(lake,),
        alias=table.name,
        types=changes.RAW if declared.raw else changes.ANALYST,
        scales=table.scales,
    )


def open_flow(
    world: World, flow: str, *, start: bool = True, continued: str = "", removes: bool = False
) -> tuple[World, OwnFlow]:
    """Return the world of the source and the captured tables of a flow.

    Args:
        world: the world of the flow.
        flow: name of the flow.
        start: start the services of the flow that do not run.
        continued: the command that is continued, if it was interrupted.
        removes: as in `load`; the flow may be one whose command was interrupted.

    Raises:
        LakeError: another command on the flow was interrupted; or as for `load`.
    """
    captured = load(world, flow, removes=removes)
    if not removes:
        files.require_finished(flow, captured.declared, continued)
    captured = replace(captured, continued=continued)
    at = world.source(captured.declared.source)
    if start:
        stack.ensure_running(at, *captured.services)
    return at, captured


def describe_slots() -> list[str]:
    """Return a line for the replication slot of each own flow on a server of the user.

    The server retains its log for the slot while the workbench is stopped. A server of the stack is left
    out, also one that is the source of a flow: it stops, too.
    """
    lines = []
    for flow, declared in declarations():
        try:
            world = params.load(declared.world)
            at = world.source(declared.source)
            if not declared.has_publication or _is_of_stack(world, at):
                continue
            name = load(world, flow).config(at, OWN_PREFIX + flow).get("slot.name")
            slots = postgres.all_slots(at)
        except WorkbenchError as e:
            lines.append(f"the replication slot of flow {flow} cannot be looked up: {e.message}")
            continue
        lines += [
            f"replication slot {name} (source {declared.source}) retains {format_size(size)} of the server's log, and "
            f"more until its connector runs again; to drop it: workbench forget {flow} --world {declared.world}"
            for size in slots[slots["slot_name"] == name]["bytes_behind"]
        ]
    return lines


def _is_of_stack(world: World, at: World) -> bool:
    """Return whether the PostgreSQL of a source is a service of the stack, also if the user names its port."""
    is_same = at.postgres.host in LOOPBACK_NAMES and at.postgres.port == world.postgres.port
    return at.manages("postgres") or (world.manages("postgres") and is_same)


def remaining(world: World, flow: str) -> dict[str, list[str]]:
    """Return what `forget` removes, {kind: names}."""
    at, captured = open_flow(world, flow, removes=True)
    existing = captured.resources.remaining(at)
    existing["other tables in the catalog"] = _other_tables(at, captured)
    existing["files"].append(str(files.folder(flow)))
    return {kind: names for kind, names in existing.items() if names}


def _other_tables(at: World, captured: OwnFlow) -> list[str]:
    """Return what else the catalog database of a flow has: it is dropped with all tables."""
    catalog = session(at).catalog
    if not catalog.databaseExists(captured.name):
        return []
    tables = catalog.listTables(captured.name)
    existing = {f"{captured.name}.{table.name}" for table in tables if not table.isTemporary}
    names = {name.lower() for table in captured.tables(at) for name in all_catalog_names(table)}
    return sorted(existing - names)


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
    with files.exclusive(flow):
        at, captured = open_flow(world, flow, removes=True)
        declared = captured.declared
        leaving = [each for each in declared.tables if {each.name, each.source} & {*tables}]
        unknown = {*tables} - {name for each in leaving for name in (each.name, each.source)}
        if unknown:
            raise LakeError(
                f"flow {flow!r} has no table {', '.join(sorted(unknown))}",
                expected=f"one of {', '.join(declared.sources)}",
            )
        if leaving:  # an interrupted `forget` of other tables is continued, too
            leaving = [each for each in declared.tables if each in leaving or each.leaves]
        if len(leaving) in (0, len(declared.tables)):
            files.write_declaration(flow, declared.model_copy(update={"unfinished": "forget"}))
            captured.resources.remove(at, *Product)
            _remove_folder(files.folder(flow))
        else:
            _remove_tables(world, at, captured, leaving)


def _remove_folder(folder: Path) -> None:
    """Remove the folder of a flow, its declaration last: without it nothing would find the rest."""
    for each in folder.iterdir():
        if each.is_dir():
            shutil.rmtree(each)
        elif each.name != "flow.yaml":
            each.unlink()
    shutil.rmtree(folder)


def _remove_tables(world: World, at: World, captured: OwnFlow, leaving: Sequence[OwnTable]) -> None:
    """Remove some tables of a flow; a repeated call continues.

    Raises:
        SourceError: the source no longer has one of the other tables, or it cannot be published as it is now. Nothing
            was removed.
    """
    flow, declared = captured.name, captured.declared
    configs.read(files.connector_path(flow))  # raises ConnectorError if it is damaged
    reduced = declared.with_tables([each for each in declared.tables if each not in leaving])
    captured.require_tables(at, leaving)
    if declared.has_publication:  # which a table without replica identity cannot be in
        checking.require_capturable(world, declared, reduced.tables)
    marked = [
        each.model_copy(update={"leaves": each in leaving or each.leaves})
        for each in declared.tables
    ]
    files.write_declaration(flow, declared.with_tables(marked))
    files.write_connector(flow, reduced)
    at, captured = open_flow(world, flow, removes=True)
    captured.publish(at, reduced)
    config = captured.config(at, captured.connector)
    landing.apply(at, captured.connector, config)
    if declared.poll:  # otherwise a table that joins again would not be polled from its start
        landing.reset_offsets(at, config)
    for each in leaving:
        topic = captured.topic(at, each.name)
        topics.delete(at, topic)  # first: nothing ingests the topic into a new table
        if declared.format == "avro":
            registry.delete(at, f"{topic}-key", f"{topic}-value")
        hudi.drop(session(at), at, captured.table(at, each.name))
    compared = files.storage(flow)
    files.write_storage(
        flow, {each: compared[each] for each in reduced.sources if each in compared}
    )
    files.write_declaration(flow, reduced)
