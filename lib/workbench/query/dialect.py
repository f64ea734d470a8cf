"""Translate Athena SQL (engine version 3, Trino's functions) to Spark SQL.

The module covers queries and the statements that create tables. sqlglot parses and generates both
dialects (see `sqlglot_dialects`). `athena_types` infers the types on which the translation depends, for
example of a division. A clause or function that is not known to mean the same raises an error that
quotes it.
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
from .athena_functions import WINDOW_PLACEHOLDER

# Types of Athena that Spark does not have
UNSUPPORTED_TYPES = {"TIME", "TIMETZ", "CHAR", "IPADDRESS", "IPPREFIX", "TDIGEST"}
# sqlglot's names of the clauses that mean the same in both, or are translated; the last ones are those of CREATE
# EXTERNAL TABLE. sqlglot parses more than Athena takes
SUPPORTED_CLAUSES = frozenset(
    """
    Add Alias And Anonymous Array AtTimeZone Between Boolean Bracket CTE Case Cast Column ColumnDef
    CurrentDate CurrentTimestamp DPipe DataType DataTypeParam Distinct Div Dot EQ Escape Except Exists Extract
    Fetch Filter From GT GTE Group Cube GroupingSets Having HexString Identifier If IgnoreNulls In Intersect
    Interval IntervalSpan Is Join LT LTE Lambda Like Limit LimitOptions Literal Localtimestamp Mod Mul NEQ Neg
    Not Null NullSafeEQ NullSafeNEQ Offset Or Order Ordered Paren Placeholder RespectNulls Rollup Select Star
    StrPosition Struct Sub Subquery Substring Table TableAlias Trim TryCast Tuple UnicodeString Union Unnest
    Values Var Version Where Window WindowSpec With
    ColumnConstraint CommentColumnConstraint Create FileFormatProperty LocationProperty NotNullColumnConstraint
    PartitionedByProperty Properties Schema SchemaCommentProperty
    """.split()
)
# {clause: its parts that mean the same in both}
SUPPORTED_PARTS = {
    "Select": "with_ expressions distinct from_ joins laterals where group having windows order limit offset",
    "Table": "this alias db catalog joins laterals version",
    "Star": "",
    "HexString": "this",
    "Distinct": "expressions",
    "Join": "this on side kind using",
}
# What a condition on one table may have: each engine that runs it has the same result
CONDITION_CLAUSES = frozenset(
    """
    Add And Anonymous Between Boolean Cast Column DataType DataTypeParam EQ Escape GT GTE Identifier In Is LT
    LTE Like Literal Mul NEQ Neg Not Null NullSafeEQ NullSafeNEQ Or Paren Sub
    """.split()
)
CONDITION_FUNCTIONS = ("abs", "coalesce", "length")
CONDITION_TYPES = (exp.DType.DATE, exp.DType.TIMESTAMP, exp.DType.DECIMAL)
JOIN_KINDS = ("", "INNER", "OUTER", "CROSS")
TOO_DEEP = "the query is nested too deeply"
# {statement that is not supported: what to do}
OTHER_STATEMENTS = {
    "USE": "write the database in front of each table's name (database.table), as Athena requires",
    "UNLOAD": "CREATE TABLE … WITH (external_location = …) AS SELECT writes files, too",
}
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
# Statements on databases are accepted in this form only: nothing in it can hide a location from the check
SIMPLE_TEXT = r"'[^'\\]*'"
DATABASE_STATEMENT = re.compile(
    r"(?:CREATE\s+(?:DATABASE|SCHEMA)(?:\s+IF\s+NOT\s+EXISTS)?|(?P<drop>DROP)\s+(?:DATABASE|SCHEMA)(?:\s+IF\s+EXISTS)?)"
    r"""\s+(?P<quote>[`"]?)(?P<name>\w+)(?P=quote)"""
    rf"(?:\s+COMMENT\s+{SIMPLE_TEXT})?(?P<location>\s+LOCATION\s+{SIMPLE_TEXT})?(?:\s+(?:CASCADE|RESTRICT))?\s*;?\s*",
    re.I | re.A,
)
OTHER_NUMBER = re.compile(r"(?<![\w.])(0[xob][0-9a-f]|[0-9]+_)\w*", re.I)
CREATE_EXTERNAL_TABLE = re.compile(r"CREATE\s+EXTERNAL\s+TABLE\b", re.I)
# Statements without placeholders
DDL_STATEMENT = re.compile(
    rf"{SHARED_STATEMENT.pattern}|{CREATE_EXTERNAL_TABLE.pattern}|ALTER\b", re.I
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
        else None).

    Raises:
        LakeError: the text is not one of these statements.
    """
    text = LEADING_COMMENTS.sub("", text)
    statement = text.partition(" ")[0].upper()
    if statement in OTHER_STATEMENTS:
        raise LakeError(
            f"query.sql has no statement {statement}",
            location=text[:200],
            hint=OTHER_STATEMENTS[statement],
        )
    if SHARED_STATEMENT.match(text):
        _require_known_form(text)
        return exp.Command(this=text), None
    number = OTHER_NUMBER.search(QUOTED_OR_COMMENT.sub("''", text))
    if number:
        raise LakeError(
            f"{number[0]} is not translated",
            location=text[:200],
            expected="a number of decimal digits only",
        )
    try:
        if CREATE_EXTERNAL_TABLE.match(text):
            return _parse_external_table(text), None
        trees = parse(text, read=sqlglot_dialects.AthenaDialect)
    except RecursionError:
        raise LakeError(TOO_DEEP, location=text[:200]) from None
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


def _require_known_form(text: str) -> None:
    """Raise LakeError if a statement on a database is not in the form that is checked."""
    if not re.match(r"(CREATE|DROP)\s+(DATABASE|SCHEMA)\b", text, re.I):
        return
    match = DATABASE_STATEMENT.fullmatch(text)
    if not match:
        raise LakeError(
            "this form of the statement on a database is not supported",
            location=text[:200],
            expected="CREATE DATABASE [IF NOT EXISTS] name [COMMENT 'text'], DROP DATABASE [IF EXISTS] name [CASCADE]: "
            "a name without catalog, no comments, no backslash",
        )
    if match["location"]:
        raise LakeError(
            "CREATE DATABASE with LOCATION is not supported: DROP DATABASE … CASCADE would remove that folder",
            location=text[:200],
            hint="leave LOCATION out: the database gets a folder of its own in the lake",
        )


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
    if not isinstance(tree, exp.Command):
        for node in tree.walk(bfs=False):
            _require_supported(node)
    try:
        if tree.find(*athena_types.TYPED_NODES):
            athena_types.annotate(tree, schema or new_schema(), values or {})
        text = tree.sql(dialect=sqlglot_dialects.SparkDialect, unsupported_level=ErrorLevel.RAISE)
    except RecursionError:
        raise LakeError(TOO_DEEP) from None
    except SqlglotError as e:
        raise LakeError(
            f"the query cannot be translated to Spark: {first_line(e)}",
            location=tree.sql(sqlglot_dialects.AthenaDialect)[:300],
        ) from None
    return text.replace(WINDOW_PLACEHOLDER, "")


def _require_supported(node: exp.Expr) -> None:
    """Raise LakeError if a part of a statement is not known to mean the same in Spark."""
    name = type(node).__name__
    if isinstance(node, exp.DataType) and node.this.name in UNSUPPORTED_TYPES:
        raise sqlglot_dialects.unsupported(f"the type {node.this.name}", node.parent or node)
    if isinstance(node, exp.Predicate) and not node.args.get("query"):
        if any(_is_row_or_array(side.unnest()) for side in node.iter_expressions()):
            raise sqlglot_dialects.unsupported("a comparison of arrays or rows", node)
    parts = {part for part, value in node.args.items() if value not in (None, False, [], "")}
    supported_parts = SUPPORTED_PARTS.get(name, " ".join(parts)).split()
    is_supported = name in SUPPORTED_CLAUSES and parts <= set(supported_parts)
    if not is_supported or _means_something_else(node):
        raise sqlglot_dialects.unsupported(f"this clause ({name})", node)


def _is_row_or_array(node: exp.Expr) -> bool:
    is_call = isinstance(node, exp.Anonymous) and node.name.lower() == "row"
    return is_call or isinstance(node, (exp.Array, exp.Struct, exp.Tuple))


def _means_something_else(node: exp.Expr) -> bool:
    """Whether a clause has a form that means something else in Spark, or does not exist there."""
    if isinstance(node, exp.Join):
        return node.kind not in JOIN_KINDS
    if isinstance(node, exp.Values):
        return isinstance(node.parent, exp.In)
    if isinstance(node, exp.Order):  # of an aggregate
        return isinstance(node.parent, exp.Anonymous)
    if isinstance(node, exp.WindowSpec):
        ends = (node.args.get("start"), node.args.get("end"))
        return node.args.get("kind") == "GROUPS" or any(isinstance(e, exp.Interval) for e in ends)
    return bool(node.args.get("with_ties"))


def parse_condition(text: str) -> exp.Expr:
    """Parse a condition on the rows of one table.

    Returns:
        A tree of clauses that mean the same in Athena, DuckDB and Spark.

    Raises:
        LakeError: the text is no condition, or has another clause.
    """
    try:
        tree = exp.condition(text, dialect=sqlglot_dialects.AthenaDialect)
    except (SqlglotError, RecursionError) as e:
        raise LakeError(f"{text[:200]!r} is not a condition in SQL: {first_line(e)}") from None
    for node in tree.walk():
        # DECIMAL without digits has three decimal places in DuckDB, none in Athena
        is_other_cast = isinstance(node, exp.Cast) and (
            node.to.this not in CONDITION_TYPES
            or (node.to.this == exp.DType.DECIMAL and not node.to.expressions)
        )
        is_escape = isinstance(node, exp.Like) and (
            not node.expression.is_string or "\\" in node.expression.name
        )
        is_query = isinstance(node, exp.In) and node.args.get("query")
        is_other_call = (
            isinstance(node, exp.Anonymous) and node.name.lower() not in CONDITION_FUNCTIONS
        )
        is_clause = type(node).__name__ in CONDITION_CLAUSES
        if not is_clause or is_other_call or is_other_cast or is_escape or is_query:
            raise LakeError(
                f"{node.sql(sqlglot_dialects.AthenaDialect)[:200]!r} is not supported in where=",
                location=text[:200],
                expected="comparisons, LIKE, IN, BETWEEN, IS NULL, AND, OR, NOT, + - *, length, coalesce, "
                "abs, dates, and CAST to DATE, TIMESTAMP and DECIMAL(p, s)",
                hint="query.sql(world, 'SELECT … FROM … WHERE …') takes any condition of Athena",
            )
    for kind in tree.find_all(exp.DataType):
        if kind.is_type(exp.DType.TIMESTAMP):
            kind.set("expressions", None)  # DuckDB has no sizes there
    return tree
