"""The bundled bike-share database, an example of an own source (notebooks/90_your_own).

Five tables with 20,700 invented rows, which SQL generates: the same rows in each load. changes.sql has
kinds of changes for `pagila.random_changes`.
"""

from typing import Any

from ..base import ROOT, SourceError
from ..source import loading

DATA = ROOT / "data" / "bikeshare"
TABLES = ("stations", "bikes", "riders", "trips", "weather")
CHANGES = DATA / "changes.sql"


def _steps(scale: Any, from_dir: Any) -> loading.Steps:
    if from_dir or scale != 1:
        raise SourceError(
            "the bike-share database has one size, and only generated rows",
            expected="scale 1, and no folder",
            hint="capture a database of your own instead: notebooks/90_your_own/91_capture",
        )
    return [loading.Script(DATA / f"0{n}.sql") for n in ("1_bikeshare_ddl", "2_bikeshare_rows")]


loader = loading.Loader("bikeshare", "public", TABLES, _steps, "bikeshare")
