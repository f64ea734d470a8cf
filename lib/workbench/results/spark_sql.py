"""Queries in Athena's dialect where the engine is Spark: `dialect` translates, and Spark is asked
in a session of its own with ANSI rules: a cast that fails, an overflow, an index beyond the end are
errors, as they are in Athena.
"""

import contextlib
from functools import partial
from typing import Any, Union
from weakref import WeakKeyDictionary

import pandas
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import TimestampNTZType
from sqlglot import exp

from ..base import LakeError, World
from ..spark import is_remote, session, translate_errors
from ..spark.sessions import configure_client, session_conf
from . import dialect

PROPERTY_NAMES = {
    exp.FileFormatProperty: "format",
    exp.PartitionedByProperty: "partitioned_by",
}  # of settings with own types
DEFAULT_COMPRESSION = {
    "parquet": "gzip",
    "orc": "zlib",
    "json": "gzip",
}  # formats, and how Athena compresses them if not told
_ansi_sessions: WeakKeyDictionary[SparkSession, SparkSession] = (
    WeakKeyDictionary()
)  # to each session that of its queries
ANSI_SETTINGS = {
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    "spark.sql.ansi.enabled": "true",
}  # map_concat: the last one counts


def sql(where: Union[SparkSession, World], text: str, /, **values: Any) -> pandas.DataFrame:
    """Run one query or statement and return its rows.

    Besides queries: CREATE EXTERNAL TABLE over Parquet, ORC or JSON, CREATE TABLE … WITH (…) AS,
    UNLOAD, MSCK REPAIR TABLE, SHOW, DESCRIBE, DROP TABLE, CREATE DATABASE. What is refused or
    differs: docs/limits.md.

    Args:
        where: a Spark session, or a world; `query.kind` of the world, or of the session's, says
            which engine answers. The session's temporary views are not seen: Athena knows none.
        text: one statement in Athena's dialect (engine version 3). `:name` stands for a value.
        values: the values, bound as literals, never pasted into the text.

    Raises:
        LakeError: not one statement, not translatable, a value missing or left over, no such table
            or column; of
            Athena: the query was cancelled, by somebody or for what it would have scanned.
        StackError: Spark was restarted or is gone; `spark.session(world)` gives a new session. Or
            AWS refuses.
    """
    tree, create = dialect.parse_statement(text)
    dialect.require_values({p.name for p in tree.find_all(exp.Placeholder)}, values)
    spark = session(where) if isinstance(where, World) else where
    with translate_errors(
        spark, "the query failed", text.strip()[:1000], dialect.FAILED_QUERY_HINT
    ):
        own = _ansi_session(spark)
        rows = _zoned_to_instants(own.sql(_to_spark_sql(own, tree, values), args=values or None))
        return _write_table(rows, create) if create else rows.toPandas()


def translate(text: str, spark: SparkSession) -> str:
    """The Spark SQL for a query in Athena's dialect, of a session that knows its columns' types.
    Raises LakeError when it cannot be translated.
    """
    return _to_spark_sql(_ansi_session(spark), dialect.parse_statement(text)[0], {})


def _ansi_session(spark: SparkSession) -> SparkSession:
    """A session beside this one, with the same catalog, in which Athena's rules hold."""
    if spark not in _ansi_sessions and is_remote(spark):
        _ansi_sessions[spark] = type(spark)(spark.client._builder)
        configure_client(_ansi_sessions[spark].client)
    own = _ansi_sessions[spark] = _ansi_sessions.get(spark) or spark.newSession()
    if (
        own.conf.get("spark.sql.ansi.enabled") != "true"
    ):  # it is new, or its server has forgotten it (after an hour)
        for key, value in {**session_conf(), **ANSI_SETTINGS}.items():
            own.conf.set(key, value)
    return own


def _to_spark_sql(spark: SparkSession, tree: Any, values: dict[str, Any]) -> str:
    """The Spark SQL of a query, its tables seen anew: the catalog remembers files, a stream may
    have committed.
    """
    tables = tree.find_all(exp.Table)
    for name in {exp.table_(t.name, t.db, t.catalog, quoted=True).sql("spark") for t in tables}:
        with contextlib.suppress(AnalysisException):  # there is none, or it is the query's own
            spark.sql(f"REFRESH TABLE {name}")
    return dialect.to_spark_sql(tree, partial(spark.sql, args=values or None))


def _zoned_to_instants(rows: DataFrame) -> DataFrame:
    """These rows with each timestamp with time zone as an instant, which pandas and files take (see
    athena.txt).
    """
    zoned = [isinstance(field.dataType, TimestampNTZType) for field in rows.schema.fields]
    if not any(zoned):
        return rows
    names = rows.columns
    rows = rows.toDF(*(f"c{n}" for n in range(len(names))))  # two may have one name
    return rows.select(
        *(
            column.cast("timestamp").alias(name) if is_zoned else column.alias(name)
            for column, name, is_zoned in zip(map(F.col, rows.columns), names, zoned)
        )
    )


def _write_table(rows: DataFrame, create: exp.Create) -> pandas.DataFrame:
    """Write a query's rows where they go; nothing is returned, as in Athena."""
    given = {
        PROPERTY_NAMES.get(type(p), p.name.lower()): p.args.get("value") or p.this
        for p in create.find_all(exp.Property)
    }
    form = given.pop("format", exp.var("parquet")).name.lower()
    codec = next(
        (given.pop(s).name.lower() for s in list(given) if s.endswith("compression")),
        DEFAULT_COMPRESSION.get(form),
    )
    by = [column.name for column in given.pop("partitioned_by", exp.Array()).expressions]
    place = {"path": given.pop("external_location").name} if "external_location" in given else {}
    if given or form not in DEFAULT_COMPRESSION or create.args["exists"]:
        raise LakeError(
            f"{', '.join(given) or form} is not honoured",
            location=create.sql("athena")[:300],
            expected=f"format ({', '.join(DEFAULT_COMPRESSION)}), write_compression, partitioned_by, external_location",
        )
    writer = rows.write.format(form).partitionBy(*by).options(compression=codec, **place)
    writer.saveAsTable(create.this.sql("spark")) if create.this.name else writer.save()
    return pandas.DataFrame()


def columns(spark: SparkSession, address: str, form: str) -> dict[str, str]:
    """{column: its type in Athena's DDL} of all the files of a format in and below a folder."""
    with translate_errors(spark, "the files cannot be read", address, "look at one of them"):
        reader = (
            _ansi_session(spark)
            .read.option("recursiveFileLookup", "true")
            .option("mergeSchema", "true")
        )
        found = reader.format(form).load(address).schema.fields
        return {
            f.name: f.dataType.simpleString().replace("timestamp_ntz", "timestamp") for f in found
        }
