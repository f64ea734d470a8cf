"""The rows of a table as of two instants, as views in SQL: DuckDB over Arrow, or Spark.

hudi-rs and DuckDB answer in milliseconds, in this process. Spark reads what they cannot: tables of more
than MAX_ROWS rows, commits after a pending compaction, conditions that DuckDB answers otherwise than
Athena, and everything in a Python without the two.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Callable, Mapping, Optional

import pandas as pd
import pyarrow
import sqlglot
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from sqlglot import exp

from .. import hudi
from ..base import LakeError, World
from ..base.added_columns import is_data
from ..base.errors import first_line
from ..hudi.labeling import resolve_instant
from ..hudi.loading import REWRITE_OPERATION
from ..hudi.timeline import HistoryRemoved
from ..query import dialect, spark_sql
from ..spark import session, translate_errors

MAX_ROWS = 5_000_000  # of a table that is read into memory
MAX_RESULT_ROWS = 1_000_000
# Rows as of an instant never change. A slider asks for the same ones again.
MAX_CACHED_INSTANTS, MAX_CACHED_BYTES = 8, 50_000_000
# operations that write rows anew which are there already
REWRITES = ("COMPACT", "CLUSTER", REWRITE_OPERATION)
DELETED = "__deleted"  # "true" in the row of a soft delete
INTEGERS = {pyarrow.int32(): pd.Int32Dtype(), pyarrow.int64(): pd.Int64Dtype()}


@dataclass(frozen=True)
class Engine:
    """What runs statements in DuckDB's dialect.

    Attributes:
        create: the statement that creates a view of `before_rows` or `after_rows`, up to its name.
        schema: the columns of the two.
        run: runs a statement.
    """

    create: str
    schema: pyarrow.Schema
    run: Callable[[str], pd.DataFrame]


@dataclass(frozen=True)
class Views:
    """The rows of a table as of two instants, as the views `explore_before` and `explore_after`.

    Rows that are marked as deleted are left out. Both views have the same columns and types: a column
    that is missing at one instant is null.

    Attributes:
        table: the table.
        columns: {column of the source: pyarrow type}.
        engine: the engine that has the views.
    """

    table: hudi.Table
    columns: Mapping[str, pyarrow.DataType]
    engine: Engine

    def execute(self, text: str) -> pd.DataFrame:
        """Run a statement in DuckDB's dialect. Raises LakeError if it fails."""
        try:
            return self.engine.run(text)
        except Exception as e:  # noqa: BLE001 - of two engines
            raise LakeError(
                f"a query of {self.table.name} failed: {first_line(e)}", location=self.table.base
            ) from None

    def query(self, text: str) -> pd.DataFrame:
        """Run a query in DuckDB's dialect.

        Raises:
            LakeError: the query failed, or its result is larger than MAX_RESULT_ROWS.
        """
        frame = self.execute(f"{text} LIMIT {MAX_RESULT_ROWS + 1}")
        require_small(self.table, len(frame))
        return frame


def require_small(table: hudi.Table, rows: int) -> None:
    """Raise LakeError if a result has more than MAX_RESULT_ROWS rows."""
    if rows > MAX_RESULT_ROWS:
        raise LakeError(
            f"the result has {rows:,} rows or more",
            location=f"{table.base}, about {stored_rows(table):,} rows",
            expected=f"at most {MAX_RESULT_ROWS:,} rows",
            hint='where="…" selects rows; explore.profile and query.sql read all of them',
        )


def quoted(name: str) -> str:
    """Return a name as an identifier in SQL."""
    return '"{}"'.format(name.replace('"', '""'))


def open_views(
    world: World, table: hudi.Table, before: str, after: str, where: str = "true"
) -> Views:
    """Read a table as of two instants.

    Args:
        world: the world.
        table: the table.
        before: label or instant.
        after: label or instant.
        where: a condition on the rows of both, in Athena's SQL.

    Raises:
        LakeError: as `hudi.as_of`; the condition is invalid; or there was no row at either instant.
    """
    before, after = (resolve_instant(world, table, one) for one in (before, after))
    condition = _in_duckdb(where)
    engine = _open_duckdb(world, table, before, after) if condition else None
    if not condition or not engine:
        engine, condition = _open_spark(world, table, before, after, where), "true"
    names = engine.schema.names
    if DELETED in names:
        condition = f"({condition}) AND {DELETED} IS DISTINCT FROM 'true'"
    columns = {
        field.name: field.type
        for field in engine.schema
        if field.name in (*table.key, *table.partition) or is_data(field.name)
    }
    if not columns:
        raise LakeError(f"table {table.name} had no row at that time", location=table.base)
    views = Views(table, columns, engine)
    selected = f"SELECT {', '.join(map(quoted, columns))}"
    for view in ("before", "after"):
        views.execute(
            f"{engine.create} explore_{view} AS {selected} FROM {view}_rows WHERE {condition}"
        )
    return views


