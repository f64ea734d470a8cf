"""Payments for the track on operations (notebooks/80_operations): a pipeline, and the work on it.

One source table, one connector, one lake table. Each notebook begins with a new pipeline (`start`).
"""

import contextlib
import math
import time
from random import Random
from threading import Event
from typing import Any, Iterator, Optional

from .. import hudi
from ..base import ROOT, World
from ..base.wait import background
from ..flow.capture import Capture
from ..flow.flow import CaptureFlow
from ..flow.resources import Owns
from ..source import loading, postgres
from ..source.names import format_sql
from ..spark import session
from ..topic import topics
from .track import Track, reset

DATABASE = "operations"
CONNECTOR = "operations_source"
SIGNALS = "operations.signals"  # topic of Debezium's signals
ACCEPTED, QUARANTINE = "operations.accepted", "operations.quarantine"  # topics of notebook 86
NOTIFICATIONS = "operations.notifications"  # topic of the notifications of its snapshots
ROWS = 20_000  # payments at scale 1
REGIONS = ("north", "east", "south", "west")
STATES = ("open", "paid", "refunded")
PUBLISHED = ("public.payments", "public.debezium_signal")
LABEL = "after_load"
CHANGES = (
    *["UPDATE payments SET amount = amount + 1 WHERE id = %(id)s"] * 7,
    "UPDATE payments SET region = %(region)s WHERE id = %(id)s",
    "INSERT INTO payments SELECT max(id) + 1, %(id)s, %(region)s, 1, 'open', NULL, now() FROM payments",
    "DELETE FROM payments WHERE id = %(id)s",
)
PAYMENTS = {
    "name": "payments",
    "database": DATABASE,
    "ordering": "__lsn",
    "type": "mor",
    "index": "BUCKET",
    "buckets": 2,
}


def _steps(from_dir: Any) -> loading.Steps:
    folder = ROOT / "data" / DATABASE
    return [loading.Script(folder / f"payments_{name}.sql") for name in ("ddl", "rows")]


loader = loading.Loader(
    DATABASE,
    "public",
    ("payments", "debezium_signal", "refunds", "heartbeat"),
    _steps,
    database=DATABASE,
    scales=(0.01, 1000),
)
flow = CaptureFlow(
    captures=(
        Capture(
            "public.payments", "id", CONNECTOR, format="avro", lake=(PAYMENTS,), types="analyst"
        ),
    ),
    database=DATABASE,
    publication=DATABASE,
    loader=loader,
    label=LABEL,
)
# the table that joins the running capture in notebook 85
joined = CaptureFlow(
    captures=(
        Capture(
            "public.refunds",
            "id",
            CONNECTOR,
            format="avro",
            lake=({"name": "refunds", "database": DATABASE, "ordering": "__ts_ns"},),
            types="analyst",
        ),
    ),
    database=DATABASE,
)
TRACK = Track(
    "80_operations",
    ("81_freshness",),
    flow,
    Owns(
        topics=(SIGNALS, NOTIFICATIONS, ACCEPTED, QUARANTINE, "operations.public.refunds"),
        schemas=(f"{ACCEPTED}-value",),
        groups=(SIGNALS,),
        tables=joined.tables,
        databases=(DATABASE,),
    ),
    services=("postgres", "kafka", "connect", "spark", "apicurio"),
    local_only=True,
)


def start_capture(world: World, scale: float = 1) -> None:
    """Remove the pipeline, and capture newly generated payments, without a lake table.

    Args:
        world: the world; its services run.
        scale: 1 for 20,000 payments.
    """
    reset(world, TRACK)
    loader.load(world, scale=scale, confirm=lambda question: True, progress=lambda line: None)
    postgres.create_publication(world, flow.publication, PUBLISHED, DATABASE)
    postgres.grant_replication(world, PUBLISHED, DATABASE)
    # an incremental snapshot writes its watermarks into the first table, a heartbeat into the other
    for grant in ("INSERT ON debezium_signal", "UPDATE ON heartbeat"):
        statement = format_sql(f"GRANT {grant} TO {{}}", world.postgres.replication_user)
        postgres.execute(world, statement, database=DATABASE)
    for topic in (SIGNALS, NOTIFICATIONS):
        topics.create(world, topic)
    flow.deploy(world)


def start(world: World, scale: float = 1) -> hudi.Table:
    """Start the capture as `start_capture` does, and ingest the payments.

    Args:
        world: the world; its services run.
        scale: 1 for 20,000 payments.

    Returns:
        The lake table, which equals the source and has the label LABEL.
    """
    start_capture(world, scale)
    flow.sync(session(world), world, label=LABEL)
    return flow.table(world)


def change_payments(
    world: World,
    count: int,
    seed: int = 1,
    *,
    per_second: float = math.inf,
    stop: Optional[Event] = None,
) -> int:
    """Make random changes in the source, each in a transaction of its own.

    Of ten changes, seven set an amount, one sets a region, one adds a payment, and one deletes a
    payment, if it still exists.

    Args:
        world: the world.
        count: number of changes.
        seed: the same seed makes the same changes of the same rows.
        per_second: the rate.
        stop: ends the changes when it is set.

    Returns:
        The number of changes.
    """
    random, begin, stop = Random(seed), time.monotonic(), stop or Event()
    with postgres.session(world, DATABASE) as connection:
        (last,) = connection.execute("SELECT max(id) FROM payments").fetchone() or (0,)
        for number in range(count):
            if stop.wait(max(0.0, begin + number / per_second - time.monotonic())):
                return number
            values = {"id": random.randrange(1, last + 1), "region": random.choice(REGIONS)}
            connection.execute(random.choice(CHANGES), values)
    return count


@contextlib.contextmanager
def writing(world: World, per_second: float = 100, seed: int = 1) -> Iterator[None]:
    """Change payments in a thread while the block runs (see `change_payments`)."""
    with background(
        lambda stop: change_payments(world, 10**9, seed, per_second=per_second, stop=stop)
    ):
        yield
