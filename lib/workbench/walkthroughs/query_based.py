"""What is particular to query-based CDC on Pagila (notebooks/20_query_based_cdc): three pairs of connectors, of which
one polls and one lands. Nothing is captured from the log, so there are no captures, and no Hudi: tables are made with
SQL. `flow` has what every walkthrough has.
"""
from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas
from psycopg import sql

from .. import landing
from ..base import ROOT, World, files
from ..source import postgres
from ..spark import session
from ..topic import topics
from . import pagila
from .walkthrough import Walkthrough

DATABASE = "pagila_polled"  # beside that of the walkthrough on the log: neither changes what the other shows
PAIRS = tuple((f"pagila_jdbc_source_{n}", f"pagila_s3_sink_{n}") for n in ("00", "01", "02"))
SOURCES, SINKS = zip(*PAIRS)
TABLES = ("address", "city", "country")  # those that the first source polls
POLLED = {name: f"pagila.public.{name}" for name in TABLES}
ALT, QUERY = "pagila.public.alt.address", "pagila.query"  # topics of the other two
CATALOG = "pagila_polled"  # the catalog's database
PROCESSED = "processed/pagila_query"  # folder of the silver table


class _Polled(Walkthrough):
    """A walkthrough whose topics come of polls: what of it hangs on a log elsewhere, hangs on the jobs here."""

    @property
    def sinks(self) -> list[str]:
        return list(SINKS)

    def rows(self, world: World, name: str = "", where: str = "true", values: Any = None) -> pandas.DataFrame:
        query = sql.SQL("SELECT * FROM {} WHERE {} ORDER BY 1").format(sql.Identifier(name), sql.SQL(where))
        return postgres.frame(world, query, values, self.database)

    def count(self, world: World, name: str = "") -> int:
        return len(self.rows(world, name))

    def deploy(self, world: World) -> dict[str, int]:
        """Deploy the six connectors, and let each work once; {topic: messages}."""
        for name in (*SOURCES, *SINKS):
            landing.apply(world, name, self.config(world, name))
        landing.step(session(world), world, *SOURCES, *SINKS)
        return {topic: topics.count(world, topic) for topic in self._topics_left(world)}

    def landed(self, world: World, topic: str) -> str:
        """Address of the folder of a topic's objects."""
        return f"{world.lake.landing}/topics/{topic}"

    def connectors_left(self, world: World) -> list[str]:
        return sorted({*SOURCES, *SINKS} & set(landing.names(world)))

    def left_over(self, world: World) -> dict[str, list[str]]:
        folders = [self.landed(world, topic) for topic in (*POLLED.values(), ALT, QUERY)]
        return {**super().left_over(world), "landed files": [folder for folder in folders if files.below(folder)]}

    def _has_topics(self, world: World) -> bool:
        return (len(self.connectors_left(world)) == 6 and len(self._topics_left(world)) == 5
                and all(files.below(self.landed(world, topic)) for topic in self._topics_left(world)))

    def _drop_connectors(self, world: World, *, schemas: bool = True) -> None:
        for name in (*SOURCES, *SINKS):
            landing.delete(world, name)
        super()._drop_connectors(world, schemas=schemas)


def asked(world: World, query: str) -> pandas.DataFrame:
    """What the polled database answers."""
    return postgres.frame(world, query, database=DATABASE)


def _changed(world: World) -> bool:
    """Whether notebook 23 has made its changes, one of which deletes address 104, and its table of the landed files."""
    return (flow.rows(world, "address", "address_id = 104").empty
            and session(world).catalog.tableExists(f"{CATALOG}.pagila_query"))


flow = _Polled(
    captures=(),
    database=DATABASE,
    folder=ROOT / "notebooks" / "20_query_based_cdc",
    loader=replace(pagila.loader, name=DATABASE, database=DATABASE),
    polls=SOURCES,
    kept=("public.country", "public.city", "public.address", "public.customer"),
    databases=(CATALOG,),
    folders=(PROCESSED,),
    steps={"23_changes": _changed},
)
