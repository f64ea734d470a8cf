"""One record of several tables, by its key."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Sequence

import pandas
from pyspark.sql import SparkSession
from sqlglot import exp

from ..base import LakeError
from ..hudi.tables import Table, catalog_names
from .engines import sql


def record(
    spark: SparkSession, tables: Sequence[Table], key: Any, /, *columns: str
) -> pandas.DataFrame:
    """Return a record of several tables by its key, as each name in the catalog shows it.

    Args:
        spark: the session.
        tables: the tables.
        key: value of the record key; of a key of several columns their values, as a tuple.
        columns: columns to return.

    Returns:
        Columns seen_in (the name in the catalog), the requested ones, __op, file (base or log),
        then Hudi's file name and commit time. The file name of a record from a log is its file
        group, without `.parquet`.

    Raises:
        LakeError: a table or column does not exist, or the key of a table has another number of columns.
    """
    selected = [
        exp.column(c, quoted=True)
        for c in (*columns, "__op", "_hoodie_file_name", "_hoodie_commit_time")
    ]

    values = key if isinstance(key, tuple) else (key,)
    parameters = {f"key{n}": value for n, value in enumerate(values)}

    def query_view(view: str, key_columns: tuple[str, ...]) -> pandas.DataFrame:
        # Built as a tree, so that names with any characters are quoted correctly
        database, name = view.split(".")
        select = exp.select(exp.Literal.string(view).as_("seen_in"), *selected)
        condition = exp.and_(
            *(
                exp.column(column, quoted=True).eq(exp.Placeholder(this=parameter))
                for column, parameter in zip(key_columns, parameters)
            )
        )
        query = select.from_(exp.table_(name, database, quoted=True)).where(condition)
        return sql(spark, query.sql("athena"), **parameters)

    for table in tables:
        if len(table.key) != len(values):
            raise LakeError(
                f"{values!r} is no key of table {table.name}",
                expected=f"the values of {', '.join(table.key)}",
            )
    views = [(view, table.key) for table in tables for view in catalog_names(table)]
    # Faster than one query with UNION ALL, whose parts Spark plans one by one
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(query_view, *zip(*views)))
    rows = pandas.concat([r for r in results if len(r)] or results, ignore_index=True)
    is_base = rows["_hoodie_file_name"].str.endswith(".parquet")
    kinds = is_base.map({True: "base", False: "log"})
    rows.insert(rows.columns.get_loc("__op") + 1, "file", kinds)
    return rows.sort_values(["seen_in", "_hoodie_commit_time"], ignore_index=True)
