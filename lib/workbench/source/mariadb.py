"""The source database where that is MariaDB, or MySQL on AWS: the functions that `postgres` has, by
the same names.

What is a schema there is a database here: a table is `sampledatabase.movies`. SQL is written alike,
names in double quotes and values as %s, for a session takes names so, and a backslash for itself.
CREATE, ALTER and DROP commit by themselves, and what is open before them, too; a statement is one
statement. Times are UTC.
"""

import datetime as dt
import re
from contextlib import contextmanager
from typing import Any, Iterator, Optional, Sequence

import pandas
import pymysql
from psycopg import sql
from pymysql import converters
from pymysql.constants import FIELD_TYPE

from ..base import SourceError, World, secrets
from ..stack.databases import mysql_native_password_hash
from . import column_types
from .names import format_sql, role_credentials
from .names import identifier as identifier

DISPLAY_NAMES = {"mariadb": "MariaDB", "mysql": "MySQL"}
# Strict: a value that does not fit is an error, nothing is cut; nor is a day of zeros one, of which
# Debezium makes null
SQL_MODE = (
    "ANSI_QUOTES,NO_BACKSLASH_ESCAPES,STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,ERROR_FOR_DIVISION_BY_ZERO,"
    "NO_ENGINE_SUBSTITUTION"
)
# Of PyMySQL's own: the bits as they travel, the lowest first; a time with a zone is told in that of
# the session
CONVERSIONS = {
    **converters.conversions,
    FIELD_TYPE.BIT: lambda bits: bits[::-1],
    dt.datetime: lambda value, _=None: converters.escape_datetime(
        value.astimezone(dt.timezone.utc) if value.tzinfo else value
    ),
}
TYPE_NAMES = {  # what a column holds, in the words of column_types
    **{getattr(FIELD_TYPE, name): "int8" for name in "TINY SHORT INT24 LONG LONGLONG YEAR".split()},
    FIELD_TYPE.FLOAT: "float4",
    FIELD_TYPE.DOUBLE: "float8",
    FIELD_TYPE.DATETIME: "timestamp",
    FIELD_TYPE.TIMESTAMP: "timestamptz",
}


class Connection(pymysql.Connection):
    """PyMySQL's, with psycopg's way to run a statement: what `execute` returns has the rows. (Which
    protocol carries them is nothing that it lets one choose.)
    """

    def execute(self, statement: Any, params: Any = None, *, binary: bool = False) -> Any:
        cursor = self.cursor()
        cursor.execute(
            statement.as_string(None) if isinstance(statement, sql.Composable) else statement,
            params,
        )
        return cursor


def connect(world: World, database: Optional[str] = None, role: str = "admin") -> Connection:
    """Return a connection in autocommit mode, to no database where none is named. Raises
    SourceError as of postgres.
    """
    m = world.mysql
    user, password = role_credentials(m, role)
    try:
        return Connection(
            host=m.host,
            port=m.port,
            user=user,
            password=password.reveal().encode(),
            database=database,
            autocommit=True,
            connect_timeout=5,
            charset="utf8mb4",
            program_name="workbench",
            sql_mode=SQL_MODE,
            init_command="SET time_zone = '+00:00'",
            conv=CONVERSIONS,
        )
    except pymysql.Error as e:
        raise SourceError(
            f"cannot connect to {DISPLAY_NAMES[m.kind]}",
            hint='start it: stack.ensure_running(world, "mariadb"); or create the database first',
            location=f"{user}@{m.host}:{m.port}/{database or ''}: {e.args[-1]}",
        ) from None


@contextmanager
def session(
    world: World, database: Optional[str] = None, role: str = "admin"
) -> Iterator[Connection]:
    """A connection that is closed afterwards and whose errors read as SourceError."""
    with connect(world, database, role) as c:
        try:
            yield c
        except pymysql.Error as e:
            raise SourceError(
                f"{DISPLAY_NAMES[world.mysql.kind]} refused: {e.args[-1]}",
                location=f"database {database or '(none)'}, error {e.args[0]}",
            ) from e


def execute(
    world: World, statement: Any, params: Any = None, database: Optional[str] = None
) -> int:
    """Run a statement, and return how many rows it changed: one that it leaves as it was does not
    count, and is not in the log. Raises SourceError.
    """
    with session(world, database) as c:
        return c.execute(statement, params).rowcount


