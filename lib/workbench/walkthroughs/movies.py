"""What is particular to the walkthrough on schema evolution (notebooks/40_schema_evolution): its
captures of a table on MariaDB. `flow` has what every walkthrough has.
"""

from typing import Any

import yaml

from .. import connect, hudi
from ..base import ROOT, World
from ..source import mariadb
from .flow import Capture
from .walkthrough import Walkthrough

DATABASE = "sampledatabase"
TABLE = f"{DATABASE}.movies"
TOPIC = f"db1.{TABLE}"
CONNECTOR, SINK = "movies_source", "movies_sink"  # as published
# the same source, whose messages say their place in the log: the lake goes by it
POSITIONS_CONNECTOR = "movies_positions"
FILE_SINK = "movies_file_sink"  # a sink that Connect itself runs
POISONED_TOPIC, SCRATCH_TOPIC = (
    "movies.poison",
    "movies.scratch_table",
)  # topics to spoil, and to try changes of a schema with
DLQ_TOPICS = {
    "connect": "movies.dlq",
    "landing": "movies.dlq.landing",
    "lake": "movies.dlq.lake",
}  # dead ones, by reader
LAKE_TABLE = {
    "name": "movies",
    "database": DATABASE,
    "ordering": "__source_file,__source_pos,__source_row",
}


def execute(world: World, statement: str, values: Any = None) -> int:
    """Run a statement in the movies' database; return how many rows it changed. It waits for no
    event.
    """
    return mariadb.execute(world, statement, values, DATABASE)


def schema_changes() -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """A schema, and what becomes of it by each kind of change: {kind: the next schema}."""
    said = yaml.safe_load((ROOT / "data" / "movies" / "changes.yaml").read_text(encoding="utf-8"))
    first, *changed = (
        {**said["record"], "fields": [*fields, *said["own"]]}
        for fields in (said["first"], *said["changes"].values())
    )
    return first, dict(zip(said["changes"], changed))


def source_columns(world: World) -> set[str]:
    """The columns of the movies' table in the source; none where there is no table."""
    asked = "SELECT column_name FROM information_schema.columns WHERE table_schema = %s AND table_name = 'movies'"
    return set(mariadb.query(world, asked, [DATABASE]).iloc[:, 0])


def _is_evolved(world: World) -> bool:
    """Whether notebook 43 has made its change, at the source and in the lake."""
    return "COUNTRY" in source_columns(world) and hudi.exists(flow.table(world, "positions"))


def scratch_table(world: World) -> hudi.Table:
    """A table to try changes of a schema with."""
    return hudi.table(world, "movies_trial", key=("id",), ordering="__lsn", database=DATABASE)


def poisoned_table(world: World) -> hudi.Table:
    """The table of a topic in which there is poison."""
    return hudi.table(
        world, "movies_spoilt", key=("movie_id",), ordering="__source_ts_ms", database=DATABASE
    )


def poisoned_sink(world: World) -> dict[str, str]:
    """The configuration by which that topic is landed."""
    return {
        **connect.config(world, SINK),
        "name": "movies_spoilt",
        "topics": POISONED_TOPIC,
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": DLQ_TOPICS["landing"],
    }


def reset_if_evolved(world: World) -> None:
    """Have what the notebooks up to 42 make; all of it is made anew where 43 has changed the
    source.
    """
    if "COUNTRY" in source_columns(world):
        flow.reset(world, "42_connectors")
    flow.ensure(world, "41_source_database", "42_connectors")


flow = Walkthrough(
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
    engine="mariadb",
    watermark=False,
    folder=ROOT / "notebooks" / "40_schema_evolution",
    extra_connectors=(FILE_SINK,),
    extra_sinks=lambda world: [poisoned_sink(world)],
    own_topics=(POISONED_TOPIC, SCRATCH_TOPIC, *DLQ_TOPICS.values()),
    scratch_tables=lambda world: [scratch_table(world), poisoned_table(world)],
    catalog_databases=(DATABASE,),
    completion_checks={"43_evolve": _is_evolved},
    services=("mariadb", "kafka", "connect", "spark", "apicurio"),
    plugins=("filestream",),
)
