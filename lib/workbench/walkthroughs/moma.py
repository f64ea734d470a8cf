"""A museum's collection: the two CSV files that the Museum of Modern Art publishes, or rows in
their shape, which are in this repository.

It has a database of its own, `moma` (S5), beside the world's: say `database=museum.DATABASE` to the
functions of postgres.py. Published values stay as they are, genders in lower case, too, but for
these: an empty one is NULL; the year 0 is unknown, NULL; of several artists the first is
    `artist_id`.

The rows here are files of the published form in data/moma, a hundredth of what is published, and
read as that is. Names, titles and numbers are invented, and were once drawn at random, so a name
need not go with its nationality. A larger scale repeats them with numbers further on. What the
reference walkthrough (S5) states is exact, at every scale:

* artists 1, 299, 441 (invented: S5 deletes him without saying who he was) and 4609, artwork 128447,
  of which nothing is known yet: the walkthrough sets its date, acquisition_date and dimensions; the
  nationalities whose partitions it lists;
* artist 4609 (Pablo Picasso) has 84 dated prints once artwork 128447 got its date, 83 before. There
  are undated prints and dated works of other classes by him, too, so that each filter of that query
  (Q9) matters.

As messy as what is published: no nationality, no classification, no artist, several artists (`name`
has all of them, separated by commas), dates and dimensions as people write them, genders not quite
normalised. `height_cm` is the first of `dimensions`, to the millimeter; `cataloged_at` is invented
(see 01_moma_ddl.sql).
"""

from typing import Any

from ..base import ROOT, SourceError
from ..source import csv_files, loading

DATA = ROOT / "data" / "moma"
DDL = DATA / "01_moma_ddl.sql"
PICASSO, PICADOR = 4609, 128447
FILES = csv_files.load_declarations(DATA / "files.yaml", "columns")
BUNDLED_FILES = csv_files.load_declarations(DATA / "files.yaml", "columns", "stored")
# What is added each time to the numbers of a row that comes again, {table: {column: step}}
ID_STEPS = {
    "artists": {"artist_id": 5_000},
    "artworks": {"artwork_id": 130_000, "artist_id": 5_000},
}


def _steps(scale: Any, from_dir: Any) -> loading.Steps:
    return [
        loading.Script(DDL),
        *(csv_files.read_tables(from_dir, FILES) if from_dir else sample_tables(scale)),
    ]


loader = loading.Loader("moma", "public", tuple(FILES), _steps, "moma", scale=0.02)


def sample_tables(scale: float = 1) -> list[loading.Table]:
    """Return the two tables, artists and artworks, in the order to load them.

    Args:
        scale: 1 gives 15,000 artists and 138,000 artworks, as many as are published; 0.02, say, a
            fiftieth of both.

    Raises:
        SourceError: scale is not a number of hundredths from 0.01 to 10.
    """
    times = round(100 * scale) if type(scale) in (int, float) and 0.01 <= scale <= 10 else 0
    if not times or abs(times - 100 * scale) > 1e-6:
        raise SourceError(f"scale is {scale!r}", expected="a number of hundredths from 0.01 to 10")
    return [
        csv_files.scaled(table, times, ID_STEPS[table.name])
        for table in csv_files.read_tables(DATA, BUNDLED_FILES)
    ]
