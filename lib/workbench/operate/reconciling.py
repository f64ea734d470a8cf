"""Comparing source tables with lake tables, also while changes continue.

Checksums over ranges of keys find the ranges that differ, and in them the keys (reconcile_sql.py). The rows of these
keys are read again in rounds: those of the source, then those of the lake after it has what the source had. A key is a
difference if neither row was written between two rounds.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Callable, Optional

import pandas as pd
import pyarrow
from pyspark.sql import SparkSession

from .. import hudi, stack, walkthroughs
from ..base import LakeError, World, wait_until
from ..base.text import plural
from ..hudi import changes
from ..hudi.ingesting import last_ingest_commit, read_progress
from ..hudi.labeling import resolve_instant
from ..hudi.timeline import completed_actions
from ..spark import session
from ..topic import topics
from ..walkthroughs.flow import CaptureFlow
from .reconcile_result import Reconciliation
from .reconcile_sides import duckdb_side, lake_side, lake_types, source_side
from .reconcile_sql import PLACE, Side, Sums

DIFFERENT, MISPLACED = "different", "in a wrong partition"
RANGES = 1024
ROUNDS = 10
MAX_LISTED_KEYS = 300
MAX_NAMED_KEYS = 1000  # in a condition; more keys are selected by their ranges
MAX_MESSAGES = 10_000_000  # after a label
# {number of a key: what source and lake have; None for no row}
Pairs = dict[int, tuple[Optional[Sums], Optional[Sums]]]
Condition = Callable[[Side], str]


def reconcile(
    world: World,
    flow: str,
    table: str = "",
    at: str = "",
    progress: Callable[[Reconciliation], None] = lambda result: None,
) -> list[Reconciliation]:
    """Compare the lake tables of a flow with their source tables, and store the results.

    The changes of the source are ingested before. They may continue meanwhile.

    Args:
        world: the world.
        flow: name of an own flow, or of a walkthrough.
        table: name of a captured table, by default all.
        at: label of the lake's rows to compare. The source has its rows of now, so keys that changed after the
            label are left out. By default the lake's rows of now.
        progress: called with each result.

    Raises:
        LakeError: there is no such flow, table or label; the changes cannot be ingested; or the position of the
            label in the topic is unknown.
        SourceError: the source cannot be read.
    """
    found, name = walkthroughs.find_captured_table(f"{flow}/{table}" if table else flow, world)
    captured, own = found.flow, found.resources.own
    if not captured:
        raise LakeError(f"{flow} has no captured tables", expected="a flow that captures tables")
    of_source = world.source(own.name) if own else world
    stack.ensure_running(of_source, *found.steps.services)
    results = []
    for each in [name] if name else captured.names:
        for lake_table in captured.tables(of_source, each):
            comparison = _Comparison(of_source, session(of_source), captured, each, lake_table)
            results.append(comparison.run(found.name, at))
            results[-1].save(world)
            progress(results[-1])
    return results


@dataclass
class _Comparison:
    """The comparison of a source table with one of its lake tables.

    Attributes:
        world: the world of the source.
        spark: the Spark session.
        flow: the flow.
        name: name of the captured table.
        table: the lake table.
        instant: the commit whose rows `lake` has; "" before the first one.
    """

    world: World
    spark: SparkSession
    flow: CaptureFlow
    name: str
    table: hudi.Table
    instant: str = field(init=False, default="")
    source: Side = field(init=False)
    lake: Side = field(init=False)

    def run(self, flow_name: str, at: str) -> Reconciliation:
        """Compare, as `reconcile` does."""
        started = time.monotonic()
        position = self.flow.db.log_position(self.world, self.flow.database)
        self.ingest()
        self.instant = self.find_instant(at)
        types = lake_types(self.spark, self.world, self.table, self.instant)
        self.source = source_side(self.spark, self.world, self.flow, self.name, types)
        self.open_lake()
        condition, rows = self.different_ranges()
        differing, undecided, excluded = Pairs(), Pairs(), set[int]()
        if condition and not at:
            differing, undecided = self.decide(condition)
        elif at:
            found = self.read(condition) if condition else {}
            self.ingest()
            excluded = self.changed_keys()
            differing = {key: pair for key, pair in found.items() if key not in excluded}
        return Reconciliation(
            flow_name,
            self.table.name,
            position,
            self.instant,
            rows,
            dict(Counter(_kind(*pair) for pair in differing.values())),
            self.describe(differing),
            len(excluded),
            len(undecided),
            [name for name in types if name not in self.source.columns and name[:2] != "__"],
            time.monotonic() - started,
        )

    @property
    def sides(self) -> tuple[Side, Side]:
        """Source and lake."""
        return self.source, self.lake

    @property
    def change_source(self) -> changes.Source:
        """The source of the lake table's changes."""
        kind = self.flow.source_kind(self.world, self.table)
        return self.flow.source(self.world, self.name, kind)

    def ingest(self) -> None:
        """Wait until the lake has what the source has committed so far, also if another process ingests."""
        self.flow.wait_until_captured(self.world)
        source, end = self.change_source, dict[int, int]()
        if isinstance(source, changes.Topic) and not self.flow.polled:
            end = topics.end_offsets(self.world, source.name)

        def has_arrived() -> bool:
            offsets = self.progress().get("offsets", {})
            return bool(end) and all(offsets.get(str(p), 0) >= n for p, n in end.items())

        def ingest() -> bool:
            self.flow.ingest(self.spark, self.world, self.table, stop=has_arrived)
            return True

        wait_until(
            lambda: has_arrived() or ingest(),
            f"table {self.table.name} to have the changes of {source.name}",
            timeout=120,
            is_transient=lambda error: "another ingest" in str(error),
        )

    def progress(self, until: str = "9") -> changes.SourceProgress:
        """Return the position of the lake table in its source, as of an instant."""
        actions = [each for each in completed_actions(self.table) if each.instant <= until]
        return read_progress(last_ingest_commit(self.table, actions)).get(self.change_source.id, {})

    def find_instant(self, at: str = "") -> str:
        """Return the instant of a label, by default of the last commit; "" without one."""
        if at:
            return resolve_instant(self.world, self.table, at)
        return max((action.instant for action in completed_actions(self.table)), default="")

    def open_lake(self) -> None:
        """Read the lake table as of `instant`."""
        self.lake = lake_side(self.spark, self.world, self.table, self.instant, self.source)

    def different_ranges(self) -> tuple[Optional[Condition], tuple[int, int]]:
        """Return a condition for the keys in ranges that differ, None for no range; and the numbers of rows."""
        bounds = self.source.bounds() + self.lake.bounds()
        low, width = min(bounds), (max(bounds) - min(bounds)) // RANGES + 1
        source, lake = (side.sums(side.part(low, width)) for side in self.sides)
        rows = sum(n for n, *_ in source.values()), sum(n for n, *_ in lake.values())
        parts = ", ".join(map(str, _differing(source, lake)))
        return (lambda side: f"{side.part(low, width)} IN ({parts})") if parts else None, rows

    def read(self, condition: Condition, between: Callable[[], None] = lambda: None) -> Pairs:
        """Return what differs among the keys of a condition.

        Args:
            condition: the condition.
            between: called after the source was read, and before the lake is.
        """
        source = self.source.sums(self.source.number, condition(self.source))
        between()
        return _differing(source, self.lake.sums(self.lake.number, condition(self.lake)))

    def follow(self) -> None:
        """Ingest, and read the lake table again if it has a new commit."""
        self.ingest()
        instant = self.find_instant()
        if instant != self.instant:
            self.instant = instant
            self.open_lake()

    def decide(self, condition: Condition) -> tuple[Pairs, Pairs]:
        """Return the differences among the keys of a condition, and those that are undecided after ROUNDS.

        The lake has what the source had when it was read last. If the row in the lake is the same as before that,
        the key had no change in between, so its difference lasts.
        """
        undecided, decided = self.read(condition), Pairs()
        for _ in range(ROUNDS):
            if len(undecided) <= MAX_NAMED_KEYS:
                condition = partial(_names, [*undecided])
            latest = self.read(condition, self.follow) if undecided else {}
            latest = {key: pair for key, pair in latest.items() if key in undecided}
            decided.update({k: pair for k, pair in latest.items() if pair == undecided[k]})
            undecided = {k: pair for k, pair in latest.items() if k not in decided}
        return decided, undecided

    def changed_keys(self) -> set[int]:
        """Return the numbers of the keys that have messages after `instant`.

        Raises:
            LakeError: the commit of `instant` does not say which messages it has.
        """
        source, progress = self.change_source, self.progress(self.instant)
        if "offsets" not in progress:
            raise LakeError(
                f"which changes followed {self.instant} is unknown",
                location=self.table.base,
                expected="a table that is ingested from a topic",
                hint="compare its rows of now, without --at",
            )
        kinds = {name: self.source.columns[name] for name in self.source.key}
        reader = changes.create_reader(self.spark, self.world, source, self.table, MAX_MESSAGES)
        with closing(reader):
            batch = reader.next(progress, 0)
            if batch is None:
                return set()
            keys = batch.rows.select(*(f"row.{name}" for name in kinds)).dropna().distinct()
            rows = pyarrow.Table.from_pandas(keys.toPandas(), pyarrow.schema(kinds))
        changed = duckdb_side(rows, kinds, self.source.key)
        return {*changed.sums(changed.number)}

    def describe(self, pairs: Pairs) -> pd.DataFrame:
        """Return a row for each different value of some keys: key, kind, column, source, lake."""
        keys, lines = sorted(pairs)[:MAX_LISTED_KEYS], list[tuple[Optional[str], ...]]()
        source, lake = (side.texts(_names(keys, side)) if keys else {} for side in self.sides)
        for key in keys:
            kind, ours, theirs = _kind(*pairs[key]), source.get(key, []), lake.get(key, [])
            row = [*ours, *theirs, {}][0]
            name = ", ".join(str(row.get(column)) for column in self.source.key)
            if kind != DIFFERENT:
                lines.append((name, kind, "", plural(len(ours), "row"), plural(len(theirs), "row")))
            for row in theirs if ours else ():
                cells = [(c, ours[0][c], text) for c, text in row.items() if text != ours[0][c]]
                lines += [(name, MISPLACED if c == PLACE else kind, c, *cell) for c, *cell in cells]
        return pd.DataFrame(lines, columns=["key", "kind", "column", "source", "lake"])


def _names(keys: list[int], side: Side) -> str:
    return f"{side.number} IN ({', '.join(map(str, keys))})"


def _differing(source: dict[int, Sums], lake: dict[int, Sums]) -> Pairs:
    """Return what differs, but for its version."""
    return {
        key: (source.get(key), lake.get(key))
        for key in source.keys() | lake.keys()
        if source.get(key, ())[:2] != lake.get(key, ())[:2]
    }


def _kind(source: Optional[Sums], lake: Optional[Sums]) -> str:
    if not lake:
        return "missing in the lake"
    if not source:
        return "extra in the lake"
    return DIFFERENT if source[0] == lake[0] else "duplicate in the lake"
