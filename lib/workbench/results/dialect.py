"""Athena's dialect (engine version 3: Trino's functions) to Spark's: queries, and statements that
make tables.

sqlglot knows the grammar of both. What a function, an operator or a cast becomes stands in one
table, `athena.txt`: sqlglot's own counterparts often differ in an edge (a null, a type, an index).
What is in neither is an error that quotes it. Where the answer depends on types, as that of a
division does, the table has several forms; Spark is asked.
"""

import contextlib
import re
from pathlib import Path
from typing import Any, Callable, Mapping, Optional

from sqlglot import ErrorLevel, exp, parse
from sqlglot.dialects.spark import Spark
from sqlglot.dialects.trino import Trino
from sqlglot.errors import SqlglotError
from sqlglot.generators.spark import SparkGenerator
from sqlglot.parsers.athena import AthenaTrinoParser

from ..base import LakeError, first_line

FUNCTIONS: dict[
    str, list[tuple[list[str], list[str]]]
] = {}  # name: its lines, each the arguments' names and the texts
_shared: dict[str, str] = {}  # $name: the text that stands for it in the lines below
for _line in Path(__file__).with_name("athena.txt").read_text(encoding="utf-8").splitlines():
    _head, _arrow, _texts = _line.partition(" -> ")
    _name, _, _names = _head.rstrip(")").partition("(")
    for _part, _generate in _shared.items():
        _texts = _texts.replace(_part, _generate)
    if _line.startswith("$"):
        _part, _, _generate = _line.partition(" = ")
        _shared[_part] = _generate
    elif _arrow:
        FUNCTIONS.setdefault(_name, []).append(
            (_names.split(", ") if _names else [], _texts.split(" ;; "))
        )
    elif not _line.startswith("#"):
        FUNCTIONS.update(
            {name: [(["*args"], [f"{name.upper()}({{args}})"])] for name in _line.split()}
        )

NODE_NAMES = {
    exp.Div: "operator /",
    exp.Bracket: "operator []",
    exp.If: "if",
    exp.ParseJSON: "json_parse",
    exp.StrPosition: "strpos",
    exp.CurrentTimestamp: "current_timestamp",
    exp.Localtimestamp: "localtimestamp",
}  # of the grammar what is in the table
CAST_KINDS = {
    exp.DType.JSON: "json",
    exp.DType.TIMESTAMPTZ: "zoned",
    **dict.fromkeys(exp.DataType.SIGNED_INTEGER_TYPES, "whole"),  # what a cast is to
    **dict.fromkeys(exp.DataType.TEXT_TYPES, "text"),
    **dict.fromkeys(exp.DataType.NESTED_TYPES, "nested"),
}
# Of Athena's types those that Spark lacks
UNSUPPORTED_TYPES = (
    exp.DType.TIME,
    exp.DType.TIMETZ,
    exp.DType.CHAR,
    exp.DType.IPADDRESS,
    exp.DType.IPPREFIX,
    exp.DType.TDIGEST,
)
ZONE_PATTERN = re.compile(
    r"[A-Za-z]{2}|Z$|:.*[+-]"
)  # within a literal of a timestamp: it names a time zone
# Of what sqlglot calls functions, and of a table's clauses, those whose counterpart is right, in
# Spark or in the table
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
JSON_FUNCTIONS = (
    "json_parse",
    "json_extract",
    "cast to json",
)  # what makes a value of that type, here a text
USE_STATEMENT = re.compile(r"USE\b", re.I)
QUOTED_OR_COMMENT = re.compile(
    r"'[^']*'|\"[^\"]*\"|--[^\n]*|/\*.*?\*/", re.S
)  # where a backtick is text
FAILED_QUERY_HINT = (
    "see whether the table is registered (hudi.register), its name has its database (database.table), and the "
    "column exists"
)  # of a query that failed
WINDOW_PLACEHOLDER = "\0"  # within a form: where FILTER and OVER go

