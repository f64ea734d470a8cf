"""Queries in Athena's dialect, answered as pandas in every world.

Where the engine is Spark, `dialect` translates, and Spark is asked in a session of its own with ANSI rules: a cast that
fails, an overflow, an index beyond the end are errors, as they are in Athena.
"""
from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Sequence
from weakref import WeakKeyDictionary

import pandas
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from sqlglot import exp

from .. import hudi
from ..base import LakeError, World, files
from ..spark import answered, session
from ..spark.sessions import of_session
from . import dialect

NAMES = {exp.FileFormatProperty: "format", exp.PartitionedByProperty: "partitioned_by"}  # of settings with own types
WRITTEN = {"parquet": "gzip", "orc": "zlib", "json": "gzip"}  # formats, and how Athena compresses them if not told
CRAWLED = {"parquet": "STORED AS PARQUET", "json": "ROW FORMAT SERDE 'org.openx.data.jsonserde.JsonSerDe'"}
_beside: WeakKeyDictionary[SparkSession, SparkSession] = WeakKeyDictionary()  # to each session that of its queries
RULES = {"spark.sql.mapKeyDedupPolicy": "LAST_WIN", "spark.sql.ansi.enabled": "true"}  # map_concat: the last one counts


def sql(where: SparkSession | World, text: str, **values: Any) -> pandas.DataFrame:
    """Run one query or statement and return its rows.

    Besides queries: CREATE EXTERNAL TABLE over Parquet, ORC or JSON, CREATE TABLE … WITH (…) AS, UNLOAD, MSCK REPAIR
    TABLE, SHOW, DESCRIBE, DROP TABLE, CREATE DATABASE. What is refused or differs: docs/limits.md.

    Args:
        where: a Spark session, or a world (whose `query.kind` says which engine answers). The session's temporary views
            are not seen: Athena knows none.
        text: one statement in Athena's dialect (engine version 3). `:name` stands for a value.
        values: the values, bound as literals, never pasted into the text.

    Raises:
        LakeError: not one statement, not translatable, a value missing or left over, no such table or column.
        StackError: Spark was restarted or is gone; `spark.session(world)` gives a new session.
    """
    tree, create = dialect.read(text)
    named = {p.name for p in tree.find_all(exp.Placeholder)}
    if named != set(values):
        raise LakeError(f"the query names the values {sorted(named)}", where=f"{sorted(values)} are given")
    spark = session(where) if hasattr(where, "query") else where
    with answered(spark, "the query failed", text.strip()[:1000],
                  "see whether the table is registered (hudi.register) and the column exists"):
        own = _session(spark)
        rows = own.sql(_written(own, tree, values), args=values or None)
        return _keep(rows, create) if create else rows.toPandas()


def translate(text: str, spark: SparkSession) -> str:
    """The Spark SQL for a query in Athena's dialect, of a session that knows its columns' types. Raises LakeError when
    it cannot be translated."""
    return _written(_session(spark), dialect.read(text)[0], {})


def _session(spark: SparkSession) -> SparkSession:
    """A session beside this one, with the same catalog, in which Athena's rules hold."""
    if spark not in _beside and hasattr(spark, "client"):
        _beside[spark] = type(spark)(spark.client._builder)
        _beside[spark].client._retry_policy = spark.client._retry_policy
    own = _beside[spark] = _beside.get(spark) or spark.newSession()
    if own.conf.get("spark.sql.ansi.enabled") != "true":  # it is new, or its server has forgotten it (after an hour)
        for key, value in {**of_session(), **RULES}.items():
            own.conf.set(key, value)
    return own


def _written(spark: SparkSession, tree: Any, values: dict[str, Any]) -> str:
    """The Spark SQL of a query, its tables seen anew: the catalog remembers files, a stream may have committed."""
    tables = tree.find_all(exp.Table)
    for name in {exp.table_(t.name, t.db, t.catalog, quoted=True).sql("spark") for t in tables}:
        with contextlib.suppress(AnalysisException):  # there is none, or it is the query's own
            spark.sql(f"REFRESH TABLE {name}")
    return dialect.write(tree, partial(spark.sql, args=values or None))


