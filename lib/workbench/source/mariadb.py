"""The source database MariaDB, or MySQL on AWS, with the same functions as `postgres`.

A MariaDB database corresponds to a PostgreSQL schema: a table is `sampledatabase.movies`. The SQL mode
of the sessions allows the same SQL: names in double quotes, values as %s, and a backslash as an
ordinary character. CREATE, ALTER and DROP commit the open transaction implicitly. Only one statement
is executed at a time. Times are UTC.
"""

import datetime as dt
import re
import ssl
from contextlib import contextmanager
from typing import Any, Callable, Iterator, Optional, Sequence, Union

import pandas
import pymysql
from psycopg import sql
from pymysql import converters
from pymysql.constants import FIELD_TYPE

from ..base import SourceError, World, secrets
from ..base.models import Server
from ..stack.databases import mysql_native_password_hash
from . import column_types
from .names import format_sql, require_result, role_credentials
from .names import identifier as identifier

DISPLAY_NAMES = {"mariadb": "MariaDB", "mysql": "MySQL"}
MAX_LOG_EVENTS = 1000  # of one query of the binary log
FIRST_LOG_POSITION = 4  # of an event in a file, after four bytes that identify the file
# Strict: a value that does not fit raises an error instead of being truncated. A zero date
# (0000-00-00) raises an error, too, because Debezium would publish null.
SQL_MODE = (
    "ANSI_QUOTES,NO_BACKSLASH_ESCAPES,STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,ERROR_FOR_DIVISION_BY_ZERO,"
    "NO_ENGINE_SUBSTITUTION"
)
# A time limit of the server is for the statements of applications. MariaDB reads the first comment, MySQL the second.
SESSION_SETTINGS = (
    "SET time_zone = '+00:00' /*M! , max_statement_time = 0 */ /*!50708 , max_execution_time = 0 */"
)


def _reverse(bits: Any) -> Any:
    return bits[::-1]


def _escape_datetime(value: Any, mapping: Any = None) -> str:
    """Return a timestamp in the time zone of the session."""
    if value.tzinfo:
        value = value.astimezone(dt.timezone.utc)
    return converters.escape_datetime(value)


# PyMySQL's conversions, but BIT with the lowest bits first, and timestamps with a time zone.
CONVERSIONS: dict[Union[int, type[Any]], Union[Callable[[Any], str], Callable[[str], Any]]] = {
    **converters.conversions,
    FIELD_TYPE.BIT: _reverse,
    dt.datetime: _escape_datetime,
}
TYPE_NAMES = {  # {code of PyMySQL: type name for column_types}
    **{getattr(FIELD_TYPE, name): "int8" for name in "TINY SHORT INT24 LONG LONGLONG YEAR".split()},
    FIELD_TYPE.FLOAT: "float4",
    FIELD_TYPE.DOUBLE: "float8",
    FIELD_TYPE.DATETIME: "timestamp",
    FIELD_TYPE.TIMESTAMP: "timestamptz",
}


class Connection(pymysql.Connection):
    """A PyMySQL connection with an `execute` method like psycopg's."""

    def execute(self, statement: Any, params: Any = None) -> Any:
        """Execute a statement, and return the cursor.

        Args:
            statement: text, or psycopg's SQL.
            params: values for %s.
        """
        if isinstance(statement, sql.Composable):
            statement = statement.as_string(None)
        cursor = self.cursor()
        cursor.execute(statement, params)
        return cursor


def connect(world: World, database: Optional[str] = None, role: str = "admin") -> Connection:
    """Return a connection in autocommit mode. Without `database`, no database is selected.

    Args:
        world: the world of the server.
        database: name of a database.
        role: "admin", or "replication" for the user that connectors log in as.

    Raises:
        SourceError: the server does not respond, or rejects the user, password or database.
    """
    server = world.mysql
    user, password = role_credentials(server, role)
    try:
        return Connection(
            host=server.host,
            port=server.port,
            user=user,
            password=password.reveal().encode(),
            database=database,
            autocommit=True,
            connect_timeout=5,
            charset="utf8mb4",
            program_name="workbench",
            sql_mode=SQL_MODE,
            init_command=SESSION_SETTINGS,
            conv=CONVERSIONS,
            auth_plugin_map=None if server.ssl == "verify-full" else PLAIN_LOGINS,
            **_tls_options(server),
        )
    except pymysql.Error as e:
        raise SourceError(
            f"cannot connect to {DISPLAY_NAMES[server.engine]}",
            location=f"{user}@{server.host}:{server.port}/{database or ''}: {e.args[-1]}",
            hint='start it: stack.ensure_running(world, "mariadb"); or create the database first'
            if server.managed
            else "check the source's address, user and password; `workbench source check` tests each",
        ) from None


