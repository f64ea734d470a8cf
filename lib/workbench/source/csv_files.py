"""Reading CSV files: each value by the reader of its column, each error with file, line and
column.
"""

import csv
import datetime as dt
import io
import re
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, Callable, Iterator, Mapping, Sequence, Union

import yaml

from ..base import SourceError, did_you_mean
from .loading import FIX_FILE_HINT, Table, find_file

ColumnParser = Callable[[str], Any]
MAX_REPORTED_ERRORS = 10  # so many bad values are named, and all counted


@dataclass(frozen=True)
class CsvFile:
    """A CSV file of a table: {column of the table: column of the file, and how to read it}, of
    which the first is the key; and those of its keys that a walkthrough follows, which have to be
    there.
    """

    name: str
    columns: Mapping[str, tuple[str, ColumnParser]]
    required_keys: frozenset[int] = frozenset()


def column_parser(pattern: str, expected: str, make: ColumnParser = str) -> ColumnParser:
    """Make the reader of a column: of a text that fits the pattern, what `make` gives of the
    pattern's group, None of an empty one. Of another it raises ValueError, saying what was
    expected; `make` may, too.
    """
    fit = re.compile(pattern, re.DOTALL).fullmatch

    def value(text: str) -> Any:
        try:
            found = fit(text)[1]
            return make(found) if found else None
        except (TypeError, ValueError):  # the text does not fit; or `make` refuses it
            raise ValueError(expected) from None

    return value


def parse_int4(text: str) -> int:
    """A whole number as PostgreSQL's `integer` holds it."""
    number = int(text)
    if number >= 2**31:
        raise ValueError(INT4_MESSAGE)
    return number


INT4_MESSAGE = "a whole number below 2,147,483,648"
PARSERS = {  # of columns, by the names that a declaration of files has
    "text": column_parser(r"([^\0]*)", "text without NUL characters"),  # PostgreSQL takes none
    "key": column_parser(r"\s*([0-9]{1,10})\s*", INT4_MESSAGE, parse_int4),
    "year": column_parser(
        r"\s*0*([0-9]{0,10})\s*", INT4_MESSAGE, parse_int4
    ),  # 0 where it is unknown
    "first": column_parser(
        r"(?:\s*([0-9]{1,10})\s*(?:,.*)?)?", INT4_MESSAGE, parse_int4
    ),  # of several keys
    "day": column_parser(
        "([0-9]{4}-[0-9]{2}-[0-9]{2})?", "a date such as 2009-04-15", dt.date.fromisoformat
    ),
    "instant": column_parser(
        "([0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:.]+)?", "an instant", dt.datetime.fromisoformat
    ),
    "number": column_parser(
        r"([0-9]{1,6}(?:\.[0-9]{0,20})?)?", "a number below 1,000,000", Decimal
    ),
}


def load_declarations(path: Path, *parts: str) -> dict[str, CsvFile]:
    """Return the files of tables that a YAML file declares (data/moma/files.yaml says how), with
    these parts of their columns, such as `columns`.
    """
    said = yaml.safe_load(path.read_text(encoding="utf-8"))
    return {
        table: CsvFile(
            of["file"],
            {
                column: (name, PARSERS[how])
                for part in parts
                for column, (name, how) in of.get(part, {}).items()
            },
            frozenset(of["followed"]),
        )
        for table, of in said.items()
    }


def read_rows(folder: Path, name: str, separator: str = ",") -> list[dict[str, str]]:
    """Return the rows of `<name>.csv`, a file of this repository, each by its columns."""
    with (folder / f"{name}.csv").open(encoding="utf-8", newline="") as f:
        return list(csv.DictReader(f, delimiter=separator))


def bundled_tables(
    folder: Path, names: Sequence[str], scale: Any, further: Mapping[str, int], null: str = ""
) -> list[Table]:
    """Return tables whose rows are files of this repository, `<name>.csv`, in the order of the
    names.

    Args:
        scale: so many times a table of `further` has its rows, {table: what is added each time to
            the number in its first column}; the others have them once.
        null: the text that stands for NULL.

    Raises:
        SourceError: scale is not a whole number from 1 to 1000.
    """
    if type(scale) is not int or not 1 <= scale <= 1000:
        raise SourceError(f"scale is {scale!r}", expected="a whole number from 1 to 1000")
    made = []
    for name in names:
        found = read_rows(folder, name)
        rows = [tuple(None if value == null else value for value in row.values()) for row in found]
        table = Table(name, tuple(found[0]), rows.__iter__)
        made.append(
            scaled(table, scale, {table.columns[0]: further[name]}) if name in further else table
        )
    return made


def scaled(table: Table, times: int, further: Mapping[str, int]) -> Table:
    """Return a table that has the rows of this one so many times, each time with other numbers:
    {column: what is added to its numbers}.
    """

    def rows() -> Iterator[tuple]:
        for block in range(times):
            for row in table.rows():
                yield tuple(
                    int(value) + block * further[column] if column in further and value else value
                    for column, value in zip(table.columns, row)
                )

    return replace(table, rows=rows)


