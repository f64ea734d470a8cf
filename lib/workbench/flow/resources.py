"""What captured tables and notebooks leave behind, by exact name: what of it exists, and its removal.

Each kind of resource is a row of KINDS. Only existing resources among the owned names are removed, so the
user's own ones with similar names stay.
"""

from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import Callable, Collection, Iterable, NamedTuple, Sequence

from .. import hudi, landing
from ..base import World, files
from ..connect.configs import SCHEMA_HISTORY_TOPIC
from ..hudi import ddl
from ..landing.sources import JDBC, topic_name
from ..query import streams
from ..source import postgres
from ..source.names import format_sql
from ..spark import session
from ..topic import dlq, groups, registry, topics
from .flow import CaptureFlow

OWN_PREFIX = "own_"  # of the connectors, slots, publications and topics of the user's own flows
CONNECTORS, SCHEMAS = "connectors", "schemas in the registry"
SOURCE_TABLES, FILES = "tables in the source", "files"


class Product(IntEnum):
    """What a notebook makes, in the order of the data flow. A reset removes a product with all later ones."""

    SOURCE = 1
    TOPICS = 2
    TABLES = 3


@dataclass(frozen=True)
class Owns:
    """What connectors and notebooks make besides the captured tables, by exact name.

    Attributes:
        connectors: further connectors.
        sinks: further sinks, which land topics.
        topics: topics that notebooks create.
        schemas: schemas that notebooks register.
        groups: consumer groups.
        tables: returns further lake tables.
        databases: catalog databases; they are removed with all their tables.
        folders: folders of the lake, such as `tables/refined/film`.
        source_tables: source tables that the notebook on connectors creates.
    """

    connectors: tuple[str, ...] = ()
    sinks: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    schemas: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    tables: Callable[[World], Sequence[hudi.Table]] = lambda world: ()
    databases: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    source_tables: tuple[str, ...] = ()


@dataclass(frozen=True)
class Resources:
    """The resources of captured tables, and what else is owned.

    Attributes:
        flow: the captured tables; without any it has no captures.
        owns: what else is owned.
    """

    flow: CaptureFlow
    owns: Owns = Owns()

    def remaining(
        self, world: World, *products: Product, keep: Collection[str] = ()
    ) -> dict[str, list[str]]:
        """Return the existing resources, {kind: names}. After a full removal each list is empty.

        Args:
            world: the world whose databases are the source.
            *products: the products to which they belong, by default all.
            keep: titles of kinds that are left out.
        """
        names = dict[str, list[str]]()
        for kind in KINDS:
            if kind.product in (products or Product) and kind.title not in keep:
                names.setdefault(kind.title, []).extend(kind.existing(self, world))
        return names

    def remove(self, world: World, *products: Product, keep: Collection[str] = ()) -> None:
        """Remove the resources of products.

        Args:
            world: as for `remaining`.
            *products: the products.
            keep: titles of kinds that are not removed.
        """
        for kind in KINDS:
            if kind.product not in products or kind.title in keep:
                continue
            for remove in dict.fromkeys(kind.existing(self, world).values()):
                remove()
            if kind.title == CONNECTORS:
                self._reset_progress(world)

    def _reset_progress(self, world: World) -> None:
        """Remove what landings and polls have read, and landed files, also of connectors that are not deployed."""
        for config in self.configs(world):
            if config.get("connector.class") == JDBC:
                landing.reset_offsets(world, config)
        for config in self.sink_configs(world):
            landing.drop(world, config)

    @property
    def connectors(self) -> list[str]:
        """The names of the connectors of captures, and of further ones."""
        captures = (capture.connector for capture in self.flow.captures)
        return list(dict.fromkeys([*captures, *self.owns.connectors]))

    def deployed_connectors(self, world: World) -> list[str]:
        """Return the deployed connectors among the owned ones; the Connect cluster may have others."""
        return _common({*self.connectors, *self.flow.sinks}, landing.names, world)

    def configs(self, world: World) -> list[dict[str, str]]:
        """Return the configurations of `connectors`."""
        return [self.flow.config(world, name) for name in self.connectors]

    def sink_configs(self, world: World) -> list[dict[str, str]]:
        """Return the configurations of the sinks that land topics."""
        return [self.flow.config(world, name) for name in (*self.flow.sinks, *self.owns.sinks)]

    def topics(self, world: World) -> set[str]:
        """Return the topics of notebooks, tables, heartbeats, messages in the log and (MariaDB) schema histories."""
        names = {*self.owns.topics, *(self.flow.topic(world, name) for name in self.flow.names)}
        for config in self.configs(world):
            if "topic.prefix" in config:
                tables = config.get("table.include.list", config.get("table.whitelist", ""))
                names |= {topic_name(config, table.strip()) for table in tables.split(",")}
                prefix = config["topic.prefix"]
                names |= {f"__debezium-heartbeat.{prefix}", f"{prefix}.message"}
            if SCHEMA_HISTORY_TOPIC in config:
                names.add(config[SCHEMA_HISTORY_TOPIC])
        return names

    def connector_schemas(self, world: World) -> set[str]:
        """Return the schemas that connectors may register."""
        if all(capture.format == "json" for capture in self.flow.captures):
            return set()
        return {f"{topic}-{side}" for topic in self.topics(world) for side in ("key", "value")}


