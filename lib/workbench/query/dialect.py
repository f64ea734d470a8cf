"""Translate Athena SQL (engine version 3, Trino's functions) to Spark SQL.

The module covers queries and the statements that create tables. sqlglot parses and generates both
dialects. The file `athena.txt` holds the Spark SQL of every function, operator and cast, because
sqlglot's own translation often differs in an edge case (a null, a type, an index). A call that
neither supports raises an error that quotes the call. Some entries have several forms, because the
translation depends on the types of the arguments, for example of a division. The first form that
Spark can analyze is used.
"""

import re
from typing import Any, Callable, Mapping, Optional

from sqlglot import ErrorLevel, exp, parse
from sqlglot.dialects.spark import Spark
from sqlglot.dialects.trino import Trino
from sqlglot.errors import SqlglotError
from sqlglot.generators.spark import SparkGenerator
from sqlglot.parsers.athena import AthenaTrinoParser

from ..base import LakeError, first_line
from . import athena_functions

# {node without function-call syntax: its name in athena.txt}
NODE_NAMES = {
    exp.Div: "operator /",
    exp.Bracket: "operator []",
    exp.If: "if",
    exp.ParseJSON: "json_parse",
    exp.StrPosition: "strpos",
    exp.CurrentTimestamp: "current_timestamp",
    exp.Localtimestamp: "localtimestamp",
}
# {target type of a cast: its name in athena.txt}
CAST_KINDS = {
    exp.DType.JSON: "json",
    exp.DType.TIMESTAMPTZ: "zoned",
    **dict.fromkeys(exp.DataType.SIGNED_INTEGER_TYPES, "whole"),
    **dict.fromkeys(exp.DataType.TEXT_TYPES, "text"),
    **dict.fromkeys(exp.DataType.NESTED_TYPES, "nested"),
}
# Types of Athena that Spark does not have
UNSUPPORTED_TYPES = {"TIME", "TIMETZ", "CHAR", "IPADDRESS", "IPPREFIX", "TDIGEST"}
ZONE_PATTERN = re.compile(r"[A-Za-z]{2}|Z$|:.*[+-]")  # a time zone in a timestamp literal
# Functions and table clauses (sqlglot's classes) that athena.txt or sqlglot translates correctly
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
# Entries of athena.txt that return the type JSON, which is a text in Spark
JSON_FUNCTIONS = ("json_parse", "json_extract", "cast to json")
USE_STATEMENT = re.compile(r"USE\b", re.I)
# Parts of a query in which a backtick has no meaning
QUOTED_OR_COMMENT = re.compile(r"'[^']*'|\"[^\"]*\"|--[^\n]*|/\*.*?\*/", re.S)
FAILED_QUERY_HINT = (
    "see whether the table is registered (hudi.register), its name has its database (database.table), and the "
    "column exists"
)
WINDOW_PLACEHOLDER = "\0"  # marks in generated SQL where FILTER and OVER go

LEADING_COMMENTS = re.compile(r"\A(\s*--[^\n]*\n|\s*/\*.*?\*/)*\s*", re.S)
# DDL with the same syntax in Athena and Spark
SHARED_STATEMENT = re.compile(
    r"(MSCK|SHOW|DESC(RIBE)?|DROP\s+(TABLE|DATABASE|SCHEMA)|CREATE\s+(DATABASE|SCHEMA))\b", re.I
)
CREATE_EXTERNAL_TABLE = re.compile(r"CREATE\s+EXTERNAL\s+TABLE\b", re.I)
UNLOAD_STATEMENT = re.compile(
    r"UNLOAD\s*\((.*)\)\s*TO\s*('[^']+')\s*WITH\s*\((.*)\)\s*;?\s*", re.I | re.S
)
# {storage format of CREATE EXTERNAL TABLE: its USING clause in Spark}
STORAGE_FORMATS = {
    "parquet": "PARQUET",
    "orc": "ORC",
    "org.openx.data.jsonserde.jsonserde": "JSON OPTIONS (mode 'FAILFAST')",
}


