"""The interface of a source database, with a class for PostgreSQL and one for MariaDB or MySQL.

The classes have no state: a method takes the world, which has the address of the server, and the name of a database.
The methods are the functions of the modules `postgres` and `mariadb`, which document them. Code for
one kind of database, such as a notebook, calls these functions.
"""

from typing import Any, ContextManager, Optional, Protocol, Sequence, runtime_checkable

import pandas

from ..base import World
from . import mariadb, postgres, snapshot


class SourceDatabase(Protocol):
    """A kind of source database. A statement is text, or psycopg's SQL, with %s for each value."""

    def query(
        self, world: World, statement: Any, params: Any = None, database: Optional[str] = None
    ) -> pandas.DataFrame:
        """Return the rows of a query, with the types of `postgres.query`."""

    def execute(
        self, world: World, statement: Any, params: Any = None, database: Optional[str] = None
    ) -> int:
        """Execute a statement, and return the number of changed rows."""

    def databases(self, world: World) -> list[str]:
        """Return the names of the databases on the server."""

    def create_database(self, world: World, database: Optional[str] = None) -> None:
        """Create a database unless it exists."""

    def existing_tables(
        self, world: World, tables: Sequence[str], database: Optional[str] = None
    ) -> list[str]:
        """Return the existing ones of these tables, and of their schemas if those are no databases."""

    def log_position(self, world: World, database: Optional[str] = None) -> str:
        """Return the current end of the log; "" for a database without a log."""

    def position_to_int(self, position: str) -> int:
        """Return a log position as a number; later positions have greater numbers."""


@runtime_checkable
class SlotDatabase(SourceDatabase, Protocol):
    """A source database whose log is read through replication slots."""

    def all_slots(self, world: World) -> pandas.DataFrame:
        """Return the replication slots of all databases."""

    def drop_slot(self, world: World, name: str, database: Optional[str] = None) -> bool:
        """Drop a replication slot, and return whether it existed."""


class PolledDatabase(SourceDatabase, Protocol):
    """A source database whose tables `landing.poll` can read."""

    def jdbc_login(self, world: World) -> tuple[str, str]:
        """Return the JDBC URL of the server, which precedes `/<database>`, and the user who polls."""

    def snapshot(self, world: World, database: str) -> ContextManager[snapshot.Snapshot]:
        """Return a context manager for one snapshot of a database."""


class PostgreSQL:
    """PostgreSQL (see `postgres`)."""

    query = staticmethod(postgres.query)
    execute = staticmethod(postgres.execute)
    databases = staticmethod(postgres.databases)
    create_database = staticmethod(postgres.create_database)
    existing_tables = staticmethod(postgres.existing_tables)
    log_position = staticmethod(postgres.log_position)
    position_to_int = staticmethod(postgres.position_to_int)
    all_slots = staticmethod(postgres.all_slots)
    drop_slot = staticmethod(postgres.drop_slot)
    jdbc_login = staticmethod(snapshot.jdbc_login)
    snapshot = staticmethod(snapshot.postgres_snapshot)


class MariaDB:
    """MariaDB, or MySQL (see `mariadb`)."""

    query = staticmethod(mariadb.query)
    execute = staticmethod(mariadb.execute)
    databases = staticmethod(mariadb.databases)
    create_database = staticmethod(mariadb.create_database)
    existing_tables = staticmethod(mariadb.existing_tables)
    log_position = staticmethod(mariadb.log_position)
    position_to_int = staticmethod(mariadb.position_to_int)


POSTGRESQL = PostgreSQL()
MARIADB = MariaDB()
