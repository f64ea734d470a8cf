"""The result of a reconciliation, and where the last one of each table is stored."""

import datetime as dt
import html
import json
from dataclasses import dataclass
from typing import Any, Optional

import pandas as pd
from pydantic import BaseModel

from ..base import LakeError, World, files
from ..base.text import plural
from ..display import show
from ..hudi.tables import Table, table_state_dir

SHOWN_ROWS = 20


@dataclass(frozen=True, eq=False)
class Reconciliation:
    """The differences between a table of a source and its lake table.

    Attributes:
        table: name of the lake table.
        position: the source's log position before its rows were read.
        instant: the commit of the lake table that was compared last.
        rows: the number of rows in the source, and in the lake.
        counts: {kind of difference: number of keys}.
        differences: a row for each different value of the first keys: key, kind, column, source, lake (texts; None
            for null).
        excluded: the number of keys that changed after the label.
        undecided: the number of keys that differ, but whose rows changed in each round.
        not_compared: the columns of the lake table that were not compared.
        seconds: the duration.
    """

    table: str
    position: str
    instant: str
    rows: tuple[int, int]
    counts: dict[str, int]
    differences: pd.DataFrame
    excluded: int
    undecided: int
    not_compared: list[str]
    seconds: float

    @property
    def is_equal(self) -> bool:
        """Whether each row of one side is a row of the other one."""
        return not self.counts and not self.undecided

    @property
    def title(self) -> str:
        """The result in one line."""
        source, lake = self.rows
        parts = [f"{count:,} {kind}" for kind, count in self.counts.items()]
        if self.undecided:
            parts.append(f"{plural(self.undecided, 'key')} still changing")
        text = f"{self.table}: {source:,} rows in the source, {lake:,} in the lake; "
        text += ", ".join(parts) or "no difference"
        if self.excluded:
            text += f"; {plural(self.excluded, 'key')} changed after {self.instant}, not compared"
        if self.not_compared:
            text += f"; without {', '.join(self.not_compared)}"
        return f"{text}; {self.seconds:.1f} s"

    def __repr__(self) -> str:
        """Return the title and the first differences."""
        count = len(self.differences)
        if not count:
            return self.title
        rows = self.differences.head(SHOWN_ROWS).to_string(index=False)
        omitted = f"\nthe first {SHOWN_ROWS} of {count:,} values" if count > SHOWN_ROWS else ""
        return f"{self.title}\n{rows}{omitted}"

    def _repr_html_(self) -> str:
        if self.differences.empty:
            return f"<b>{html.escape(self.title)}</b>"
        return str(show.table(self.differences, self.title, len(self.differences)).data)

    def save(self, world: World, table: Table) -> None:
        """Store the result as the last one of a lake table; hudi.drop removes it with the table."""
        last = {
            **vars(self),
            "time": dt.datetime.now(dt.timezone.utc).isoformat(timespec="seconds"),
            "is_equal": self.is_equal,
            "differences": sum(self.counts.values()),
        }
        files.write_text(_path(world, table), json.dumps(last))


class Last(BaseModel, extra="allow"):
    """What each stored result has."""

    time: str
    is_equal: bool
    differences: int


def last_reconciliation(world: World, table: Table) -> Optional[dict[str, Any]]:
    """Return the last result of a lake table; None if there was none.

    Returns:
        The attributes of `Reconciliation`, with differences as the number of keys; is_equal; and time (UTC, ISO 8601).

    Raises:
        LakeError: the stored result is damaged.
    """
    path = _path(world, table)
    try:
        text = files.read_text(path)
        return Last.model_validate_json(text).model_dump() if text is not None else None
    except ValueError as e:
        raise LakeError(
            f"the last comparison of {table.name} cannot be read",
            location=path,
            hint="delete the file; the next comparison of the flow writes it anew",
        ) from e


def _path(world: World, table: Table) -> str:
    return f"{table_state_dir(world, table)}/reconciliation.json"
