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
from typing import Any, BinaryIO, Callable, Dict, Iterator, List, Optional, Tuple, Union

from psycopg import sql

from ..base.errors import SourceError, nearest
from ..base.params import World
from ..source import postgres
from . import generate_moma, load
from .generate import Table

DATABASE, SCHEMA = "moma", "public"  # S5
TABLES = ("artists", "artworks")
FOLLOWED = {"artists": set(generate_moma.NAMED), "artworks": {generate_moma.PICADOR}}  # S5's rows
NAMED = 10  # so many bad values are named, and all counted
MEND = "mend the file or fetch it again; nothing was changed"
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
    tables = look(scale=scale, from_dir=from_dir)
    postgres.create_database(world, DATABASE)
    with postgres.session(world, DATABASE) as c:
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


def look(*, scale: float = 0.02, from_dir: Optional[str] = None) -> List[Table]:
    """Judge whole what load_moma would load, before anything is removed for it: files are read to their end. Return the
    tables. Raises: SourceError: the scale, a file, or its values, of which ten are named and all counted."""
    if not from_dir:
        return generate_moma.moma(scale)
    tables, found = published(from_dir), []
    for table in tables:
        path, keys, before = _path(from_dir, table.name), set(), len(found)
        try:
            for row in _rows(path, table.name):
                found.append(row) if isinstance(row, SourceError) else keys.add(row[0])
        except SourceError as e:  # the rest of this file cannot be read
            found.append(e)
            continue
        lacking = sorted(FOLLOWED[table.name] - keys)
        if len(found) > before:
            continue
        if not keys:
            found.append(SourceError("the file has a header and no rows", where=str(path), next_step=MEND))
        elif lacking:
            found.append(SourceError(f"the rows that the walkthrough follows are not there: {lacking}",
                                     where=f"{path}, {COLUMNS[table.name][table.columns[0]][0]}", next_step=MEND))
    if found:
        raise found[0] if len(found) == 1 else _all(found)
    return tables


def _all(found: List[SourceError]) -> SourceError:
    """Several bad values as one error."""
    lines = [f"{e.where}: {e.what.partition(' is ')[2] or e.what}" for e in found[:NAMED]]
    lines = [f"{line}, not {e.expected}" if e.expected else line for line, e in zip(lines, found)]
    more = [f"… and {len(found) - NAMED:,} more"] if len(found) > NAMED else []
    return SourceError(f"{len(found):,} values of the files cannot be loaded", next_step=MEND,
                       where="\n            ".join([*lines, *more]))


def loaded_from(world: World) -> str:
    """Return the folder whose files the museum was loaded from; the empty text where its rows are generated."""
    return load.origin(world, f"{SCHEMA}.{TABLES[0]}", DATABASE)


def reset_moma(world: World) -> None:
    """Remove what the loader and the connectors made in database `moma`: our slots, publications of no other tables,
    and the tables. Nothing is there: nothing happens. Raises SourceError when somebody's view needs a table."""
    if postgres.create_database(world, DATABASE):
        return
    load.drop_slots(world, DATABASE)
    with postgres.session(world, DATABASE) as c, c.transaction():
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
    for table in TABLES:
        path = _path(folder, table)
        _places(_records(path), path, table)
        tables.append(Table(table, tuple(COLUMNS[table]), partial(_good_rows, path, table)))
    return tables


def _path(folder: str, table: str) -> Path:
    path = Path(folder).expanduser().absolute() / f"{table.capitalize()}.csv"
    if path.is_file():
        return path
    packed = sorted(f.name for f in path.parent.glob(f"{path.name}.*"))
    raise SourceError("a published file is not there", where=str(path),
                      expected="a folder that holds Artists.csv and Artworks.csv",
                      next_step=f"unpack {packed[0]}" if packed else
                      "correct the folder, or leave it out to load generated data")


def _good_rows(path: Path, table: str) -> Iterator[tuple]:
    for row in _rows(path, table):
        if isinstance(row, SourceError):
            raise row
        yield row


def _rows(path: Path, table: str) -> Iterator[Union[tuple, SourceError]]:
    """Yield the rows; in place of one that cannot be loaded, an error for each of its bad values."""
    records = _records(path)
    width, places = _places(records, path, table)
    seen: Dict[int, int] = {}
    for line, record in records:
        if len(record) != width:
            yield _broken(path, line, "record", record, f"{width} values, not {len(record)}")
            continue
        row, bad = [], False
        for column, place, read in places:
            try:
                row.append(read(record[place]))
            except ValueError as e:
                bad = True
                yield _broken(path, line, column, record[place], str(e))
        if not bad and row[0] in seen:
            bad = True
            yield _broken(path, line, places[0][0], row[0], f"each one once; line {seen[row[0]]} has it, too")
        if not bad:
            seen[row[0]] = line
            yield tuple(row)


def _places(records: Iterator[Tuple[int, List[str]]], path: Path, table: str) -> Tuple[int, List[tuple]]:
    """Take the header; return how many columns it has, and name, place and reader of those that we want."""
    _, header = next(records, (1, []))
    text, wanted = ",".join(header), list(COLUMNS[table].values())
    where = f"{path}, line 1: {text[:80]}"
    if not header:
        raise SourceError("the file is empty", where=where, expected="a header", next_step=MEND)
    if text.startswith("version https://git-lfs"):
        raise SourceError("this is Git LFS's pointer to the file", where=where, next_step="fetch the file itself")
    for column, _ in wanted:
        if header.count(column) > 1:
            raise SourceError(f"column {column!r} is there {header.count(column)} times", where=where,
                              expected="each column once", next_step=MEND)
        if column not in header:
            separator = next((s for s in (";", "\t", "|") if len(header) == 1 and s in text), "")
            raise SourceError(f"column {column!r} is missing", where=where,
                              expected=f"commas between the values, not {separator!r}" if separator else
                              nearest(column, header), next_step="use the file as published; nothing was changed")
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
                       next_step=MEND)
