"""Comparing source tables with lake tables, also while changes continue.

Checksums over ranges of keys find the ranges that differ, and in them the keys (reconcile_sql.py). The rows of these
keys are read again in rounds: those of the source, then those of the lake after it has what the source had. A key is a
difference if its row in the lake was not written in between.
"""

import time
from collections import Counter
from functools import partial
from typing import Any, Callable, Mapping, Optional, Sequence

import pandas as pd
import pyarrow
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from .. import hudi
from ..base import LakeError, World, wait_until
from ..base.added_columns import is_data
from ..hudi import changes
from ..hudi.decode import NULL_PARTITION
from ..hudi.ingesting import last_ingest_commit, read_progress
from ..hudi.labeling import resolve_instant
from ..hudi.timeline import completed_actions
from ..source import mariadb
from ..source.names import identifier
from ..spark import session
from ..spark.local_rows import run_once
from .flow import CaptureFlow
from .reconcile_sql import DIALECTS, Side, Sums, kind_name, quoted, text_sql
from .reconciliation import Reconciliation

RANGES = 1024
ROUNDS = 10
MAX_LISTED_KEYS = 300
MAX_NAMED_KEYS = 1000  # in a condition; more keys are selected by their ranges
MAX_MESSAGES = 10_000_000  # after a label
DIFFERENT = "different"
VERSION, PARTITION = "_hoodie_commit_seqno", "_hoodie_partition_path"
DELETED = "__deleted"  # "true" in the row of a soft delete
TECHNICAL = (VERSION, PARTITION, DELETED)
# a partition's name has values of these types as reconcile_sql.yaml has them
NAMED_KINDS = {"string", "int", "date", "bool"}
# {number of a key: what source and lake have; None for no row}
Pairs = dict[int, tuple[Optional[Sums], Optional[Sums]]]
Condition = Callable[[Side], str]


def reconcile_table(
    world: World, flow: CaptureFlow, name: str, table: hudi.Table, at: str = ""
) -> Reconciliation:
    """Compare a lake table of a flow with its source table, and store the result.

    The changes of the source are ingested before. They may continue meanwhile.

    Args:
        world: the world of the source.
        flow: the captured tables.
        name: name of the captured table.
        table: one of its lake tables.
        at: label of the lake's rows to compare. The source has its rows of now, so keys that changed after the
            label are left out. By default the lake's rows of now.

    Raises:
        LakeError: there is no such label; the changes cannot be ingested; or the commit of the label does not say
            which messages it has.
        SourceError: the source cannot be read.
    """
    result = _Comparison(world, flow, name, table).run(at)
    if hudi.exists(table):
        result.save(world, table)
    return result