LEADING_COMMENTS = re.compile(r"\A(\s*--[^\n]*\n|\s*/\*.*?\*/)*\s*", re.S)  # comments
# Athena's DDL in words that are Spark's, too
SHARED_STATEMENT = re.compile(
    r"(MSCK|SHOW|DESC(RIBE)?|DROP\s+(TABLE|DATABASE|SCHEMA)|CREATE\s+(DATABASE|SCHEMA))\b", re.I
)
CREATE_EXTERNAL_TABLE = re.compile(r"CREATE\s+EXTERNAL\s+TABLE\b", re.I)
UNLOAD_STATEMENT = re.compile(
    r"UNLOAD\s*\((.*)\)\s*TO\s*('[^']+')\s*WITH\s*\((.*)\)\s*;?\s*", re.I | re.S
)
# What of CREATE EXTERNAL TABLE says the format, as Spark's USING
STORAGE_FORMATS = {
    "parquet": "PARQUET",
    "orc": "ORC",
    "org.openx.data.jsonserde.jsonserde": "JSON OPTIONS (mode 'FAILFAST')",
}


class AthenaDialect(Trino):
    """The grammar of what is read. No function is known to it: each call stays what is written."""

    INDEX_OFFSET = 0

    class Parser(AthenaTrinoParser):
        FUNCTIONS: dict = {}
        FUNCTION_PARSERS = {
            name: AthenaTrinoParser.FUNCTION_PARSERS[name]
            for name in ("CAST", "TRY_CAST", "EXTRACT", "TRIM", "POSITION")
        }


def parse_statement(text: str) -> tuple[Any, Optional[exp.Create]]:
    """The tree of a query, or of a statement that Spark has, too; and the CREATE TABLE … AS of
    which a query is part; an UNLOAD is one whose table has no name. Raises LakeError: it is none of
    them.
    """
    text = LEADING_COMMENTS.sub("", text)
    if USE_STATEMENT.match(text):
        raise LakeError(
            "Athena has no statement USE",
            location=text[:200],
            expected="database.table for each table; a "
            "name without a database is looked up in the database `default`",
            hint="write the database in front of each table's name",
        )
    if SHARED_STATEMENT.match(text):
        return exp.Command(this=text), None
    try:
        if CREATE_EXTERNAL_TABLE.match(text):
            return _parse_external_table(text), None
        trees = parse(
            UNLOAD_STATEMENT.sub(r'CREATE TABLE "" WITH (external_location = \2, \3) AS \1', text),
            read=AthenaDialect,
        )
    except SqlglotError as e:
        if "`" in QUOTED_OR_COMMENT.sub("", text):
            raise LakeError(
                "the query is not Athena SQL: a backtick (`) quotes no name in it",
                location=text[:200],
                expected='"name" (backticks quote names in DDL only, such as CREATE EXTERNAL TABLE)',
                hint='replace each `name` by "name"',
            ) from None
        raise LakeError(
            f"the query is not Athena SQL: {first_line(e)}", location=text[:200]
        ) from None
    create = trees[0] if isinstance(trees[0], exp.Create) and trees[0].kind == "TABLE" else None
    query = create.expression if create else trees[0]
    if len(trees) > 1 or not isinstance(query, exp.Query):
        raise LakeError(
            "this is not one statement of those that query.sql has",
            location=text[:200],
            hint="what changes rows is for spark.sql, in Spark's own dialect",
        )
    return query, create


def _parse_external_table(text: str) -> Any:
    """CREATE EXTERNAL TABLE as Spark's CREATE TABLE … USING: such a table finds columns by their
    names, and knows the partitions that it was told of, as Athena's does.
    """
    tree, *more = parse(CREATE_EXTERNAL_TABLE.sub("CREATE TABLE", text), read="hive")
    stored = tree.find(exp.RowFormatSerdeProperty, exp.FileFormatProperty) or exp.Property()
    if (
        more
        or stored.name.lower() not in STORAGE_FORMATS
        or stored.args.get("serde_properties")
        or not tree.find(exp.LocationProperty)
    ):
        raise LakeError(
            "this is not one table of files: that has STORED AS PARQUET or ORC, or the ROW FORMAT SERDE of "
            f"JSON without properties ({', '.join(STORAGE_FORMATS)}), and LOCATION",
            location=text[:500],
        )
    using = exp.FileFormatProperty(this=exp.var(STORAGE_FORMATS[stored.pop().name.lower()]))
    tree.args["properties"].set("expressions", [using, *tree.args["properties"].expressions])
    return tree


def require_values(named: set[str], values: Mapping[str, Any]) -> None:
    """Raise LakeError where a query names other values than it is given."""
    if named != set(values):
        raise LakeError(
            f"the query names the values {sorted(named)}", location=f"{sorted(values)} are given"
        )