class AthenaDialect(Trino):
    """Parse Athena SQL without interpreting functions: each call keeps its own name."""

    INDEX_OFFSET = 0

    class Parser(AthenaTrinoParser):
        """A parser that interprets only calls with a special grammar."""

        FUNCTIONS: dict[str, Any] = {}  # type: ignore[misc] # sqlglot annotates it as an instance variable
        FUNCTION_PARSERS = {
            name: AthenaTrinoParser.FUNCTION_PARSERS[name]
            for name in ("CAST", "TRY_CAST", "EXTRACT", "TRIM", "POSITION")
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
        trees = parse(UNLOAD_STATEMENT.sub(create_as, text), read=AthenaDialect)
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


def require_values(names: set[str], values: Mapping[str, Any]) -> None:
    """Raise LakeError if the values do not match the `:name` placeholders of a query."""
    if names != set(values):
        raise LakeError(
            f"the query has placeholders for {sorted(names)}", location=f"values: {sorted(values)}"
        )


def to_spark_sql(tree: Any, type_check: Callable[[str], Any]) -> str:
    """Generate the Spark SQL of a tree that `parse_statement` returned.

    Args:
        tree: the tree of a query or statement.
        type_check: analyzes a Spark SQL text, and raises if its types do not fit.

    Raises:
        LakeError: a type, clause or function has no counterpart in Spark.
    """
    nodes = list(tree.walk(bfs=False))
    for node in nodes:
        _require_supported(node)
    # Innermost calls first. The calls around them use their last form, which accepts any type
    for call in reversed(nodes):
        _, forms = _match_function(call)
        if len(forms) > 1:
            _select_form(tree, call, len(forms), type_check)
    return _generate(tree)


def _require_supported(node: Any) -> None:
    if isinstance(node, exp.DataType) and node.this.name in UNSUPPORTED_TYPES:
        raise _unsupported(f"the type {node.sql(AthenaDialect)}", node.parent or node)
    is_function_or_clause = isinstance(
        node, (exp.Func, exp.Property, exp.Any, exp.All, exp.WithinGroup)
    )
    is_unknown_order = (
        isinstance(node, exp.Order)
        and isinstance(node.parent, exp.Anonymous)
        and not _ordered_signature(node.parent)
    )
    if (
        (is_function_or_clause and not isinstance(node, SUPPORTED_NODES))
        or is_unknown_order
        or node.args.get("with_ties")
    ):
        raise _unsupported("this clause", node)


def _select_form(tree: Any, call: Any, count: int, type_check: Callable[[str], Any]) -> None:
    """Set `form` in the call's metadata to the number of the first form that passes the type check.

    If no form passes, the last form is used, and the query fails with the error of that form.
    """
    for number in range(count):
        call.meta["form"] = number
        try:
            type_check(_generate(tree))
        except Exception:  # noqa: BLE001 - after any error the next form is tried
            continue
        return


def _unsupported(clause: str, node: Any) -> LakeError:
    return LakeError(
        f"{clause} cannot be translated to Spark",
        location=node.sql(AthenaDialect)[:300],
        hint="rewrite it with other functions, or use Spark directly: spark.sql(…)",
    )


def _generate(tree: Any) -> str:
    text: str = tree.sql(dialect=SparkDialect, unsupported_level=ErrorLevel.RAISE)
    return text.replace(WINDOW_PLACEHOLDER, "")


Signature = tuple[str, list[Any]]  # a name in athena.txt, and the arguments


def _signature(node: Any) -> Signature:
    """Return (name in athena.txt, arguments) of a node.

    The name is empty for syntax that is the same in both dialects.
    """
    if isinstance(node, exp.Anonymous):
        return _ordered_signature(node) or _call_signature(node)
    if isinstance(node, exp.Extract):
        return node.name.lower(), [node.expression]
    if isinstance(node, exp.Cast):
        return _cast_signature(node)
    if isinstance(node, exp.Unnest):
        return _unnest_signature(node)
    return NODE_NAMES.get(type(node), ""), list(node.iter_expressions())


def _call_signature(call: exp.Anonymous) -> Signature:
    name, arguments = call.name.lower(), list(call.iter_expressions())
    if arguments and isinstance(arguments[0], exp.Distinct):
        return f"distinct {name}", arguments[0].expressions + arguments[1:]
    return name, arguments


def _ordered_signature(call: exp.Anonymous) -> Optional[Signature]:
    """Return the signature of an aggregate whose rows are ordered by one expression.

    The arguments are the aggregated value, the expression, and two directions (see athena.txt).
    DISTINCT values can be ordered only by themselves, as in Athena. Returns None for other calls.
    """
    order = call.expressions[0] if len(call.expressions) == 1 else None
    if not isinstance(order, exp.Order) or len(order.expressions) != 1:
        return None
    key = order.expressions[0]
    name, values = f"ordered {call.name.lower()}", [order.this]
    if isinstance(order.this, exp.Distinct):
        name, values = f"ordered distinct {call.name.lower()}", order.this.expressions
        if values != [key.this]:
            return None
    if name not in athena_functions.FUNCTIONS:
        return None
    is_ascending, is_nulls_last = not key.args.get("desc"), not key.args.get("nulls_first")
    directions = [exp.Boolean(this=is_ascending == is_nulls_last), exp.Boolean(this=is_ascending)]
    return name, [*values, key.this, *directions]


def _cast_signature(cast: exp.Cast) -> Signature:
    kind = CAST_KINDS.get(cast.to.this, "other")
    is_timestamp_literal = cast.to.this == exp.DType.TIMESTAMP and cast.this.is_string
    if is_timestamp_literal and ZONE_PATTERN.search(cast.this.name):
        kind = "zoned"
    source, source_arguments = _signature(cast.this)
    verb = "try cast" if isinstance(cast, exp.TryCast) else "cast"
    name = f"{verb} json to {kind}" if source in JSON_FUNCTIONS else f"{verb} to {kind}"
    value = source_arguments[0] if source == "json_parse" else cast.this
    sizes = cast.to.expressions if kind == "text" else []
    return name, [value, cast.to, *sizes]


def _unnest_signature(unnest: exp.Unnest) -> Signature:
    alias, arguments = unnest.args.get("alias"), unnest.expressions
    if unnest.args.get("offset"):
        return "unnest numbered", arguments
    if len(arguments) == 1 and alias and len(alias.columns) > 1:
        return "unnest rows", arguments  # the fields of an array's rows, or the pairs of a map
    return "unnest", arguments


def _match_function(node: Any) -> tuple[dict[str, list[Any]], list[str]]:
    """Look up a node in athena.txt.

    Returns:
        ({argument name: arguments}, forms); both are empty for syntax that is the same in both
        dialects.
    """
    name, arguments = _signature(node)
    match = athena_functions.find(name, arguments)
    if match:
        return match
    if name:
        raise _unsupported(f"{name} of {len(arguments)} arguments", node)
    return {}, []


def _call_sql(self: SparkGenerator, node: Any) -> str:
    named, forms = _match_function(node)
    texts = {"over": WINDOW_PLACEHOLDER}
    for name, arguments in named.items():
        generate = LITERAL_CONVERTERS.get(name, self.sql)
        texts[name] = ", ".join(generate(argument) for argument in arguments)
    form = forms[node.meta.get("form", -1)]
    return re.sub(r"{(\w+)}", lambda match: texts[match[1]], form)


def _unnest_sql(self: SparkGenerator, node: Any) -> str:
    alias, number = node.args.get("alias"), node.args.get("offset")
    text = _call_sql(self, node)
    if isinstance(node.parent, exp.Join):
        text = f"LATERAL {text}"
    if alias and number:
        alias = exp.TableAlias(this=alias.this, columns=[*alias.columns, number])
    return f"{text} AS {self.sql(alias)}" if alias else text


def _window_sql(self: SparkGenerator, node: Any) -> str:
    """Generate FILTER or OVER after the aggregate in the Spark SQL, not after the whole form."""
    is_window = isinstance(node, exp.Window)
    text = SparkGenerator.window_sql(self, node) if is_window else self.filter_sql(node)
    inner = self.sql(node, "this")
    if WINDOW_PLACEHOLDER not in inner:
        return text
    return inner.replace(WINDOW_PLACEHOLDER, text[len(inner) :] + WINDOW_PLACEHOLDER)


class SparkDialect(Spark):
    """Generate Spark SQL by athena.txt."""

    class Generator(SparkGenerator):
        """A generator that looks up calls in athena.txt."""

        TYPE_MAPPING = {**SparkGenerator.TYPE_MAPPING, exp.DType.JSON: "STRING"}
        TRANSFORMS = {
            **SparkGenerator.TRANSFORMS,
            **dict.fromkeys(
                (exp.Anonymous, exp.Cast, exp.TryCast, exp.Extract, *NODE_NAMES), _call_sql
            ),
            exp.Unnest: _unnest_sql,
            exp.Filter: _window_sql,
            exp.Window: _window_sql,
        }
        del TRANSFORMS[exp.Select]  # it would rewrite UNNEST, which athena.txt translates


def _date_pattern_sql(pattern: Any) -> str:
    """Translate a date pattern of MySQL into one of Java.

    athena.txt has its specifiers as entries without arguments.
    """
    if not pattern.is_string or set(re.findall("%.?", pattern.name)) - set(
        athena_functions.FUNCTIONS
    ):
        raise _unsupported("this pattern", pattern)

    def to_java(match: re.Match[str]) -> str:
        if match[1]:
            return athena_functions.FUNCTIONS[match[1]][0].forms[0]
        return "'" + match[0].replace("'", "''") + "'"

    java = re.sub(r"(%.)|[A-Za-z'\[\]{}#]+", to_java, pattern.name)
    return exp.Literal.string(java).sql(Spark)


def _json_path_sql(path: Any) -> str:
    """Translate a JSON path of names, quoted names and indexes: Spark takes single quotes only."""
    if not path.is_string or not re.fullmatch(r'\$(\.[\w:-]+|\[\d+\]|\["[^"\']+"\])*', path.name):
        raise _unsupported("this path", path)
    return exp.Literal.string(path.name.replace('"', "'")).sql(Spark)


# {argument name in athena.txt: function that generates it}
LITERAL_CONVERTERS: dict[str, Callable[[Any], str]] = {
    "pattern": _date_pattern_sql,
    "path": _json_path_sql,
}