def read_tables(folder: Union[str, Path], files: Mapping[str, CsvFile]) -> list[Table]:
    """Return the tables that the files of a folder hold, in their order; they are read to their
    ends now.

    Raises:
        SourceError: a file or a column is missing, or is there twice; or values cannot be loaded,
            of which ten are named (file, line, column and value) and all counted: a value is not
            what its column holds, a key is there twice, a row is cut off, the text is not UTF-8.
            Where all are fine: keys that are followed are not there.
    """
    found: list[SourceError] = []
    made = []
    for name, file in files.items():
        rows, wrong = _parse_rows(
            find_file(folder, file.name, " and ".join(f.name for f in files.values())), file
        )
        made.append(Table(name, tuple(file.columns), rows.__iter__))
        found += wrong
    if len(found) == 1:
        raise found[0]
    if found:
        lines = [
            f"{e.location}: {e.message.partition(' is ')[2] or e.message}"
            + (f", not {e.expected}" if e.expected else "")
            for e in found[:MAX_REPORTED_ERRORS]
        ]
        more = (
            [f"… and {len(found) - MAX_REPORTED_ERRORS:,} more"]
            if len(found) > MAX_REPORTED_ERRORS
            else []
        )
        raise SourceError(
            f"{len(found):,} values of the files cannot be loaded",
            hint=FIX_FILE_HINT,
            location="\n            ".join([*lines, *more]),
        )
    return made


def _parse_rows(path: Path, file: CsvFile) -> tuple[list[tuple], list[SourceError]]:
    """The rows of a file, and what is wrong with them."""
    records = _read_records(path)
    _, header = next(records, (1, []))
    if isinstance(header, SourceError):
        raise header
    _validate_header(header, path, [column for column, _ in file.columns.values()])
    places = [(column, header.index(column), read) for column, read in file.columns.values()]
    rows: list[tuple] = []
    found: list[SourceError] = []
    seen: dict[Any, int] = {}  # the line of each key
    for line, record in records:
        row = []
        if isinstance(record, SourceError):
            found.append(record)
            continue
        if len(record) != len(header):
            found.append(
                _row_error(path, line, "record", record, f"{len(header)} values, not {len(record)}")
            )
            continue
        for column, place, read in places:
            try:
                row.append(read(record[place]))
            except ValueError as e:
                found.append(_row_error(path, line, column, record[place], str(e)))
        if len(row) == len(places) and seen.setdefault(row[0], line) != line:
            twice = f"each one once; line {seen[row[0]]} has it, too"
            found.append(_row_error(path, line, places[0][0], row[0], twice))
        rows.append(tuple(row))
    lacking = sorted(file.required_keys - seen.keys())
    if not found and (lacking or not rows):
        found.append(
            SourceError(
                f"the rows that the walkthrough follows are not there: {lacking}"
                if rows
                else "the file has a header and no rows",
                location=f"{path}, {places[0][0]}",
                hint=FIX_FILE_HINT,
            )
        )
    return rows, found


def _validate_header(header: list[str], path: Path, columns: list[str]) -> None:
    """See that a header has our columns, each once."""
    line = ",".join(header)
    where = f"{path}, line 1: {line[:80]}"
    if not header:
        raise SourceError(
            "the file is empty", location=where, expected="a header", hint=FIX_FILE_HINT
        )
    if line.startswith("version https://git-lfs"):
        raise SourceError(
            "this is Git LFS's pointer to the file", location=where, hint="fetch the file itself"
        )
    for column in columns:
        times = header.count(column)
        if times > 1:
            raise SourceError(
                f"column {column!r} is there {times} times",
                location=where,
                expected="each column once",
                hint=FIX_FILE_HINT,
            )
        if not times:
            separator = next((s for s in (";", "\t", "|") if len(header) == 1 and s in line), "")
            expected = (
                f"commas between the values, not {separator!r}"
                if separator
                else did_you_mean(column, header)
            )
            raise SourceError(
                f"column {column!r} is missing",
                location=where,
                expected=expected,
                hint=FIX_FILE_HINT,
            )


def _read_records(path: Path) -> Iterator[tuple[int, Union[list[str], SourceError]]]:
    """Yield the records, each with the line it begins at: a quoted value may hold line breaks. The
    last is an error where the file cannot be read further, so that what is wrong above it is told
    with it.
    """
    line = 1
    try:
        # strict: a file may not end in quotes
        lines = csv.reader(
            io.StringIO(path.read_bytes().decode("utf-8-sig"), newline=""), strict=True
        )
        for record in lines:
            if record:  # not an empty line
                yield line, record
            line = lines.line_num + 1
    except OSError as e:
        yield line, SourceError("the file cannot be read", location=f"{path}: {e.strerror}")
    except UnicodeDecodeError as e:
        *above, begun = e.object[: e.start].split(b"\n")
        bad = e.object[e.start : e.start + 10]
        yield line, _row_error(path, len(above) + 1, f"byte {len(begun) + 1}", bad, "UTF-8")
    except csv.Error as e:
        yield line, _row_error(path, line, "record", str(e), "comma-separated values")


def _row_error(path: Path, line: int, column: str, value: object, expected: str) -> SourceError:
    return SourceError(
        f"{column} is {repr(value)[:100]}",
        location=f"{path}, line {line}, {column}",
        expected=expected,
        hint=FIX_FILE_HINT,
    )