class _Comparison:
    """The comparison of a source table with one of its lake tables."""

    def __init__(self, world: World, flow: CaptureFlow, name: str, table: hudi.Table):
        """Take the world of the source, the flow, the name of the captured table, and the lake table."""
        self.world, self.flow, self.name, self.table = world, flow, name, table
        self.spark, self.instant, self.not_compared = session(world), "", list[str]()
        self.changes = flow.source(world, name, flow.source_kind(world, table))

    def run(self, label: str) -> Reconciliation:
        """Compare, as `reconcile_table` does."""
        started, excluded, undecided = time.monotonic(), set[int](), Pairs()
        position = self.flow.db.log_position(self.world, self.flow.database)
        self.update(label)
        condition, rows = self.different_ranges()
        pairs = self.read(condition)
        if label:
            self.update(label)
            excluded = self.changed_keys(self.instant)
            pairs = {key: pair for key, pair in pairs.items() if key not in excluded}
        else:
            pairs, undecided = self.decide(pairs, condition)
        return Reconciliation(
            self.table.name,
            position,
            self.instant,
            rows,
            dict(Counter(_kind(*pair) for pair in pairs.values())),
            self.describe(pairs),
            len(excluded),
            len(undecided),
            self.not_compared,
            time.monotonic() - started,
        )

    def update(self, label: str = "") -> None:
        """Bring what the source has committed so far into the lake, and open a later commit, or a label's."""
        self.flow.wait_until_captured(self.world)

        def ingest() -> bool:
            self.flow.ingest(self.spark, self.world, self.table)
            return True

        wait_until(
            ingest,
            f"another ingest into {self.table.name} to end",
            timeout=120,
            is_transient=lambda error: "another ingest" in str(error),
        )
        instants = [action.instant for action in completed_actions(self.table)]
        instant = max(instants, default="")
        if label:
            instant = resolve_instant(self.world, self.table, label)
        if not self.instant or instant != self.instant:
            self.instant = instant
            self.open()

    def open(self) -> None:
        """Open both sides, the lake as of `instant`; a column that the lake lacks is compared as text."""
        rows, flow = self.read_lake(), self.flow
        lake = dict(zip(rows.schema.names, rows.schema.types))
        capture = flow.comparable(self.spark, self.world, self.name)
        source = identifier(capture.source).as_string()
        if capture.expected_sql:
            source = f'({capture.expected_sql}) AS "rows"'
        query = partial(flow.db.query, self.world, database=flow.database)

        def run_in_source(text: str) -> Any:
            frame = query(text).astype(object)
            return frame.where(frame.notna(), None).itertuples(index=False, name=None)

        names = query(f"SELECT * FROM {source} LIMIT 0").columns  # noqa: S608
        dialect = DIALECTS["mariadb" if flow.db is mariadb else "postgres"]
        columns = {name: lake.get(name, pyarrow.string()) for name in names}
        columns = {name: kind for name, kind in columns.items() if kind_name(kind) in dialect}
        self.not_compared = sorted(n for n in {*lake, *names} - {*columns} if is_data(n))
        if not {*capture.keys} <= {*columns}:
            raise LakeError(
                f"the key of {capture.source} has other values in the lake: {', '.join(capture.keys)}",
                location=self.table.base,
                expected="a key with the same values, so that rows can be compared (docs/types.md)",
            )
        self.source = Side(dialect, source, columns, capture.keys, run_in_source)
        self.lake = in_memory(
            rows, columns, capture.keys, f"max({VERSION})", _wrong_partition(self.table, columns)
        )

    def read_lake(self) -> pyarrow.Table:
        """Read the lake table as of `instant` with hudi-rs, or with Spark what hudi-rs cannot read."""
        if not self.instant:
            return pyarrow.table({})
        try:
            instant = self.world, self.instant
            return hudi.read_arrow(self.table, as_of=instant, columns=self.is_read)
        except LakeError:
            return _to_arrow(hudi.as_of(self.spark, self.world, self.table, self.instant))

    def is_read(self, name: str) -> bool:
        """Return whether a column of the lake table is needed."""
        return is_data(name) or name in (*self.table.key, *TECHNICAL)

    def different_ranges(self) -> tuple[Condition, tuple[int, int]]:
        """Return a condition for the keys in ranges that differ, and the numbers of rows."""
        bounds = self.source.bounds() + self.lake.bounds()
        low, width = min(bounds), (max(bounds) - min(bounds)) // RANGES + 1
        source, lake = (
            side.sums(side.range_number(low, width)) for side in (self.source, self.lake)
        )
        parts = ", ".join(map(str, _differing(source, lake)))
        rows = sum(n for n, *_ in source.values()), sum(n for n, *_ in lake.values())
        return (
            lambda side: f"{side.range_number(low, width)} IN ({parts})" if parts else "false",
            rows,
        )

    def read(self, condition: Condition, between: Callable[[], None] = lambda: None) -> Pairs:
        """Return what differs among the keys of a condition; `between` is called between source and lake."""
        source = self.source.sums(self.source.number, condition(self.source))
        between()
        return _differing(source, self.lake.sums(self.lake.number, condition(self.lake)))

    def decide(self, undecided: Pairs, condition: Condition) -> tuple[Pairs, Pairs]:
        """Return what differs, and what is undecided after ROUNDS.

        In each round, the lake has what the source had when it was read. If the row in the lake is the same as in
        the round before, the key had no change in between, so its difference lasts.
        """
        decided = Pairs()
        for _ in range(ROUNDS):
            if not undecided:
                break
            if len(undecided) <= MAX_NAMED_KEYS:
                condition = partial(_names, [*undecided])
            instant, latest = self.instant, self.read(condition, self.update)
            latest = {key: pair for key, pair in latest.items() if key in undecided}
            unchanged = {key for key, pair in latest.items() if pair == undecided[key]}
            has_missing_rows = not all(latest[key][1] for key in unchanged)
            if has_missing_rows and isinstance(self.changes, changes.Topic):
                unchanged -= self.changed_keys(instant)  # a missing row has no version
            decided.update({key: latest[key] for key in unchanged})
            undecided = {k: pair for k, pair in latest.items() if k not in decided}
        return decided, undecided

    def changed_keys(self, instant: str) -> set[int]:
        """Return the numbers of the keys that have messages after a commit."""
        actions = [each for each in completed_actions(self.table) if each.instant <= instant]
        commit, key = last_ingest_commit(self.table, actions), self.source.key
        progress = read_progress(commit).get(self.changes.id, {})
        if "offsets" not in progress or not isinstance(self.changes, changes.Topic):
            raise LakeError(
                f"which changes followed {instant} is unknown",
                location=self.table.base,
                expected="a commit of an ingest from a topic",
            )
        reader = changes.create_reader(
            self.spark, self.world, self.changes, self.table, MAX_MESSAGES
        )
        batch = reader.next(progress)
        if batch is None:
            return set()
        rows = _to_arrow(batch.rows.select(*(f"row.{name}" for name in key)).dropna().distinct())
        changed = in_memory(rows, {name: self.source.columns[name] for name in key}, key)
        return {*changed.sums(changed.number)}

    def describe(self, pairs: Pairs) -> pd.DataFrame:
        """Return a row for each different value of some keys: key, kind, column, source, lake."""
        keys, lines = sorted(pairs)[:MAX_LISTED_KEYS], list[tuple[Any, ...]]()
        sides = (self.source, self.lake)
        source, lake = (side.texts(_names(keys, side)) if keys else {} for side in sides)
        for key in keys:
            kind, expected, actual = _kind(*pairs[key]), source.get(key, []), lake.get(key, [])
            if not expected + actual:
                continue  # the source deleted it meanwhile
            row = (expected + actual)[0]
            name = ", ".join(str(row.get(column)) for column in self.source.key)
            if kind != DIFFERENT:
                lines.append((name, kind, "(rows)", str(len(expected)), str(len(actual))))
            for row in actual if expected else ():
                cells = [
                    (c, expected[0][c], text) for c, text in row.items() if text != expected[0][c]
                ]
                lines += [(name, kind, *cell) for cell in cells]
        return pd.DataFrame(lines, columns=["key", "kind", "column", "source", "lake"])


