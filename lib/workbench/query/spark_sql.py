"""Run queries in Athena's dialect on Spark.

`dialect` translates the queries. They run in a separate session with ANSI rules: a failed cast, an
overflow or an index out of bounds is an error, as in Athena.
"""

import contextlib
import datetime as dt
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Callable, Optional, Union, cast
from weakref import WeakKeyDictionary

import numpy
import pandas
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import TimestampNTZType
from sqlglot import exp

from ..base import LakeError, World, paths
from ..spark import is_remote, session, state_of, translate_errors, world_of
from ..spark.sessions import adopt, configure_client, is_session_lost
from ..spark.settings import session_conf
from . import athena_types, dialect
from .athena_functions import NOT_TRANSLATED

# Names of table properties that sqlglot parses into types of their own
PROPERTY_NAMES = {
    exp.FileFormatProperty: "format",
    exp.PartitionedByProperty: "partitioned_by",
}
# {format: Athena's default compression}
DEFAULT_COMPRESSION = {"parquet": "gzip", "orc": "zlib", "json": "gzip"}
ANSI_SETTINGS = {
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",  # of map_concat
    "spark.sql.ansi.enabled": "true",
    # "csv"."/folder/file" is no table
    "spark.sql.runSQLOnFiles": "false",
}
# Types of a placeholder's value besides text, integers and Decimal
BOUND_TYPES = (float, bytes, dt.date, dt.timedelta, numpy.generic)


@dataclass(frozen=True)
class SparkSql:
    """Spark with Athena's rules; a `QueryEngine`.

    Temporary views of the session are not visible: Athena has none.

    Attributes:
        target: the session or world.
        read_as_of: returns the rows of a table (`database.table`) as of an instant; by default all tables
            are read as they are. (Hudi's own TIMESTAMP AS OF does not take a query with placeholders.)
    """

    target: Union[SparkSession, World]
    read_as_of: Optional[Callable[[SparkSession, str], DataFrame]] = None

    def sql(self, text: str, values: dict[str, Any]) -> pandas.DataFrame:
        """Translate and run one query or statement. See `query.sql`."""
        tree, create = dialect.parse_statement(text)
        dialect.require_values({p.name for p in tree.find_all(exp.Placeholder)}, values)
        for name, value in values.items():
            _require_bindable(name, value)
        spark = session(self.target) if isinstance(self.target, World) else self.target
        location = text.strip()[:1000]
        errors = translate_errors(spark, "the query failed", location, dialect.FAILED_QUERY_HINT)
        with _own_words(location), errors:
            ansi = _ansi_session(spark)
            _require_in_lake(ansi, tree, create)
            statement = _to_spark_sql(ansi, tree, values, self.read_as_of)
            rows = _zoned_to_instants(ansi.sql(statement, args=values or None))
            frame = _write_table(rows, create) if create else rows.toPandas()
            frame.attrs["statement"] = statement
            return frame


def translate(text: str, spark: SparkSession) -> str:
    """Translate a query to Spark SQL.

    Args:
        text: the query in Athena's dialect.
        spark: a session with the tables of the query, for the types of the columns.

    Raises:
        LakeError: the query cannot be translated.
    """
    return _to_spark_sql(_ansi_session(spark), dialect.parse_statement(text)[0], {})


def _ansi_session(spark: SparkSession) -> SparkSession:
    """Return the sibling of a session, with the same catalog and Athena's rules."""
    siblings = state_of(spark).get("ANSI sessions", WeakKeyDictionary)
    ansi: SparkSession = siblings.get(spark) or _create_sibling(spark)
    try:
        _require_ansi_rules(ansi)
    except Exception as e:  # noqa: BLE001 - pyspark and gRPC raise unrelated classes
        # A restarted Spark may reject the id of the old sibling. If it is down, the new one fails, too.
        if not is_session_lost(e):
            raise
        ansi = _create_sibling(spark)
        _require_ansi_rules(ansi)
    siblings[spark] = ansi
    world = world_of(spark)
    if world:
        adopt(ansi, world)
    return ansi


def _create_sibling(spark: SparkSession) -> SparkSession:
    if not is_remote(spark):
        return spark.newSession()
    remote: Any = spark
    sibling: SparkSession = type(remote)(remote.client._builder)
    configure_client(sibling.client)
    return sibling


def _require_ansi_rules(session: SparkSession) -> None:
    """Set Athena's rules if the session is new, or if the server has dropped its state (after an hour)."""
    if session.conf.get("spark.sql.ansi.enabled") != "true":
        for key, value in {**session_conf(), **ANSI_SETTINGS}.items():
            session.conf.set(key, value)


