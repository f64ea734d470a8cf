"""A museum's collection: the two CSV files that the Museum of Modern Art publishes, or rows in their shape, made here.

It has a database of its own, `moma` (S5), beside the world's: say `database=museum.DATABASE` to the functions of
postgres.py. Published values stay as they are, genders in lower case, too, but for these: an empty one is NULL; the
year 0 is unknown, NULL; of several artists the first is `artist_id`.

Of the rows made here, names, titles and numbers are invented: words of data/moma/ put together at random, so a name
need not go with its nationality. They are the same on every machine, and streamed. What the reference walkthrough (S5)
states is exact, at every scale; these rows are files in data/moma, written as they are published:

* artists 1, 299, 441 (invented: S5 deletes him without saying who he was) and 4609, artwork 128447, of which nothing is
  known yet: the walkthrough sets its date, acquisition_date and dimensions; the nationalities whose partitions it
  lists;
* artist 4609 (Pablo Picasso) has 84 dated prints once artwork 128447 got its date, 83 before. There are undated prints
  and dated works of other classes by him, too, so that each filter of that query (Q9) matters.

As messy as what is published: no nationality, no classification, no artist, several artists (the first is `artist_id`;
`name` has all of them, separated by commas), dates and dimensions as people write them, genders not quite normalised.
`height_cm` is the first of `dimensions`, to the millimeter; `cataloged_at` is invented (see 01_moma_ddl.sql).

Only `Random.random()` is drawn from: the one method whose sequence Python promises to keep for a seed. A larger scale
has all rows of a smaller one.
"""
from __future__ import annotations

import itertools
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import cache, partial
from heapq import merge
from math import sqrt
from operator import itemgetter
from random import Random
from typing import Any, Callable, Iterator, Optional, Sequence

from ..base import ROOT, SourceError
from ..source import csv_files, loading
from ..source.csv_files import File, day, key, number, reader, text

DATA = ROOT / "data" / "moma"
DDL = DATA / "01_moma_ddl.sql"
PICASSO, PICADOR = 4609, 128447
_year = reader(r"\s*0*([0-9]{0,10})\s*", csv_files.WHOLE, csv_files.int4)
_first = reader(r"(?:\s*([0-9]{1,10})\s*(?:,.*)?)?", csv_files.WHOLE, csv_files.int4)
FILES = {
    "artists": File("Artists.csv", {
        "artist_id": ("ConstituentID", key), "name": ("DisplayName", text), "nationality": ("Nationality", text),
        "gender": ("Gender", text), "birth_year": ("BeginDate", _year), "death_year": ("EndDate", _year),
    }, frozenset({1, 299, 441, PICASSO})),
    "artworks": File("Artworks.csv", {
        "artwork_id": ("ObjectID", key), "artist_id": ("ConstituentID", _first), "title": ("Title", text),
        "name": ("Artist", text), "date": ("Date", text), "dimensions": ("Dimensions", text),
        "acquisition_date": ("DateAcquired", day), "classification": ("Classification", text),
        "department": ("Department", text), "height_cm": ("Height (cm)", number),
    }, frozenset({PICADOR})),
}
COLUMNS = {"artists": tuple(FILES["artists"].columns), "artworks": (*FILES["artworks"].columns, "cataloged_at")}
LISTED = ("Afghan", "Albanian", "Algerian", "German")  # S5 lists these partitions; the other two are of named artists
ARTISTS, ARTWORKS = 15_000, 138_000  # at scale 1
FIRST_YEAR, LAST_YEAR = 1929, 2017  # of acquisitions
PRINTS = "Prints & Illustrated Books"


def _steps(scale: Any, from_dir: Any) -> loading.Steps:
    return [loading.Script(DDL), *(csv_files.tables(from_dir, FILES) if from_dir else generated(scale))]


loader = loading.Loader("moma", "public", tuple(FILES), _steps, "moma", scale=0.02)


