"""Readiness of a source for change data capture: what the server lacks, and the SQL that adds it."""

import json
import re
import shlex
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterator, Optional, Sequence

import pandas
from psycopg import sql
from rich.filesize import decimal as format_size

from ..base import SourceError, WorkbenchError, World, yaml_files
from ..base.added_columns import is_reserved
from ..base.models import Server
from ..base.terminal import escape_unprintable
from ..base.text import plural
from ..stack.doctor import Finding
from . import mariadb, postgres
from .queries import QUERIES

CONNECTION_FAILURES = yaml_files.load(Path(__file__).with_suffix(".yaml"))
SEPARATOR = "\x1e"  # between the statements of a row of readiness.sql
COLUMNS = ["item", "value", "problem", "statements"]
# topics and Avro schemas have these names only; Debezium would replace other characters, so that two could become one
NAME, NAME_RULE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*"), "only English letters, digits and _"
# of readiness.sql: what also a poller needs
READING_PROBLEMS = ("no USAGE on the schema", "no SELECT", "row security hides rows")
LAST_LOG_FILE = 990_000
CORRECT_NAME = "-- name a table: schema.table; not a view, and for a partition its table"


@dataclass(frozen=True)
class Report:
    """The result of `check`.

    Attributes:
        world: name of the world.
        source: name of the source.
        server: one row per check of the server: item, value, problem (empty without one), statements
            (those that remove the problem, or without one what needs attention; a text that begins with
            -- is no SQL).
        tables: one row per table: item, value (a summary of the following), schema, table, kind, rows (the server's
            estimate, or null), bytes, key (the columns), identity (how
            replication identifies a row), attention (values that may not arrive, such as numbers that are
            too long for the lake; for those without precision the digits of at most 10,000 rows), problem
            (why `capture` refuses the table), statements.
    """

    world: str
    source: str
    server: pandas.DataFrame
    tables: pandas.DataFrame

    @property
    def obstacles(self) -> pandas.DataFrame:
        """The rows of `server` and `tables` with a problem: item, problem, statements."""
        rows = pandas.concat([self.server, self.tables])[["item", "problem", "statements"]]
        return rows[rows["problem"] != ""].reset_index(drop=True)

    def findings(self) -> list[Finding]:
        """Return one Finding per check and per table; a problem has its statements as the remedy."""
        rows = [*self.server.itertuples(), *self.tables.itertuples()]
        return [_finding(row) for row in rows]

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


def _finding(row: Any) -> Finding:
    attention, statements = getattr(row, "attention", ""), "\n    ".join(row.statements)
    if row.problem:
        texts = filter(None, (row.value, attention, row.problem))
        return Finding(row.item, "; ".join(texts), statements)
    return Finding(row.item, row.value, attention or statements, is_warning=True)


@dataclass(frozen=True)
class Options:
    """The options of a capture that decide whether it can capture a table.

    Attributes:
        excluded: names of columns that are not captured.
        key: the columns that identify a row; by default those of the primary key, or of the index that is the
            replica identity.
        polled: whether the tables are polled, so that no log is read.
    """

    excluded: Sequence[str] = ()
    key: Sequence[str] = ()
    polled: bool = False


def check(
    world: World,
    name: str,
    tables: Optional[Sequence[str]] = None,
    options: Options = Options(),
) -> Report:
    """Check whether a source is ready for change data capture. Nothing is changed.

    `capture` refuses a table if and only if the report has a problem of it. The number of queries does
    not depend on the number of tables.

    Args:
        world: the world that has the source.
        name: name of the source.
        tables: tables to check (`schema.table`, for MariaDB `database.table`), by default all tables
            of the source's database. With `()` only the server is checked.
        options: the options of the capture.

    Returns:
        The report. If the server cannot be queried, its only row says why.

    Raises:
        ParamsError: the world has no such source.
    """
    source, engine = world.source(name), world.source_engine(name)
    read = _read_postgres if engine == "postgres" else _read_mariadb
    names = None if tables is None else [*tables]
    try:
        server, rows, reasons = read(source, names, [*options.excluded])
    except WorkbenchError as e:
        failure = _connection_failure(source.server(engine), e)
        return Report(world.name, name, failure, pandas.DataFrame(columns=COLUMNS))
    missing = [
        (f"table {each}", "", reasons.get(each, "there is no such table"), [CORRECT_NAME])
        for each in names or ()
        if f"table {each}" not in {*rows["item"]}
    ]
    server = pandas.concat([_split(server), pandas.DataFrame(missing, columns=COLUMNS)])
    command = f"workbench capture {name} {{}} --world {world.name}"
    return Report(world.name, name, server, _judged(_split(rows), options, command))


