"""Readiness of a source for change data capture: what the server lacks, and the SQL that adds it."""

import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Callable, Optional, Sequence, Union

import pandas
from psycopg import sql
from rich.filesize import decimal as format_size

from ..base import WorkbenchError, World, yaml_files
from ..base.params import MySql, Postgres
from ..base.terminal import escape_unprintable
from ..base.text import plural
from ..stack.doctor import Finding
from . import mariadb, postgres
from .queries import QUERIES

HINTS = yaml_files.load(Path(__file__).with_suffix(".yaml"))
SEPARATOR = "\x1e"  # between the statements of a row of readiness.sql
COLUMNS = ["item", "value", "problem", "statements"]
CORRECT_NAME = "-- correct the name: schema.table, for a partition that of its table"


@dataclass(frozen=True)
class Report:
    """The result of `check`.

    Attributes:
        world: name of the world.
        source: name of the source.
        server: one row per check of the server: item, value, problem (empty without one), statements
            (those that remove the problem; a text that begins with -- is no SQL).
        tables: one row per table: item, schema, table, kind, rows (counted up to 1 MiB, for 200
            tables; otherwise the server's estimate), bytes, key (the columns), identity (how
            replication identifies a row), attention (columns that the lake will not have as they
            are; for numbers without precision the digits of at most 10,000 rows), problem, statements.
        note: how the provider of the server differs, if its host is recognised; else "".
    """

    world: str
    source: str
    server: pandas.DataFrame
    tables: pandas.DataFrame
    note: str = ""

    @property
    def obstacles(self) -> pandas.DataFrame:
        """The rows of `server` and `tables` with a problem: item, problem, statements."""
        rows = pandas.concat([self.server, self.tables])[["item", "problem", "statements"]]
        return rows[rows["problem"] != ""].reset_index(drop=True)

    def findings(self) -> list[Finding]:
        """Return one Finding per check and per table; a problem has its statements as the remedy."""
        findings = [_finding(row, str(row.value)) for row in self.server.itertuples()]
        for row in self.tables.itertuples():
            size = f"{plural(row.rows, 'row')}, {format_size(row.bytes)}"
            summary = f"{row.kind}, {size}, key {row.key or '(none)'}, identity {row.identity}"
            findings.append(_finding(row, summary, str(row.attention)))
        return findings + [Finding("provider", self.note)] * bool(self.note)

    def summary(self) -> Finding:
        """Return one Finding for the whole source."""
        count = len(self.obstacles)
        state = plural(count, "obstacle") if count else "ready"
        detail = f"{plural(len(self.tables), 'table')}, {state}"
        remedy = f"workbench source check {self.source} --world {self.world}" if count else ""
        return Finding(f"source {self.source}", detail, remedy, is_warning=True)

    def script(self) -> str:
        """Return one SQL script for the administrator, which removes all obstacles.

        It has SQL, comments, and psql's command for the password of a role: psql prompts for it, and
        sends its verifier, which the server may log. Each statement occurs once.
        """
        lines = {f"-- {escape_unprintable(self.source)}: for the administrator of the server": None}
        for item, problem, statements in self.obstacles.itertuples(index=False):
            lines[f"-- {escape_unprintable(f'{item}: {problem}')}"] = None
            lines |= dict.fromkeys(statements)
        return "\n".join(lines)


def _finding(row: Any, detail: str, attention: str = "") -> Finding:
    if row.problem:
        texts = filter(None, (detail, attention, row.problem))
        return Finding(row.item, "; ".join(texts), "\n    ".join(row.statements))
    return Finding(row.item, detail, attention, is_warning=True)


