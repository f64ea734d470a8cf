"""The source database: connections, queries, and what change data capture needs of PostgreSQL.

Names of tables are given as people write them, `datalake.cdc_events`; each part is quoted as an identifier. Values are
bound. Connections commit each statement by itself, unless a transaction is opened. `database` is another database than
the world's own, wherever a function takes it.
"""
from __future__ import annotations

import json
import re
from contextlib import contextmanager
from typing import Any, Iterator, List, Optional, Sequence, Tuple, Type

import pandas
import psycopg
from psycopg import sql
from psycopg.adapt import Loader
from psycopg.types import datetime as of

from ..base import secrets
from ..base.errors import ParamsError, SourceError
from ..base.params import World
from ..base.wait import wait_until


def connect(world: World, database: Optional[str] = None, role: str = "admin") -> psycopg.Connection:
    """Return a connection in autocommit mode.

    Args:
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
        raise SourceError("cannot connect to PostgreSQL", where=f"{user}@{p.host}:{p.port}/{name}: {first_line(e)}",
                          next_step="run `workbench up`; or load the data first (load.load_northwind, …)") from None


@contextmanager
def session(world: World, database: Optional[str] = None) -> Iterator[psycopg.Connection]:
    """A connection that is closed afterwards and whose errors read as SourceError."""
    with connect(world, database) as c:
        try:
            yield c
        except psycopg.Error as e:
            hint = (e.diag.message_hint or "") if e.diag else ""
            raise SourceError(f"PostgreSQL refused: {first_line(e)}", where=f"database {c.info.dbname}",
                              next_step=hint) from e


def first_line(e: Exception) -> str:
    return (str(e).strip().splitlines() or [type(e).__name__])[0]


def execute(world: World, statement: Any, params: Any = None, database: Optional[str] = None) -> int:
    """Run a statement in a transaction of its own, and return how many rows it changed. Without params the text may
    hold several statements with their own BEGIN and COMMIT. Raises SourceError."""
    with session(world, database) as c:
        return c.execute(statement, params).rowcount


def frame(world: World, query: Any, params: Any = None, database: Optional[str] = None) -> pandas.DataFrame:
    """Return the rows of a query.

    Types are those that Spark's toPandas gives, so that both can be compared: whole numbers int64 (Int64 with NULLs),
    numeric as exact Decimal, dates as datetime.date, timestamps as datetime64, jsonb and arrays as lists and dicts.
    Dates and times that Python does not have (infinity, before the year 1, 24:00) are PostgreSQL's text.
    Raises SourceError.
    """
    with session(world, database) as c:
        for name, loader in OR_TEXT.items():
            c.adapters.register_loader(name, loader)
        cursor = c.execute(query, params)
        if cursor.description is None:
            raise SourceError("the statement returns no rows", expected="a SELECT", next_step="use postgres.execute")
        columns, rows = cursor.description, cursor.fetchall()
    data = {}
    for i, column in enumerate(columns):
        values = pandas.Series([row[i] for row in rows], dtype=object)
        data[i] = values.astype(_dtype(column.type_code, values))
    out = pandas.DataFrame(data)
    out.columns = [column.name for column in columns]
    return out


def _or_text(loader: Type[Loader]) -> Type[Loader]:
    """A loader of psycopg that gives the text of a value where it raises by itself, for one that Python has not."""
    class OrText(loader):  # type: ignore[valid-type, misc]
        def load(self, data: Any) -> Any:
            try:
                return super().load(data)
            except psycopg.DataError:
                return bytes(data).decode()

    return OrText


OR_TEXT = {"date": _or_text(of.DateLoader), "time": _or_text(of.TimeLoader), "timetz": _or_text(of.TimetzLoader),
           "timestamp": _or_text(of.TimestampLoader), "timestamptz": _or_text(of.TimestamptzLoader)}


def _dtype(type_code: int, values: pandas.Series) -> str:
    kind, nulls = psycopg.postgres.types.get(type_code), bool(values.isna().any())
    name = kind.name if kind and kind.oid == type_code else ""  # an array's type is found by its element's
    if name in ("int2", "int4", "int8", "oid"):
        return "Int64" if nulls else "int64"
    if name == "bool":
        return "boolean" if nulls else "bool"
    if name in ("float4", "float8"):
        return "float64"
    if name not in ("timestamp", "timestamptz") or any(isinstance(v, str) for v in values):
        return "object"
    unit = "ns" if all(1678 <= v.year <= 2261 for v in values if v is not None) else "us"  # what 64 bits of ns hold
    return f"datetime64[{unit}{', UTC' if name == 'timestamptz' else ''}]"


def identifier(name: str) -> sql.Identifier:
    """Quote `table` or `schema.table`. Raises SourceError when a part is empty or there are more."""
    parts = name.split(".")
    if len(parts) > 2 or not all(parts) or "\0" in name:
        raise SourceError(f"{name!r} is not a name of a table", expected="table or schema.table")
    return sql.Identifier(*parts)


def create_database(world: World, database: Optional[str] = None) -> bool:
    """Create the database unless it is there; return whether it was created."""
    name = database or world.postgres.database
    with session(world, "postgres") as c:
        if c.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone():
            return False
        c.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return True


def own_slots(world: World, database: Optional[str] = None) -> List[str]:
    """Names of the slots of this world's connectors in a database; others may have theirs there, too."""
    return [name for name in slots(world, database)["slot_name"] if name.startswith(slot_prefix(world))]


