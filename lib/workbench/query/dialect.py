"""Translate Athena SQL (engine version 3, Trino's functions) to Spark SQL.

The module covers queries and the statements that create tables. sqlglot parses and generates both
dialects (see `sqlglot_dialects`). `athena_types` infers the types on which the translation depends, for
example of a division. A call that is not supported raises an error that quotes the call.
"""

import re
from collections.abc import Mapping
from typing import Any, Optional

from sqlglot import ErrorLevel, Token, exp, parse
from sqlglot.dialects.trino import Trino
from sqlglot.errors import SqlglotError
from sqlglot.schema import MappingSchema, Schema

from ..base import LakeError, first_line
from . import athena_types, sqlglot_dialects
from .athena_functions import FUNCTIONS, TYPED_FUNCTIONS, WINDOW_PLACEHOLDER

# Types of Athena that Spark does not have
UNSUPPORTED_TYPES = {"TIME", "TIMETZ", "CHAR", "IPADDRESS", "IPPREFIX", "TDIGEST"}
# Functions and table clauses (sqlglot's classes) that are part of the grammar and are supported
SUPPORTED_NODES = (
    exp.Anonymous,
    exp.Array,
    exp.Case,
    exp.Cast,
    exp.Connector,
    exp.CurrentDate,
    exp.CurrentTimestamp,
    exp.Exists,
    exp.Extract,
    exp.If,
    exp.Localtimestamp,
    exp.ParseJSON,
    exp.StrPosition,
    exp.Trim,
    exp.Unnest,
    exp.FileFormatProperty,
    exp.PartitionedByProperty,
    exp.LocationProperty,
    exp.SchemaCommentProperty,
)
# Aggregates of which DISTINCT is supported
DISTINCT_FUNCTIONS = ("array_agg", "avg", "count", "sum")
USE_STATEMENT = re.compile(r"USE\b", re.I)
# Parts of a query in which a backtick has no meaning
QUOTED_OR_COMMENT = re.compile(r"'[^']*'|\"[^\"]*\"|--[^\n]*|/\*.*?\*/", re.S)
FAILED_QUERY_HINT = (
    "see whether the table is registered (hudi.register), its name has its database (database.table), and the "
    "column exists"
)
LEADING_COMMENTS = re.compile(r"\A(\s*--[^\n]*\n|\s*/\*.*?\*/)*\s*", re.S)
# DDL with the same syntax in Athena and Spark
SHARED_STATEMENT = re.compile(
    r"(MSCK|SHOW|DESC(RIBE)?|DROP\s+(TABLE|DATABASE|SCHEMA)|CREATE\s+(DATABASE|SCHEMA))\b", re.I
)
CREATE_EXTERNAL_TABLE = re.compile(r"CREATE\s+EXTERNAL\s+TABLE\b", re.I)
# Statements without placeholders
DDL_STATEMENT = re.compile(
    rf"{SHARED_STATEMENT.pattern}|{CREATE_EXTERNAL_TABLE.pattern}|ALTER\b", re.I
)
UNLOAD_STATEMENT = re.compile(
    r"UNLOAD\s*\((.*)\)\s*TO\s*('[^']+')\s*WITH\s*\((.*)\)\s*;?\s*", re.I | re.S
)
# {storage format of CREATE EXTERNAL TABLE: its USING clause in Spark}
STORAGE_FORMATS = {
    "parquet": "PARQUET",
    "orc": "ORC",
    "org.openx.data.jsonserde.jsonserde": "JSON OPTIONS (mode 'FAILFAST')",
}


def parse_statement(text: str) -> tuple[Any, Optional[exp.Create]]:
    """Parse one statement in Athena's dialect.

    Returns:
        (tree of the query, or of a statement that Spark has, too; CREATE TABLE … AS around the query,
        else None). An UNLOAD is returned as a CREATE TABLE without a name.

    Raises:
        LakeError: the text is not one of these statements.
    """
    text = LEADING_COMMENTS.sub("", text)
    if USE_STATEMENT.match(text):
        raise LakeError(
            "Athena has no statement USE",
            location=text[:200],
            expected="database.table for each table; a name without a database is looked up in the "
            "database `default`",
            hint="write the database in front of each table's name",
        )
    if SHARED_STATEMENT.match(text):
        return exp.Command(this=text), None
    try:
        if CREATE_EXTERNAL_TABLE.match(text):
            return _parse_external_table(text), None
        create_as = r'CREATE TABLE "" WITH (external_location = \2, \3) AS \1'
        trees = parse(UNLOAD_STATEMENT.sub(create_as, text), read=sqlglot_dialects.AthenaDialect)
    except SqlglotError as e:
        if "`" in QUOTED_OR_COMMENT.sub("", text):
            raise LakeError(
                "the query is not Athena SQL: a backtick (`) does not quote a name in a query",
                location=text[:200],
                expected='"name" (backticks quote names in DDL only, such as CREATE EXTERNAL TABLE)',
                hint='replace each `name` by "name"',
            ) from None
        raise LakeError(
            f"the query is not Athena SQL: {first_line(e)}", location=text[:200]
        ) from None
    tree = trees[0]
    create = tree if isinstance(tree, exp.Create) and tree.kind == "TABLE" else None
    query = create.expression if create else tree
    if len(trees) > 1 or not isinstance(query, exp.Query):
        raise LakeError(
            "the text is not one statement of the kinds that query.sql supports",
            location=text[:200],
            hint="statements that change rows are for spark.sql, in Spark's own dialect",
        )
    return query, create


