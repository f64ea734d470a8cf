"""Walkthroughs: run required notebooks first, start clean, and remove all resources.

The first cells of a notebook call `ensure` and `reset`. `ensure` runs the earlier notebooks whose
results are missing. `reset` removes the results of a notebook and of all later ones.
"""

from typing import Callable

from pyspark.sql import SparkSession

from .. import connect, hudi, landing, stack
from ..base import WorkbenchError, World, did_you_mean
from ..source import postgres
from ..stack import addresses
from ..topic import topics
from . import baseline
from .declaration import Declaration
from .resources import Resources

SOURCE_STEP = "source_database"
CONNECTORS_STEP = "connectors"
INGEST_STEP = "hudi_ingest"


class Walkthrough(Declaration):
    """A folder of notebooks over one flow. Each notebook can be run separately and repeatedly.

    A step is a notebook whose result later notebooks require. Its number may be omitted: `connectors` is short for
    `12_connectors`.
    """

    # --- steps

    def ensure(self, world: World, *steps: str) -> None:
        """Run each of these notebooks whose result is missing, in their order.

        Raises:
            WorkbenchError: a step is unknown, or a notebook failed. The error has the message of
                the failed cell.
        """
        requested = {self._steps_from(step)[0] for step in steps}  # before any notebook runs
        for step in self._all_completion_checks():
            if step in requested:
                if _step_kind(step) == CONNECTORS_STEP:
                    self._restart_failed_connectors(world)
                if not self.is_done(world, step):
                    self._run_notebook(world, step)

    def is_done(self, world: World, step: str) -> bool:
        """Return whether the result of a notebook exists, without changing anything.

        Raises the error of a service that does not respond, or of a failed connector. Otherwise
        `ensure` would create existing results again.
        """
        return bool(self._all_completion_checks()[self._steps_from(step)[0]](world))

    def _all_completion_checks(self) -> dict[str, Callable[[World], object]]:
        """Return {notebook: check whether its result exists}, in the order of the notebooks."""
        common = {
            SOURCE_STEP: self._has_source,
            CONNECTORS_STEP: self._has_topics,
            INGEST_STEP: self._has_tables,
        }
        checks: dict[str, Callable[[World], object]] = {}
        for name in sorted(path.stem for path in self.folder.glob("*.ipynb")):
            check = self.completion_checks.get(name) or common.get(_step_kind(name))
            if check:
                checks[name] = check
        return checks

    def _steps_from(self, step: str) -> list[str]:
        """Return this step and the later ones.

        Raises:
            WorkbenchError: the step is unknown.
        """
        names = list(self._all_completion_checks())
        for number, name in enumerate(names):
            if step in (name, _step_kind(name)):
                return names[number:]
        raise WorkbenchError(
            f"there is no step {step!r}",
            location=f"notebooks of {self.folder.name}",
            expected=did_you_mean(step, names),
        )

    def _has_source(self, world: World) -> bool:
        if self.engine == "mariadb" or not self.has_database(world):
            return self.has_database(world)
        publications = postgres.publications(world, self.database)
        published = set(publications[publications["publication"] == self.publication]["table"])
        captured = {c.source for c in self.captures}
        if self.publication and not captured <= published:
            return False
        return baseline.exists(world, self.baseline_tables, self.database)

    def _has_topics(self, world: World) -> bool:
        names, deployed = {self.topic(world, n) for n in self.names}, set(self.deployed_connectors)
        if not (deployed <= set(landing.names(world)) and names <= set(topics.names(world))):
            return False
        if world.stack.embedded and self._has_outdated_endpoints(world):
            return False
        for name in deployed & set(connect.names(world)):
            connect.wait_running(world, name)
        return all(topics.offset_span(world, topic) for topic in names)

    def _has_outdated_endpoints(self, world: World) -> bool:
        """Return whether a connector was deployed when the services had other ports.

        Such a connector is RUNNING, but cannot read anything.
        """
        deployed = addresses.deployed_configs(world)
        return any(
            addresses.differ_only_in_addresses(
                {**deployed[name], "name": name}, {**self.config(world, name), "name": name}
            )
            for name in self.deployed_connectors
        )

    def _has_tables(self, world: World) -> bool:
        return all(
            hudi.exists(table)
            and (not self.label or self.label in set(hudi.labels(world, table)["label"]))
            for table in self.tables(world)
        )

    def _restart_failed_connectors(self, world: World) -> None:
        """Restart failed connectors once.

        Connect starts its connectors before a notebook starts the registry, so a change in between
        fails a connector. If a connector fails again, `_has_topics` raises its error.
        """
        for name in {c.connector for c in self.captures} & set(connect.names(world)):
            if connect.failure(world, name):
                connect.restart(world, name)

    def _run_notebook(self, world: World, step: str) -> None:
        from ..run import execute  # a local import, because papermill takes a second to import

        print(f"{step} has not been run yet: running it first …")
        result = execute.execute_notebook(self.folder / f"{step}.ipynb", {"world": world.name})
        errors = [
            output.evalue
            for cell in result.notebook.cells
            if cell.cell_type == "code"
            for output in cell.outputs
            if output.output_type == "error"
        ]
        if result.reason or errors:
            raise WorkbenchError(
                f"{step} failed when it was run as a first step",
                location=result.reason or errors[0],
                hint=f"open {self.folder.name}/{step}.ipynb and run it",
            )

    # --- baseline

    def save_baseline(self, world: World) -> None:
        """Copy the loaded source tables, for `restore_baseline`."""
        baseline.save(world, self.baseline_tables, self.database)

    def restore_baseline(self, world: World) -> int:
        """Restore the loaded rows of the source tables, and return the number of changed rows."""
        return baseline.restore(world, self.baseline_tables, self.database)

    # --- starting clean

    def resources(self, world: World) -> Resources:
        """Return the resources of this walkthrough in a world."""
        return Resources(self, world)

    def remaining_resources(self, world: World) -> dict[str, list[str]]:
        """Return the resources that exist, as `Resources.remaining` does."""
        return self.resources(world).remaining()

    def remaining_connectors(self, world: World) -> list[str]:
        """Return the deployed connectors of this walkthrough."""
        return self.resources(world).remaining_connectors()

    def reset(self, world: World, step: str = "") -> None:
        """Remove the results of a step (by default the first one) and of all later steps.

        Missing results are ignored. Changed source rows are restored, and the topics then restart with
        a snapshot. The database stays. If the walkthrough has no captures, all topics are removed,
        and with the first step also the schemas.
        """
        names = list(self._all_completion_checks())
        steps = self._steps_from(step or names[0])
        kinds = {_step_kind(name) for name in steps}
        is_full_reset = steps == names
        resources = self.resources(world)
        if self.owned_services:
            stack.stop(*self.owned_services)
        restarts_topics = SOURCE_STEP not in kinds and self._restore_source(world)
        resources.drop_tables()
        if restarts_topics or CONNECTORS_STEP in kinds or not self.captures:
            resources.drop_connectors(schemas=bool(self.captures) or is_full_reset)
        if restarts_topics and CONNECTORS_STEP not in kinds:
            self.deploy(world)
        resources.drop_service_data()
        if SOURCE_STEP in kinds:
            resources.drop_source()
        if self.engine == "mariadb" and CONNECTORS_STEP in kinds:
            resources.drop_mariadb_tables()
        if is_full_reset:
            stack.unload_plugins(world, *self.plugins)

    def reset_if_changed(self, spark: SparkSession, world: World, name: str, *keys: int) -> bool:
        """Restore the loaded state if rows of a table were changed since the load.

        Args:
            spark: the Spark session.
            world: the world.
            name: name of the capture.
            keys: keys of the rows to check, by default all rows.

        Returns:
            Whether the state was restored.
        """
        changes = self.events(spark, world, name).where("`__op` <> 'r'")
        if keys:
            values = ", ".join(str(int(key)) for key in keys)
            changes = changes.where(f"{self.capture(name).key} IN ({values})")
        if not changes.limit(1).collect():
            return False
        kinds = [self.source_kind(world, table) for table in self.tables(world)]
        self.reset(world, INGEST_STEP)
        kind = "landed" if "landed" in kinds else "topic"
        self.sync(spark, world, kind=kind, label=self.label)
        return True

    def _restore_source(self, world: World) -> bool:
        """Restore the source; return whether topics exist and have more than the loaded rows.

        A source without a baseline is unchanged.
        """
        if not self.captures or self.engine == "mariadb" or not self._has_source(world):
            return False
        changed = self.restore_baseline(world)
        existing = topics.names(world)
        expected = {name: self.topic(world, name) for name in self.names}
        if not set(expected.values()) <= set(existing):
            return False
        if changed or self.watermark:
            return bool(changed)
        # Notebooks count events, including those of rows that a user changed and changed back.
        return any(
            topics.offset_span(world, topic) != self.count(world, name)
            for name, topic in expected.items()
        )

    def recapture(self, world: World) -> dict[str, int]:
        """Remove the topics and landed files, and capture the source again with a new snapshot.

        The schemas stay in the registry.

        Returns:
            {topic: number of messages}, as `deploy` does.
        """
        self.resources(world).drop_connectors(schemas=False)
        return self.deploy(world)


def _step_kind(step: str) -> str:
    """Return the name of a notebook without its number."""
    return step.partition("_")[2]
