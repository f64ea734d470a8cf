"""The source database PostgreSQL: connections, queries, publications, slots and grants.

Table names have the form `datalake.cdc_events`; each part is quoted as an identifier. Values are
bound. Connections are in autocommit mode. In every function `world` is the world of the server, and
`database` the name of a database, by default the world's `postgres.database`. Unless stated
otherwise, a function raises SourceError if the server does not respond or rejects a statement.
"""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Iterator, Optional, Sequence

import psycopg
from psycopg import sql

from .. import stack
from ..base import SourceError, World, first_line, secrets, wait_until
from ..base.models import Server
from . import column_types
from .names import format_sql as format_sql
from .names import identifier as identifier
from .names import require_result, role_credentials
from .queries import QUERIES

if TYPE_CHECKING:
    import pandas

OPEN_TRANSACTIONS_TIMEOUT = 300  # seconds


def connect(
    world: World, database: Optional[str] = None, role: str = "admin"
) -> psycopg.Connection:
    """Return a connection in autocommit mode.

    Args:
        world: the world of the server.
        database: name of the database.
        role: "admin", "replication" for the user that connectors log in as, or the role of an application.

    Raises:
        SourceError: the server does not respond, or rejects the user, password or database.
        StackError: the embedded service has ended.
    """
    server = world.postgres
    user, password = role_credentials(server, role)
    name = database or server.database
    try:
        connection = psycopg.connect(
            **_tls_options(server),
            host=server.host,
            port=server.port,
            dbname=name,
            user=user,
            password=password.reveal(),
            autocommit=True,
            connect_timeout=5,
            application_name="workbench",
            client_encoding="utf8",
        )
        if role in ("admin", "replication"):  # an application keeps the settings of its role
            connection.execute(QUERIES["session_settings"])
        return connection
    except psycopg.Error as e:
        address = f"{server.host}:{server.port}"
        hint = "check the source's address, user and password; `workbench source check` tests each"
        if "permission denied" in str(e):
            hint = ""
        elif f'database "{name}" does not exist' in str(e):
            hint = (
                "run the walkthrough's first notebook, or create a database of your own: "
                "postgres.create_database(world, name)"
            )
        raise stack.service_down_error(world, "postgres", address) or SourceError(
            "cannot connect to PostgreSQL",
            location=f"{user}@{address}/{name}: {first_line(e)}",
            hint=hint,
        ) from None


def _tls_options(server: Server) -> dict[str, Any]:
    """Return libpq's options for TLS; "system" is the system's certificates (libpq 16).

    A server whose certificate is not verified does not get the password as plain text.
    """
    if server.ssl != "verify-full":
        return {"require_auth": "!password", **({"sslmode": server.ssl} if server.ssl else {})}
    return {"sslmode": server.ssl, "sslrootcert": server.ssl_ca or "system"}


@contextmanager
def session(
    world: World, database: Optional[str] = None, role: str = "admin"
) -> Iterator[psycopg.Connection]:
    """Yield a connection as `connect` returns it, and close it afterwards.

    Args:
        world: the world of the server.
        database: name of the database.
        role: "admin" or "replication".

    Raises:
        SourceError: psycopg raises an error in this block.
    """
    with connect(world, database, role) as connection:
        try:
            yield connection
        except psycopg.Error as e:
            details = filter(None, [f"database {connection.info.dbname}", e.diag.message_detail])
            raise SourceError(
                f"PostgreSQL rejected the statement: {first_line(e)}",
                location=". ".join(details),
                hint=e.diag.message_hint or "",
            ) from e


def execute(
    world: World, statement: Any, params: Any = None, database: Optional[str] = None
) -> int:
    """Execute a statement in a transaction of its own.

    Args:
        world: the world of the server.
        statement: the SQL. Without params it may contain several statements, also BEGIN and COMMIT.
        params: values of the statement's parameters, as for psycopg.
        database: name of the database.

    Returns:
        The number of rows that the statement changed.

    Raises:
        SourceError: the server rejects the statement.
    """
    with session(world, database) as connection:
        return connection.execute(statement, params).rowcount


