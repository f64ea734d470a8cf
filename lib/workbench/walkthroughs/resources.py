"""The resources of a walkthrough in a world: names, existing resources, removal."""

from pathlib import Path
from typing import Callable, Collection, Iterable

from .. import hudi, landing, recapture, stack
from ..base import World, files
from ..connect.configs import SCHEMA_HISTORY_PREFIX
from ..hudi import ddl
from ..landing.sources import JDBC, topic_name
from ..query import streams
from ..source import mariadb, postgres
from ..source.queries import QUERIES
from ..spark import session
from ..topic import dlq, groups, registry, topics
from . import baseline
from .declaration import Declaration

HISTORY_TOPIC = f"{SCHEMA_HISTORY_PREFIX}.kafka.topic"
MARIADB_TABLES = (
    "SELECT concat(table_schema, '.', table_name) AS name FROM information_schema.tables"
)


class Resources:
    """The resources that connectors and notebooks of a walkthrough create in a world."""

    def __init__(self, flow: Declaration, world: World):
        """Store the declaration and the world, without any query."""
        self.flow, self.world = flow, world

    # --- names

    @property
    def configs(self) -> dict[str, dict[str, str]]:
        """{connector: configuration}, including the connectors that recaptures have deployed."""
        configs = {name: self.flow.config(self.world, name) for name in self.flow.connectors}
        return {**configs, **recapture.connectors_of_recaptures(self.world, *configs)}

    @property
    def topics(self) -> set[str]:
        """The topics of notebooks, tables, heartbeats and (for MariaDB) schema histories."""
        flow = self.flow
        names = {*flow.own_topics, *(flow.topic(self.world, name) for name in flow.names)}
        for config in self.configs.values():
            if "topic.prefix" in config:
                tables = config.get("table.include.list", config.get("table.whitelist", ""))
                names |= {topic_name(config, table.strip()) for table in tables.split(",")}
                names.add(f"__debezium-heartbeat.{config['topic.prefix']}")
            if HISTORY_TOPIC in config:
                names.add(config[HISTORY_TOPIC])
        return names

    @property
    def schemas(self) -> set[str]:
        """The schemas that notebooks and connectors may register."""
        registered = self.topics if "apicurio" in self.flow.services else set()
        connector_schemas = {f"{topic}-{side}" for topic in registered for side in ("key", "value")}
        return {*self.flow.own_schemas, *connector_schemas}

    @property
    def history_groups(self) -> list[str]:
        """The consumer groups with which Debezium reads its schema histories at a restart."""
        return [
            f"{config['topic.prefix']}-schemahistory"
            for config in self.configs.values()
            if HISTORY_TOPIC in config
        ]

    @property
    def lake_folders(self) -> list[str]:
        """The URIs of the folders of tables that notebooks create with SQL."""
        return [f"{self.world.lake.tables}/{name}" for name in self.flow.lake_folders]

    @property
    def checkpoints(self) -> list[str]:
        """The URIs of the checkpoints of streaming queries."""
        folder = f"{self.world.lake.checkpoints}/streams"
        return [f"{folder}/{query}" for query in self.flow.streaming_queries]

    # --- what exists

    def remaining(self) -> dict[str, list[str]]:
        """Return the existing resources, {kind: names}. After a full reset each list is empty."""
        flow, world = self.flow, self.world
        has_source = bool(flow.captures) and flow.has_database(world)
        landed = [flow.landing_folder(world, c.name) for c in flow.captures if c.sink]
        for config in flow.extra_sinks(world):
            landed += landing.folders(world, config)
        databases = _existing(self.world, flow.service_databases, postgres.databases)
        slots: list[str] = []
        publications: list[str] = []
        if has_source and flow.engine == "postgres":
            slots += postgres.connector_slots(world, flow.database)
            publications = [*postgres.publications(world, flow.database)["publication"]]
        for database in databases:
            slots += postgres.connector_slots(world, database)
        return {
            "connectors": self.remaining_connectors(),
            "replication slots": slots,
            "topics": self.remaining_topics(),
            "schemas in the registry": _existing(
                self.world, self.schemas, lambda world: registry.artifacts(world)["artifact"]
            ),
            "files": [
                *filter(files.list_files, [*landed, *self.lake_folders, *self.checkpoints]),
                *self.replay_records(),
                *map(str, self.local_sink_files()),
                *recapture.journals(world, *self.flow.connectors),
            ],
            "tables in the lake": [table.name for table in self.remaining_tables()],
            "databases in the catalog": self.remaining_catalog_databases(),
            "publications": sorted({flow.publication} & {*publications}),
            "tables in the source": self.remaining_source_tables() if has_source else [],
            "stores of its services": databases,
            "processes": sorted({*flow.owned_services} & {*stack.running()}),
            "consumer groups": _existing(
                self.world, [*flow.consumer_groups, *self.history_groups], groups.names
            ),
        }

    def remaining_connectors(self) -> list[str]:
        """Return the deployed connectors of this walkthrough; the Connect cluster may have others."""
        names = self.flow.connectors
        recaptures = recapture.connectors_of_recaptures(self.world, *names)
        return _existing(self.world, {*names, *recaptures, *self.flow.sinks}, landing.names)

    def remaining_topics(self) -> list[str]:
        """Return the existing topics of this walkthrough."""
        return _existing(self.world, self.topics, topics.names)

    def remaining_tables(self) -> list[hudi.Table]:
        """Return the lake tables that have files, scratch tables included."""
        flow, world = self.flow, self.world
        tables = [*flow.tables(world), *flow.scratch_tables(world)]
        return [table for table in tables if files.list_dir(table.base)]

    def remaining_catalog_databases(self) -> list[str]:
        """Return the existing catalog databases of this walkthrough."""
        names = self.flow.catalog_databases
        return [name for name in names if session(self.world).catalog.databaseExists(name)]

    def remaining_source_tables(self) -> list[str]:
        """Return the existing source tables, their baselines, and their schemas."""
        flow, world = self.flow, self.world
        if flow.engine == "mariadb":
            existing = mariadb.query(world, MARIADB_TABLES)["name"]
            return sorted({c.source for c in flow.captures} & {*existing})
        tables = flow.baseline_tables
        schemas = {table.partition(".")[0] for table in tables} - {"public"}
        copies = [f"{baseline.SCHEMA}.{table}" for table in tables]
        values = [[*schemas], [*tables, *copies]]
        return [*postgres.query(world, QUERIES["existing_objects"], values, flow.database)["name"]]

    def local_sink_files(self) -> list[Path]:
        """Return the files that connectors wrote on this machine, if Connect is embedded."""
        flow = self.flow
        configs = [flow.config(self.world, name) for name in flow.extra_connectors]
        return [path for path in (Path(c.get("file", "")) for c in configs) if path.is_file()]

    def replay_records(self) -> list[str]:
        """Return the URIs of the records of replays (see `dlq.replay`) of these topics."""
        names = self.topics
        return [uri for uri, topic in dlq.replay_state_dirs(self.world).items() if topic in names]

    # --- removal

    def drop_tables(self) -> None:
        """Remove the lake tables, catalog databases, checkpoints and folders."""
        for table in self.remaining_tables():
            hudi.drop(session(self.world), self.world, table)
        for database in self.remaining_catalog_databases():
            session(self.world).sql(f"DROP DATABASE {ddl.identifier(database)} CASCADE")
        for checkpoint in self.checkpoints:
            streams.delete_checkpoint(session(self.world), checkpoint)
        for folder in self.lake_folders:
            files.remove(folder)

    def drop_connectors(self, *, schemas: bool = True) -> None:
        """Remove the connectors with their slots, topics, landed files and records.

        Args:
            schemas: also remove the schemas from the registry.
        """
        flow, world = self.flow, self.world
        for name in self.remaining_connectors():
            landing.delete(world, name)
        for config in self.configs.values():
            if config.get("connector.class") == JDBC:
                # notebooks may poll with a connector that is not deployed
                landing.reset_offsets(world, config)
            if "slot.name" in config and config["database.dbname"] in postgres.databases(world):
                postgres.drop_slot(world, config["slot.name"], database=config["database.dbname"])
        registry.delete(world, *(self.schemas if schemas else ()))
        topics.delete(world, *self.remaining_topics())
        for group in self.history_groups:
            groups.delete(world, group)
        for uri in self.replay_records():
            files.remove(uri)
        for name in flow.sinks:
            landing.drop(world, flow.config(world, name))
        for config in flow.extra_sinks(world):
            landing.drop(world, config)
        for path in self.local_sink_files():
            path.unlink()
        # the journals are removed last, because they name the connectors of recaptures
        for journal in recapture.journals(world, *flow.connectors):
            files.remove(journal)

    def drop_service_data(self) -> None:
        """Remove the consumer groups and the databases of services."""
        for group in self.flow.consumer_groups:
            groups.delete(self.world, group)
        postgres.drop_service_databases(self.world, *self.flow.service_databases)

    def drop_source(self) -> None:
        """Remove the source tables, the publication and the baseline; the database stays."""
        flow, world = self.flow, self.world
        flow.db.create_database(world, flow.database)  # the next notebook loads into it
        if flow.loader:
            flow.loader.unload(world)
        if flow.publication:
            postgres.drop_publication(world, flow.publication, flow.database)
        if flow.engine == "postgres":
            baseline.delete(world, flow.baseline_tables, flow.database)

    def drop_mariadb_tables(self) -> None:
        """Remove the captured tables of MariaDB, which notebooks create and which have no baseline."""
        for name in self.remaining_source_tables():
            statement = mariadb.format_sql("DROP TABLE {}", tuple(name.split(".")))
            mariadb.execute(self.world, statement)


def _existing(
    world: World, names: Collection[str], list_names: Callable[[World], Iterable[str]]
) -> list[str]:
    """Return the existing names among `names`. Without names, no service is queried."""
    return sorted({*names} & {*list_names(world)}) if names else []