def _in_duckdb(where: str) -> Optional[str]:
    """Return a condition in DuckDB's dialect; None if DuckDB would answer it otherwise than Athena."""
    try:
        return dialect.parse_condition(where).sql("duckdb")
    except LakeError:
        return None


def stored_rows(table: hudi.Table) -> int:
    """Return the number of rows by the statistics of the commits; those of archived ones are missing.

    A compaction and a clustering count the rows that they write anew as inserted.
    """
    counts = hudi.commits(table)
    counts = counts[~counts["operation"].isin(REWRITES)]
    return int(counts["inserted"].sum() - counts["deleted"].sum())


def _open_duckdb(world: World, table: hudi.Table, before: str, after: str) -> Optional[Engine]:
    """Read with hudi-rs into DuckDB; None if the table is too large, or one of the two cannot read it."""
    if not importlib.util.find_spec("duckdb") or stored_rows(table) > MAX_ROWS:
        return None
    import duckdb

    try:
        rows = {instant: _read(world, table, instant) for instant in {before, after}}
    except HistoryRemoved:
        raise
    except LakeError:
        return None
    connection = duckdb.connect(config={"enable_external_access": "false"})
    connection.execute("SET TimeZone = 'UTC'")
    for instant, each in rows.items():  # DuckDB has no table without columns
        connection.register(instant, each if each.num_columns else pyarrow.table({DELETED: []}))
    for name, instant, columns_of in (("before", before, after), ("after", after, before)):
        connection.execute(
            f'CREATE VIEW {name}_rows AS FROM "{instant}" UNION ALL BY NAME (FROM "{columns_of}" LIMIT 0)'
        )

    def run(text: str) -> pd.DataFrame:
        relation = connection.sql(text)  # None for a statement that is no query
        arrow = pyarrow.table({}) if relation is None else relation.to_arrow_table()
        frame: pd.DataFrame = arrow.to_pandas(types_mapper=INTEGERS.get)  # null is no NaN
        for field in arrow.schema:
            if pyarrow.types.is_nested(field.type):  # pandas has NaN in place of null, and floats
                frame[field.name] = arrow[field.name].to_pylist()
        return frame

    schema = connection.sql("FROM after_rows LIMIT 0").to_arrow_table().schema
    # copied, because queries of many columns take much longer through views
    return Engine("CREATE TABLE", schema, run)


def _read(world: World, table: hudi.Table, instant: str) -> pyarrow.Table:
    """Read with hudi-rs; the last small results are cached."""
    cache: dict[tuple[str, str], pyarrow.Table] = world.state.get("explore.rows", dict)
    key = (table.base, instant)
    if key in cache:
        return cache[key]
    rows = hudi.read_arrow(table, as_of=(world, instant))
    if rows.nbytes <= MAX_CACHED_BYTES:
        cache[key] = rows
    while len(cache) > MAX_CACHED_INSTANTS:
        del cache[next(iter(cache))]
    return rows


def _open_spark(world: World, table: hudi.Table, before: str, after: str, where: str) -> Engine:
    """Read the rows that fulfill a condition with Spark."""
    queries = [spark_sql.select_where(view, where) for view in ("all_before", "all_after")]
    spark = session(world)

    def read(query: exp.Select, instant: str) -> DataFrame:
        return spark_sql.rows_where(
            spark, query, lambda ansi: hudi.as_of(ansi, world, table, instant)
        )

    with translate_errors(spark, f"{table.name} cannot be read", where, dialect.FAILED_QUERY_HINT):
        first, last = map(read, queries, (before, after))
        first.unionByName(last.limit(0), True).createOrReplaceTempView("before_rows")
        rows = last.unionByName(first.limit(0), True)
        rows.createOrReplaceTempView("after_rows")

    def run(text: str) -> pd.DataFrame:
        statement = sqlglot.transpile(text, read="duckdb", write="spark")[0]
        return rows.sparkSession.sql(statement).toPandas()

    return Engine("CREATE OR REPLACE TEMP VIEW", to_arrow_schema(rows.schema), run)