Removals = dict[
    str, Callable[[], object]
]  # {name of an existing resource: its removal, or that of all}


class Kind(NamedTuple):
    """A kind of resource.

    Attributes:
        title: its name in `remaining`.
        product: the product to which it belongs.
        existing: returns the existing ones among the owned resources, each with its removal.
    """

    title: str
    product: Product
    existing: Callable[[Resources, World], Removals]


def _common(
    names: Collection[str], list_names: Callable[[World], Iterable[str]], world: World
) -> list[str]:
    """Return the existing names among `names`. Without names, no service is queried."""
    return sorted({*names} & {*list_names(world)}) if names else []


# --- products: tables


def _tables(owner: Resources, world: World) -> Removals:
    """Return the lake tables that have files."""
    tables = [*owner.flow.tables(world), *owner.owns.tables(world)]
    existing = [table for table in tables if files.list_dir(table.base)]
    return {each.name: partial(_drop_table, world, each) for each in existing}


def _drop_table(world: World, table: hudi.Table) -> None:
    hudi.drop(session(world), world, table)


def _catalog_databases(owner: Resources, world: World) -> Removals:
    existing = [
        name for name in owner.owns.databases if session(world).catalog.databaseExists(name)
    ]
    statement = "DROP DATABASE {} CASCADE"
    return {
        name: partial(session(world).sql, statement.format(ddl.identifier(name)))
        for name in existing
    }


def _folders(owner: Resources, world: World) -> Removals:
    """Return the folders of the lake; the first part of a path is a setting of `world.lake`."""
    paths = (folder.partition("/") for folder in owner.owns.folders)
    uris = (f"{getattr(world.lake, part)}/{path}" for part, _, path in paths)
    return {  # a folder may be the checkpoint of a streaming query
        uri: partial(streams.delete_checkpoint, session(world), uri)
        for uri in filter(files.list_files, uris)
    }


# --- products: topics


def _connectors(owner: Resources, world: World) -> Removals:
    names = owner.deployed_connectors(world)
    return {name: partial(landing.delete, world, name) for name in names}


def _slots(owner: Resources, world: World) -> Removals:
    configs = [config for config in owner.configs(world) if "slot.name" in config]
    databases = {config["slot.name"]: config["database.dbname"] for config in configs}
    names = _common(databases, lambda world: postgres.all_slots(world)["slot_name"], world)
    return {name: partial(postgres.drop_slot, world, name, databases[name]) for name in names}


