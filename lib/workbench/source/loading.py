"""Loading a source database: what every loader needs.

A loader asks first, works in one transaction, and leaves nothing half done. What it loads is a list of steps: scripts,
and tables whose rows stream into COPY. What somebody's own files hold is judged on the way, and all that is wrong is
said at once. Walkthroughs may share a database: what one of them unloads is its own, tables, publications and slots.
"""
from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Optional, Sequence, Tuple, Union

import psycopg
from psycopg import sql

from ..base.errors import SourceError, first_line
from ..base.params import World
from . import postgres
from .postgres import quoted

# what a public dump consists of; COMMIT, COPY FROM STDIN or psql's \commands would break the one transaction
DUMP = ("SET", "CREATE TABLE", "ALTER TABLE", "DROP TABLE IF EXISTS", "INSERT INTO", "CREATE INDEX",
        "CREATE UNIQUE INDEX", "COMMENT ON")
ORIGIN = "own data, loaded from "
NAMED = 10  # so many bad values are named, and all counted
MEND = "mend the file or fetch it again; nothing was changed"


@dataclass(frozen=True)
class Table:
    """A table to load: its name, its columns, and a function that starts reading its rows from the first one. Of a
    file, an error stands in place of a row that cannot be loaded."""

    name: str
    columns: Tuple[str, ...]
    rows: Callable[[], Iterator[Union[tuple, SourceError]]]


@dataclass(frozen=True)
class Script:
    """A file of SQL to run; of somebody's own, only statements that begin as one of `allowed`."""

    path: Path
    allowed: Tuple[str, ...] = ()


@dataclass(frozen=True)
class Place:
    """Where a loader's tables are: in `schema` of `database` (the world's by default).

    A schema of its `own` is made and removed with them, and new sessions find it. `reset` is what a person calls.
    """

    schema: str
    tables: Tuple[str, ...]
    reset: str
    database: Optional[str] = None
    own: bool = False


Steps = Sequence[Union[Script, Table]]


def load(world: World, place: Place, steps: Steps, what: str, *, from_dir: Optional[str] = None,
         confirm: Callable[[str], bool], say: Callable[[str], None], done: str = "tables loaded") -> Dict[str, int]:
    """Run the steps in one transaction; return `{table: rows}`, empty when not confirmed.

    Args:
        what: what is created, for the question.
        from_dir: the folder with somebody's own files that the steps read; the database keeps it (see `loaded_from`).
        done: begins the second progress message.
    Raises:
        SourceError: the tables are there already, a script fails (with its line) or values cannot be loaded. Nothing is
            changed then, but that the database is there.
    """
    p, database = world.postgres, place.database or world.postgres.database
    if not confirm(f"Create {what} in {database} on {p.host}:{p.port}?"):
        return {}
    postgres.create_database(world, database)
    with postgres.session(world, database) as c:
        say(f"connection created: {p.host}:{p.port}/{database}")
        with c.transaction():
            _make_room(c, place, database)
            _run(c, place.schema, steps)
            if from_dir:  # goes with the table, and comes with this transaction
                origin = ORIGIN + str(Path(from_dir).expanduser().absolute())
                c.execute(quoted("COMMENT ON TABLE {} IS ", place.tables[0]) + sql.Literal(origin))
            counts = {t: c.execute(quoted("SELECT count(*) FROM {}", t)).fetchone()[0] for t in place.tables}
        say(f"{done}: " + ", ".join(f"{count:,} {table}" for table, count in counts.items()))
    return counts


def _make_room(c: psycopg.Connection, place: Place, database: str) -> None:
    """See that none of the tables is there, and make the schema if it is their own."""
    names = [f"{place.schema}.{table}" for table in place.tables]
    there = c.execute("SELECT n FROM unnest(%s::text[]) n WHERE to_regclass(n) IS NOT NULL", [names]).fetchone()
    if there:
        raise SourceError(f"table {there[0]} exists already", where=f"database {database}",
                          expected="a database without it",
                          next_step=f"keep what is loaded, or run {place.reset} ('Start clean') and load again")
    if place.own:
        c.execute(quoted("CREATE SCHEMA {}", place.schema))
        c.execute(quoted("ALTER DATABASE {} SET search_path TO {}", database, place.schema))


def try_out(world: World, place: Place, steps: Steps) -> None:
    """Judge whole what `load` would load, before anything is removed for it: the steps run in a schema of their own,
    and are rolled back. Raises SourceError as `load` does."""
    postgres.create_database(world, place.database)
    with postgres.session(world, place.database) as c, c.transaction(force_rollback=True):
        c.execute(quoted("CREATE SCHEMA {}", f"{place.schema}_trial"))
        _run(c, f"{place.schema}_trial", steps)


def unload(world: World, place: Place, slots: Sequence[str] = (), publications: Sequence[str] = ()) -> None:
    """Remove the tables (or the schema, if it is their own) and what connectors made for them, named: nothing else of
    the database. Nothing is there: nothing happens. Raises SourceError when somebody's view needs a table."""
    database = place.database or world.postgres.database
    postgres.create_database(world, database)
    for name in slots:
        postgres.drop_slot(world, name, database=database)
    with postgres.session(world, database) as c, c.transaction():
        for name in publications:
            c.execute(quoted("DROP PUBLICATION IF EXISTS {}", name))
        if place.own:
            c.execute(quoted("DROP SCHEMA IF EXISTS {} CASCADE", place.schema))
            c.execute(quoted("ALTER DATABASE {} RESET search_path", database))
        for table in () if place.own else place.tables:
            c.execute(quoted("DROP TABLE IF EXISTS {}", (place.schema, table)))


