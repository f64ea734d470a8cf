"""Loading the museum: generated rows, or the two CSV files that the Museum of Modern Art publishes.

It has a database of its own, `moma` (S5), beside the world's: say `database=load_moma.DATABASE` to the functions of
postgres.py. Published values stay as they are, genders in lower case, too, but for these: an empty one is NULL; the
year 0 is unknown, NULL; of several artists the first is `artist_id`; heights keep four decimals.
"""
from __future__ import annotations

from decimal import Decimal
from typing import Callable, Dict, List, Optional, Sequence

from ..base.params import World
from ..source import csv_files, loading
from ..source.csv_files import day, number, text, whole
from ..source.loading import Script, Table
from . import generate_moma

DATABASE, SCHEMA = "moma", "public"  # S5
TABLES = ("artists", "artworks")
PLACE = loading.Place(SCHEMA, TABLES, "load_moma.reset_moma(world)", DATABASE)
FOLLOWED = {"artists": frozenset(generate_moma.NAMED), "artworks": frozenset({generate_moma.PICADOR})}  # S5's rows
DDL = generate_moma.DATA / "01_moma_ddl.sql"


def load_moma(world: World, *, scale: float = 0.02, from_dir: Optional[str] = None, confirm: Callable[[str], bool],
              say: Callable[[str], None] = print) -> Dict[str, int]:
    """Load the museum's artists and artworks into database `moma`, schema `public`, in one transaction.

    Args:
        scale: 1 generates 15,000 artists and 138,000 artworks.
        from_dir: load `Artists.csv` and `Artworks.csv`, as published, from this folder instead.
        confirm: asked before anything is done; false leaves everything as it is.
        say: takes the two progress messages.
    Returns: `{table: rows}`; empty when not confirmed.
    Raises:
        SourceError: a table exists, or a file is missing or broken (with line, column and value). Nothing is changed
            then, but that the database is there.
    """
    what = f"the files in {from_dir}" if from_dir else f"generated data, scale {scale}"
    return loading.load(world, PLACE, [Script(DDL), *_tables(scale, from_dir)], f"tables artists and artworks ({what})",
                        from_dir=from_dir, confirm=confirm, say=say)


def _tables(scale: float, from_dir: Optional[str]) -> List[Table]:
    return published(from_dir) if from_dir else generate_moma.moma(scale)


def look(*, scale: float = 0.02, from_dir: Optional[str] = None) -> List[Table]:
    """Judge whole what load_moma would load, before anything is removed for it: files are read to their end. Return the
    tables. Raises: SourceError: the scale, a file, or its values, of which ten are named and all counted."""
    tables = _tables(scale, from_dir)
    if from_dir:
        loading.judge(tables)
    return tables


def loaded_from(world: World) -> str:
    """Return the folder whose files the museum was loaded from; the empty text where its rows are generated."""
    return loading.loaded_from(world, PLACE)


def reset_moma(world: World, *, slots: Sequence[str] = (), publications: Sequence[str] = ("moma_publication",)) -> None:
    """Remove the tables, and these slots and publications, from database `moma`: S5's by default. Nothing is there:
    nothing happens. Raises SourceError when somebody's view needs a table."""
    loading.unload(world, PLACE, slots, publications)


# --- the published files ---------------------------------------------------------------------------------------------

def _year(value: str) -> Optional[int]:
    return whole(value) or None


def _first(value: str) -> Optional[int]:
    return csv_files.key(value.split(",")[0]) if value else None


def _centimeters(value: str) -> Optional[Decimal]:
    return number(value).quantize(Decimal("0.0001")) if value else None


COLUMNS: Dict[str, csv_files.Columns] = {
    "artists": {"artist_id": ("ConstituentID", csv_files.key), "name": ("DisplayName", text),
                "nationality": ("Nationality", text), "gender": ("Gender", text),
                "birth_year": ("BeginDate", _year), "death_year": ("EndDate", _year)},
    "artworks": {"artwork_id": ("ObjectID", csv_files.key), "artist_id": ("ConstituentID", _first),
                 "title": ("Title", text), "name": ("Artist", text), "date": ("Date", text),
                 "dimensions": ("Dimensions", text), "acquisition_date": ("DateAcquired", day),
                 "classification": ("Classification", text), "department": ("Department", text),
                 "height_cm": ("Height (cm)", _centimeters)},
}


def published(folder: str) -> List[Table]:
    """Return the tables that the published files hold, in the order to load them.

    Raises: SourceError: a file or a column is missing; what else may be wrong with a file, its rows say.
    """
    return [csv_files.table(name, loading.find(folder, f"{name.capitalize()}.csv", "Artists.csv and Artworks.csv"),
                            COLUMNS[name], FOLLOWED[name]) for name in TABLES]
