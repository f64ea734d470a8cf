"""The outbox pattern on Northwind (notebooks/10_outbox): its capture and its tables."""

from .. import hudi
from ..base import World
from ..flow.capture import Capture
from ..flow.flow import CaptureFlow
from ..flow.resources import Owns
from ..source import sql_file
from . import northwind
from .track import Track

TABLE = "datalake.cdc_events"  # in PostgreSQL and, with the same name, in the lake's catalog
CONNECTOR = "outbox_source"
ENVELOPE_CONNECTOR = "outbox_source_envelope"  # shows the change event before it is flattened
SINK = "outbox_sink"
LANDED_PREFIX = "cdc-events"  # prefix of the landed files in the sink's configuration
SCRATCH_TABLES = (  # of notebook 14
    "cdc_events_by_order",
    "cdc_events_by_country",
    "tie_by_time",
    "tie_by_lsn",
)

# One partition for each country. With a global index an order moves when its country changes; without
# one it would exist twice.
CDC_EVENTS = {
    "name": "cdc_events",
    "ordering": "__lsn",
    "partition": ("ship_country",),
    "index": "GLOBAL_SIMPLE",
}


flow = CaptureFlow(
    captures=(
        Capture(
            TABLE,
            "order_id",
            CONNECTOR,
            SINK,
            lake=(CDC_EVENTS,),
            expected_sql=sql_file("northwind/queries/cdc_events"),
        ),
    ),
    publication="cdc_publication",
    loader=northwind.loader,
)
TRACK = Track(
    "10_outbox",
    ("11_source_database", "12_connectors", "13_hudi_ingest"),
    flow,
    Owns(
        connectors=(ENVELOPE_CONNECTOR,),
        tables=lambda world: [flow.table(world, name=name) for name in SCRATCH_TABLES],
    ),
)


def table_by_order(world: World) -> hudi.Table:
    """Return a table of the same rows with the reference's layout: one partition per order."""
    return flow.table(world, name="cdc_events_by_order", partition=("customer_id", "order_id"))
