"""The source database: connections, Northwind with its outbox, and what change data capture needs of PostgreSQL.

Names of tables are given as people write them, `datalake.cdc_events`; each part is quoted as an identifier. Values are
bound. Connections commit each statement by itself, unless a transaction is opened.
"""
from __future__ import annotations

import re
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import pandas
import psycopg
from psycopg import sql

from . import generate, secrets
from .errors import ParamsError, SourceError
from .params import ROOT, World
from .wait import wait_until

DATA = ROOT / "data" / "northwind"
SCHEMA = "datalake"  # S1
# what the public dump consists of; COMMIT, COPY FROM STDIN or psql's \commands would break the one transaction
DUMP_STATEMENTS = r"(SET \w+|(CREATE|ALTER) TABLE|DROP TABLE IF EXISTS|INSERT INTO|CREATE (UNIQUE )?INDEX|COMMENT ON)\b"
TOKENS = re.compile(
    r"""(?P<skip>--[^\n]*|/\*.*?\*/)           # comments; nested ones do not occur in our input
      | (?P<text>[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|"(?:[^"]|"")*"|(?P<tag>\$\w*\$).*?(?P=tag))
      | (?P<end>;)
      | (?P<other>\w+|.)""", re.S | re.X)


def connect(world: World, database: Optional[str] = None, role: str = "admin") -> psycopg.Connection:
    """Return a connection in autocommit mode.

    Args:
        database: another one than the world's.
        role: "admin", or "replication" for the user that connectors log in as.
    Raises:
        SourceError: the server does not answer, or refuses user, password or database.
    """
    p = world.postgres
    users = {"admin": (p.admin_user, p.admin_password), "replication": (p.replication_user, p.replication_password)}
    if role not in users:
        raise SourceError(f"there is no role {role!r}", expected="admin or replication")
    user, password = users[role]
    name = database or p.database
    try:
        return psycopg.connect(host=p.host, port=p.port, dbname=name, user=user, password=password.reveal(),
                               autocommit=True, connect_timeout=5, application_name="workbench")
    except psycopg.Error as e:
        raise SourceError("cannot connect to PostgreSQL", where=f"{user}@{p.host}:{p.port}/{name}: {_first_line(e)}",
                          next_step="run `workbench up`; or load the data first (sources.load_northwind)") from None


@contextmanager
def _session(world: World, database: Optional[str] = None) -> Iterator[psycopg.Connection]:
    """A connection that is closed afterwards and whose errors read as SourceError."""
    with connect(world, database) as c:
        try:
            yield c
        except psycopg.Error as e:
            hint = (e.diag.message_hint or "") if e.diag else ""
            raise SourceError(f"PostgreSQL refused: {_first_line(e)}", where=f"database {c.info.dbname}",
                              next_step=hint) from e


def _first_line(e: Exception) -> str:
    return (str(e).strip().splitlines() or [type(e).__name__])[0]


def execute(world: World, statement: Any, params: Any = None, database: Optional[str] = None) -> int:
    """Run a statement in a transaction of its own, and return how many rows it changed. Without params the text may
    hold several statements with their own BEGIN and COMMIT. Raises SourceError."""
    with _session(world, database) as c:
        return c.execute(statement, params).rowcount


def frame(world: World, query: Any, params: Any = None) -> pandas.DataFrame:
    """Return the rows of a query.

    Types are those that Spark's toPandas gives, so that both can be compared: whole numbers int64 (Int64 with NULLs),
    numeric as exact Decimal, dates as datetime.date, timestamps as datetime64, jsonb as lists and dicts.
    Raises SourceError.
    """
    with _session(world) as c:
        cursor = c.execute(query, params)
        if cursor.description is None:
            raise SourceError("the statement returns no rows", expected="a SELECT", next_step="use sources.execute")
        columns, rows = cursor.description, cursor.fetchall()
    data = {}
    for i, column in enumerate(columns):
        values = pandas.Series([row[i] for row in rows], dtype=object)
        data[i] = values.astype(_dtype(column.type_code, bool(values.isna().any())))
    out = pandas.DataFrame(data)
    out.columns = [column.name for column in columns]
    return out


def _dtype(type_code: int, nulls: bool) -> str:
    kind = psycopg.postgres.types.get(type_code)
    name = kind.name if kind else ""
    if name in ("int2", "int4", "int8", "oid"):
        return "Int64" if nulls else "int64"
    if name == "bool":
        return "boolean" if nulls else "bool"
    if name in ("float4", "float8"):
        return "float64"
    return {"timestamp": "datetime64[ns]", "timestamptz": "datetime64[ns, UTC]"}.get(name, "object")


