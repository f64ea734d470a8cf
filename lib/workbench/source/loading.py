"""Loading a source database: what every loader needs.

A loader asks first, works in one transaction, and leaves nothing half done. What it loads is a list
of steps: scripts, and tables whose rows stream into COPY. Somebody's own files can be looked at
before. Walkthroughs may share a database: what one of them unloads are its own tables.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Iterator, Optional, Sequence, Union

import psycopg
import pymysql

from ..base import ROOT, SourceError, World, first_line
from . import mariadb, postgres

# what a public dump consists of; COMMIT, COPY FROM STDIN or psql's \commands would break the one
# transaction
DUMP_STATEMENTS = (
    "SET",
    "CREATE TABLE",
    "ALTER TABLE",
    "DROP TABLE IF EXISTS",
    "INSERT INTO",
    "CREATE INDEX",
    "CREATE UNIQUE INDEX",
    "COMMENT ON",
)
ORIGIN_COMMENT_PREFIX = "own data, loaded from "
FIX_FILE_HINT = "mend the file or fetch it again; nothing was changed"


@dataclass(frozen=True)
class Table:
    """A table to load: its name, its columns, and a function that starts giving its rows from the
    first one, as tuples or as lines of COPY's text format; of lines, the file, and the number of
    the line before the first.
    """

    name: str
    columns: tuple[str, ...]
    rows: Callable[[], Iterator[Union[tuple, str]]]
    source_location: Optional[tuple[Path, int]] = None


@dataclass(frozen=True)
class Script:
    """A file of SQL to run; of somebody's own, only statements that begin as one of `allowed`."""

    path: Path
    allowed: tuple[str, ...] = ()


Steps = Sequence[Union[Script, Table]]


