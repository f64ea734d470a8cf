"""Columns that were added to a source table: its older rows may have a value without any event."""

import re

from psycopg import sql
from pyspark.sql import functions as F

from ... import hudi
from ...base import LakeError, World
from ...base.text import plural
from ...source.names import identifier
from ...spark import session
from ..flow import CaptureFlow
from .files import OwnTable

ADDED = re.compile(r"(?:^|; )added (\w+) ")


def added_columns(table: hudi.Table) -> list[str]:
    """Return the columns that ingests have added to a lake table, as far as its timeline goes back."""
    if not hudi.exists(table):
        return []
    return [
        name for change in hudi.schema_changes(table)["change"] for name in ADDED.findall(change)
    ]


def require_filled(
    world: World, flow: CaptureFlow, own: OwnTable, columns: list[str], remedy: str
) -> None:
    """Raise LakeError if rows of a lake table lack the value of a column that was added in the source.

    PostgreSQL and MariaDB give a default, or the values of a renamed column, to the existing rows without an event.

    Args:
        world: the world of the source.
        flow: the flow.
        own: the table.
        columns: its added columns.
        remedy: what fills the rows, for the error.
    """
    table = flow.table(world, own.name)
    counts = sql.SQL(", ").join(
        sql.SQL("count({0}) AS {0}").format(sql.Identifier(column)) for column in columns
    )
    query = sql.SQL("SELECT {} FROM {}").format(counts, identifier(own.source))
    in_source = flow.db.query(world, query, database=flow.database).iloc[0]
    flow.sync(session(world), world, table)  # not more rows than the source had are lacking
    [in_lake] = hudi.read(session(world), table).agg(*map(F.count, columns)).collect()
    for column, filled in zip(columns, in_lake):
        if filled < in_source[column]:
            name = f"{own.source}.{column}"
            raise LakeError(
                f"{plural(int(in_source[column]) - filled, 'row')} of the lake lack the value of {name}: the column "
                "was added with a default, or renamed, and no change has written these rows since",
                location=f"lake table {table.database}.{table.name}",
                hint=remedy,
            )
