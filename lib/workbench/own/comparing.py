"""Comparisons of a flow's lake tables with their source tables."""

import threading
import time

import pandas
from pyspark.sql import functions as F

from .. import hudi
from ..base import World
from ..base.errors import CheckFailed
from ..checks import check
from ..flow.reconciliation import Reconciliation
from ..flow.reconciling import reconcile_table
from ..spark import session
from ..topic import dlq
from . import files, tables, values
from .files import OwnTable
from .flow import LABEL, OwnFlow, open_flow

# Larger tables are compared by the numbers of rows and values only: the rows of the lake are read into memory.
MAX_COMPARED_ROWS = 1_000_000
_STORAGE_LOCK = threading.Lock()  # a capture compares several tables at once
ATTEMPTS = 5  # to count rows, because the user's applications may write meanwhile


def compare(world: World, flow: str) -> None:
    """Compare each lake table of a flow with its source, row by row; later changes are ingested first.

    A table of more than a million rows is compared by the numbers of its rows and values. One whose capture is not
    complete is left out, with a line.

    Raises:
        CheckFailed: a table differs; the error is that of the first one, after all tables were compared.
        SourceError: the source no longer has one of the tables.
    """
    at, captured = open_flow(world, flow)
    captured.require_tables(at)
    captured.require_same_tables(at)
    incomplete, failures = captured.incomplete(at), list[CheckFailed]()
    for own in captured.declared.tables:
        if own in incomplete:
            print(f"{own.source} is not captured yet: {captured.capture_remedy(own)}")
            continue
        try:
            compare_table(at, captured, own)
        except CheckFailed as e:  # its check is shown; the other tables have theirs
            failures.append(e)
    if failures:
        raise failures[0]


def compare_table(at: World, flow: OwnFlow, own: OwnTable) -> OwnTable:
    """Ingest and compare a table, and label the instant of its first comparison.

    Returns:
        The table in the source.

    Raises:
        CheckFailed: they differ.
        LakeError: messages could not be decoded; or earlier ones could not, and not all values can be compared.
    """
    table, storage = flow.table(at, own.name), tables.storage(at, flow.declared, own.source)
    described = tables.describe(at, flow.declared, own)
    is_first = LABEL not in {*hudi.labels(at, table)["label"]}
    result = reconcile(at, flow, described)
    if not result.is_equal:
        print(result)  # all of it: the line of a check is short
    claim = f"first copy of {own.source} = lake" if is_first else f"{own.source} = lake"
    check.true(f"{claim}, {_extent(result)}", result.is_equal, repr(result), "no difference")
    if result.not_compared:
        reasons = dlq.reasons(hudi.dead_letters_path(at, table))
        flow.require_no_dead_letters(at, [(table, sum(reasons.values()))])
    if is_first and hudi.exists(table):
        hudi.label(at, table, LABEL, result.position)
    with _STORAGE_LOCK:
        files.write_storage(flow.name, {**files.storage(flow.name), own.source: storage})
    return described.model_copy(update={"rows": result.rows[0]})


def reconcile(at: World, flow: OwnFlow, own: OwnTable) -> Reconciliation:
    """Ingest the changes of a described table, and compare its rows; or count them, if key or size allow no more."""
    table = flow.table(at, own.name)
    has_key = {*own.key} <= {*values.comparable_columns(at, flow.declared, own, table)}
    if has_key and own.rows <= MAX_COMPARED_ROWS:
        return reconcile_table(at, flow, own.name, table)
    return _count(at, flow, own)


def _count(at: World, flow: OwnFlow, own: OwnTable) -> Reconciliation:
    """Ingest the changes of a table, and compare the numbers of rows, and of values of each column."""
    begin, table = time.monotonic(), flow.table(at, own.name)
    columns = values.comparable_columns(at, flow.declared, own, table)
    query = values.count_sql(flow.declared, own.source, columns)
    for _ in range(ATTEMPTS):
        position = flow.db.log_position(at, flow.database)
        flow.sync(session(at), at, table)
        in_source = flow.db.query(at, query, database=flow.database).iloc[0].astype(int)
        in_lake = _count_in_lake(at, table, [*columns])
        if [*in_source] == in_lake:
            break
    differences = {
        f"{name} {'missing' if source > lake else 'extra'} in the lake": abs(source - lake)
        for (name, source), lake in zip(in_source.items(), in_lake)
        if source != lake
    }
    return Reconciliation(
        table=table.name,
        position=position,
        instant="",
        rows=(int(in_source.iloc[0]), in_lake[0]),
        counts=differences,
        differences=pandas.DataFrame(),
        excluded=0,
        undecided=0,
        not_compared=[*own.columns],
        seconds=time.monotonic() - begin,
    )


def _count_in_lake(at: World, table: hudi.Table, columns: list[str]) -> list[int]:
    """Return the number of rows, and of values of each column, of which the lake table may lack some."""
    if not hudi.exists(table):
        return [0] * (1 + len(columns))
    rows = hudi.read(session(at), table)
    counted = [F.count(name) if name in rows.columns else F.lit(0) for name in columns]
    [counts] = rows.agg(F.count("*"), *counted).collect()
    return [*counts]


def _extent(result: Reconciliation) -> str:
    """Return what of the rows was compared."""
    if not result.instant and result.not_compared:
        return "numbers of rows and values"
    without = f", without {', '.join(result.not_compared)}" if result.not_compared else ""
    return f"row by row{without}"
