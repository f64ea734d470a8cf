"""The steps of a walkthrough: the notebooks whose results later notebooks require."""

from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Callable, Optional

from .. import connect, hudi, landing
from ..base import WorkbenchError, World, did_you_mean
from ..source import postgres
from ..topic import topics
from .baseline import Baseline
from .flow import CaptureFlow


class Product(IntEnum):
    """What a step makes, in the order of the data flow. A reset removes a product with all later ones."""

    SOURCE = 1
    TOPICS = 2
    TABLES = 3


@dataclass(frozen=True)
class Step:
    """A notebook whose result later notebooks require.

    Attributes:
        notebook: its file name, without the extension.
        product: the earliest product that the notebook makes or changes.
        is_done: returns whether the result exists; None for the common check of the product.
        name: a short name for `ensure` and `reset`.
    """

    notebook: str
    product: Product
    is_done: Optional[Callable[[World], object]] = None
    name: str = ""


@dataclass(frozen=True)
class Steps:
    """The notebooks of a walkthrough, and what they need.

    Attributes:
        folder: the folder of the notebooks.
        steps: the steps, in the order in which they run.
        services: the services of the stack that must run.
        local_only: whether the notebooks require an embedded stack.
    """

    folder: Path
    steps: tuple[Step, ...]
    services: tuple[str, ...] = ("postgres", "kafka", "connect", "spark")
    local_only: bool = False

    def find(self, name: str) -> Step:
        """Return the step with this short name or notebook.

        Raises:
            WorkbenchError: there is no such step.
        """
        for step in self.steps:
            if name in (step.notebook, step.name):
                return step
        raise WorkbenchError(
            f"there is no step {name!r}",
            location=f"notebooks of {self.folder.name}",
            expected=did_you_mean(name, [step.notebook for step in self.steps]),
        )

    def run(self, world: World, step: Step) -> None:
        """Run the notebook of a step.

        Raises:
            WorkbenchError: the notebook failed. The error has the message of the failed cell.
        """
        from ..run import execute  # a local import, because papermill takes a second to import

        print(f"{step.notebook} has not been run yet: running it first …")
        path = self.folder / f"{step.notebook}.ipynb"
        result = execute.execute_notebook(path, {"world": world.name})
        failure = result.failure()
        if failure:
            raise WorkbenchError(
                f"{step.notebook} failed when it was run as a first step",
                location=failure["message"],
                hint=f"open {self.folder.name}/{path.name} and run it",
            )


def source_database(notebook: str) -> Step:
    """Return the step that loads the source database."""
    return Step(notebook, Product.SOURCE, name="source_database")


def connectors(notebook: str) -> Step:
    """Return the step that deploys the connectors."""
    return Step(notebook, Product.TOPICS, name="connectors")


def hudi_ingest(notebook: str) -> Step:
    """Return the step that ingests the captured tables into the lake."""
    return Step(notebook, Product.TABLES, name="hudi_ingest")


# --- the common checks of products


def has_source(flow: CaptureFlow, baseline: Optional[Baseline], world: World) -> bool:
    """Return whether the source tables are loaded and published, with their baseline."""
    if not flow.has_database(world):
        return False
    if flow.publication:
        publications = postgres.publications(world, flow.database)
        published = publications[publications["publication"] == flow.publication]["table"]
        if not {c.source for c in flow.captures} <= {*published}:
            return False
    return not baseline or baseline.exists(world)


def has_topics(flow: CaptureFlow, world: World) -> bool:
    """Return whether the connectors run, and all topics have messages.

    Raises:
        ConnectorError: a connector failed.
    """
    names, deployed = {flow.topic(world, n) for n in flow.names}, {*flow.deployed_connectors}
    if not (deployed <= {*landing.names(world)} and names <= {*topics.names(world)}):
        return False
    for name in deployed & {*connect.names(world)}:
        connect.wait_running(world, name)
    return all(topics.offset_span(world, topic) for topic in names)


def has_tables(flow: CaptureFlow, world: World) -> bool:
    """Return whether all lake tables exist, with the label of their first commit."""
    return all(
        hudi.exists(table)
        and (not flow.label or flow.label in {*hudi.labels(world, table)["label"]})
        for table in flow.tables(world)
    )


def restart_failed_connectors(flow: CaptureFlow, world: World) -> None:
    """Restart failed connectors once.

    Connect starts its connectors before a notebook starts the registry, so a change in between fails
    a connector. If a connector fails again, `has_topics` raises its error.
    """
    for name in {c.connector for c in flow.captures} & {*connect.names(world)}:
        if connect.failure(world, name):
            connect.restart(world, name)
