"""Columns that were added to a source table: its older rows may have a value without any event."""

import re
from typing import Iterable, Mapping

from pyspark.sql import functions as F

from .. import hudi
from ..base import LakeError, World
from ..base.text import plural
from ..spark import session
from . import tables, values
from .files import OwnTable
from .flow import OwnFlow

ADDED = re.compile(r"(?:^|; )added (\w+) ")


def added_columns(table: hudi.Table) -> list[str]:
    """Return the columns that ingests have added to a lake table, as far as its timeline goes back."""
    changes = hudi.schema_changes(table)["change"] if hudi.exists(table) else []
    return [name for change in changes for name in ADDED.findall(change)]


class FilledColumns:
    """Added columns whose values no row of the lake lacks, while a flow is followed.

    PostgreSQL and MariaDB give a default, or the values of a renamed column, to the existing rows without an event.
    """

    def __init__(self, world: World, flow: OwnFlow):
        """Look at no column yet."""
        self.world, self.flow = world, flow
        self._filled: dict[str, set[str]] = {}

    def require(self, counts: Mapping[str, hudi.Ingested]) -> None:
        """Raise LakeError if rows of ingested tables lack the value of an added column.

        Args:
            counts: {lake table: counts} of a round. The first round of a table is looked at in any case, because an
                earlier call may have added columns.
        """
        for own in self.flow.declared.tables:
            ingested = counts.get(own.name)
            if ingested and (ingested.messages or own.name not in self._filled):
                filled = self._filled.setdefault(own.name, set())
                columns = {*added_columns(self.flow.table(self.world, own.name))} - filled
                if columns:
                    self._require_values(own, columns)
                filled |= columns

    def _require_values(self, own: OwnTable, added: Iterable[str]) -> None:
        """Compare the numbers of values in source and lake."""
        world, flow, table = self.world, self.flow, self.flow.table(self.world, own.name)
        kinds = tables.describe(world, flow.declared, own).columns
        columns = sorted({*added} & {*kinds})  # not those that were dropped since
        if not columns:
            return
        query = values.count_sql(flow.declared, own.source, {name: kinds[name] for name in columns})
        in_source = flow.db.query(world, query, database=flow.database).iloc[0]
        flow.sync(session(world), world, table)  # not more rows than the source had are lacking
        [in_lake] = hudi.read(session(world), table).agg(*map(F.count, columns)).collect()
        for column, filled in zip(columns, in_lake):
            if filled < in_source[column]:
                rows = plural(int(in_source[column]) - filled, "row")
                raise LakeError(
                    f"{rows} of the lake lack the value of {own.source}.{column}: the column "
                    "was added with a default, or renamed, and no change has written these rows since",
                    location=f"lake table {table.database}.{table.name}",
                    hint=f"`workbench recapture {flow.name} --world {world.name}` takes a new snapshot",
                )
