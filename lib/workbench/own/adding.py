"""Columns that were added to a source table: its older rows may have a value without any event."""

import re

from pyspark.sql import functions as F

from .. import hudi
from ..base import LakeError, World
from ..base.text import plural
from ..spark import session
from . import tables, values
from .files import OwnTable
from .flow import OwnFlow

ADDED = re.compile(r"(?:^|; )added (\w+) ")


def require_filled(world: World, flow: OwnFlow, own: OwnTable, filled: set[str]) -> set[str]:
    """Raise LakeError if rows of a lake table lack the value of a column that was added in the source.

    PostgreSQL and MariaDB give a default, or the values of a renamed column, to the existing rows without an event.

    Args:
        world: the world of the source.
        flow: the flow.
        own: the table.
        filled: added columns that no row lacks.

    Returns:
        All added columns, as far as the timeline goes back: no row lacks one of them.
    """
    table = flow.table(world, own.name)
    if not hudi.exists(table):
        return set()
    changes = hudi.schema_changes(table)["change"]
    added = {name for change in changes for name in ADDED.findall(change)}
    kinds = dict[str, str]()
    if not added <= filled:
        kinds = tables.describe(world, flow.declared, own).columns
    columns = sorted(added & {*kinds})  # not those that were dropped since
    if not columns:
        return added
    query = values.count_sql(flow.declared, own.source, {name: kinds[name] for name in columns})
    in_source = flow.db.query(world, query, database=flow.database).iloc[0]
    flow.sync(session(world), world, table)  # not more rows than the source had are lacking
    [in_lake] = hudi.read(session(world), table).agg(*map(F.count, columns)).collect()
    for column, count in zip(columns, in_lake):
        if count < in_source[column]:
            rows = plural(int(in_source[column]) - count, "row")
            raise LakeError(
                f"{rows} of the lake lack the value of {own.source}.{column}: the column "
                "was added with a default, or renamed, and no change has written these rows since",
                location=f"lake table {table.database}.{table.name}",
                hint=f"`workbench recapture {flow.name} --world {world.name}` takes a new snapshot",
            )
    return added
