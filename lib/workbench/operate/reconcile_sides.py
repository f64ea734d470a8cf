"""The two sides of a reconciliation: the source table in its database, and the lake table in DuckDB."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Iterator, Mapping, Sequence

import pyarrow
from pyarrow import types
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from .. import hudi
from ..base import LakeError, World
from ..explore.views import DELETED, quoted
from ..hudi.timeline import HistoryRemoved
from ..source.databases import MARIADB
from ..source.names import identifier
from ..walkthroughs.flow import CaptureFlow
from .reconcile_sql import DIALECTS, Side, text_sql

VERSION, PARTITION = "_hoodie_commit_seqno", "_hoodie_partition_path"
NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
# a partition's name has values of these types as reconcile_sql.yaml has them
NAMED_TYPES = (types.is_string, types.is_integer, types.is_date, types.is_boolean)


def lake_types(
    spark: SparkSession, world: World, table: hudi.Table, instant: str
) -> dict[str, pyarrow.DataType]:
    """Return {column: type} of a lake table as of an instant, without Hudi's columns; {} before its first commit."""
    if not instant:
        return {}
    schema = to_arrow_schema(hudi.as_of(spark, world, table, instant).schema)
    return {field.name: field.type for field in schema if not field.name.startswith("_hoodie_")}


def source_side(
    spark: SparkSession,
    world: World,
    flow: CaptureFlow,
    name: str,
    lake: Mapping[str, pyarrow.DataType],
) -> Side:
    """Return the rows of a captured table in its source.

    Args:
        spark: the Spark session.
        world: the world.
        flow: the flow.
        name: name of the capture.
        lake: {column: type} of the lake table. A column that it lacks is compared as text.
    """
    capture = flow.comparable(spark, world, name)
    rows = identifier(capture.source).as_string()
    if capture.expected_sql:
        rows = f'({capture.expected_sql}) AS "rows"'

    def run(query: str) -> Iterator[tuple[Any, ...]]:
        frame = flow.db.query(world, query, database=flow.database)
        return frame.astype(object).where(frame.notna(), None).itertuples(index=False, name=None)

    names = flow.db.query(world, f"SELECT * FROM {rows} LIMIT 0", database=flow.database).columns  # noqa: S608
    columns = {column: lake.get(column, pyarrow.string()) for column in names}
    dialect = DIALECTS["mariadb" if flow.db is MARIADB else "postgres"]
    return Side(dialect, rows, columns, capture.keys, run)


def lake_side(
    spark: SparkSession, world: World, table: hudi.Table, instant: str, source: Side
) -> Side:
    """Return the rows of a lake table as of an instant, in memory, with the columns of the source.

    Rows that are marked as deleted are left out.
    """
    wanted = [*source.columns, *table.partition, DELETED, VERSION, PARTITION]
    rows = _read(spark, world, table, instant, wanted) if instant else pyarrow.table({})
    for name in wanted:
        if name not in rows.column_names:
            kind = source.columns.get(name, pyarrow.string())
            rows = rows.append_column(name, pyarrow.nulls(len(rows), kind))
    side = duckdb_side(rows, source.columns, source.key)
    place = _wrong_partition(table, dict(zip(rows.schema.names, rows.schema.types)))
    return replace(
        side,
        rows="(FROM lake WHERE __deleted IS DISTINCT FROM 'true')",
        version=f"max({VERSION})",
        place=place,
    )


def duckdb_side(
    rows: pyarrow.Table, columns: Mapping[str, pyarrow.DataType], key: Sequence[str]
) -> Side:
    """Return rows in memory as a side."""
    import duckdb

    connection = duckdb.connect(config={"enable_external_access": "false"})
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("lake", rows)
    return Side(
        DIALECTS["duckdb"], "lake", columns, key, lambda query: connection.execute(query).fetchall()
    )


def _read(
    spark: SparkSession, world: World, table: hudi.Table, instant: str, columns: list[str]
) -> pyarrow.Table:
    """Read with hudi-rs, or with Spark what hudi-rs cannot read."""
    try:
        return hudi.read_arrow(table, as_of=(world, instant), columns=columns)
    except HistoryRemoved:
        raise
    except LakeError:
        frame = hudi.as_of(spark, world, table, instant)
        frame = frame.select(*(frame[name] for name in frame.columns if name in columns))
        return pyarrow.Table.from_pandas(frame.toPandas(), to_arrow_schema(frame.schema))


def _wrong_partition(table: hudi.Table, kinds: Mapping[str, pyarrow.DataType]) -> str:
    """Return SQL of the name of a row's partition, '' if it is that of the row's own values."""
    if not all(any(is_kind(kinds[name]) for is_kind in NAMED_TYPES) for name in table.partition):
        return "''"
    parts = [
        f"'{name}=' || coalesce(nullif({text_sql(DIALECTS['duckdb'], kinds[name], quoted(name))}, ''), '{NULL_PARTITION}')"
        for name in table.partition
    ]
    path = " || '/' || ".join(parts) or "''"
    return f"CASE WHEN url_decode({PARTITION}) <> {path} THEN {PARTITION} ELSE '' END"