def check(
    world: World,
    name: str,
    tables: Optional[Sequence[str]] = None,
    excluded: Sequence[str] = (),
) -> Report:
    """Check whether a source is ready for change data capture. Nothing is changed.

    The number of queries does not depend on the number of tables.

    Args:
        world: the world that has the source.
        name: name of the source.
        tables: tables to check (`schema.table`, for MariaDB `database.table`), by default all tables
            of the source's database. With `()` only the server is checked.
        excluded: names of columns that will not be captured, whose types are no obstacle therefore.

    Returns:
        The report. If the server cannot be queried, its only row says why.

    Raises:
        ParamsError: the world has no such source.
    """
    source = world.source(name)
    engine = world.source_engine(name)
    server = source.server(engine)
    note = _first_match("providers", server.host)
    try:
        frames = (_query_postgres if engine == "postgres" else _query_mariadb)(
            source, None if tables is None else list(tables), list(excluded)
        )
    except WorkbenchError as e:
        return Report(
            world.name,
            name,
            _connection_failure(server, e),
            pandas.DataFrame(columns=COLUMNS),
            note,
        )
    missing = [each for each in tables or () if f"table {each}" not in {*frames[1]["item"]}]
    rows = [(f"table {each}", "", "there is no such table", [CORRECT_NAME]) for each in missing]
    frames[0] = pandas.concat([frames[0], pandas.DataFrame(rows, columns=COLUMNS)])
    return Report(world.name, name, frames[0], frames[1], note)


def _first_match(section: str, text: str) -> Any:
    """Return the entry of a section of readiness.yaml whose pattern is the first one in the text."""
    entries = HINTS[section].items()
    return next(entry for pattern, entry in entries if re.search(pattern, text))


def _connection_failure(server: Union[Postgres, MySql], error: WorkbenchError) -> pandas.DataFrame:
    """Return the only row of `Report.server` if the server cannot be queried."""
    problem = f"{error.message}: {error.location}"
    texts = _first_match("connection_failures", problem)
    names = {"user": server.admin_user, "database": server.database}
    quoted = {key: sql.Identifier(name) for key, name in names.items()}
    statements = [sql.SQL(text).format(**quoted).as_string(None) for text in texts]
    return pandas.DataFrame([("connection", "failed", problem, statements)], columns=COLUMNS)


def _query_postgres(
    world: World, names: Optional[list[str]], excluded: list[str]
) -> list[pandas.DataFrame]:
    reader = world.postgres.replication_user
    parts = {name: QUERIES[name] for name in ("unsupported_columns", "identity")}
    statement = QUERIES["postgres_tables"].format(**parts)
    return _frames(
        postgres.query(world, QUERIES["postgres_server"], [reader]),
        postgres.query(world, statement, [names, reader, names, excluded]),
        partial(postgres.query, world),
    )


def _query_mariadb(
    world: World, tables: Optional[list[str]], excluded: list[str]
) -> list[pandas.DataFrame]:
    name = world.mysql.database
    schema = "information" if world.mysql.kind == "mariadb" else "performance"
    statement = QUERIES["mariadb_server"].format(schema=f"{schema}_schema")
    values = [name, name, tables is None, tables or [""], excluded or [""]]
    return _frames(
        mariadb.query(world, statement, [name]),
        mariadb.query(world, QUERIES["mariadb_tables"], values),
        partial(mariadb.query, world),
    )


def _frames(
    server: pandas.DataFrame, tables: pandas.DataFrame, query: Callable[[str], pandas.DataFrame]
) -> list[pandas.DataFrame]:
    """Return `server` and `tables` of a report, with what a query of the rows adds.

    This is the number of rows of small tables, and the digits of numbers without precision.
    """
    for frame in (server, tables):
        frame["statements"] = frame["statements"].str.split(SEPARATOR)
    cells = [
        (row, column, expression)
        for column, expressions in (("rows", "counting"), ("attention", "sampling"))
        for row, expression in tables[expressions].items()
        if expression
    ]
    if cells:
        values = query("SELECT " + ", ".join(expression for *_, expression in cells)).iloc[0]
        for (row, column, _), value in zip(cells, values):
            tables.loc[row, column] = value
    return [server, tables.drop(columns=["counting", "sampling"])]
