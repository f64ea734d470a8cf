"""What is particular to the outbox walkthrough (notebooks/10_outbox): its capture, its tables, its changes and truths.
`flow` has what every walkthrough has.
"""
from __future__ import annotations

import json
import time

import pandas
from pyspark.sql import SparkSession

from .. import hudi
from ..base import ROOT, World, files
from ..hudi.loading import FIRST_LOAD
from . import northwind
from .flow import Capture
from .walkthrough import Walkthrough

TABLE = "datalake.cdc_events"  # in PostgreSQL and, by the same name, in the lake's catalog
CONNECTOR = "outbox_source"
ENVELOPE = "outbox_source_envelope"  # shows the raw change event, before it is flattened
SINK = "outbox_sink"
PREFIX = "cdc-events"  # of the landed files, as the sink has it
EXPERIMENTS = ("cdc_events_by_order", "cdc_events_by_country", "tie_by_time", "tie_by_lsn")  # notebook 14's

# One partition for each country. The index is a global one, so that an order whose country changes moves instead of
# being there twice.
CDC_EVENTS = {"name": "cdc_events", "ordering": "__lsn", "partition": ("ship_country",), "index": "GLOBAL_SIMPLE"}


def change(name: str) -> str:
    """Return the SQL of one of the walkthrough's changes (data/northwind/changes)."""
    return (ROOT / "data" / "northwind" / "changes" / f"{name}.sql").read_text(encoding="utf-8")


def query(name: str) -> str:
    """Return the SQL of one of its truths (data/northwind/queries): what PostgreSQL says of its own tables."""
    return (ROOT / "data" / "northwind" / "queries" / f"{name}.sql").read_text(encoding="utf-8")


flow = Walkthrough(
    captures=(Capture(TABLE, "order_id", CONNECTOR, SINK, lake=(CDC_EVENTS,), truth=query("cdc_events")),),
    folder=ROOT / "notebooks" / "10_outbox",
    publication="cdc_publication",
    loader=northwind.loader,
    looks=(ENVELOPE,),
    experiments=lambda world: [flow.table(world, name=name) for name in EXPERIMENTS],
    kept=("datalake.orders", "datalake.order_details"),  # the outbox follows them
)


def by_order(world: World) -> hudi.Table:
    """The same rows laid out as the reference has them: a partition for each order."""
    return flow.table(world, name="cdc_events_by_order", partition=("customer_id", "order_id"), index="SIMPLE")


# --- the experiments of notebook 14 ----------------------------------------------------------------------------------

def items_kept(spark: SparkSession, world: World, scratch: hudi.Table, rows: pandas.DataFrame) -> int:
    """Write events of one order, one commit each, in the order given, to a new table; return the items it then has."""
    hudi.drop(spark, world, scratch)
    schema = hudi.reader_schema("cdc_events")
    for event in rows[schema.fieldNames()].to_dict("records"):
        plain = {name: None if pandas.isna(value) else value for name, value in event.items()}
        frame = spark.createDataFrame([tuple(_typed(plain[f.name], f.dataType) for f in schema)], schema)
        frame.write.format("hudi").options(**scratch.options()).mode("append").save(scratch.base)
    (kept,) = hudi.read(spark, scratch).collect()
    hudi.drop(spark, world, scratch)
    return len(json.loads(kept["order_items"] or "[]"))


def _typed(value: object, kind: object) -> object:
    return int(value) if isinstance(value, float) and kind.simpleString() in ("int", "bigint") else value


def measure(spark: SparkSession, world: World, layout: hudi.Table) -> dict:
    """Write the rows of the lake table to a new table of this layout, register it, and measure what that takes.

    Returns: partitioned by, rows, partitions, files, bytes, seconds to write, seconds to read (a full scan)."""
    rows = hudi.read(spark, flow.table(world)).select(hudi.reader_schema("cdc_events").fieldNames())
    hudi.drop(spark, world, layout)
    begun = time.monotonic()
    rows.write.format("hudi").options(**{**layout.options(), **FIRST_LOAD}).mode("append").save(layout.base)
    written = time.monotonic()
    # every value is touched, or the count would come from the files' footers
    count = hudi.read(spark, layout).selectExpr("count(*)", "max(hash(*))").collect()[0][0]
    scanned = time.monotonic()
    hudi.register(spark, layout)
    found = [i for i in files.below(layout.base).values() if i.extension == "parquet"]
    return {"partitioned by": ", ".join(layout.partition), "rows": count,
            "partitions": len({i.path.rpartition("/")[0] for i in found}), "files": len(found),
            "bytes": sum(i.size for i in found), "seconds to write": round(written - begun, 2),
            "seconds to read": round(scanned - written, 2)}
