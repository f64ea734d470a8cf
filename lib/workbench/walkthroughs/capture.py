"""One source table on its way to the lake: what a walkthrough declares of it."""

from dataclasses import dataclass
from typing import Any, Mapping, Union

from psycopg import sql

from .. import hudi
from ..base import World


@dataclass(frozen=True)
class Capture:
    """One source table on its way to the lake.

    source: schema.table. key: its key, one column or several. format: of its messages and of the
        landed files, "json"
    or "avro". connector: the configuration of what brings its changes into a topic. sink: of what
    lands them; "" where nothing does. lake: fields of hudi.Table, one mapping for each table that
    it goes into; `base` is below the world's tables. truth: SQL of its rows as they travel, where
    that is not as they are. known_as: another name than the table's, where it is captured twice.
    """

    source: str
    key: Union[str, tuple[str, ...]]
    connector: str
    sink: str = ""
    format: str = "json"
    lake: tuple[Mapping[str, Any], ...] = ()
    expected_sql: str = ""
    alias: str = ""

    @property
    def name(self) -> str:
        """The name by which a flow knows it."""
        return self.alias or self.source.rpartition(".")[2]

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns of its key."""
        return (self.key,) if isinstance(self.key, str) else self.key

    @property
    def key_columns(self) -> sql.Composed:
        """The same in SQL."""
        return sql.SQL(", ").join(map(sql.Identifier, self.keys))

    def table(self, world: World, fields: Mapping[str, Any]) -> hudi.Table:
        """A table of the lake as `lake` declares it."""
        base = {"base": f"{world.lake.tables}/{fields['base']}"} if "base" in fields else {}
        return hudi.table(world, **{"key": self.keys, **fields, **base})