def _judged(tables: pandas.DataFrame, options: Options, command: str) -> pandas.DataFrame:
    """Return tables with the problems that their facts (see readiness.sql) and the options cause.

    Args:
        tables: the tables, with the column facts.
        options: the options of the capture.
        command: the command that captures a table, with {} for its name.
    """
    rows = []
    for row in tables.to_dict("records"):
        facts = json.loads(row.pop("facts"))
        facts["key"] = [*options.key] or facts["key"]
        problems = {each: "" for each in row["problem"].split("; ") if each}
        if options.polled:
            problems = {each: "" for each in problems if each in READING_PROBLEMS}
        names = (row["schema"], row["table"])
        problems |= dict(_column_problems(names, facts, options, command.format(".".join(names))))
        problems |= dict(_key_problems(facts, options))
        # a line break in a name would end a comment
        remedies = [
            escape_unprintable(each) if each.startswith("--") else each
            for each in filter(None, problems.values())
        ]
        number = "rows unknown" if pandas.isna(row["rows"]) else plural(int(row["rows"]), "row")
        size = f"{number}, {format_size(row['bytes'])}"
        row["value"] = (
            f"{row['kind']}, {size}, key {row['key'] or '(none)'}, identity {row['identity']}"
        )
        row["problem"] = "; ".join(problems)
        row["statements"] = [*row["statements"], *remedies] if problems else []
        rows.append(row)
    return pandas.DataFrame(rows, columns=["value", *tables.columns.drop("facts")])


def _column_problems(
    names: Sequence[str], facts: dict[str, Any], options: Options, command: str
) -> Iterator[tuple[str, str]]:
    """Yield each problem of the names of a table and its columns, and of their types, with the way out."""
    rename = f"-- rename it: ALTER TABLE {facts['quoted']} RENAME"
    for name in names:
        if not NAME.fullmatch(name):
            yield f"topics cannot have the name {name!r}: {NAME_RULE}", f"{rename} TO …"
    columns = [each for each in facts["columns"] if each not in options.excluded]
    folded = Counter(map(str.lower, columns))
    for name in columns:
        if not NAME.fullmatch(name):
            problem = f"topics cannot have the column name {name!r}: {NAME_RULE}"
        elif is_reserved(name):
            problem = f"the column name {name!r} is one that the lake adds, and that queries hide"
        elif folded[name.lower()] > 1:
            problem = f"the column name {name!r} differs from another one in case only"
        else:
            continue
        exclusion = f"capture with --exclude {shlex.quote(name)}"
        yield problem, f"{rename} COLUMN {_quoted([name], facts)} TO …; or {exclusion}"
    unsupported = {n: kind for n, kind in facts["unsupported"] if n not in options.excluded}
    if unsupported:
        left_out = [*options.excluded, *unsupported]
        in_key = [name for name in left_out if name in facts["key"]]
        remedy = f"-- leave them out: {command}"
        for name in left_out:
            remedy += f" --exclude {shlex.quote(name)}"
        if in_key:
            remedy = f"-- give the table a key without {', '.join(in_key)}, then name its columns: {command} --key …"
        types = ", ".join(f"{name} ({kind})" for name, kind in unsupported.items())
        yield f"not supported (docs/types.md): {types}", remedy


def _quoted(names: Sequence[str], facts: dict[str, Any]) -> str:
    """Return names as the server of a table quotes them, separated by commas."""
    mark = "`" if facts["quoted"].startswith("`") else '"'
    return ", ".join(mark + name.replace(mark, mark * 2) + mark for name in names)


def _key_problems(facts: dict[str, Any], options: Options) -> Iterator[tuple[str, str]]:
    """Yield each problem of the key by which the lake finds a row, with the way out."""
    key, table = facts["key"], facts["quoted"]
    names, add_key = ", ".join(key), f"ALTER TABLE {table} ADD PRIMARY KEY ({_quoted(key, facts)});"
    captured = {*facts["columns"]} - {*options.excluded}
    missing = ", ".join(each for each in key if each not in captured)
    unsuited = ", ".join(each for each in key if each in facts["no_keys"])
    if not key:
        yield from _missing_key_problems(facts)
    elif missing:
        remedy = "-- capture the columns of the key, or give other ones: --key …"
        yield f"no captured column {missing} for the key", remedy
    elif unsuited:
        problem = f"two different keys may arrive as one, by the type of key column {unsuited}"
        yield problem, "-- give the table a key of another type (docs/your_own.md)"
    elif not any({*each} <= {*key} for each in facts["unique"]):
        problem = f"no constraint ensures that {names} is not null and identifies a row after each statement"
        yield problem, f"-- without NULL and duplicates: {add_key}"
    elif not options.polled:
        for each in facts.get("identities", ()):
            if not each["is_full"] and not {*key} <= {*(each["columns"] or ())}:
                problem = f"the replica identity of {each['table']} lacks the key {names}"
                yield problem, f"ALTER TABLE {each['table']} REPLICA IDENTITY FULL;"


