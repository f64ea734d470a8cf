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
from ..base import WorkbenchError, World, files, nearest
from ..connect.configs import HISTORY
from ..hudi import ddl
from ..landing.sources import JDBC, topic_of
from ..results import streams
from ..source import mariadb, postgres
from ..source.loading import Loader
from ..source.queries import QUERIES
from ..spark import session
from ..stack import addresses
from ..topic import dlq, groups, registry, topics
from . import kept
from .flow import Flow

SOURCE, CONNECTORS, INGEST = (
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
    its name (see `postgres.create_own`). embedded: whether it runs only where the stack is on this
    machine.

    Of MariaDB's tables no copy is kept: notebooks make them, and they go when their topics begin
    anew.
    """

    folder: Path = Path()
    publication: str = ""
    loader: Optional[Loader] = None
    looks: tuple[str, ...] = ()
    lands: Callable[[World], Sequence[dict[str, str]]] = lambda world: ()
    own_topics: tuple[str, ...] = ()
    own_schemas: tuple[str, ...] = ()
    queries: tuple[str, ...] = ()
    stream: Optional[Callable[[SparkSession, World], Any]] = None
    experiments: Callable[[World], Sequence[hudi.Table]] = lambda world: ()
    kept: tuple[str, ...] = ()
    databases: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    label: str = ""
    steps: Mapping[str, Callable[[World], object]] = field(default_factory=dict)
    services: tuple[str, ...] = ("postgres", "kafka", "connect", "spark")
    plugins: tuple[str, ...] = ()
    processes: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    stores: tuple[str, ...] = ()
    embedded: bool = False

    # --- steps
    # -------------------------------------------------------------------------------------------------------

    def ensure(self, world: World, *steps: str) -> None:
        """Make sure that what these notebooks make is there, running those whose product is
        missing, in order. Here and below, `connectors` will do for `12_connectors`.

        Raises: WorkbenchError: there is no such step; or a notebook failed: the error names its
            cell's message.
        """
        asked = {
            self._later(step)[0] for step in steps
        }  # a misspelt one is told before anything runs
        for step in (name for name in self._products() if name in asked):
            if _kind(step) == CONNECTORS:
                self._revive(world)
            if not self.is_done(world, step):
                self._run(world, step)

    def is_done(self, world: World, step: str) -> bool:
        """Whether the product of a notebook is there; nothing is changed to find out. Raises where
        that cannot be told: a service that does not answer, or a connector that failed, is no
        reason to make everything anew.
        """
        return bool(self._products()[self._later(step)[0]](world))

    def _products(self) -> dict[str, Callable[[World], object]]:
        """{notebook that others need: whether its product is there}, in order."""
        every = {SOURCE: self._has_source, CONNECTORS: self._has_topics, INGEST: self._has_tables}
        names = sorted(path.stem for path in self.folder.glob("*.ipynb"))
        return {
            n: self.steps.get(n) or every[_kind(n)]
            for n in names
            if n in self.steps or _kind(n) in every
        }

    def _later(self, step: str) -> list[str]:
        """The step and those after it. Raises: WorkbenchError: there is no such step."""
        names = list(self._products())
        at = next((n for n, name in enumerate(names) if step in (name, _kind(name))), None)
        if at is None:
            raise WorkbenchError(
                f"there is no step {step!r}",
                where=f"notebooks of {self.folder.name}",
                expected=nearest(step, names),
            )
        return names[at:]

    def _has_source(self, world: World) -> bool:
        if self.engine == "mariadb" or not self._has_database(world):
            return self._has_database(world)
        found = postgres.publications(world, self.database)
        published = set(found[found["publication"] == self.publication]["table"])
        ours = {c.source for c in self.captures}
        return (not self.publication or ours <= published) and kept.is_kept(
            world, self._kept(), self.database
        )

    def _has_database(self, world: World) -> bool:
        return (self.database or world.postgres.database) in self.db.databases(world)

    def _has_topics(self, world: World) -> bool:
        ours, deployed = {self.topic(world, name) for name in self.names}, set(self.deployed)
        if not (deployed <= set(landing.names(world)) and ours <= set(topics.names(world))):
            return False
        if world.stack.embedded and self._has_old_addresses(world):
            return False
        for name in deployed & set(connect.names(world)):
            connect.wait_running(world, name)
        return all(topics.count(world, topic) for topic in ours)

    def _has_old_addresses(self, world: World) -> bool:
        """Whether a connector was deployed when the services had other ports: it is RUNNING and
        reads nothing.
        """
        configs = addresses.deployed(world)
        return any(
            addresses.differ_only(
                {**configs[name], "name": name}, {**self.config(world, name), "name": name}
            )
            for name in self.deployed
        )

    def _has_tables(self, world: World) -> bool:
        return all(
            hudi.exists(t) and (not self.label or self.label in set(hudi.labels(world, t)["label"]))
            for t in self.tables(world)
        )

    def _revive(self, world: World) -> None:
        """Start a connector again that failed: it starts with Connect, a registry when a notebook
        needs it, and what came in between has failed it. What fails it again is told by who asks
        next.
        """
        for name in {c.connector for c in self.captures} & set(connect.names(world)):
            if connect.failure(world, name):
                connect.restart(world, name)

    def _run(self, world: World, step: str) -> None:
        from ..run import execute  # papermill takes a second, and most notebooks run no other

        print(f"{step} has not been run yet: running it first …")
        done = execute.notebook(self.folder / f"{step}.ipynb", {"world": world.name})
        errors = [
            o
            for c in done.book.cells
            if c.cell_type == "code"
            for o in c.outputs
            if o.output_type == "error"
        ]
        if done.why or errors:
            raise WorkbenchError(
                f"{step} failed when it was run as a first step",
                where=done.why or errors[0].evalue,
                next_step=f"open {self.folder.name}/{step}.ipynb and run it",
            )

    # --- starting clean
    # ----------------------------------------------------------------------------------------------

    def keep(self, world: World) -> None:
        """Keep a copy of the source's tables as they are now: after the load, for `set_back`."""
        kept.keep(world, self._kept(), self.database)

    def set_back(self, world: World) -> int:
        """Give the source's tables the rows that were loaded; return how many that changed."""
        return kept.set_back(world, self._kept(), self.database)

    def _kept(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.kept, *(c.source for c in self.captures))))

    def reset(self, world: World, step: str = "") -> None:
        """Remove what `step` (the first by default) and the steps after it make; what is not there
        is no error. Rows of the source that were changed are set back; then the topics begin again
        with a snapshot of it. The database stays. Where nothing is captured, all topics go, and the
        schemas with the first step.
        """
        names = list(self._products())
        all_later = self._later(step or names[0])
        if self.processes:
            stack.stop(*self.processes)
        later = {_kind(name) for name in all_later}
        set_back = bool(self.captures) and SOURCE not in later and self._has_source(world)
        changed = set_back and self._set_back_topics(world)
        for left in self.tables_left(world):
            hudi.drop(session(world), world, left)
        for database in self.databases_left(world):
            session(world).sql(f"DROP DATABASE {ddl.identifier(database)} CASCADE")
        for checkpoint in self._checkpoints(world):
            streams.forget(session(world), checkpoint)
        for folder in self._folders(world):
            files.remove(folder)
        if changed or CONNECTORS in later or not self.captures:
            self._drop_connectors(world, schemas=bool(self.captures) or all_later == names)
        if changed and CONNECTORS not in later:
            self.deploy(world)
        for group in self.groups:
            groups.forget(world, group)
        postgres.drop_own(world, *self.stores)
        if SOURCE in later:
            self.db.create_database(world, self.database)  # what comes next is loaded into it
            if self.loader:
                self.loader.unload(world)
            if self.publication:
                postgres.drop_publication(world, self.publication, self.database)
            if self.engine == "postgres":
                kept.forget(world, self._kept(), self.database)
        if self.engine == "mariadb" and CONNECTORS in later:
            for table in self._source_left(world):
                mariadb.execute(world, mariadb.quoted("DROP TABLE {}", tuple(table.split("."))))
        if all_later == names:
            stack.unload_plugins(world, *self.plugins)

    def begin(self, spark: SparkSession, world: World, name: str, *keys: int) -> bool:
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
            if "landed" in (self.kind_of(world, t) for t in self.tables(world))
            else "topic"
        )
        self.reset(world, INGEST)
        self.follow(spark, world, kind=kind, label=self.label)
        return True

    def _set_back_topics(self, world: World) -> bool:
        """Set the source back; whether there are topics, and they hold more than was loaded."""
        if self.engine == "mariadb":
            return False
        changed, there = self.set_back(world), set(topics.names(world))
        if not {self.topic(world, name) for name in self.names} <= there:
            return False
        # who counts events, counts those too whose rows were changed back by hand
        return (
            bool(changed)
            or not self.watermark
            and any(
                topics.count(world, self.topic(world, name)) != self.count(world, name)
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
        for name in self.connectors_left(world):
            landing.delete(world, name)
        for config in self._configs(world).values():
            if (
                config.get("connector.class") == JDBC
            ):  # notebooks may poll by one that is not deployed
                landing.forget(world, config)
            if "slot.name" in config and config["database.dbname"] in postgres.databases(world):
                postgres.drop_slot(world, config["slot.name"], database=config["database.dbname"])
        registry.delete(world, *(self._artifacts(world) if schemas else ()))
        topics.delete(world, *self._topics_left(world))
        for group in self._history_groups(world):
            groups.forget(world, group)
        for records in self._replay_records(world):
            files.remove(records)
        for config in (*(self.config(world, sink) for sink in self.sinks), *self.lands(world)):
            landing.drop(world, config)
        for path in self._written(world):
            path.unlink()
        for journal in recapture.journals(
            world, *self._connectors()
        ):  # the last, as it names what goes
            files.remove(journal)

    # --- what is left
    # ------------------------------------------------------------------------------------------------

    def left_over(self, world: World) -> dict[str, list[str]]:
        """What is still there of this walkthrough: {what: names}, each list empty after a `reset`
        of the first step.
        """
        there, artifacts = bool(self.captures) and self._has_database(world), self._artifacts(world)
        slotted = there and self.engine == "postgres"
        read = [*([self.database] if slotted else ()), *self._stores(world)]
        landed = [self.landing_folder(world, c.name) for c in self.captures if c.sink]
        landed += [
            folder for config in self.lands(world) for folder in landing.folders(world, config)
        ]
        published = postgres.publications(world, self.database)["publication"] if slotted else []
        known = (
            registry.artifacts(world)["artifact"] if artifacts else []
        )  # who makes none needs no registry
        own_groups = {*self.groups, *self._history_groups(world)}
        return {
            "connectors": self.connectors_left(world),
            "replication slots": [
                slot for database in read for slot in postgres.own_slots(world, database)
            ],
            "topics": self._topics_left(world),
            "schemas in the registry": sorted(artifacts & set(known)),
            "files": [
                *filter(files.below, [*landed, *self._folders(world), *self._checkpoints(world)]),
                *self._replay_records(world),
                *map(str, self._written(world)),
                *recapture.journals(world, *self._connectors()),
            ],
            "tables in the lake": [table.name for table in self.tables_left(world)],
            "databases in the catalog": self.databases_left(world),
            "publications": sorted({self.publication} & set(published)),
            "tables in the source": self._source_left(world) if there else [],
            "stores of its services": self._stores(world),
            "processes": sorted({*self.processes} & {*stack.running()}),
            "consumer groups": sorted(own_groups & {*groups.names(world)}) if own_groups else [],
        }

    def connectors_left(self, world: World) -> list[str]:
        """Its connectors that are deployed; others may run on the same Connect."""
        own = self._connectors()
        ours = {*own, *recapture.deployed_by(world, *own), *self.sinks}
        return sorted(ours & set(landing.names(world))) if ours else []

    def tables_left(self, world: World) -> list[hudi.Table]:
        """Its tables that have files in the lake, those of its experiments included."""
        return [t for t in (*self.tables(world), *self.experiments(world)) if files.entries(t.base)]

    def databases_left(self, world: World) -> list[str]:
        """Its databases that are in the catalog."""
        return [name for name in self.databases if session(world).catalog.databaseExists(name)]

    def _stores(self, world: World) -> list[str]:
        return sorted({*self.stores} & {*postgres.databases(world)}) if self.stores else []

    def _folders(self, world: World) -> list[str]:
        return [f"{world.lake.tables}/{folder}" for folder in self.folders]

    def _checkpoints(self, world: World) -> list[str]:
        return [f"{world.lake.checkpoints}/streams/{query}" for query in self.queries]

    def _written(self, world: World) -> list[Path]:
        """The files that its connectors have written on this machine, where an embedded Connect
        runs.
        """
        return [
            *filter(
                Path.is_file,
                (Path(self.config(world, name).get("file", "")) for name in self.looks),
            )
        ]

    def _history_groups(self, world: World) -> list[str]:
        """Return the consumer groups with which Debezium reads its schema history when a connector
        starts again.
        """
        configs = self._configs(world).values()
        return [
            f"{config['topic.prefix']}-schemahistory"
            for config in configs
            if f"{HISTORY}.kafka.topic" in config
        ]

    def _replay_records(self, world: World) -> list[str]:
        """Return the addresses of the records of replays (see `dlq.replay`) of its topics."""
        own = self._topics(world)
        return [address for address, topic in dlq.records(world).items() if topic in own]

    def _connectors(self) -> list[str]:
        return list(dict.fromkeys([*(c.connector for c in self.captures), *self.looks]))

    def _configs(self, world: World) -> dict[str, dict[str, str]]:
        """The configurations of its connectors, and what is noted of those that `recapture.run`
        made of them.
        """
        own = self._connectors()
        return {
            **{name: self.config(world, name) for name in own},
            **recapture.deployed_by(world, *own),
        }

    def _topics(self, world: World) -> set[str]:
        """The topics that its connectors make, their heartbeats, and what they note of tables
        (MariaDB's do).
        """
        made = {*self.own_topics, *(self.topic(world, name) for name in self.names)}
        for config in self._configs(world).values():
            if "topic.prefix" in config:
                tables = config.get("table.include.list", config.get("table.whitelist", "")).split(
                    ","
                )
                made |= {topic_of(config, table.strip()) for table in tables}
                made.add(f"__debezium-heartbeat.{config['topic.prefix']}")
            made |= {config[key] for key in [f"{HISTORY}.kafka.topic"] if key in config}
        return made

    def _topics_left(self, world: World) -> list[str]:
        return sorted(self._topics(world) & set(topics.names(world)))

    def _artifacts(self, world: World) -> set[str]:
        """The schemas that its connectors may have put into the registry."""
        registered = self._topics(world) if "apicurio" in self.services else ()
        return {
            *self.own_schemas,
            *(f"{topic}-{side}" for topic in registered for side in ("key", "value")),
        }

    def _source_left(self, world: World) -> list[str]:
        """Its tables in the source, the copies of them, and the schemas that are its own."""
        if self.engine == "mariadb":
            asked = "SELECT concat(table_schema, '.', table_name) AS name FROM information_schema.tables"
            return sorted(
                {c.source for c in self.captures} & set(mariadb.frame(world, asked)["name"])
            )
        schemas = {table.partition(".")[0] for table in self._kept()} - {"public"}
        tables = [*self._kept(), *(f"{kept.SCHEMA}.{table}" for table in self._kept())]
        return list(
            postgres.frame(world, QUERIES["left_over"], [list(schemas), tables], self.database)[
                "name"
            ]
        )


def _kind(step: str) -> str:
    """`12_connectors` is one of the `connectors`."""
    return step.partition("_")[2]
