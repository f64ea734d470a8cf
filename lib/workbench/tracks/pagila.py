"""Pagila, the film-rental sample database: the rows of its public dump, or bundled rows for its tables.

Two walkthroughs use it (S3, S7), with separate databases, so that neither changes the rows of the
other. Tables and triggers are always those of data/pagila. Only pagila-data.sql of the public dump is
read, not pagila-schema.sql; 01_pagila_ddl.sql lists the differences.

The bundled rows are CSV files in data/pagila, one for each table. Names and numbers are invented;
they were drawn at random once. A scale of n repeats the addresses and films n times, with new ids.
The facts of the reference walkthroughs are exact at every scale: the ids, and the rows that they
name. These facts make their changes show what they should (a test ensures all of it):

* each country has an address, and only customer 100 lives at address 104;
* films 5 and 100 have no actor and no category in common: references to film 5 can be moved to
  film 100;
* film 375 has several actors, so that one transaction deletes several rows.

The public dump has earlier timestamps: 2006 for addresses, 2007 for films. Its sequences continue
with the same ids.
"""

import re
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any, Iterable, Iterator, Sequence

import psycopg

from ..base import ROOT, SourceError, wait
from ..source import loading, row_files

DATA = ROOT / "data" / "pagila"
DUMP = "pagila-data.sql"
CHANGES = DATA / "changes.sql"
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


def _steps(from_dir: Any) -> loading.Steps:
    if from_dir:
        dump = row_files.find_file(from_dir, DUMP, f"the public dump, of which {DUMP} is read")
        rows = row_files.dump_rows(dump, TABLES)
    else:
        rows = [row_files.csv_rows(DATA / f"{name}.csv", name, r"\N") for name in TABLES]
    ddl, end = (loading.Script(DATA / f"{name}.sql") for name in ("01_pagila_ddl", "02_pagila_end"))
    return [ddl, *rows, end]


def random_changes(
    seed: int, n: int, tables: Iterable[str] = (), path: Path = CHANGES
) -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """Yield n random changes in transactions; a seed always gives the same ones.

    The changes fit the loaded rows. They must run once, in this order. A file has their kinds.
    One in three changes has the kind and the row of the previous change.

    Args:
        seed: the seed.
        n: number of changes.
        tables: the tables to change, by default all in the file.
        path: the kinds of changes, as in data/pagila/changes.sql; by default these.

    Yields:
        A transaction: its statements with their values.

    Raises:
        SourceError: there are no changes of such tables.
    """
    kinds = [
        statement
        for _, statement in loading.split_statements(path.read_text(encoding="utf-8"))
        if not tables or _changed_table(statement) in tables
    ]
    if not kinds:
        raise SourceError(f"there are no changes of {tables!r}", location=str(path))
    rng, kind, row = Random(seed), kinds[0], 0
    names = [actor["last_name"] for actor in row_files.read_dicts(DATA / "actor.csv")]

    def random_below(limit: int) -> int:
        # only random() has the same sequence for a seed in every version of Python
        return int(rng.random() * limit)

    while n > 0:
        transaction = []
        for _ in range(min(n, 1 if rng.random() < 0.7 else 2 + random_below(9))):
            if rng.random() > 0.33:
                kind, row = kinds[random_below(len(kinds))], random_below(10**6)
            text = f"{names[random_below(len(names))]} {random_below(10**6)}"
            transaction.append((kind, {"row": row, "n": random_below(10**6), "text": text}))
        yield transaction
        n -= len(transaction)


def apply(
    connection: psycopg.Connection,
    transactions: Sequence[list[tuple[str, dict[str, Any]]]],
    seconds: float = 0,
) -> Counter[str]:
    """Run transactions (see `random_changes`), spread evenly over a period in seconds.

    Returns:
        {table: number of changed rows}.
    """
    changed: Counter[str] = Counter()
    for transaction in wait.pace(transactions, seconds):
        with connection.transaction():
            for statement, values in transaction:
                rows = connection.execute(statement, values).rowcount
                changed[_changed_table(statement)] += rows
    return changed


def _changed_table(statement: str) -> str:
    """Return the table that a statement changes; "" for another statement."""
    match = _CHANGED_TABLE.match(statement)
    return match[1] if match else ""


loader = loading.Loader("pagila", "public", TABLES, _steps, "pagila")
