"""Pagila, a film rental: the rows of its public dump, or rows in their shape, made here.

Two walkthroughs use it (S3, S7), each with a database of its own, so that neither changes what the other shows. Tables
and triggers are those of data/pagila on both ways: of the public dump, pagila-data.sql is read, and its
pagila-schema.sql is not run (01_pagila_ddl.sql says what of it is not here).

Of the rows made here, names and numbers are invented: words of data/pagila and data/moma put together. They are the
same on every machine. What the reference walkthroughs state is exact, at every scale: how many rows there are, which
ids, and the values in the CSV files of data/pagila, which go over those made. And so that their changes do what they
show:

* each country has an address, and customer 100 alone lives at address 104;
* films 5 and 100 have no actor and no category in common: what refers to film 5 can be given to film 100;
* film 375 has several actors, so that several rows of one transaction are deleted.

Times of the public dump are earlier: addresses are of 2006, and films of 2007. The next ids are the same.

Only `Random.random()` is drawn from: the one method whose sequence Python promises to keep for a seed. A larger scale
has all rows of a smaller one.
"""
from __future__ import annotations

import itertools
import re
from bisect import bisect
from datetime import date, datetime
from decimal import Decimal
from functools import cache, partial
from operator import itemgetter
from random import Random
from typing import Any, Callable, Iterable, Iterator

from ..base import ROOT, SourceError
from ..source import csv_files, dumps, loading
from . import moma

DATA = ROOT / "data" / "pagila"
DUMP = "pagila-data.sql"
LOADED, FILMED = datetime(2017, 2, 15, 9, 45, 30), datetime(2017, 9, 10, 17, 46, 3, 905795)
MISSING = (257, 518)  # no addresses
ADDRESSES, CITIES, FILMS, ACTORS, CATEGORIES, LANGUAGES = 603, 600, 1000, 200, 16, 6
CAST, COPIES = 5462, 4581  # rows of film_actor and of inventory
_CHANGED = re.compile(r"(?:INSERT INTO|UPDATE|DELETE FROM) (\w+)")
RATINGS = ("G", "PG", "PG-13", "R", "NC-17")


def generated(scale: int = 1) -> list[loading.Table]:
    """Return the tables of Pagila in the order to load them.

    Args:
        scale: 1 gives 603 addresses and 1,000 films; n gives n times as many, and of the other tables what 1 gives.
    Raises:
        SourceError: scale is not a whole number from 1 to 1000.
    """
    if type(scale) is not int or not 1 <= scale <= 1000:
        raise SourceError(f"scale is {scale!r}", expected="a whole number from 1 to 1000")
    return [loading.Table(name, (*columns, "last_update"), partial(_rows, name, seed, scale))
            for seed, (name, (columns, _)) in enumerate(TABLES.items())]


def _steps(scale: Any, from_dir: Any) -> loading.Steps:
    if from_dir:
        dump = loading.find(from_dir, DUMP, f"the public dump, of which {DUMP} is read")
        rows = dumps.tables(dump, tuple(TABLES))
    else:
        rows = generated(scale)
    return [loading.Script(DATA / "01_pagila_ddl.sql"), *rows, loading.Script(DATA / "02_pagila_sequences.sql")]


def changes(seed: int, n: int, tables: Iterable[str] = ()) -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """Yield n random changes, the same for the same seed: transactions, each with its statements and their values. They
    are made for what was loaded, to be run once and in this order; changes.sql has their kinds, and what they are like.
    Of three, one is of the kind and the row of the one before it.

    Args:
        tables: which are to be changed; all that are in changes.sql by default.
    Raises:
        SourceError: there are no changes of such tables.
    """
    found = [kind for _, kind in loading.statements((DATA / "changes.sql").read_text(encoding="utf-8"))]
    kinds = [kind for kind in found if not tables or _CHANGED.match(kind)[1] in tables]
    if not kinds:
        raise SourceError(f"there are no changes of {tables!r}", where=str(DATA / "changes.sql"))
    rng, kind, row = Random(seed), kinds[0], 0
    while n > 0:
        transaction = []
        for _ in range(min(n, 1 if rng.random() < 0.7 else 2 + moma.below(rng, 9))):
            if rng.random() > 0.33:
                kind, row = kinds[moma.below(rng, len(kinds))], moma.below(rng, 10**6)
            text = f"{_pick(rng, 'family')} {moma.below(rng, 10**6)}"
            transaction.append((kind, {"row": row, "n": moma.below(rng, 10**6), "text": text}))
        yield transaction
        n -= len(transaction)


# --- rows ------------------------------------------------------------------------------------------------------------

def _rows(name: str, seed: int, scale: int) -> Iterator[tuple]:
    """Yield the rows of a table by their key; what the walkthroughs state of one goes over what is made, as text."""
    (key, *columns), make = TABLES[name]
    when, known = FILMED if name == "film" else LOADED, {int(row[key]): row for row in stated(name)}
    for number, *values in make(Random(seed), scale):
        said = known.get(number, {})
        yield number, *(said.get(column) or value for column, value in zip(columns, values)), when


@cache
def stated(name: str) -> list[dict[str, str]]:
    """What the walkthroughs state of a table's rows; an empty text is not stated."""
    return csv_files.read(DATA, name) if (DATA / f"{name}.csv").exists() else []


@cache
def _words() -> dict[str, list[str]]:
    """{kind: words}"""
    rows = sorted(csv_files.read(DATA, "words") + csv_files.read(moma.DATA, "words"), key=itemgetter("kind"))
    return {kind: [row["word"] for row in some] for kind, some in itertools.groupby(rows, itemgetter("kind"))}


