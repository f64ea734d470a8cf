"""The bundled bike-share database, an example of an own source (notebooks/90_your_own).

Five tables with 20,700 invented rows, which SQL generates: the same rows in each load. changes.sql has
kinds of changes for `pagila.random_changes`.
"""

from dataclasses import dataclass
from typing import Any

from .. import own
from ..base import ROOT, SourceError, World
from ..flow.flow import CaptureFlow
from ..flow.resources import OwnedResources
from ..flow.steps import Product, Step, Steps, has_tables
from ..flow.walkthrough import Walkthrough
from ..source import loading

DATA = ROOT / "data" / "bikeshare"
KEYED = ("stations", "bikes", "riders", "trips")
TABLES = (*KEYED, "weather")  # weather has no key
CHANGES = DATA / "changes.sql"
FLOW = "bikeshare"  # the own flow of notebook 91, named as its source


def _steps(from_dir: Any) -> loading.Steps:
    if from_dir:
        raise SourceError(
            "the bike-share database has only generated rows",
            expected="no folder",
            hint="capture a database of your own instead: notebooks/90_your_own/91_capture",
        )
    return [loading.Script(DATA / f"0{n}.sql") for n in ("1_bikeshare_ddl", "2_bikeshare_rows")]


def _is_captured(world: World) -> bool:
    """Return whether notebook 91 has captured all tables."""
    captured = own.load(world, FLOW).flow if FLOW in own.names(world) else None
    return bool(captured and has_tables(captured, world))


@dataclass(frozen=True)
class BikeshareWalkthrough(Walkthrough):
    """The walkthrough of the bundled source; a reset also removes the own flow of notebook 91."""

    def reset(self, world: World, name: str = "") -> None:
        """Remove the flow, then the tables of the source."""
        if FLOW in own.names(world) and own.declaration(FLOW).source == FLOW:
            own.forget(world, FLOW)
        super().reset(world, name)


loader = loading.Loader("bikeshare", "public", TABLES, _steps, "bikeshare", scales=(1, 1))
# without captures: those belong to the own flow that notebook 91 makes
flow = CaptureFlow((), "bikeshare", loader=loader)
walkthrough = BikeshareWalkthrough(
    "90_your_own",
    Steps(
        ROOT / "notebooks" / "90_your_own",
        (Step("91_capture", Product.SOURCE, _is_captured),),
        services=("postgres", "kafka", "connect", "spark"),
    ),
    OwnedResources(flow, lake_folders=(FLOW,)),
    flow,
)
