"""What every measure of the benchmark needs: a line of the result, a clock, a write."""
from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from workbench import hudi

BEGUN = time.monotonic()


@dataclass(frozen=True)
class Line:
    """One line of the result. `figure` is what the goal speaks of: seconds, a ratio, or rows per second."""

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
