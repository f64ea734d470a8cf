"""What captured tables and notebooks leave behind, by exact name: what of it exists, and its removal.

Each kind of resource is a row of KINDS. Only existing resources among the owned names are removed, so the
user's own ones with similar names stay.
"""

from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Callable, Collection, Iterable, NamedTuple, Sequence

from .. import hudi, landing, stack
from ..base import World, files, secrets
from ..connect.configs import SCHEMA_HISTORY_PREFIX
from ..hudi import ddl
from ..landing.sources import JDBC, topic_name
from ..query import streams
from ..source import postgres
from ..source.names import format_sql, role_secret
from ..spark import session
from ..topic import dlq, groups, registry, topics
from .flow import CaptureFlow

HISTORY_TOPIC = f"{SCHEMA_HISTORY_PREFIX}.kafka.topic"
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
        services: services of the stack.
        stores: databases in PostgreSQL with a role of the same name each.
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
    services: tuple[str, ...] = ()
    stores: tuple[str, ...] = ()


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
            if kind.product in products and kind.title not in keep:
                kind.remove(self, world, [*kind.existing(self, world)])

    @property
    def connectors(self) -> list[str]:
        """The names of the connectors of captures, and of further ones."""
        captures = (capture.connector for capture in self.flow.captures)
        return list(dict.fromkeys([*captures, *self.owns.connectors]))

    def deployed_connectors(self, world: World) -> list[str]:
        """Return the deployed connectors among the owned ones; the Connect cluster may have others."""
        return _existing(world, {*self.connectors, *self.flow.sinks}, landing.names)

    def configs(self, world: World) -> list[dict[str, str]]:
        """Return the configurations of `connectors`."""
        return [self.flow.config(world, name) for name in self.connectors]

    def sink_configs(self, world: World) -> list[dict[str, str]]:
        """Return the configurations of the sinks that land topics."""
        return [self.flow.config(world, name) for name in (*self.flow.sinks, *self.owns.sinks)]

    def topics(self, world: World) -> set[str]:
        """Return the topics of notebooks, tables, heartbeats and (for MariaDB) schema histories."""
        names = {*self.owns.topics, *(self.flow.topic(world, name) for name in self.flow.names)}
        for config in self.configs(world):
            if "topic.prefix" in config:
                tables = config.get("table.include.list", config.get("table.whitelist", ""))
                names |= {topic_name(config, table.strip()) for table in tables.split(",")}
                names.add(f"__debezium-heartbeat.{config['topic.prefix']}")
            if HISTORY_TOPIC in config:
                names.add(config[HISTORY_TOPIC])
        return names

    def connector_schemas(self, world: World) -> set[str]:
        """Return the schemas that connectors may register."""
        if all(capture.format == "json" for capture in self.flow.captures):
            return set()
        return {f"{topic}-{side}" for topic in self.topics(world) for side in ("key", "value")}

    def database_of(self, world: World, key: str) -> dict[str, str]:
        """Return {value of this key: database} of the configurations that have the key."""
        configs = [config for config in self.configs(world) if key in config]
        return {config[key]: config["database.dbname"] for config in configs}


class Kind(NamedTuple):
    """A kind of resource.

    Attributes:
        title: its name in `remaining`.
        product: the product to which it belongs.
        existing: returns the existing names among the owned ones.
        remove: removes existing resources, by their names; there may be none.
    """

    title: str
    product: Product
    existing: Callable[[Resources, World], Iterable[str]]
    remove: Callable[[Resources, World, Sequence[str]], object]


def _existing(
    world: World, names: Collection[str], list_names: Callable[[World], Iterable[str]]
) -> list[str]:
    """Return the existing names among `names`. Without names, no service is queried."""
    return sorted({*names} & {*list_names(world)}) if names else []


def _each(
    remove: Callable[[World, str], object],
) -> Callable[[Resources, World, Sequence[str]], None]:
    """Return a function that removes resources one by one."""

    def remove_all(owner: Resources, world: World, names: Sequence[str]) -> None:
        for name in names:
            remove(world, name)

    return remove_all


# --- products: tables


def _tables(owner: Resources, world: World) -> dict[str, hudi.Table]:
    """Return {name: table} of the lake tables that have files."""
    tables = [*owner.flow.tables(world), *owner.owns.tables(world)]
    return {table.name: table for table in tables if files.list_dir(table.base)}


def _remove_tables(owner: Resources, world: World, names: Sequence[str]) -> None:
    for table in _tables(owner, world).values():
        hudi.drop(session(world), world, table)


def _catalog_databases(owner: Resources, world: World) -> list[str]:
    return [name for name in owner.owns.databases if session(world).catalog.databaseExists(name)]


def _drop_catalog_database(world: World, name: str) -> None:
    session(world).sql(f"DROP DATABASE {ddl.identifier(name)} CASCADE")


def _folders(owner: Resources, world: World) -> Iterable[str]:
    """Return the URIs of the folders of the lake; the first part of a path is a setting of `world.lake`."""
    paths = (folder.partition("/") for folder in owner.owns.folders)
    uris = (f"{getattr(world.lake, part)}/{path}" for part, _, path in paths)
    return filter(files.list_files, uris)


def _remove_folder(world: World, uri: str) -> None:
    streams.delete_checkpoint(session(world), uri)  # which a folder may be


# --- products: topics


def _remove_connectors(owner: Resources, world: World, names: Sequence[str]) -> None:
    """Remove deployed connectors, and what landings and polls have read, also of other connectors."""
    for name in names:
        landing.delete(world, name)
    for config in owner.configs(world):
        if config.get("connector.class") == JDBC:
            landing.reset_offsets(world, config)
    for config in owner.sink_configs(world):
        landing.drop(world, config)


