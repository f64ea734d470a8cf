"""Tables over files, as a Glue crawler creates them."""

from pyspark.sql import SparkSession

from ..base import LakeError, files
from ..base.text import plural
from ..hudi import ddl
from . import spark_sql
from .engines import sql

# {extension of the files: clause of CREATE EXTERNAL TABLE}
STORED_AS = {
    "parquet": "STORED AS PARQUET",
    "json": "ROW FORMAT SERDE 'org.openx.data.jsonserde.JsonSerDe'",
}


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
