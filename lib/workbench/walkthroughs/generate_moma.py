"""A museum's collection in the shape of the public MoMA data, made here: same rows on every machine, streamed.

Names, titles and numbers are invented: words of data/moma/ put together at random, so a name need not go with its
nationality. What the reference walkthrough (S5) states is exact, at every scale:

* artists 1, 299, 441 and 4609, artwork 128447; the nationalities whose partitions it lists;
* artist 4609 (Pablo Picasso) has 84 dated prints once artwork 128447 got its date, 83 before. There are undated prints
  and dated works of other classes by him, too, so that each filter of that query (Q9) matters.

As messy as what is published: no nationality, no classification, no artist, several artists (the first is `artist_id`;
`name` has all of them, separated by commas), dates and dimensions as people write them, genders not quite normalised.
`height_cm` is the first of `dimensions`, to the millimeter; `cataloged_at` is invented (see 01_moma_ddl.sql).

Only `Random.random()` is drawn from, as in generate.py. A larger scale has all rows of a smaller one.
"""
from __future__ import annotations

import itertools
from bisect import bisect
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from heapq import merge
from math import gcd, sqrt
from operator import itemgetter
from random import Random
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, Union

from ..base.errors import SourceError
from ..base.paths import ROOT
from ..source import csv_files
from ..source.loading import Table
from .generate import below

DATA = ROOT / "data" / "moma"
ARTISTS, ARTWORKS = 15_000, 138_000  # at scale 1
ARTIST_COLUMNS = ("artist_id", "name", "nationality", "gender", "birth_year", "death_year")
ARTWORK_COLUMNS = ("artwork_id", "artist_id", "title", "name", "date", "dimensions", "acquisition_date",
                   "classification", "department", "height_cm", "cataloged_at")
PICASSO, PICADOR = 4609, 128447
NAMED = {
    1: ("Robert Arneson", "American", "Male", 1930, 1992),
    299: ("Gerhard H. Bakker", "American", "Male", 1906, 1988),
    441: ("Jonas Vermeylen", "Belgian", "Male", 1921, 1999),  # invented: S5 deletes him without saying who he was
    PICASSO: ("Pablo Picasso", "Spanish", "Male", 1881, 1973),
}
LISTED = ("Afghan", "Albanian", "Algerian", "German")  # S5 lists these partitions; the other two are of NAMED
FIRST_YEAR, LAST_YEAR = 1929, 2017  # of acquisitions
PRINTS = "Prints & Illustrated Books"
# as often as they stand here: y the year, p a later one, z its last two digits, d the decade
DATES = ("{y}",) * 30 + ("c. {y}",) * 5 + ("{y}-{z}",) * 4 + ("{y}–{z}",) * 2 + (
    "({y})", "{d}s", "{y}, printed {p}", "n.d.", "n.d.", "Unknown", None, None, None)
TITLES = ("{a}",) * 40 + ("{a}, no. {n}",) * 20 + ("Plate {n} from {a}",) * 15 + ("Untitled",) * 15 + (
    'Study for "{a}"', "Study for {a}", "{a} ({b})", "{a}; {b}", "Untitled, from {a}", "{a}\r\n{b}", None)


def moma(scale: Union[int, float] = 1) -> List[Table]:
    """Return the two tables, artists and artworks, in the order to load them.

    Args:
        scale: 1 gives 15,000 artists and 138,000 artworks; 0.02, say, a fiftieth of both.
    Raises:
        SourceError: scale is not a number from 0.01 to 10.
    """
    if type(scale) not in (int, float) or not 0.01 <= scale <= 10:
        raise SourceError(f"scale is {scale!r}", expected="a number from 0.01 to 10")
    artists, artworks = round(ARTISTS * scale), round(ARTWORKS * scale)
    named = _named_artworks()
    return [Table("artists", ARTIST_COLUMNS, lambda: _rows(NAMED, _artists(), artists)),
            Table("artworks", ARTWORK_COLUMNS, lambda: _rows(named, _numbered(named, _artworks()), artworks))]