def _keep(rows: DataFrame, create: exp.Create) -> pandas.DataFrame:
    """Write a query's rows where they go; nothing is returned, as in Athena."""
    given = {NAMES.get(type(p), p.name.lower()): p.args.get("value") or p.this for p in create.find_all(exp.Property)}
    form = given.pop("format", exp.var("parquet")).name.lower()
    codec = next((given.pop(s).name.lower() for s in list(given) if s.endswith("compression")), WRITTEN.get(form))
    by = [column.name for column in given.pop("partitioned_by", exp.Array()).expressions]
    place = {"path": given.pop("external_location").name} if "external_location" in given else {}
    if given or form not in WRITTEN or create.args["exists"]:
        raise LakeError(f"{', '.join(given) or form} is not honoured", where=create.sql("athena")[:300],
                        expected=f"format ({', '.join(WRITTEN)}), write_compression, partitioned_by, external_location")
    writer = rows.write.format(form).partitionBy(*by).options(compression=codec, **place)
    writer.saveAsTable(create.this.sql("spark")) if create.this.name else writer.save()
    return pandas.DataFrame()


def record(spark: SparkSession, tables: Sequence[hudi.Table], key: Any, /, *columns: str) -> pandas.DataFrame:
    """A record of these tables, by their key, as each of their names in the catalog shows it: seen_in, columns, __op,
    file (base or log), then Hudi's file name and commit time. A record that comes from a log bears the name of its file
    group, without `.parquet`.

    Raises: LakeError: there is no such table or column.
    """
    asked = [exp.column(c, quoted=True) for c in (*columns, "__op", "_hoodie_file_name", "_hoodie_commit_time")]

    def one(view: str, field: str) -> pandas.DataFrame:  # built, not written: a name stays a name, whatever it holds
        table = exp.table_(*reversed(view.split(".")), quoted=True)
        text = exp.select(exp.Literal.string(view).as_("seen_in"), *asked).from_(table).where(
            exp.column(field, quoted=True).eq(exp.Placeholder(this="id"))).sql("athena")
        return sql(spark, text, id=key)

    asks = [(view, table.key[0]) for table in tables for view in hudi.entries(table)]
    with ThreadPoolExecutor(2) as pool:  # sooner than one query with UNION ALL: Spark plans its parts one by one
        parts = list(pool.map(one, *zip(*asks)))
    found = pandas.concat([p for p in parts if len(p)] or parts, ignore_index=True)
    base = found["_hoodie_file_name"].str.endswith(".parquet")
    found.insert(found.columns.get_loc("__op") + 1, "file", base.map({True: "base", False: "log"}))
    return found.sort_values(["seen_in", "_hoodie_commit_time"], ignore_index=True)


def crawl(spark: SparkSession, address: str, table: str) -> str:
    """Make a table of the files in a folder, as a Glue crawler does: its columns are those of the files, its partitions
    the folders `name=value` (as text). A table of that name is replaced.

    Args:
        address: the folder of Parquet files or of JSON lines.
        table: as `database.table`; the database is made where it is missing.

    Returns: the CREATE EXTERNAL TABLE that it ran.
    Raises:
        LakeError: no files, or of several kinds; or a column is in the files and in the folders' names, too. Athena
            says so when the crawled table is asked, this function at once, with the statement that cures it.
    """
    paths = [path.split("/") for path in files.below(address)]
    kinds = {(path[-1].rpartition(".")[2], *(folder.partition("=")[0] for folder in path[:-1]))
             for path in paths if not any(part[0] in "._" for part in path)}
    form, *partitions = kinds.pop() if len(kinds) == 1 else [""]
    if form not in CRAWLED:
        raise LakeError("a crawler makes no one table of this", where=f"{address}: {len(paths)} files",
                        expected="files .parquet or .json alone, below the same folders name=value")
    with answered(spark, "the files cannot be read", address, "look at one of them"):
        reader = _session(spark).read.option("recursiveFileLookup", "true").option("mergeSchema", "true")
        columns = {f.name: f.dataType.simpleString() for f in reader.format(form).load(address).schema.fields}
    twice = [name for name in columns if name.lower() in [p.lower() for p in partitions]]
    types = ", ".join(f"`{name}` {type}" for name, type in columns.items() if name not in twice)
    by = f"PARTITIONED BY ({', '.join(f'`{name}` string' for name in partitions)})\n" * bool(partitions)
    cure = f"CREATE EXTERNAL TABLE {table} (\n  {types})\n{by}{CRAWLED[form]}\nLOCATION '{address}'"
    if twice:
        raise LakeError(f"HIVE_INVALID_METADATA: Hive metadata for table {table} is invalid: Table descriptor contains "
                        "duplicate columns", where=f"{', '.join(twice)}: a column and a folder of {address}",
                        next_step=f"declare it once, then MSCK REPAIR TABLE {table}:\n{cure}")
    made = [cure, f"MSCK REPAIR TABLE {table}"] if partitions else [cure]
    for text in (f"CREATE DATABASE IF NOT EXISTS {table.split('.')[0]}", f"DROP TABLE IF EXISTS {table}", *made):
        sql(spark, text)
    return cure