def generated(scale: float = 1) -> list[loading.Table]:
    """Return the two tables, artists and artworks, in the order to load them.

    Args:
        scale: 1 gives 15,000 artists and 138,000 artworks; 0.02, say, a fiftieth of both.
    Raises:
        SourceError: scale is not a number from 0.01 to 10.
    """
    if type(scale) not in (int, float) or not 0.01 <= scale <= 10:
        raise SourceError(f"scale is {scale!r}", expected="a number from 0.01 to 10")
    return [loading.Table(name, COLUMNS[name], partial(_rows, name, others, round(count * scale)))
            for name, others, count in (("artists", _artists, ARTISTS), ("artworks", _artworks, ARTWORKS))]


@cache
def named() -> dict[str, list[tuple]]:
    """{table: the rows that S5 states, and a few more of these artists}, in the order of their keys."""
    artists, artworks = csv_files.tables(DATA, FILES)
    return {"artists": list(artists.rows()), "artworks": [(*row, None) for row in artworks.rows()]}


def _rows(name: str, others: Callable[[], Iterator[tuple]], count: int) -> Iterator[tuple]:
    """Yield `count` rows in the order of their keys: the named ones and as many of the others as that takes."""
    made = itertools.islice(_numbered(name, others()), count - len(named()[name]))
    return merge(named()[name], made, key=itemgetter(0))


def _numbered(name: str, rows: Iterator[tuple]) -> Iterator[tuple]:
    """Give the rows their keys: 1, 2, 3, … without those of named rows."""
    taken = {row[0] for row in named()[name]}
    return ((i, *row) for i, row in zip((i for i in itertools.count(1) if i not in taken), rows))


@cache
def _drawn(name: str) -> list[dict[str, str]]:
    """The rows of a file of data/moma, each as often as its weight says."""
    return [row for row in csv_files.read(DATA, name) for _ in range(int(row["weight"]))]


@cache
def words() -> dict[str, list[Any]]:
    """{kind: words}, None among them. Of dates, y is the year, p a later one, z its last two digits, d the decade; of
    titles, a and b are motifs."""
    kinds = itertools.groupby(_drawn("words"), itemgetter("kind"))
    return {kind: [row["word"] or None for row in rows] for kind, rows in kinds}


def below(rng: Random, n: int) -> int:
    """Return a random whole number from 0 to n - 1."""
    return int(rng.random() * n)


def pick(rng: Random, items: Sequence) -> Any:
    """Return one of these at random."""
    return items[below(rng, len(items))]


def _square(rng: Random) -> float:
    """A random number from 0 to 1, small ones more often. (No **: how C's pow rounds is up to the machine.)"""
    number = rng.random()
    return number * number


# --- artists ---------------------------------------------------------------------------------------------------------

def _artists() -> Iterator[tuple]:
    """Yield artists without end, those of LISTED first."""
    rng = Random(1929)
    for place in itertools.count():
        drawn = pick(rng, words()["nationality"])
        born: Optional[int] = 1840 + int(150 * sqrt(rng.random()))
        died = born + 35 + below(rng, 60)
        name, gender = _name(rng)
        if rng.random() < 0.08:
            born = None  # published as 0
        yield (name, LISTED[place] if place < len(LISTED) else drawn, gender, born,
               died if born and died <= LAST_YEAR and gender else None)


def _name(rng: Random) -> tuple[str, Optional[str]]:
    """Make up a name and a gender as published: neither for a company, seldom in lower case."""
    names, kind = words(), rng.random()
    family = pick(rng, names["family"])
    if kind < 0.06:
        return pick(rng, names["group"]).format(family), None
    sex = "male" if kind < 0.78 else "female"
    given = pick(rng, names[sex])
    initial = f" {'ABCDEFGHJKLMPRSTW'[below(rng, 17)]}." if rng.random() < 0.15 else ""
    known = rng.random()
    return f"{given}{initial} {family}", None if known < 0.08 else sex if known < 0.09 else sex.capitalize()