class _PlainLogin:
    """Refuses to send the password as plain text to a server whose certificate is not verified."""

    def __init__(self, connection: Any):
        pass

    def authenticate(self, packet: Any) -> None:
        raise pymysql.OperationalError(
            2059, "the server asks for the password as plain text: set ssl: verify-full"
        )


PLAIN_LOGINS: dict[str, Callable[[Any], Any]] = dict.fromkeys(
    ("mysql_clear_password", "dialog"), _PlainLogin
)


def _tls_options(server: Server) -> dict[str, Any]:
    """Return PyMySQL's options for TLS; without ssl_ca the certificates of Python's default context."""
    if server.ssl == "disable":
        return {"ssl_disabled": True}
    if not server.ssl:
        return {}
    if server.ssl == "require":
        return {"ssl": {"check_hostname": False, "verify_mode": False}}
    return {"ssl": {"ca": server.ssl_ca} if server.ssl_ca else ssl.create_default_context()}


@contextmanager
def session(
    world: World, database: Optional[str] = None, role: str = "admin"
) -> Iterator[Connection]:
    """Yield a connection, close it afterwards, and translate its errors to SourceError."""
    with connect(world, database, role) as connection:
        try:
            yield connection
        except pymysql.Error as e:
            raise SourceError(
                f"{DISPLAY_NAMES[world.mysql.engine]} rejected the statement: {e.args[-1]}",
                location=f"database {database or '(none)'}, error {e.args[0]}",
            ) from e


def execute(
    world: World, statement: Any, params: Any = None, database: Optional[str] = None
) -> int:
    """Execute a statement.

    Returns:
        The number of changed rows. A row that keeps its values is not counted, and not logged.

    Raises:
        SourceError: the server rejects the statement.
    """
    with session(world, database) as connection:
        return int(connection.execute(statement, params).rowcount)


def query(
    world: World, statement: Any, params: Any = None, database: Optional[str] = None
) -> pandas.DataFrame:
    """Return the rows of a query as a DataFrame with the types of `postgres.query`.

    BIT(1) is a bool; a longer BIT is bytes, with the lowest bits first. JSON, ENUM and SET are text.
    TIME is a timedelta. A column with an unsigned BIGINT beyond int64 has dtype object, and a column
    with a zero date is text.

    Raises:
        SourceError: the server rejects the statement, or the statement is not a query.
    """
    with session(world, database) as connection:
        cursor = connection.execute(statement, params)
        require_result(cursor, "mariadb.execute")
        described, rows = cursor.description, cursor.fetchall()
    columns = []
    for position, (name, code, _, length, *_) in enumerate(described):
        kind, values = TYPE_NAMES.get(code, ""), [row[position] for row in rows]
        if code == FIELD_TYPE.BIT and length == 1:
            kind, values = "bool", [bit and bit == b"\1" for bit in values]
        elif kind == "int8" and any(number and number >= 2**63 for number in values):
            kind = ""
        columns.append((name, kind, values))
    return column_types.to_dataframe(columns)


def databases(world: World) -> list[str]:
    """Return the names of the databases on the server."""
    return list(query(world, "SELECT schema_name FROM information_schema.schemata").iloc[:, 0])


def create_database(world: World, database: Optional[str] = None) -> None:
    """Create the database unless it exists."""
    if not database:
        raise SourceError("the database has no name", expected="the name of a database")
    execute(world, format_sql("CREATE DATABASE IF NOT EXISTS {} CHARACTER SET utf8mb4", database))


