"""What the outbox walkthrough (notebooks/10_outbox) makes, named once: so each of its notebooks runs alone and twice.

`need` makes what earlier notebooks make, by running them, where it is not there. `clear` removes what a notebook and
those after it make.
"""
from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, List

import pandas

from .. import connect, hudi, landing
from ..base import files
from ..base.errors import LakeError
from ..base.params import World
from ..base.paths import ROOT
from ..base.wait import wait_until
from ..hudi.loading import FIRST_LOAD
from ..run.steps import Steps
from ..source import postgres
from ..spark import session
from ..topic import topics
from . import load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLE = "datalake.cdc_events"  # in PostgreSQL and, by the same name, in the lake's catalog
PUBLICATION = "cdc_publication"
CONNECTOR = "outbox_source"
ENVELOPE = "outbox_source_envelope"  # shows the raw change event, before it is flattened
SINK = "outbox_sink"
PREFIX = "cdc-events"
EXPERIMENTS = ("cdc_events_by_order", "cdc_events_by_country", "tie_by_time", "tie_by_lsn")  # notebook 14's


def topic(world: World) -> str:
    """Name of the topic that the connector writes: prefix, schema, table."""
    return f"{world.connect.topic_prefix}.{TABLE}"


def envelope_topic(world: World) -> str:
    """Name of the topic with the raw envelopes."""
    return f"{world.connect.topic_prefix}_envelope.{TABLE}"


def table(world: World, **more: object) -> hudi.Table:
    """The lake table of the walkthrough; `more` changes any of its fields.

    One partition for each country. The index is a global one, so that an order whose country changes moves instead of
    being there twice.
    """
    fields = dict(name="cdc_events", key=("order_id",), ordering="__lsn", partition=("ship_country",),
                  index="GLOBAL_SIMPLE")
    return hudi.table(world, **{**fields, **more})


def by_order(world: World) -> hudi.Table:
    """The same rows laid out as the reference has them: a partition for each order."""
    return table(world, name="cdc_events_by_order", partition=("customer_id", "order_id"), index="SIMPLE")


def _has_source(world: World) -> bool:
    postgres.create_database(world)  # nothing happens where it is there
    return PUBLICATION in set(postgres.publications(world)["publication"])


def _has_connector(world: World) -> bool:
    if CONNECTOR not in connect.names(world) or topic(world) not in topics.names(world):
        return False
    connect.wait_running(world, CONNECTOR)
    return topics.count(world, topic(world)) > 0 and bool(files.entries(landing_folder(world)))


STEPS = Steps(ROOT / "notebooks" / "10_outbox", {
    "11_source_database": _has_source,
    "12_connectors": _has_connector,
    "13_hudi_ingest": lambda world: hudi.exists(table(world)),
})
need, made = STEPS.need, STEPS.made


def clear(world: World, step: str) -> None:
    """Remove what `step` and the steps after it make; what is not there is no error."""
    later = STEPS.later(step)
    for left in tables_left(world):
        hudi.drop(session(world), world, table(world, name=left))
    postgres.create_database(world)
    if "12_connectors" in later:
        for name in (CONNECTOR, ENVELOPE):
            connect.delete(world, name)
            postgres.drop_slot(world, connect.config(world, name)["slot.name"])
        prefixes = [connect.config(world, name)["topic.prefix"] for name in (CONNECTOR, ENVELOPE)]
        ours = {topic(world), envelope_topic(world), *(f"__debezium-heartbeat.{p}" for p in prefixes)}
        topics.delete(world, *sorted(ours & set(topics.names(world))))
        landing.drop(world, connect.config(world, SINK))
    if "11_source_database" in later:
        load.reset_northwind(world)


def tables_left(world: World) -> list:
    """Names of the tables of this walkthrough that have files in the lake, those of its experiments included."""
    return [name for name in ("cdc_events", *EXPERIMENTS) if files.entries(f"{world.lake.tables}/{name}")]


def connectors_left(world: World) -> list:
    """Names of the connectors of this walkthrough that are deployed; others may run on the same Connect."""
    return sorted({CONNECTOR, ENVELOPE} & set(connect.names(world)))


def landing_folder(world: World) -> str:
    """Where the sink lands the messages: the prefix that its KCQL names, below the world's landing address."""
    return f"{world.lake.landing}/{PREFIX}"


# --- what the notebooks compare --------------------------------------------------------------------------------------

def source_rows(world: World) -> pandas.DataFrame:
    """Return the outbox as it travels: dates as days since 1970-01-01 (S1's INT32), JSON as parsed values."""
    return postgres.frame(world, """
        SELECT order_id, customer_id, employee_id, order_date - DATE '1970-01-01' AS order_date,
               required_date - DATE '1970-01-01' AS required_date, shipped_date - DATE '1970-01-01' AS shipped_date,
               ship_via, freight, ship_name, ship_address, ship_city, ship_region, ship_postal_code, ship_country,
               order_items, products
          FROM cdc_events ORDER BY order_id""")


def revenue_in_source(world: World) -> pandas.DataFrame:
    """Return revenue by customer as PostgreSQL computes it from its own tables: customer_id, revenue (exact decimal).

    Price and discount are rounded to two decimals first, as the outbox has them."""
    return postgres.frame(world, """
        SELECT customer_id,
               sum(round(unit_price::numeric, 2) * quantity * (1 - round(discount::numeric, 2))) AS revenue
          FROM orders JOIN order_details USING (order_id) GROUP BY customer_id""")


