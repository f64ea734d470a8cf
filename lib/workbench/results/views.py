"""One record as each name of the catalog shows it."""
from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Sequence

import pandas
from pyspark.sql import SparkSession

from .. import hudi
from . import query


def record(spark: SparkSession, tables: Sequence[hudi.Table], key: Any, /, *columns: str) -> pandas.DataFrame:
    """A record of these tables, by their key, as each of their names in the catalog shows it: seen_in, columns, __op,
    file (base or log), then Hudi's file name and commit time. A record that comes from a log bears the name of its file
    group, without `.parquet`.

    Raises: LakeError: there is no such table or column.
    """
    asked = ", ".join(map(_quoted, [*columns, "__op", "_hoodie_file_name", "_hoodie_commit_time"]))

    def one(view: str, field: str) -> pandas.DataFrame:
        return query.sql(spark, f"SELECT '{view}' AS seen_in, {asked} FROM "  # noqa: S608
                                f"{'.'.join(map(_quoted, view.split('.')))} WHERE {_quoted(field)} = :id", id=key)

    asks = [(view, table.key[0]) for table in tables for view in hudi.entries(table)]
    with ThreadPoolExecutor(2) as pool:  # sooner than one query with UNION ALL: Spark plans its parts one by one
        parts = list(pool.map(lambda ask: one(*ask), asks))
    found = pandas.concat([p for p in parts if len(p)] or parts, ignore_index=True)
    base = found["_hoodie_file_name"].str.endswith(".parquet")
    found.insert(found.columns.get_loc("__op") + 1, "file", base.map({True: "base", False: "log"}))
    return found.sort_values(["seen_in", "_hoodie_commit_time"], ignore_index=True)


def _quoted(name: str) -> str:
    """A name as an identifier of Athena's dialect, whatever stands in it."""
    from sqlglot import exp

    return exp.to_identifier(name, quoted=True).sql(dialect="athena")
