"""An invented walkthrough, a museum's loans: one table, one connector, one sink, one lake table."""

import tempfile
from pathlib import Path

from workbench import connect
from workbench.source import postgres
from workbench.source.loading import Loader
from workbench.walkthroughs.capture import Capture
from workbench.walkthroughs.walkthrough import Walkthrough

DATABASE = "loans_lab"


def config(world, name):
    if name == "loans_sink":
        return {
            **connect.config(world, "moma_sink"),
            "topics.regex": r"loans\.public\.(.*)",
            "topics.dir": "loans",
        }
    own = {
        "topic.prefix": "loans",
        "slot.name": postgres.slot_prefix(world) + "loans",
        "publication.name": "loans",
    }
    return {
        **connect.config(world, "moma_source"),
        **own,
        "database.dbname": DATABASE,
        "table.include.list": "public.loans",
    }


def load(world):
    postgres.execute(
        world,
        """
        CREATE TABLE loans (loan_id int PRIMARY KEY, lender text, value numeric(12, 2), due date);
        INSERT INTO loans SELECT n, 'Lender ' || n % 3, n * 1000.5, DATE '2030-01-01' + n
          FROM generate_series(1, 30) n""",
        database=DATABASE,
    )
    flow.save_baseline(world)
    postgres.create_publication(world, flow.publication, ["public.loans"], database=DATABASE)
    postgres.grant_replication(world, ["public.loans"], database=DATABASE)


flow = Walkthrough(
    captures=(
        Capture(
            "public.loans",
            "loan_id",
            "loans_source",
            "loans_sink",
            "avro",
            lake=(
                {
                    "name": "loans",
                    "ordering": "__lsn",
                    "partition": ("lender",),
                    "index": "GLOBAL_SIMPLE",
                },
            ),
        ),
    ),
    database=DATABASE,
    config=config,
    folder=Path(tempfile.gettempdir()) / "70_loans",
    publication="loans",
    loader=Loader("loans", "public", ("loans",), lambda scale, from_dir: (), DATABASE),
    services=("postgres", "kafka", "connect", "spark", "apicurio"),
)
