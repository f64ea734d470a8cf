"""Checks of a source before a capture, and of its captured tables, whose changes may no longer be logged."""

from collections import defaultdict
from typing import Sequence

import pandas

from .. import stack
from ..base import SourceError, World
from ..source import readiness
from .files import Declaration, OwnTable

HINT_LINE = "\n" + 12 * " "  # statements of SQL are copied: each begins a line of the hint


def require_server(world: World, declared: Declaration) -> None:
    """Start the database if it is a service of the stack, and raise SourceError if it is not ready.

    Only a new flow that reads the log of the user's own server needs all settings and permissions.
    """
    at, database = world.source(declared.source), declared.services[0]
    if at.manages(database):
        stack.ensure_running(at, database)
    report = readiness.check(world, declared.source, ())
    server = report.server
    if declared.poll:
        server = server[server["item"] == "connection"]
    elif declared.tables or at.server(declared.engine).managed:
        # each start of the connector reads the types
        server = server[server["item"].isin(["connection", "types"])]
    _require_ready(server, report)


def require_capturable(
    world: World, declared: Declaration, tables: Sequence[OwnTable], remedy: str = ""
) -> None:
    """Raise SourceError if the check of the source has a problem of one of these tables.

    Args:
        world: the world of the flow.
        declared: the flow.
        tables: the tables, which exist.
        remedy: what to do afterwards, for the error.
    """
    alike = defaultdict(list)
    for table in tables:
        key = (*table.key,) if table.declares_key else ()
        alike[(*table.excluded,), key].append(table.source)
    found = []
    for (excluded, key), names in alike.items():
        options = readiness.Options(excluded, key, bool(declared.poll))
        report = readiness.check(world, declared.source, names, options)
        obstacles = report.obstacles
        found.append(obstacles[obstacles["item"].str.startswith("table ")])
    if found:
        _require_ready(pandas.concat(found), report, remedy)


def existing_tables(world: World, declared: Declaration) -> list[OwnTable]:
    """Return the tables of a flow that the source still has."""
    at = world.source(declared.source)
    existing = {*declared.db.existing_tables(at, declared.sources, declared.database)}
    return [table for table in declared.tables if table.source in existing]


def _require_ready(rows: pandas.DataFrame, report: readiness.Report, remedy: str = "") -> None:
    """Raise one SourceError with all problems of rows of a report, if there are any."""
    refused = rows[rows["problem"] != ""]
    if refused.empty:
        return
    problems = dict.fromkeys(f"{row.item}: {row.problem}" for row in refused.itertuples())
    statements = dict.fromkeys(each for found in refused["statements"] for each in found)
    details = f"`workbench source check {report.source} --world {report.world}` has the details"
    raise SourceError(
        "\n    ".join(problems),
        location=f"source {report.source!r}",
        hint=HINT_LINE.join(filter(None, [*statements, remedy, details])),
    )
