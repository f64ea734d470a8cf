"""The rows of a table as of instants, as views in SQL: DuckDB over Arrow, or Spark.

hudi-rs and DuckDB answer in milliseconds, in this process. Spark reads what they cannot: tables of more
than MAX_ROWS rows, commits after a pending compaction, and everything in a Python without the two.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Callable, Mapping

import pandas as pd
import pyarrow
import sqlglot
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from sqlglot import exp

from .. import hudi
from ..base import LakeError, World
from ..base.errors import first_line
from ..hudi.labeling import resolve_instant
from ..hudi.timeline import HistoryRemoved
from ..spark import session

MAX_ROWS = 5_000_000  # of a table that is read into memory
MAX_RESULT_ROWS = 1_000_000  # of a result
# Columns that the capture or Hudi adds. They differ in each version of a row.
TECHNICAL_PREFIXES = ("_hoodie_", "__")
DELETED = "__deleted"  # "true" in the row of a soft delete
INTEGER_TYPES = {pyarrow.int32(): pd.Int32Dtype(), pyarrow.int64(): pd.Int64Dtype()}


@dataclass(frozen=True)
class Views:
    """Views of a table's rows, one for each instant, without the rows of soft deletes.

    Attributes:
        table: the table.
        columns: {column of the source: pyarrow type}.
        run: runs a query in the engine's dialect.
        engine: "duckdb" or "spark".
    """

    table: hudi.Table
    columns: Mapping[str, pyarrow.DataType]
    run: Callable[[str], pd.DataFrame]
    engine: str

    def query(self, statement: exp.Query) -> pd.DataFrame:
        """Run a query of the views, which have the names that `open_views` was given.

        Raises:
            LakeError: the query failed.
        """
        try:
            return self.run(statement.sql(self.engine))
        except Exception as e:  # noqa: BLE001 - the errors of two engines
            raise LakeError(
                f"a query of {self.table.name} failed: {first_line(e)}", location=self.table.base
            ) from None

    def differs(self, name: str) -> exp.Expr:
        """Return a condition: the views `a` and `b` have different values in a column."""
        values = [column(name, view) for view in ("a", "b")]
        if pyarrow.types.is_map(self.columns[name]):  # Spark does not compare maps
            values = [exp.cast(value, "text") for value in values]
        return exp.NullSafeNEQ(this=values[0], expression=values[1])


def column(name: str, view: str) -> exp.Column:
    """Return a column of a view in SQL."""
    return exp.column(name, table=view, quoted=True)


def parse_condition(text: str) -> exp.Expr:
    """Parse a condition in Athena's SQL.

    Raises:
        LakeError: it is not one condition.
    """
    try:
        return exp.condition(text, dialect="athena")
    except sqlglot.ParseError as e:
        raise LakeError(f"{text!r} is not a condition in SQL: {first_line(e)}") from None


def open_views(world: World, table: hudi.Table, **instants: str) -> Views:
    """Read a table as of instants.

    Args:
        world: the world.
        table: the table.
        instants: {name of the view: label or instant}. The last one decides the order of the columns.

    Raises:
        LakeError: as `hudi.as_of`, or the table had no row at any of the instants.
    """
    resolved = {name: resolve_instant(world, table, one) for name, one in instants.items()}
    if importlib.util.find_spec("duckdb") and stored_rows(table) <= MAX_ROWS:
        try:
            rows = {
                name: hudi.read_arrow(table, as_of=(world, instant))
                for name, instant in resolved.items()
            }
        except HistoryRemoved:
            raise
        except LakeError:
            pass  # Spark reads it
        else:
            return _in_duckdb(table, rows)
    spark = session(world)
    return _in_spark(
        table,
        {name: hudi.as_of(spark, world, table, instant) for name, instant in resolved.items()},
    )


def stored_rows(table: hudi.Table) -> int:
    """Return the number of rows by the statistics of the commits; those of archived ones are missing."""
    counts = hudi.commits(table)
    return int(counts["inserted"].sum() - counts["deleted"].sum())


def _in_duckdb(table: hudi.Table, rows: Mapping[str, pyarrow.Table]) -> Views:
    import duckdb

    connection = duckdb.connect(config={"enable_external_access": "false"})
    columns, views = _definitions(table, {name: each.schema for name, each in rows.items()})
    for name, definition in views.items():
        has_columns = rows[name].num_columns
        connection.register(f"{name}_rows", rows[name] if has_columns else pyarrow.table({"": []}))
        connection.execute(f"CREATE VIEW {name} AS {definition.sql('duckdb')}")

    def run(text: str) -> pd.DataFrame:
        result = connection.sql(text).to_arrow_table()
        frame: pd.DataFrame = result.to_pandas(types_mapper=INTEGER_TYPES.get)  # null is no NaN
        return frame

    return Views(table, columns, run, "duckdb")


def _in_spark(table: hudi.Table, rows: Mapping[str, DataFrame]) -> Views:
    spark = next(iter(rows.values())).sparkSession
    schemas = {name: to_arrow_schema(each.schema) for name, each in rows.items()}
    columns, views = _definitions(table, schemas)
    for name, definition in views.items():
        rows[name].createOrReplaceTempView(f"{name}_rows")
        spark.sql(definition.sql("spark")).createOrReplaceTempView(name)
    return Views(table, columns, lambda text: spark.sql(text).toPandas(), "spark")


def _definitions(
    table: hudi.Table, schemas: Mapping[str, pyarrow.Schema]
) -> tuple[dict[str, pyarrow.DataType], dict[str, exp.Select]]:
    """Return the columns of the source, and {view: its query}; all views have the same columns.

    A column that a view does not have is null there. A column whose type has changed is a text.
    """
    types: dict[str, pyarrow.DataType] = {}
    for schema in reversed([*schemas.values()]):
        for field in schema:
            is_same = types.setdefault(field.name, field.type) == field.type
            types[field.name] = field.type if is_same else pyarrow.string()
    if not types:
        raise LakeError(f"table {table.name} had no row at that time", location=table.base)

    def select(name: str, schema: pyarrow.Schema, view: str) -> exp.Expr:
        value: exp.Expr = exp.null()
        if name in schema.names:
            value = column(name, view)
            if schema.field(name).type != types[name]:
                value = exp.cast(value, "text")
        return value.as_(name, quoted=True)

    views = {}
    for name, schema in schemas.items():
        rows = f"{name}_rows"
        views[name] = sqlglot.select(*[select(each, schema, rows) for each in types]).from_(rows)
        if DELETED in schema.names:
            is_row = exp.NullSafeNEQ(
                this=column(DELETED, rows), expression=exp.Literal.string("true")
            )
            views[name] = views[name].where(is_row)
    kept = {*table.key, *table.partition}
    columns = {n: t for n, t in types.items() if n in kept or not n.startswith(TECHNICAL_PREFIXES)}
    return columns, views
