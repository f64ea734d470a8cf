"""Loading the museum: generated rows, or the two CSV files that the Museum of Modern Art publishes.

It has a database of its own, `moma` (S5), beside the world's: say `database=load_moma.DATABASE` to the functions of
sources.py. Published values stay as they are, genders in lower case, too, but for these: an empty one is NULL; the year
0 is unknown, NULL; of several artists the first is `artist_id`; heights keep four decimals.
"""
from __future__ import annotations

import csv
import re
from datetime import date
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Callable, Dict, Iterator, List, Optional, Tuple

from psycopg import sql

from . import generate_moma, load, sources
from .errors import SourceError, nearest
from .generate import Table
from .params import World

DATABASE, SCHEMA = "moma", "public"  # S5
TABLES = ("artists", "artworks")
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
    p = world.postgres
    what = f"the files in {from_dir}" if from_dir else f"generated data, scale {scale}"
    if not confirm(f"Create tables {' and '.join(TABLES)} ({what}) in {DATABASE} on {p.host}:{p.port}?"):
        return {}
    tables = published(from_dir) if from_dir else generate_moma.moma(scale)
    sources.create_database(world, DATABASE)
    with sources.session(world, DATABASE) as c:
        say(f"connection created: {p.host}:{p.port}/{DATABASE}")
        with c.transaction():
            c.execute(sql.SQL("SET LOCAL search_path TO {}").format(sql.Identifier(SCHEMA)))
            for table in TABLES:
                if c.execute("SELECT to_regclass(%s)", [f"{SCHEMA}.{table}"]).fetchone()[0]:
                    raise SourceError(
                        f"table {table} exists already", where=f"database {DATABASE}, schema {SCHEMA}",
                        expected="a database without it", next_step="keep what is loaded, or run "
                        "load_moma.reset_moma(world) ('Start clean') and load again")
            load.run_script(c, DDL)
            for table in tables:
                load.copy_rows(c, table)
            if from_dir:
                load.note_origin(c, TABLES[0], Path(from_dir).expanduser().absolute())
            counts = {t: c.execute(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(t))).fetchone()[0]
                      for t in TABLES}
        say("tables loaded: " + ", ".join(f"{count:,} {table}" for table, count in counts.items()))
    return counts


def loaded_from(world: World) -> str:
    """Return the folder whose files the museum was loaded from; the empty text where its rows are generated."""
    return load.origin(world, f"{SCHEMA}.{TABLES[0]}", DATABASE)


def reset_moma(world: World) -> None:
    """Remove what the loader and the connectors made in database `moma`: our slots, publications of no other tables,
    and the tables. Nothing is there: nothing happens. Raises SourceError when somebody's view needs a table."""
    if sources.create_database(world, DATABASE):
        return
    load.drop_slots(world, DATABASE)
    with sources.session(world, DATABASE) as c, c.transaction():
        load.drop_publications(c, *(f"{SCHEMA}.{t}" for t in TABLES))
        for table in TABLES:
            c.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(sql.Identifier(SCHEMA, table)))


# --- the published files ---------------------------------------------------------------------------------------------

def _text(value: str) -> Optional[str]:
    if "\0" in value:
        raise ValueError("text without NUL characters")  # PostgreSQL takes none
    return value or None


def _whole(value: str) -> int:
    if not re.fullmatch("[0-9]{1,10}", value.strip()) or int(value) >= 2**31:
        raise ValueError("a whole number below 2,147,483,648")
    return int(value)


def _year(value: str) -> Optional[int]:
    return (_whole(value) or None) if value else None


def _first(value: str) -> Optional[int]:
    return _whole(value.split(",")[0]) if value else None


def _date(value: str) -> Optional[date]:
    if not value:
        return None
    try:
        if len(value) != 10 or value[4] + value[7] != "--":  # Python 3.11 takes other forms, too
            raise ValueError
        return date.fromisoformat(value)
    except ValueError:
        raise ValueError("a date such as 2009-04-15") from None


def _centimeters(value: str) -> Optional[Decimal]:
    if value and not re.fullmatch(r"[0-9]{1,6}(\.[0-9]{0,20})?", value):
        raise ValueError("a number below 1,000,000")
    return Decimal(value).quantize(Decimal("0.0001")) if value else None


