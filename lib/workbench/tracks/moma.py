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

from ..base import ROOT, yaml_files
from ..source import loading, row_files

DATA = ROOT / "data" / "moma"
DDL, ROWS = DATA / "01_moma_ddl.sql", DATA / "02_moma_rows.sql"
PICADOR, PICASSO = 128447, 4609


def _steps(from_dir: Any) -> loading.Steps:
    files = yaml_files.load(DATA / "files.yaml")
    paths = [row_files.find_file(from_dir or DATA, name, " and ".join(files)) for name in files]
    rows = [row_files.csv_rows(path, path.name, types=files[path.name]) for path in paths]
    return [loading.Script(DDL), *rows, loading.Script(ROWS)]


loader = loading.Loader(
    "moma", "public", ("artists", "artworks"), _steps, "moma", scale=0.02, scales=(0.01, 10)
)
