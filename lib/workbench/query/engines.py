"""SQL in Athena's dialect, run by the query engine of a world or session."""

from typing import Any, Protocol, Union

import pandas
from pyspark.sql import SparkSession

from ..base import World
from ..spark import world_of
from .athena import Athena
from .spark_sql import SparkSql


class QueryEngine(Protocol):
    """Runs SQL in Athena's dialect."""

    def sql(self, text: str, values: dict[str, Any]) -> pandas.DataFrame:
        """Run one query or statement. See the function `sql`."""


def backend(target: Union[SparkSession, World]) -> QueryEngine:
    """Return the query engine of a world or session; without a world it is Spark."""
    world = world_of(target)
    return Athena(world) if world and world.query.kind == "athena" else SparkSql(target)


def sql(target: Union[SparkSession, World], text: str, /, **values: Any) -> pandas.DataFrame:
    """Run one query or statement, and return its rows.

    Besides queries: CREATE EXTERNAL TABLE over Parquet, ORC or JSON, CREATE TABLE … WITH (…) AS,
    MSCK REPAIR TABLE, SHOW, DESCRIBE, DROP TABLE, CREATE DATABASE. docs/athena.md lists
    what is rejected or differs.

    Args:
        target: a Spark session or a world; its `query.kind` selects the engine. Temporary views of
            the session are not visible: Athena has none.
        text: one statement in Athena's dialect (engine version 3). `:name` is a placeholder for a
            value.
        values: the values of the placeholders, bound as literals.

    Returns:
        The rows. `attrs["statement"]` is the statement that the engine ran; `attrs["bytes_scanned"]`
        is set by Athena only (see `readcost.bytes_read`).

    Raises:
        LakeError: the text is not one statement, or cannot be translated; a value is missing or
            unused; a table or column does not exist; or Athena cancelled the query, because of a user
            or of the limit on scanned bytes.
        StackError: Spark was restarted or is gone (`spark.session(world)` gives a new session), or
            AWS rejected the request.
    """
    return backend(target).sql(text, values)