def _schemas_of_connectors(owner: Resources, world: World) -> Removals:
    names = _common(owner.connector_schemas(world), registry.names, world)
    return dict.fromkeys(names, partial(registry.delete, world, *names))


def _schemas(owner: Resources, world: World) -> Removals:
    names = _common(owner.owns.schemas, registry.names, world)
    return dict.fromkeys(names, partial(registry.delete, world, *names))


def _topics(owner: Resources, world: World) -> Removals:
    names = _common(owner.topics(world), topics.names, world)
    return dict.fromkeys(names, partial(topics.delete, world, *names))


def _groups(owner: Resources, world: World) -> Removals:
    """Return the consumer groups; Debezium reads its schema histories with groups at a restart."""
    configs = [config for config in owner.configs(world) if SCHEMA_HISTORY_TOPIC in config]
    names = [*owner.owns.groups, *(f"{c['topic.prefix']}-schemahistory" for c in configs)]
    existing = _common(names, groups.names, world)
    return {name: partial(groups.delete, world, name) for name in existing}


def _files(owner: Resources, world: World) -> Removals:
    """Return landed files, journals of replays, and files that connectors wrote."""
    uris = [dlq.replay_folder(world, topic) for topic in sorted(owner.topics(world))]
    for config in owner.sink_configs(world):
        uris += landing.folders(world, config)
    paths = [Path(config.get("file", "")) for config in owner.configs(world)]
    written = [f"file:{path}" for path in paths if path.is_file()]
    return {uri: partial(files.remove, uri) for uri in (*filter(files.list_files, uris), *written)}


def _source_tables(owner: Resources, world: World) -> Removals:
    """Return the source tables that the notebook on connectors creates."""
    flow, names = owner.flow, owner.owns.source_tables
    if not names or not flow.has_database(world):
        return {}
    return {
        name: partial(
            flow.db.execute,
            world,
            format_sql("DROP TABLE {}", tuple(name.split("."))),
            database=flow.database,
        )
        for name in flow.db.existing_tables(world, names, flow.database)
    }


# --- products: source


def _publications(owner: Resources, world: World) -> Removals:
    flow = owner.flow
    # not of the captures' connectors: that of an own flow is the user's, who may have named another publication
    configs = [flow.config(world, name) for name in owner.owns.connectors]
    databases = {
        config["publication.name"]: config["database.dbname"]
        for config in configs
        if "publication.name" in config
    }
    if flow.publication:
        databases[flow.publication] = flow.database or world.postgres.database
    existing = _common(databases.values(), postgres.databases, world)
    return {
        name: partial(postgres.drop_publication, world, name, database)
        for name, database in databases.items()
        if database in existing and name in {*postgres.publications(world, database)["publication"]}
    }


def _loaded_tables(owner: Resources, world: World) -> Removals:
    """Return the loaded tables; they are removed together, because they may refer to each other."""
    flow, loader = owner.flow, owner.flow.loader
    if not loader or not flow.has_database(world):
        return {}
    return dict.fromkeys(loader.existing(world), partial(loader.unload, world))


# in the order in which they are removed
KINDS = (
    Kind("tables in the lake", Product.TABLES, _tables),
    Kind("databases in the catalog", Product.TABLES, _catalog_databases),
    Kind(FILES, Product.TABLES, _folders),
    Kind(CONNECTORS, Product.TOPICS, _connectors),
    Kind("replication slots", Product.TOPICS, _slots),
    Kind(SCHEMAS, Product.TOPICS, _schemas_of_connectors),
    Kind(SCHEMAS, Product.SOURCE, _schemas),
    Kind("topics", Product.TOPICS, _topics),
    Kind("consumer groups", Product.TOPICS, _groups),
    Kind(FILES, Product.TOPICS, _files),
    Kind(SOURCE_TABLES, Product.TOPICS, _source_tables),
    # first: a table that cannot be removed stays published
    Kind(SOURCE_TABLES, Product.SOURCE, _loaded_tables),
    Kind("publications", Product.SOURCE, _publications),
)
