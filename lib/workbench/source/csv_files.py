"""Reading somebody's own CSV files: each value by the reader of its column, each error with file, line and column."""
from __future__ import annotations

import codecs
import csv
import re
from datetime import date
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, FrozenSet, Iterator, List, Tuple, Union

from ..base.errors import SourceError, nearest
from .loading import MEND, Table

Reader = Callable[[str], Any]
Columns = Dict[str, Tuple[str, Reader]]  # column of the table: column of the file, and how to read it


def reader(pattern: str, make: Reader, expected: str) -> Reader:
    """Make the reader of a column: None of an empty value, else what `make` gives of a text that fits the pattern.

    It raises ValueError, saying what was expected; `make` may, too.
    """
    def value(text: str) -> Any:
        try:
            if text and not re.fullmatch(pattern, text, re.DOTALL):
                raise ValueError
            return make(text) if text else None
        except ValueError:
            raise ValueError(expected) from None

    return value


def _int4(text: str) -> int:
    if int(text) >= 2**31:
        raise ValueError
    return int(text)


text = reader(r"[^\0]*", str, "text without NUL characters")  # PostgreSQL takes none
whole = reader(r"\s*[0-9]{1,10}\s*", _int4, "a whole number below 2,147,483,648")
day = reader("[0-9]{4}-[0-9]{2}-[0-9]{2}", date.fromisoformat, "a date such as 2009-04-15")
number = reader(r"[0-9]{1,6}(\.[0-9]{0,20})?", Decimal, "a number below 1,000,000")


def read(folder: Path, name: str) -> List[Dict[str, str]]:
    """Return the rows of `<name>.csv`, a file of this repository, each by its columns."""
    with (folder / f"{name}.csv").open(encoding="utf-8", newline="") as f:
        return list(csv.DictReader(f))


def key(value: str) -> int:
    """Read a whole number that has to be there."""
    return whole(value or "none")


def table(name: str, path: Path, columns: Columns, followed: FrozenSet[int] = frozenset()) -> Table:
    """Return the table that a file holds; its header is read now. The first of the columns is the key.

    Its rows have, in place of one that cannot be loaded, an error for each of its bad values: a value is not what its
    column holds, a key is there twice, a row is cut off, the text is not UTF-8. They name file, line, column and value.
    Where all are fine, an error says which of the keys `followed` are not there.

    Raises:
        SourceError: a column is missing, or is there twice.
    """
    _, header = next(_records(path), (1, []))
    _see(header, path, columns)
    return Table(name, tuple(columns), partial(_rows, path, columns, followed))


def _see(header: List[str], path: Path, columns: Columns) -> None:
    """See that a header has our columns, each once."""
    line = ",".join(header)
    where = f"{path}, line 1: {line[:80]}"
    if not header:
        raise SourceError("the file is empty", where=where, expected="a header", next_step=MEND)
    if line.startswith("version https://git-lfs"):
        raise SourceError("this is Git LFS's pointer to the file", where=where, next_step="fetch the file itself")
    for column, _ in columns.values():
        if header.count(column) > 1:
            raise SourceError(f"column {column!r} is there {header.count(column)} times", where=where,
                              expected="each column once", next_step=MEND)
        if column not in header:
            separator = next((s for s in (";", "\t", "|") if len(header) == 1 and s in line), "")
            expected = f"commas between the values, not {separator!r}" if separator else nearest(column, header)
            raise SourceError(f"column {column!r} is missing", where=where, expected=expected,
                              next_step="use the file as published; nothing was changed")


def _rows(path: Path, columns: Columns, followed: FrozenSet[int]) -> Iterator[Union[tuple, SourceError]]:
    seen: Dict[Any, int] = {}
    records, sound = _records(path), True
    try:
        _, header = next(records)
        wanted = [(column, header.index(column), read) for column, read in columns.values()]
        for line, record in records:
            row, bad = [], []
            if len(record) != len(header):
                bad = [_broken(path, line, "record", record, f"{len(header)} values, not {len(record)}")]
            for column, place, read in () if bad else wanted:
                try:
                    row.append(read(record[place]))
                except ValueError as e:
                    bad.append(_broken(path, line, column, record[place], str(e)))
            if not bad and seen.setdefault(row[0], line) != line:
                bad = [_broken(path, line, wanted[0][0], row[0], f"each one once; line {seen[row[0]]} has it, too")]
            sound = sound and not bad
            yield from bad or [tuple(row)]
        lacking = sorted(followed - seen.keys())
        if sound and (lacking or not seen):
            yield SourceError(f"the rows that the walkthrough follows are not there: {lacking}" if seen else
                              "the file has a header and no rows", where=f"{path}, {wanted[0][0]}", next_step=MEND)
    except SourceError as e:  # the rest of the file cannot be read
        yield e


def _records(path: Path) -> Iterator[Tuple[int, List[str]]]:
    """Yield the records, each with the line it begins at: a quoted value may hold line breaks."""
    line = 1
    try:
        with path.open("rb") as f:
            f.seek(len(codecs.BOM_UTF8) if f.read(3) == codecs.BOM_UTF8 else 0)
            # line by line, so that what is not UTF-8 is found where it stands; strict: a file may not end in quotes
            lines = csv.reader((each.decode() for each in f), strict=True)
            try:
                for record in lines:
                    if record:  # not an empty line
                        yield line, record
                    line = lines.line_num + 1
            except csv.Error as e:
                raise _broken(path, line, "record", str(e), "comma-separated values") from None
            except UnicodeDecodeError as e:
                raise _broken(path, lines.line_num + 1, f"byte {e.start + 1}", e.object[e.start:e.start + 10],
                              "UTF-8") from None
    except OSError as e:
        raise SourceError("the file cannot be read", where=f"{path}: {e.strerror}") from None


def _broken(path: Path, line: int, column: str, value: object, expected: str) -> SourceError:
    return SourceError(f"{column} is {repr(value)[:100]}", where=f"{path}, line {line}, {column}", expected=expected,
                       next_step=MEND)
