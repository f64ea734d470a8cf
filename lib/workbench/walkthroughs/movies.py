"""What is particular to the walkthrough on schema evolution (notebooks/40_schema_evolution): its captures of a table on
MariaDB. `flow` has what every walkthrough has.
"""

from .. import hudi
from ..base import ROOT, World
from ..source import mariadb
from .flow import Capture
from .walkthrough import Walkthrough

DATABASE = "sampledatabase"
TABLE = f"{DATABASE}.movies"
TOPIC = f"db1.{TABLE}"
CONNECTOR, SINK = "movies_source", "movies_sink"  # as published
POSITIONS = "movies_positions"  # the same source, whose messages say their place in the log: the lake goes by it
FILE_SINK, LETTERS = "movies_file_sink", "movies.dlq"  # a sink that runs in Connect, and where it puts dead letters
POISON = "movies.poison"  # a topic to spoil, with a copy of the messages
LAKE = {"name": "movies", "database": DATABASE, "ordering": "__source_file,__source_pos,__source_row"}


def _evolved(world: World) -> bool:
    """Whether notebook 43 has made its change, at the source and in the lake."""
    asked = "SELECT column_name FROM information_schema.columns WHERE table_schema = %s AND table_name = 'movies'"
    there = set(mariadb.frame(world, asked, [DATABASE]).iloc[:, 0])
    return "COUNTRY" in there and hudi.exists(flow.table(world, "positions"))


def begin(world: World) -> None:
    """Have what the notebooks up to 42 make; all of it is made anew where 43 has changed it."""
    if flow.is_done(world, "43_evolve"):
        flow.reset(world, "42_connectors")
    flow.ensure(world, "41_source_database", "42_connectors")


flow = Walkthrough(
    captures=(Capture(TABLE, "movie_id", CONNECTOR, SINK, "avro"),
              Capture(TABLE, "movie_id", POSITIONS, format="avro", lake=(LAKE,), known_as="positions")),
    database=DATABASE, engine="mariadb",
    watermark=False,
    folder=ROOT / "notebooks" / "40_schema_evolution",
    looks=(FILE_SINK,),
    databases=(DATABASE,),
    steps={"43_evolve": _evolved},
    services=("mariadb", "kafka", "connect", "spark", "apicurio"),
)
