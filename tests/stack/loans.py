"""An invented track, a museum's loans: one table, one connector, one sink, one lake table."""

from workbench import connect
from workbench.base.paths import ROOT
from workbench.flow.capture import Capture
from workbench.flow.flow import CaptureFlow
from workbench.source import postgres
from workbench.source.loading import Loader, Script
from workbench.tracks.track import Track

DATABASE = "loans_lab"
ROWS = ROOT / "tests" / "stack" / "loans.sql"
TABLE = {"name": "loans", "ordering": "__lsn", "partition": ("lender",), "index": "GLOBAL_SIMPLE"}


def config(world, name):
    if name == "loans_sink":
        own = {"topics.regex": r"loans\.public\.(.*)", "topics.dir": "loans"}
        return {**connect.config(world, "moma_sink"), **own}
    own = {
        "topic.prefix": "loans",
        "slot.name": postgres.slot_prefix(world) + "loans",
        "publication.name": "loans",
        "database.dbname": DATABASE,
        "table.include.list": "public.loans",
    }
    return {**connect.config(world, "moma_source"), **own}


flow = CaptureFlow(
    (Capture("public.loans", "loan_id", "loans_source", "loans_sink", "avro", (TABLE,)),),
    database=DATABASE,
    config=config,
    publication="loans",
    loader=Loader("loans", "public", ("loans",), lambda from_dir: [Script(ROWS)], DATABASE),
)
TRACK = Track(
    "70_loans",
    ("71_source_database", "72_connectors", "73_hudi_ingest"),
    flow,
    services=("postgres", "kafka", "connect", "spark", "apicurio"),
)


def load(world):
    flow.loader.load(world, confirm=lambda question: True)
    postgres.create_publication(world, flow.publication, ["public.loans"], DATABASE)
    postgres.grant_replication(world, ["public.loans"], DATABASE)