def slot_prefix(world: World) -> str:
    """Replication slots of this world's connectors start like this."""
    return re.sub(r"[^a-z0-9_]", "_", world.connect.topic_prefix.lower()) + "_"


# --- what change data capture needs ----------------------------------------------------------------------------------

def grant_replication(world: World, tables: Sequence[str], database: Optional[str] = None) -> None:
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
    with session(world, database) as c, c.transaction():
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


def create_publication(world: World, name: str, tables: Sequence[str], database: Optional[str] = None,
                       left_out: Sequence[str] = ()) -> None:
    """Publish exactly `tables`; an existing publication of that name gets that list.

    Args:
        left_out: columns, as `schema.table.column`, of which you know that they do not arrive (see docs/types.md).

    Raises:
        SourceError: a table is not there or has neither primary key nor replica identity (PostgreSQL would refuse its
            UPDATEs from then on), or has columns that Debezium does not carry; or it is a publication for all tables.
    """
    with session(world, database) as c, c.transaction():
        found = [_table(c, t) for t in _some(tables)]
        keyless = [f"{schema}.{table}" for schema, table, keyed in found if not keyed]
        if keyless:
            raise SourceError(f"{', '.join(keyless)} has neither primary key nor replica identity",
                              where=f"publication {name}", expected="a way to tell the rows of a published table apart",
                              next_step="add a primary key, or ALTER TABLE … REPLICA IDENTITY FULL")
        lost = {column: kind for column, kind in _not_carried(c, found) if column not in left_out}
        if lost:
            named = json.dumps([*left_out, *lost], ensure_ascii=False)
            raise SourceError(f"Debezium does not carry {', '.join(f'{c} ({kind})' for c, kind in lost.items())}",
                              where=f"publication {name}",
                              next_step="docs/types.md says what becomes of each. Give them types that arrive; or say "
                                        f"that they may be null or missing in the lake: left_out={named}")
        old = c.execute("SELECT puballtables FROM pg_publication WHERE pubname = %s", [name]).fetchone()
        if old and old[0]:
            raise SourceError(f"publication {name} is one for all tables", expected="a list of tables",
                              next_step=f"postgres.drop_publication(world, {name!r}), then create it again")
        c.execute(sql.SQL("ALTER PUBLICATION {} SET TABLE {}" if old else "CREATE PUBLICATION {} FOR TABLE {}").format(
            sql.Identifier(name), sql.SQL(", ").join(sql.Identifier(s, t) for s, t, _ in found)))


# What Debezium's PostgreSQL connector (3.5) carries; beside these, enums and domains over them all
CARRIED = frozenset("""
    bool int2 int4 int8 oid float4 float8 numeric bpchar varchar text bytea date time timetz timestamp timestamptz
    json jsonb uuid inet cidr macaddr macaddr8 int4range int8range numrange tsrange tstzrange daterange citext
    """.split())  # in lists, too
CARRIED_ALONE = CARRIED | set("""
    bit varbit char interval money xml point tsvector ltree hstore geometry geography vector halfvec sparsevec
    """.split())