def loaded_from(world: World, place: Place) -> str:
    """Return the folder whose files the tables were loaded from; the empty text where their rows are generated, or
    where there are none."""
    text = postgres.frame(world, "SELECT obj_description(to_regclass(%s), 'pg_class') AS text",
                          [f"{place.schema}.{place.tables[0]}"], place.database).loc[0, "text"] or ""
    return text[len(ORIGIN):] if text.startswith(ORIGIN) else ""


# --- the steps -------------------------------------------------------------------------------------------------------

def _run(c: psycopg.Connection, schema: str, steps: Steps) -> None:
    # only this schema, not public: a DROP TABLE of a dump cannot meet somebody else's table
    c.execute(quoted("SET LOCAL search_path TO {}", schema))
    found: List[SourceError] = []
    for step in steps:
        if isinstance(step, Table):
            _copy(c, step, found)
        else:
            _complain(found)
            run_script(c, step)
    _complain(found)


def _copy(c: psycopg.Connection, table: Table, found: List[SourceError]) -> None:
    into = f"COPY {{}} ({', '.join('{}' for _ in table.columns)}) FROM STDIN"
    with c.cursor() as cursor, cursor.copy(quoted(into, table.name, *table.columns)) as copy:
        for row in _good_rows(table, found):
            copy.write_row(row)


def judge(tables: Sequence[Table]) -> None:
    """Read tables to their ends. Raises SourceError: their values, of which ten are named and all counted."""
    found: List[SourceError] = []
    for table in tables:
        deque(_good_rows(table, found), maxlen=0)
    _complain(found)


def _good_rows(table: Table, found: List[SourceError]) -> Iterator[tuple]:
    """Yield the rows that can be loaded, and add to `found` what is wrong with the others."""
    for row in table.rows():
        if isinstance(row, SourceError):
            found.append(row)
        else:
            yield row


def _complain(found: List[SourceError]) -> None:
    """Raise what was found, several bad values as one error."""
    if len(found) == 1:
        raise found[0]
    if found:
        lines = [f"{e.where}: {e.what.partition(' is ')[2] or e.what}" + (f", not {e.expected}" if e.expected else "")
                 for e in found[:NAMED]]
        more = [f"… and {len(found) - NAMED:,} more"] if len(found) > NAMED else []
        raise SourceError(f"{len(found):,} values of the files cannot be loaded", next_step=MEND,
                          where="\n            ".join([*lines, *more]))


def statements(text: str) -> Iterator[Tuple[int, str]]:
    """Split SQL at its semicolons; yield (line of its start, statement). Raises sqlglot's TokenError."""
    import sqlglot

    begin = None
    for token in sqlglot.tokenize(f"{text}\n;", read="postgres"):
        if token.token_type != sqlglot.TokenType.SEMICOLON:
            begin, end = token.start if begin is None else begin, token.end + 1
        elif begin is not None:
            yield text.count("\n", 0, begin) + 1, text[begin:end]
            begin = None


def run_script(c: psycopg.Connection, script: Script) -> None:
    """Run a script's statements, one by one. Raises SourceError that names file and line."""
    from sqlglot.errors import SqlglotError

    try:
        found = list(statements(script.path.read_text(encoding="utf-8-sig")))
    except (OSError, UnicodeDecodeError, SqlglotError) as e:
        raise SourceError("the script cannot be read", where=f"{script.path}: {e}") from None
    for line, statement in found:
        begin = " ".join(statement[:200].split())
        if script.allowed and not f"{begin} ".upper().startswith(tuple(f"{words} " for words in script.allowed)):
            raise SourceError(f"a statement that a dump should not hold: {begin[:80]}",
                              where=f"{script.path}, line {line}", expected=", ".join(script.allowed),
                              next_step="use a plain dump with INSERTs; nothing was changed")
        try:
            c.execute(statement, binary=True)  # the protocol for binary results takes one statement, and no second one
        except psycopg.Error as e:
            line += statement.count("\n", 0, int((e.diag.statement_position if e.diag else None) or 1) - 1)
            raise SourceError(f"the script failed: {first_line(e)}", next_step="mend the script and load "
                              "again; nothing was changed", where=f"{script.path}, line {line}: {begin[:80]}") from None


def find(folder: str, name: str, expected: str) -> Path:
    """Return the absolute path of somebody's own file. Raises SourceError that says when it is packed."""
    path = Path(folder).expanduser().absolute() / name
    if path.is_file():
        return path
    packed = sorted(f.name for f in path.parent.glob(f"{name}.*"))
    raise SourceError(f"{name} is not there", where=str(path), expected=f"a folder that holds {expected}",
                      next_step=f"unpack {packed[0]}" if packed else
                      "correct the folder, or leave it out to load generated data")
