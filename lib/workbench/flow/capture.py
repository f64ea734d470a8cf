"""Captures: the source tables of a walkthrough, with their topics and their lake tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Callable, Mapping, Optional

from psycopg import sql

from .. import connect, hudi, landing
from ..base import LakeError, World, did_you_mean
from ..hudi import changes
from ..landing.sources import topic_name
from ..source import postgres
from ..source.loading import Loader

SOURCE_KINDS = ("topic", "landed")


@dataclass(frozen=True)
class Capture:
    """A source table, the connector that captures it, and the lake tables that hold its rows.

    Attributes:
        source: name of the source table, `schema.table` (in MariaDB `database.table`).
        key: the primary key, one column or several.
        connector: name of the connector that publishes the changes to a topic.
        sink: name of the sink connector that lands the topic; "" if it is not landed.
        format: format of the messages and of the landed files, "json" or "avro".
        lake: the fields of one hudi.Table for each lake table; `base` is relative to the world's
            tables.
        expected_sql: SQL of the rows as the messages hold them; "" if that is the table itself.
        alias: name of the capture if the table is captured more than once.
        types: the types in the lake (see `hudi.Topic`).
        scales: digits after the decimal point of numeric columns without precision.
    """

    source: str
    key: str | tuple[str, ...]
    connector: str
    sink: str = ""
    format: str = "json"
    lake: tuple[Mapping[str, Any], ...] = ()
    expected_sql: str = ""
    alias: str = ""
    types: str = changes.PUBLISHED
    scales: Mapping[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the capture: its alias, or the table's name without its schema."""
        return self.alias or self.source.rpartition(".")[2]

    @property
    def keys(self) -> tuple[str, ...]:
        """The key columns."""
        return (self.key,) if isinstance(self.key, str) else self.key

    @property
    def key_columns(self) -> sql.Composed:
        """The key columns, quoted and separated by commas."""
        return sql.SQL(", ").join(map(sql.Identifier, self.keys))

    def table(self, world: World, fields: Mapping[str, Any]) -> hudi.Table:
        """Return the lake table with these fields, which are an element of `lake`."""
        if "base" in fields:
            fields = {**fields, "base": f"{world.lake.tables}/{fields['base']}"}
        return hudi.table(world, **{"key": self.keys, **fields})


@dataclass(frozen=True)
class CaptureSet:
    """The captures of one database.

    If there is only one capture, its name may be omitted in all methods.

    Attributes:
        captures: the captures.
        database: name of the database; None for the database of the world's PostgreSQL.
        config: function that returns the configuration of a connector (world, connector name).
        polled: whether connectors poll the tables instead of reading the log. Tracing and syncing
            need the log.
        db: the kind of database: the module `postgres` or `mariadb`, which have the same functions.
        publication: name of the publication of the captured tables; "" for no publication.
        loader: fills the source tables. None if the notebook on connectors creates them: then they
            are removed with the connectors.
        label: the label of each table's first commit.
        server: name of the source that has the database (see `World.source`), by default the world's.
    """

    captures: tuple[Capture, ...]
    database: Optional[str] = None
    config: Callable[[World, str], dict[str, str]] = connect.config
    polled: bool = False
    db: ModuleType = postgres
    publication: str = ""
    loader: Optional[Loader] = None
    label: str = ""
    server: str = ""

    def source_world(self, world: World) -> World:
        """Return the world whose databases are the source."""
        return world.source(self.server) if self.server else world

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the captures."""
        return tuple(c.name for c in self.captures)

    @property
    def sinks(self) -> list[str]:
        """The names of the sink connectors, without duplicates."""
        return list(dict.fromkeys(c.sink for c in self.captures if c.sink))

    @property
    def deployed_connectors(self) -> list[str]:
        """The names of the connectors that must be deployed, without duplicates."""
        connectors = [c.connector for c in self.captures]
        return list(dict.fromkeys([*connectors, *(self.sinks if self.polled else [])]))

    def has_database(self, world: World) -> bool:
        """Return whether the database exists."""
        return (self.database or world.postgres.database) in self.db.databases(world)

    def is_being_changed(self) -> bool:
        """Return whether a command of another process creates or removes parts of the flow now."""
        return False

    def interrupted_command(self) -> str:
        """Return the command that removes parts of the flow and is not complete, "" without one."""
        return ""

    def capture(self, name: str = "") -> Capture:
        """Return the capture of this name.

        Raises:
            LakeError: no capture has this name.
        """
        if not name and len(self.captures) == 1:
            return self.captures[0]
        for capture in self.captures:
            if capture.name == name:
                return capture
        raise LakeError(
            f"there is no captured table {name!r}", expected=did_you_mean(str(name), self.names)
        )

    def topic(self, world: World, name: str = "") -> str:
        """Return the name of a capture's topic."""
        capture = self.capture(name)
        return topic_name(self.config(world, capture.connector), capture.source)

    def table(
        self, world: World, name: str = "", kind: str = "", /, **fields: object
    ) -> hudi.Table:
        """Return a lake table of a capture.

        Args:
            world: the world.
            name: name of the capture; it may be omitted if there is only one.
            kind: "cow" or "mor", if the capture has lake tables of both types.
            fields: fields of hudi.Table to change.
        """
        capture = self.capture(name)
        for declared in capture.lake:
            if kind in ("", declared.get("type", "cow")):
                return capture.table(world, {**declared, **fields})
        kinds = [each.get("type", "cow") for each in capture.lake]
        raise LakeError(
            f"{capture.name} has no lake table of kind {kind!r}",
            expected=did_you_mean(kind, kinds),
        )

    def tables(self, world: World, *names: str) -> list[hudi.Table]:
        """Return all lake tables of these captures, by default of all captures."""
        captures = map(self.capture, names or self.names)
        return [c.table(world, declared) for c in captures for declared in c.lake]

    def source(self, world: World, name: str = "", kind: str = "topic") -> changes.Source:
        """Return the source from which the changes of a capture are ingested.

        Args:
            world: the world.
            name: name of the capture; it may be omitted if there is only one.
            kind: "topic" for Kafka, "landed" for the files that the sink connector wrote.
        """
        if kind not in SOURCE_KINDS:
            raise LakeError(
                f"changes cannot be read from {kind!r}", expected=did_you_mean(kind, SOURCE_KINDS)
            )
        topic, capture = self.topic(world, name), self.capture(name)
        if kind == "topic":
            return hudi.Topic(topic, capture.format, capture.types, capture.scales)
        sink = landing.parse(self.config(world, capture.sink))
        return hudi.Landed(sink.prefix_of(topic), format=capture.format)

    def landing_folder(self, world: World, name: str = "") -> str:
        """Return the URI of the folder with the landed files of a capture."""
        return f"{world.lake.landing}/{self.source(world, name, 'landed').name}"
