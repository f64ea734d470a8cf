"""Load the tables of a source database.

A loader requests a confirmation, and runs its steps in one transaction. A step is a script, or the
rows of a file. The user's own files can be validated before. Walkthroughs may share a database, so a
loader unloads only its own tables.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Iterator, Optional, Sequence, Union

import psycopg
from psycopg import sql

from ..base import ROOT, SourceError, World, first_line
from . import postgres
from .names import format_sql, identifier
from .queries import QUERIES
from .row_files import Rows

RECORD_PREFIX = "loaded by the workbench: "
# The statements of a public dump. COMMIT, COPY FROM STDIN or psql's \commands would break the
# single transaction.
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


@dataclass(frozen=True)
class Script:
    """A file of SQL to run.

    Attributes:
        path: the file. The setting workbench.repetitions has the number of repetitions (see `Loader`).
        allowed: for a user's own file: the permitted first words of a statement.
    """

    path: Path
    allowed: tuple[str, ...] = ()

    def run(self, connection: psycopg.Connection) -> None:
        """Run the statements of the script, one by one.

        Raises:
            SourceError: a statement is not permitted or fails; the error has file and line.
        """
        from sqlglot.errors import SqlglotError

        try:
            statements = list(split_statements(self.path.read_text(encoding="utf-8-sig")))
        except (OSError, UnicodeDecodeError, SqlglotError) as e:
            raise SourceError("the script cannot be read", location=f"{self.path}: {e}") from None
        allowed = tuple(f"{words} " for words in self.allowed)
        for line, statement in statements:
            beginning = " ".join(statement[:200].split())
            if allowed and not f"{beginning} ".upper().startswith(allowed):
                raise SourceError(
                    f"a dump must not contain this statement: {beginning[:80]}",
                    location=f"{self.path}, line {line}",
                    expected=", ".join(self.allowed),
                    hint="use a plain dump with INSERTs; nothing was changed",
                )
            try:
                # binary=True selects the extended protocol, which accepts only one statement
                connection.execute(statement, binary=True)
            except psycopg.Error as e:
                line += statement.count("\n", 0, int(e.diag.statement_position or 1) - 1)
                raise SourceError(
                    f"the script failed: {first_line(e)}",
                    location=f"{self.path}, line {line}: {beginning[:80]}",
                    hint=f"{e.diag.message_hint or 'fix the script and load again'}; nothing was changed",
                ) from None


Steps = Sequence[Union[Script, Rows]]


@dataclass(frozen=True)
class Loader:
    """Loads the tables of a source database, and removes them.

    Attributes:
        name: name of the data.
        schema: schema of the tables.
        tables: names of the tables.
        steps: takes the folder of the user's own files ("" for none), and returns the steps to run; raises
            SourceError for an invalid file.
        database: name of the database, by default the world's.
        owns_schema: whether the schema is created and removed with the tables, and is the search
            path of new sessions.
        scale: the default scale.
        scales: the smallest scale, which is that of the bundled rows, and the largest one. A larger
            scale repeats the bundled rows with other keys.
    """

    name: str
    schema: str
    tables: tuple[str, ...]
    steps: Callable[[str], Steps]
    database: Optional[str] = None
    owns_schema: bool = False
    scale: float = 1
    scales: tuple[float, float] = (1, 1000)

    def load(
        self,
        world: World,
        *,
        scale: Optional[float] = None,
        from_dir: Union[str, Path, None] = None,
        confirm: Callable[[str], bool],
        progress: Callable[[str], None] = print,
    ) -> dict[str, int]:
        """Load the tables in one transaction.

        Args:
            world: the world of the database.
            scale: how many rows are generated; 1 is the size of the published data.
            from_dir: load the user's own files from this folder instead. The database stores its
                path (see `loaded_from`).
            confirm: called before anything is done; False leaves everything unchanged.
            progress: called with each line of progress.

        Returns:
            `{table: rows}`, empty if not confirmed.

        Raises:
            SourceError: the tables exist already, a file is missing or damaged (the error has the
                line), or values cannot be loaded. Then nothing is changed, except that the database
                was created.
        """
        server, database = world.postgres, self.database or world.postgres.database
        address = f"{server.host}:{server.port}"
        plan = _make_plan(self, scale, from_dir)
        names = ", ".join(self.tables)
        if self.owns_schema:
            names = f"schema {self.schema} with {names}"
        rows = f"the files in {from_dir}" if from_dir else f"generated data, scale {plan.scale}"
        if not confirm(f"Create {names} ({rows}) in {database} on {address}?"):
            return {}
        postgres.create_database(world, database)
        with postgres.session(world, database) as connection:
            progress(f"connection created: {address}/{database}")
            with connection.transaction():
                self._create(connection, plan)
                counts = {table: _count_rows(connection, table) for table in self.tables}
        loaded = ", ".join(f"{count:,} {table}" for table, count in counts.items())
        progress(f"tables loaded: {loaded}")
        return counts

    def validate(
        self,
        world: World,
        *,
        scale: Optional[float] = None,
        from_dir: Union[str, Path, None] = None,
    ) -> None:
        """Check what `load` would load, before existing tables are removed.

        The user's own files are loaded into a temporary schema in a transaction that is rolled back.

        Args:
            world: the world of the database.
            scale: as for `load`.
            from_dir: as for `load`.

        Raises:
            SourceError: the scale is invalid, a file is missing or damaged, or values cannot be loaded.
        """
        plan, schema = _make_plan(self, scale, from_dir), f"{self.schema}_trial"
        if from_dir:
            postgres.create_database(world, self.database)
            with (
                postgres.session(world, self.database) as connection,
                connection.transaction(force_rollback=True),
            ):
                connection.execute(format_sql("CREATE SCHEMA {}", schema))
                plan.run(connection, schema)

    def _create(self, connection: psycopg.Connection, plan: "_Plan") -> None:
        """Create and fill the tables, of which none may exist, and the schema if it is owned."""
        existing = connection.execute(
            "SELECT n FROM unnest(%s::text[]) n WHERE to_regclass(n) IS NOT NULL", [self._names]
        ).fetchone()
        if existing:
            raise SourceError(
                f"table {existing[0]} exists already",
                location=f"database {connection.info.dbname}",
                expected="a database without it",
                hint="keep the loaded data, or remove it ('Start clean' in the walkthrough's first "
                "notebook: reset) and load again",
            )
        if self.owns_schema:
            search_path = "ALTER DATABASE {} SET search_path TO {}"
            connection.execute(format_sql("CREATE SCHEMA {}", self.schema))
            connection.execute(format_sql(search_path, connection.info.dbname, self.schema))
        plan.run(connection, self.schema)
        hashes = hash_rows(connection, self._names)
        record = json.dumps({"scale": plan.scale, "from_dir": plan.from_dir, "rows": hashes})
        comment = sql.SQL("COMMENT ON TABLE {} IS {}")
        first = identifier(self._names[0])
        connection.execute(comment.format(first, sql.Literal(RECORD_PREFIX + record)))

    @property
    def _names(self) -> list[str]:
        return [f"{self.schema}.{table}" for table in self.tables]

    def existing(self, world: World) -> list[str]:
        """Return the names of the loaded tables that exist, and of their schema; the database must exist."""
        return postgres.existing_tables(world, self._names, self.database)

    def is_loaded(self, world: World) -> bool:
        """Return whether the tables were loaded, and all of them exist; the database must exist."""
        return {*self._names} <= {*self.existing(world)} and bool(self._record(world))

    def is_changed(self, world: World) -> bool:
        """Return whether a loaded table has other rows or columns than after its load, or a sequence has advanced."""
        with postgres.session(world, self.database) as connection:
            hashes = hash_rows(connection, self._names)
        return bool(hashes != self._record(world)["rows"])

    def require_reloadable(self, world: World) -> None:
        """Check that `reload` can replace the tables; nothing is changed.

        Raises:
            SourceError: as for `reload`.
        """
        record = self._record(world)
        self.validate(world, scale=record["scale"], from_dir=record["from_dir"])
        with (
            postgres.session(world, self.database) as connection,
            connection.transaction(force_rollback=True),
        ):
            self._drop(connection)

    def reload(self, world: World) -> None:
        """Load the loaded tables anew in one transaction, with the options of their last load.

        Publications keep the tables, and roles their permissions. If the schema is owned, everything in it is
        replaced, as by the first notebook.

        Raises:
            SourceError: a file of the user is missing or damaged, or a view of the user depends on a
                table of a schema that is not owned. Nothing is changed.
        """
        record = self._record(world)
        plan = _make_plan(self, record["scale"], record["from_dir"])
        with postgres.session(world, self.database) as connection, connection.transaction():
            parameters = {"schema": self.schema, "tables": [*self.tables]}
            lost = connection.execute(QUERIES["publications_and_grants"], parameters).fetchall()
            self._drop(connection)
            self._create(connection, plan)
            for (statement,) in lost:
                connection.execute(statement)

    def unload(self, world: World) -> None:
        """Remove the tables, or the schema if it is owned; they need not exist.

        Nothing else in the database changes, because other walkthroughs may use it.

        Raises:
            SourceError: a view of the user depends on a table.
        """
        postgres.create_database(world, self.database)
        with postgres.session(world, self.database) as connection, connection.transaction():
            self._drop(connection)

    def _drop(self, connection: psycopg.Connection) -> None:
        if self.owns_schema:
            connection.execute(format_sql("DROP SCHEMA IF EXISTS {} CASCADE", self.schema))
            reset = "ALTER DATABASE {} RESET search_path"
            connection.execute(format_sql(reset, connection.info.dbname))
        else:  # in one statement, because the tables may refer to each other
            tables = sql.SQL(", ").join(map(identifier, self._names))
            connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(tables))

    def loaded_from(self, world: World) -> str:
        """Return the folder from whose files the tables were loaded.

        Returns:
            Empty if the rows are generated, or the tables do not exist.
        """
        return str(self._record(world).get("from_dir", ""))

    def _record(self, world: World) -> dict[str, Any]:
        """Return how the tables were loaded: a comment on the first one has the options, and a hash of the rows.

        {} if the tables were not loaded, or do not exist.
        """
        query = "SELECT coalesce(obj_description(to_regclass(%s), 'pg_class'), '') AS text"
        text = postgres.query(world, query, [self._names[0]], self.database).loc[0, "text"]
        is_record = text.startswith(RECORD_PREFIX)
        return dict(json.loads(text.removeprefix(RECORD_PREFIX))) if is_record else {}


def hash_rows(connection: psycopg.Connection, tables: Sequence[str]) -> list[str]:
    """Return a hash of the rows of each table with their columns, in no order, and the state of its sequences.

    New rows get the same numbers again only if the sequences have not advanced.
    """
    rows = sql.SQL(
        "SELECT coalesce(sum(hashtextextended(to_jsonb(t)::text, 0)), 0)::text FROM {} t"
    )
    hashes = []
    for table in tables:
        hashes += [text for (text,) in connection.execute(rows.format(identifier(table)))]
        sequences = connection.execute(QUERIES["sequences"], [table])
        hashes += [f"{name} {value}" for name, value in sequences]
    return hashes


def _count_rows(connection: psycopg.Connection, table: str) -> int:
    [(count,)] = connection.execute(format_sql("SELECT count(*) FROM {}", table)).fetchall()
    return int(count)


@dataclass(frozen=True)
class _Plan:
    """What a loader loads: the scale or the user's folder, and the steps, which are repeated."""

    scale: float
    from_dir: str
    repetitions: int
    steps: Steps

    def run(self, connection: psycopg.Connection, schema: str) -> None:
        # only this schema, not public, so that a DROP TABLE in a dump cannot affect other tables
        connection.execute(format_sql("SET LOCAL search_path TO {}", schema))
        setting = "SELECT set_config('workbench.repetitions', %s, true)"
        connection.execute(setting, [str(self.repetitions)])
        for step in self.steps:
            step.run(connection)


