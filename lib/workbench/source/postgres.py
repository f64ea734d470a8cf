"""The source database: connections, queries, and what change data capture needs of PostgreSQL.

Names of tables are given as people write them, `datalake.cdc_events`; each part is quoted as an
identifier. Values are bound. Connections commit each statement by itself, unless a transaction is
opened. `database` is another database than the world's own, wherever a function takes it.
"""

import json
import re
from contextlib import contextmanager
from typing import Any, Iterator, Optional, Sequence

import pandas
import psycopg
from psycopg import sql

from .. import stack
from ..base import SourceError, World, first_line, secrets, wait_until
from . import column_types
from .names import format_sql, role_credentials, role_secret
from .names import identifier as identifier
from .queries import QUERIES


def connect(
    world: World, database: Optional[str] = None, role: str = "admin"
) -> psycopg.Connection:
    """Return a connection in autocommit mode.

    Args:
        role: "admin", or "replication" for the user that connectors log in as.

    Raises:
        SourceError: the server does not answer, or refuses user, password or database. StackError:
            its service is gone.
    """
    p = world.postgres
    user, password = role_credentials(p, role)
    name = database or p.database
    try:
        return psycopg.connect(
            host=p.host,
            port=p.port,
            dbname=name,
            user=user,
            password=password.reveal(),
            autocommit=True,
            connect_timeout=5,
            application_name="workbench",
        )
    except psycopg.Error as e:
        lost = stack.service_down_error(world, "postgres", f"{p.host}:{p.port}")
        if lost:
            raise lost from None
        if "permission denied" in str(e):
            next_step = ""
        elif f'database "{name}" does not exist' in str(e):
            next_step = (
                "load a walkthrough's data (`workbench load`), or create a database of your own: "
                "postgres.create_database(world, name)"
            )
        else:
            next_step = "run `workbench up`"
        raise SourceError(
            "cannot connect to PostgreSQL",
            location=f"{user}@{p.host}:{p.port}/{name}: {first_line(e)}",
            hint=next_step,
        ) from None


@contextmanager
def session(
    world: World, database: Optional[str] = None, role: str = "admin"
) -> Iterator[psycopg.Connection]:
    """A connection that is closed afterwards and whose errors read as SourceError."""
    with connect(world, database, role) as c:
        try:
            yield c
        except psycopg.Error as e:
            where = ". ".join(filter(None, [f"database {c.info.dbname}", e.diag.message_detail]))
            raise SourceError(
                f"PostgreSQL refused: {first_line(e)}",
                location=where,
                hint=e.diag.message_hint or "",
            ) from e


def execute(
    world: World, statement: Any, params: Any = None, database: Optional[str] = None
) -> int:
    """Run a statement in a transaction of its own, and return how many rows it changed. Without
    params the text may hold several statements with their own BEGIN and COMMIT. Raises
    SourceError.
    """
    with session(world, database) as c:
        return c.execute(statement, params).rowcount


def query(
    world: World, query: Any, params: Any = None, database: Optional[str] = None
) -> pandas.DataFrame:
    """Return the rows of a query.

    Types are those that Spark's toPandas gives, so that both can be compared: whole numbers int64
    (Int64 with NULLs), numeric as exact Decimal, dates as datetime.date, timestamps as datetime64,
    jsonb and arrays as lists and dicts. Dates and times that Python does not have (infinity, before
    the year 1, 24:00) are PostgreSQL's text. Raises SourceError.
    """
    with session(world, database) as c:
        for name, loader in column_types.TEXT_FALLBACK_LOADERS.items():
            c.adapters.register_loader(name, loader)
        cursor = c.execute(query, params)
        if cursor.description is None:
            raise SourceError(
                "the statement returns no rows",
                expected="a SELECT",
                hint="use postgres.execute",
            )
        columns, rows = cursor.description, cursor.fetchall()
    kinds = [column_types.type_name(c.type_code) for c in columns]
    return column_types.to_dataframe([c.name for c in columns], kinds, rows)


def databases(world: World) -> list[str]:
    """Names of the databases on the server."""
    return list(query(world, "SELECT datname FROM pg_database", database="postgres")["datname"])


def create_database(world: World, database: Optional[str] = None) -> None:
    """Create the database unless it is there."""
    name = database or world.postgres.database
    if name not in databases(world):
        execute(world, format_sql("CREATE DATABASE {}", name), database="postgres")


def create_service_database(world: World, name: str) -> None:
    """Create a database, and a role of its name that owns it, unless they are there. Nobody else
    but administrators may enter it. The role's password is made with it, and kept with the
    instance's secrets. Raises SourceError: there is a database of this name, and it is somebody
    else's.
    """
    if _database_owner(world, name) not in ("", name):
        raise SourceError(
            f"there is a database {name!r}, of {_database_owner(world, name)!r}",
            expected="no such database",
            hint="rename it: " + format_sql("ALTER DATABASE {} RENAME TO …", name).as_string(None),
        )
    with session(world, "postgres") as c:
        if not c.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [name]).fetchone():
            _set_password(
                c,
                "CREATE ROLE {} LOGIN PASSWORD ",
                name,
                secrets.get_or_create(secrets.Secret(role_secret(name))),
            )
    create_database(world, name)
    execute(world, format_sql("ALTER DATABASE {0} OWNER TO {0}", name), database="postgres")
    execute(
        world, format_sql("REVOKE CONNECT ON DATABASE {0} FROM PUBLIC", name), database="postgres"
    )


