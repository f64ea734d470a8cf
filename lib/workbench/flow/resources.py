"""The resources of a walkthrough: for each kind, which ones exist, and how they are removed."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Collection, Iterable, NamedTuple, Optional, Sequence

from .. import connect, hudi, landing
from ..base import World, files
from ..connect.configs import SCHEMA_HISTORY_PREFIX
from ..hudi import ddl
from ..hudi.tables import all_catalog_names
from ..landing.sources import JDBC, topic_name
from ..query import streams
from ..source import postgres
from ..source.names import format_sql
from ..spark import session
from ..topic import dlq, groups, registry, topics
from .baseline import Baseline
from .flow import CaptureFlow
from .steps import Product

HISTORY_TOPIC = f"{SCHEMA_HISTORY_PREFIX}.kafka.topic"
OWN_PREFIX = "own_"  # of the connectors, slots, publications and topics of the user's own flows
SCHEMAS, SOURCE_TABLES, FILES = "schemas in the registry", "tables in the source", "files"


@dataclass(frozen=True)
class OwnedResources:
    """Everything that the connectors and notebooks of a walkthrough may leave behind.

    The resources of the captured tables follow from `flow`. The other fields are further ones.

    Attributes:
        flow: the captured tables.
        baseline: the baseline of the source tables.
        extra_connectors: names of further connectors, which notebooks use for demonstrations.
        extra_sinks: returns the configurations of further sinks that notebooks use.
        config: returns the configuration of a further connector, if there is no `flow`.
        own_topics: topics that notebooks create.
        own_schemas: schemas that notebooks register.
        streaming_queries: names of streaming queries. Their checkpoints are in the lake's
            checkpoints, in `streams/`.
        scratch_tables: returns further lake tables that notebooks create.
        catalog_databases: catalog databases for the tables that notebooks create with SQL.
        lake_folders: the folders of these tables, relative to the lake's tables.
        consumer_groups: its consumer groups.
        own: the source of a flow of the user's own tables, which are never removed.
    """

    flow: Optional[CaptureFlow] = None
    baseline: Optional[Baseline] = None
    extra_connectors: tuple[str, ...] = ()
    extra_sinks: Callable[[World], Sequence[dict[str, str]]] = lambda world: ()
    config: Callable[[World, str], dict[str, str]] = connect.config
    own_topics: tuple[str, ...] = ()
    own_schemas: tuple[str, ...] = ()
    streaming_queries: tuple[str, ...] = ()
    scratch_tables: Callable[[World], Sequence[hudi.Table]] = lambda world: ()
    catalog_databases: tuple[str, ...] = ()
    lake_folders: tuple[str, ...] = ()
    consumer_groups: tuple[str, ...] = ()
    own: Optional["OwnSource"] = None

    def configs(self, world: World) -> dict[str, dict[str, str]]:
        """Return {connector: configuration}."""
        config = self.flow.config if self.flow else self.config
        return {name: config(world, name) for name in connectors(self)}

    def topics(self, world: World) -> set[str]:
        """Return the topics of notebooks, tables, heartbeats and (for MariaDB) schema histories."""
        flow, names = self.flow, {*self.own_topics}
        if flow:
            names |= {flow.topic(world, name) for name in flow.names}
        for config in self.configs(world).values():
            if "topic.prefix" in config:
                tables = config.get("table.include.list", config.get("table.whitelist", ""))
                names |= {topic_name(config, table.strip()) for table in tables.split(",")}
                names.add(f"__debezium-heartbeat.{config['topic.prefix']}")
            if HISTORY_TOPIC in config:
                names.add(config[HISTORY_TOPIC])
        return names

    def remaining(
        self, world: World, *products: Product, keep: Collection[str] = ()
    ) -> dict[str, list[str]]:
        """Return the existing resources, {kind: names}. After a full reset each list is empty.

        Args:
            world: the world.
            *products: the products to which they belong, by default all.
            keep: titles of kinds that are left out.
        """
        world, names = source_world(self, world), dict[str, list[str]]()
        for kind in KINDS:
            if kind.product in (products or Product) and kind.title not in keep:
                names.setdefault(kind.title, []).extend(kind.remaining(self, world))
        return names

    def remaining_connectors(self, world: World) -> list[str]:
        """Return the deployed connectors of this walkthrough; the Connect cluster may have others."""
        names = {*connectors(self), *(self.flow.sinks if self.flow else ())}
        return _existing(world, names, landing.names)

    def remove(self, world: World, *products: Product, keep: Collection[str] = ()) -> None:
        """Remove the resources that belong to these products; missing ones are ignored.

        Args:
            world: the world.
            *products: the products.
            keep: titles of kinds that are not removed.
        """
        world = source_world(self, world)
        for kind in KINDS:
            if kind.product in products and kind.title not in keep:
                if kind.remove:
                    kind.remove(self, world)
                elif kind.delete:
                    for name in kind.remaining(self, world):
                        kind.delete(world, name)


class OwnSource(NamedTuple):
    """The source of a flow of the user's own tables.

    Attributes:
        name: name of the source (see `World.source`).
        folder: the folder with the declaration of the flow, which is removed last.
    """

    name: str
    folder: Path


def connectors(owned: OwnedResources) -> list[str]:
    """Return the names of the connectors of the captures, and of the extra connectors."""
    captures = [c.connector for c in owned.flow.captures] if owned.flow else []
    return list(dict.fromkeys([*captures, *owned.extra_connectors]))


def source_world(owned: OwnedResources, world: World) -> World:
    """Return the world whose databases are the source: for an own flow that of its source."""
    return world.source(owned.own.name) if owned.own else world


class Kind(NamedTuple):
    """A kind of resource.

    Attributes:
        title: its name in `remaining`.
        product: the product to which it belongs.
        remaining: returns the names of the existing resources.
        delete: removes an existing resource, by its name.
        remove: removes all resources, for kinds of which more may exist than `remaining` finds.
    """

    title: str
    product: Product
    remaining: Callable[[OwnedResources, World], Iterable[str]]
    delete: Optional[Callable[[World, str], object]] = None
    remove: Optional[Callable[[OwnedResources, World], object]] = None


def _existing(
    world: World, names: Collection[str], list_names: Callable[[World], Iterable[str]]
) -> list[str]:
    """Return the existing names among `names`. Without names, no service is queried."""
    return sorted({*names} & {*list_names(world)}) if names else []


# --- products: tables


def _tables(owned: OwnedResources, world: World) -> list[hudi.Table]:
    """Return the lake tables that have files, scratch tables included."""
    tables = [*(owned.flow.tables(world) if owned.flow else ()), *owned.scratch_tables(world)]
    return [table for table in tables if files.list_dir(table.base)]


def _remove_tables(owned: OwnedResources, world: World) -> None:
    for table in _tables(owned, world):
        hudi.drop(session(world), world, table)


def _catalog_databases(owned: OwnedResources, world: World) -> list[str]:
    names = owned.catalog_databases
    return [name for name in names if session(world).catalog.databaseExists(name)]


def _drop_catalog_database(world: World, name: str) -> None:
    session(world).sql(f"DROP DATABASE {ddl.identifier(name)} CASCADE")


def _other_tables(owned: OwnedResources, world: World) -> list[str]:
    """Return what else the catalog databases of an own flow have: they are dropped with all tables."""
    if not owned.own:
        return []
    captured = {
        name.lower() for table in _tables(owned, world) for name in all_catalog_names(table)
    }
    catalog = session(world).catalog
    existing = {
        f"{name}.{table.name}"
        for name in _catalog_databases(owned, world)
        for table in catalog.listTables(name)
        if not table.isTemporary
    }
    return sorted(existing - captured)


def _checkpoints(owned: OwnedResources, world: World) -> Iterable[str]:
    """Return the URIs of the checkpoints of streaming queries."""
    folder = f"{world.lake.checkpoints}/streams"
    return filter(files.list_files, (f"{folder}/{query}" for query in owned.streaming_queries))


def _delete_checkpoint(world: World, uri: str) -> None:
    streams.delete_checkpoint(session(world), uri)


def _lake_folders(owned: OwnedResources, world: World) -> Iterable[str]:
    """Return the URIs of the folders of tables that notebooks create with SQL."""
    folders = (f"{world.lake.tables}/{name}" for name in owned.lake_folders)
    return filter(files.list_files, folders)


def _remove_file(world: World, uri: str) -> None:
    files.remove(uri)


# --- products: topics


def _remove_connectors(owned: OwnedResources, world: World) -> None:
    for name in owned.remaining_connectors(world):
        landing.delete(world, name)
    for config in owned.configs(world).values():
        if config.get("connector.class") == JDBC:
            # notebooks may poll with a connector that is not deployed
            landing.reset_offsets(world, config)


def _slots(owned: OwnedResources, world: World) -> list[str]:
    """Return the slots in the databases of the connectors, also those of connectors of the user.

    The slots of flows that `workbench capture` made belong to those flows only.
    """
    configs = [config for config in owned.configs(world).values() if "slot.name" in config]
    names, captured = {c["slot.name"] for c in configs}, postgres.slot_prefix(world) + OWN_PREFIX
    existing = _existing(world, {c["database.dbname"] for c in configs}, postgres.databases)
    return [
        slot
        for name in existing
        for slot in postgres.connector_slots(world, name)
        if slot in names or (not owned.own and not slot.startswith(captured))
    ]


def _remove_slots(owned: OwnedResources, world: World) -> None:
    for config in owned.configs(world).values():
        if "slot.name" in config and config["database.dbname"] in postgres.databases(world):
            postgres.drop_slot(world, config["slot.name"], database=config["database.dbname"])


def connector_schemas(owned: OwnedResources, world: World) -> set[str]:
    """Return the schemas that connectors may register."""
    if not owned.flow or all(capture.format == "json" for capture in owned.flow.captures):
        return set()
    return {f"{topic}-{side}" for topic in owned.topics(world) for side in ("key", "value")}


def _registered(names: Collection[str], world: World) -> list[str]:
    return _existing(world, names, lambda world: registry.artifacts(world)["artifact"])


def _topics(owned: OwnedResources, world: World) -> list[str]:
    return _existing(world, owned.topics(world), topics.names)


def _groups(owned: OwnedResources, world: World) -> list[str]:
    """Return the consumer groups; Debezium reads its schema histories with groups at a restart."""
    configs = [config for config in owned.configs(world).values() if HISTORY_TOPIC in config]
    names = [*owned.consumer_groups, *(f"{c['topic.prefix']}-schemahistory" for c in configs)]
    return _existing(world, names, groups.names)


def _replay_journals(owned: OwnedResources, world: World) -> Iterable[str]:
    """Return the URIs of the journals of replays (see `dlq.replay`) of the topics."""
    folders = (dlq.replay_folder(world, topic) for topic in sorted(owned.topics(world)))
    return filter(files.list_files, folders)


def _landed(owned: OwnedResources, world: World) -> Iterable[str]:
    flow = owned.flow
    folders = [flow.landing_folder(world, c.name) for c in flow.captures if c.sink] if flow else []
    for config in owned.extra_sinks(world):
        folders += landing.folders(world, config)
    return filter(files.list_files, folders)


def _remove_landed(owned: OwnedResources, world: World) -> None:
    flow = owned.flow
    sinks = [flow.config(world, name) for name in flow.sinks] if flow else []
    for config in (*sinks, *owned.extra_sinks(world)):
        landing.drop(world, config)


def _local_sink_files(owned: OwnedResources, world: World) -> list[str]:
    """Return the files that connectors wrote on this machine, if Connect is embedded."""
    paths = [Path(config.get("file", "")) for config in owned.configs(world).values()]
    return [str(path) for path in paths if path.is_file()]


# --- products: source


def _created_tables(owned: OwnedResources, world: World) -> list[str]:
    """Return the existing source tables that the notebook on connectors creates."""
    flow = owned.flow
    if not flow or flow.loader or owned.own or not flow.has_database(world):
        return []
    return flow.db.existing_tables(world, [c.source for c in flow.captures], flow.database)


def _drop_created_tables(owned: OwnedResources, world: World) -> None:
    for name in _created_tables(owned, world):
        statement = format_sql("DROP TABLE {}", tuple(name.split(".")))
        if owned.flow:
            owned.flow.db.execute(world, statement, database=owned.flow.database)


def _loaded_tables(owned: OwnedResources, world: World) -> list[str]:
    """Return the existing source tables, their schemas, and their baselines."""
    flow, baseline = owned.flow, owned.baseline
    if not flow or not (baseline or flow.loader) or not flow.has_database(world):
        return []
    if not baseline:
        loader = flow.loader
        names = [f"{loader.schema}.{table}" for table in loader.tables] if loader else []
        return flow.db.existing_tables(world, names, flow.database)
    tables = flow.db.existing_tables(world, baseline.tables, flow.database)
    copies = {*flow.db.existing_tables(world, baseline.copies, flow.database)}
    return tables + sorted(copies & {*baseline.copies})


def _remove_loaded_tables(owned: OwnedResources, world: World) -> None:
    """Remove the source tables, the publication and the baseline; the database stays."""
    flow = owned.flow
    if not flow:
        return
    if not owned.own:
        flow.db.create_database(world, flow.database)  # the next notebook loads into it
    if flow.loader:
        flow.loader.unload(world)
    if flow.publication:
        postgres.drop_publication(world, flow.publication, flow.database)
    if owned.baseline:
        owned.baseline.delete(world)


def _publications(owned: OwnedResources, world: World) -> list[str]:
    flow = owned.flow
    if not flow or not flow.publication or not flow.has_database(world):
        return []
    publications = postgres.publications(world, flow.database)["publication"]
    return sorted({flow.publication} & {*publications})


def _remove_own_folder(world: World, path: str) -> None:
    """Remove the folder of a flow, and its declaration last: without it nothing would find the rest."""
    for each in Path(path).iterdir():
        if each.is_dir():
            shutil.rmtree(each)
        elif each.name != "flow.yaml":
            each.unlink()
    shutil.rmtree(path)


def _own_folder(owned: OwnedResources, world: World) -> list[str]:
    return [str(owned.own.folder)] if owned.own and owned.own.folder.is_dir() else []


# in the order in which they are removed
KINDS = (
    Kind(
        "tables in the lake",
        Product.TABLES,
        lambda owned, world: [table.name for table in _tables(owned, world)],
        remove=_remove_tables,
    ),
    Kind("other tables in the catalog", Product.TABLES, _other_tables),
    Kind("databases in the catalog", Product.TABLES, _catalog_databases, _drop_catalog_database),
    Kind(FILES, Product.TABLES, _checkpoints, _delete_checkpoint),
    Kind(FILES, Product.TABLES, _lake_folders, _remove_file),
    Kind(
        "connectors",
        Product.TOPICS,
        OwnedResources.remaining_connectors,
        remove=_remove_connectors,
    ),
    Kind("replication slots", Product.TOPICS, _slots, remove=_remove_slots),
    Kind(
        SCHEMAS,
        Product.TOPICS,
        lambda owned, world: _registered(connector_schemas(owned, world), world),
        remove=lambda owned, world: registry.delete(world, *connector_schemas(owned, world)),
    ),
    Kind(
        SCHEMAS,
        Product.SOURCE,
        lambda owned, world: _registered(owned.own_schemas, world),
        remove=lambda owned, world: registry.delete(world, *owned.own_schemas),
    ),
    Kind(
        "topics",
        Product.TOPICS,
        _topics,
        remove=lambda owned, world: topics.delete(world, *_topics(owned, world)),
    ),
    Kind(
        "consumer groups", Product.TOPICS, _groups, lambda world, name: groups.delete(world, name)
    ),
    Kind(FILES, Product.TOPICS, _replay_journals, _remove_file),
    Kind(FILES, Product.TOPICS, _landed, remove=_remove_landed),
    Kind(FILES, Product.TOPICS, _local_sink_files, lambda world, path: Path(path).unlink()),
    Kind(SOURCE_TABLES, Product.TOPICS, _created_tables, remove=_drop_created_tables),
    Kind("publications", Product.SOURCE, _publications),
    Kind(SOURCE_TABLES, Product.SOURCE, _loaded_tables, remove=_remove_loaded_tables),
    Kind(FILES, Product.SOURCE, _own_folder, _remove_own_folder),
)
