"""Read CSV files. Each column has a parser, and errors name file, line and column."""

import csv
import datetime as dt
import io
import re
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, Callable, Iterator, Mapping, Sequence, Union

from ..base import SourceError, did_you_mean, yaml_files
from .loading import FIX_FILE_HINT, Table, find_file

ColumnParser = Callable[[str], Any]
MAX_REPORTED_ERRORS = 10  # further ones are only counted


@dataclass(frozen=True)
class CsvFile:
    """A CSV file of a table.

    Attributes:
        name: name of the file.
        columns: {column of the table: (column of the file, parser)}; the first column is the key.
        required_keys: keys that must exist, because a walkthrough follows their rows.
    """

    name: str
    columns: Mapping[str, tuple[str, ColumnParser]]
    required_keys: frozenset[int] = frozenset()


def column_parser(pattern: str, expected: str, convert: ColumnParser = str) -> ColumnParser:
    """Return the parser of a column, which raises ValueError for an invalid text.

    Args:
        pattern: regular expression of a valid text, with one group. An empty group is parsed as None.
        expected: the message of the error.
        convert: converts the text of the group; may raise ValueError.
    """
    match_text = re.compile(pattern, re.DOTALL).fullmatch

    def parse(text: str) -> Any:
        match = match_text(text)
        if not match:
            raise ValueError(expected)
        try:
            return convert(match[1]) if match[1] else None
        except ValueError:
            raise ValueError(expected) from None

    return parse


def parse_int4(text: str) -> int:
    """Return a whole number in the range of PostgreSQL's `integer`."""
    number = int(text)
    if number >= 2**31:
        raise ValueError(INT4_MESSAGE)
    return number


