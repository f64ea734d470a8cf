"""Query the lake in Athena's dialect, in every world: by Spark (`spark_sql`) or by Athena (`athena`)."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Sequence

import pandas
from pyspark.sql import SparkSession
from sqlglot import exp

from ..base import LakeError, files
from ..base.backends import dispatch_by
from ..base.text import plural
from ..hudi import ddl
from ..hudi.tables import Table, catalog_names
from ..spark import query_engine
from . import athena, spark_sql

# {extension of the files: clause of CREATE EXTERNAL TABLE}
STORED_AS = {
    "parquet": "STORED AS PARQUET",
    "json": "ROW FORMAT SERDE 'org.openx.data.jsonserde.JsonSerDe'",
}

sql = dispatch_by(query_engine, spark=spark_sql, athena=athena)("sql")


def record(
    spark: SparkSession, tables: Sequence[Table], key: Any, /, *columns: str
) -> pandas.DataFrame:
    """Return a record of several tables by its key, as each name in the catalog shows it.

    Args:
        spark: the session.
        tables: the tables.
        key: value of the record key.
        columns: columns to return.

    Returns:
        Columns seen_in (the name in the catalog), the requested ones, __op, file (base or log),
        then Hudi's file name and commit time. The file name of a record from a log is its file
        group, without `.parquet`.

    Raises:
        LakeError: a table or column does not exist.
    """
    selected = [
        exp.column(c, quoted=True)
        for c in (*columns, "__op", "_hoodie_file_name", "_hoodie_commit_time")
    ]

    def query_view(view: str, key_column: str) -> pandas.DataFrame:
        # Built as a tree, so that names with any characters are quoted correctly
        database, name = view.split(".")
        select = exp.select(exp.Literal.string(view).as_("seen_in"), *selected)
        condition = exp.column(key_column, quoted=True).eq(exp.Placeholder(this="id"))
        query = select.from_(exp.table_(name, database, quoted=True)).where(condition)
        return sql(spark, query.sql("athena"), id=key)

    views = [(view, table.key[0]) for table in tables for view in catalog_names(table)]
    # Faster than one query with UNION ALL, whose parts Spark plans one by one
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(query_view, *zip(*views)))
    rows = pandas.concat([r for r in results if len(r)] or results, ignore_index=True)
    is_base = rows["_hoodie_file_name"].str.endswith(".parquet")
    kinds = is_base.map({True: "base", False: "log"})
    rows.insert(rows.columns.get_loc("__op") + 1, "file", kinds)
    return rows.sort_values(["seen_in", "_hoodie_commit_time"], ignore_index=True)


def create_table_from_files(spark: SparkSession, uri: str, table: str) -> str:
    """Create a table over the files in a folder, as a Glue crawler does.

    The columns are those of the files, the partitions are the folders `name=value` (as text). A table
    with the same name is replaced.

    Spark reads the schemas of the files, and a DDL statement creates the table, on AWS as well. A Glue
    crawler would need a role and up to two minutes for each table, and a duplicate column would be
    reported only when the table is queried.

    Args:
        spark: the session.
        uri: folder of Parquet files or of files with JSON lines.
        table: `database.table`; a missing database is created.

    Returns:
        The CREATE EXTERNAL TABLE statement that was run.

    Raises:
        LakeError: the folder has no files, or files of several kinds; or a name is both a column and
            a partition folder. For the latter, the error has the statement that fixes it.
    """
    extension, partitions = _detect_layout(uri)
    columns = spark_sql.columns(spark, uri, extension)
    partition_names = {name.lower() for name in partitions}
    duplicates = [name for name in columns if name.lower() in partition_names]
    declared = [
        f"{_quote_name(name)} {type}" for name, type in columns.items() if name not in duplicates
    ]
    clauses = [f"CREATE EXTERNAL TABLE {table} (\n  {', '.join(declared)})"]
    if partitions:
        names = ", ".join(f"{_quote_name(name)} string" for name in partitions)
        clauses.append(f"PARTITIONED BY ({names})")
    clauses += [STORED_AS[extension], f"LOCATION {ddl.literal(uri)}"]
    create = "\n".join(clauses)
    repair = f"MSCK REPAIR TABLE {table}"
    if duplicates:
        raise LakeError(
            f"HIVE_INVALID_METADATA: Hive metadata for table {table} is invalid: Table descriptor contains "
            "duplicate columns",
            location=f"{', '.join(duplicates)}: a column and a folder of {uri}",
            hint=f"declare each column once, then {repair}:\n{create}",
        )
    ddl.create_database(spark, table.split(".")[0])
    sql(spark, f"DROP TABLE IF EXISTS {table}")
    sql(spark, create)
    if partitions:
        sql(spark, repair)
    return create


def _detect_layout(uri: str) -> tuple[str, list[str]]:
    """Return the extension of the files in a folder, and the names of the partition fields.

    Raises:
        LakeError: there are no such files, or their extensions or folders differ.
    """
    paths = [path.split("/") for path in files.list_files(uri)]
    layouts = {
        (path[-1].rpartition(".")[2], *(folder.partition("=")[0] for folder in path[:-1]))
        for path in paths
        if not any(name.startswith((".", "_")) for name in path)
    }
    layout = layouts.pop() if len(layouts) == 1 else ("",)
    if layout[0] not in STORED_AS:
        raise LakeError(
            "a crawler cannot create one table of these files",
            location=f"{uri}: {plural(len(paths), 'file')}",
            expected="only .parquet or only .json files, in the same folders name=value",
        )
    return layout[0], list(layout[1:])


def _quote_name(name: str) -> str:
    """Quote a column name for Athena's DDL. The name may contain dots."""
    return "`" + name.replace("`", "``") + "`"