def _rows(named: Dict[int, tuple], others: Iterator[tuple], count: int) -> Iterator[tuple]:
    """Yield `count` rows in the order of their keys: the named ones and as many of the others as that takes."""
    first = ((key, *values) for key, values in sorted(named.items()))
    return merge(first, itertools.islice(others, count - len(named)), key=itemgetter(0))


def _numbered(named: Iterable[int], rows: Iterator[tuple]) -> Iterator[tuple]:
    """Give the rows their keys: 1, 2, 3, … without those of named rows."""
    return ((key, *row) for key, row in zip((i for i in itertools.count(1) if i not in named), rows))


@lru_cache(maxsize=1)
def _words() -> Dict[str, List[str]]:
    kinds = itertools.groupby(csv_files.read(DATA, "words"), itemgetter("kind"))
    return {kind: [row["word"] for row in rows] for kind, rows in kinds}


def _pick(rng: Random, items: Sequence) -> Any:
    return items[below(rng, len(items))]


def _square(rng: Random) -> float:
    """A random number from 0 to 1, small ones more often. (No **: how C's pow rounds is up to the machine.)"""
    number = rng.random()
    return number * number


def _weighted(name: str) -> Tuple[List[Dict[str, str]], List[int]]:
    rows = csv_files.read(DATA, name)
    return rows, list(itertools.accumulate(int(row["weight"]) for row in rows))


# --- artists ---------------------------------------------------------------------------------------------------------

def _artists() -> Iterator[tuple]:
    """Yield artists without end, those of LISTED first."""
    rng = Random(1929)
    rows, weights = _weighted("nationalities")

    def person() -> tuple:
        drawn = rows[bisect(weights, rng.random() * weights[-1])]["nationality"] or None
        born: Optional[int] = 1840 + int(150 * sqrt(rng.random()))
        died = born + 35 + below(rng, 60)
        name, gender = _name(rng)
        if rng.random() < 0.08:
            born = None  # published as 0
        return name, drawn, gender, born, died if born and died <= LAST_YEAR and gender else None

    people = (person() for _ in itertools.count())
    first = ((name, nationality, *rest) for nationality, (name, _, *rest) in zip(LISTED, people))
    return _numbered(NAMED, itertools.chain(first, people))


def _name(rng: Random) -> Tuple[str, Optional[str]]:
    """Make up a name and a gender as published: neither for a company, seldom in lower case."""
    words, kind = _words(), rng.random()
    family = _pick(rng, words["family"])
    if kind < 0.06:
        return _pick(rng, words["group"]).format(family), None
    sex = "male" if kind < 0.78 else "female"
    given = _pick(rng, words[sex])
    initial = f" {'ABCDEFGHJKLMPRSTW'[below(rng, 17)]}." if rng.random() < 0.15 else ""
    known = rng.random()
    return f"{given}{initial} {family}", None if known < 0.08 else sex if known < 0.09 else sex.capitalize()


# --- artworks --------------------------------------------------------------------------------------------------------

def _artworks() -> Iterator[tuple]:
    """Yield artworks without end. The collection grows with its artists, so the first ones have the most works."""
    rng, artists = Random(1937), _artists()
    known: List[Tuple[int, str, Optional[int]]] = []  # artist, name, year of birth
    rows, weights = _weighted("classifications")
    for place in itertools.count():
        while len(known) <= place * ARTISTS // ARTWORKS:
            artist, name, _, _, born, _ = next(artists)
            known.append((artist, name, born))
        kind, number = rows[bisect(weights, rng.random() * weights[-1])], rng.random()
        several = 0 if number < 0.01 else 1 if number < 0.95 else 2 + below(rng, 3)
        makers = list(dict.fromkeys(known[int(len(known) * _square(rng))] for _ in range(several)))
        born = makers[0][2] if makers else None
        made = (born or 1900) + 18 + below(rng, min(50, LAST_YEAR - 18 - (born or 1900)))
        dimensions, height = _dimensions(rng, kind["department"])
        acquired, cataloged = _registered(rng, made)
        yield (makers[0][0] if makers else None, _title(rng), ", ".join(name for _, name, _ in makers) or None,
               _date(rng, made), dimensions, acquired, kind["classification"] or None, kind["department"], height,
               cataloged)


