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
POLLED_TOPICS = {name: f"pagila.public.{name}" for name in TABLES}
ALT_TOPIC, QUERY_TOPIC = "pagila.public.alt.address", "pagila.query"  # topics of the other two
LOG_CONNECTOR = (
    "pagila_polled_log"  # a connector on the log, of one address: what does that say of its delete?
)
LOG_TOPIC = "pagila_log.public.address"  # its topic
CATALOG = "pagila_polled"  # the catalog's database
PROCESSED_FOLDER = "processed/pagila_query"  # folder of the silver table


def _changes_made(world: World) -> bool:
    """Whether notebook 23 has made its changes, one of which deletes address 104, and its table of
    the landed files.
    """
    return flow.rows(world, "address", "address_id = 104").empty and session(
        world
    ).catalog.tableExists(f"{CATALOG}.pagila_query")


flow = Walkthrough(
    captures=(
        *(Capture(f"public.{name}", f"{name}_id", *PAIRS[0]) for name in TABLES),
        Capture("public.address", "address_id", *PAIRS[1], alias="alt"),
        Capture("public.address", "address_id", *PAIRS[2], alias="query"),
    ),
    database=DATABASE,
    watermark=False,  # there are no events to wait for
    polled=True,
    folder=ROOT / "notebooks" / "20_query_based_cdc",
    loader=replace(pagila.loader, name=DATABASE, database=DATABASE),
    extra_connectors=(LOG_CONNECTOR,),
    restorable_tables=("public.customer",),  # one of them moves
    catalog_databases=(CATALOG,),
    lake_folders=(PROCESSED_FOLDER,),
    completion_checks={"23_changes": _changes_made},
)