def to_spark_sql(tree: Any, type_check: Callable[[str], Any]) -> str:
    """The Spark SQL of what was read.

    Args:
        ask: gives a text to Spark; raises where its types do not fit.

    Raises:
        LakeError: a clause has no counterpart.
    """
    nodes = list(tree.walk(bfs=False))
    for node in nodes:
        if isinstance(node, exp.DataType) and node.this in UNSUPPORTED_TYPES:
            raise _unsupported(f"the type {node.sql(AthenaDialect)}", node.parent or node)
        if (
            isinstance(node, (exp.Func, exp.Property, exp.Any, exp.All, exp.WithinGroup))
            and not isinstance(node, SUPPORTED_NODES)
            or isinstance(node, exp.Order)
            and isinstance(node.parent, exp.Anonymous)
            and not _ordered_signature(node.parent)
            or node.args.get("with_ties")
        ):
            raise _unsupported("this clause", node)
    # From within; those around take any types meanwhile, in their last form
    for call in [node for node in reversed(nodes) if len(_match_function(node)[1]) > 1]:
        for call.meta["form"] in range(len(_match_function(call)[1])):  # noqa: B020
            with contextlib.suppress(Exception):  # if no form fits, the error is that of the last
                type_check(_generate(tree))
                break
    return _generate(tree)


def _unsupported(what: str, node: Any) -> LakeError:
    return LakeError(
        f"{what} cannot be translated to Spark",
        location=node.sql(AthenaDialect)[:300],
        hint="write it with other means, or ask Spark itself: spark.sql(…)",
    )


def _generate(tree: Any) -> str:
    return tree.sql(dialect=SparkDialect, unsupported_level=ErrorLevel.RAISE).replace(
        WINDOW_PLACEHOLDER, ""
    )


def _signature(node: Any) -> tuple[str, list[Any]]:
    """What the table is asked for: a name, and the arguments. No name: the node is grammar that is
    right as it is.
    """
    arguments = list(node.iter_expressions())
    if isinstance(node, exp.Anonymous):
        if _ordered_signature(node):
            return _ordered_signature(node)
        if arguments and isinstance(arguments[0], exp.Distinct):
            return f"distinct {node.name.lower()}", arguments[0].expressions + arguments[1:]
        return node.name.lower(), arguments
    if isinstance(node, exp.Extract):
        return node.name.lower(), [node.expression]
    if isinstance(node, exp.Cast):
        kind, (made, of) = CAST_KINDS.get(node.to.this, "other"), _signature(node.this)
        if (
            node.to.this == exp.DType.TIMESTAMP
            and node.this.is_string
            and ZONE_PATTERN.search(node.this.name)
        ):
            kind = "zoned"
        name = f"{'try ' * isinstance(node, exp.TryCast)}cast {'json ' * (made in JSON_FUNCTIONS)}to {kind}"
        sizes = node.to.expressions if kind == "text" else []
        return name, [of[0] if made == "json_parse" else node.this, node.to, *sizes]
    if isinstance(node, exp.Unnest):
        alias, arguments = node.args.get("alias"), node.expressions
        rows = (
            len(arguments) == 1 and alias and len(alias.columns) > 1
        )  # of an array, or the pairs of a map
        return "unnest numbered" if node.args.get(
            "offset"
        ) else "unnest rows" if rows else "unnest", arguments
    return NODE_NAMES.get(type(node), ""), arguments


def _ordered_signature(call: exp.Anonymous) -> Optional[tuple[str, list[Any]]]:
    """What the table is asked for an aggregate whose rows are ordered by one expression: its name
    there; the argument, the expression and two directions (see the table). None for other calls. Of
    DISTINCT values the order must be that of the values themselves, as in Athena.
    """
    order = call.expressions[0] if len(call.expressions) == 1 else None
    if not isinstance(order, exp.Order) or len(order.expressions) != 1:
        return None
    key, distinct = order.expressions[0], isinstance(order.this, exp.Distinct)
    values = order.this.expressions if distinct else [order.this]
    name = f"ordered {'distinct ' * distinct}{call.name.lower()}"
    if name not in FUNCTIONS or distinct and values != [key.this]:
        return None
    up, last = not key.args.get("desc"), not key.args.get("nulls_first")
    return name, [*values, key.this, exp.Boolean(this=up == last), exp.Boolean(this=up)]