def _not_carried(c: psycopg.Connection, tables: List[Tuple[str, str, bool]]) -> List[Tuple[str, str]]:
    """The columns that do not arrive: (`schema.table.column`, its type)."""
    rows = c.execute("""
        WITH RECURSIVE domain AS (
            SELECT oid AS type, oid AS base, typbasetype AS next FROM pg_type
            UNION ALL SELECT d.type, t.oid, t.typbasetype FROM domain d JOIN pg_type t ON t.oid = d.next)
        SELECT format('%%s.%%s.%%s', n.nspname, r.relname, a.attname), format_type(a.atttypid, a.atttypmod),
               a.attgenerated <> '', a.attndims, t.typname, t.typtype, e.typname, e.typtype, a.atttypid = t.oid
        FROM pg_attribute a JOIN pg_class r ON r.oid = a.attrelid JOIN pg_namespace n ON n.oid = r.relnamespace
        JOIN domain ON domain.type = a.atttypid AND domain.next = 0 JOIN pg_type t ON t.oid = domain.base
        LEFT JOIN pg_type e ON t.typcategory = 'A' AND e.oid = t.typelem
        WHERE format('%%s.%%s', n.nspname, r.relname) = ANY(%s) AND a.attnum > 0 AND NOT a.attisdropped
        ORDER BY r.relname, a.attnum""", [[f"{schema}.{table}" for schema, table, _ in tables]]).fetchall()
    lost = []
    for column, kind, generated, dimensions, base, sort, element, element_sort, plain in rows:
        if element:
            carried = (element in CARRIED or element_sort == "e") and dimensions < 2
        else:
            carried = base in CARRIED_ALONE or (sort == "e" and plain)  # a domain over an enum stops the connector
        if generated or not carried:
            lost.append((column, "generated" if generated else kind))
    return lost


def drop_publication(world: World, name: str, database: Optional[str] = None) -> None:
    """Drop a publication if it is there."""
    execute(world, sql.SQL("DROP PUBLICATION IF EXISTS {}").format(sql.Identifier(name)), database=database)


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
                          next_step="load the data first (load.load_northwind, …), or correct the name")
    return row


def publications(world: World, database: Optional[str] = None) -> pandas.DataFrame:
    """Return one row per published table: publication, all_tables, table, identity (how its rows are told apart)."""
    return frame(world, """
        SELECT p.pubname AS publication, p.puballtables AS all_tables, t.schemaname || '.' || t.tablename AS "table",
               CASE c.relreplident WHEN 'f' THEN 'full row' WHEN 'i' THEN 'index' WHEN 'n' THEN 'none'
                    ELSE CASE WHEN EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary)
                              THEN 'primary key' ELSE 'none' END END AS identity
        FROM pg_publication p LEFT JOIN pg_publication_tables t USING (pubname)
        LEFT JOIN pg_namespace n ON n.nspname = t.schemaname
        LEFT JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename ORDER BY 1, 3""", database=database)


def slots(world: World, database: Optional[str] = None) -> pandas.DataFrame:
    """Return the replication slots of the database, and the bytes of log each holds back."""
    return frame(world, """
        SELECT slot_name, plugin, active, active_pid, wal_status, confirmed_flush_lsn::text AS confirmed,
               pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint AS bytes_behind
        FROM pg_replication_slots WHERE database = current_database() ORDER BY 1""", database=database)


def drop_slot(world: World, name: str, timeout: float = 20, database: Optional[str] = None) -> bool:
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

    with session(world, database) as c:
        there = not gone(c)
        wait_until(lambda: gone(c), f"replication slot {name} to go", timeout=timeout, error=SourceError,
                   next_step="a connector still reads it: delete that connector, then drop the slot")
        return there


def wal_position(world: World, database: Optional[str] = None) -> str:
    """Return the log position (LSN) that the server has written up to; all its databases share one log."""
    return frame(world, "SELECT pg_current_wal_lsn()::text AS lsn", database=database)["lsn"][0]


def lsn(text: str) -> int:
    """PostgreSQL's `16/B374D848` as the number that Debezium writes (pg_lsn: two 32-bit halves)."""
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) + int(low, 16)
