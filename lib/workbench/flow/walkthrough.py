"""Walkthroughs: run required notebooks first, start clean, and remove all resources.

The first cells of a notebook call `ensure` and `reset`. `ensure` runs the earlier notebooks whose
results are missing. `reset` removes the results of a notebook and of all later ones.
"""

from dataclasses import dataclass
from typing import Any, Callable, Optional

from pyspark.sql import SparkSession

from ..base import World
from ..topic import topics
from . import steps as steps_
from .baseline import Baseline
from .flow import CaptureFlow
from .resources import SCHEMAS, SOURCE_TABLES, OwnedResources
from .steps import Product, Steps

StartQuery = Callable[[SparkSession, World], Any]


@dataclass(frozen=True)
class Walkthrough:
    """A folder of notebooks. Each notebook can be run separately and repeatedly.

    Attributes:
        name: its name, that of the folder.
        steps: the notebooks whose results later ones require, in order.
        resources: everything that connectors and notebooks may leave behind.
        flow: the captured tables; None for a walkthrough without them.
        baseline: the source's rows as loaded; None for a source that is not restored.
        start_query: starts the streaming query that can run as a job.
    """

    name: str
    steps: Steps
    resources: OwnedResources
    flow: Optional[CaptureFlow] = None
    baseline: Optional[Baseline] = None
    start_query: Optional[StartQuery] = None

    @property
    def captured_names(self) -> tuple[str, ...]:
        """The names of the captured tables."""
        return self.flow.names if self.flow else ()

    def ensure(self, world: World, *names: str) -> None:
        """Run each of these steps whose result is missing, in their order.

        Raises:
            WorkbenchError: a step is unknown, or a notebook failed. The error has the message of
                the failed cell.
        """
        requested = [self.steps.find(name) for name in names]  # before any notebook runs
        for step in self.steps.steps:
            if step in requested:
                if step.product == Product.TOPICS and self.flow:
                    steps_.restart_failed_connectors(self.flow, world)
                if not self.is_done(world, step.notebook):
                    self.steps.run(world, step)

    def is_done(self, world: World, name: str) -> bool:
        """Return whether the result of a step exists, without changing anything.

        Raises the error of a service that does not respond, or of a failed connector. Otherwise
        `ensure` would create existing results again.
        """
        step = self.steps.find(name)
        if step.is_done or not self.flow:
            return bool(step.is_done and step.is_done(world))
        if step.product == Product.SOURCE:
            return steps_.has_source(self.flow, self.baseline, world)
        has_product = steps_.has_topics if step.product == Product.TOPICS else steps_.has_tables
        return has_product(self.flow, world)

    def reset(self, world: World, name: str = "") -> None:
        """Remove the results of a step (by default the first one) and of all later steps.

        Missing results are ignored. Changed source rows are restored, and the topics then restart with
        a snapshot. The database stays.
        """
        first = self.steps.steps[0]
        product = self.steps.find(name or first.notebook).product
        restarts_topics = product > Product.SOURCE and self._restore_source(world)
        removed = min(product, Product.TOPICS) if restarts_topics else product
        self.resources.remove(world, *(each for each in Product if each >= removed))
        if self.flow and restarts_topics and product > Product.TOPICS:
            self.flow.deploy(world)

    def reset_if_changed(self, spark: SparkSession, world: World, name: str, *keys: int) -> bool:
        """Restore the loaded state if rows of a captured table were changed since the load.

        Args:
            spark: the Spark session.
            world: the world.
            name: name of the capture.
            keys: keys of the rows to check, by default all rows.

        Returns:
            Whether the state was restored.
        """
        if not self.flow or not self.flow.is_changed(spark, world, name, *keys):
            return False
        kinds = [self.flow.source_kind(world, table) for table in self.flow.tables(world)]
        self.reset(world, "hudi_ingest")
        kind = "landed" if "landed" in kinds else "topic"
        self.flow.sync(spark, world, kind=kind, label=self.flow.label)
        return True

    def recapture(self, world: World) -> dict[str, int]:
        """Remove the topics and landed files, and capture the source again with a new snapshot.

        The schemas stay in the registry, and the tables in the source.

        Returns:
            {topic: number of messages}, as `CaptureFlow.deploy` does.
        """
        self.resources.remove(world, Product.TOPICS, keep=(SCHEMAS, SOURCE_TABLES))
        return self.flow.deploy(world) if self.flow else {}

    def _restore_source(self, world: World) -> bool:
        """Restore the source; return whether topics exist and have more than the loaded rows.

        A source without a baseline is unchanged.
        """
        flow = self.flow
        if not flow or not self.baseline or not steps_.has_source(flow, self.baseline, world):
            return False
        changed = self.baseline.restore(world)
        existing = topics.names(world)
        expected = {name: flow.topic(world, name) for name in flow.names}
        if not {*expected.values()} <= {*existing}:
            return False
        if changed or flow.watermark:
            return bool(changed)
        # Notebooks count events, including those of rows that a user changed and changed back.
        return any(
            topics.offset_span(world, topic) != flow.count(world, name)
            for name, topic in expected.items()
        )
