"""Query-based change data capture on Pagila (notebooks/20_query_based_cdc).

The walkthrough has three pairs of a polling source and a sink. It does not use Hudi; its tables are
created with SQL.
"""

from dataclasses import replace

from ..base import World
from ..flow.capture import Capture
from ..flow.flow import CaptureFlow
from ..flow.resources import Owns, Product
from ..spark import session
from . import pagila
from .track import Step, Track

# separate from the database of the log-based walkthrough, so that neither changes the other's rows
DATABASE = "pagila_polled"
PAIRS = tuple((f"pagila_jdbc_source_{n}", f"pagila_s3_sink_{n}") for n in ("00", "01", "02"))
SOURCES, SINKS = zip(*PAIRS)
TABLES = ("address", "city", "country")  # the tables that the first source polls
POLLED_TOPICS = {name: f"pagila.public.{name}" for name in TABLES}
ALT_TOPIC = "pagila.public.alt.address"  # of the second source
QUERY_TOPIC = "pagila.query"  # of the third source
LOG_CONNECTOR = "pagila_polled_log"  # reads the log of one address, to show the event of its delete
LOG_TOPIC = "pagila_log.public.address"
CATALOG = "pagila_polled"  # the catalog database
PROCESSED_FOLDER = "processed/pagila_query"  # folder of the silver table


def _changes_made(world: World) -> bool:
    """Return whether notebook 23 has deleted address 104, and created its table."""
    deleted = flow.rows(world, "address", "address_id = 104").empty
    return deleted and session(world).catalog.tableExists(f"{CATALOG}.pagila_query")


flow = CaptureFlow(
    captures=(
        *(Capture(f"public.{name}", f"{name}_id", *PAIRS[0]) for name in TABLES),
        Capture("public.address", "address_id", *PAIRS[1], alias="alt"),
        Capture("public.address", "address_id", *PAIRS[2], alias="query"),
    ),
    database=DATABASE,
    polled=True,
    loader=replace(pagila.loader, name=DATABASE, database=DATABASE),
)
TRACK = Track(
    "20_query_based_cdc",
    (
        "21_source_database",
        "22_connectors",
        Step("23_changes", Product.TABLES, _changes_made),
    ),
    flow,
    Owns(
        connectors=(LOG_CONNECTOR,),
        databases=(CATALOG,),
        folders=(f"tables/{PROCESSED_FOLDER}",),
    ),
)
