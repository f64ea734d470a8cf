"""An invented walkthrough, a museum's loans: one table, one connector, one sink, one lake table."""

import tempfile
from dataclasses import replace
from pathlib import Path

from workbench import connect
from workbench.flow.baseline import Baseline
from workbench.flow.capture import Capture
from workbench.flow.flow import CaptureFlow
from workbench.flow.resources import OwnedResources
from workbench.flow.steps import Steps, connectors, hudi_ingest, source_database
from workbench.flow.walkthrough import Walkthrough
from workbench.source import postgres
from workbench.source.loading import Loader

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
    baseline.save(world)
    postgres.create_publication(world, flow.publication, ["public.loans"], database=DATABASE)
    postgres.grant_replication(world, ["public.loans"], database=DATABASE)


flow = CaptureFlow(
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
    publication="loans",
    loader=Loader("loans", "public", ("loans",), lambda scale, from_dir: (), DATABASE),
)
baseline = Baseline(("public.loans",), DATABASE)
walkthrough = Walkthrough(
    "70_loans",
    Steps(
        Path(tempfile.gettempdir()) / "70_loans",
        (
            source_database("71_source_database"),
            connectors("72_connectors"),
            hudi_ingest("73_hudi_ingest"),
        ),
        services=("postgres", "kafka", "connect", "spark", "apicurio"),
    ),
    OwnedResources(flow, baseline),
    flow,
    baseline,
)


def in_folder(folder):
    """Return the walkthrough with the notebooks of another folder."""
    return replace(walkthrough, steps=replace(walkthrough.steps, folder=folder))