def query(
    world: World, statement: Any, params: Any = None, database: Optional[str] = None
) -> pandas.DataFrame:
    """Return the result of a query as a DataFrame.

    The types are those of Spark's toPandas, so that both results can be compared: integers as int64
    (Int64 with NULLs), numeric as exact Decimal, dates as datetime.date, timestamps as datetime64,
    jsonb and arrays as lists and dicts. An address (inet, cidr), and a date or time
    that Python cannot represent (infinity, before the year 1, 24:00), is the text that PostgreSQL
    shows.

    Args:
        world: the world of the server.
        statement: the SQL of the query.
        params: values of the query's parameters, as for psycopg.
        database: name of the database.

    Raises:
        SourceError: the server rejects the statement, or the statement is not a query.
    """
    with session(world, database) as connection:
        for name, loader in column_types.LOADERS.items():
            connection.adapters.register_loader(name, loader)
        cursor = connection.execute(statement, params)
        require_result(cursor, "postgres.execute")
        columns, rows = cursor.description or [], cursor.fetchall()
    return column_types.to_dataframe(
        (column.name, column_types.type_name(column.type_code), [row[position] for row in rows])
        for position, column in enumerate(columns)
    )


def databases(world: World) -> list[str]:
    """Return the names of the databases on the server."""
    statement = "SELECT datname FROM pg_database"
    return list(query(world, statement, database=_catalog_database(world))["datname"])


def _catalog_database(world: World) -> Optional[str]:
    """Return the database in which the catalogs of the server are read.

    The user of a source may be allowed to connect to the source's own database only. In the server of
    a world this database may be missing.
    """
    return "postgres" if world.base is world else None


def create_database(world: World, database: Optional[str] = None) -> None:
    """Create a database unless it exists."""
    name = database or world.postgres.database
    if name not in databases(world):
        execute(world, format_sql("CREATE DATABASE {}", name), database="postgres")


def existing_tables(
    world: World, tables: Sequence[str], database: Optional[str] = None
) -> list[str]:
    """Return the existing ones of these tables (`schema.table`), and of their schemas except public."""
    schemas = {table.partition(".")[0] for table in tables} - {"public"}
    values = [[*schemas], [*tables]]
    return list(query(world, QUERIES["existing_objects"], values, database)["name"])


def role_exists(connection: psycopg.Connection, name: str) -> bool:
    """Return whether the server has a role."""
    rows = connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [name])
    return rows.fetchone() is not None


def set_password(connection: psycopg.Connection, statement: str, user: str, password: str) -> None:
    """Complete a CREATE or ALTER ROLE statement with the password, and execute it.

    The statement contains the SCRAM verifier of the password instead of the password. So the
    password cannot appear in a server log.
    """
    verifier = connection.pgconn.encrypt_password(
        password.encode(), user.encode(), b"scram-sha-256"
    )
    connection.execute(format_sql(statement, user) + sql.Literal(verifier.decode()))


def slot_prefix(world: World) -> str:
    """Return the prefix of the replication slots of this world's connectors.

    PostgreSQL permits "lower-case letters, numbers, and the underscore character" in slot names.
    """
    return re.sub(r"[^a-z0-9_]", "_", world.connect.topic_prefix.lower()) + "_"


def grant_replication(world: World, tables: Sequence[str], database: Optional[str] = None) -> None:
    """Create or update the replication user, which connectors log in as.

    The user may replicate, read the tables and send heartbeats. In the schemas of the tables, it
    keeps the permission to read other published tables, which other connectors need. All other
    permissions in these schemas are revoked. The password is the secret
    `postgres.replication_password` of the world, which is created if it does not exist.

    Args:
        world: the world of the server.
        tables: names of the tables.
        database: database of the tables.

    Raises:
        SourceError: a table does not exist, or the server rejects a statement.
    """
    user = world.postgres.replication_user
    password = secrets.get_or_create(world.postgres.replication_password)
    with session(world, database) as connection, connection.transaction():
        schemas, names, _ = zip(*_find_tables(connection, tables))
        # On RDS and Aurora the attribute REPLICATION cannot be set. They have the role
        # rds_replication instead (their guides, "Logical replication").
        is_rds = role_exists(connection, "rds_replication")
        verb = "ALTER" if role_exists(connection, user) else "CREATE"
        attribute = "" if is_rds else "REPLICATION "
        set_password(connection, f"{verb} ROLE {{}} LOGIN {attribute}PASSWORD ", user, password)
        if is_rds:
            connection.execute(format_sql("GRANT rds_replication TO {}", user))
        parameters = {"role": user, "schemas": [*schemas], "tables": [*names]}
        for (statement,) in connection.execute(QUERIES["grants"], parameters).fetchall():
            connection.execute(statement)