def identifier(name: str) -> sql.Identifier:
    """Quote `table` or `schema.table`. Raises SourceError when a part is empty or there are more."""
    parts = name.split(".")
    if len(parts) > 2 or not all(parts) or "\0" in name:
        raise SourceError(f"{name!r} is not a name of a table", expected="table or schema.table")
    return sql.Identifier(*parts)


# --- Northwind -------------------------------------------------------------------------------------------------------

def create_database(world: World) -> bool:
    """Create the world's database unless it is there; return whether it was created."""
    name = world.postgres.database
    with _session(world, "postgres") as c:
        if c.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone():
            return False
        c.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return True


def load_northwind(world: World, *, scale: int = 1, from_dir: Optional[str] = None, confirm: Callable[[str], bool],
                   say: Callable[[str], None] = print) -> Dict[str, int]:
    """Load Northwind and its outbox into schema `datalake`, in one transaction.

    Args:
        scale: how many times 829 orders are generated.
        from_dir: load `northwind.sql`, the public dump, from this folder instead.
        confirm: asked before anything is done; false leaves everything as it is.
        say: takes the two progress messages.
    Returns: `{table: rows}` of orders, order_details and cdc_events; empty when not confirmed.
    Raises:
        SourceError: the schema exists, a file is missing or broken (with its line). Nothing is changed then.
    """
    p = world.postgres
    what = f"the dump in {from_dir}" if from_dir else f"generated data, scale {scale}"
    if not confirm(f"Create schema {SCHEMA} with Northwind ({what}) in {p.database} on {p.host}:{p.port}?"):
        return {}
    dump = _dump(from_dir) if from_dir else None
    tables = [] if dump else generate.northwind(scale)
    create_database(world)
    with _session(world) as c:
        say(f"connection created: {p.host}:{p.port}/{p.database}")
        with c.transaction():
            _create_schema(c, p.database)
            if dump:
                _run_script(c, dump, allowed=DUMP_STATEMENTS)
                _run_script(c, DATA / "02_public_dump.sql")
            else:
                _run_script(c, DATA / "01_northwind_ddl.sql")
                for table in tables:
                    _copy(c, table)
                _run_script(c, DATA / "02_northwind_keys.sql")
            # the outbox fill joins these: without statistics the planner guesses their sizes
            c.execute("ANALYZE orders, order_details, products")
            _run_script(c, DATA / "03_cdc_events.sql")
            counts = {t: c.execute(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(t))).fetchone()[0]
                      for t in ("orders", "order_details", "cdc_events")}
        say(f"scripts executed: {counts['orders']:,} orders, {counts['order_details']:,} details, "
            f"{counts['cdc_events']:,} outbox rows")
    return counts


def _dump(folder: str) -> Path:
    path = Path(folder).expanduser() / "northwind.sql"
    if not path.is_file():
        raise SourceError("the public dump is not there", where=str(path), expected="a folder that holds northwind.sql",
                          next_step="correct the folder, or leave it out to load generated data")
    return path


def _create_schema(c: psycopg.Connection, database: str) -> None:
    schema = sql.Identifier(SCHEMA)
    try:
        c.execute(sql.SQL("CREATE SCHEMA {}").format(schema))
    except psycopg.errors.DuplicateSchema:
        raise SourceError(
            f"schema {SCHEMA} exists already", where=f"database {database}", expected="a database without it",
            next_step="keep what is loaded, or run sources.reset_northwind(world) ('Start clean') and load again",
        ) from None
    # only this schema, not public: a DROP TABLE of the dump cannot meet somebody else's table
    c.execute(sql.SQL("SET LOCAL search_path TO {}").format(schema))
    c.execute(sql.SQL("ALTER DATABASE {} SET search_path TO {}").format(sql.Identifier(database), schema))


def _copy(c: psycopg.Connection, table: generate.Table) -> None:
    columns = sql.SQL(", ").join(map(sql.Identifier, table.columns))
    with c.cursor() as cursor, cursor.copy(
        sql.SQL("COPY {} ({}) FROM STDIN").format(sql.Identifier(table.name), columns)
    ) as copy:
        for row in table.rows():
            copy.write_row(row)


def statements(text: str) -> Iterator[Tuple[int, str]]:
    """Split SQL at the semicolons outside quotes, $$ bodies and comments; yield (line of its start, statement)."""
    line, start, parts = 1, 0, []
    for token in TOKENS.finditer(text):
        if token.lastgroup == "end" and parts:
            yield start, "".join(parts).strip()
            parts = []
        elif token["skip"] is not None:
            parts += [" "] if parts else []
        elif token["end"] is None and (parts or not token[0].isspace()):
            start = start if parts else line
            parts.append(token[0])
        line += token[0].count("\n")
    if "".join(parts).strip():
        yield start, "".join(parts).strip()


