"""What is particular to log-based CDC on Pagila (notebooks/30_log_based_cdc): its captures, and how
its events and its raw zone are read. `flow` has what every walkthrough has. There is no Hudi in it:
tables are made with SQL.
"""

from __future__ import annotations

import json

import pandas
from pyspark.sql import SparkSession

from ..base import ROOT, World
from ..results import query
from ..source import sql_file
from ..spark import session
from ..topic import registry, topics
from . import pagila
from .capture import Capture
from .walkthrough import Walkthrough

DATABASE = pagila.loader.database
CONNECTOR = "pagila_source"
ENVELOPE_CONNECTOR = (
    "pagila_source_envelope"  # the same connector as it is deployed first, without a transform
)
SINK = "pagila_sink"
POLLING_CONNECTOR = "pagila_poll"  # query-based capture of three of the tables, for notebook 36
CATALOG = "pagila_kafka_connect"  # the catalog's database, as published
REFINED_FOLDER = "refined/film"  # folder of the refined table
KEY_COLUMNS = {
    "actor": "actor_id",
    "film": "film_id",
    "film_actor": ("actor_id", "film_id"),
    "category": "category_id",
    "film_category": ("film_id", "category_id"),
    "language": "language_id",
}
EXPECTED_SQL = {"film": sql_file("pagila/queries/film")}
TOASTED_COLUMNS = {"film": "description"}  # where a table has none, the empty text takes its place
# of films: asked for as JSON, for as text Athena's arrays do not tell where a value ends
ARRAY_COLUMN = "special_features"


def events(
    world: World, name: str, start_offsets: dict[int, int] | None = None
) -> pandas.DataFrame:
    """The messages of a table's topic, decoded: offset, key, then the fields of the value, all None
    of a tombstone.
    after: those that came since (see topics.end_offsets).

    Raises: LakeError: there is no such topic, or a message cannot be decoded.
    """
    decode = registry.Decoder(world)

    def one(raw: str | bytes | None) -> dict:
        return {} if raw is None else decode(raw.encode() if isinstance(raw, str) else raw).record

    found = topics.read(world, flow.topic(world, name), start_offsets=start_offsets)
    values = pandas.DataFrame(
        [one(value) for value in found["value"]], index=found.index, dtype=object
    )
    return (
        found[["offset"]]
        .assign(key=[one(key) for key in found["key"]])
        .join(values.where(values.notna(), None))
    )


def catalog_table(name: str) -> str:
    """The name that a crawler gives to a table's raw files in the catalog."""
    return f"{CATALOG}.pagila_public_{name}"


def latest_sql(name: str, world: World) -> str:
    """The query for the state of a table as its raw files have it: the newest event of each key,
    but of the deleted. S7 orders by time: what one transaction changed twice has one time, and a
    clock may be set back. A large value that an update does not touch is not in the log; Debezium
    puts a placeholder there. It is still what it was in the newest event that has it.
    """
    keys, large = ", ".join(flow.capture(name).keys), TOASTED_COLUMNS.get(name, "''")
    said = {
        large: f"known AS {large}",
        ARRAY_COLUMN: f"json_format(CAST({ARRAY_COLUMN} AS JSON)) AS {ARRAY_COLUMN}",
    }
    columns = [said.get(c, c) for c in flow.rows(world, name, "false").columns]
    return sql_file("pagila/queries/latest").format(
        columns=", ".join(columns), keys=keys, table=catalog_table(name), large=large
    )


def history_sql(name: str, position: int | None = None) -> str:
    """Return the query for all versions of a table's rows: the columns of its raw files, and the
    log positions between which a version is valid, `valid_from` (of its own event) and `valid_to`
    (of the next event of its key, null for the current version). A delete ends a version and begins
    none.

    Args:
        position: an LSN; only the versions that are valid there, one for each row that the table
            had then.
    """
    valid = (
        ""
        if position is None
        else f" AND valid_from <= {position} AND (valid_to > {position} OR valid_to IS NULL)"
    )
    keys = ", ".join(flow.capture(name).keys)
    return (
        sql_file("pagila/queries/history")
        .format(keys=keys, table=catalog_table(name), valid=valid)
        .rstrip()
    )


def latest(spark: SparkSession, world: World, name: str) -> pandas.DataFrame:
    """Its answer, in the form of `flow.rows`."""
    rows = query.sql(spark, latest_sql(name, world))
    if ARRAY_COLUMN in rows:
        rows[ARRAY_COLUMN] = [text and json.loads(text) for text in rows[ARRAY_COLUMN]]
    rows["last_update"] = pandas.to_datetime(
        rows["last_update"], unit="us"
    )  # as Debezium writes a timestamp
    return rows


def _changes_made(world: World) -> bool:
    """Whether notebook 33 has made both rounds of changes: the last of them deletes film 5."""
    return flow.rows(world, "film", "film_id = 5").empty


def _tables_cataloged(world: World) -> bool:
    """Whether notebook 34 has put the raw files into the catalog."""
    return all(session(world).catalog.tableExists(catalog_table(name)) for name in flow.names)


flow = Walkthrough(
    captures=tuple(
        Capture(
            f"public.{name}", key, CONNECTOR, SINK, "avro", expected_sql=EXPECTED_SQL.get(name, "")
        )
        for name, key in KEY_COLUMNS.items()
    ),
    database=DATABASE,
    watermark=False,  # the notebooks count the events
    folder=ROOT / "notebooks" / "30_log_based_cdc",
    publication="pagila_publication",
    loader=pagila.loader,
    extra_connectors=(POLLING_CONNECTOR,),
    restorable_tables=(
        "public.inventory",
    ),  # film 5 can be deleted when no copy of it is in a shop
    catalog_databases=(CATALOG,),
    lake_folders=(REFINED_FOLDER,),
    completion_checks={"33_changes": _changes_made, "34_latest": _tables_cataloged},
    services=("postgres", "kafka", "connect", "spark", "apicurio"),
)