@dataclass(frozen=True)
class Loader:
    """Fills the tables of a source database, and removes them.

    name: of the data, for `workbench load`. schema: where `tables` are, in `database` (the world's
        by default); one of
    its `own` is made and removed with them, and new sessions find it. steps: gives what is run, for
    a scale (`scale` by default), or for the folder of somebody's own files; it raises SourceError
    for either.
    """

    name: str
    schema: str
    tables: tuple[str, ...]
    steps: Callable[[Any, Any], Steps]
    database: Optional[str] = None
    owns_schema: bool = False
    scale: float = 1

    def load(
        self,
        world: World,
        *,
        scale: Optional[float] = None,
        from_dir: Union[str, Path, None] = None,
        confirm: Callable[[str], bool],
        progress: Callable[[str], None] = print,
    ) -> dict[str, int]:
        """Load the tables in one transaction; return `{table: rows}`, empty when not confirmed.

        Args:
            scale: how many rows are generated; what 1 gives, the generator says.
            from_dir: load somebody's own files from this folder instead; the database keeps it (see
                `loaded_from`).
            confirm: asked before anything is done; false leaves everything as it is.
            say: takes the two progress messages.

        Raises:
            SourceError: the tables are there already, a file is missing or broken (with its line),
                or its values cannot be loaded. Nothing is changed then, but that the database is
                there.
        """
        p, database = world.postgres, self.database or world.postgres.database
        scale = self.scale if scale is None else scale
        steps = self.steps(scale, from_dir)
        what = (f"schema {self.schema} with " if self.owns_schema else "") + ", ".join(self.tables)
        rows = f"the files in {from_dir}" if from_dir else f"generated data, scale {scale}"
        if not confirm(f"Create {what} ({rows}) in {database} on {p.host}:{p.port}?"):
            return {}
        postgres.create_database(world, database)
        with postgres.session(world, database) as c:
            progress(f"connection created: {p.host}:{p.port}/{database}")
            with c.transaction():
                self._prepare_target(c)
                _run_steps(c, self.schema, steps)
                if from_dir:  # goes with the table, and comes with this transaction
                    origin = ORIGIN_COMMENT_PREFIX + str(Path(from_dir).expanduser().absolute())
                    c.execute(
                        postgres.format_sql("COMMENT ON TABLE {} IS ", self.tables[0])
                        + psycopg.sql.Literal(origin)
                    )
                counts = {
                    table: c.execute(
                        postgres.format_sql("SELECT count(*) FROM {}", table)
                    ).fetchone()[0]
                    for table in self.tables
                }
            progress(
                "tables loaded: "
                + ", ".join(f"{count:,} {table}" for table, count in counts.items())
            )
        return counts

    def validate(
        self,
        world: World,
        *,
        scale: Optional[float] = None,
        from_dir: Union[str, Path, None] = None,
    ) -> None:
        """Judge whole what `load` would load, before anything is removed for it: somebody's own
        files are loaded into a schema of their own, and rolled back. Raises SourceError as `load`
        does.
        """
        steps = self.steps(self.scale if scale is None else scale, from_dir)
        if from_dir:
            postgres.create_database(world, self.database)
            with postgres.session(world, self.database) as c, c.transaction(force_rollback=True):
                c.execute(postgres.format_sql("CREATE SCHEMA {}", f"{self.schema}_trial"))
                _run_steps(c, f"{self.schema}_trial", steps)

    def _prepare_target(self, c: psycopg.Connection) -> None:
        """See that none of the tables is there, and make the schema if it is their own."""
        names = [f"{self.schema}.{table}" for table in self.tables]
        there = c.execute(
            "SELECT n FROM unnest(%s::text[]) n WHERE to_regclass(n) IS NOT NULL", [names]
        ).fetchone()
        if there:
            raise SourceError(
                f"table {there[0]} exists already",
                location=f"database {c.info.dbname}",
                expected="a database without it",
                hint="keep what is loaded, or remove it ('Start "
                "clean' in the walkthrough's first notebook: flow.reset(world)) and load again",
            )
        if self.owns_schema:
            c.execute(postgres.format_sql("CREATE SCHEMA {}", self.schema))
            c.execute(
                postgres.format_sql(
                    "ALTER DATABASE {} SET search_path TO {}", c.info.dbname, self.schema
                )
            )

    def unload(self, world: World) -> None:
        """Remove the tables (or the schema, if it is their own), and nothing else of the database:
        other walkthroughs may use it. Nothing is there: nothing happens. Raises SourceError when
        somebody's view needs a table.
        """
        postgres.create_database(world, self.database)
        with postgres.session(world, self.database) as c, c.transaction():
            if self.owns_schema:
                c.execute(postgres.format_sql("DROP SCHEMA IF EXISTS {} CASCADE", self.schema))
                c.execute(postgres.format_sql("ALTER DATABASE {} RESET search_path", c.info.dbname))
            else:  # at once: they may refer to each other
                c.execute(
                    postgres.format_sql(
                        "DROP TABLE IF EXISTS " + ", ".join("{}" for _ in self.tables),
                        *((self.schema, table) for table in self.tables),
                    )
                )

    def loaded_from(self, world: World) -> str:
        """Return the folder whose files the tables were loaded from; the empty text where their
        rows are generated, or where there are none.
        """
        text = (
            postgres.query(
                world,
                "SELECT obj_description(to_regclass(%s), 'pg_class') AS text",
                [f"{self.schema}.{self.tables[0]}"],
                self.database,
            ).loc[0, "text"]
            or ""
        )
        return text[len(ORIGIN_COMMENT_PREFIX) :] if text.startswith(ORIGIN_COMMENT_PREFIX) else ""


# --- the steps
# -------------------------------------------------------------------------------------------------------


def _run_steps(c: psycopg.Connection, schema: str, steps: Steps) -> None:
    # only this schema, not public: a DROP TABLE of a dump cannot meet somebody else's table
    c.execute(postgres.format_sql("SET LOCAL search_path TO {}", schema))
    for step in steps:
        if isinstance(step, Script):
            run_script(c, step)
        else:
            _copy_rows(c, step)