def _slots(owner: Resources, world: World) -> list[str]:
    names = owner.database_of(world, "slot.name")
    return _existing(world, names, lambda world: postgres.all_slots(world)["slot_name"])


def _drop_slots(owner: Resources, world: World, names: Sequence[str]) -> None:
    databases = owner.database_of(world, "slot.name")
    for name in names:
        postgres.drop_slot(world, name, databases[name])


def _groups(owner: Resources, world: World) -> list[str]:
    """Return the consumer groups; Debezium reads its schema histories with groups at a restart."""
    configs = [config for config in owner.configs(world) if HISTORY_TOPIC in config]
    names = [*owner.owns.groups, *(f"{c['topic.prefix']}-schemahistory" for c in configs)]
    return _existing(world, names, groups.names)


def _files(owner: Resources, world: World) -> list[str]:
    """Return the URIs of landed files, of journals of replays, and of files that connectors wrote."""
    uris = [dlq.replay_folder(world, topic) for topic in sorted(owner.topics(world))]
    for config in owner.sink_configs(world):
        uris += landing.folders(world, config)
    paths = [Path(config.get("file", "")) for config in owner.configs(world)]
    written = [f"file:{path}" for path in paths if path.is_file()]
    return [*filter(files.list_files, uris), *written]


def _stores(owner: Resources, world: World) -> list[str]:
    """Return the stores whose password the instance has. A database of another owner is none."""
    created = {name for name in owner.owns.stores if role_secret(name) in secrets.read()}
    if not created:
        return []
    query = "SELECT datname FROM pg_database WHERE pg_get_userbyid(datdba) <> datname"
    return sorted(created - {*postgres.query(world, query, database="postgres")["datname"]})


def _drop_store(world: World, name: str) -> None:
    for statement in ("DROP DATABASE IF EXISTS {} WITH (FORCE)", "DROP ROLE IF EXISTS {}"):
        postgres.execute(world, format_sql(statement, name), database="postgres")
    secrets.delete(role_secret(name))


# --- products: source


def _existing_tables(owner: Resources, world: World, names: Sequence[str]) -> list[str]:
    flow = owner.flow
    if not names or not flow.has_database(world):
        return []
    return flow.db.existing_tables(world, names, flow.database)


def _drop_source_tables(owner: Resources, world: World, names: Sequence[str]) -> None:
    for name in names:
        statement = format_sql("DROP TABLE {}", tuple(name.split(".")))
        owner.flow.db.execute(world, statement, database=owner.flow.database)


def _loaded_tables(owner: Resources, world: World) -> list[str]:
    loader = owner.flow.loader
    names = [f"{loader.schema}.{table}" for table in loader.tables] if loader else []
    return _existing_tables(owner, world, names)


def _unload(owner: Resources, world: World, names: Sequence[str]) -> None:
    if owner.flow.loader:
        owner.flow.loader.unload(world)


def _published_databases(owner: Resources, world: World) -> dict[str, str]:
    """Return {publication: database} of the captured tables and of further connectors."""
    flow, databases = owner.flow, owner.database_of(world, "publication.name")
    if flow.publication:
        databases[flow.publication] = flow.database or world.postgres.database
    return databases


def _publications(owner: Resources, world: World) -> list[str]:
    databases = _published_databases(owner, world)
    existing = _existing(world, databases.values(), postgres.databases)
    return [
        name
        for name, database in databases.items()
        if database in existing and name in {*postgres.publications(world, database)["publication"]}
    ]


def _drop_publications(owner: Resources, world: World, names: Sequence[str]) -> None:
    databases = _published_databases(owner, world)
    for name in names:
        postgres.drop_publication(world, name, databases[name])


# in the order in which they are removed
KINDS = (
    Kind(
        "processes",
        Product.TABLES,
        lambda owner, world: _existing(world, owner.owns.services, lambda world: stack.running()),
        lambda owner, world, names: names and stack.stop(*names),  # without names it stops all
    ),
    Kind("tables in the lake", Product.TABLES, _tables, _remove_tables),
    Kind(
        "databases in the catalog",
        Product.TABLES,
        _catalog_databases,
        _each(_drop_catalog_database),
    ),
    Kind(FILES, Product.TABLES, _folders, _each(_remove_folder)),
    Kind(CONNECTORS, Product.TOPICS, Resources.deployed_connectors, _remove_connectors),
    Kind("replication slots", Product.TOPICS, _slots, _drop_slots),
    Kind(
        SCHEMAS,
        Product.TOPICS,
        lambda owner, world: _existing(world, owner.connector_schemas(world), registry.names),
        lambda owner, world, names: registry.delete(world, *names),
    ),
    Kind(
        SCHEMAS,
        Product.SOURCE,
        lambda owner, world: _existing(world, owner.owns.schemas, registry.names),
        lambda owner, world, names: registry.delete(world, *names),
    ),
    Kind(
        "topics",
        Product.TOPICS,
        lambda owner, world: _existing(world, owner.topics(world), topics.names),
        lambda owner, world, names: topics.delete(world, *names),
    ),
    Kind("stores of its services", Product.TOPICS, _stores, _each(_drop_store)),
    Kind(
        "consumer groups",
        Product.TOPICS,
        _groups,
        _each(lambda world, name: groups.delete(world, name)),
    ),
    Kind(FILES, Product.TOPICS, _files, _each(lambda world, uri: files.remove(uri))),
    Kind(
        SOURCE_TABLES,
        Product.TOPICS,
        lambda owner, world: _existing_tables(owner, world, owner.owns.source_tables),
        _drop_source_tables,
    ),
    Kind("publications", Product.SOURCE, _publications, _drop_publications),
    Kind(SOURCE_TABLES, Product.SOURCE, _loaded_tables, _unload),
)