def _pick(rng: Random, kind: str) -> str:
    return _words()[kind][moma.below(rng, len(_words()[kind]))]


def _named(kind: str, rng: Random, scale: int) -> Iterator[tuple]:
    return enumerate(_words()[kind], 1)


def _actors(rng: Random, scale: int) -> Iterator[tuple]:
    return ((actor, *_person(rng)) for actor in range(1, ACTORS + 1))


def _person(rng: Random) -> tuple[str, str]:
    return _pick(rng, "male" if rng.random() < 0.5 else "female").upper(), _pick(rng, "family").upper()


def _cities(rng: Random, scale: int) -> Iterator[tuple]:
    """Cities; of those of which nothing is stated, the first ones are in one country each."""
    taken = sorted(int(row["city_id"]) for row in stated("city"))
    names = [begin + end for end in _words()["end"] for begin in _words()["begin"]]
    countries = len(_words()["country"])
    for city, name in enumerate(names, 1):
        place = city - bisect(taken, city)
        yield city, name, place if place <= countries else 1 + moma.below(rng, countries)


def _addresses(rng: Random, scale: int) -> Iterator[tuple]:
    """Addresses, at first one in each city. As in the public dump, the first four have no second line, and that of the
    others is empty."""
    stay = {int(row["address_id"]): int(row["city_id"]) for row in stated("address")}
    cities = itertools.cycle(city for city in range(1, CITIES + 1) if city not in stay.values())
    keys = (key for key in itertools.count(1) if key not in MISSING)
    for key in itertools.islice(keys, scale * ADDRESSES):
        street = f"{1 + moma.below(rng, 1999)} {_pick(rng, 'begin')}{_pick(rng, 'end')} {_pick(rng, 'way')}"
        yield (key, street, None if key < 5 else "", _pick(rng, "district"), stay.get(key) or next(cities),
               f"{moma.below(rng, 10**5):05}", str(moma.below(rng, 10**12)))


def _customers(rng: Random, scale: int) -> Iterator[tuple]:
    """Customers, one at each address but the first four."""
    homes = (key for key in range(5, 606) if key not in MISSING)
    for customer, address in enumerate(homes, 1):
        first, last = _person(rng)
        yield (customer, 1 + moma.below(rng, 2), first, last, f"{first}.{last}@example.org", address,
               rng.random() < 0.97, date(2017, 2, 14))


def _films(rng: Random, scale: int) -> Iterator[tuple]:
    words = _words()
    titles = [f"{attribute} {subject}" for subject in words["subject"] for attribute in words["attribute"]]
    for film in range(1, scale * FILMS + 1):
        description = (f"A {_pick(rng, 'mood')} {_pick(rng, 'form')} of a {_pick(rng, 'person')} And a "
                       f"{_pick(rng, 'person')} who must {_pick(rng, 'deed')} a {_pick(rng, 'person')} in "
                       f"{_pick(rng, 'place')}")
        features = [feature for feature in words["feature"] if rng.random() < 0.5]
        yield (film, titles[(film - 1) % len(titles)], description, 1980 + moma.below(rng, 37),
               1 + moma.below(rng, LANGUAGES), None if film % 50 else 1, 3 + moma.below(rng, 5),
               Decimal((99, 299, 499)[moma.below(rng, 3)]) / 100, 46 + moma.below(rng, 140),
               Decimal(999 + 100 * moma.below(rng, 21)) / 100, RATINGS[moma.below(rng, len(RATINGS))], features)


def _cast(rng: Random, scale: int) -> Iterator[tuple]:
    """Who plays in which film; in films 5 and 100, whom the walkthroughs (and their changes) need."""
    pairs = {(int(row["actor_id"]), int(row["film_id"])) for row in stated("cast")}
    alone = (5, 100)
    while len(pairs) < CAST:
        pair = 1 + moma.below(rng, ACTORS), 1 + moma.below(rng, FILMS)
        pairs |= {pair} if pair[1] not in alone else set()
    yield from sorted(pairs)


def _genres(rng: Random, scale: int) -> Iterator[tuple]:
    return ((film, 1 + film * 7 % CATEGORIES) for film in range(1, FILMS + 1))


def _copies(rng: Random, scale: int) -> Iterator[tuple]:
    return ((copy, 1 + copy * FILMS // (COPIES + 1), 1 + moma.below(rng, 2)) for copy in range(1, COPIES + 1))


TABLES: dict[str, tuple[tuple[str, ...], Callable[[Random, int], Iterator[tuple]]]] = {
    "language": (("language_id", "name"), partial(_named, "language")),
    "category": (("category_id", "name"), partial(_named, "category")),
    "actor": (("actor_id", "first_name", "last_name"), _actors),
    "country": (("country_id", "country"), partial(_named, "country")),
    "city": (("city_id", "city", "country_id"), _cities),
    "address": (("address_id", "address", "address2", "district", "city_id", "postal_code", "phone"), _addresses),
    "customer": (("customer_id", "store_id", "first_name", "last_name", "email", "address_id", "activebool",
                  "create_date"), _customers),
    "film": (("film_id", "title", "description", "release_year", "language_id", "original_language_id",
              "rental_duration", "rental_rate", "length", "replacement_cost", "rating", "special_features"), _films),
    "film_actor": (("actor_id", "film_id"), _cast),
    "film_category": (("film_id", "category_id"), _genres),
    "inventory": (("inventory_id", "film_id", "store_id"), _copies),
}
loader = loading.Loader("pagila", "public", tuple(TABLES), _steps, "pagila")