def promising_in_source(world: World) -> list:
    """Return the customers that notebook 15 calls promising, by PostgreSQL from its own tables, best first: outside the
    three with most revenue, an average order line that brings more than that of the lowest of the three."""
    return list(postgres.frame(world, """
        WITH customers AS (
          SELECT customer_id, sum(revenue) AS total, avg(revenue) AS average
            FROM (SELECT customer_id,
                         round(unit_price::numeric, 2) * quantity * (1 - round(discount::numeric, 2)) AS revenue
                    FROM orders JOIN order_details USING (order_id)) AS lines GROUP BY customer_id),
        big AS (SELECT * FROM customers ORDER BY total DESC LIMIT 3)
        SELECT customer_id FROM customers
         WHERE average > (SELECT min(average) FROM big) AND customer_id NOT IN (SELECT customer_id FROM big)
         ORDER BY average DESC""")["customer_id"])


def events(messages: pandas.DataFrame) -> pandas.DataFrame:
    """Return the payloads of messages as columns beside their offset; tombstones are left out."""
    full = messages[messages["value"].notna()]
    payloads = pandas.DataFrame([json.loads(value)["payload"] for value in full["value"]], index=full.index)
    return full[["partition", "offset"]].join(payloads).reset_index(drop=True)


def landed_files(world: World) -> pandas.DataFrame:
    """Return one row for each landed file: folder, file, records, text (its JSON lines)."""
    found = [i for i in files.entries(landing_folder(world), recursive=True) if i.is_file and i.extension == "json"]
    with ThreadPoolExecutor(8) as pool:
        places = [landing_folder(world) + i.path.partition(PREFIX)[2] for i in found]
        texts = [text or "" for text in pool.map(files.read_text, places)]
    return pandas.DataFrame({"folder": [i.path.rpartition("/")[0] for i in found], "file": [i.base_name for i in found],
                             "records": [len(_lines(t)) for t in texts], "text": texts})


def _lines(text: str) -> List[str]:
    """The lines of a file of JSON lines. Not splitlines(): that ends a line at U+2028 and others, too, which JSON holds
    as they are."""
    lines = text.split("\n")
    return lines if lines[-1] else lines[:-1]


def landed_rows(world: World) -> pandas.DataFrame:
    """Return the records of all landed files, read without Spark, in the order of the log.

    Raises: LakeError: a line is not JSON, with its file.
    """
    rows = []
    for landed in landed_files(world).itertuples():
        for number, line in enumerate(_lines(landed.text), 1):
            try:
                rows.append(json.loads(line))
            except ValueError as e:
                raise LakeError(f"a line of a landed file is not JSON: {e}",
                                where=f"{landed.folder}/{landed.file}, line {number}", expected="one JSON object",
                                next_step="remove the file: the landing writes none like it") from None
    return pandas.DataFrame(rows).sort_values("__lsn", ignore_index=True)


def deleted(landed: pandas.DataFrame) -> set:
    """Return the order ids whose last landed record is a delete."""
    last = landed.sort_values("__lsn").groupby("order_id").tail(1)
    return set(last[last["__deleted"] == "true"]["order_id"])


# --- following the source --------------------------------------------------------------------------------------------

def settle(world: World) -> None:
    """Wait until the topic has everything that was committed so far.

    A watermark: one row is written unchanged, and its event is waited for; all earlier ones stand before it in the log.
    """
    mark = postgres.lsn(postgres.wal_position(world))
    postgres.execute(world, """
        UPDATE cdc_events SET order_id = order_id WHERE order_id = (SELECT min(order_id) FROM cdc_events)""")

    def arrived() -> bool:
        ends = topics.ends(world, topic(world))
        last = topics.read(world, topic(world), after={p: max(0, end - 1) for p, end in ends.items()})
        return any(int(lsn) >= mark for lsn in events(last).get("__lsn", []))

    wait_until(arrived, f"topic {topic(world)} to reach the source's position", timeout=60, every=0.2,
               failed=lambda: connect.failure(world, CONNECTOR))


def undo_changes(world: World) -> None:
    """Take back in the source what notebook 14 does: 11077 is not shipped, 11075 is not there."""
    for statement in ("UPDATE orders SET shipped_date = NULL WHERE order_id = 11077 AND shipped_date IS NOT NULL",
                      "DELETE FROM order_details WHERE order_id = 11075",
                      "DELETE FROM orders WHERE order_id = 11075",
                      "DELETE FROM cdc_events WHERE order_id = 11075"):
        postgres.execute(world, statement)


def change(name: str) -> str:
    """Return the SQL of one of the walkthrough's changes (data/northwind/changes)."""
    return (ROOT / "data" / "northwind" / "changes" / f"{name}.sql").read_text(encoding="utf-8")


def follow(spark: SparkSession, world: World) -> hudi.Ingested:
    """Land what is new in the topic, ingest it into the table, and return the counts; the source is settled first."""
    settle(world)
    landing.run(spark, world, connect.config(world, SINK))
    done = hudi.ingest(spark, world, hudi.Landed(PREFIX), table(world))
    hudi.register(spark, table(world))
    return done


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
    rows = hudi.read(spark, table(world)).select(hudi.reader_schema("cdc_events").fieldNames())
    hudi.drop(spark, world, layout)
    begun = time.monotonic()
    rows.write.format("hudi").options(**{**layout.options(), **FIRST_LOAD}).mode("append").save(layout.base)
    written = time.monotonic()
    # every value is touched, or the count would come from the files' footers
    count = hudi.read(spark, layout).selectExpr("count(*)", "max(hash(*))").collect()[0][0]
    scanned = time.monotonic()
    hudi.register(spark, layout)
    found = [i for i in files.entries(layout.base, recursive=True) if i.extension == "parquet"]
    return {"partitioned by": ", ".join(layout.partition), "rows": count,
            "partitions": len({i.path.rpartition("/")[0] for i in found}), "files": len(found),
            "bytes": sum(i.size for i in found), "seconds to write": round(written - begun, 2),
            "seconds to read": round(scanned - written, 2)}
