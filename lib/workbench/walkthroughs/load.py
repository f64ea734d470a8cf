"""Loading the source database: what every loader needs, and Northwind with its outbox.

A loader asks first, works in one transaction, and leaves nothing half done. Its tables stream into COPY.
"""
from __future__ import annotations

import re
from pathlib import Path
from typing import Callable, Dict, Iterator, Optional, Tuple

import psycopg
from psycopg import sql

from ..base.errors import SourceError
from ..base.params import World
from ..base.paths import ROOT
from ..source import postgres
from . import generate

DATA = ROOT / "data" / "northwind"
SCHEMA = "datalake"  # S1
# what the public dump consists of; COMMIT, COPY FROM STDIN or psql's \commands would break the one transaction
DUMP_STATEMENTS = r"(SET \w+|(CREATE|ALTER) TABLE|DROP TABLE IF EXISTS|INSERT INTO|CREATE (UNIQUE )?INDEX|COMMENT ON)\b"
ORIGIN = "own data, loaded from "
TOKENS = re.compile(
    r"""(?P<skip>--[^\n]*|/\*.*?\*/)           # comments; nested ones do not occur in our input
      | (?P<text>[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|"(?:[^"]|"")*"|(?P<tag>\$\w*\$).*?(?P=tag))
      | (?P<end>;)
      | (?P<other>\w+|.)""", re.S | re.X)


# --- Northwind -------------------------------------------------------------------------------------------------------

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
    postgres.create_database(world)
    with postgres.session(world) as c:
        say(f"connection created: {p.host}:{p.port}/{p.database}")
        with c.transaction():
            _create_schema(c, p.database)
            if dump:
                _run_dump(c, dump)
            else:
                run_script(c, DATA / "01_northwind_ddl.sql")
                for table in tables:
                    copy_rows(c, table)
                run_script(c, DATA / "02_northwind_keys.sql")
            # the outbox fill joins these: without statistics the planner guesses their sizes
            c.execute("ANALYZE orders, order_details, products")
            run_script(c, DATA / "03_cdc_events.sql")
            counts = {t: c.execute(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(t))).fetchone()[0]
                      for t in ("orders", "order_details", "cdc_events")}
        say(f"scripts executed: {counts['orders']:,} orders, {counts['order_details']:,} details, "
            f"{counts['cdc_events']:,} outbox rows")
    return counts


def look(world: World, *, scale: int = 1, from_dir: Optional[str] = None) -> None:
    """Judge whole what load_northwind would load, before anything is removed for it. A dump is run in a schema of its
    own, and rolled back. Raises SourceError as load_northwind does."""
    if not from_dir:
        generate.northwind(scale)
        return
    dump, trial = _dump(from_dir), sql.Identifier(f"{SCHEMA}_trial")
    postgres.create_database(world)
    with postgres.session(world) as c, c.transaction(force_rollback=True):
        c.execute(sql.SQL("CREATE SCHEMA {}").format(trial))
        c.execute(sql.SQL("SET LOCAL search_path TO {}").format(trial))
        _run_dump(c, dump)
        run_script(c, DATA / "03_cdc_events.sql")


def _run_dump(c: psycopg.Connection, dump: Path) -> None:
    run_script(c, dump, allowed=DUMP_STATEMENTS)
    run_script(c, DATA / "02_public_dump.sql")
    note_origin(c, "orders", dump.parent)


def _dump(folder: str) -> Path:
    path = Path(folder).expanduser().absolute() / "northwind.sql"
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
            next_step="keep what is loaded, or run load.reset_northwind(world) ('Start clean') and load again",
        ) from None
    # only this schema, not public: a DROP TABLE of the dump cannot meet somebody else's table
    c.execute(sql.SQL("SET LOCAL search_path TO {}").format(schema))
    c.execute(sql.SQL("ALTER DATABASE {} SET search_path TO {}").format(sql.Identifier(database), schema))


def reset_northwind(world: World) -> None:
    """Remove what the loader and the connectors made in the database: our slots, publications of schema `datalake`
    (and S1's `cdc_publication`), and the schema. Nothing is there: nothing happens."""
    if postgres.create_database(world):
        return
    drop_slots(world)
    with postgres.session(world) as c, c.transaction():
        drop_publications(c, f"{SCHEMA}.%", named="cdc_publication")
        c.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(SCHEMA)))
        c.execute(sql.SQL("ALTER DATABASE {} RESET search_path").format(sql.Identifier(world.postgres.database)))


def loaded_from(world: World) -> str:
    """Return the folder whose dump Northwind was loaded from; the empty text where its rows are generated."""
    return origin(world, f"{SCHEMA}.orders")


# --- what every loader needs -----------------------------------------------------------------------------------------

def note_origin(c: psycopg.Connection, table: str, folder: Path) -> None:
    """Write to a table where its rows come from. It goes with the table, and comes with the load's transaction."""
    c.execute(sql.SQL("COMMENT ON TABLE {} IS {}").format(sql.Identifier(table), sql.Literal(ORIGIN + str(folder))))


def origin(world: World, table: str, database: Optional[str] = None) -> str:
    """Return the folder that note_origin wrote to a table; the empty text where it did not, or where there is no such
    table."""
    said = postgres.frame(world, "SELECT obj_description(to_regclass(%s), 'pg_class') AS text", [table], database)
    text = said.loc[0, "text"] or ""
    return text[len(ORIGIN):] if text.startswith(ORIGIN) else ""


def copy_rows(c: psycopg.Connection, table: generate.Table) -> None:
    """Stream the rows of a table into the database."""
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


def run_script(c: psycopg.Connection, path: Path, allowed: str = "") -> None:
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
            raise SourceError(f"the script failed: {postgres.first_line(e)}", where=f"{path}, line {line}: {begin}",
                              next_step="mend the script and load again; nothing was changed") from None


def drop_slots(world: World, database: Optional[str] = None) -> None:
    """Drop the replication slots of this world's connectors in a database."""
    for name in postgres.own_slots(world, database):
        postgres.drop_slot(world, name, database=database)


def drop_publications(c: psycopg.Connection, *tables: str, named: str = "") -> None:
    """Drop the publications that hold nothing but these tables (`schema.table`, % stands for any text), and `named`.
    One for all tables is somebody else's."""
    ours = c.execute("""
        SELECT p.pubname FROM pg_publication p LEFT JOIN pg_publication_tables t USING (pubname)
        WHERE NOT p.puballtables GROUP BY 1
        HAVING bool_and(t.schemaname || '.' || t.tablename LIKE ANY (%s)) OR p.pubname = %s""",
                     [list(tables), named]).fetchall()
    for (name,) in ours:
        c.execute(sql.SQL("DROP PUBLICATION {}").format(sql.Identifier(name)))