@contextlib.contextmanager
def _own_words(location: str) -> Iterator[None]:
    """Take the message that a translated query raised itself out of Spark's error, which may quote its SQL, too."""
    try:
        yield
    except LakeError as e:
        match = re.search(rf"RuntimeException\W+{NOT_TRANSLATED}(.*)", str(e.__cause__))
        if not match:
            raise
        hint = "rewrite it, or use Spark directly: spark.sql(…)"
        raise LakeError(f"the query failed: {match[1]}", location=location, hint=hint) from e


def _require_bindable(name: str, value: Any) -> None:
    """Raise LakeError if a value cannot be bound as it is."""
    if not _is_bindable(value):
        raise LakeError(
            f"value {name} is of type {type(value).__name__}, or cannot be bound as it is",
            location=ascii(value)[:200],
            expected="text, a number of up to 64 bits, a Decimal, True or False, bytes, a date, a timestamp, None",
        )


def _is_bindable(value: Any) -> bool:
    if isinstance(value, str):
        return not re.search("[\ud800-\udfff]", value)
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    if isinstance(value, Decimal):
        return value.is_finite()
    return value is None or (isinstance(value, BOUND_TYPES) and value is not pandas.NaT)


def _require_in_lake(spark: SparkSession, tree: exp.Expr, create: Optional[exp.Create]) -> None:
    """Raise LakeError if a statement reads, writes or removes a folder outside the lake of its session."""
    world, statement = world_of(spark), create or tree
    drop = dialect.DATABASE_STATEMENT.fullmatch(tree.name)
    if isinstance(tree, exp.Command) and drop and drop["drop"]:
        _require_own_folder(spark, drop["name"], tree.name)
    if create and create.this.db not in ("", athena_types.DATABASE):
        _require_own_folder(spark, create.this.db, create.this.sql("spark"))
    if world is None:
        return
    for setting in statement.find_all(exp.LocationProperty, exp.Property):
        value = setting.args.get("value") or setting.this
        is_location = isinstance(setting, exp.LocationProperty)
        if (is_location or setting.name.lower() == "external_location") and not paths.is_below(
            value.name, world.lake.root
        ):
            raise LakeError(
                f"{value.name} is outside the lake",
                location=f"lake {world.lake.root} of world {world.name}",
                expected="a folder of the lake: SQL reads and writes no other files",
                hint=f"copy the files to a folder below {world.lake.root}, or use Spark directly: spark.read.load(…)",
            )


def _require_own_folder(spark: SparkSession, name: str, statement: str) -> None:
    """Raise LakeError if a database lies in a folder that is not its own; one that does not exist is fine."""
    try:
        quoted = exp.to_identifier(name, quoted=True).sql("spark")
        rows = spark.sql(f"DESCRIBE DATABASE {quoted}").collect()
    except AnalysisException:
        return
    folder = next(row[1] for row in rows if row[0] == "Location")
    warehouse = spark.conf.get("spark.sql.warehouse.dir") or ""
    expected = f"{warehouse.rstrip('/')}/{name.lower()}.db"
    if not paths.is_below(folder, expected):
        raise LakeError(
            f"database {name} lies in {folder}: the statement would write to that folder, or remove it",
            location=statement[:200],
            expected=f"a database in its own folder, {expected}",
            hint="use Spark directly: spark.sql(…)",
        )


def _to_spark_sql(
    spark: SparkSession,
    tree: Any,
    values: dict[str, Any],
    read_as_of: Optional[Callable[[SparkSession, str], DataFrame]] = None,
) -> str:
    """Refresh the tables of a query, and generate its Spark SQL with the types of their columns.

    The catalog caches file lists, and a streaming query may have committed since.
    """
    schema = dialect.new_schema()
    for number, table in enumerate(tree.find_all(exp.Table)):
        name = _in_catalog(table).sql("spark")
        try:
            spark.sql(f"REFRESH TABLE {name}")
        except AnalysisException:  # no such table, or a common table expression
            continue
        rows = spark.table(name)
        if read_as_of:
            rows = read_as_of(spark, f"{table.db or athena_types.DATABASE}.{table.name}")
            rows.createOrReplaceTempView(f"as_of_{number}")
            alias = exp.TableAlias(this=exp.to_identifier(table.alias_or_name, quoted=True))
            for key, value in exp.to_table(f"as_of_{number}").args.items():
                table.set(key, value)
            table.set("alias", alias)
        schema.add_table(_in_catalog(table), athena_types.column_types(rows.schema))
    return dialect.to_spark_sql(tree, schema, values)


