"""Pagila, a film rental: the rows of its public dump, or rows in its shape, which are in this
repository.

Two walkthroughs use it (S3, S7), each with a database of its own, so that neither changes what the
other shows. Tables and triggers are those of data/pagila on both ways: of the public dump,
pagila-data.sql is read, and its pagila-schema.sql is not run (01_pagila_ddl.sql says what of it is
not here).

The rows here are CSV files in data/pagila, one for each table. Names and numbers are invented, and
were once drawn at random. What the reference walkthroughs state is exact, at every scale: how many
rows there are, which ids, and the rows that they name. And so that their changes do what they show
(a test holds all of it):

* each country has an address, and customer 100 alone lives at address 104;
* films 5 and 100 have no actor and no category in common: what refers to film 5 can be given to
  film 100;
* film 375 has several actors, so that several rows of one transaction are deleted.

Times of the public dump are earlier: addresses are of 2006, and films of 2007. The next ids are the
same.
"""

import re
from collections import Counter
from random import Random
from typing import Any, Iterable, Iterator, Sequence

import psycopg

from ..base import ROOT, SourceError, wait
from ..source import csv_files, dumps, loading

DATA = ROOT / "data" / "pagila"
DUMP = "pagila-data.sql"
TABLES = (
    "language",
    "category",
    "actor",
    "country",
    "city",
    "address",
    "customer",
    "film",
    "film_actor",
    "film_category",
    "inventory",
)
_CHANGED_TABLE = re.compile(r"(?:INSERT INTO|UPDATE|DELETE FROM) (\w+)")


def sample_tables(scale: int = 1) -> list[loading.Table]:
    """Return the tables of Pagila in the order to load them.

    Args:
        scale: 1 gives 603 addresses and 1,000 films; n gives these n times, with further ids, and
            of the other tables what 1 gives.

    Raises:
        SourceError: scale is not a whole number from 1 to 1000.
    """
    return csv_files.bundled_tables(DATA, TABLES, scale, {"address": 605, "film": 1000}, null=r"\N")


def _steps(scale: Any, from_dir: Any) -> loading.Steps:
    if from_dir:
        dump = loading.find_file(from_dir, DUMP, f"the public dump, of which {DUMP} is read")
        rows = dumps.read_tables(dump, TABLES)
    else:
        rows = sample_tables(scale)
    return [
        loading.Script(DATA / "01_pagila_ddl.sql"),
        *rows,
        loading.Script(DATA / "02_pagila_sequences.sql"),
    ]


def random_changes(
    seed: int, n: int, tables: Iterable[str] = ()
) -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """Yield n random changes, the same for the same seed: transactions, each with its statements
    and their values. They are made for what was loaded, to be run once and in this order;
    changes.sql has their kinds, and what they are like. Of three, one is of the kind and the row of
    the one before it.

    Args:
        tables: which are to be changed; all that are in changes.sql by default.

    Raises:
        SourceError: there are no changes of such tables.
    """
    found = [
        kind
        for _, kind in loading.split_statements((DATA / "changes.sql").read_text(encoding="utf-8"))
    ]
    kinds = [kind for kind in found if not tables or _CHANGED_TABLE.match(kind)[1] in tables]
    if not kinds:
        raise SourceError(f"there are no changes of {tables!r}", location=str(DATA / "changes.sql"))
    rng, kind, row = Random(seed), kinds[0], 0
    names = [actor["last_name"] for actor in csv_files.read_rows(DATA, "actor")]

    def below(
        most: int,
    ) -> int:  # by random() alone, the one method whose sequence Python promises to keep for a seed
        return int(rng.random() * most)

    while n > 0:
        transaction = []
        for _ in range(min(n, 1 if rng.random() < 0.7 else 2 + below(9))):
            if rng.random() > 0.33:
                kind, row = kinds[below(len(kinds))], below(10**6)
            text = f"{names[below(len(names))]} {below(10**6)}"
            transaction.append((kind, {"row": row, "n": below(10**6), "text": text}))
        yield transaction
        n -= len(transaction)


def apply(
    connection: psycopg.Connection,
    transactions: Sequence[list[tuple[str, dict[str, Any]]]],
    seconds: float = 0,
) -> Counter[str]:
    """Run transactions (see `changes`), spread evenly over this many seconds; return {table: rows
    changed}.
    """
    changed: Counter[str] = Counter()
    for transaction in wait.pace(transactions, seconds):
        with connection.transaction():
            for statement, values in transaction:
                changed[_CHANGED_TABLE.match(statement)[1]] += connection.execute(
                    statement, values
                ).rowcount
    return changed


loader = loading.Loader("pagila", "public", TABLES, _steps, "pagila")
