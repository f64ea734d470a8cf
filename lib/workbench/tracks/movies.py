"""Schema evolution on MariaDB (notebooks/40_schema_evolution): the captures of one table."""

from typing import Any

import yaml

from .. import connect, hudi
from ..base import ROOT, World
from ..flow.capture import Capture
from ..flow.flow import CaptureFlow
from ..flow.resources import Owns, Product
from ..source import mariadb
from .track import Step, Track, ensure, reset

DATABASE = "sampledatabase"
TABLE = f"{DATABASE}.movies"
TOPIC = f"db1.{TABLE}"
CONNECTOR, SINK = "movies_source", "movies_sink"  # as published
# captures the same table; its messages have the log position, the ordering field of the lake table
POSITIONS_CONNECTOR = "movies_positions"
FILE_SINK = "movies_file_sink"  # a sink with a plugin in Kafka Connect
POISONED_TOPIC, POISONED_SINK = "movies.poison", "movies_spoilt"  # of malformed messages
SCRATCH_TOPICS = tuple(f"movies_trial_{n}" for n in range(1, 10))  # one for each schema change
DLQ_TOPICS = {  # {consumer: its dead-letter topic}
    "connect": "movies.dlq",
    "landing": "movies.dlq.landing",
    "lake": "movies.dlq.lake",
}
LAKE_TABLE = {
    "name": "movies",
    "database": DATABASE,
    "ordering": "__source_file,__source_pos,__source_row",
}


def execute(world: World, statement: str, values: Any = None) -> int:
    """Execute a statement in the movies' database, without waiting for events.

    Returns:
        The number of changed rows.
    """
    return mariadb.execute(world, statement, values, DATABASE)


def schema_changes() -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Return a schema, and the result of each kind of change to it: {kind: next schema}."""
    path = ROOT / "data" / "movies" / "changes.yaml"
    spec = yaml.safe_load(path.read_text(encoding="utf-8"))

    def schema(fields: list[Any]) -> dict[str, Any]:
        return {**spec["record"], "fields": [*fields, *spec["own"]]}

    return schema(spec["first"]), {kind: schema(f) for kind, f in spec["changes"].items()}


def source_columns(world: World) -> set[str]:
    """Return the columns of the movies' table in the source; none if there is no table."""
    query = (
        "SELECT column_name FROM information_schema.columns"
        " WHERE table_schema = %s AND table_name = 'movies'"
    )
    return set(mariadb.query(world, query, [DATABASE]).iloc[:, 0])


def _is_evolved(world: World) -> bool:
    """Return whether notebook 43 has made its change, in the source and in the lake."""
    return "COUNTRY" in source_columns(world) and hudi.exists(flow.table(world, "positions"))


def scratch_table(world: World, topic: str) -> hudi.Table:
    """Return the table for trying a schema change with one of SCRATCH_TOPICS."""
    return hudi.table(world, topic, key=("id",), ordering="__lsn", database=DATABASE)


def poisoned_table(world: World) -> hudi.Table:
    """Return the table of the topic with malformed messages."""
    return hudi.table(
        world, "movies_spoilt", key=("movie_id",), ordering="__source_ts_ms", database=DATABASE
    )


def _config(world: World, name: str) -> dict[str, str]:
    """Return the configuration of a connector; that of POISONED_SINK follows from SINK."""
    if name != POISONED_SINK:
        return connect.config(world, name)
    return {
        **connect.config(world, SINK),
        "name": POISONED_SINK,
        "topics": POISONED_TOPIC,
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": DLQ_TOPICS["landing"],
    }


def reset_if_evolved(world: World) -> None:
    """Restore the state after notebook 42, before notebook 43 changes the source."""
    if "COUNTRY" in source_columns(world):
        reset(world, TRACK, since="42_connectors")
    ensure(world, TRACK, "41_source_database", "42_connectors")


flow = CaptureFlow(
    captures=(
        Capture(TABLE, "movie_id", CONNECTOR, SINK, "avro"),
        Capture(
            TABLE,
            "movie_id",
            POSITIONS_CONNECTOR,
            format="avro",
            lake=(LAKE_TABLE,),
            alias="positions",
        ),
    ),
    database=DATABASE,
    config=_config,
    db=mariadb,
)
TRACK = Track(
    "40_schema_evolution",
    (
        "41_source_database",
        "42_connectors",
        Step("43_evolve", Product.TABLES, _is_evolved),
    ),
    flow,
    Owns(
        connectors=(FILE_SINK,),
        sinks=(POISONED_SINK,),
        topics=(POISONED_TOPIC, *SCRATCH_TOPICS, *DLQ_TOPICS.values()),
        tables=lambda world: [
            *(scratch_table(world, topic) for topic in SCRATCH_TOPICS),
            poisoned_table(world),
        ],
        databases=(DATABASE,),
        source_tables=(TABLE,),
    ),
    services=("mariadb", "kafka", "connect", "spark", "apicurio"),
)