INT4_MESSAGE = "a whole number below 2,147,483,648"
PARSERS = {  # by their names in the declaration of files
    "text": column_parser(r"([^\0]*)", "text without NUL characters"),  # PostgreSQL accepts none
    "key": column_parser(r"\s*([0-9]{1,10})\s*", INT4_MESSAGE, parse_int4),
    "year": column_parser(r"\s*0*([0-9]{0,10})\s*", INT4_MESSAGE, parse_int4),  # 0: unknown
    # the first of several keys
    "first": column_parser(r"(?:\s*([0-9]{1,10})\s*(?:,.*)?)?", INT4_MESSAGE, parse_int4),
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


def load_declarations(path: Path, *sections: str) -> dict[str, CsvFile]:
    """Return {table: CSV file} as a YAML file declares them.

    Args:
        path: the YAML file (data/moma/files.yaml documents the format).
        *sections: the sections of the columns to use, such as `columns`.
    """
    files = {}
    for table, declaration in yaml_files.load(path).items():
        columns = {}
        for section in sections:
            for column, (name, parser) in declaration.get(section, {}).items():
                columns[column] = (name, PARSERS[parser])
        files[table] = CsvFile(
            declaration["file"], columns, frozenset(declaration["required_keys"])
        )
    return files


def read_rows(folder: Path, name: str, separator: str = ",") -> list[dict[str, str]]:
    """Return the rows of `<name>.csv`, a file of this repository, as dicts by column."""
    with (folder / f"{name}.csv").open(encoding="utf-8", newline="") as f:
        return list(csv.DictReader(f, delimiter=separator))


def bundled_tables(
    folder: Path, names: Sequence[str], scale: Any, id_steps: Mapping[str, int], null: str = ""
) -> list[Table]:
    """Return tables whose rows are files of this repository, `<name>.csv`.

    Args:
        folder: the folder of the files.
        names: the tables, in the order of the result.
        scale: number of repetitions of the rows in the tables of `id_steps`; other tables have them
            once.
        id_steps: {table: number that each repetition adds to the first column}.
        null: the text of a NULL in the files.

    Raises:
        SourceError: scale is not a whole number from 1 to 1000.
    """
    if type(scale) is not int or not 1 <= scale <= 1000:
        raise SourceError(f"scale is {scale!r}", expected="a whole number from 1 to 1000")
    tables = []
    for name in names:
        records = read_rows(folder, name)
        rows = [
            tuple(None if value == null else value for value in record.values())
            for record in records
        ]
        table = Table(name, tuple(records[0]), rows.__iter__)
        if name in id_steps:
            table = scaled(table, scale, {table.columns[0]: id_steps[name]})
        tables.append(table)
    return tables


def scaled(table: Table, times: int, id_steps: Mapping[str, int]) -> Table:
    """Return a table that repeats the rows of a table with other numbers.

    Args:
        table: the table.
        times: number of repetitions.
        id_steps: {column: number that each repetition adds to its values}.
    """

    def rows() -> Iterator[tuple[Any, ...]]:
        for block in range(times):
            for row in table.rows():
                yield tuple(
                    int(value) + block * id_steps[column] if column in id_steps and value else value
                    for column, value in zip(table.columns, row)
                )

    return replace(table, rows=rows)


def read_tables(folder: Union[str, Path], files: Mapping[str, CsvFile]) -> list[Table]:
    """Read the tables in the files of a folder completely, and report all errors together.

    Raises:
        SourceError: a file or a column is missing, or a column occurs twice; or values cannot be
            loaded (an invalid value, a duplicate key, an incomplete row, text that is not UTF-8).
            The error lists the first invalid values with file, line and column, and counts all. If
            all values are valid: required keys are missing.
    """
    errors: list[SourceError] = []
    tables = []
    names = " and ".join(file.name for file in files.values())
    for name, file in files.items():
        rows, file_errors = _parse_rows(find_file(folder, file.name, names), file)
        tables.append(Table(name, tuple(file.columns), rows.__iter__))
        errors += file_errors
    if len(errors) == 1:
        raise errors[0]
    if errors:
        lines = []
        for error in errors[:MAX_REPORTED_ERRORS]:
            expected = f", not {error.expected}" if error.expected else ""
            problem = error.message.partition(" is ")[2] or error.message
            lines.append(f"{error.location}: {problem}{expected}")
        if len(errors) > MAX_REPORTED_ERRORS:
            lines.append(f"… and {len(errors) - MAX_REPORTED_ERRORS:,} more")
        raise SourceError(
            f"{len(errors):,} values of the files cannot be loaded",
            location="\n            ".join(lines),
            hint=FIX_FILE_HINT,
        )
    return tables


def _parse_rows(path: Path, file: CsvFile) -> tuple[list[tuple[Any, ...]], list[SourceError]]:
    """Return the rows of a file, and the errors in them."""
    records = _read_records(path)
    _, header = next(records, (1, []))
    _validate_header(header, path, [name for name, _ in file.columns.values()])
    columns = [(name, header.index(name), parse) for name, parse in file.columns.values()]
    key_column = columns[0][0]
    rows: list[tuple[Any, ...]] = []
    errors: list[SourceError] = []
    lines_by_key: dict[Any, int] = {}
    try:
        for line, record in records:
            if len(record) != len(header):
                expected = f"{len(header)} values, not {len(record)}"
                errors.append(_row_error(path, line, "record", record, expected))
                continue
            row = []
            for name, position, parse in columns:
                try:
                    row.append(parse(record[position]))
                except ValueError as e:
                    errors.append(_row_error(path, line, name, record[position], str(e)))
            if len(row) == len(columns) and lines_by_key.setdefault(row[0], line) != line:
                expected = f"each key once; line {lines_by_key[row[0]]} has it, too"
                errors.append(_row_error(path, line, key_column, row[0], expected))
            rows.append(tuple(row))
    except SourceError as e:  # the rest of the file cannot be read
        errors.append(e)
    missing = sorted(file.required_keys - lines_by_key.keys())
    if not errors and (missing or not rows):
        message = "the file has a header and no rows"
        if rows:
            message = f"rows that the walkthrough requires are missing: {missing}"
        location = f"{path}, {key_column}"
        errors.append(SourceError(message, location=location, hint=FIX_FILE_HINT))
    return rows, errors


def _validate_header(header: list[str], path: Path, columns: list[str]) -> None:
    """Raise SourceError unless a header has each of these columns once."""
    line = ",".join(header)
    location = f"{path}, line 1: {line[:80]}"
    if line.startswith("version https://git-lfs"):
        raise SourceError(
            "this is the Git LFS pointer to the file", location=location, hint="fetch the file"
        )
    separators = [separator for separator in (";", "\t", "|") if separator in line]
    for column in columns:
        count = header.count(column)
        message, expected = f"column {column!r} is missing", did_you_mean(column, header)
        if count == 1:
            continue
        if count:
            message, expected = f"column {column!r} occurs {count} times", "each column once"
        elif not header:
            message, expected = "the file is empty", "a header"
        elif len(header) == 1 and separators:
            expected = f"commas between the values, not {separators[0]!r}"
        raise SourceError(message, location=location, expected=expected, hint=FIX_FILE_HINT)


def _read_records(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield each record with the line where it begins: a quoted value may contain line breaks.

    Raises:
        SourceError: the file, or the rest of it, cannot be read.
    """
    line = 1
    try:
        lines = io.StringIO(path.read_bytes().decode("utf-8-sig"), newline="")
        reader = csv.reader(lines, strict=True)  # strict: a file must not end inside quotes
        for record in reader:
            if record:  # not an empty line
                yield line, record
            line = reader.line_num + 1
    except OSError as e:
        location = f"{path}: {e.strerror}"
        raise SourceError("the file cannot be read", location=location) from None
    except UnicodeDecodeError as e:
        *lines_before, last_line = e.object[: e.start].split(b"\n")
        value = e.object[e.start : e.start + 10]
        column = f"byte {len(last_line) + 1}"
        raise _row_error(path, len(lines_before) + 1, column, value, "UTF-8") from None
    except csv.Error as e:
        raise _row_error(path, line, "record", str(e), "comma-separated values") from None


def _row_error(path: Path, line: int, column: str, value: object, expected: str) -> SourceError:
    return SourceError(
        f"{column} is {repr(value)[:100]}",
        location=f"{path}, line {line}, {column}",
        expected=expected,
        hint=FIX_FILE_HINT,
    )