def _run_script(c: psycopg.Connection, path: Path, allowed: str = "") -> None:
    """Run a file's statements, those that match `allowed` only. Raises SourceError that names file and line."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as e:
        raise SourceError("the script cannot be read", where=f"{path}: {e}") from None
    for line, statement in statements(text):
        where, begin = f"{path}, line {line}", " ".join(statement[:200].split())[:80]
        if allowed and not re.match(allowed, " ".join(statement[:200].split()), re.I):
            raise SourceError(f"a statement that a dump should not hold: {begin}", where=where,
                              expected="SET, CREATE/ALTER TABLE, DROP TABLE IF EXISTS, INSERT INTO, CREATE INDEX",
                              next_step="use a plain dump with INSERTs; nothing was changed")
        try:
            c.execute(statement)
        except psycopg.Error as e:
            position = int((e.diag.statement_position if e.diag else None) or 1)
            line += statement.count("\n", 0, position - 1)
            raise SourceError(f"the script failed: {_first_line(e)}", where=f"{path}, line {line}: {begin}",
                              next_step="mend the script and load again; nothing was changed") from None


def slot_prefix(world: World) -> str:
    """Replication slots of this world's connectors start like this."""
    return re.sub(r"[^a-z0-9_]", "_", world.connect.topic_prefix.lower()) + "_"


def reset_northwind(world: World) -> None:
    """Remove what the loader and the connectors made in the database: our slots, publications of schema `datalake`
    (and S1's `cdc_publication`), and the schema. Nothing is there: nothing happens."""
    if create_database(world):
        return
    for name in slots(world)["slot_name"]:
        if name.startswith(slot_prefix(world)):
            drop_slot(world, name)
    with _session(world) as c:
        ours = c.execute("""SELECT p.pubname FROM pg_publication p LEFT JOIN pg_publication_tables t USING (pubname)
                            WHERE NOT p.puballtables GROUP BY 1
                            HAVING bool_and(t.schemaname = %s) OR p.pubname = 'cdc_publication'""", [SCHEMA]).fetchall()
        with c.transaction():
            for (name,) in ours:
                c.execute(sql.SQL("DROP PUBLICATION {}").format(sql.Identifier(name)))
            c.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(SCHEMA)))
            c.execute(sql.SQL("ALTER DATABASE {} RESET search_path").format(sql.Identifier(world.postgres.database)))


# --- what change data capture needs ----------------------------------------------------------------------------------

def grant_replication(world: World, tables: Sequence[str]) -> None:
    """Make the user that connectors log in as: it may replicate, and read `tables`; nothing else in their schemas.

    Its password is the world's secret, made if there is none. PostgreSQL gets its SCRAM verifier, so that the password
    is in no statement and no server log. Raises SourceError.
    """
    secret, user = world.postgres.replication_password, sql.Identifier(world.postgres.replication_user)
    try:
        password = secret.reveal()
    except ParamsError:
        secrets.ensure([secret.name])
        password = secret.reveal()
    with _session(world) as c, c.transaction():
        found = [_table(c, t) for t in _some(tables)]
        verifier = c.pgconn.encrypt_password(password.encode(), world.postgres.replication_user.encode(),
                                             b"scram-sha-256").decode()
        exists = c.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [world.postgres.replication_user]).fetchone()
        c.execute(sql.SQL("{} ROLE {} LOGIN REPLICATION PASSWORD {}").format(
            sql.SQL("ALTER" if exists else "CREATE"), user, sql.Literal(verifier)))
        for schema in {schema for schema, _, _ in found}:
            c.execute(sql.SQL("REVOKE ALL ON ALL TABLES IN SCHEMA {} FROM {}").format(sql.Identifier(schema), user))
            c.execute(sql.SQL("GRANT USAGE ON SCHEMA {} TO {}").format(sql.Identifier(schema), user))
        for schema, table, _ in found:
            c.execute(sql.SQL("GRANT SELECT ON {} TO {}").format(sql.Identifier(schema, table), user))


