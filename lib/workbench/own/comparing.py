"""Comparisons of a flow's lake tables with their source tables."""

import re
import time

import pandas

from .. import hudi
from ..base import SourceError, World, paths
from ..base.errors import CheckFailed
from ..checks import check, check_values
from ..spark import session
from ..topic import dlq
from . import files, tables, values
from .files import OwnTable
from .flow import LABEL, OwnFlow, open_flow

# Larger tables are compared by their number of rows only: both sides of a comparison are in memory.
MAX_COMPARED_ROWS = 1_000_000
COMPARISONS = 5  # attempts, because the user's applications may write meanwhile


def compare(world: World, flow: str) -> None:
    """Compare each lake table of a flow with its source, row by row; later changes are ingested first.

    A table of more than a million rows is compared by its number of rows. One whose capture is not complete is left
    out, with a line.

    Raises:
        CheckFailed: a table differs; the error is that of the first one, after all tables were compared.
        SourceError: the source no longer has one of the tables.
    """
    at, captured = open_flow(world, flow)
    require_tables(at, captured)
    uncompared, failures = captured.uncompared(at), list[CheckFailed]()
    incomplete = captured.incomplete(at)
    for table in captured.declared.tables:
        if table in incomplete:
            print(f"{table.source} is not captured yet: {captured.capture_remedy(table)}")
            continue
        try:
            compare_table(at, captured, table, table in uncompared)
        except CheckFailed as e:  # its check is shown; the other tables have theirs
            failures.append(e)
    if failures:
        raise failures[0]


def require_tables(at: World, flow: OwnFlow) -> None:
    """Raise SourceError if tables of a flow were dropped, renamed or created anew in the source."""
    sources = flow.declared.sources
    missing = sorted({*sources} - {*flow.db.existing_tables(at, sources, flow.database)})
    if missing:
        raise SourceError(
            f"the source no longer has {', '.join(missing)}",
            location=f"database {flow.database}; {paths.display_path(files.folder(flow.name))}",
            hint=f"`workbench forget {flow.name} {' '.join(missing)} --world {at.name}` removes them from the "
            "flow; the others are not compared until then, but `follow` brings their changes",
        )
    flow.require_same_tables(at)


def compare_table(at: World, flow: OwnFlow, own: OwnTable, is_first: bool) -> OwnTable:
    """Ingest and compare a table, and label the instant of its first comparison.

    Returns:
        The table in the source.

    Raises:
        CheckFailed: they differ, also after COMPARISONS attempts.
        LakeError: messages could not be decoded; or earlier ones could not, and not all values can be compared.
    """
    table = flow.table(at, own.name)
    storage = tables.storage(at, flow.declared, own.source)
    for attempt in range(1, COMPARISONS + 1):
        position = flow.db.log_position(at, flow.database)
        flow.sync(session(at), at, table)
        described = tables.describe(at, flow.declared, own)
        claim = f"{'first copy of ' * is_first}{own.source} = lake"
        if _is_same(at, flow, described, claim, is_last=attempt == COMPARISONS):
            break
        time.sleep(1)
    if len(_comparable_columns(at, flow, described)) < len(described.columns):
        reasons = dlq.reasons(hudi.dead_letters_path(at, table))
        flow.require_no_dead_letters(at, [(table, sum(reasons.values()))])
    files.write_storage(flow.name, {**files.storage(flow.name), own.source: storage})
    if is_first and hudi.exists(table):
        hudi.label(at, table, LABEL, position)
    return described


def lasting_differences(at: World, flow: OwnFlow, own: OwnTable) -> list[str]:
    """Return a sentence for each row that differs between the source and the lake, twice in a row.

    A row that is written meanwhile differs at most once. Of a table of more than a million rows, and of one whose key
    cannot be compared, only the number of rows is compared.
    """
    first = {*_differences(at, flow, own)}
    return sorted(first & {*_differences(at, flow, own)}) if first else []


def _differences(at: World, flow: OwnFlow, own: OwnTable) -> list[str]:
    """Ingest the changes, and return a sentence for each row that differs."""
    flow.sync(session(at), at, flow.table(at, own.name))
    own = tables.describe(at, flow.declared, own)
    compared = _comparable_columns(at, flow, own)
    if not compared:
        is_same = _count_rows(at, flow, own) == own.rows
        return [] if is_same else ["the numbers of rows differ"]
    source, lake = _read_both(at, flow, own, compared)
    return check_values.differences(source, lake, own.key, ("lake", "source"))


def _comparable_columns(at: World, flow: OwnFlow, own: OwnTable) -> dict[str, str]:
    """Return the columns whose values can be compared; none of a table whose rows can only be counted."""
    compared = values.comparable_columns(at, flow.declared, own, flow.table(at, own.name))
    has_key = {*own.key} <= {*compared}
    return compared if has_key and own.rows <= MAX_COMPARED_ROWS else {}


def _read_both(
    at: World, flow: OwnFlow, own: OwnTable, compared: dict[str, str]
) -> tuple[pandas.DataFrame, pandas.DataFrame]:
    """Return these columns of a table in the source and in the lake, with the same names and values."""
    query = values.comparable_sql(flow.declared, own.source, compared)
    source = flow.db.query(at, query, database=flow.database)
    # MariaDB sends all digits of a float as a double only (templates.yaml); a float(7,2) is a double in the lake
    singles = [column for column, kind in compared.items() if re.match(r"float(?!\()", kind)]
    source = source.astype(dict.fromkeys(singles, "float32"))
    for column in [column for column, kind in compared.items() if kind == "point"]:
        source[column] = [*map(values.with_numbers, source[column])]
    table = flow.table(at, own.name)
    if not hudi.exists(table):
        return source, source.head(0)
    lake = hudi.reading.to_pandas(hudi.read(session(at), table))
    # a column that was added to the source is in the lake after the next change
    return source, lake.reindex(columns=source.columns)


def _count_rows(at: World, flow: OwnFlow, own: OwnTable) -> int:
    """Return the number of rows of a lake table, 0 if it does not exist yet."""
    table = flow.table(at, own.name)
    return hudi.read(session(at), table).count() if hudi.exists(table) else 0


def _is_same(at: World, flow: OwnFlow, own: OwnTable, claim: str, is_last: bool) -> bool:
    """Return whether a lake table equals its source; show the check if it does, or if it is the last.

    Raises:
        CheckFailed: they differ in the last comparison.
    """
    compared = _comparable_columns(at, flow, own)
    if not compared:
        lake_rows = _count_rows(at, flow, own)
        if lake_rows == own.rows or is_last:
            check.equal(f"{claim}, number of rows", lake_rows, own.rows)
        return lake_rows == own.rows
    skipped = [column for column in own.columns if column not in compared]
    source, lake = _read_both(at, flow, own, compared)
    is_same = not check_values.differences(source, lake, own.key, ("lake", "source"))
    if is_same or is_last:
        extent = f"row by row{', without ' * bool(skipped)}{', '.join(skipped)}"
        check.same_rows(source, lake, own.key, f"{claim}, {extent}", allow_empty=True)
    return is_same
