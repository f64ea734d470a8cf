"""Rows of a dump as pg_dump writes it: its COPY blocks, without its statements."""
from __future__ import annotations

import re
from pathlib import Path
from typing import Iterator, Sequence

from ..base import SourceError
from .loading import MEND, Table

# a name may be quoted, and after that of a schema
_COPY = re.compile(r'COPY (?:[^ ]+\.)?"?([^". ]+)"? \((.+)\) FROM stdin;\s*', re.IGNORECASE)


def tables(path: Path, names: Sequence[str]) -> list[Table]:
    """Return these tables with the rows that the dump has of them, in the order of the names; other tables, and all
    statements, are passed over. Rows stay in COPY's text format: what is wrong in one, PostgreSQL says at the load.

    Raises:
        SourceError: the file cannot be read, or ends in the middle of a table; a table is missing, or is there twice.
    """
    found: dict[str, Table] = {}
    try:
        with path.open(encoding="utf-8-sig") as lines:
            numbered = enumerate(lines, 1)
            for line, text in numbered:
                begun = _COPY.fullmatch(text)
                if begun and begun[1] in found:
                    raise SourceError(f"table {begun[1]} is there twice", where=f"{path}, line {line}", next_step=MEND)
                if begun:
                    columns = tuple(column.strip(' "') for column in begun[2].split(","))
                    rows = _block(numbered, f"{path}, line {line} on: {begun[1]}")
                    found[begun[1]] = Table(begun[1], columns, rows.__iter__, (path, line))
    except (OSError, UnicodeDecodeError) as e:
        raise SourceError("the dump cannot be read", where=f"{path}: {e}", next_step=MEND) from None
    lacking = [name for name in names if name not in found]
    if lacking:
        raise SourceError(f"the dump has no rows of {', '.join(lacking)}", where=str(path), next_step=MEND,
                          expected=f"COPY {lacking[0]} (…) FROM stdin; as a plain pg_dump writes it, without --inserts")
    return [found[name] for name in names]


def _block(numbered: Iterator[tuple[int, str]], where: str) -> list[str]:
    rows = []
    for _, row in numbered:
        if row.rstrip("\n") == r"\.":
            return rows
        rows.append(row)
    raise SourceError("the file ends in the middle of a table", where=where, expected=r"a line \. at its end",
                      next_step=MEND)