def create_publication(world: World, name: str, tables: Sequence[str]) -> None:
    """Publish exactly `tables`; an existing publication of that name gets that list.

    Raises:
        SourceError: a table is not there or has neither primary key nor replica identity (PostgreSQL would refuse its
            UPDATEs from then on), or the publication is one for all tables.
    """
    with _session(world) as c, c.transaction():
        found = [_table(c, t) for t in _some(tables)]
        keyless = [f"{schema}.{table}" for schema, table, keyed in found if not keyed]
        if keyless:
            raise SourceError(f"{', '.join(keyless)} has neither primary key nor replica identity",
                              where=f"publication {name}", expected="a way to tell the rows of a published table apart",
                              next_step="add a primary key, or ALTER TABLE … REPLICA IDENTITY FULL")
        old = c.execute("SELECT puballtables FROM pg_publication WHERE pubname = %s", [name]).fetchone()
        if old and old[0]:
            raise SourceError(f"publication {name} is one for all tables", expected="a list of tables",
                              next_step=f"sources.drop_publication(world, {name!r}), then create it again")
        c.execute(sql.SQL("ALTER PUBLICATION {} SET TABLE {}" if old else "CREATE PUBLICATION {} FOR TABLE {}").format(
            sql.Identifier(name), sql.SQL(", ").join(sql.Identifier(s, t) for s, t, _ in found)))


def drop_publication(world: World, name: str) -> None:
    """Drop a publication if it is there."""
    execute(world, sql.SQL("DROP PUBLICATION IF EXISTS {}").format(sql.Identifier(name)))


def _some(tables: Sequence[str]) -> List[str]:
    if isinstance(tables, str) or not tables:
        raise SourceError(f"tables is {tables!r}", expected="a list such as ['datalake.cdc_events']")
    return list(tables)


def _table(c: psycopg.Connection, name: str) -> Tuple[str, str, bool]:
    """Find a table: its schema, its name, and whether its rows can be told apart by replication."""
    identifier(name)
    schema, _, table = name.rpartition(".")
    row = c.execute("""
        SELECT n.nspname, t.relname, t.relreplident = 'f' OR EXISTS (
            SELECT FROM pg_index i WHERE i.indrelid = t.oid
            AND CASE t.relreplident WHEN 'i' THEN i.indisreplident WHEN 'd' THEN i.indisprimary ELSE false END)
        FROM pg_class t JOIN pg_namespace n ON n.oid = t.relnamespace
        WHERE t.relkind IN ('r', 'p') AND t.relname = %s AND n.nspname = coalesce(nullif(%s, ''), current_schema())
        """, [table, schema]).fetchone()
    if not row:
        raise SourceError(f"there is no table {name}", where=f"database {c.info.dbname}",
                          next_step="load the data first (sources.load_northwind), or correct the name")
    return row


def publications(world: World) -> pandas.DataFrame:
    """Return one row per published table: publication, all_tables, table, identity (how its rows are told apart)."""
    return frame(world, """
        SELECT p.pubname AS publication, p.puballtables AS all_tables, t.schemaname || '.' || t.tablename AS "table",
               CASE c.relreplident WHEN 'f' THEN 'full row' WHEN 'i' THEN 'index' WHEN 'n' THEN 'none'
                    ELSE CASE WHEN EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary)
                              THEN 'primary key' ELSE 'none' END END AS identity
        FROM pg_publication p LEFT JOIN pg_publication_tables t USING (pubname)
        LEFT JOIN pg_namespace n ON n.nspname = t.schemaname
        LEFT JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename ORDER BY 1, 3""")


def slots(world: World) -> pandas.DataFrame:
    """Return the replication slots of the world's database, and the bytes of log each holds back."""
    return frame(world, """
        SELECT slot_name, plugin, active, active_pid, wal_status, confirmed_flush_lsn::text AS confirmed,
               pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint AS bytes_behind
        FROM pg_replication_slots WHERE database = current_database() ORDER BY 1""")


def drop_slot(world: World, name: str, timeout: float = 20) -> bool:
    """Drop a replication slot, ending the connection that reads it; return whether there was one.

    A connector that is still deployed connects again at once: delete it first. Raises SourceError after `timeout`.
    """
    def gone(c: psycopg.Connection) -> bool:
        row = c.execute("SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s", [name]).fetchone()
        if row and row[0]:
            c.execute("SELECT pg_terminate_backend(%s)", [row[0]])
        elif row:
            c.execute("SELECT pg_drop_replication_slot(%s)", [name])
        return row is None

    with _session(world) as c:
        there = not gone(c)
        wait_until(lambda: gone(c), f"replication slot {name} to go", timeout=timeout, error=SourceError,
                   next_step="a connector still reads it: delete that connector, then drop the slot")
        return there


def wal_position(world: World) -> str:
    """Return the log position (LSN) that the database has written up to."""
    return frame(world, "SELECT pg_current_wal_lsn()::text AS lsn")["lsn"][0]