def query(
    world: World, query: Any, params: Any = None, database: Optional[str] = None
) -> pandas.DataFrame:
    """Return the rows of a query, in the types of `postgres.query`.

    BIT(1) is a bool, longer ones are bytes, the lowest bits first; JSON, ENUM and SET are text;
    TIME is a timedelta. An unsigned BIGINT beyond int64 makes its column objects, a date of zeros
    one of texts. Raises SourceError.
    """
    with session(world, database) as c:
        cursor = c.execute(query, params)
        if cursor.description is None:
            raise SourceError(
                "the statement returns no rows",
                expected="a SELECT",
                hint="use mariadb.execute",
            )
        columns, rows = cursor.description, [list(row) for row in cursor.fetchall()]
    kinds = []
    for i, (_, code, _, length, *_) in enumerate(columns):
        kind = TYPE_NAMES.get(code, "")
        if code == FIELD_TYPE.BIT and length == 1:
            kind = "bool"
            for row in rows:
                row[i] = row[i] and row[i] == b"\1"
        elif kind == "int8" and any(row[i] is not None and row[i] >= 2**63 for row in rows):
            kind = ""
        kinds.append(kind)
    return column_types.to_dataframe([column[0] for column in columns], kinds, rows)


def databases(world: World) -> list[str]:
    """Names of the databases on the server."""
    return list(query(world, "SELECT schema_name FROM information_schema.schemata").iloc[:, 0])


def create_database(world: World, database: Optional[str] = None) -> None:
    """Create the database unless it is there."""
    if not database:
        raise SourceError("no database is named", expected="the name of one")
    execute(world, format_sql("CREATE DATABASE IF NOT EXISTS {} CHARACTER SET utf8mb4", database))


def grant_replication(world: World, tables: Sequence[str], database: Optional[str] = None) -> None:
    """Make the user that connectors log in as: it may read the log, and the databases of `tables`,
    which need not be there yet; any other right in those is taken back.

    They are what Debezium asks for ("Creating a user" of its MariaDB page), but SHOW DATABASES.
    RELOAD lets it lock the server while a snapshot begins, LOCK TABLES the tables where nobody may
    do that, as on Aurora. Its password is the world's secret, made if there is none; the server
    gets its hash, so that it is in no statement and no log. Raises SourceError.
    """
    user = sql.SQL("{}@'%%'").format(sql.Identifier(world.mysql.replication_user))
    password = mysql_native_password_hash(secrets.get_or_create(world.mysql.replication_password))
    names = {(database or "") if "." not in table else table.partition(".")[0] for table in tables}
    if isinstance(tables, str) or not all(names) or not names:
        raise SourceError(
            f"tables is {tables!r}", expected="a list such as ['sampledatabase.movies']"
        )
    with session(world) as c:
        for verb in ("CREATE USER IF NOT EXISTS", "ALTER USER"):
            c.execute(
                sql.SQL(f"{verb} {{}} IDENTIFIED WITH mysql_native_password AS %s").format(user),
                [password],
            )
        c.execute(
            sql.SQL("GRANT RELOAD, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {}").format(
                user
            ),
            [],
        )
        for name in sorted(names):
            exact = re.sub(
                r"([_%\\])", r"\\\1", name
            )  # in a right these stand for any letter, or many
            for right, on in (
                ("GRANT SELECT ON {}.* TO {}", name),
                ("REVOKE ALL ON {}.* FROM {}", name),
                ("GRANT SELECT ON {}.* TO {}", exact),
                ("REVOKE ALL ON {}.* FROM {}", exact),
                ("GRANT SELECT, LOCK TABLES ON {}.* TO {}", exact),
            ):
                c.execute(sql.SQL(right).format(sql.Identifier(on), user), [])


def log_position(world: World, database: Optional[str] = None) -> str:
    """Return the log position, `mariadb-bin.000003:1234`, that the server has written up to; all
    its databases share one log.
    """
    return ":".join(map(str, query(world, "SHOW MASTER STATUS").iloc[0, :2]))


def position_to_int(position: str) -> int:
    """A log position as a number: later ones are greater."""
    file, _, offset = position.rpartition(":")
    return (int(file.rpartition(".")[2]) << 32) + int(offset)