def existing_tables(
    world: World, tables: Sequence[str], database: Optional[str] = None
) -> list[str]:
    """Return the existing ones of these tables (`database.table`)."""
    statement = "SELECT concat(table_schema, '.', table_name) FROM information_schema.tables"
    return sorted({*tables} & {*query(world, statement).iloc[:, 0]})


def grant_replication(world: World, tables: Sequence[str], database: Optional[str] = None) -> None:
    """Create the user that connectors log in as, with its permissions.

    The user may read the log and the databases of the tables, which need not exist yet. All other
    permissions in these databases are revoked. The permissions are those that Debezium requires
    (documentation of its MariaDB connector, "Creating a user"), except SHOW DATABASES. At the start
    of a snapshot, Debezium locks the server (RELOAD), or the tables if the server cannot be locked,
    as on Aurora (LOCK TABLES).

    The password is the world's secret, which is created if it does not exist. The statements contain
    the hash of the password, so no log contains the password.

    Args:
        world: the world of the server.
        tables: names such as `sampledatabase.movies`.
        database: the database of table names without a database.

    Raises:
        SourceError: a table name has no database, or the server rejects a statement.
    """
    user = sql.SQL("{}@'%%'").format(sql.Identifier(world.mysql.replication_user))
    password = mysql_native_password_hash(secrets.get_or_create(world.mysql.replication_password))
    names = {(database or "") if "." not in table else table.partition(".")[0] for table in tables}
    if isinstance(tables, str) or not all(names) or not names:
        raise SourceError(
            f"tables is {tables!r}", expected="a list such as ['sampledatabase.movies']"
        )
    with session(world) as connection:
        for verb in ("CREATE USER IF NOT EXISTS", "ALTER USER"):
            statement = f"{verb} {{}} IDENTIFIED WITH mysql_native_password AS %s"
            connection.execute(sql.SQL(statement).format(user), [password])
        grant = "GRANT RELOAD, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {}"
        connection.execute(sql.SQL(grant).format(user), [])
        for name in sorted(names):
            # in a grant _ and % are wildcards
            escaped = re.sub(r"([_%\\])", r"\\\1", name)
            for statement, pattern in (
                ("GRANT SELECT ON {}.* TO {}", name),
                ("REVOKE ALL ON {}.* FROM {}", name),
                ("GRANT SELECT ON {}.* TO {}", escaped),
                ("REVOKE ALL ON {}.* FROM {}", escaped),
                ("GRANT SELECT, LOCK TABLES ON {}.* TO {}", escaped),
            ):
                connection.execute(sql.SQL(statement).format(sql.Identifier(pattern), user), [])


def log_position(world: World, database: Optional[str] = None) -> str:
    """Return the current end of the binary log, such as `mariadb-bin.000003:1234`.

    All databases of a server share one binary log.
    """
    return ":".join(map(str, query(world, "SHOW MASTER STATUS").iloc[0, :2]))


def has_row_changes(world: World, start: str, end: str) -> bool:
    """Return whether the binary log has changes of rows between two positions.

    Args:
        world: the world.
        start: position of an event.
        end: position after the last event.
    """
    files = list(query(world, "SHOW BINARY LOGS").iloc[:, 0])
    file, _, offset = start.rpartition(":")
    position, last_file, stop = int(offset), end.rpartition(":")[0], position_to_int(end)
    if file not in files or last_file not in files:  # the server has purged it
        return True
    while position_to_int(f"{file}:{position}") < stop:
        statement = f"SHOW BINLOG EVENTS IN %s FROM %s LIMIT {MAX_LOG_EVENTS}"
        events = query(world, statement, [file, position])
        before_end = [position_to_int(f"{file}:{at}") < stop for at in events["Pos"]]
        if events["Event_type"][before_end].str.contains("_rows").any():
            return True
        if len(events) == MAX_LOG_EVENTS:  # a part is held in memory
            position = int(events["End_log_pos"].iloc[-1])
        elif file == last_file:
            return False
        else:
            file, position = files[files.index(file) + 1], FIRST_LOG_POSITION
    return False


def position_to_int(position: str) -> int:
    """Return a log position as a number; later positions have greater numbers."""
    file, _, offset = position.rpartition(":")
    return (int(file.rpartition(".")[2]) << 32) + int(offset)