def in_memory(
    rows: pyarrow.Table,
    columns: Mapping[str, pyarrow.DataType],
    key: Sequence[str],
    version: str = "''",
    place: str = "''",
) -> Side:
    """Return the rows of a lake table as a side, without those that are marked as deleted."""
    import duckdb

    connection = duckdb.connect(config={"enable_external_access": "false"})
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("present", rows if rows.num_columns else pyarrow.table({DELETED: []}))
    technical = dict.fromkeys(TECHNICAL, pyarrow.string())
    connection.register("complete", pyarrow.schema({**columns, **technical}).empty_table())
    view = f"(FROM (FROM present UNION ALL BY NAME FROM complete) WHERE {DELETED} IS DISTINCT FROM 'true')"
    return Side(
        DIALECTS["duckdb"],
        view,
        columns,
        key,
        lambda q: connection.execute(q).fetchall(),
        version,
        place,
    )


def _to_arrow(frame: DataFrame) -> pyarrow.Table:
    return run_once(frame)[1].cast(to_arrow_schema(frame.schema))


def _wrong_partition(table: hudi.Table, columns: Mapping[str, pyarrow.DataType]) -> str:
    """Return SQL of the name of a row's partition, '' if it is that of the row's own values."""
    kinds = {name: columns[name] for name in table.partition}
    if not kinds or {*map(kind_name, kinds.values())} - NAMED_KINDS:
        return "''"
    texts = {n: text_sql(DIALECTS["duckdb"], kind, quoted(n)) for n, kind in kinds.items()}
    path = " || '/' || ".join(
        f"'{n}=' || coalesce(nullif({text}, ''), '{NULL_PARTITION}')" for n, text in texts.items()
    )
    return f"CASE WHEN url_decode({PARTITION}) <> {path} THEN {PARTITION} ELSE '' END"


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
    if not (source and lake):
        return "extra in the lake" if lake else "missing in the lake"
    return DIFFERENT if source[0] == lake[0] else "duplicate in the lake"
