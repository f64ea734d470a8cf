"""Tracks: folders of notebooks, of which each can be run alone and repeatedly.

The first cells of a notebook call `ensure` and `reset`. `ensure` runs the earlier notebooks whose results
are missing. `reset` removes the results of a notebook and of all later ones.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Optional, Union

from pyspark.sql import SparkSession

from .. import connect, hudi, landing, own
from ..base import ROOT, ConnectorError, WorkbenchError, World, did_you_mean
from ..flow.flow import CaptureFlow
from ..flow.resources import SCHEMAS, SOURCE_TABLES, Owns, Product, Resources
from ..hudi.ingesting import last_ingest_commit
from ..source import postgres
from ..topic import topics

NOTEBOOKS = ROOT / "notebooks"
StartQuery = Callable[[SparkSession, World], Any]


@dataclass(frozen=True)
class Step:
    """A notebook whose result later notebooks require.

    Attributes:
        notebook: its file name, without the extension.
        product: the earliest product that the notebook makes or changes.
        is_done: returns whether the result exists; None for the question of the product (`is_done`).
    """

    notebook: str
    product: Product
    is_done: Optional[Callable[[World], object]] = None


@dataclass(frozen=True)
class Track:
    """A folder of notebooks on one example.

    Attributes:
        name: its name, that of the folder.
        steps: the notebooks whose results later ones require, in order. The first names without a Step
            are those on the source database, the connectors and the ingest.
        flow: the captured tables; without any it has no captures.
        owns: what connectors and notebooks make besides them.
        services: the services of the stack that must run.
        local_only: whether the notebooks require an embedded stack.
        own_flows: the flows that notebooks capture with `own.capture` from the source of the same name.
        start_query: starts the streaming query that can run as a job.
    """

    name: str
    steps: tuple[Union[str, Step], ...]
    flow: CaptureFlow = CaptureFlow(())
    owns: Owns = Owns()
    services: tuple[str, ...] = ("postgres", "kafka", "connect", "spark")
    local_only: bool = False
    own_flows: tuple[str, ...] = ()
    start_query: Optional[StartQuery] = None

    @property
    def folder(self) -> Path:
        """The folder of the notebooks."""
        return NOTEBOOKS / self.name

    @property
    def resources(self) -> Resources:
        """Everything that connectors and notebooks may leave behind."""
        return Resources(self.flow, self.owns)

    @property
    def all_steps(self) -> tuple[Step, ...]:
        """The steps, each with its product."""
        products = iter(Product)
        return tuple(s if isinstance(s, Step) else Step(s, next(products)) for s in self.steps)

    def step(self, notebook: str) -> Step:
        """Return the step of a notebook.

        Raises:
            WorkbenchError: no later notebook requires it.
        """
        for step in self.all_steps:
            if step.notebook == notebook:
                return step
        raise WorkbenchError(
            f"there is no step {notebook!r}",
            location=f"notebooks of {self.name}",
            expected=did_you_mean(notebook, [step.notebook for step in self.all_steps]),
        )


def ensure(world: World, track: Track, *notebooks: str) -> None:
    """Run each of these notebooks whose result is missing, in the order of the track.

    Raises:
        WorkbenchError: a notebook is unknown, or failed. The error has the message of the failed cell.
    """
    requested = [track.step(notebook) for notebook in notebooks]  # before any notebook runs
    for step in track.all_steps:
        if step in requested and not is_done(world, track, step.notebook):
            _run_notebook(world, track, step.notebook)


def is_done(world: World, track: Track, notebook: str) -> bool:
    """Return whether the result of a notebook exists. A failed connector is restarted once.

    Raises the error of a service that does not respond, because `ensure` would create existing results again. A
    connector that stays failed is no result.
    """
    step = track.step(notebook)
    if step.is_done:
        return bool(step.is_done(world))
    if step.product == Product.SOURCE:
        return _has_source(world, track.flow)
    if step.product == Product.TOPICS:
        return _has_source_tables(world, track) and _has_topics(world, track.flow)
    return has_tables(world, track.flow)


def reset(world: World, track: Track, since: str = "") -> None:
    """Remove the results of a notebook (by default the first one) and of all later ones.

    Missing results are ignored. Changed source rows are loaded again, and the topics then restart with a
    snapshot. The database stays.
    """
    for name in track.own_flows:
        if name in own.names(world) and own.declaration(name).source == name:
            own.forget(world, name)
    _reset(world, track, track.step(since).product if since else Product.SOURCE)


def _reset(world: World, track: Track, product: Product) -> None:
    flow, loader = track.flow, track.flow.loader
    if not loader or product == Product.SOURCE or not _has_source(world, flow):
        track.resources.remove(world, *(each for each in Product if each >= product))
        if loader:
            flow.db.create_database(world, flow.database)  # for the first notebook
        return
    is_changed = loader.is_changed(world)
    if is_changed:
        loader.require_reloadable(world)  # before anything is removed
    has_topics = _topic_names(world, flow) <= {*topics.names(world)}
    restarts = is_changed or (has_topics and _has_changes(world, flow))
    first = Product.TOPICS if restarts else product
    track.resources.remove(world, *(each for each in Product if each >= first))
    if is_changed:
        loader.reload(world)
    if restarts and has_topics and product > Product.TOPICS:
        flow.deploy(world)


def restore(spark: SparkSession, world: World, track: Track) -> None:
    """Restore the rows as loaded in the source, the topics and the lake tables."""
    flow = track.flow
    kinds = [flow.source_kind(world, table) for table in flow.tables(world)]
    _reset(world, track, Product.TABLES)
    flow.sync(spark, world, kind="landed" if "landed" in kinds else "topic", label=flow.label)


def recapture(world: World, track: Track) -> dict[str, int]:
    """Remove the topics and landed files, and capture the source again with a new snapshot.

    The schemas stay in the registry, and the tables in the source.

    Returns:
        {topic: number of messages}, as `CaptureFlow.deploy` does.
    """
    track.resources.remove(world, Product.TOPICS, keep=(SCHEMAS, SOURCE_TABLES))
    return track.flow.deploy(world)


def _run_notebook(world: World, track: Track, notebook: str) -> None:
    """Run a notebook; raise WorkbenchError with the message of the failed cell."""
    from ..run import execute  # a local import, because papermill takes a second to import

    print(f"{notebook} has not been run yet: running it first …")
    result = execute.execute_notebook(track.folder / f"{notebook}.ipynb", {"world": world.name})
    failure = result.failure()
    if failure:
        raise WorkbenchError(
            f"{notebook} failed when it was run as a first step",
            location=failure["message"],
            hint=f"open {track.name}/{notebook}.ipynb and run it",
        )


# --- whether a product exists


def _has_source(world: World, flow: CaptureFlow) -> bool:
    """Return whether the source tables are loaded and published."""
    if not flow.has_database(world) or (flow.loader and not flow.loader.is_loaded(world)):
        return False
    if not flow.publication:
        return True
    publications = postgres.publications(world, flow.database)
    published = publications[publications["publication"] == flow.publication]["table"]
    return {capture.source for capture in flow.captures} <= {*published}


def _has_source_tables(world: World, track: Track) -> bool:
    """Return whether the source tables exist that the notebook on connectors creates."""
    names, flow = track.owns.source_tables, track.flow
    return not names or {*names} <= {*flow.db.existing_tables(world, names, flow.database)}


def _has_topics(world: World, flow: CaptureFlow) -> bool:
    """Return whether the connectors run, and all topics have messages."""
    names, deployed = _topic_names(world, flow), {*flow.deployed_connectors}
    if not (deployed <= {*landing.names(world)} and names <= {*topics.names(world)}):
        return False
    in_connect = deployed & {*connect.names(world)}
    is_running = all([_is_running(world, name) for name in sorted(in_connect)])
    return is_running and all(topics.offset_span(world, topic) for topic in names)


def _is_running(world: World, connector: str) -> bool:
    """Return whether a connector runs; a failed one is restarted once.

    Connect starts its connectors before a notebook starts the registry, so a change in between fails one.
    """
    has_failed = connect.failure(world, connector)
    if has_failed:
        connect.restart(world, connector)
    try:
        # one that was just restarted may fail again half a second later
        connect.wait_running(world, connector, stable_for=1.0 if has_failed else 0.0)
    except ConnectorError:
        return False
    return True


def has_tables(world: World, flow: CaptureFlow) -> bool:
    """Return whether all lake tables have a commit, with the label of the first one."""
    return all(
        last_ingest_commit(table)
        and (not flow.label or flow.label in {*hudi.labels(world, table)["label"]})
        for table in flow.tables(world)
    )


def _topic_names(world: World, flow: CaptureFlow) -> set[str]:
    return {flow.topic(world, name) for name in flow.names}


def _has_changes(world: World, flow: CaptureFlow) -> bool:
    """Return whether topics have more than the loaded rows, such as rows that were changed and changed back."""
    return any(
        topics.offset_span(world, flow.topic(world, name)) != flow.count(world, name)
        for name in flow.names
    )
