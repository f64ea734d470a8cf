"""The result of a query as part of the next query."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from .sessions import is_remote

if TYPE_CHECKING:
    import pyarrow

# A larger result is not sent back: client and server accept messages of at most 128 MiB.
MAX_BYTES = 32 << 20


def run_once(rows: DataFrame) -> tuple[DataFrame, pyarrow.Table]:
    """Run a query, and return its result here and as a DataFrame that does not run it again.

    Spark analyzes, optimizes and compiles a query for each action. For a few rows that takes longer
    than all the rest.

    Args:
        rows: a query with a small result, which is sent to the client and back.

    Returns:
        The rows twice, with the same columns, types and order. The DataFrame is `rows`, which runs
        again, in a classic session, for a result without rows (a local relation without rows has no
        schema), and for one of more than MAX_BYTES. Spark 3.5 has no public function for this:
        createDataFrame takes no Arrow table before Spark 4.0.
    """
    import pyarrow
    from pyspark.sql.pandas.types import to_arrow_schema

    if not is_remote(rows.sparkSession):
        batches = rows._collect_as_arrow()
        schema = None if batches else to_arrow_schema(rows.schema)
        return rows, pyarrow.Table.from_batches(batches, schema)
    from pyspark.sql.connect.dataframe import DataFrame as ConnectDataFrame
    from pyspark.sql.connect.plan import LocalRelation

    assert isinstance(rows, ConnectDataFrame)  # for mypy
    session = rows._session
    table, schema = session.client.to_table(rows._plan.to_proto(session.client))
    if not table.num_rows or table.nbytes > MAX_BYTES:
        return rows, table
    return ConnectDataFrame.withPlan(LocalRelation(table, schema=schema.json()), session), table
