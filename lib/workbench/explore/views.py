"""The rows of a table as of instants, as views in SQL: DuckDB over Arrow, or Spark.

hudi-rs and DuckDB answer in milliseconds, in this process. Spark reads what they cannot: tables of more
than MAX_ROWS rows, commits after a pending compaction, and everything in a Python without the two.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Any, Callable, Mapping, Optional

import pandas as pd
import pyarrow
import sqlglot
from pyspark.sql.pandas.types import to_arrow_schema
from sqlglot import exp

from .. import hudi
from ..base import LakeError, World
from ..base.errors import first_line
from ..hudi.labeling import resolve_instant
from ..hudi.timeline import HistoryRemoved
from ..spark import session

MAX_ROWS = 5_000_000  # of a table that is read into memory
MAX_RESULT_ROWS = 1_000_000
# Columns that the capture or Hudi adds. They differ in each version of a row.
TECHNICAL_PREFIXES = ("_hoodie_", "__")
DELETED = "__deleted"  # "true" in the row of a soft delete
Reading = tuple[dict[str, pyarrow.Schema], Callable[[str], pd.DataFrame]]
INTEGERS = {pyarrow.int32(): pd.Int32Dtype(), pyarrow.int64(): pd.Int64Dtype()}


@dataclass(frozen=True)
class Views:
    """The rows of a table as of two instants, as the views `before` and `after` in SQL.

    Rows that are marked as deleted are left out. Both views have the same columns: one that is missing
    is null, and one whose type has changed is a text.

    Attributes:
        table: the table.
        columns: {column of the source: pyarrow type}.
        definitions: {view: its query}.
        run: runs a query in DuckDB's dialect.
    """

    table: hudi.Table
    columns: Mapping[str, pyarrow.DataType]
    definitions: Mapping[str, str]
    run: Callable[[str], pd.DataFrame]

    def query(self, text: str) -> pd.DataFrame:
        """Run a query of the views in DuckDB's dialect.

        Raises:
            LakeError: the query failed, or its result is larger than MAX_RESULT_ROWS.
        """
        views = ", ".join(f"{name} AS ({query})" for name, query in self.definitions.items())
        try:
            frame = self.run(f"WITH {views} {text} LIMIT {MAX_RESULT_ROWS + 1}")
        except Exception as e:  # noqa: BLE001 - of two engines
            raise LakeError(
                f"a query of {self.table.name} failed: {first_line(e)}", location=self.table.base
            ) from None
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
    instants = {
        "before": resolve_instant(world, table, before),
        "after": resolve_instant(world, table, after),
    }
    try:
        condition = exp.condition(where, dialect="athena").sql("duckdb")
    except sqlglot.ParseError as e:
        raise LakeError(f"{where!r} is not a condition in SQL: {first_line(e)}") from None
    rows, run = _read_in_memory(world, table, instants) or _read_in_spark(world, table, instants)
    types: dict[str, pyarrow.DataType] = {}
    for field in (*rows["after"], *rows["before"]):
        is_same = types.setdefault(field.name, field.type) == field.type
        types[field.name] = field.type if is_same else pyarrow.string()
    if not types:
        raise LakeError(f"table {table.name} had no row at that time", location=table.base)
    views = {name: _view(f"{name}_rows", schema, types, condition) for name, schema in rows.items()}
    kept = {*table.key, *table.partition}
    columns = {n: t for n, t in types.items() if n in kept or not n.startswith(TECHNICAL_PREFIXES)}
    return Views(table, columns, views, run)


def _view(rows: str, schema: pyarrow.Schema, types: Mapping[str, Any], condition: str) -> str:
    """Return the query of a view (see `Views`)."""
    values = []
    for name, kind in types.items():
        value = quoted(name) if name in schema.names else "NULL"
        if name in schema.names and schema.field(name).type != kind:
            value = f"CAST({value} AS TEXT)"
        values.append(f"{value} AS {quoted(name)}")
    is_row = f"{DELETED} IS DISTINCT FROM 'true'" if DELETED in schema.names else "true"
    return f"SELECT {', '.join(values)} FROM {rows} WHERE {is_row} AND ({condition})"  # noqa: S608 - names are quoted, the condition was parsed


def stored_rows(table: hudi.Table) -> int:
    """Return the number of rows by the statistics of the commits; those of archived ones are missing."""
    counts = hudi.commits(table)
    return int(counts["inserted"].sum() - counts["deleted"].sum())


def _read_in_memory(
    world: World, table: hudi.Table, instants: Mapping[str, str]
) -> Optional[Reading]:
    """Read with hudi-rs for DuckDB; None if the table is too large, or one of the two cannot read it."""
    if not importlib.util.find_spec("duckdb") or stored_rows(table) > MAX_ROWS:
        return None
    import duckdb

    connection = duckdb.connect(config={"enable_external_access": "false"})
    schemas = {}
    for name, instant in instants.items():
        try:
            rows = hudi.read_arrow(table, as_of=(world, instant))
        except HistoryRemoved:
            raise
        except LakeError:
            return None
        schemas[name] = rows.schema
        # DuckDB has no table without columns
        connection.register(f"{name}_rows", rows if rows.num_columns else pyarrow.table({"": []}))

    def run(text: str) -> pd.DataFrame:
        frame: pd.DataFrame = (
            connection.sql(text).to_arrow_table().to_pandas(types_mapper=INTEGERS.get)
        )
        return frame

    return schemas, run


def _read_in_spark(world: World, table: hudi.Table, instants: Mapping[str, str]) -> Reading:
    spark, schemas = session(world), {}
    for name, instant in instants.items():
        rows = hudi.as_of(spark, world, table, instant)
        rows.createOrReplaceTempView(f"{name}_rows")
        schemas[name] = to_arrow_schema(rows.schema)

    def run(text: str) -> pd.DataFrame:
        return spark.sql(sqlglot.transpile(text, read="duckdb", write="spark")[0]).toPandas()

    return schemas, run
