"""Queries in Athena's dialect, answered as pandas in every world: by Spark (`spark_sql`), or by
Athena (`athena`).
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Sequence

import pandas
from pyspark.sql import SparkSession
from sqlglot import exp

from .. import hudi
from ..base import LakeError, files
from ..base.backends import dispatch_by
from ..hudi import ddl
from ..spark import query_engine
from . import athena, spark_sql

STORED_AS = {
    "parquet": "STORED AS PARQUET",
    "json": "ROW FORMAT SERDE 'org.openx.data.jsonserde.JsonSerDe'",
}


sql = dispatch_by(query_engine, spark=spark_sql, athena=athena)("sql")


def record(
    spark: SparkSession, tables: Sequence[hudi.Table], key: Any, /, *columns: str
) -> pandas.DataFrame:
    """A record of these tables, by their key, as each of their names in the catalog shows it:
    seen_in, columns, __op, file (base or log), then Hudi's file name and commit time. A record that
    comes from a log bears the name of its file group, without `.parquet`.

    Raises: LakeError: there is no such table or column.
    """
    asked = [
        exp.column(c, quoted=True)
        for c in (*columns, "__op", "_hoodie_file_name", "_hoodie_commit_time")
    ]

    def one(
        view: str, field: str
    ) -> pandas.DataFrame:  # built, not written: a name stays a name, whatever it holds
        table = exp.table_(*reversed(view.split(".")), quoted=True)
        text = (
            exp.select(exp.Literal.string(view).as_("seen_in"), *asked)
            .from_(table)
            .where(exp.column(field, quoted=True).eq(exp.Placeholder(this="id")))
            .sql("athena")
        )
        return sql(spark, text, id=key)

    asks = [(view, table.key[0]) for table in tables for view in hudi.catalog_names(table)]
    with ThreadPoolExecutor(
        2
    ) as pool:  # sooner than one query with UNION ALL: Spark plans its parts one by one
        parts = list(pool.map(one, *zip(*asks)))
    found = pandas.concat([p for p in parts if len(p)] or parts, ignore_index=True)
    base = found["_hoodie_file_name"].str.endswith(".parquet")
    found.insert(found.columns.get_loc("__op") + 1, "file", base.map({True: "base", False: "log"}))
    return found.sort_values(["seen_in", "_hoodie_commit_time"], ignore_index=True)


def create_table_from_files(spark: SparkSession, address: str, table: str) -> str:
    """Make a table of the files in a folder, as a Glue crawler does: its columns are those of the
    files, its partitions the folders `name=value` (as text). A table of that name is replaced.

    On AWS, too, Spark looks at the files, and a statement makes the table. A crawler of Glue's own
    takes a role, a minute or two for each table, and shows a column that is there twice only when
    the table is asked.

    Args:
        address: the folder of Parquet files or of JSON lines.
        table: as `database.table`; the database is made where it is missing.

    Returns: the CREATE EXTERNAL TABLE that it ran.

    Raises:
        LakeError: no files, or of several kinds; or a column is in the files and in the folders'
            names, too. Athena says so when the crawled table is asked, this function at once, with
            the statement that cures it.
    """
    paths = [path.split("/") for path in files.list_files(address)]
    kinds = {
        (path[-1].rpartition(".")[2], *(folder.partition("=")[0] for folder in path[:-1]))
        for path in paths
        if not any(part[0] in "._" for part in path)
    }
    form, *partitions = kinds.pop() if len(kinds) == 1 else [""]
    if form not in STORED_AS:
        raise LakeError(
            "a crawler makes no one table of this",
            location=f"{address}: {len(paths)} files",
            expected="files .parquet or .json alone, below the same folders name=value",
        )
    columns = spark_sql.columns(spark, address, form)
    twice = [name for name in columns if name.lower() in [p.lower() for p in partitions]]
    types = ", ".join(
        f"{_quote_name(name)} {type}" for name, type in columns.items() if name not in twice
    )
    by = (
        f"PARTITIONED BY ({', '.join(f'{_quote_name(name)} string' for name in partitions)})\n"
        * bool(partitions)
    )
    cure = f"CREATE EXTERNAL TABLE {table} (\n  {types})\n{by}{STORED_AS[form]}\nLOCATION {ddl.literal(address)}"
    if twice:
        raise LakeError(
            f"HIVE_INVALID_METADATA: Hive metadata for table {table} is invalid: Table descriptor contains "
            "duplicate columns",
            location=f"{', '.join(twice)}: a column and a folder of {address}",
            hint=f"declare it once, then MSCK REPAIR TABLE {table}:\n{cure}",
        )
    made = [cure, f"MSCK REPAIR TABLE {table}"] if partitions else [cure]
    ddl.create_database(spark, table.split(".")[0])
    for text in (f"DROP TABLE IF EXISTS {table}", *made):
        sql(spark, text)
    return cure


def _quote_name(name: str) -> str:
    """Return a column's name for Athena's DDL; it may hold dots, as a file's may."""
    return "`" + name.replace("`", "``") + "`"
