"""The declaration of a walkthrough: its notebooks, and what they need and create."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Mapping, Optional, Sequence

from pyspark.sql import SparkSession

from .. import hudi
from ..base import World
from ..source.loading import Loader
from .flow import Flow

StartQuery = Callable[[SparkSession, World], Any]


@dataclass(frozen=True)
class Declaration(Flow):
    """The declaration of a walkthrough, a folder of notebooks over one flow.

    Attributes:
        folder: the folder of the notebooks.
        publication: name of the publication of the captured tables; "" for no publication.
        loader: fills the source tables.
        extra_connectors: names of further connectors, which notebooks use for demonstrations.
        extra_sinks: returns the configurations of further sinks that notebooks use.
        own_topics: topics that notebooks create.
        own_schemas: schemas that notebooks register.
        streaming_queries: names of streaming queries. Their checkpoints are in the lake's
            checkpoints, in `streams/`.
        start_query: starts the streaming query that can run as a job.
        scratch_tables: returns further lake tables that notebooks create.
        restorable_tables: source tables that are restored besides the captured ones.
        catalog_databases: catalog databases for the tables that notebooks create with SQL.
        lake_folders: the folders of these tables, relative to the lake's tables.
        label: the label of each table's first commit.
        completion_checks: {notebook: check whether its result exists} for notebooks that others
            require, besides the common checks of `…_source_database`, `…_connectors` and
            `…_hudi_ingest`.
        services: the services of the stack that must run.
        plugins: Connect plugins that notebooks load (see `stack.load_plugins`).
        owned_services: services of the stack that only this walkthrough uses.
        consumer_groups: its consumer groups.
        service_databases: its databases with a role of the same name each (see
            `postgres.create_service_database`).
        local_only: whether the walkthrough requires an embedded stack.
    """

    folder: Path = Path()
    publication: str = ""
    loader: Optional[Loader] = None
    extra_connectors: tuple[str, ...] = ()
    extra_sinks: Callable[[World], Sequence[dict[str, str]]] = lambda world: ()
    own_topics: tuple[str, ...] = ()
    own_schemas: tuple[str, ...] = ()
    streaming_queries: tuple[str, ...] = ()
    start_query: Optional[StartQuery] = None
    scratch_tables: Callable[[World], Sequence[hudi.Table]] = lambda world: ()
    restorable_tables: tuple[str, ...] = ()
    catalog_databases: tuple[str, ...] = ()
    lake_folders: tuple[str, ...] = ()
    label: str = ""
    completion_checks: Mapping[str, Callable[[World], object]] = field(default_factory=dict)
    services: tuple[str, ...] = ("postgres", "kafka", "connect", "spark")
    plugins: tuple[str, ...] = ()
    owned_services: tuple[str, ...] = ()
    consumer_groups: tuple[str, ...] = ()
    service_databases: tuple[str, ...] = ()
    local_only: bool = False

    @property
    def connectors(self) -> list[str]:
        """The names of the connectors of the captures, and of the extra connectors."""
        captures = [c.connector for c in self.captures]
        return list(dict.fromkeys([*captures, *self.extra_connectors]))

    @property
    def baseline_tables(self) -> tuple[str, ...]:
        """The source tables that have a baseline: the restorable and the captured ones."""
        captured = (c.source for c in self.captures)
        return tuple(dict.fromkeys((*self.restorable_tables, *captured)))
