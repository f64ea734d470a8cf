"""The bundled bike-share database, an example of an own source (notebooks/90_your_own).

Five tables with 20,700 invented rows, which SQL generates: the same rows in each load. changes.sql has
kinds of changes for `pagila.random_changes`.
"""

from typing import Any

from .. import own
from ..base import ROOT, SourceError, World
from ..flow.flow import CaptureFlow
from ..flow.resources import Owns, Product
from ..source import loading
from .track import Step, Track, has_tables

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
    return FLOW in own.names(world) and has_tables(world, own.load(world, FLOW))


loader = loading.Loader("bikeshare", "public", TABLES, _steps, "bikeshare", scales=(1, 1))
# without captures: those belong to the own flow that notebook 91 makes
flow = CaptureFlow((), "bikeshare", loader=loader)
TRACK = Track(
    "90_your_own",
    (Step("91_capture", Product.SOURCE, _is_captured),),
    flow,
    Owns(folders=(f"tables/{FLOW}",)),
    own_flows=(FLOW,),
)