def _match_function(node: Any) -> tuple[dict[str, list[Any]], list[str]]:
    """What the table has for a node: its arguments by their names there, and the forms; nothing for
    grammar.
    """
    name, arguments = _signature(node)
    for names, forms in FUNCTIONS.get(name, []):
        fits = (
            len(arguments) >= len(names) - 1
            if names[-1:] == ["*args"]
            else len(arguments) == len(names)
        )
        if fits and all(n[0] != "'" or n == a.sql().lower() for n, a in zip(names, arguments)):
            return {
                **{n: [a] for n, a in zip(names, arguments)},
                "args": arguments[len(names) - 1 :],
            }, forms
    if name:
        raise _unsupported(f"{name} of {len(arguments)} arguments", node)
    return {}, []


def _call_sql(self: SparkGenerator, node: Any) -> str:
    given, forms = _match_function(node)
    texts = {
        name: ", ".join(LITERAL_CONVERTERS.get(name, self.sql)(argument) for argument in arguments)
        for name, arguments in given.items()
    }
    return re.sub(
        r"{(\w+)}",
        lambda found: {**texts, "over": WINDOW_PLACEHOLDER}[found[1]],
        forms[node.meta.get("form", -1)],
    )


def _unnest_sql(self: SparkGenerator, node: Any) -> str:
    alias, number = node.args.get("alias"), node.args.get("offset")
    text = ("LATERAL " if isinstance(node.parent, exp.Join) else "") + _call_sql(self, node)
    if alias and number:
        alias = exp.TableAlias(this=alias.this, columns=[*alias.columns, number])
    return f"{text} AS {self.sql(alias)}" if alias else text


def _window_sql(self: SparkGenerator, node: Any) -> str:
    """FILTER and OVER stand behind Spark's own aggregate, wherever its form has that."""
    plain = SparkGenerator.window_sql if isinstance(node, exp.Window) else SparkGenerator.filter_sql
    inner, text = self.sql(node, "this"), plain(self, node)
    return (
        inner.replace(WINDOW_PLACEHOLDER, text[len(inner) :] + WINDOW_PLACEHOLDER)
        if WINDOW_PLACEHOLDER in inner
        else text
    )


class SparkDialect(Spark):
    """What is written."""

    class Generator(SparkGenerator):
        TYPE_MAPPING = {**SparkGenerator.TYPE_MAPPING, exp.DType.JSON: "STRING"}
        TRANSFORMS = {
            **{
                kind: how
                for kind, how in SparkGenerator.TRANSFORMS.items()
                if kind is not exp.Select
            },
            **dict.fromkeys(
                (exp.Anonymous, exp.Cast, exp.TryCast, exp.Extract, *NODE_NAMES), _call_sql
            ),
            exp.Unnest: _unnest_sql,
            exp.Filter: _window_sql,
            exp.Window: _window_sql,
        }


def _date_pattern_sql(pattern: Any) -> str:
    """A pattern of MySQL's in Java's letters; the table has its parts as it has functions without
    arguments.
    """
    if not pattern.is_string or set(re.findall("%.?", pattern.name)) - set(FUNCTIONS):
        raise _unsupported("this pattern", pattern)
    return exp.Literal.string(
        re.sub(
            r"(%.)|[A-Za-z'\[\]{}#]+",
            lambda found: (
                FUNCTIONS[found[1]][0][1][0]
                if found[1]
                else "'" + found[0].replace("'", "''") + "'"
            ),
            pattern.name,
        )
    ).sql(Spark)


def _json_path_sql(path: Any) -> str:
    """A path into JSON: names, numbers from 0 on, names in quotes; Spark has these in single
    ones.
    """
    if not path.is_string or not re.fullmatch(r'\$(\.[\w:-]+|\[\d+\]|\["[^"\']+"\])*', path.name):
        raise _unsupported("this path", path)
    return exp.Literal.string(path.name.replace('"', "'")).sql(Spark)


LITERAL_CONVERTERS: dict[str, Callable[[Any], str]] = {
    "pattern": _date_pattern_sql,
    "path": _json_path_sql,
}  # by the arguments' names in the table
