"""The interface of a source database. The modules `postgres` and `mariadb` have these functions."""

from typing import Any, Optional, Protocol, Sequence

import pandas

from ..base import World


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
