"""What every measure of the benchmark needs: a line of the result, a clock, a write, the source."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Callable

from workbench.source import postgres
from workbench.tracks import northwind, outbox

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from workbench import hudi
    from workbench.base.params import World

BEGUN, SCALE = time.monotonic(), 100


@dataclass(frozen=True)
class Line:
    """One line of the result. `figure` is what the goal speaks of: seconds, a ratio, or rows per
    second."""

    what: str
    ours: str
    beside: str
    figure: float
    unit: str
    goal: float
    more_is_better: bool = False

    @property
    def met(self) -> bool:
        return self.figure >= self.goal if self.more_is_better else self.figure <= self.goal


def say(text: str) -> None:
    """Print one line with the time since the start."""
    print(f"{time.monotonic() - BEGUN:6.1f} s  {text}", flush=True)


def seconds(work: Callable[[], Any]) -> float:
    """Do it and return how long it took."""
    begun = time.monotonic()
    work()
    return time.monotonic() - begun


def write(rows: DataFrame, table: hudi.Table, options: dict[str, str]) -> None:
    """Write rows to a Hudi table with exactly these options."""
    rows.write.format("hudi").options(**options).mode("append").save(table.base)


@cache
def outbox_rows(world: World) -> int:
    """Load the source and publish its outbox, once in a run; return the number of rows in the
    outbox.

    Several measures need the source, and the loader refuses to load it a second time.
    """
    loaded = northwind.loader.load(
        world, scale=SCALE, confirm=lambda _: True, progress=lambda _: None
    )
    postgres.grant_replication(world, [outbox.TABLE])
    postgres.create_publication(world, outbox.flow.publication, [outbox.TABLE])
    return loaded["cdc_events"]
