"""Files of rows, which PostgreSQL checks and loads by COPY: CSV files, and the blocks of a pg_dump file."""

import csv
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Mapping, Optional, Sequence, Union

import psycopg

from ..base import SourceError, did_you_mean, first_line
from .names import format_sql

FIX_FILE_HINT = "fix the file or fetch it again; nothing was changed"
# The table name may be quoted, and qualified by a schema. The line `\.` ends the rows.
COPY_BLOCK = re.compile(
    rb'^COPY (?:[^ ]+\.)?"?([^". ]+)"? \(([^\n]+)\) FROM stdin;\s*?\n(.*?)^\\\.$',
    re.M | re.S | re.I,
)


@dataclass(frozen=True)
class Rows:
    """The rows of a file for a table.

    Attributes:
        table: name of the table.
        columns: names of the columns, in the order of the file.
        data: the rows, as CSV with a header or in COPY's text format.
        path: the file.
        lines_before: number of lines in the file before `data`.
        null: the text of a NULL in CSV, also in quotes; None for the text format.
        types: for a new temporary table: {column: type}; a column without a type is text. Empty for
            an existing table.
    """

    table: str
    columns: tuple[str, ...]
    data: bytes = field(repr=False)
    path: Path
    lines_before: int = 0
    null: Optional[str] = None
    types: Mapping[str, str] = field(default_factory=dict)

    def run(self, connection: psycopg.Connection) -> None:
        """Load the rows.

        Raises:
            SourceError: PostgreSQL rejects a row. The error has the line and the column.
        """
        columns = ", ".join("{}" for _ in self.columns)
        statement = f"COPY {{}} ({columns}) FROM STDIN"
        if self.null is not None:
            statement += f" (FORMAT csv, HEADER, NULL '{self.null}', FORCE_NULL ({columns}))"
        types = ", ".join(f"{{}} {self.types.get(name, 'text')}" for name in self.columns)
        create = f"CREATE TEMPORARY TABLE {{}} ({types}) ON COMMIT DROP"
        copy_rows = format_sql(statement, self.table, *self.columns, *self.columns)
        try:
            if self.types:
                connection.execute(format_sql(create, self.table, *self.columns))
            with connection.cursor() as cursor, cursor.copy(copy_rows) as copy:
                copy.write(self.data)
        except psycopg.Error as e:
            problem = ". ".join(filter(None, (first_line(e), e.diag.message_detail)))
            # such as: COPY artists, line 3, column artist_id: "x". Its first line is that of the rows.
            position = re.sub(
                r"(?<=, line )\d+",
                lambda line: str(self.lines_before + int(line[0])),
                e.diag.context or f"the rows after line {self.lines_before}",
                count=1,
            )
            raise SourceError(
                problem, location=f"{self.path}: {position}", hint=FIX_FILE_HINT
            ) from None


def csv_rows(path: Path, table: str, null: str = "", types: Mapping[str, str] = {}) -> Rows:
    """Return the rows of a CSV file with a header.

    Args:
        path: the file.
        table: name of the table, which has the columns of the file.
        null: the text of a NULL, also in quotes.
        types: for a new temporary table: {column: type}. The file must have these columns, in any
            order. Its other columns become text.

    Raises:
        SourceError: the file cannot be read, lacks a column, or has a line that would end the rows.
    """
    data = _read(path)
    lines = data[:10_000].decode("utf-8-sig", "replace").replace("\0", "").splitlines()
    columns = tuple(next(csv.reader(lines), []))
    for column in types:
        if column not in columns:
            raise SourceError(
                f"column {column!r} is missing",
                location=f"{path}, line 1: {','.join(columns)[:80]}",
                expected=did_you_mean(column, columns),
                hint=FIX_FILE_HINT,
            )
    end = re.search(rb"^\\\.\r?$", data, re.M)
    if end:  # COPY would ignore all rows after it
        location = f"{path}, line {_line(data, end.start())}"
        raise SourceError(r"a line is \.", location=location, hint=FIX_FILE_HINT)
    return Rows(table, columns, data, path, null=null, types=types)


def dump_rows(path: Path, tables: Sequence[str]) -> list[Rows]:
    """Return the rows of tables in a dump. Other tables and all statements are ignored.

    Args:
        path: the dump.
        tables: names of the tables, in the order of the result.

    Raises:
        SourceError: the file cannot be read; or a table is missing, incomplete or occurs twice.
    """
    data = _read(path).replace(b"\r\n", b"\n")
    blocks: dict[str, Rows] = {}
    for block in COPY_BLOCK.finditer(data):
        table, columns = (group.decode("utf-8", "replace") for group in block.groups()[:2])
        line = _line(data, block.start())
        if table in blocks:
            location = f"{path}, line {line}"
            raise SourceError(f"table {table} occurs twice", location=location, hint=FIX_FILE_HINT)
        names = tuple(column.strip(' "') for column in columns.split(","))
        blocks[table] = Rows(table, names, block[3], path, line)
    missing = [table for table in tables if table not in blocks]
    if missing:
        raise SourceError(
            f"the dump has no rows of {', '.join(missing)}",
            location=str(path),
            expected=f"a plain pg_dump, without --inserts: COPY {missing[0]} (…) FROM stdin; "
            "its rows, and a line \\. at their end",
            hint=FIX_FILE_HINT,
        )
    return [blocks[table] for table in tables]


def read_dicts(path: Path, separator: str = ",") -> list[dict[str, str]]:
    """Return the rows of a CSV file of this repository, as dicts by column."""
    with path.open(encoding="utf-8", newline="") as f:
        return list(csv.DictReader(f, delimiter=separator))


def find_file(folder: Union[str, Path], name: str, expected: str) -> Path:
    """Return the path of a user's own file.

    Args:
        folder: the folder of the file.
        name: name of the file.
        expected: the files that the folder should contain, for the error.

    Raises:
        SourceError: the file does not exist. If a compressed file exists, the error names it.
    """
    path = Path(folder) / name
    if path.is_file():
        return path
    packed = sorted(file.name for file in path.parent.glob(f"{name}.*"))
    hint = "correct the folder, or leave it out to load generated data"
    raise SourceError(
        f"{name} does not exist",
        location=str(path),
        expected=f"a folder with {expected}",
        hint=f"unpack {packed[0]}" if packed else hint,
    )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as e:
        location = f"{path}: {e.strerror}"
        raise SourceError("the file cannot be read", location=location) from None


def _line(data: bytes, position: int) -> int:
    return data.count(b"\n", 0, position) + 1
