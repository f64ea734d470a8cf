"""Checksums of rows, in the SQL of a source database and of DuckDB.

Each value becomes the same text on both sides (reconcile_sql.yaml), and a row the texts of its columns. The text of a
row identifies its values: | separates them, and each of !, | and null has a text of its own.
"""

import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Iterable, Mapping, Optional, Sequence

import pyarrow
from pyarrow import types

from ..base import yaml_files

DIALECTS: dict[str, dict[str, str]] = yaml_files.load(Path(__file__).with_suffix(".yaml"))
HASH_VALUES = 2**60
PLACE = "(partition)"  # the column of `Side.place`
Sums = tuple[int, str, Any]  # number of rows, sum of their hashes, version


def quoted(name: str) -> str:
    """Return a name as both dialects quote it."""
    return '"' + name.replace('"', '""') + '"'


def kind_name(kind: pyarrow.DataType) -> str:
    """Return the name of a type without its size, such as `int`, `decimal` or `list`."""
    return re.sub("[^a-z].*", "", str(kind))


def text_sql(dialect: Mapping[str, str], kind: pyarrow.DataType, value: str) -> str:
    """Return the SQL of the text of a value.

    Args:
        dialect: an element of DIALECTS.
        kind: the type of the value in the lake.
        value: SQL of the value; in the source it may have another type.
    """
    template = dialect[kind_name(kind)].replace("{scale}", str(getattr(kind, "scale", "")))
    if types.is_list(kind):
        template = template.replace("{item}", cell_sql(dialect, kind.value_type, "e"))
    if types.is_struct(kind):
        fields = (
            cell_sql(dialect, f.type, dialect["field"].replace("{name}", f.name)) for f in kind
        )
        template = template.replace("{fields}", dialect["join"].join(fields))
    return template.replace("{}", value)


def cell_sql(dialect: Mapping[str, str], kind: pyarrow.DataType, value: str) -> str:
    """Return the SQL of a text without |, which is `!n` for null; the arguments are those of `text_sql`."""
    text = text_sql(dialect, kind, value)
    if types.is_string(kind) or types.is_nested(kind):
        text = f"replace(replace({text}, '!', '!e'), '|', '!p')"
    return f"coalesce({text}, '!n')"


@dataclass(frozen=True)
class Side:
    """The rows of a table in the source or in the lake.

    Attributes:
        dialect: an element of DIALECTS.
        rows: what follows FROM.
        columns: {column: its type in the lake}.
        key: the key columns.
        run: runs a query and returns its rows.
        version: SQL of an aggregate that changes when a row is written; '' for none.
        place: SQL of the partition of a row that is in a wrong one; '' for all other rows.
    """

    dialect: Mapping[str, str]
    rows: str
    columns: Mapping[str, pyarrow.DataType]
    key: Sequence[str]
    run: Callable[[str], Iterable[Sequence[Any]]]
    version: str = "''"
    place: str = "''"

    @property
    def number(self) -> str:
        """SQL of a number that identifies a key: the key itself if it is a whole number, else a hash of it."""
        return quoted(self.key[0]) if self.has_number else self._hash(self.key)

    @property
    def has_number(self) -> bool:
        """Whether the key is one whole number."""
        return [kind_name(self.columns[name]) for name in self.key] == ["int"]

    def _hash(self, columns: Iterable[str], *further: str) -> str:
        cells = [cell_sql(self.dialect, self.columns[name], quoted(name)) for name in columns]
        return self.dialect["hash"].replace("{}", self.dialect["join"].join([*cells, *further]))

    def bounds(self) -> list[int]:
        """Return the least and the greatest number of a key; [0, 0] for no rows."""
        if not self.has_number:
            return [0, HASH_VALUES]
        query = f"SELECT min({self.number}), max({self.number}) FROM {self.rows}"  # noqa: S608
        return [int(bound or 0) for bound in [*self.run(query)][0]]

    def range_number(self, low: int, width: int) -> str:
        """Return SQL of the number of the range in which a key is, for ranges of `width` from `low` on."""
        template = self.dialect["part"].replace("{low}", str(low)).replace("{width}", str(width))
        return template.replace("{}", self.number)

    def sums(self, group: str, condition: str = "true") -> dict[int, Sums]:
        """Return {value of the SQL `group`: number of rows, sum of their hashes, version}."""
        total = self.dialect["int"].replace("{}", f"sum({self._hash(self.columns, self.place)})")
        query = f"SELECT {group}, count(*), {total}, {self.version} FROM {self.rows} WHERE {condition} GROUP BY 1"  # noqa: S608
        return {
            int(n): (int(count), total, version) for n, count, total, version in self.run(query)
        }

    def texts(self, condition: str) -> dict[int, list[dict[str, Optional[str]]]]:
        """Return {number of a key: its rows as texts} for some rows."""
        columns = {
            name: text_sql(self.dialect, kind, quoted(name)) for name, kind in self.columns.items()
        }
        columns[PLACE] = self.place
        texts: dict[int, list[dict[str, Optional[str]]]] = defaultdict(list)
        query = f"SELECT {self.number}, {', '.join(columns.values())} FROM {self.rows} WHERE {condition}"  # noqa: S608
        for number, *values in self.run(query):
            texts[int(number)].append(dict(zip(columns, values)))
        return texts