def _database_owner(world: World, name: str) -> str:
    """Who owns a database; "" where there is none of this name."""
    asked = "SELECT pg_get_userbyid(datdba) AS owner FROM pg_database WHERE datname = %s"
    return "".join(query(world, asked, [name], "postgres")["owner"])


def drop_service_databases(world: World, *names: str) -> None:
    """Drop databases that `create_own` has made, with roles and passwords, ending connections; what
    is not there is no error. Raises SourceError: a replication slot holds one.
    """
    known = secrets.read()  # one of that name may be somebody else's
    ours = [
        name
        for name in names
        if role_secret(name) in known and _database_owner(world, name) in ("", name)
    ]
    for statement in ("DROP DATABASE IF EXISTS {} WITH (FORCE)", "DROP ROLE IF EXISTS {}"):
        for name in ours:
            execute(world, format_sql(statement, name), database="postgres")
    for name in ours:
        secrets.delete(role_secret(name))


def _set_password(c: psycopg.Connection, statement: str, user: str, password: str) -> None:
    """Run the end of a statement that sets a password: the server gets its SCRAM verifier, so that
    the password is in no statement and no server log.
    """
    verifier = c.pgconn.encrypt_password(
        password.encode(), user.encode(), b"scram-sha-256"
    ).decode()
    c.execute(format_sql(statement, user) + sql.Literal(verifier))


def connector_slots(world: World, database: Optional[str] = None) -> list[str]:
    """Names of the slots of this world's connectors in a database; others may have theirs there,
    too.
    """
    return [
        name for name in slots(world, database)["slot_name"] if name.startswith(slot_prefix(world))
    ]


def slot_prefix(world: World) -> str:
    """Replication slots of this world's connectors start like this: "lower-case letters, numbers,
    and the underscore character", as PostgreSQL has it.
    """
    return re.sub(r"[^a-z0-9_]", "_", world.connect.topic_prefix.lower()) + "_"


# --- what change data capture needs
# ----------------------------------------------------------------------------------


def grant_replication(world: World, tables: Sequence[str], database: Optional[str] = None) -> None:
    """Make the user that connectors log in as: it may replicate, read `tables`, and send
    heartbeats.

    Of other tables in their schemas it keeps the right to read those that are published still, for
    the sake of other connectors; any other right there is taken back. Its password is the world's
    secret, made if there is none. Raises SourceError.
    """
    password, user = (
        secrets.get_or_create(world.postgres.replication_password),
        world.postgres.replication_user,
    )
    with session(world, database) as c, c.transaction():
        found = [(schema, table) for schema, table, _ in _find_tables(c, tables)]
        exists = c.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [user]).fetchone()
        # on RDS and Aurora nobody may give the attribute; a role takes its place (their guide,
        # "Logical replication")
        managed = c.execute("SELECT 1 FROM pg_roles WHERE rolname = 'rds_replication'").fetchone()
        may = f"{'ALTER' if exists else 'CREATE'} ROLE {{}} LOGIN {'' if managed else 'REPLICATION '}PASSWORD "
        _set_password(c, may, user, password)
        if managed:
            c.execute(format_sql("GRANT rds_replication TO {}", user))
        schemas = sorted({schema for schema, _ in found})
        others = c.execute(QUERIES["published_and_readable"], [schemas, user]).fetchall()
        for schema in schemas:
            c.execute(format_sql("REVOKE ALL ON ALL TABLES IN SCHEMA {} FROM {}", schema, user))
            c.execute(format_sql("GRANT USAGE ON SCHEMA {} TO {}", schema, user))
        for table in [*found, *others]:
            c.execute(format_sql("GRANT SELECT ON {} TO {}", table, user))
        for (function,) in c.execute(QUERIES["heartbeat_denied"], [user]).fetchall():
            c.execute(
                sql.SQL("GRANT EXECUTE ON FUNCTION {} TO {}").format(
                    sql.SQL(function), sql.Identifier(user)
                )
            )


