"""A museum's collection: the two CSV files of the Museum of Modern Art, or rows in their form.

The rows are loaded into a database of their own, `moma` (S5): pass `database=museum.DATABASE` to
the functions of postgres.py. Published values stay as they are, also genders in lower case. There
are three exceptions: an empty value becomes NULL; the year 0, which means unknown, becomes NULL;
and of several artists the first one becomes `artist_id`.

The bundled rows are files of the published form in data/moma, a hundredth of the published size.
Names, titles and numbers are invented. They were drawn at random once, so a name need not fit its
nationality. A larger scale repeats the rows with higher numbers. The facts of the reference
walkthrough (S5) are exact at every scale:

* artists 1, 299, 441 and 4609, and artwork 128447. S5 deletes artist 441 without a name for him,
  so his is invented. The artwork has no date, acquisition_date or dimensions before the walkthrough
  sets them. The nationalities are those whose partitions S5 lists;
* artist 4609 (Pablo Picasso) has 83 dated prints, and 84 after artwork 128447 gets its date. He
  also has undated prints and dated works of other classes, so that each filter of S5's query (Q9)
  matters.

The rows are as irregular as the published ones: some have no nationality, no classification, no
artist or several artists (`name` has all of them, separated by commas); dates and dimensions are
free text; genders are not normalized. `height_cm` is the first of `dimensions`, to the millimeter.
`cataloged_at` is invented (see 01_moma_ddl.sql).
"""

from typing import Any

from ..base import ROOT, SourceError
from ..source import csv_files, loading

DATA = ROOT / "data" / "moma"
DDL = DATA / "01_moma_ddl.sql"
PICASSO, PICADOR = 4609, 128447
FILES = csv_files.load_declarations(DATA / "files.yaml", "columns")
BUNDLED_FILES = csv_files.load_declarations(DATA / "files.yaml", "columns", "stored")
# {table: {column: what each repetition of the rows adds to its numbers}}
ID_STEPS = {
    "artists": {"artist_id": 5_000},
    "artworks": {"artwork_id": 130_000, "artist_id": 5_000},
}


def _steps(scale: Any, from_dir: Any) -> loading.Steps:
    tables = csv_files.read_tables(from_dir, FILES) if from_dir else sample_tables(scale)
    return [loading.Script(DDL), *tables]


loader = loading.Loader("moma", "public", tuple(FILES), _steps, "moma", scale=0.02)


def sample_tables(scale: float = 1) -> list[loading.Table]:
    """Return the two tables, artists and artworks, in the order to load them.

    Args:
        scale: 1 gives the published size, 15,000 artists and 138,000 artworks; 0.02 gives a
            fiftieth of both.

    Raises:
        SourceError: the scale is not a number of hundredths from 0.01 to 10.
    """
    times = round(100 * scale) if type(scale) in (int, float) and 0.01 <= scale <= 10 else 0
    if not times or abs(times - 100 * scale) > 1e-6:
        raise SourceError(f"scale is {scale!r}", expected="a number of hundredths from 0.01 to 10")
    tables = csv_files.read_tables(DATA, BUNDLED_FILES)
    return [csv_files.scaled(table, times, ID_STEPS[table.name]) for table in tables]