# --- artworks --------------------------------------------------------------------------------------------------------

def _artworks() -> Iterator[tuple]:
    """Yield artworks without end. The collection grows with its artists, so the first ones have the most works."""
    rng, artists = Random(1937), _numbered("artists", _artists())
    known: list[tuple[int, str, Optional[int]]] = []  # artist, name, year of birth
    for place in itertools.count():
        while len(known) <= place * ARTISTS // ARTWORKS:
            artist, name, _, _, born, _ = next(artists)
            known.append((artist, name, born))
        kind, share = pick(rng, _drawn("classifications")), rng.random()
        several = 0 if share < 0.01 else 1 if share < 0.95 else 2 + below(rng, 3)
        makers = list(dict.fromkeys(known[int(len(known) * _square(rng))] for _ in range(several)))
        born = makers[0][2] if makers else None
        made = (born or 1900) + 18 + below(rng, min(50, LAST_YEAR - 18 - (born or 1900)))
        dimensions, height = _dimensions(rng, kind["department"])
        acquired, cataloged = _registered(rng, made)
        yield (makers[0][0] if makers else None, _title(rng), ", ".join(name for _, name, _ in makers) or None,
               _date(rng, made), dimensions, acquired, kind["classification"] or None, kind["department"], height,
               cataloged)


def _title(rng: Random) -> Optional[str]:
    form, motifs = pick(rng, words()["title"]), words()["motif"]
    return form and form.format(a=pick(rng, motifs), b=pick(rng, motifs), n=1 + below(rng, 60), br="\r\n")


def _date(rng: Random, year: int) -> Optional[str]:
    form, later = pick(rng, words()["date"]), min(year + 1 + below(rng, 5), LAST_YEAR)
    return form and form.format(y=year, p=later, z=f"{later % 100:02}", d=year // 10 * 10)


def _registered(rng: Random, made: int) -> tuple[Optional[date], Optional[datetime]]:
    """Return when a work came to the museum, and when it was cataloged; either may be unknown."""
    first = date(max(FIRST_YEAR, made), 11, 7)
    acquired = first + timedelta(days=below(rng, (date(LAST_YEAR, 12, 31) - first).days))
    cataloged = datetime.combine(max(acquired, date(1995, 1, 1)) + timedelta(days=below(rng, 900)), time())
    cataloged += timedelta(microseconds=below(rng, 86_400_000_000))
    unknown = rng.random()
    return None if unknown < 0.05 else acquired, None if unknown > 0.85 else cataloged


def _dimensions(rng: Random, department: str) -> tuple[Optional[str], Optional[Decimal]]:
    """Write height and width, or more, in inches and centimeters; return the text and the height, or None for both."""
    height, width, depth = (60 + int(1400 * _square(rng)) for _ in range(3))  # millimeters
    times, form = "×" if rng.random() < 0.7 else "x", rng.random()
    if form < 0.08:
        return None, None
    if form < 0.1:
        return "Dimensions variable", None
    said = _measured(times, height, width)
    if department == PRINTS and form < 0.6:
        said = f"composition: {said}; sheet: {_measured(times, height + 92, width + 110)}"
    elif form > 0.85:
        said = f"Overall: {_measured(times, height, width, depth)}"
    # what was measured in inches has odd decimals
    return said, Decimal(height * 1000 + (below(rng, 500) if form > 0.7 else 0)).scaleb(-4)


def _measured(times: str, *millimeters: int) -> str:
    return (f" {times} ".join(map(_inches, millimeters)) + " in. ("
            + f" {times} ".join(f"{m / 10:g}" for m in millimeters) + " cm)")


def _inches(millimeters: int) -> str:
    """Whole inches and sixteenths: 529 is `20 13/16`."""
    return " ".join(str(part) for part in divmod(Fraction((millimeters * 160 + 127) // 254, 16), 1) if part)