def _parse_external_table(text: str) -> exp.Create:
    """Parse CREATE EXTERNAL TABLE into Spark's CREATE TABLE … USING.

    Such a table resolves columns by name and knows only registered partitions, as Athena's does.
    """
    tree, *more_trees = parse(CREATE_EXTERNAL_TABLE.sub("CREATE TABLE", text), read="hive")
    assert isinstance(tree, exp.Create)
    storage = tree.find(exp.RowFormatSerdeProperty, exp.FileFormatProperty) or exp.Property()
    if (
        more_trees
        or storage.name.lower() not in STORAGE_FORMATS
        or storage.args.get("serde_properties")
        or not tree.find(exp.LocationProperty)
    ):
        raise LakeError(
            "the statement does not create one table of files: such a table has STORED AS PARQUET or ORC, or the "
            f"ROW FORMAT SERDE of JSON without properties ({', '.join(STORAGE_FORMATS)}), and LOCATION",
            location=text[:500],
        )
    using = exp.FileFormatProperty(this=exp.var(STORAGE_FORMATS[storage.pop().name.lower()]))
    tree.args["properties"].set("expressions", [using, *tree.args["properties"].expressions])
    return tree


def placeholders(text: str) -> list[Token]:
    """Return the names of the `:name` placeholders outside quotes and comments, as tokens.

    DDL has none.

    Raises:
        LakeError: the text is not SQL.
    """
    if DDL_STATEMENT.match(LEADING_COMMENTS.sub("", text)):
        return []
    try:
        tokens = Trino().tokenize(text)
    except SqlglotError as e:
        message = f"the query is not Athena SQL: {first_line(e)}"
        raise LakeError(message, location=text[:200]) from None
    return [
        name
        for colon, name in zip(tokens, tokens[1:])
        if colon.text == ":" and colon.start == colon.end == name.start - 1
    ]


def require_values(names: set[str], values: Mapping[str, Any]) -> None:
    """Raise LakeError if the values do not match the `:name` placeholders of a query."""
    if names != set(values):
        raise LakeError(
            f"the query has placeholders for {sorted(names)}", location=f"values: {sorted(values)}"
        )


def new_schema() -> MappingSchema:
    """Return an empty schema, for tables with catalog and database."""
    return MappingSchema(dialect=sqlglot_dialects.AthenaDialect)


def to_spark_sql(
    tree: exp.Expr,
    schema: Optional[Schema] = None,
    values: Optional[Mapping[str, Any]] = None,
) -> str:
    """Generate the Spark SQL of a tree that `parse_statement` returned.

    Args:
        tree: the tree of a query or statement.
        schema: a `new_schema` with the columns of the query's tables.
        values: the values of the placeholders, for their types.

    Raises:
        LakeError: a type, clause or function has no counterpart in Spark, or the translation
            depends on a type that is unknown.
    """
    for node in tree.walk(bfs=False):
        _require_supported(node)
    if tree.find(exp.Anonymous, exp.Div, exp.Unnest):
        athena_types.annotate(tree, schema or new_schema(), values or {})
    try:
        text = tree.sql(dialect=sqlglot_dialects.SparkDialect, unsupported_level=ErrorLevel.RAISE)
    except SqlglotError as e:
        raise LakeError(
            f"the query cannot be translated to Spark: {first_line(e)}",
            location=tree.sql(sqlglot_dialects.AthenaDialect)[:300],
        ) from None
    return text.replace(WINDOW_PLACEHOLDER, "")


def _require_supported(node: Any) -> None:
    if isinstance(node, exp.DataType) and node.this.name in UNSUPPORTED_TYPES:
        raise sqlglot_dialects.unsupported(
            f"the type {node.sql(sqlglot_dialects.AthenaDialect)}", node.parent or node
        )
    if isinstance(node, exp.Anonymous) and node.name.lower() not in {
        **FUNCTIONS,
        **TYPED_FUNCTIONS,
    }:
        raise sqlglot_dialects.wrong_arguments(node.name.lower(), node.expressions, node)
    if isinstance(node, exp.Distinct) and isinstance(node.parent, exp.Func):
        name = _function_name(node.parent)
        if name not in DISTINCT_FUNCTIONS:
            raise sqlglot_dialects.wrong_arguments(
                f"distinct {name}", node.expressions, node.parent
            )
    is_function_or_clause = isinstance(
        node, (exp.Func, exp.Property, exp.Any, exp.All, exp.WithinGroup)
    )
    is_supported = isinstance(node, SUPPORTED_NODES) or sqlglot_dialects.NAME_KEY in node.meta
    is_unknown_order = (
        isinstance(node, exp.Order)
        and isinstance(node.parent, exp.Func)
        and not _is_ordered_array_agg(node.parent, node)
    )
    if (
        (is_function_or_clause and not is_supported)
        or is_unknown_order
        or node.args.get("with_ties")
    ):
        raise sqlglot_dialects.unsupported("this clause", node)


def _function_name(call: exp.Expr) -> str:
    return str(call.meta.get(sqlglot_dialects.NAME_KEY) or call.name).lower()


def _is_ordered_array_agg(call: exp.Expr, order: exp.Order) -> bool:
    """Whether a call is array_agg by one expression; of DISTINCT values, by themselves."""
    is_by_value = not isinstance(order.this, exp.Distinct) or order.this.expressions == [
        key.this for key in order.expressions
    ]
    return (
        call.name.lower() == "array_agg"
        and len(call.expressions) == len(order.expressions) == 1
        and is_by_value
    )
