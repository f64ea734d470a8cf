"""Columns that were added to a source table: its older rows may have a value without any event."""

import re

from pyspark.sql import functions as F

from .. import hudi
from ..base import LakeError, World
from ..base.text import plural
from ..spark import session
from . import files, tables, values
from .files import OwnTable
from .flow import OwnFlow

ADDED = re.compile(r"(?:^|; )added (\w+) ")


def added_columns(table: hudi.Table) -> list[str]:
    """Return the columns that ingests have added to a lake table, as far as its timeline goes back."""
    if not hudi.exists(table):
        return []
    return [
        name for change in hudi.schema_changes(table)["change"] for name in ADDED.findall(change)
    ]


def require_filled(world: World, flow: OwnFlow, own: OwnTable) -> None:
    """Raise LakeError if rows of a lake table lack the value of a column that was added in the source.

    PostgreSQL and MariaDB give a default, or the values of a renamed column, to the existing rows without an event.
    A column that no row lacks is not looked at again.
    """
    table, checked = flow.table(world, own.name), files.filled_columns(flow.name)
    columns = [each for each in added_columns(table) if each not in checked.get(own.name, [])]
    if not columns:
        return
    kinds = tables.describe(world, flow.declared, own).columns
    columns = [column for column in columns if column in kinds]  # not those that were dropped since
    query = values.count_sql(flow.declared, own.source, {name: kinds[name] for name in columns})
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
                hint=f"`workbench recapture {flow.name} --world {world.name}` takes a new snapshot",
            )
    files.write_filled_columns(
        flow.name, {**checked, own.name: [*checked.get(own.name, []), *columns]}
    )
