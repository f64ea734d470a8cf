"""What a walkthrough is, and what is the same in all: its notebooks run alone, twice, and leave
nothing behind.

A walkthrough is a declaration. Its notebooks begin with `ensure`, which runs those whose product is
missing, and `reset`, which removes what a notebook and those after it make.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Mapping, Optional, Sequence

from pyspark.sql import SparkSession

from .. import connect, hudi, landing, recapture, stack
from ..base import WorkbenchError, World, did_you_mean, files
from ..connect.configs import SCHEMA_HISTORY_PREFIX
from ..hudi import ddl
from ..landing.sources import JDBC, topic_name
from ..results import streams
from ..source import mariadb, postgres
from ..source.loading import Loader
from ..source.queries import QUERIES
from ..spark import session
from ..stack import addresses
from ..topic import dlq, groups, registry, topics
from . import baseline
from .flow import Flow

SOURCE_STEP, CONNECTORS_STEP, INGEST_STEP = (
    "source_database",
    "connectors",
    "hudi_ingest",
)  # notebooks that later ones hang on


@dataclass(frozen=True)
class Walkthrough(Flow):
    """A folder of notebooks that follow a flow.

    folder: of the notebooks. publication: of the captured tables, "" where there is none. loader:
        of its source. looks:
    connectors that show something, beside those that capture. lands: configurations that notebooks
    land by, beside those of the captures. own_topics, own_schemas: that notebooks make. queries:
    names of their streaming queries, whose checkpoints lie below the lake's in streams/. stream:
    starts the one that goes on as a job. experiments: its other tables in the lake. kept: tables
    that are set back beside the captured ones. databases: of the catalog, for tables that its
    notebooks make with SQL; folders: below the lake's tables, with the files of those. label: put
    on each table's first commit. steps: {notebook: whether its product is there}, for notebooks
    that others need, beside those of every walkthrough: `…_source_database`, `…_connectors`,
    `…_hudi_ingest`. services: what it needs running.
    plugins: of Connect, that its notebooks have it load (see stack.load_plugins).
    processes: services of the stack that are its own; groups: consumer groups; stores: databases,
        each with a role of
    its name (see `postgres.create_service_database`). embedded: whether it runs only where the stack is on this
    machine.

    Of MariaDB's tables no copy is kept: notebooks make them, and they go when their topics begin
    anew.
    """

    folder: Path = Path()
    publication: str = ""
    loader: Optional[Loader] = None
    extra_connectors: tuple[str, ...] = ()
    extra_sinks: Callable[[World], Sequence[dict[str, str]]] = lambda world: ()
    own_topics: tuple[str, ...] = ()
    own_schemas: tuple[str, ...] = ()
    streaming_queries: tuple[str, ...] = ()
    start_query: Optional[Callable[[SparkSession, World], Any]] = None
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

    # --- steps
    # -------------------------------------------------------------------------------------------------------

    def ensure(self, world: World, *steps: str) -> None:
        """Make sure that what these notebooks make is there, running those whose product is
        missing, in order. Here and below, `connectors` will do for `12_connectors`.

        Raises: WorkbenchError: there is no such step; or a notebook failed: the error names its
            cell's message.
        """
        asked = {
            self._steps_from(step)[0] for step in steps
        }  # a misspelt one is told before anything runs
        for step in (name for name in self._all_completion_checks() if name in asked):
            if _step_kind(step) == CONNECTORS_STEP:
                self._restart_failed_connectors(world)
            if not self.is_done(world, step):
                self._run_notebook(world, step)

    def is_done(self, world: World, step: str) -> bool:
        """Whether the product of a notebook is there; nothing is changed to find out. Raises where
        that cannot be told: a service that does not answer, or a connector that failed, is no
        reason to make everything anew.
        """
        return bool(self._all_completion_checks()[self._steps_from(step)[0]](world))

    def _all_completion_checks(self) -> dict[str, Callable[[World], object]]:
        """{notebook that others need: whether its product is there}, in order."""
        every = {
            SOURCE_STEP: self._has_source,
            CONNECTORS_STEP: self._has_topics,
            INGEST_STEP: self._has_tables,
        }
        names = sorted(path.stem for path in self.folder.glob("*.ipynb"))
        return {
            n: self.completion_checks.get(n) or every[_step_kind(n)]
            for n in names
            if n in self.completion_checks or _step_kind(n) in every
        }

    def _steps_from(self, step: str) -> list[str]:
        """The step and those after it. Raises: WorkbenchError: there is no such step."""
        names = list(self._all_completion_checks())
        at = next((n for n, name in enumerate(names) if step in (name, _step_kind(name))), None)
        if at is None:
            raise WorkbenchError(
                f"there is no step {step!r}",
                location=f"notebooks of {self.folder.name}",
                expected=did_you_mean(step, names),
            )
        return names[at:]

    def _has_source(self, world: World) -> bool:
        if self.engine == "mariadb" or not self._has_database(world):
            return self._has_database(world)
        found = postgres.publications(world, self.database)
        published = set(found[found["publication"] == self.publication]["table"])
        ours = {c.source for c in self.captures}
        return (not self.publication or ours <= published) and baseline.exists(
            world, self._baseline_tables(), self.database
        )

    def _has_database(self, world: World) -> bool:
        return (self.database or world.postgres.database) in self.db.databases(world)

    def _has_topics(self, world: World) -> bool:
        ours, deployed = (
            {self.topic(world, name) for name in self.names},
            set(self.deployed_connectors),
        )
        if not (deployed <= set(landing.names(world)) and ours <= set(topics.names(world))):
            return False
        if world.stack.embedded and self._has_outdated_endpoints(world):
            return False
        for name in deployed & set(connect.names(world)):
            connect.wait_running(world, name)
        return all(topics.offset_span(world, topic) for topic in ours)

    def _has_outdated_endpoints(self, world: World) -> bool:
        """Whether a connector was deployed when the services had other ports: it is RUNNING and
        reads nothing.
        """
        configs = addresses.deployed_configs(world)
        return any(
            addresses.differ_only_in_addresses(
                {**configs[name], "name": name}, {**self.config(world, name), "name": name}
            )
            for name in self.deployed_connectors
        )

    def _has_tables(self, world: World) -> bool:
        return all(
            hudi.exists(t) and (not self.label or self.label in set(hudi.labels(world, t)["label"]))
            for t in self.tables(world)
        )

    def _restart_failed_connectors(self, world: World) -> None:
        """Start a connector again that failed: it starts with Connect, a registry when a notebook
        needs it, and what came in between has failed it. What fails it again is told by who asks
        next.
        """
        for name in {c.connector for c in self.captures} & set(connect.names(world)):
            if connect.failure(world, name):
                connect.restart(world, name)

    def _run_notebook(self, world: World, step: str) -> None:
        from ..run import execute  # papermill takes a second, and most notebooks run no other

        print(f"{step} has not been run yet: running it first …")
        done = execute.execute_notebook(self.folder / f"{step}.ipynb", {"world": world.name})
        errors = [
            o
            for c in done.notebook.cells
            if c.cell_type == "code"
            for o in c.outputs
            if o.output_type == "error"
        ]
        if done.reason or errors:
            raise WorkbenchError(
                f"{step} failed when it was run as a first step",
                location=done.reason or errors[0].evalue,
                hint=f"open {self.folder.name}/{step}.ipynb and run it",
            )

    # --- starting clean
    # ----------------------------------------------------------------------------------------------

    def save_baseline(self, world: World) -> None:
        """Keep a copy of the source's tables as they are now: after the load, for `set_back`."""
        baseline.save(world, self._baseline_tables(), self.database)

    def restore_baseline(self, world: World) -> int:
        """Give the source's tables the rows that were loaded; return how many that changed."""
        return baseline.restore(world, self._baseline_tables(), self.database)

    def _baseline_tables(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.restorable_tables, *(c.source for c in self.captures))))

    def reset(self, world: World, step: str = "") -> None:
        """Remove what `step` (the first by default) and the steps after it make; what is not there
        is no error. Rows of the source that were changed are set back; then the topics begin again
        with a snapshot of it. The database stays. Where nothing is captured, all topics go, and the
        schemas with the first step.
        """
        names = list(self._all_completion_checks())
        all_later = self._steps_from(step or names[0])
        if self.owned_services:
            stack.stop(*self.owned_services)
        later = {_step_kind(name) for name in all_later}
        set_back = bool(self.captures) and SOURCE_STEP not in later and self._has_source(world)
        changed = set_back and self._restore_source(world)
        for left in self.remaining_tables(world):
            hudi.drop(session(world), world, left)
        for database in self.remaining_databases(world):
            session(world).sql(f"DROP DATABASE {ddl.identifier(database)} CASCADE")
        for checkpoint in self._checkpoint_uris(world):
            streams.delete_checkpoint(session(world), checkpoint)
        for folder in self._lake_folder_uris(world):
            files.remove(folder)
        if changed or CONNECTORS_STEP in later or not self.captures:
            self._drop_connectors(world, schemas=bool(self.captures) or all_later == names)
        if changed and CONNECTORS_STEP not in later:
            self.deploy(world)
        for group in self.consumer_groups:
            groups.delete(world, group)
        postgres.drop_service_databases(world, *self.service_databases)
        if SOURCE_STEP in later:
            self.db.create_database(world, self.database)  # what comes next is loaded into it
            if self.loader:
                self.loader.unload(world)
            if self.publication:
                postgres.drop_publication(world, self.publication, self.database)
            if self.engine == "postgres":
                baseline.delete(world, self._baseline_tables(), self.database)
        if self.engine == "mariadb" and CONNECTORS_STEP in later:
            for table in self._remaining_source_tables(world):
                mariadb.execute(world, mariadb.format_sql("DROP TABLE {}", tuple(table.split("."))))
        if all_later == names:
            stack.unload_plugins(world, *self.plugins)

    def reset_if_changed(self, spark: SparkSession, world: World, name: str, *keys: int) -> bool:
        """Set everything back to what was loaded if one of these rows of a table, or any where no
        key is given, was changed since; return whether it was.
        """
        later = self.events(spark, world, name).where("`__op` <> 'r'")
        if keys:
            later = later.where(
                f"{self.capture(name).key} IN ({', '.join(str(int(k)) for k in keys)})"
            )
        if not later.limit(1).collect():
            return False
        kind = (
            "landed"
            if "landed" in (self.source_kind(world, t) for t in self.tables(world))
            else "topic"
        )
        self.reset(world, INGEST_STEP)
        self.sync(spark, world, kind=kind, label=self.label)
        return True

    def _restore_source(self, world: World) -> bool:
        """Set the source back; whether there are topics, and they hold more than was loaded."""
        if self.engine == "mariadb":
            return False
        changed, there = self.restore_baseline(world), set(topics.names(world))
        if not {self.topic(world, name) for name in self.names} <= there:
            return False
        # who counts events, counts those too whose rows were changed back by hand
        return (
            bool(changed)
            or not self.watermark
            and any(
                topics.offset_span(world, self.topic(world, name)) != self.count(world, name)
                for name in self.names
            )
        )

    def recapture(self, world: World) -> dict[str, int]:
        """Begin the topics and the landed files again, with a snapshot of the source as it is; the
        schemas stay in the registry. Return as `deploy`.
        """
        self._drop_connectors(world, schemas=False)
        return self.deploy(world)

    def _drop_connectors(self, world: World, *, schemas: bool = True) -> None:
        for name in self.remaining_connectors(world):
            landing.delete(world, name)
        for config in self._connector_configs(world).values():
            if (
                config.get("connector.class") == JDBC
            ):  # notebooks may poll by one that is not deployed
                landing.reset_offsets(world, config)
            if "slot.name" in config and config["database.dbname"] in postgres.databases(world):
                postgres.drop_slot(world, config["slot.name"], database=config["database.dbname"])
        registry.delete(world, *(self._schema_artifacts(world) if schemas else ()))
        topics.delete(world, *self._remaining_topics(world))
        for group in self._history_groups(world):
            groups.delete(world, group)
        for records in self._replay_records(world):
            files.remove(records)
        for config in (
            *(self.config(world, sink) for sink in self.sinks),
            *self.extra_sinks(world),
        ):
            landing.drop(world, config)
        for path in self._local_sink_files(world):
            path.unlink()
        for journal in recapture.journals(
            world, *self._connector_names()
        ):  # the last, as it names what goes
            files.remove(journal)

    # --- what is left
    # ------------------------------------------------------------------------------------------------

    def remaining_resources(self, world: World) -> dict[str, list[str]]:
        """What is still there of this walkthrough: {what: names}, each list empty after a `reset`
        of the first step.
        """
        there, artifacts = (
            bool(self.captures) and self._has_database(world),
            self._schema_artifacts(world),
        )
        slotted = there and self.engine == "postgres"
        read = [*([self.database] if slotted else ()), *self._remaining_service_databases(world)]
        landed = [self.landing_folder(world, c.name) for c in self.captures if c.sink]
        landed += [
            folder
            for config in self.extra_sinks(world)
            for folder in landing.folders(world, config)
        ]
        published = postgres.publications(world, self.database)["publication"] if slotted else []
        known = (
            registry.artifacts(world)["artifact"] if artifacts else []
        )  # who makes none needs no registry
        own_groups = {*self.consumer_groups, *self._history_groups(world)}
        return {
            "connectors": self.remaining_connectors(world),
            "replication slots": [
                slot for database in read for slot in postgres.connector_slots(world, database)
            ],
            "topics": self._remaining_topics(world),
            "schemas in the registry": sorted(artifacts & set(known)),
            "files": [
                *filter(
                    files.list_files,
                    [*landed, *self._lake_folder_uris(world), *self._checkpoint_uris(world)],
                ),
                *self._replay_records(world),
                *map(str, self._local_sink_files(world)),
                *recapture.journals(world, *self._connector_names()),
            ],
            "tables in the lake": [table.name for table in self.remaining_tables(world)],
            "databases in the catalog": self.remaining_databases(world),
            "publications": sorted({self.publication} & set(published)),
            "tables in the source": self._remaining_source_tables(world) if there else [],
            "stores of its services": self._remaining_service_databases(world),
            "processes": sorted({*self.owned_services} & {*stack.running()}),
            "consumer groups": sorted(own_groups & {*groups.names(world)}) if own_groups else [],
        }

    def remaining_connectors(self, world: World) -> list[str]:
        """Its connectors that are deployed; others may run on the same Connect."""
        own = self._connector_names()
        ours = {*own, *recapture.connectors_of_recaptures(world, *own), *self.sinks}
        return sorted(ours & set(landing.names(world))) if ours else []

    def remaining_tables(self, world: World) -> list[hudi.Table]:
        """Its tables that have files in the lake, those of its experiments included."""
        return [
            t for t in (*self.tables(world), *self.scratch_tables(world)) if files.list_dir(t.base)
        ]

    def remaining_databases(self, world: World) -> list[str]:
        """Its databases that are in the catalog."""
        return [
            name for name in self.catalog_databases if session(world).catalog.databaseExists(name)
        ]

    def _remaining_service_databases(self, world: World) -> list[str]:
        return (
            sorted({*self.service_databases} & {*postgres.databases(world)})
            if self.service_databases
            else []
        )

    def _lake_folder_uris(self, world: World) -> list[str]:
        return [f"{world.lake.tables}/{folder}" for folder in self.lake_folders]

    def _checkpoint_uris(self, world: World) -> list[str]:
        return [f"{world.lake.checkpoints}/streams/{query}" for query in self.streaming_queries]

    def _local_sink_files(self, world: World) -> list[Path]:
        """The files that its connectors have written on this machine, where an embedded Connect
        runs.
        """
        return [
            *filter(
                Path.is_file,
                (Path(self.config(world, name).get("file", "")) for name in self.extra_connectors),
            )
        ]

    def _history_groups(self, world: World) -> list[str]:
        """Return the consumer groups with which Debezium reads its schema history when a connector
        starts again.
        """
        configs = self._connector_configs(world).values()
        return [
            f"{config['topic.prefix']}-schemahistory"
            for config in configs
            if f"{SCHEMA_HISTORY_PREFIX}.kafka.topic" in config
        ]

    def _replay_records(self, world: World) -> list[str]:
        """Return the addresses of the records of replays (see `dlq.replay`) of its topics."""
        own = self._topic_names(world)
        return [address for address, topic in dlq.replay_state_dirs(world).items() if topic in own]

    def _connector_names(self) -> list[str]:
        return list(dict.fromkeys([*(c.connector for c in self.captures), *self.extra_connectors]))

    def _connector_configs(self, world: World) -> dict[str, dict[str, str]]:
        """The configurations of its connectors, and what is noted of those that `recapture.run`
        made of them.
        """
        own = self._connector_names()
        return {
            **{name: self.config(world, name) for name in own},
            **recapture.connectors_of_recaptures(world, *own),
        }

    def _topic_names(self, world: World) -> set[str]:
        """The topics that its connectors make, their heartbeats, and what they note of tables
        (MariaDB's do).
        """
        made = {*self.own_topics, *(self.topic(world, name) for name in self.names)}
        for config in self._connector_configs(world).values():
            if "topic.prefix" in config:
                tables = config.get("table.include.list", config.get("table.whitelist", "")).split(
                    ","
                )
                made |= {topic_name(config, table.strip()) for table in tables}
                made.add(f"__debezium-heartbeat.{config['topic.prefix']}")
            made |= {
                config[key] for key in [f"{SCHEMA_HISTORY_PREFIX}.kafka.topic"] if key in config
            }
        return made

    def _remaining_topics(self, world: World) -> list[str]:
        return sorted(self._topic_names(world) & set(topics.names(world)))

    def _schema_artifacts(self, world: World) -> set[str]:
        """The schemas that its connectors may have put into the registry."""
        registered = self._topic_names(world) if "apicurio" in self.services else ()
        return {
            *self.own_schemas,
            *(f"{topic}-{side}" for topic in registered for side in ("key", "value")),
        }

    def _remaining_source_tables(self, world: World) -> list[str]:
        """Its tables in the source, the copies of them, and the schemas that are its own."""
        if self.engine == "mariadb":
            asked = "SELECT concat(table_schema, '.', table_name) AS name FROM information_schema.tables"
            return sorted(
                {c.source for c in self.captures} & set(mariadb.query(world, asked)["name"])
            )
        schemas = {table.partition(".")[0] for table in self._baseline_tables()} - {"public"}
        tables = [
            *self._baseline_tables(),
            *(f"{baseline.SCHEMA}.{table}" for table in self._baseline_tables()),
        ]
        return list(
            postgres.query(world, QUERIES["left_over"], [list(schemas), tables], self.database)[
                "name"
            ]
        )


def _step_kind(step: str) -> str:
    """`12_connectors` is one of the `connectors`."""
    return step.partition("_")[2]
