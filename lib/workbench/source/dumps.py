"""Rows of a dump as pg_dump writes it: its COPY blocks, without its statements."""

import re
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Sequence

from ..base import SourceError
from .loading import FIX_FILE_HINT, Table

# a name may be quoted, and after that of a schema; the rows end with a line of their own
COPY_BLOCK = re.compile(
    r'^COPY (?:[^ ]+\.)?"?([^". ]+)"? \(([^\n]+)\) FROM stdin;\s*?\n(.*?)^\\\.$', re.M | re.S | re.I
)


def read_tables(path: Path, names: Sequence[str]) -> list[Table]:
    """Return these tables with the rows that the dump has of them, in the order of the names; other
    tables, and all statements, are passed over. Rows stay in COPY's text format: what is wrong in
    one, PostgreSQL says at the load.

    Raises:
        SourceError: the file cannot be read; a table is missing, ends with the file, or is there
            twice.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as e:
        raise SourceError(
            "the dump cannot be read", location=f"{path}: {e}", hint=FIX_FILE_HINT
        ) from None
    found: dict[str, Table] = {}
    for block in COPY_BLOCK.finditer(text):
        name, columns, rows = block.groups()
        line = text.count("\n", 0, block.start()) + 1
        if name in found:
            raise SourceError(
                f"table {name} is there twice", location=f"{path}, line {line}", hint=FIX_FILE_HINT
            )
        listed = tuple(column.strip(' "') for column in columns.split(","))
        found[name] = Table(name, listed, partial(StringIO, rows), (path, line))
    lacking = [name for name in names if name not in found]
    if lacking:
        raise SourceError(
            f"the dump has no rows of {', '.join(lacking)}",
            location=str(path),
            hint=FIX_FILE_HINT,
            expected=f"a plain pg_dump, without --inserts: COPY {lacking[0]} (…) FROM stdin; its rows, "
            "and a line \\. at their end",
        )
    return [found[name] for name in names]
