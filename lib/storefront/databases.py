"""The services' databases. Each has a role of the same name, which owns it."""

from workbench.base import SourceError, World, secrets
from workbench.source import postgres
from workbench.source.names import format_sql, role_secret


def create(world: World, name: str) -> None:
    """Create a database, and a role of the same name that owns it, unless they exist.

    Only this role and administrators can connect to the database. The role's password is a secret of
    the instance, which is created, too.

    Args:
        world: the world of the server.
        name: name of the database and the role.

    Raises:
        SourceError: a database of this name exists, but has another owner.
    """
    owner = _owner(world, name)
    if owner not in ("", name):
        raise SourceError(
            f"there is a database {name!r}, owned by {owner!r}",
            expected="no such database",
            hint=f"rename it: ALTER DATABASE {name} RENAME TO …",
        )
    with postgres.session(world, "postgres") as connection:
        if not postgres.role_exists(connection, name):
            password = secrets.get_or_create(secrets.Secret(role_secret(name)))
            postgres.set_password(connection, "CREATE ROLE {} LOGIN PASSWORD ", name, password)
    if not owner:
        postgres.execute(
            world, format_sql("CREATE DATABASE {0} OWNER {0}", name), database="postgres"
        )
    revoke = format_sql("REVOKE CONNECT ON DATABASE {} FROM PUBLIC", name)
    postgres.execute(world, revoke, database="postgres")


def drop(world: World, *names: str) -> None:
    """Drop databases of `create` with their roles and passwords.

    Open connections to the databases are closed.

    Args:
        world: the world of the server.
        *names: the databases. A missing database, and one with another owner, is ignored.

    Raises:
        SourceError: a replication slot uses one of the databases.
    """
    stored = secrets.read()
    own = [n for n in names if role_secret(n) in stored and _owner(world, n) in ("", n)]
    for statement in ("DROP DATABASE IF EXISTS {} WITH (FORCE)", "DROP ROLE IF EXISTS {}"):
        for name in own:
            postgres.execute(world, format_sql(statement, name), database="postgres")
    for name in own:
        secrets.delete(role_secret(name))


def _owner(world: World, name: str) -> str:
    """Return the owner of a database; empty if the database does not exist."""
    statement = "SELECT pg_get_userbyid(datdba) AS owner FROM pg_database WHERE datname = %s"
    return "".join(postgres.query(world, statement, [name], "postgres")["owner"])