def create_publication(
    world: World,
    name: str,
    tables: Sequence[str],
    database: Optional[str] = None,
    excluded_columns: Sequence[str] = (),
) -> None:
    """Create a publication of exactly these tables, or change it accordingly.

    The changes of a partitioned table are published under the name of the table, not under the names
    of its partitions.

    Args:
        world: the world of the server.
        name: name of the publication.
        tables: names of the tables.
        database: database of the tables.
        excluded_columns: columns (`schema.table.column`) that Debezium does not support and that may
            be missing in the lake (see docs/types.md).

    Raises:
        SourceError: a table does not exist; a table or partition has neither primary key nor
            replica identity, so that PostgreSQL would reject its UPDATEs; a column is not supported
            by Debezium; or a publication of this name publishes all tables.
    """
    location = f"publication {name}"
    with session(world, database) as connection, connection.transaction():
        selected = _find_tables(connection, tables)
        without_identity = [each for *_, members in selected for each in members]
        if without_identity:
            raise SourceError(
                f"{', '.join(without_identity)} has neither primary key nor replica identity",
                location=location,
                expected="a replica identity for each published table",
                hint="add a primary key, or ALTER TABLE … REPLICA IDENTITY FULL; for a partitioned "
                "table also to each partition, because partitions do not inherit it",
            )
        names = [f"{schema}.{table}" for schema, table, _ in selected]
        _reject_unsupported_columns(connection, location, names, excluded_columns)
        publication = connection.execute(
            "SELECT puballtables FROM pg_publication WHERE pubname = %s", [name]
        ).fetchone()
        if publication and publication[0]:
            raise SourceError(
                f"{location} publishes all tables",
                expected="a list of tables",
                hint=f"postgres.drop_publication(world, {name!r}), then create it again",
            )
        verb = "ALTER PUBLICATION {} SET" if publication else "CREATE PUBLICATION {} FOR"
        statement = f"{verb} TABLE {', '.join('{}' for _ in selected)}"
        connection.execute(
            format_sql(statement, name, *((schema, table) for schema, table, _ in selected))
        )
        connection.execute(
            format_sql("ALTER PUBLICATION {} SET (publish_via_partition_root = true)", name)
        )


def _reject_unsupported_columns(
    connection: psycopg.Connection,
    location: str,
    tables: Sequence[str],
    excluded: Sequence[str],
) -> None:
    """Raise SourceError if a column is not excluded and has a type that Debezium does not support."""
    unsupported = {
        column: type_name
        for column, type_name in connection.execute(QUERIES["unsupported_columns"], [tables])
        if column not in excluded
    }
    if unsupported:
        columns = ", ".join(f"{column} ({type_name})" for column, type_name in unsupported.items())
        argument = json.dumps([*excluded, *unsupported], ensure_ascii=False)
        raise SourceError(
            f"Debezium does not support {columns}",
            location=location,
            hint="docs/types.md describes each type. Change the columns to supported types; or accept "
            f"that they may be null or missing in the lake: excluded_columns={argument}",
        )


def drop_publication(world: World, name: str, database: Optional[str] = None) -> None:
    """Drop a publication. A missing publication is ignored."""
    execute(world, format_sql("DROP PUBLICATION IF EXISTS {}", name), database=database)


def _find_tables(
    connection: psycopg.Connection, names: Sequence[str]
) -> list[tuple[str, str, list[str]]]:
    """Return the tables with these names.

    Returns:
        For each table its schema, its name, and the names of the table or its partitions that have no
        replica identity.

    Raises:
        SourceError: a table does not exist, or `names` is not a list.
    """
    if isinstance(names, str) or not names:
        raise SourceError(f"tables is {names!r}", expected="a list such as ['datalake.cdc_events']")
    tables = []
    for name in names:
        schema, _, table = name.rpartition(".")
        row = connection.execute(QUERIES["table"], [table, schema]).fetchone()
        if not row:
            raise SourceError(
                f"there is no table {name}",
                location=f"database {connection.info.dbname}",
                hint="load the data first, or correct the name",
            )
        tables.append(row)
    return tables


