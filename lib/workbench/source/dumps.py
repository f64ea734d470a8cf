"""Read the rows in the COPY blocks of a pg_dump file."""

import re
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Sequence

from ..base import SourceError
from .loading import FIX_FILE_HINT, Table

# The table name may be quoted, and qualified by a schema. The line `\.` ends the rows.
COPY_BLOCK = re.compile(
    r'^COPY (?:[^ ]+\.)?"?([^". ]+)"? \(([^\n]+)\) FROM stdin;\s*?\n(.*?)^\\\.$', re.M | re.S | re.I
)


def read_tables(path: Path, names: Sequence[str]) -> list[Table]:
    """Return the tables of a dump with their rows. Other tables and all statements are ignored.

    Rows stay in COPY's text format: PostgreSQL reports invalid values when they are loaded.

    Args:
        path: the dump.
        names: the tables, in the order of the result.

    Raises:
        SourceError: the file cannot be read; or a table is missing, incomplete or occurs twice.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as e:
        raise SourceError(
            "the dump cannot be read", location=f"{path}: {e}", hint=FIX_FILE_HINT
        ) from None
    tables: dict[str, Table] = {}
    for block in COPY_BLOCK.finditer(text):
        name, column_list, rows = block.groups()
        line = text.count("\n", 0, block.start()) + 1
        if name in tables:
            raise SourceError(
                f"table {name} occurs twice", location=f"{path}, line {line}", hint=FIX_FILE_HINT
            )
        columns = tuple(column.strip(' "') for column in column_list.split(","))
        tables[name] = Table(name, columns, partial(StringIO, rows), (path, line))
    missing = [name for name in names if name not in tables]
    if missing:
        raise SourceError(
            f"the dump has no rows of {', '.join(missing)}",
            location=str(path),
            expected=f"a plain pg_dump, without --inserts: COPY {missing[0]} (…) FROM stdin; "
            "its rows, and a line \\. at their end",
            hint=FIX_FILE_HINT,
        )
    return [tables[name] for name in names]
