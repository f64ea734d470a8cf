"""What is particular to the outbox walkthrough (notebooks/10_outbox): its capture, its tables, its
changes and truths. `flow` has what every walkthrough has.
"""

from .. import hudi
from ..base import ROOT, World
from ..source import sql_file
from . import northwind
from .flow import Capture
from .walkthrough import Walkthrough

TABLE = "datalake.cdc_events"  # in PostgreSQL and, by the same name, in the lake's catalog
CONNECTOR = "outbox_source"
ENVELOPE_CONNECTOR = "outbox_source_envelope"  # shows the raw change event, before it is flattened
SINK = "outbox_sink"
LANDED_PREFIX = "cdc-events"  # of the landed files, as the sink has it
SCRATCH_TABLES = (
    "cdc_events_by_order",
    "cdc_events_by_country",
    "tie_by_time",
    "tie_by_lsn",
)  # notebook 14's

# One partition for each country. The index is a global one, so that an order whose country changes
# moves instead of being there twice.
CDC_EVENTS = {
    "name": "cdc_events",
    "ordering": "__lsn",
    "partition": ("ship_country",),
    "index": "GLOBAL_SIMPLE",
}


flow = Walkthrough(
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
    folder=ROOT / "notebooks" / "10_outbox",
    publication="cdc_publication",
    loader=northwind.loader,
    extra_connectors=(ENVELOPE_CONNECTOR,),
    scratch_tables=lambda world: [flow.table(world, name=name) for name in SCRATCH_TABLES],
    restorable_tables=("datalake.orders", "datalake.order_details"),  # the outbox follows them
)


def table_by_order(world: World) -> hudi.Table:
    """The same rows laid out as the reference has them: a partition for each order."""
    return flow.table(
        world, name="cdc_events_by_order", partition=("customer_id", "order_id"), index="SIMPLE"
    )