def _make_plan(loader: Loader, scale: Any, from_dir: Union[str, Path, None]) -> _Plan:
    smallest, largest = loader.scales
    scale = loader.scale if scale is None else scale
    is_valid = type(scale) in (int, float) and smallest <= scale <= largest
    repetitions = round(scale / smallest) if is_valid else 0
    if not is_valid or abs(repetitions * smallest - scale) > 1e-6:
        expected = f"a multiple of {smallest} from {smallest} to {largest}"
        raise SourceError(f"scale is {scale!r}", expected=expected)
    folder = str(Path(from_dir).expanduser().absolute()) if from_dir else ""
    return _Plan(scale, folder, 1 if folder else repetitions, loader.steps(folder))


def split_statements(text: str) -> Iterator[tuple[int, str]]:
    """Split SQL at its semicolons.

    Yields:
        The line where a statement begins, and the statement.

    Raises:
        sqlglot.errors.TokenError: the text is not SQL.
    """
    import sqlglot

    start = None
    for token in sqlglot.tokenize(f"{text}\n;", read="postgres"):
        if token.token_type != sqlglot.TokenType.SEMICOLON:
            start, end = token.start if start is None else start, token.end + 1
        elif start is not None:
            yield text.count("\n", 0, start) + 1, text[start:end]
            start = None


def sql_file(name: str) -> str:
    """Return the SQL in a file of data/, such as `northwind/queries/revenue`."""
    return (ROOT / "data" / f"{name}.sql").read_text(encoding="utf-8")