def _title(rng: Random) -> Optional[str]:
    form, motifs = _pick(rng, TITLES), _words()["motif"]
    return form and form.format(a=_pick(rng, motifs), b=_pick(rng, motifs), n=1 + below(rng, 60))


def _date(rng: Random, year: int) -> Optional[str]:
    form, later = _pick(rng, DATES), min(year + 1 + below(rng, 5), LAST_YEAR)
    return form and form.format(y=year, p=later, z=f"{later % 100:02}", d=year // 10 * 10)


def _registered(rng: Random, made: int) -> Tuple[Optional[date], Optional[datetime]]:
    """Return when a work came to the museum, and when it was cataloged; either may be unknown."""
    first = date(max(FIRST_YEAR, made), 11, 7)
    acquired = first + timedelta(days=below(rng, (date(LAST_YEAR, 12, 31) - first).days))
    cataloged = datetime.combine(max(acquired, date(1995, 1, 1)) + timedelta(days=below(rng, 900)), time())
    cataloged += timedelta(microseconds=below(rng, 86_400_000_000))
    unknown = rng.random()
    return None if unknown < 0.05 else acquired, None if unknown > 0.85 else cataloged


def _dimensions(rng: Random, department: str) -> Tuple[Optional[str], Optional[Decimal]]:
    """Write height and width, or more, in inches and centimeters; return the text and the height, or None for both."""
    height, width, depth = (60 + int(1400 * _square(rng)) for _ in range(3))  # millimeters
    times, form = "×" if rng.random() < 0.7 else "x", rng.random()
    if form < 0.08:
        return None, None
    if form < 0.1:
        return "Dimensions variable", None
    text = _measured(times, height, width)
    if department == PRINTS and form < 0.6:
        text = f"composition: {text}; sheet: {_measured(times, height + 92, width + 110)}"
    elif form > 0.85:
        text = f"Overall: {_measured(times, height, width, depth)}"
    # what was measured in inches has odd decimals
    return text, Decimal(height * 1000 + (below(rng, 500) if form > 0.7 else 0)).scaleb(-4)


def _measured(times: str, *millimeters: int) -> str:
    return (f" {times} ".join(map(_inches, millimeters)) + " in. ("
            + f" {times} ".join(f"{m / 10:g}" for m in millimeters) + " cm)")


def _inches(millimeters: int) -> str:
    """Whole inches and sixteenths: 529 is `20 13/16`."""
    whole, part = divmod((millimeters * 160 + 127) // 254, 16)
    shared = gcd(part, 16)
    return " ".join(filter(None, [str(whole or ""), f"{part // shared}/{16 // shared}" if part else ""]))


def _named_artworks() -> Dict[int, tuple]:
    """Return the artworks whose artists are named: the Picador, 83 more dated prints of his, and a few of everybody."""
    motifs, acquired = _words()["motif"], date(1951, 3, 14)

    def work(number: int, artist: int, made: Optional[str], kind: str, department: str) -> tuple:
        return (artist, f"{motifs[number % len(motifs)]} ({number})", NAMED[artist][0], made, _measured("×", 210, 297),
                acquired + timedelta(days=97 * number), kind, department, Decimal("21.0000"), None)

    works = [work(n, PICASSO, f"{'c. ' if n % 9 == 0 else ''}{1904 + n * 4 // 5}", "Print", PRINTS) for n in range(83)]
    works += [work(n, PICASSO, None, "Print", PRINTS) for n in (83, 84, 85)]
    works += [work(86, PICASSO, "1921", "Painting", "Painting & Sculpture"),
              work(87, PICASSO, "1912", "Drawing", "Drawings"), work(88, PICASSO, "1934", "Illustrated Book", PRINTS)]
    for artist in sorted(set(NAMED) - {PICASSO}):
        works += [work(len(works) + n, artist, f"{NAMED[artist][3] + 40 + n}", "Drawing", "Drawings") for n in range(3)]
    named = {63_001 + n: values for n, values in enumerate(works)}
    # nothing is known of it yet: the walkthrough sets date, acquisition_date and dimensions
    named[PICADOR] = (PICASSO, "Picador (La Pique)", NAMED[PICASSO][0], None, None, None, "Print", PRINTS, None, None)
    return named