def _in_catalog(table: exp.Table) -> exp.Table:
    """Return the full name of a table in the catalog."""
    database, catalog = table.db or athena_types.DATABASE, table.catalog or athena_types.CATALOG
    return exp.table_(table.name, database, catalog, quoted=True)


def _zoned_to_instants(rows: DataFrame) -> DataFrame:
    """Convert each timestamp with time zone to an instant for pandas and files (see `athena_functions`)."""
    zoned = [isinstance(field.dataType, TimestampNTZType) for field in rows.schema.fields]
    if not any(zoned):
        return rows
    names = rows.columns
    rows = rows.toDF(*(f"c{n}" for n in range(len(names))))  # two columns may have the same name
    converted = []
    for column, name, is_zoned in zip(rows.columns, names, zoned):
        value = F.col(column)
        converted.append((value.cast("timestamp") if is_zoned else value).alias(name))
    return rows.select(*converted)


def _write_table(rows: DataFrame, create: exp.Create) -> pandas.DataFrame:
    """Write the rows of a query to its table; return no rows, as Athena does."""
    settings = {
        PROPERTY_NAMES.get(type(p), p.name.lower()): p.args.get("value") or p.this
        for p in create.find_all(exp.Property)
    }
    file_format = settings.pop("format", exp.var("parquet")).name.lower()
    codec = DEFAULT_COMPRESSION.get(file_format)
    for name in list(settings):
        if name.endswith("compression"):
            codec = settings.pop(name).name.lower()
            break
    partitions = settings.pop("partitioned_by", exp.Array()).expressions
    options = {"compression": codec}
    if "external_location" in settings:
        options["path"] = settings.pop("external_location").name
    if settings or file_format not in DEFAULT_COMPRESSION or create.args["exists"]:
        raise LakeError(
            f"{', '.join(settings) or file_format} is not supported",
            location=create.sql("athena")[:300],
            expected=f"format ({', '.join(DEFAULT_COMPRESSION)}), write_compression, partitioned_by, external_location",
        )
    writer = rows.write.format(file_format).partitionBy(*(column.name for column in partitions))
    writer.options(**options).saveAsTable(create.this.sql("spark"))
    return pandas.DataFrame()


def columns(spark: SparkSession, uri: str, file_format: str) -> dict[str, str]:
    """Return the columns of all files of a format in and below a folder.

    Returns:
        {column: its type in Athena's DDL}.
    """
    with translate_errors(spark, "the files cannot be read", uri, "inspect one of the files"):
        options = {"recursiveFileLookup": "true", "mergeSchema": "true"}
        reader = _ansi_session(spark).read.options(**options).format(file_format)
        return {
            field.name: field.dataType.simpleString().replace("timestamp_ntz", "timestamp")
            for field in reader.load(uri).schema.fields
        }


def select_where(view: str, condition: str) -> exp.Select:
    """Parse the query of the rows of a view that fulfill a condition in Athena's dialect.

    Raises:
        LakeError: the text is no condition on the rows of one table.
    """
    text = f"SELECT * FROM {view} WHERE (\n{condition}\n)"  # noqa: S608
    query, _ = dialect.parse_statement(text)
    clauses = {name for name, clause in query.args.items() if clause}
    is_condition = clauses == {"expressions", "from_", "where"}
    if not is_condition or len(list(query.find_all(exp.Query))) > 1:
        raise LakeError(
            "the text is not a condition on the rows of one table",
            location=condition[:200],
            expected="a condition without a subquery",
        )
    where = query.args["where"]
    where.set(
        "this", where.this.unnest()
    )  # Spark takes `view WHERE (true)` for an alias with columns
    return cast(exp.Select, query)


def rows_where(
    spark: SparkSession, query: exp.Select, read: Callable[[SparkSession], DataFrame]
) -> DataFrame:
    """Run a query of `select_where` in the sibling of a session with Athena's rules.

    Args:
        spark: the session.
        query: the query.
        read: returns all rows in a session.

    Raises:
        LakeError: the condition cannot be translated.
    """
    (view,) = query.find_all(exp.Table)
    ansi = _ansi_session(spark)
    rows = read(ansi)
    rows.createOrReplaceTempView(view.name)
    schema = dialect.new_schema()
    schema.add_table(_in_catalog(view), athena_types.column_types(rows.schema))
    return ansi.sql(dialect.to_spark_sql(query, schema))
