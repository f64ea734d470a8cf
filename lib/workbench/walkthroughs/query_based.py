"""What is particular to query-based CDC on Pagila (notebooks/20_query_based_cdc): three pairs of
connectors, of which one polls and one lands. `flow` has what every walkthrough has. There is no
Hudi in it: tables are made with SQL.
"""

from dataclasses import replace

from ..base import ROOT, World
from ..spark import session
from . import pagila
from .capture import Capture
from .walkthrough import Walkthrough

# beside that of the walkthrough on the log: neither changes what the other shows
DATABASE = "pagila_polled"
PAIRS = tuple((f"pagila_jdbc_source_{n}", f"pagila_s3_sink_{n}") for n in ("00", "01", "02"))
SOURCES, SINKS = zip(*PAIRS)
TABLES = ("address", "city", "country")  # those that the first source polls
POLLED = {name: f"pagila.public.{name}" for name in TABLES}
ALT, QUERY = "pagila.public.alt.address", "pagila.query"  # topics of the other two
LOG = (
    "pagila_polled_log"  # a connector on the log, of one address: what does that say of its delete?
)
LOGGED = "pagila_log.public.address"  # its topic
CATALOG = "pagila_polled"  # the catalog's database
PROCESSED = "processed/pagila_query"  # folder of the silver table


def _changed(world: World) -> bool:
    """Whether notebook 23 has made its changes, one of which deletes address 104, and its table of
    the landed files.
    """
    return flow.rows(world, "address", "address_id = 104").empty and session(
        world
    ).catalog.tableExists(f"{CATALOG}.pagila_query")


flow = Walkthrough(
    captures=(
        *(Capture(f"public.{name}", f"{name}_id", *PAIRS[0]) for name in TABLES),
        Capture("public.address", "address_id", *PAIRS[1], known_as="alt"),
        Capture("public.address", "address_id", *PAIRS[2], known_as="query"),
    ),
    database=DATABASE,
    watermark=False,  # there are no events to wait for
    polled=True,
    folder=ROOT / "notebooks" / "20_query_based_cdc",
    loader=replace(pagila.loader, name=DATABASE, database=DATABASE),
    looks=(LOG,),
    kept=("public.customer",),  # one of them moves
    databases=(CATALOG,),
    folders=(PROCESSED,),
    steps={"23_changes": _changed},
)