def publications(world: World, database: Optional[str] = None) -> pandas.DataFrame:
    """Return the published tables.

    Returns:
        One row per table: publication, all_tables (bool), table, identity (its replica
        identity).
    """
    return query(world, QUERIES["publications"], database=database)


def tables_published_by_partition(world: World, database: Optional[str] = None) -> pandas.DataFrame:
    """Return the partitioned tables whose changes are published under the partitions' names.

    A connector with such a table in its table.include.list reads the snapshot, but receives no
    changes.

    Returns:
        One row per table: publication, table.
    """
    return query(world, QUERIES["tables_published_by_partition"], database=database)


def slots(world: World, database: Optional[str] = None) -> pandas.DataFrame:
    """Return the replication slots of a database, as `all_slots` does, without the database."""
    rows = all_slots(world)
    is_of_database = rows["database"] == (database or world.postgres.database)
    return rows[is_of_database].drop(columns="database").reset_index(drop=True)


def all_slots(world: World) -> pandas.DataFrame:
    """Return the replication slots of all databases.

    Returns:
        One row per slot: slot_name, plugin, database ("" for a physical slot), active (bool),
        wal_status, confirmed (position up to which it was read), bytes_behind (WAL that the server
        retains for it).
    """
    return query(world, QUERIES["all_slots"], database=_catalog_database(world))


def drop_slot(world: World, name: str, database: Optional[str] = None) -> bool:
    """Drop a replication slot, and terminate the connection that reads it.

    Delete the connector first: a deployed connector would reconnect at once.

    Args:
        world: the world of the server.
        name: name of the slot.
        database: database of the slot.

    Returns:
        Whether the slot existed.

    Raises:
        SourceError: a connector still reads the slot after 20 s.
    """

    def is_dropped(connection: psycopg.Connection) -> bool:
        slot = connection.execute(
            "SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s", [name]
        ).fetchone()
        if slot is None:
            return True
        if slot[0]:
            connection.execute("SELECT pg_terminate_backend(%s)", [slot[0]])
        else:
            connection.execute("SELECT pg_drop_replication_slot(%s)", [name])
        return False

    with session(world, database) as connection:
        if is_dropped(connection):
            return False
        wait_until(
            lambda: is_dropped(connection),
            f"replication slot {name} to be dropped",
            timeout=20,
            error=SourceError,
            hint="a connector still reads it: delete that connector, then drop the slot",
        )
        return True


def wait_for_open_transactions(world: World, database: Optional[str] = None) -> None:
    """Wait until all transactions that have written and are open now have ended, in any database of the server.

    Raises:
        SourceError: they have not ended after OPEN_TRANSACTIONS_TIMEOUT seconds.
    """
    next_id = query(
        world, "SELECT pg_snapshot_xmax(pg_current_snapshot())::text AS id", database=database
    )
    ended = "SELECT pg_snapshot_xmin(pg_current_snapshot()) >= %s::xid8 AS ended"
    wait_until(
        lambda: bool(query(world, ended, [next_id.loc[0, "id"]], database).loc[0, "ended"]),
        "open transactions of the source to end",
        timeout=OPEN_TRANSACTIONS_TIMEOUT,
        interval=0.2,
        error=SourceError,
        hint="SELECT pid, xact_start, query FROM pg_stat_activity WHERE backend_xid IS NOT NULL; and "
        "pg_prepared_xacts",
    )


def log_position(world: World, database: Optional[str] = None) -> str:
    """Return the current WAL position (LSN) of the server, such as `16/B374D848`.

    All databases of a server share one WAL.
    """
    return str(
        query(world, "SELECT pg_current_wal_lsn()::text AS lsn", database=database)["lsn"][0]
    )


def position_to_int(position: str) -> int:
    """Return a WAL position such as `16/B374D848` as a number, in the form of Debezium's `lsn`."""
    high, _, low = position.partition("/")
    return (int(high, 16) << 32) + int(low, 16)
