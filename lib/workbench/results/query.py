"""Queries in Athena's dialect, answered as pandas in every world.

Where the engine is Spark, `dialect` translates, and Spark is asked in a session of its own with ANSI rules: a cast that
fails, an overflow, an index beyond the end are errors, as they are in Athena.
"""
from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Optional, Sequence
from weakref import WeakKeyDictionary

import pandas
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from sqlglot import exp
from sqlglot.optimizer.scope import traverse_scope

from .. import hudi, stack
from ..base import LakeError, World, files, nearest
from ..spark import answered, session
from ..spark.sessions import of_session
from . import dialect, statements

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
    if hasattr(where, "query"):
        stack.must_be_there(where, "query.")
    tree, goal = statements.read(text)
    named = set() if isinstance(tree, str) else {p.name for p in tree.find_all(exp.Placeholder)}
    for name in sorted(named ^ set(values)):
        what = f"the query names :{name}, no value is given" if name in named else f"value {name!r} is not in the query"
        raise LakeError(what, expected=nearest(name, values if name in named else named))
    spark = session(where) if hasattr(where, "query") else where
    with answered(spark, "the query failed", text.strip()[:1000],
                  "see whether the table is registered (hudi.register) and the column exists"):
        own = _session(spark)
        if isinstance(tree, str):
            return own.sql(tree).toPandas()
        rows = own.sql(_written(own, tree, values), args=values or None)
        return _keep(rows, goal) if goal else rows.toPandas()


def translate(text: str, spark: Optional[SparkSession] = None) -> str:
    """The Spark SQL for a query in Athena's dialect. Without `spark` only where nothing depends on columns' types, as a
    division does. Raises LakeError when it cannot be translated."""
    tree, _ = statements.read(text)
    return _written(_session(spark), tree, {}) if spark else dialect.write(tree)


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
    for name in _tables(tree):
        with contextlib.suppress(AnalysisException):  # there is none: the query itself says it better
            spark.sql(f"REFRESH TABLE {name}")

    def accepts(text: str) -> bool:
        with contextlib.suppress(Exception):  # whatever it is: the last form is taken, and its error is the query's
            return spark.sql(text, args=values or None) is not None
        return False

    return dialect.write(tree, accepts)


def _keep(rows: DataFrame, goal: statements.Goal) -> pandas.DataFrame:
    """Write a query's rows where they go; nothing is returned, as in Athena."""
    table, place, form, codec, by = goal
    if place and files.below(place):
        raise LakeError("HIVE_PATH_ALREADY_EXISTS: the folder is not empty", where=place,
                        next_step="name an empty one, or remove what is there: Athena overwrites nothing")
    if by != [name.lower() for name in rows.columns[len(rows.columns) - len(by):]]:
        raise LakeError("HIVE_COLUMN_ORDER_MISMATCH: partition columns must be the query's last ones, in their order",
                        where=", ".join(rows.columns), expected=f"…, {', '.join(by)}")
    writer = rows.write.format(form).partitionBy(*by).option("compression", codec)
    if place and table:
        writer = writer.option("path", place)
    writer.saveAsTable(table) if table else writer.save(place)
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


def _tables(tree: Any) -> list[str]:
    """Names of the tables that the query reads, without those it defines itself."""
    read = [t for scope in traverse_scope(tree) for t in scope.sources.values() if isinstance(t, exp.Table)]
    return sorted({exp.table_(t.name, t.db, t.catalog, quoted=True).sql("spark") for t in read})


def crawl(where: SparkSession | World, address: str, table: str) -> str:
    """Make a table of the files in a folder, as a Glue crawler does: its columns are those of the files, its partitions
    the folders `name=value` (as text). A table of that name is replaced.

    Args:
        address: the folder of Parquet files or of JSON lines.
        table: database.table; the database is made where it is missing.

    Returns: the CREATE EXTERNAL TABLE that it ran.
    Raises:
        LakeError: no files, or of several kinds; or a column is in the files and in the folders' names, too. Athena
            says so when the crawled table is asked, this function at once, with the statement that cures it.
    """
    spark = session(where) if hasattr(where, "query") else where
    paths = [path for path in files.below(address) if not any(part[0] in "._" for part in path.split("/"))]
    found = {(path.rpartition(".")[2], *(part.partition("=")[0] for part in path.split("/")[:-1])) for path in paths}
    form, *partitions = found.pop() if len(found) == 1 else [""]
    if form not in ("parquet", "json"):
        raise LakeError("a crawler makes no one table of this", where=f"{address}: {len(paths)} files",
                        expected="files .parquet or .json alone, below the same folders name=value")
    with answered(spark, "the files cannot be read", address, "look at one of them"):
        reader = _session(spark).read.option("recursiveFileLookup", "true").option("mergeSchema", "true")
        columns = {f.name: f.dataType.simpleString() for f in reader.format(form).load(address).schema.fields}
    once = {name: type for name, type in columns.items() if name.lower() not in [p.lower() for p in partitions]}
    cure = statements.declared(table, once, partitions, form, address)
    if once != columns:
        raise LakeError(f"HIVE_INVALID_METADATA: Hive metadata for table {table} is invalid: Table descriptor contains "
                        "duplicate columns", where=f"{', '.join(set(columns) - set(once))}: a column and a folder of "
                        f"{address}", next_step=f"declare it once, then MSCK REPAIR TABLE {table}:\n{cure}")
    repair = [f"MSCK REPAIR TABLE {table}"] if partitions else []
    for text in (f"CREATE DATABASE IF NOT EXISTS {table.rpartition('.')[0] or 'default'}",
                 f"DROP TABLE IF EXISTS {table}", cure, *repair):
        sql(spark, text)
    return cure
