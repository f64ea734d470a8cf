"""What is the same for every source database: its two users, and how names become SQL."""

from typing import Union

from psycopg import sql

from ..base import SourceError, secrets
from ..base.params import MySql, Postgres
from ..base.secrets import Secret


def role_credentials(of: Union[Postgres, MySql], role: str) -> tuple[str, Secret]:
    """Return user and password of a role: "admin", "replication", or one that has a database of its
    own (see `postgres.create_service_database`). Raises SourceError: there is no such role.
    """
    users = {
        "admin": (of.admin_user, of.admin_password),
        "replication": (of.replication_user, of.replication_password),
    }
    own = Secret(role_secret(role))
    if role not in users and own.name not in secrets.read():
        raise SourceError(f"there is no role {role!r}", expected="admin or replication")
    return users.get(role, (role, own))


def role_secret(role: str) -> str:
    """Name of the secret of a role that has a database of its own."""
    return f"own.{role}"


def identifier(name: str) -> sql.Identifier:
    """Quote `table` or `schema.table`. Raises SourceError when a part is empty or there are
    more.
    """
    parts = name.split(".")
    if len(parts) > 2 or not all(parts) or "\0" in name:
        raise SourceError(f"{name!r} is not a name of a table", expected="table or schema.table")
    return sql.Identifier(*parts)


def format_sql(text: str, *names: Union[str, tuple[str, ...]]) -> sql.Composed:
    """Return SQL in which each {} is one of the names, quoted: `name` or `(schema, table)`."""
    return sql.SQL(text).format(
        *(sql.Identifier(*([name] if isinstance(name, str) else name)) for name in names)
    )
