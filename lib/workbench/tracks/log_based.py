"""Log-based change data capture on Pagila (notebooks/30_log_based_cdc).

This module declares the captures, and queries their events and their raw zone. The walkthrough does
not use Hudi; its tables are created with SQL.
"""

from __future__ import annotations

import json
from typing import Any

import pandas
from pyspark.sql import SparkSession

from .. import query
from ..base import World
from ..flow.capture import Capture
from ..flow.flow import CaptureFlow
from ..flow.resources import Owns, Product
from ..source import sql_file
from ..spark import session
from ..topic import registry, topics
from . import pagila
from .track import Step, Track

DATABASE = pagila.loader.database
CONNECTOR = "pagila_source"
ENVELOPE_CONNECTOR = "pagila_source_envelope"  # the same connector without a transform
SINK = "pagila_sink"
POLLING_CONNECTOR = "pagila_poll"  # query-based capture of three of the tables, for notebook 36
CATALOG = "pagila_kafka_connect"  # the catalog database, as published
REFINED_FOLDER = "refined/film"  # folder of the refined table
KEY_COLUMNS: dict[str, str | tuple[str, ...]] = {
    "actor": "actor_id",
    "film": "film_id",
    "film_actor": ("actor_id", "film_id"),
    "category": "category_id",
    "film_category": ("film_id", "category_id"),
    "language": "language_id",
}
EXPECTED_SQL = {"film": sql_file("pagila/queries/film")}
TOASTED_COLUMNS = {"film": "description"}  # {table: column of large values}
# An array column of films. It is queried as JSON: Athena's text of an array does not show where an
# element ends.
ARRAY_COLUMN = "special_features"


def events(
    world: World, name: str, start_offsets: dict[int, int] | None = None
) -> pandas.DataFrame:
    """Return the messages of a table's topic, decoded.

    Args:
        world: the world.
        name: name of the table.
        start_offsets: the first offset of each partition (see `topics.end_offsets`), by default
            the beginning.

    Returns:
        Columns offset, key, then the fields of the value, which are None for a tombstone.

    Raises:
        LakeError: the topic does not exist, or a message cannot be decoded.
    """
    decode = registry.Decoder(world)

    def to_record(raw: str | bytes | None) -> dict[str, Any]:
        return {} if raw is None else decode(raw.encode() if isinstance(raw, str) else raw).record

    messages = topics.read(world, flow.topic(world, name), start_offsets=start_offsets)
    values = pandas.DataFrame(map(to_record, messages["value"]), index=messages.index, dtype=object)
    keys = messages[["offset"]].assign(key=[*map(to_record, messages["key"])])
    return keys.join(values.where(values.notna(), None))


def catalog_table(name: str) -> str:
    """Return the catalog name of a table's raw files, as a crawler derives it."""
    return f"{CATALOG}.pagila_public_{name}"


def latest_sql(name: str, world: World) -> str:
    """Return the query for the current rows of a table, from its raw files.

    The query selects the last event of each key, without deleted rows. S7 orders by time, but changes
    of one transaction have the same time, and a clock may be set back. For a large (TOASTed) column
    that an UPDATE did not change, the log has no value, and Debezium writes a placeholder. The query
    then uses the value of the last event with a value.
    """
    keys = ", ".join(flow.capture(name).keys)
    large = TOASTED_COLUMNS.get(name, "''")
    expressions = {
        large: f"known AS {large}",
        ARRAY_COLUMN: f"json_format(CAST({ARRAY_COLUMN} AS JSON)) AS {ARRAY_COLUMN}",
    }
    columns = [expressions.get(c, c) for c in flow.rows(world, name, "false").columns]
    return sql_file("pagila/queries/latest").format(
        columns=", ".join(columns), keys=keys, table=catalog_table(name), large=large
    )


def history_sql(name: str, position: int | None = None) -> str:
    """Return the query for all versions of a table's rows, from its raw files.

    The result has the columns of the files, and the log positions between which a version is valid:
    `valid_from` (of its own event) and `valid_to` (of the key's next event, null for the current
    version). A delete ends a version and starts none.

    Args:
        name: name of the table.
        position: an LSN; return only the versions that are valid at this position, one per row.
    """
    valid = ""
    if position is not None:
        valid = f" AND valid_from <= {position} AND (valid_to > {position} OR valid_to IS NULL)"
    keys = ", ".join(flow.capture(name).keys)
    template = sql_file("pagila/queries/history")
    return template.format(keys=keys, table=catalog_table(name), valid=valid).rstrip()


def latest(spark: SparkSession, world: World, name: str) -> pandas.DataFrame:
    """Return the result of `latest_sql` in the form of `flow.rows`."""
    rows = query.sql(spark, latest_sql(name, world))
    if ARRAY_COLUMN in rows:
        rows[ARRAY_COLUMN] = [text and json.loads(text) for text in rows[ARRAY_COLUMN]]
    # Debezium writes a timestamp as microseconds since 1970
    rows["last_update"] = pandas.to_datetime(rows["last_update"], unit="us")
    return rows


def _changes_made(world: World) -> bool:
    """Return whether notebook 33 has made its changes: the last one deletes film 5."""
    return bool(flow.rows(world, "film", "film_id = 5").empty)


def _tables_cataloged(world: World) -> bool:
    """Return whether notebook 34 has added the raw files to the catalog."""
    return all(session(world).catalog.tableExists(catalog_table(name)) for name in flow.names)


flow = CaptureFlow(
    captures=tuple(
        Capture(
            f"public.{name}", key, CONNECTOR, SINK, "avro", expected_sql=EXPECTED_SQL.get(name, "")
        )
        for name, key in KEY_COLUMNS.items()
    ),
    database=DATABASE,
    publication="pagila_publication",
    loader=pagila.loader,
)
TRACK = Track(
    "30_log_based_cdc",
    (
        "31_source_database",
        "32_connectors",
        Step("33_changes", Product.TABLES, _changes_made),
        Step("34_latest", Product.TABLES, _tables_cataloged),
    ),
    flow,
    Owns(
        connectors=(POLLING_CONNECTOR,),
        databases=(CATALOG,),
        folders=(f"tables/{REFINED_FOLDER}",),
    ),
    services=("postgres", "kafka", "connect", "spark", "apicurio"),
)