def _missing_key_problems(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the problem of a table without a key. readiness.sql has the statements for MariaDB."""
    prefixes = ", ".join(facts.get("prefixes", ()))
    statement = f"-- add a key: ALTER TABLE {facts['quoted']} ADD PRIMARY KEY (…);"
    if prefixes:
        yield f"no primary key of whole values, only of a prefix: {prefixes}", ""
    elif not facts.get("is_deferrable"):  # a problem of its own
        yield "no primary key", statement if "identities" in facts else ""


def _connection_failure(server: Server, error: WorkbenchError) -> pandas.DataFrame:
    """Return the only row of `Report.server` if the server cannot be queried."""
    problem = f"{error.message}: {error.location}"
    texts = next(
        text for pattern, text in CONNECTION_FAILURES.items() if re.search(pattern, problem)
    )
    values = {
        "user": sql.Identifier(server.admin_user),
        "database": sql.Identifier(server.database),
        "secret": sql.SQL(server.admin_password.name),
    }
    statements = [sql.SQL(text).format(**values).as_string(None) for text in texts]
    return pandas.DataFrame([("connection", "failed", problem, statements)], columns=COLUMNS)


# what `Report.server` has; the tables with their facts; {name that is no table to capture: the reason}
Read = tuple[pandas.DataFrame, pandas.DataFrame, dict[str, str]]


def _read_postgres(world: World, names: Optional[list[str]], excluded: list[str]) -> Read:
    reader = world.postgres.replication_user
    server = postgres.query(world, QUERIES["postgres_server"], [reader])
    values = [names, reader, names, excluded, excluded]
    tables = postgres.query(world, QUERIES["postgres_tables"], values)
    samples = tables.pop("sampling")
    samples = samples[samples != ""]
    if not samples.empty:
        digits = postgres.query(world, f"SELECT {', '.join(samples)}").iloc[0]
        tables.loc[samples.index, "attention"] = digits.to_numpy()
    if not names:
        return server, tables, {}
    others = postgres.query(world, QUERIES["postgres_other_kinds"], [names])
    return server, tables, dict(others.itertuples(index=False))


def _read_mariadb(world: World, names: Optional[list[str]], excluded: list[str]) -> Read:
    database = world.mysql.database
    schema = "information" if world.mysql.engine == "mariadb" else "performance"
    statement = QUERIES["mariadb_server"].format(schema=f"{schema}_schema")
    server = pandas.concat([mariadb.query(world, statement, [database]), _binary_log(world)])
    shows_periods = not mariadb.query(world, QUERIES["mariadb_shows_periods"]).empty
    overlaps = QUERIES["mariadb_overlaps" if shows_periods else "mariadb_no_overlaps"]
    statement = QUERIES["mariadb_tables"].replace("{overlaps}", overlaps)
    values = [database, database, names is None, names or [""], excluded or [""]]
    return server, mariadb.query(world, statement, values), {}


def _binary_log(world: World) -> pandas.DataFrame:
    """Return the rows of a report about the binary log that only SHOW MASTER STATUS has.

    The lake orders changes by the name of their file, whose number has six digits at first.
    """
    try:
        status = mariadb.query(world, "SHOW MASTER STATUS")  # no row without a log
    except SourceError:  # the row of its privilege says so
        return pandas.DataFrame(columns=COLUMNS)
    rows = []
    for item in ("Binlog_Do_DB", "Binlog_Ignore_DB"):
        for value in filter(None, status[item]):
            remedy = f"-- remove {item.lower()} from the server's configuration, and restart it"
            rows.append((item.lower(), value, "the log lacks databases", remedy))
    for file in status["File"]:
        if mariadb.position_to_int(f"{file}:0") >> 32 > LAST_LOG_FILE:
            problem = "after file 999999 the names of the files are in another order"
            rows.append(("binary log", file, problem, "RESET MASTER; -- replicas start anew"))
    return pandas.DataFrame(rows, columns=COLUMNS)


def _split(rows: pandas.DataFrame) -> pandas.DataFrame:
    statements = rows["statements"].map(lambda text: [*filter(None, text.split(SEPARATOR))])
    return rows.assign(statements=statements)