def create_publication(
    world: World,
    name: str,
    tables: Sequence[str],
    database: Optional[str] = None,
    excluded_columns: Sequence[str] = (),
) -> None:
    """Publish exactly `tables`; an existing publication of that name gets that list.

    The changes of a partitioned table are published under its own name, not under those of its
    partitions.

    Args:
        left_out: columns, as `schema.table.column`, of which you know that they do not arrive (see
            docs/types.md).

    Raises:
        SourceError: a table is not there; it, or a partition of it, has neither primary key nor
            replica identity (PostgreSQL would refuse its UPDATEs from then on); it has columns that
            Debezium does not carry; or it is a publication for all tables.
    """
    with session(world, database) as c, c.transaction():
        found = _find_tables(c, tables)
        keyless = [name for _, _, names in found for name in names]
        if keyless:
            raise SourceError(
                f"{', '.join(keyless)} has neither primary key nor replica identity",
                location=f"publication {name}",
                expected="a way to tell the rows of a published table apart",
                hint="add a primary key, or ALTER TABLE … REPLICA IDENTITY FULL; of a partitioned "
                "table also each partition, which does not inherit that",
            )
        odd = c.execute(
            QUERIES["not_carried"], [[f"{schema}.{table}" for schema, table, _ in found]]
        ).fetchall()
        lost = {column: kind for column, kind in odd if column not in excluded_columns}
        if lost:
            named = json.dumps([*excluded_columns, *lost], ensure_ascii=False)
            raise SourceError(
                f"Debezium does not carry {', '.join(f'{c} ({kind})' for c, kind in lost.items())}",
                location=f"publication {name}",
                hint="docs/types.md says what becomes of each. Give them types that arrive; or say "
                f"that they may be null or missing in the lake: left_out={named}",
            )
        old = c.execute(
            "SELECT puballtables FROM pg_publication WHERE pubname = %s", [name]
        ).fetchone()
        if old and old[0]:
            raise SourceError(
                f"publication {name} is one for all tables",
                expected="a list of tables",
                hint=f"postgres.drop_publication(world, {name!r}), then create it again",
            )
        change = "ALTER PUBLICATION {} SET TABLE " if old else "CREATE PUBLICATION {} FOR TABLE "
        c.execute(
            format_sql(
                change + ", ".join("{}" for _ in found), name, *((s, t) for s, t, _ in found)
            )
        )
        c.execute(format_sql("ALTER PUBLICATION {} SET (publish_via_partition_root = true)", name))


def drop_publication(world: World, name: str, database: Optional[str] = None) -> None:
    """Drop a publication if it is there."""
    execute(world, format_sql("DROP PUBLICATION IF EXISTS {}", name), database=database)


def _find_tables(c: psycopg.Connection, names: Sequence[str]) -> list[tuple[str, str, list[str]]]:
    """Find tables: of each its schema, its name, and which of it and its partitions have no replica
    identity.
    """
    if isinstance(names, str) or not names:
        raise SourceError(f"tables is {names!r}", expected="a list such as ['datalake.cdc_events']")
    found = []
    for name in names:
        schema, _, table = name.rpartition(".")
        row = c.execute(
            QUERIES["table"].format(identity=QUERIES["identity"]), [table, schema]
        ).fetchone()
        if not row:
            raise SourceError(
                f"there is no table {name}",
                location=f"database {c.info.dbname}",
                hint="load the data first (`workbench load`), or correct the name",
            )
        found.append(row)
    return found


def publications(world: World, database: Optional[str] = None) -> pandas.DataFrame:
    """Return one row per published table: publication, all_tables, table, identity (how its rows
    are told apart).
    """
    return query(
        world, QUERIES["publications"].format(identity=QUERIES["identity"]), database=database
    )


def tables_published_by_partition(world: World, database: Optional[str] = None) -> pandas.DataFrame:
    """Return the partitioned tables whose changes are published under the names of their
    partitions: publication, table. A connector whose table.include.list names such a table receives
        its snapshot and none of its changes.
    """
    return query(world, QUERIES["split_roots"], database=database)


def slots(world: World, database: Optional[str] = None) -> pandas.DataFrame:
    """Return the replication slots of the database, and the bytes of log each holds back."""
    return query(world, QUERIES["slots"], database=database)


def all_slots(world: World) -> pandas.DataFrame:
    """Return the replication slots of all databases: slot_name, database ("" of a physical one),
    active, wal_status, bytes_behind (of log that the server retains for it).
    """
    return query(world, QUERIES["all_slots"], database="postgres")


def drop_slot(world: World, name: str, database: Optional[str] = None) -> bool:
    """Drop a replication slot, ending the connection that reads it; return whether there was one.

    A connector that is still deployed connects again at once: delete it first. Raises SourceError
    after 20 s.
    """

    def gone(c: psycopg.Connection) -> bool:
        row = c.execute(
            "SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s", [name]
        ).fetchone()
        if row and row[0]:
            c.execute("SELECT pg_terminate_backend(%s)", [row[0]])
        elif row:
            c.execute("SELECT pg_drop_replication_slot(%s)", [name])
        return row is None

    with session(world, database) as c:
        there = not gone(c)
        wait_until(
            lambda: gone(c),
            f"replication slot {name} to go",
            timeout=20,
            error=SourceError,
            hint="a connector still reads it: delete that connector, then drop the slot",
        )
        return there


def log_position(world: World, database: Optional[str] = None) -> str:
    """Return the log position (LSN) that the server has written up to; all its databases share one
    log.
    """
    return query(world, "SELECT pg_current_wal_lsn()::text AS lsn", database=database)["lsn"][0]


def position_to_int(position: str) -> int:
    """A log position, `16/B374D848`, as the number that Debezium writes (pg_lsn: two 32-bit
    halves).
    """
    high, _, low = position.partition("/")
    return (int(high, 16) << 32) + int(low, 16)