def _copy_rows(c: psycopg.Connection, table: Table) -> None:
    into = f"COPY {{}} ({', '.join('{}' for _ in table.columns)}) FROM STDIN"
    try:
        with (
            c.cursor() as cursor,
            cursor.copy(postgres.format_sql(into, table.name, *table.columns)) as copy,
        ):
            for row in table.rows():
                copy.write(row) if isinstance(row, str) else copy.write_row(row)
    except psycopg.Error as e:
        if not table.source_location:
            raise
        path, before = table.source_location
        place = re.search(
            r"^COPY .*?, line (\d+)(.*)", e.diag.context or ""
        )  # its own lines, from 1 on
        said = ". ".join(text for text in (first_line(e), e.diag.message_detail) if text)
        raise SourceError(
            f"table {table.name}: {said}",
            hint=FIX_FILE_HINT,
            location=f"{path}, line {before + int(place[1])}{place[2]}"
            if place
            else f"{path}, the rows from line {before + 1} on",
        ) from None


def split_statements(text: str) -> Iterator[tuple[int, str]]:
    """Split SQL at its semicolons; yield (line of its start, statement). Raises sqlglot's
    TokenError.
    """
    import sqlglot

    begin = None
    for token in sqlglot.tokenize(f"{text}\n;", read="postgres"):
        if token.token_type != sqlglot.TokenType.SEMICOLON:
            begin, end = token.start if begin is None else begin, token.end + 1
        elif begin is not None:
            yield text.count("\n", 0, begin) + 1, text[begin:end]
            begin = None


def run_script(c: Union[psycopg.Connection, mariadb.Connection], script: Script) -> None:
    """Run a script's statements, one by one. Raises SourceError that names file and line."""
    from sqlglot.errors import SqlglotError

    try:
        found = list(split_statements(script.path.read_text(encoding="utf-8-sig")))
    except (OSError, UnicodeDecodeError, SqlglotError) as e:
        raise SourceError("the script cannot be read", location=f"{script.path}: {e}") from None
    for line, statement in found:
        begin = " ".join(statement[:200].split())
        if script.allowed and not f"{begin} ".upper().startswith(
            tuple(f"{words} " for words in script.allowed)
        ):
            raise SourceError(
                f"a statement that a dump should not hold: {begin[:80]}",
                location=f"{script.path}, line {line}",
                expected=", ".join(script.allowed),
                hint="use a plain dump with INSERTs; nothing was changed",
            )
        try:
            c.execute(
                statement, binary=True
            )  # the protocol for binary results takes one statement, and no second one
        except (psycopg.Error, pymysql.Error) as e:
            diag = getattr(e, "diag", None)  # of PostgreSQL's
            line += statement.count(
                "\n", 0, int((diag.statement_position if diag else None) or 1) - 1
            )
            raise SourceError(
                f"the script failed: {first_line(e)}",
                hint="mend the script and load again; nothing was changed",
                location=f"{script.path}, line {line}: {begin[:80]}",
            ) from None


def sql_file(name: str) -> str:
    """Return the SQL in a file of data/, `northwind/queries/revenue` say."""
    return (ROOT / "data" / f"{name}.sql").read_text(encoding="utf-8")


def find_file(folder: str, name: str, expected: str) -> Path:
    """Return the absolute path of somebody's own file. Raises SourceError that says when it is
    packed.
    """
    path = Path(folder).expanduser().absolute() / name
    if path.is_file():
        return path
    packed = sorted(f.name for f in path.parent.glob(f"{name}.*"))
    raise SourceError(
        f"{name} is not there",
        location=str(path),
        expected=f"a folder that holds {expected}",
        hint=f"unpack {packed[0]}"
        if packed
        else "correct the folder, or leave it out to load generated data",
    )