# column of the table: column of the file, and how to read it; the first one is the key
COLUMNS: Dict[str, Dict[str, Tuple[str, Callable[[str], Any]]]] = {
    "artists": {"artist_id": ("ConstituentID", _whole), "name": ("DisplayName", _text),
                "nationality": ("Nationality", _text), "gender": ("Gender", _text),
                "birth_year": ("BeginDate", _year), "death_year": ("EndDate", _year)},
    "artworks": {"artwork_id": ("ObjectID", _whole), "artist_id": ("ConstituentID", _first), "title": ("Title", _text),
                 "name": ("Artist", _text), "date": ("Date", _text), "dimensions": ("Dimensions", _text),
                 "acquisition_date": ("DateAcquired", _date), "classification": ("Classification", _text),
                 "department": ("Department", _text), "height_cm": ("Height (cm)", _centimeters)},
}


def published(folder: str) -> List[Table]:
    """Return the tables that the published files hold, in the order to load them.

    Raises:
        SourceError: a file or a column is missing; and while rows are read: a value is not what its column holds, a key
            is there twice, a row is cut off, the text is not UTF-8. It names file, line, column and value.
    """
    tables = []
    for table, file in (("artists", "Artists.csv"), ("artworks", "Artworks.csv")):
        path = Path(folder).expanduser() / file
        if not path.is_file():
            raise SourceError("a published file is not there", where=str(path),
                              expected="a folder that holds Artists.csv and Artworks.csv",
                              next_step="correct the folder, or leave it out to load generated data")
        _places(_records(path), path, table)
        tables.append(Table(table, tuple(COLUMNS[table]), partial(_rows, path, table)))
    return tables


def _rows(path: Path, table: str) -> Iterator[tuple]:
    records = _records(path)
    width, places = _places(records, path, table)
    seen: Dict[int, int] = {}
    for line, record in records:
        if len(record) != width:
            raise _broken(path, line, "record", record, f"{width} values, not {len(record)}")
        row = []
        for column, place, read in places:
            try:
                row.append(read(record[place]))
            except ValueError as e:
                raise _broken(path, line, column, record[place], str(e)) from None
        if row[0] in seen:
            raise _broken(path, line, places[0][0], row[0], f"each one once; line {seen[row[0]]} has it, too")
        seen[row[0]] = line
        yield tuple(row)


def _places(records: Iterator[Tuple[int, List[str]]], path: Path, table: str) -> Tuple[int, List[tuple]]:
    """Take the header; return how many columns it has, and name, place and reader of those that we want."""
    _, header = next(records, (1, []))
    wanted = list(COLUMNS[table].values())
    for column, _ in wanted:
        if column not in header:
            pointer = ",".join(header).startswith("version https://git-lfs")
            raise SourceError(f"column {column!r} is missing", where=f"{path}, line 1: {','.join(header)[:80]}",
                              expected=nearest(column, header) if header else "a header",
                              next_step="fetch the file itself: this is Git LFS's pointer to it" if pointer else
                              "use the file as published; nothing was changed")
    return len(header), [(column, header.index(column), read) for column, read in wanted]


def _records(path: Path) -> Iterator[Tuple[int, List[str]]]:
    """Yield the records, each with the line it begins at: a quoted value may hold line breaks."""
    try:
        with path.open("rb") as f:
            reader = csv.reader(_lines(f, path), strict=True)  # strict: a file may not end inside of a quoted value
            while True:
                line = reader.line_num + 1
                try:
                    record = next(reader)
                except StopIteration:
                    return
                except csv.Error as e:
                    raise _broken(path, line, "record", str(e), "comma-separated values") from None
                if record:  # not an empty line
                    yield line, record
    except OSError as e:
        raise SourceError("the file cannot be read", where=f"{path}: {e.strerror}") from None


def _lines(f: BinaryIO, path: Path) -> Iterator[str]:
    """Decode line by line, so that what is not UTF-8 is found where it stands."""
    for number, line in enumerate(f, 1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as e:
            raise _broken(path, number, f"byte {e.start + 1}", line[e.start:e.start + 10], "UTF-8") from None


def _broken(path: Path, line: int, column: str, value: object, expected: str) -> SourceError:
    return SourceError(f"{column} is {repr(value)[:100]}", where=f"{path}, line {line}, {column}", expected=expected,
                       next_step="mend the file or fetch it again; nothing was changed")
