"""Roles and quoted SQL names, for all source databases."""

from typing import Any, Union

from psycopg import sql

from ..base import SourceError, secrets
from ..base.models import Server
from ..base.secrets import Secret


def role_credentials(section: Server, role: str) -> tuple[str, Secret]:
    """Return the user and the password of a role.

    Args:
        section: the `postgres` or `mysql` section of a world.
        role: "admin", "replication", or the role of an application, whose password is a secret.

    Raises:
        SourceError: there is no such role.
    """
    if role == "admin":
        return section.admin_user, section.admin_password
    if role == "replication":
        return section.replication_user, section.replication_password
    secret = Secret(role_secret(role))
    if secret.name not in secrets.read():
        raise SourceError(f"there is no role {role!r}", expected="admin or replication")
    return role, secret


def role_secret(role: str) -> str:
    """Return the name of the secret of an application's role."""
    return f"own.{role}"


def identifier(name: str) -> sql.Identifier:
    """Quote `table` or `schema.table`.

    Raises:
        SourceError: a part of the name is empty, or there are more parts.
    """
    parts = name.split(".")
    if len(parts) > 2 or not all(parts) or "\0" in name:
        raise SourceError(f"{name!r} is not the name of a table", expected="table or schema.table")
    return sql.Identifier(*parts)


def format_sql(text: str, *names: Union[str, tuple[str, ...]]) -> sql.Composed:
    """Return SQL in which each {} is replaced by a quoted name.

    Args:
        text: the SQL.
        *names: `name` or `(schema, table)`.
    """
    paths = ((name,) if isinstance(name, str) else name for name in names)
    return sql.SQL(text).format(*(sql.Identifier(*path) for path in paths))


def require_result(cursor: Any, alternative: str) -> None:
    """Check that a statement has returned rows.

    Args:
        cursor: the cursor that has executed the statement.
        alternative: name of the function for other statements, for the hint.

    Raises:
        SourceError: the statement is not a query.
    """
    if cursor.description is None:
        raise SourceError(
            "the statement returns no rows", expected="a SELECT", hint=f"use {alternative}"
        )
